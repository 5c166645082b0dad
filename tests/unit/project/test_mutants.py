# SPDX-License-Identifier: Apache-2.0
"""The seeded mistakes can still be made: `make mutants`, which tries them, is no part of `make test`."""

import ast

import pytest

from model import mutants
from model.code_patterns import change, places
from model.mutant_checks import FILES
from model.mutation import ROOT, CannotBeMade, Mutation, file_of, place_of, read, tree_of, unknown_names
from model.rename_mutants import names_of, renamed_table

MODULE = "elasticjob.rendezvous.roster"
CURRENT = f"{MODULE}:is_current"


def test_each_mistake_can_be_made() -> None:
    assert list(mutants.problems()) == []


def test_each_check_has_its_files() -> None:
    assert [name for name, file in FILES.items() if not (ROOT / "tests/unit" / file).is_file()] == []


@pytest.mark.parametrize(
    ("source", "old", "new", "expected"),
    [
        ("if a and b or c:\n    x()", "b", None, "if a or c:\n    x()"),
        ("x = a + b | c", "b", None, "x = a | c"),
        ("f(a, *b, c=1, d=2)", "*b", None, "f(a, c=1, d=2)"),
        ("f(a, b, c=1, d=2)", "c = 1", None, "f(a, b, d=2)"),
        ("x = {410: Gone, 404: Missing}", "410: Gone", None, "x = {404: Missing}"),
        ("x = [a for a in b if a if c]", "c", None, "x = [a for a in b if a]"),
        ("x = 1\nf(x)", "f(x)", None, "x = 1"),
        ("for a in b:\n    if a:\n        f()\n        g()", "if a: ...", None, "for a in b:\n    pass"),
        ("x = f(  # the largest\n    a,\n    b,\n)", "f(a, b)", "a", "x = a"),
        ("x = a <= b + 1", "a <= ...", "a < ...", "x = a < b + 1"),
        ("Move(A, 1, x, y=z)", "Move(A, 1, ..., y=...)", "Move(A, 0, ..., y=...)", "Move(A, 0, x, y=z)"),
        ("if a:\n    f()\nelif b:\n    g()", "if a: ...\nelse: ...", "if not a: ...\nelse: ...", None),
        ("if a:\n    f()\nelif b:\n    g()", "if a: f()\nelse: ...", "...", "if b:\n    g()"),
        (
            "try:\n    f()\nexcept A:\n    x = 1",
            "except A: ...",
            "except B: ...",
            "try:\n    f()\nexcept B:\n    x = 1",
        ),
        ("f()\ng()", "f()\ng()", "g(); f()", "g()\nf()"),
        ("f(c=True, d=True)", "c=True", "c=False", "f(c=False, d=True)"),
    ],
)
def test_a_change_is_made_in_the_one_place_where_it_fits(source: str, old: str, new: str | None, expected: str) -> None:
    tree = ast.parse(source)
    (place,) = places(tree, old, new)
    changed = ast.unparse(change(tree, place, new))
    assert changed == (expected or source.replace("if a", "if not a", 1))


def test_a_change_that_fits_nowhere_or_more_than_once_says_what_there_is() -> None:
    tree = ast.parse(
        "def is_current(state, worker):\n    if worker.number == 1:\n        return 1\n    return worker.number"
    )
    nowhere = Mutation(CURRENT, "", "worker.numbers", None, "unit")
    with pytest.raises(CannotBeMade, match=r"has no 'worker.numbers' to change; there is .*worker.number"):
        place_of(nowhere, tree)
    with pytest.raises(CannotBeMade, match=r"has '1' 2 times, in lines 2, 3"):
        place_of(nowhere._replace(old="1", new="2"), tree)


def test_an_unknown_name_is_told_with_those_that_are_like_it() -> None:
    moved = Mutation(f"{MODULE}:is_currently", "", "x", None, "unit")
    with pytest.raises(CannotBeMade, match=rf"there is no {moved.address}; there is .*{CURRENT}"):
        place_of(moved, tree_of(moved.module))
    with pytest.raises(CannotBeMade, match=rf"there is no a.b:is_current; there is {CURRENT}"):
        file_of("a.b:is_current")


def test_new_code_uses_no_name_that_the_sources_do_not_have() -> None:
    mutation = Mutation(CURRENT, "", "True", "state.gone_with_a_rename(worker, key=1, lately=None)", "unit")
    assert unknown_names(mutation) == {"gone_with_a_rename", "lately"}


def test_a_table_of_names_renames_addresses_and_code_but_no_sentence_and_no_string() -> None:
    table = """by: since

a.decide:Step.give_up
decide to give_up [since]
    - give_up("give_up", x.since)
    + if x:
    +     give_up()

a.decide:other
since
    - since
a.decided:give_up
"""
    names = names_of("a.decide a.rules\na.decide:Step b:Stage\n\ngive_up abandon\nsince  began\n")
    renamed = """by: since

b:Stage.abandon
decide to give_up [since]
    - abandon("give_up", x.began)
    + if x:
    +     abandon()

a.rules:other
since
    - began
a.decided:abandon
"""
    code = 'give_up("give_up", x.since)'
    assert list(read(table)) == [
        Mutation("a.decide:Step.give_up", "decide to give_up", code, "if x:\n    give_up()", "since"),
        Mutation("a.decide:other", "since", "since", None, "since"),
    ]
    assert renamed_table(table, names) == renamed
    with pytest.raises(ValueError, match="line 2 should have an old and a new name, and not 'since'"):
        names_of("a b\nsince")


@pytest.mark.parametrize("table", ["a:b\n    - x", "a:b\nwrong", "    - x", "a:b\nwrong\n    + x\nwrong too\n    - x"])
def test_a_line_of_a_table_that_would_be_passed_over_is_an_error(table: str) -> None:
    with pytest.raises(ValueError, match="under a mistake, and only there, is the code in which it is made: "):
        list(read(table))


@pytest.mark.parametrize("broken", ["core transcripts", "unit"])
def test_a_check_that_fails_without_a_mistake_catches_nothing(
    broken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither the check that a mutation names, nor one that is tried after it."""
    monkeypatch.setattr(mutants, "problems", lambda: iter(()))
    monkeypatch.setattr(mutants, "_copy", lambda root: (root / file_of(MODULE)).parent.mkdir(parents=True))
    monkeypatch.setattr(
        mutants, "_run", lambda root, arguments, *_: "boom" if arguments == mutants.command(broken, MODULE) else ""
    )
    assert mutants.main(["draining: nobody comes for a member"]) == 1
    assert f"the check '{broken}' fails without any mistake, so it shows nothing; mend it first: boom" in (
        capsys.readouterr().out
    )
