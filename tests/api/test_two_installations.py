# SPDX-License-Identifier: Apache-2.0
"""Two installations with Leases of their own look after the same job."""

from api.operators import JOBS, Operators, new_job
from elasticjob.objects import Object
from elasticjob_operator.job.rivals import is_older
from support import ControlPlane
from support.waiting import until

EVENTS = "/api/v1/namespaces/default/events"


async def test_the_one_with_the_younger_lease_leaves_the_job_to_the_other(
    operators: Operators, plane: ControlPlane
) -> None:
    older, younger = await operators.lead(), await operators.beside().lead()
    if is_older(younger.leadership.lease, older.leadership.lease):  # by name, where both were made in one second
        older, younger = younger, older
    name = new_job(plane)
    for _ in range(8):  # a look may end before the write, as where the other's came between
        await younger.see(name)
        await older.see(name)
    before = plane.request("GET", f"{JOBS}/{name}")
    assert before["status"]["lease"]["uid"] == older.leadership.lease.uid

    assert await younger.see(name) == before["status"]
    plane.request("PATCH", f"{JOBS}/{name}", {"spec": {"suspend": True}}, content_type="application/merge-patch+json")
    assert await younger.see(name) == before["status"]
    after = await older.see(name)
    assert (after["phase"], after["term"]) == ("Suspended", before["status"]["term"])

    def left() -> list[Object]:
        found = plane.request("GET", EVENTS)["items"]
        return [one for one in found if (one["reason"], one["involvedObject"]["name"]) == ("JobLeft", name)]

    await until(lambda: bool(left()))
    (event,) = left()
    assert f"the holder of the Lease {older.leadership.lease.place} goes on with this job" in event["message"]
