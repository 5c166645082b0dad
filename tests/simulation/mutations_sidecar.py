"""Seeded mistakes in what the sidecar and the plug-in do, beside what they decide; told as those of `model.mutations`.

`by` is what catches it: "simulation", or the file of the unit tests that do.
"""

from model.mutations import Mutation

SIDECAR, PLUGIN, UNIT = "sidecar/elasticjob_sidecar", "trainer/elasticjob_torch", "tests/unit"
DRIVER, MACHINE = f"{SIDECAR}/driver.py", f"{SIDECAR}/membership/machine.py"
CLIENT, WATCH, RECORD, RETRY = (
    f"{SIDECAR}/kubernetes/{name}.py" for name in ("client", "job_watch", "worker_record", "retry")
)
ROUTES, SERVER = f"{SIDECAR}/trainer_api/routes.py", f"{SIDECAR}/trainer_api/server.py"
TRUST, TUNNEL = f"{SIDECAR}/store/trust.py", f"{SIDECAR}/store/tunnel.py"
CALLS, EVENTS, COURSE = f"{PLUGIN}/sidecar/client.py", f"{PLUGIN}/sidecar/events.py", f"{PLUGIN}/agent/course.py"

MUTATIONS = (
    Mutation(
        "a stream's keep-alive is put off by whatever rings",
        ROUTES,
        "                await response.write(said)\n                wrote = loop.time()\n",
        "                await response.write(said)\n            wrote = loop.time()\n",
        "simulation",
    ),
    Mutation(
        "a stream says nothing between two changes",
        ROUTES,
        "            elif loop.time() >= wrote + COMMENT_SECONDS:\n",
        "            elif False:\n",
        "simulation",
    ),
    Mutation(
        "nobody notices that a trainer was killed",
        SERVER,
        "            handler_cancellation=True,\n",
        "            handler_cancellation=False,\n",
        "simulation",
    ),
    Mutation(
        "a trainer that is gone is not told to the membership",
        ROUTES,
        "            driver.detach(asked.trainer, stream)\n",
        "            pass\n",
        "simulation",
    ),
    Mutation(
        "the end of an old stream ends the new one",
        MACHINE,
        "        if stream == self._stream:\n",
        "        if self._stream:\n",
        "simulation",
    ),
    Mutation(
        "a stream that was replaced goes on",
        ROUTES,
        "                lambda: driver.membership.is_current(stream),  # a newer one takes over\n",
        "                lambda: True,\n",
        "simulation",
    ),
    Mutation(
        "who was replaced by a newer trainer is connected again",
        MACHINE,
        "            raise self._superseded()\n        if self.trainer != trainer:\n",
        "            pass\n        if self.trainer != trainer:\n",
        "simulation",
    ),
    Mutation(
        "an agent that was told of its successor tries on",
        EVENTS,
        "        self.superseded = _names_superseded(payload)\n",
        "        _names_superseded(payload)\n",
        "simulation",
    ),
    Mutation(
        "success is told before it is recorded",
        DRIVER,
        "                await self._record.written()\n",
        "                await asyncio.sleep(0)\n",
        "simulation",
    ),
    Mutation(
        "an agent takes a finish as recorded that was not",
        COURSE,
        "self._used, error)\n            return False\n        self._recorded",
        "self._used, error)\n        self._recorded",
        "simulation",
    ),
    Mutation(
        "a request that changed while it was written counts as written",
        RECORD,
        "        await self._guarded(self._kube.patch_worker, body)\n        self._granted = wish\n",
        "        await self._guarded(self._kube.patch_worker, body)\n        self._granted = self._wishes\n",
        "simulation",
    ),
    Mutation(
        "a write whose answer was lost is repeated without a look at the object",
        RECORD,
        "            self._took(found)\n            self._heartbeat =",
        "            self._heartbeat =",
        "simulation",
    ),
    Mutation(
        "a record that somebody has deleted is not made again",
        RECORD,
        "            if isinstance(failure, Missing | Denied):",
        "            if isinstance(failure, Denied):",
        "simulation",
    ),
    Mutation(
        "a record that lost its labels or owner stays so",
        RECORD,
        "        self._ours = marked and stored",
        "        self._ours = stored",
        "simulation",
    ),
    Mutation(
        "requests put off heartbeats",
        RECORD,
        "last_sign = min(loop.time() - random.uniform(0, self._pace / 2), last_beat + self._pace)",
        "last_sign = loop.time()",
        f"{UNIT}/sidecar/kubernetes/test_worker_record.py",
    ),
    Mutation(
        "an expired watch is not begun with a new list",
        WATCH,
        '            except Gone:\n                self._version = ""\n',
        "            except Gone:\n                pass\n",
        "simulation",
    ),
    Mutation(
        "410 is taken for a server that is away",
        CLIENT,
        " 410: Gone,",
        "",
        "simulation",
    ),
    Mutation(
        "409 is taken for a server that is away",
        CLIENT,
        " 409: Conflict,",
        "",
        "simulation",
    ),
    Mutation(
        "404 is taken for a server that is away",
        CLIENT,
        " 404: Missing,",
        "",
        "simulation",
    ),
    Mutation(
        "a watch that has fallen silent is listened to for ever",
        CLIENT,
        "        limits = aiohttp.ClientTimeout(total=seconds, connect=CONNECT_SECONDS)\n",
        "        limits = aiohttp.ClientTimeout(total=None if seconds > REQUEST_SECONDS else seconds)\n",
        "simulation",
    ),
    Mutation(
        "a request to the API server has no deadline",
        CLIENT,
        "        async with await self._send(method, url, REQUEST_SECONDS, body, kind) as response:\n",
        "        async with await self._send(method, url, 1e9, body, kind) as response:\n",
        "simulation",
    ),
    Mutation(
        "a watch goes on from where the last one began",
        WATCH,
        '            self._version = event["object"]["metadata"]["resourceVersion"]\n',
        "",
        "simulation",
    ),
    Mutation(
        "the status of another job of the same name is passed on",
        WATCH,
        '        if metadata["uid"] != self._uid:\n',
        "        if False:\n",
        f"{UNIT}/sidecar/kubernetes/test_job_watch.py",
    ),
    Mutation(
        "tries come ever more seldom",
        RETRY,
        "min(self._next * 2, LONGEST_SECONDS)",
        "self._next * 2",
        "simulation",
    ),
    Mutation(
        "the store's members stay those of the first round",
        TRUST,
        "            elif served.round != round:\n",
        "            elif round == 0:\n",
        "simulation",
    ),
    Mutation(
        "nobody is let in whose certificate was not there at first",
        TRUST,
        "                    await self._pause(backoff.next(), served.round)\n                    continue\n",
        "                    await self._pause(backoff.next(), served.round)\n",
        "simulation",
    ),
    Mutation(
        "connections to an earlier round's store stay open",
        TUNNEL,
        "            stale = [pair for pair, round in self._open.items() if round != current]\n",
        "            stale = []\n",
        "simulation",
    ),
    Mutation(
        "a change of the membership wakes nobody",
        DRIVER,
        "        next_change, self._next_change = self._next_change, asyncio.Event()\n        next_change.set()\n",
        "        self._next_change = asyncio.Event()\n",
        "simulation",
    ),
    Mutation(
        "time never runs out for the membership",
        DRIVER,
        "        self._timer = None if at is None else asyncio.get_running_loop().call_at(at, self._tick)\n",
        "        self._timer = None\n",
        "simulation",
    ),
    Mutation(
        "an agent does not say which round it holds",
        EVENTS,
        '"round": self.handed})',
        '"round": 0})',
        "simulation",
    ),
    Mutation(
        "a stream is not opened again",
        EVENTS,
        "        pause, self._pause = self._pause, min(self._pause * 2, _MAX_PAUSE_SECONDS)\n        return pause\n",
        "        return 1e9\n",
        "simulation",
    ),
    Mutation(
        "a call is not made again when the sidecar restarts",
        CALLS,
        "        if not error.passing:\n            raise error\n",
        "        raise error\n",
        "simulation",
    ),
    Mutation(
        "a sidecar that restarts for ever is asked for ever",
        CALLS,
        "        if now + self._pause > min(self._away + self._patience, self._deadline):\n",
        "        if now + self._pause > self._away + self._patience:\n",
        f"{UNIT}/trainer/sidecar/test_client.py",
    ),
    Mutation(
        "an agent that fails in its round says that the membership changed",
        COURSE,
        '        return "WorkerFailed"\n',
        '        return "MembershipChanged"\n',
        "simulation",
    ),
    Mutation(
        "an agent without a stream is refused for good",
        COURSE,
        "                yield partial(self._sleep, 0.1)\n                continue\n",
        "                raise\n",
        "simulation",
    ),
    Mutation(
        "an agent takes news of an earlier round for those of its own",
        EVENTS,
        "(self.changed and self.handed == number)",
        "self.changed",
        f"{UNIT}/trainer/sidecar/test_events.py",
    ),
)
