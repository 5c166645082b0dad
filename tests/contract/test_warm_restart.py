# SPDX-License-Identifier: Apache-2.0
"""A process that starts warm cannot be told from one that starts fresh: not by its script, nor by who looks at it.

Some jobs live twice, fresh and warm, through the same rounds, and what their processes saw is compared item by item;
the others show what is not started warm, and that nothing is left. They are in `contract.warm`.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from contract.warm.changes import CHANGES, JOBS
from contract.warm.lives import ENDS, LIVES, MISBEHAVING, ORDINARY, PART, TWICE, has_tqdm
from contract.warm.runs import HERE, Process, Run, Setup
from contract.warm.training import seen, seen_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from contract.plane import Plane

    Lives = Callable[[str], Any]

CHANCE = {"chance", "torch_chance"}
ITEMS = ["frames", "pickled", *(item.__name__ for item in seen.ITEMS if item.__name__ not in CHANCE)]
TORCH_ITEMS = [item.__name__ for item in seen_torch.ITEMS if item.__name__ not in CHANCE]
OF_WARM = ("ELASTICJOB_WARM_RESTART", "ELASTICJOB_WARM_IMPORTS")  # the container's, which only one of both has
AT_ONCE = 3  # jobs, beside those of the other torches
OF_A_ROUND = {"environment", "environment_of_a_child", "environment_in_c", "descriptors"}


@pytest.fixture(scope="module")
def lives(plane: Plane, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Lives]:
    """What became of a job, by its name. Those that the chosen tests ask for run beside each other."""
    directory = tmp_path_factory.mktemp("lives")
    chosen = {name for item in request.session.items for name in of_test(item)}

    def live(name: str) -> Any:
        def start(setup: Setup, warm: bool) -> Run:
            return Run(plane, directory / name.replace(" ", "-"), setup, warm=warm)

        return LIVES[name](start)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        lived: dict[str, Future[Any]] = {name: pool.submit(live, name) for name in LIVES if name in chosen}

        def shown(name: str) -> Any:
            result = lived[name].result()
            run = result if isinstance(result, Run) else result[0]
            print(f"--- {name}\n{run.log()}")  # for a test that fails
            return result

        yield shown


def of_test(item: pytest.Item) -> list[str]:
    """The names of the jobs that a test asks for."""
    asked = getattr(item, "callspec", None)
    if asked is None or item.path.name != "test_warm_restart.py":
        return []
    return [name for value in asked.params.values() for name in (value, f"{value} warm", f"{value} fresh")]


def all_processes(run: Run) -> list[Process]:
    return [process for round in run.rounds for process in round]


def without_own(seen: Any) -> Any:
    if isinstance(seen, dict):
        return {name: without_own(value) for name, value in seen.items() if name not in OF_WARM}
    if isinstance(seen, list):
        return [without_own(value) for value in seen if value not in OF_WARM]
    return seen


def compare(fresh: Run, warm: Run, item: str) -> None:
    """In each round, of each process."""
    for one, other in zip(all_processes(fresh), all_processes(warm), strict=True):
        assert without_own(other.seen[item]) == without_own(one.seen[item])


# --- the same, fresh and warm


@pytest.fixture(params=TWICE)
def both(request: pytest.FixtureRequest, lives: Lives) -> tuple[Run, Run]:
    """A job's fresh and its warm life."""
    return lives(f"{request.param} fresh"), lives(f"{request.param} warm")


def test_they_start_warm(both: tuple[Run, Run]) -> None:
    fresh, warm = both
    learned = {"torch.distributed"} if warm.setup.real else {PART}
    for number, (before, after) in enumerate(zip(fresh.rounds, warm.rounds, strict=True), 1):
        assert not any(process.prestarted or learned <= process.loaded_at_start for process in before)
        if number > 1:
            assert all(process.prestarted and learned <= process.loaded_at_start for process in after)


@pytest.mark.parametrize("item", ITEMS)
def test_a_script_sees_the_same(both: tuple[Run, Run], item: str) -> None:
    compare(*both, item)


@pytest.mark.parametrize("name", ["torch"])
@pytest.mark.parametrize("item", TORCH_ITEMS)
def test_a_script_sees_the_same_of_torch(lives: Lives, name: str, item: str) -> None:
    compare(lives(f"{name} fresh"), lives(f"{name} warm"), item)


def test_a_scripts_children_see_the_same(both: tuple[Run, Run]) -> None:
    """Those of multiprocessing, in each of its ways, and a DataLoader's."""
    item = "loaders" if both[0].setup.real else "children"
    fresh, warm = (without_own(run.rounds[-1][0].seen[item]) for run in both)
    assert warm == fresh


def test_it_begins_the_same(both: tuple[Run, Run]) -> None:
    """Before the script's first import, but for the modules that are there already, of which none is ours."""
    fresh, warm = both
    for one, other in zip(all_processes(fresh), all_processes(warm), strict=True):
        before, after = dict(one.seen["start"]), dict(other.seen["start"])
        more = set(after.pop("modules")) - set(before.pop("modules"))
        opened = after["descriptors"].pop("3", None)
        assert opened is None or "early_state" in opened[0], "only what an import has opened"
        assert after.pop("threads") in (before.pop("threads"), one.seen["threads"][1]), "only those that imports start"
        assert after == before
        assert not [name for name in more if "elasticjob" in name or "customize" in name]


def test_chance_is_not_repeated(both: tuple[Run, Run]) -> None:
    """What nobody has seeded differs between all processes, whether they were prestarted or not."""
    drawn: dict[str, list[Any]] = {}
    for process in [*all_processes(both[0]), *all_processes(both[1])]:
        for item in CHANCE & process.seen.keys():
            for name, value in process.seen[item].items():
                drawn.setdefault(name, []).append(value)
    for name, values in drawn.items():
        is_drawn = values != [None] * len(values)
        assert not is_drawn or len(set(values)) == len(values), name


def test_what_is_written_is_the_same(both: tuple[Run, Run]) -> None:
    """By the script, its imports and its end: tracebacks, functions at exit, what `--tee` and `--redirects` leave.

    But early imports have written before what the script had written before them.
    """
    fresh, warm = both
    for one, other in zip(all_processes(fresh), all_processes(warm), strict=True):
        for name, written in one.output.items():
            assert imports_first(other.output[name]) == imports_first(written)
    assert warm.console() == fresh.console()


def imports_first(written: str) -> list[str]:
    lines = written.splitlines()
    return sorted(lines, key=lambda line: "early_speaks" not in line)  # which keeps the order of the others


def test_what_the_agent_is_told_is_the_same(both: tuple[Run, Run]) -> None:
    """Exit codes, signals and exceptions: why the job's rounds ended."""
    fresh, warm = both
    assert warm.reasons == fresh.reasons


# --- not started warm


@pytest.mark.any_torch
@pytest.mark.parametrize(("name", "change"), [(name, change) for name, changes in JOBS.items() for change in changes])
def test_what_has_changed_in_the_agent_is_seen(lives: Lives, name: str, change: str) -> None:
    """No prestarted process has it; the log says why it was not used."""
    run, number = lives(name), JOBS[name].index(change)
    before, after = all_processes(run)[number : number + 2]
    assert CHANGES[change].shows(after)
    assert not CHANGES[change].shows(before)
    assert PART not in after.loaded_at_start
    assert CHANGES[change].why in run.why_ordinary()[number]
    assert len(run.why_ordinary()) == len(JOBS[name])


@pytest.mark.any_torch
@pytest.mark.parametrize("how", ORDINARY)
def test_what_cannot_be_prestarted_starts_in_the_ordinary_way(lives: Lives, how: str) -> None:
    run = lives(how)
    assert len(run.why_ordinary()) == len(run.rounds), "each start says why"
    assert not any(PART in process.loaded_at_start for process in all_processes(run))


@pytest.mark.any_torch
@pytest.mark.parametrize("name", MISBEHAVING)
def test_an_import_that_misbehaves_early_is_left_out(lives: Lives, name: str) -> None:
    run = lives(name)
    first, *others = all_processes(run)
    for other in others:
        for item in set(ITEMS) - OF_A_ROUND:
            assert other.seen[item] == first.seen[item]
    assert PART in others[-1].loaded_at_start
    assert name not in others[-1].loaded_at_start
    assert name == "early_thread" or name in run.log(), "what no script could have shown is said"


@pytest.mark.any_torch
@pytest.mark.parametrize("name", ["rank"])
def test_an_import_that_asks_for_the_rank_is_told_the_right_one(lives: Lives, name: str) -> None:
    run = lives(name)
    first, second, third = all_processes(run)
    assert [process.seen["imported"]["early_rank"] for process in (first, second, third)] == ["1", "0", "0"]
    assert PART not in second.loaded_at_start
    assert PART in third.loaded_at_start
    assert "early_rank" not in third.loaded_at_start
    assert "early_prefix" in third.loaded_at_start
    assert len(run.why_ordinary()) == 1
    assert "not imported early any more: early_rank (early_rank reads RANK)" in run.log()
    assert "; the script still imports early_rank (early_rank reads RANK)" in run.log()


@pytest.mark.parametrize("name", ["listing"])
def test_an_import_that_lists_the_variables_for_a_prefix_is_early_from_the_first_round_on(
    lives: Lives, name: str
) -> None:
    """tqdm does, which torch imports where it is installed."""
    run = lives(name)
    assert run.why_ordinary() == []
    for process in all_processes(run):
        assert "early_prefix" in process.loaded_at_start
        assert ("tqdm" in process.loaded_at_start) is has_tqdm()
    assert run.log().count("starts warm") == len(run.rounds) == 2


@pytest.mark.any_torch
@pytest.mark.parametrize("name", ["shadow"])
def test_the_scripts_folder_shadows_the_library(lives: Lives, name: str) -> None:
    """Also where a module of the library asks for the name, and whoever has learned it did not know that."""
    run = lives(name)
    for process in all_processes(run):
        assert process.seen["imported"]["early_shadows"] == str(HERE / "training/early_shadowed.py")
    assert PART in all_processes(run)[-1].loaded_at_start


# --- in time, and to the end


@pytest.mark.any_torch
@pytest.mark.parametrize("name", ["slow"])
def test_orders_that_come_during_an_import_are_obeyed_after_it(lives: Lives, name: str) -> None:
    run = lives(name)
    _, process = all_processes(run)
    assert (run.directory / f"importing-{process.pid}").exists()
    assert {PART, "early_waits"} <= process.loaded_at_start
    assert run.why_ordinary() == []


@pytest.mark.any_torch
@pytest.mark.parametrize("name", ["hang"])
def test_one_that_hangs_in_an_early_import_is_replaced_and_counts_for_nothing(lives: Lives, name: str) -> None:
    run, counted = lives(name)
    first, other = all_processes(run)
    assert counted == 1, "the end of the first round's process"
    assert "it has not left the early import of early_hangs" in run.log()
    assert "not imported early any more: early_hangs" in run.log()
    assert "round 3: rank 0 of 1" in run.log()
    assert "early_hangs" not in other.loaded_at_start
    assert other.seen["imported"] == first.seen["imported"]


@pytest.mark.parametrize("end", ENDS)
def test_no_prestarted_process_is_left(lives: Lives, end: str) -> None:
    run, left = lives(end)
    assert run.prestarted
    assert left == []
