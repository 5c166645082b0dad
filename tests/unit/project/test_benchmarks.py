# SPDX-License-Identifier: Apache-2.0
"""`make bench-quick` starts every benchmark."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
BY_HAND = {"bench-quick", "bench-torchft"}  # the latter downloads torchft at each run


def test_each_benchmark_is_started_at_its_smallest() -> None:
    targets = re.findall(r"^(bench[a-z0-9-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    quick = re.findall(r"^  '(bench\S*).*'$", (ROOT / "hack/bench-quick.sh").read_text(), re.MULTILINE)
    assert sorted(quick) == sorted(set(targets) - BY_HAND)
