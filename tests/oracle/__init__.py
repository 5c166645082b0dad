# SPDX-License-Identifier: Apache-2.0
"""What must hold of the rendezvous, for every test that takes steps of it; it shares no code with the rules.

`violations` judges one step of `decide` by what that could see, `history_violations` two statuses that were written one
after the other. docs/protocol.md lists both.
"""

from oracle.history import history_violations
from oracle.invariants import violations

__all__ = ["history_violations", "violations"]
