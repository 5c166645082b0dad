# SPDX-License-Identifier: Apache-2.0
"""An import-linter contract that lists what a package may import.

import-linter's own contracts list what is forbidden, so a new dependency would pass them. This one fails on
everything that is not the package itself, the standard library or named in `allowed`. Single exceptions go
into `ignore_imports`, as "importer -> imported".
"""

import sys

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class MayImportContract(Contract):
    importer = fields.StringField()
    allowed = fields.ListField(subfield=fields.StringField(), required=False, default=[])
    ignore_imports = fields.ListField(subfield=fields.StringField(), required=False, default=[])

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        found = {
            f"{module} -> {imported}"
            for module in {self.importer, *graph.find_descendants(self.importer)}
            for imported in graph.find_modules_directly_imported_by(module)
            if not self._allows(imported)
        }
        offences = sorted(found - set(self.ignore_imports))
        outdated = sorted(set(self.ignore_imports) - found)
        return ContractCheck(kept=not (offences or outdated), metadata={"offences": offences, "outdated": outdated})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for offence in check.metadata["offences"]:
            output.print_error(offence)
        for entry in check.metadata["outdated"]:
            output.print_error(f"{entry} (in ignore_imports, but no such import is there)")
        allowed = ", ".join(["the standard library", *self.allowed])
        output.print(f"{self.importer} may import: {allowed}.")

    def _allows(self, imported: str) -> bool:
        if imported.partition(".")[0] in sys.stdlib_module_names:
            return True
        permitted = (self.importer, *self.allowed)
        return any(imported == name or imported.startswith(f"{name}.") for name in permitted)
