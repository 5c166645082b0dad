# SPDX-License-Identifier: Apache-2.0
"""What the simulation calls a loss of steps, and a restart without a cause."""

import pytest

from elasticjob.members import written_replacements
from simulation.loop import Process, VirtualLoop
from simulation.progress import Processes, Progress, Standing
from simulation.views import Views


def job(*, restarts=0, **agreed):
    rendezvous = {"round": 4, "phase": "Formed", "participants": "0/a", "replicas": 2, **agreed}
    return {"metadata": {"name": "j", "uid": "u"}, "status": {"restarts": restarts, "rendezvous": rendezvous}}


@pytest.mark.parametrize(
    ("has", "more", "complains"),
    [
        (Standing(3, 12), {}, True),
        (Standing(3, 11), {}, False),  # the step that broke
        (Standing(2, 99), {}, False),
        (None, {}, False),
        (Standing(4, 99), {}, False),  # of this group
        (Standing(3, 12), {"restartRound": 4}, False),
        (Standing(3, 12), {"leaving": "1/a"}, False),
        (Standing(3, 12), {"replaced": True}, False),
        (Standing(3, 12), {"participants": "0/a 2/a"}, False),  # a spare has its place
        (Standing(3, 12), {"finished": "2/a"}, False),
        (Standing(3, 12), {"round": 5, "participants": "0/a 2/a"}, True),
    ],
)
def test_a_group_that_trains_on_from_less_than_others_have(has, more, complains):
    complaints = []
    progress = Progress(complaints.append)
    body = job(**{name: value for name, value in more.items() if name != "replaced"})
    body["status"]["replacements"] = written_replacements({1: 1} if "replaced" in more else {})
    progress.see(body)
    progress.started("u", 1, "key", Processes(1, "j-1-0", lambda: has))
    progress.begins("u", 2, 4, Standing(3, 10))
    assert complaints == []
    progress.begins("u", 1, 4, Standing(3, 10))
    assert bool(complaints) is complains
    progress.ended("u", 1, "key")
    complaints.clear()
    progress.begins("u", 1, 4, Standing(3, 10))
    assert complaints == []


def test_a_restart_has_a_cause():
    complaints, views = [], Views()
    views.complain = complaints.append
    agent = Process(VirtualLoop(), "agent")
    views.starts("u", agent)
    views._see_job(job(), 0.0)
    agent.kill()
    views.fails("u")
    for restarts in (1, 2, 0):
        views._see_job(job(restarts=restarts), 0.0)
        assert complaints == []
    views._see_job(job(restarts=1), 0.0)
    assert complaints == ["job j has counted 3 restarts, and 2 trainers failed"]
