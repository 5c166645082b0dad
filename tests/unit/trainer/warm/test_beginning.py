# SPDX-License-Identifier: Apache-2.0
"""What a script imports before it does anything else."""

import pytest

from elasticjob_torch.warm.beginning import first_imports

HEAD = '''"""What it is for."""
from __future__ import annotations
import os, sys
import torch.nn as nn
from sklearn.datasets import load_digits
NAME = "digits"
def build():
    import json
from torch import optim
'''
FOUND = ["os", "sys", "torch.nn", "sklearn.datasets", "torch"]


@pytest.mark.parametrize(
    "statement",
    [
        "os.environ['OMP_NUM_THREADS'] = '4'",
        "os.environ['A'] = B = '4'",
        "print()",
        "A = os.getcwd()",
        "try:\n    import early\nexcept ImportError:\n    pass",
        "class A(B): pass",
        "@decorate\ndef f(): pass",
        "def f(a=os.getcwd()): pass",
        "import own",
        "from own.part import a",
        "if True: pass",
    ],
)
def test_it_ends_where_a_script_begins_to_do_something(statement):
    assert first_imports(f"{HEAD}{statement}\nimport late\n", lambda name: name == "own") == FOUND


@pytest.mark.parametrize("source", ["", "print(", "\0", "from . import a"])
def test_nothing_is_guessed(source):
    assert first_imports(source, lambda _: False) == []
