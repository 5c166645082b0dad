# SPDX-License-Identifier: Apache-2.0
"""A torchrun in a worker that would pass over the job's rendezvous."""

import os
import subprocess
import sys
import types

import pytest

from elasticjob_torch.agent.orphans import MARK, leave_mark
from elasticjob_torch.agent.other_rendezvous import ON_PURPOSE, guard, refusal_of

IN_A_WORKER = {"PET_RDZV_BACKEND": "elasticjob"}
SCRIPT = ["train.py", "--epochs=3"]


@pytest.mark.parametrize(
    ("backend", "options", "named"),
    [
        ("c10d", ["--standalone"], "--standalone"),
        ("c10d", ["--nproc-per-node=1", "--stand"], "--standalone"),
        ("c10d", ["--standalone", "--rdzv-backend=c10d"], "--standalone"),
        ("c10d", ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"], "--rdzv-backend c10d"),
        ("c10d", ["--rdzv_backend", "c10d"], "--rdzv-backend c10d"),
        ("static", ["--rdzv-b=static"], "--rdzv-backend static"),
        ("kubernetes", ["--rdzv-backend=kubernetes"], "--rdzv-backend kubernetes"),
        ("etcd", [], "the rdzv_backend 'etcd' of torchrun"),
    ],
)
def test_what_chose_it_is_named(backend, options, named):
    refusal = refusal_of(backend, ["/usr/bin/torchrun", *options, *SCRIPT], IN_A_WORKER)
    assert refusal is not None
    assert refusal.startswith(f"{named} passes over the job's rendezvous")
    assert ON_PURPOSE in refusal
    assert len(f"exit code 1: elasticjob: {refusal}") <= 300  # what a condition has room for


def test_a_variable_may_have_chosen_it():
    environment = {**IN_A_WORKER, "PET_STANDALONE": "1"}
    refusal = refusal_of("c10d", ["torchrun", *SCRIPT], environment)
    assert refusal is not None
    assert refusal.startswith("PET_STANDALONE in the container's environment")
    assert len(f"exit code 1: elasticjob: {refusal}") <= 300


def test_a_launcher_without_arguments_is_refused_too():
    assert refusal_of("etcd", [], IN_A_WORKER) is not None


@pytest.mark.parametrize(
    ("backend", "environment"),
    [
        ("elasticjob", IN_A_WORKER),
        ("c10d", {}),  # no worker of a job, or a preparation on purpose
        ("c10d", {"PET_RDZV_BACKEND": "c10d"}),
    ],
)
def test_what_is_let_pass(backend, environment):
    assert refusal_of(backend, ["torchrun", "--standalone", *SCRIPT], environment) is None


@pytest.fixture
def marked(monkeypatch):
    """This process, as an agent has marked it for all that it starts."""
    monkeypatch.setitem(os.environ, MARK, "")
    leave_mark("run")
    return os.environ[MARK]


def test_below_a_living_agent_any_rendezvous_will_do(marked):
    look = "import os; from elasticjob_torch.agent.orphans import agent_above as look; print(look(os.environ))"
    child = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert child.stdout == f"{os.getpid()}\n"


def test_the_mark_of_the_process_itself_is_no_agent_above(marked):
    assert refusal_of("c10d", ["torchrun", "--standalone"], {**IN_A_WORKER, MARK: marked}) is not None


@pytest.mark.parametrize("mark", ["", "nonsense", "1:never:run"])  # another process has its number
def test_a_dead_agent_above_is_none(mark):
    assert refusal_of("c10d", ["torchrun", "--standalone"], {**IN_A_WORKER, MARK: mark}) is not None


class Registry:
    def create_handler(self, params):
        return f"handler of {params.backend}"


def test_the_registry_refuses_when_it_is_asked_for_a_handler(monkeypatch):
    registry = Registry()
    guard(registry)
    standalone = types.SimpleNamespace(backend="c10d")
    monkeypatch.delenv("PET_RDZV_BACKEND", raising=False)
    assert registry.create_handler(standalone) == "handler of c10d"
    monkeypatch.setenv("PET_RDZV_BACKEND", "elasticjob")
    monkeypatch.delenv(MARK, raising=False)
    monkeypatch.setattr(sys, "argv", ["torchrun", "--standalone", "train.py"])
    with pytest.raises(SystemExit, match="elasticjob: --standalone passes over the job's rendezvous"):
        registry.create_handler(standalone)
    assert registry.create_handler(types.SimpleNamespace(backend="elasticjob")) == "handler of elasticjob"
