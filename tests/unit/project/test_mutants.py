"""The seeded mistakes can still be made: `make mutants`, which tries them, is no part of `make test`."""

from model.mutants import rotten


def test_each_mistake_has_its_line() -> None:
    assert list(rotten()) == []
