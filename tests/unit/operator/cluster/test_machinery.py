"""The operator's moving parts, in virtual time: queue, cache, the leader's clock, the command line."""

import asyncio
import json
from itertools import islice, pairwise
from types import SimpleNamespace
from typing import Any

import kopf
import pytest

from elasticjob_operator.cluster import workqueue
from elasticjob_operator.cluster.cache import Cache, Key
from elasticjob_operator.cluster.client import Listing
from elasticjob_operator.cluster.handlers import settings
from elasticjob_operator.cluster.leader import LeaseClock
from elasticjob_operator.cluster.workqueue import LONGEST_RETRY_SECONDS, WorkQueue
from elasticjob_operator.objects.pods import SIDECAR_RESOURCES
from elasticjob_operator.options import parse
from support.operator_objects import job, pod, record

KEY = Key("ml", "digits")
WITH_IMAGE = ["--sidecar-image", "x", "--lease-namespace", "ops"]


@pytest.mark.looptime
class TestWorkQueue:
    async def test_what_is_asked_for_often_is_done_once(self) -> None:
        done: list[str] = []

        async def work(key: str) -> None:
            done.append(key)

        queue = WorkQueue(work)
        for _ in range(5):
            queue.add("a")
        queue.add("b")
        await asyncio.sleep(1)
        assert sorted(done) == ["a", "b"]
        assert len(queue) == 0

    async def test_asked_for_while_it_runs_it_is_done_once_more_and_never_beside_itself(self) -> None:
        running, most, runs = 0, 0, 0

        async def work(_: str) -> None:
            nonlocal running, most, runs
            running, runs = running + 1, runs + 1
            most = max(most, running)
            await asyncio.sleep(10)
            running -= 1

        queue = WorkQueue(work)
        queue.add("a")
        await asyncio.sleep(5)
        queue.add("a")
        queue.add("a")
        await asyncio.sleep(60)
        assert (runs, most) == (2, 1)

    async def test_a_key_leaves_half_of_the_processor_to_the_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        clock = SimpleNamespace(used=0.0)
        monkeypatch.setattr(workqueue, "time", SimpleNamespace(thread_time=lambda: clock.used))
        loop = asyncio.get_running_loop()
        starts: list[float] = []

        async def work(_: str) -> float | None:
            starts.append(loop.time())
            clock.used += 0.125
            return 0.0 if len(starts) < 3 else None

        began = loop.time()
        WorkQueue(work).add("a")
        await asyncio.sleep(1)
        assert [start - began for start in starts] == pytest.approx([0, 0.125, 0.25])

    async def test_an_earlier_wish_overtakes_a_later_one(self) -> None:
        times: list[float] = []
        loop = asyncio.get_running_loop()
        start = loop.time()

        async def work(_: str) -> None:
            times.append(loop.time() - start)

        queue = WorkQueue(work)
        queue.add("a", 100)
        await asyncio.sleep(1)
        queue.add("a", 1)
        await asyncio.sleep(200)
        assert times == [pytest.approx(2, abs=0.1)]

    async def test_work_names_its_next_time_itself(self) -> None:
        runs = 0

        async def work(_: str) -> float | None:
            nonlocal runs
            runs += 1
            return 10 if runs < 4 else None

        WorkQueue(work).add("a")
        await asyncio.sleep(100)
        assert runs == 4

    async def test_failing_work_is_tried_again_at_most_three_seconds_apart(self) -> None:
        times: list[float] = []
        loop = asyncio.get_running_loop()

        async def work(_: str) -> None:
            times.append(loop.time())
            raise OSError("the API server is away")

        queue = WorkQueue(work)
        queue.add("a")
        await asyncio.sleep(60)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps[0] < 0.1
        assert max(gaps) == pytest.approx(LONGEST_RETRY_SECONDS, abs=0.1)
        await queue.stop()
        assert len(queue) == 0

    async def test_an_error_without_words_is_named(self, caplog: pytest.LogCaptureFixture) -> None:
        async def work(_: str) -> None:
            raise TimeoutError

        queue = WorkQueue(work)
        queue.add("a")
        await asyncio.sleep(0.01)
        await queue.stop()
        assert "a: TimeoutError; again in 0.05 s" in caplog.text

    async def test_nothing_is_kept_of_a_key_whose_work_is_done(self) -> None:
        async def work(_: str) -> None: ...

        queue = WorkQueue(work)
        empty = {name: len(value) for name, value in vars(queue).items() if isinstance(value, dict)}
        for number in range(100):
            queue.add(f"job {number}", number)
        await asyncio.sleep(200)
        assert {name: len(value) for name, value in vars(queue).items() if isinstance(value, dict)} == empty

    async def test_work_that_is_woken_as_the_queue_stops_is_not_done(self) -> None:
        runs = 0

        async def work(_: str) -> None:
            nonlocal runs
            runs += 1

        queue = WorkQueue(work)
        queue.add("a", 100)
        await asyncio.sleep(1)
        queue.add("a", 50)
        began = asyncio.get_running_loop().time()
        await queue.stop()
        assert asyncio.get_running_loop().time() - began < 1
        assert runs == 0


class TestCache:
    def test_an_older_form_never_replaces_a_newer_one(self) -> None:
        cache = Cache()
        cache.note_job(job())
        cache.note_pod(pod(0, version=9, phase="Running"))
        cache.note_pod(pod(0, version=8, phase="Pending"))
        assert cache.view(KEY).pods["digits-0-0"]["status"]["phase"] == "Running"

    def test_the_end_of_an_earlier_object_of_the_name_does_not_remove_the_new_one(self) -> None:
        cache = Cache()
        cache.note_job(job())
        earlier = job()
        earlier["metadata"]["uid"] = "earlier"
        cache.note_job(earlier, deleted=True)
        assert cache.view(KEY).job is not None

    def test_a_heartbeat_asks_for_nothing(self) -> None:
        cache = Cache()
        assert cache.note_worker(record(0)) == (KEY, True)
        beat = record(0)
        beat["status"]["heartbeat"] = 5
        assert cache.note_worker(beat) == (KEY, False)
        assert cache.note_worker(record(0, request={"type": "Join"})) == (KEY, True)

    def test_a_pod_told_once_more_asks_for_nothing(self) -> None:
        cache = Cache()
        cache.replace(KEY, job(), Listing([pod(0, version=5)], "6"), Listing([], "6"))
        assert cache.note_pod(pod(0, version=5)) == (KEY, False)
        assert cache.note_pod(pod(0, version=7)) == (KEY, True)
        assert cache.note_pod(pod(0, version=7), deleted=True) == (KEY, True)

    def test_a_listing_removes_what_is_no_more(self) -> None:
        cache = Cache()
        cache.note_pod(pod(0, version=3))
        cache.replace(KEY, job(), Listing([pod(1, version=5)], "6"), Listing([], "6"))
        assert set(cache.view(KEY).pods) == {"digits-1-0"}

    def test_what_the_watch_tells_while_a_listing_is_on_its_way_wins(self) -> None:
        cache = Cache()
        cache.begin_listing(KEY)
        listing = Listing([pod(0, version=4), pod(1, version=5)], "6")
        cache.note_pod(pod(0, version=7), deleted=True)
        cache.note_pod(pod(1, version=8, phase="Running"))
        cache.note_pod(pod(2, version=9))
        cache.replace(KEY, job(), listing, Listing([], "6"))
        assert set(cache.view(KEY).pods) == {"digits-1-0", "digits-2-0"}
        assert cache.view(KEY).pods["digits-1-0"]["status"]["phase"] == "Running"

    def test_who_wrote_which_field_is_not_kept(self) -> None:
        cache = Cache()
        noted, listed = pod(0, version=7), pod(1, version=5)
        for one in (noted, listed):
            one["metadata"]["managedFields"] = [{"manager": "kubelet"}]
        cache.note_pod(noted)
        cache.replace(KEY, job(), Listing([listed], "6"), Listing([], "6"))
        assert cache.view(KEY).pods == {"digits-0-0": pod(0, version=7), "digits-1-0": pod(1, version=5)}


def test_kopf_copies_no_object_to_find_changes() -> None:
    class Uncopied(dict[str, Any]):
        def __deepcopy__(self, memo: Any) -> Any:
            raise AssertionError("copied")

    storage = settings().persistence.diffbase_storage
    body = kopf.Body({"metadata": Uncopied(), "spec": Uncopied()})
    assert storage.build(body=body, extra_fields=[("spec",)]) == {}
    assert storage.fetch(body=body) is None


def test_no_refusal_ends_a_watch() -> None:
    """A namespace that vanished is refused, and kopf would never again watch one that failed for good."""
    backoffs = settings().networking.error_backoffs
    for _ in range(2):
        found = list(islice(backoffs, 10_000))
        assert (len(found), max(found)) == (10_000, 10)


class TestLeaseClock:
    def test_it_runs_from_renewal_to_renewal_and_a_little_beyond(self) -> None:
        now = 100.0
        clock = LeaseClock(lambda: now)
        clock.renewed(100)
        now = 101.0
        clock.renewed(101)
        assert clock.now() == pytest.approx(1.0)
        now = 200.0
        assert clock.now() == pytest.approx(2.5)

    def test_a_gap_is_not_counted_and_begins_an_epoch(self) -> None:
        now = 100.0
        clock = LeaseClock(lambda: now)
        clock.renewed(100)
        now = 104.0
        clock.renewed(104)
        before, epoch = clock.now(), clock.epoch
        now = 230.0
        clock.renewed(230)
        assert clock.now() - before <= 1.5
        assert clock.epoch == epoch + 1

    def test_it_never_goes_back(self) -> None:
        now, seen = 0.0, 0.0
        clock = LeaseClock(lambda: now)
        for at in (0.0, 1.0, 2.2, 9.0, 9.5, 14.4, 30.0):
            for answered in (0.0, 0.3, 0.4):  # the answer comes later than the renewal was sent
                now = at + answered
                assert clock.now() >= seen
                seen = clock.now()
            clock.renewed(at)


class TestOptions:
    def test_a_missing_image_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            parse([], {})
        assert "--sidecar-image is missing" in capsys.readouterr().err

    def test_outside_a_pod_the_lease_needs_a_namespace(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            parse(["--sidecar-image", "x"], {})
        assert "--lease-namespace is missing" in capsys.readouterr().err

    def test_a_flag_wins_over_its_variable(self) -> None:
        found = {"ELASTICJOB_SIDECAR_IMAGE": "a", "ELASTICJOB_LEASE_NAMESPACE": "ops", "POD_NAME": "one"}
        options = parse(["--sidecar-image", "b", "--namespaces", "ml, dev"], found)
        assert (options.sidecar_image, options.lease_namespace, options.identity) == ("b", "ops", "one")
        assert options.namespaces == ("ml", "dev")

    def test_the_sidecars_resources_have_a_default(self) -> None:
        assert parse(WITH_IMAGE, {}).sidecar_resources == SIDECAR_RESOURCES
        given = '{"requests": {"cpu": 1, "memory": "1.5Gi"}, "limits": {}}'
        assert parse([*WITH_IMAGE, "--sidecar-resources", given], {}).sidecar_resources == json.loads(given)

    @pytest.mark.parametrize(
        ("given", "sentence"),
        [
            ("{", "is no JSON: Expecting property name"),
            ("[]", 'must be an object of "requests" and "limits"'),
            ('{"limit": {}}', 'must be an object of "requests" and "limits"'),
            ('{"limits": 1}', "limits must be quantities such as"),
            ('{"limits": {"cpu": "much"}}', "limits must be quantities such as"),
            ('{"limits": {"cpu": true}}', "and is {'cpu': True}"),
        ],
    )
    def test_wrong_resources_are_named(self, given: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit):
            parse([*WITH_IMAGE, "--sidecar-resources", given], {})
        said = capsys.readouterr().err
        assert f"--sidecar-resources {given!r}: " in said
        assert sentence in said
