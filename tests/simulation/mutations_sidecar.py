# SPDX-License-Identifier: Apache-2.0
"""Seeded mistakes in what the sidecar and the plug-in do, beside what they decide; told as those of `model.mutation`.

Lives of the simulation find most of them too, sooner or later.
"""

from model.mutation import mutations, omit, replace

MUTATIONS = mutations(
    {
        "elasticjob_sidecar.membership.machine:Membership.recall": (
            omit(
                "a sidecar that is started anew forgets the success that the one before has recorded",
                "self._move(HAS_FINISHED, round=said.round, stage=said.stage or 1, container=said.container)",
                by="unit",
            ),
        ),
        "elasticjob_sidecar.membership.machine:Membership.detached": (
            replace("the end of an old stream ends the new one", "stream == self._stream", "self._stream"),
        ),
        "elasticjob_sidecar.membership.machine:Membership.attached": (
            omit("who was replaced by a newer trainer is connected again", "raise superseded()"),
        ),
        "elasticjob_sidecar.api_server.worker_record:WorkerRecord._said_before": (
            omit("the success of a pod of the same name is taken for this one's", "not self._me.owns(found)"),
        ),
        "elasticjob_sidecar.api_server.worker_record:WorkerRecord._write_request": (
            replace(
                "a request that changed while it was written counts as written",
                "self._granted = wish",
                "self._granted = self._wishes",
            ),
            replace("requests put off heartbeats", "min(put_off, self._last_beat + self._pace)", "_now()"),
        ),
        "elasticjob_sidecar.api_server.worker_record:WorkerRecord._guarded": (
            omit("a write whose answer was lost is repeated without a look at the object", "self._took(found)"),
        ),
        "elasticjob_sidecar.api_server.worker_record:WorkerRecord.run": (
            replace("a record that somebody has deleted is not made again", "NotFound | Denied", "Denied"),
            replace(
                "an answer waits for a request that is refused",
                "is_urgent = self._has_urgent_update",
                "is_urgent = self._has_urgent_update and self._granted >= self._wishes",
            ),
            replace(
                "an answer pauses where the record was newer than known",
                "tries.conflict and not again",
                "False",
                by="sidecar words",
            ),
        ),
        "elasticjob_sidecar.api_server.worker_record:WorkerRecord._hurry": (
            omit(
                "an answer waits for another write that hangs",
                "self._giving_way.reschedule(_now() + URGENT.first)",
                by="sidecar words",
            ),
        ),
        "elasticjob_sidecar.api_server.worker_record:WorkerRecord._establish": (
            omit(
                "what an earlier sidecar suspected stays in its record",
                "self._written_status = replace(self._written_status, suspects=suspects, ack=ack)",
            ),
        ),
        "elasticjob_sidecar.api_server.worker_record:WorkerRecord.rest": (
            omit("all beat when a round ends", "self._last_written = self._last_beat = _now()"),
        ),
        "elasticjob_sidecar.trainer_api.routes:TrainerApi._follow": (
            replace(
                "a stream's keep-alive is put off by whatever rings",
                "if said:\n    await response.write(said)\n    wrote = loop.time()",
                "if said: await response.write(said)\nwrote = loop.time()",
            ),
            replace("a stream says nothing between two changes", 'said = b": still here\\n\\n"', "wrote = loop.time()"),
        ),
        "elasticjob_sidecar.trainer_api.routes:TrainerApi.events": (
            replace(
                "a trainer that is gone is not told to the membership", "driver.detach(asked.trainer, stream)", "pass"
            ),
            replace("a stream that was replaced goes on", "driver.standing.stream == stream", "True"),
        ),
        "elasticjob_sidecar.trainer_api.server:TrainerServer.__init__": (
            replace(
                "nobody notices that a trainer was killed", "handler_cancellation=True", "handler_cancellation=False"
            ),
        ),
        "elasticjob_torch.sidecar.events:Stream.refused": (
            replace(
                "an agent that was told of its successor tries on",
                "self.superseded = _names_superseded(payload)",
                "_names_superseded(payload)",
            ),
        ),
        "elasticjob_torch.sidecar.events:EventStream.target": (
            replace("an agent does not say which round it holds", "self.handed", "0"),
        ),
        "elasticjob_torch.sidecar.events:Reopening.ended": (
            replace(
                "a stream is not opened again",
                "pause, self._pause = self._pause, min(self._pause * 2, _MAX_PAUSE_SECONDS); return pause",
                "return 1e9",
            ),
        ),
        "elasticjob_torch.wire.answers:View.ends_round": (
            omit("an agent takes news of an earlier round for those of its own", "self.handed == number"),
        ),
        "elasticjob_sidecar.driver:Driver._settled": (
            replace("success is told before it is recorded", "self._record.written()", "asyncio.sleep(0)"),
            replace("a finish behind a Close is told as recorded", "ends and self._asks(RequestType.CLOSE)", "False"),
        ),
        "elasticjob_sidecar.driver:Driver._settle": (
            replace(
                "a change of the membership wakes nobody",
                "next_change, self._next_change = self._next_change, asyncio.Event(); next_change.set()",
                "self._next_change = asyncio.Event()",
            ),
        ),
        "elasticjob_sidecar.driver:Driver._arm": (
            replace(
                "time never runs out for the membership",
                "asyncio.get_running_loop().call_at(at, self._tick)",
                "None",
            ),
        ),
        "elasticjob_torch.agent.state_machine:AgentStateMachine.finishing": (
            omit("an agent takes a finish as recorded that was not", "return False"),
        ),
        "elasticjob_torch.agent.state_machine:AgentStateMachine._cause": (
            replace(
                "an agent that fails in its round says that the membership changed",
                "wire.JoinCause.WORKER_FAILED",
                "wire.JoinCause.MEMBERSHIP_CHANGED",
            ),
        ),
        "elasticjob_torch.agent.state_machine:AgentStateMachine.joining": (
            replace(
                "an agent without a stream is refused for good", "yield partial(self._sleep, 0.1); continue", "raise"
            ),
        ),
        "elasticjob_torch.agent.state_machine:AgentStateMachine._telling": (
            replace(
                "a finish is not told again to a sidecar that has just started",
                "if self._clock() > deadline: raise",
                "raise",
            ),
        ),
        "elasticjob_torch.agent.state_machine:AgentStateMachine.has_ended": (
            omit("an agent that was replaced in its round trains on", "self._events.superseded"),
        ),
        "elasticjob_sidecar.api_server.identity:Identity.is_of": (
            omit("a record that lost its labels or owner stays so", "marked"),
        ),
        "elasticjob_sidecar.store.trust:_certificates": (
            replace(
                "rank 0 believes the record of any pod of a worker's name",
                'name == pod_of(spec["index"])',
                'name.rpartition("-")[0] == pod_of(spec["index"]).rpartition("-")[0]',
                by="sidecar tls",
            ),
        ),
        "elasticjob_sidecar.store.trust:RoundTrust.run": (
            replace(
                "the store's members stay those of the first round",
                "served.round != round",
                "round == 0",
                by="sidecar links",
            ),
            omit("nobody is let in whose certificate was not there at first", "continue"),
        ),
        "elasticjob_sidecar.links.links:PeerLinks.run": (
            omit("a spare goes on suspecting", "self._suspect(Members())", by="sidecar suspicions over the wire"),
        ),
        "elasticjob_sidecar.links.links:PeerLinks._look": (
            omit("who loses line and watch at once hears of no ping", "self._watch.again()"),
            replace(
                "a watch is long though nobody is heard",
                "round.monitor.hears_all()",
                "not suspects",
                by="sidecar links",
            ),
            omit("the end of a round is unknown to its lines", "round.monitor.end(now)"),
            replace(
                "a suspicion of the last round is never taken back",
                "suspects != round.said",
                "suspects != (round.said or Members())",
            ),
        ),
        "elasticjob_sidecar.links.links:PeerLinks._close": (
            omit(
                "the lines of a round stay for ever",
                "asyncio.get_running_loop().call_later(round.closing_seconds(), self._end, round)",
                by="sidecar links",
            ),
        ),
        "elasticjob_sidecar.links.links:PeerLinks._call": (
            replace(
                "a line of a round that is over is made anew",
                "while not round.monitor.over: ...",
                "while True: ...",
                by="sidecar links",
            ),
            replace("a line that broke is not made anew", "await asyncio.sleep(pauses.next())", "return"),
        ),
        "elasticjob_sidecar.links.links:PeerLinks._accepted": (
            replace("rank 0 answers no sign", "Link.beat", "lambda _: None"),
        ),
        "elasticjob_sidecar.membership.link_monitor:LinkMonitor._time": (
            replace(
                "who was stopped suspects all others when it wakes",
                "self._ran + min(now - self._looked, 2 * self.look_seconds)",
                "self._ran + now - self._looked",
            ),
        ),
        "elasticjob_sidecar.membership.link_monitor:_turn": (
            replace("all members say at once that rank 0 is silent", "(rank.bit_length() + 1) // 2", "1", by="unit"),
        ),
        "elasticjob_sidecar.membership.link_monitor:LinkMonitor._is_suspected": (
            replace(
                "a ping of long ago keeps members from saying that rank 0 is silent",
                "self._pinged >= since",
                "self._asked > -inf",
                by="unit",
            ),
            omit("all say one after the other that a rank 0 is silent that may have gone", "self.over"),
        ),
        "elasticjob_sidecar.membership.link_monitor:group_of": (
            replace(
                "lines end with their round, whatever has ended it",
                "before if before is not None and before.round == job.round - 1 else None",
                "None",
            ),
        ),
        "elasticjob_sidecar.membership.link_monitor:LinkMonitor.end": (
            omit("whose line had not come up when the round ended is suspected for it", "since <= ran"),
            replace(
                "who was heard after the last look had no line when the round ended",
                "self._time(now)",
                "self._ran",
                by="unit",
            ),
        ),
        "elasticjob_sidecar.membership.link_monitor:LinkMonitor.misses_news": (
            omit("who is gone when a round ended makes all list the job anew", "if self.over: ...", by="unit"),
        ),
        "elasticjob_sidecar.membership.link_monitor:LinkMonitor.hears_all": (
            omit("a watch is long while nobody tells of news that it misses", "not self.over", by="unit"),
        ),
        "elasticjob_sidecar.membership.link_monitor:LinkMonitor.suspects": (
            omit("who has finished is suspected", "all(member not in members for members in finished)", by="unit"),
        ),
        "elasticjob_sidecar.api_server.job_watch:JobWatch.calm": (
            omit(
                "a long watch stays long when nobody else would notice its silence",
                "self._end_call(None if calm else random.uniform(*WATCH_SECONDS))",
            ),
        ),
        "elasticjob.kube.watch:ListAndWatch.take": (
            replace("an expired watch is not begun with a new list", "self.version = ''", "pass", by="core watch"),
            omit(
                "a watch goes on from where the last one began",
                "self.version = event['object']['metadata']['resourceVersion']",
            ),
        ),
        "elasticjob_sidecar.api_server.job_watch:JobWatch._pass_on": (
            replace("the status of another job of the same name is passed on", 'metadata["uid"] != self._uid', "False"),
        ),
        "elasticjob.kube.errors:BY_STATUS": (
            omit("410 is taken for another refusal", "410: Gone", by="core errors"),
            omit("409 is taken for another refusal", "409: Conflict", by="core errors"),
            omit("404 is taken for another refusal", "404: NotFound", by="core errors"),
        ),
        "elasticjob_http.transport:Transport.watch": (
            replace("a watch that has fallen silent is listened to for ever", "seconds + answer_seconds", "1e9"),
        ),
        "elasticjob_sidecar.api_server.client:KubeApi._call": (
            replace("a request to the API server has no deadline", "REQUEST_SECONDS", "1e9"),
        ),
        "elasticjob.kube.retry:RetryPolicy.pause": (
            replace(
                "tries come ever more seldom",
                "min(self.first * 2.0 ** min(failures, _DOUBLINGS), self.longest)",
                "self.first * 2.0 ** min(failures, _DOUBLINGS)",
            ),
        ),
        "elasticjob_sidecar.store.tunnel:Tunnel.run": (
            replace(
                "connections to an earlier round's store stay open",
                "[pair for pair, round in self._open.items() if round != current]",
                "[]",
            ),
        ),
        "elasticjob_torch.sidecar.client:Tries.failed": (
            replace(
                "a call is not made again when the sidecar restarts", "if not error.passing: raise error", "raise error"
            ),
            replace(
                "a sidecar that restarts for ever is asked for ever",
                "min(self._away + self._patience, self._deadline)",
                "self._away + self._patience",
            ),
        ),
    },
    by="wire",
)
