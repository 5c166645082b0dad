# SPDX-License-Identifier: Apache-2.0
"""Print a release's notes: CHANGELOG.md's section of the version, and how to install it.

python hack/release/notes.py 0.2.0 --registry REGISTRY/OWNER [--sizes FILE]     FILE: what image_sizes.sh printed
"""

import argparse
import sys
from pathlib import Path

from changelog import ChangelogError, notes
from project import ROOT

INSTALL = """\
## Install

    helm install elasticjob oci://{registry}/charts/elasticjob --version {version} \\
      --namespace elasticjob-system --create-namespace

docs/releasing.md says how to verify the signatures of the chart and the images.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="notes.py", description="Print a release's notes.")
    parser.add_argument("version", help="X.Y.Z")
    parser.add_argument("--registry", required=True, help="where images and chart are, such as REGISTRY/OWNER")
    parser.add_argument("--sizes", type=Path, help="a table of the images' sizes, to be added")
    parser.add_argument("--changelog", type=Path, default=ROOT / "CHANGELOG.md", help="default: this checkout's")
    arguments = parser.parse_args()
    try:
        changed = notes(arguments.changelog.read_text(), arguments.version)
    except ChangelogError as error:
        sys.exit(f"error: {error}")
    parts = [INSTALL.format(registry=arguments.registry, version=arguments.version), changed]
    if arguments.sizes:
        parts.append(f"## Images\n\n{arguments.sizes.read_text().strip()}")
    print("\n\n".join(part.strip() for part in parts))


if __name__ == "__main__":
    main()
