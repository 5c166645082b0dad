# SPDX-License-Identifier: Apache-2.0
"""The sidecar's messages: one for each answer, and one for the events of each stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from elasticjob_torch.wire.fields import Inner, JsonName, Message, OneOf, Text, Truth, Whole
from elasticjob_torch.wire.words import Outcome, Phase

_COUNT, _TEXT, _TRUTH = Whole(), Text(), Truth()


@dataclass(frozen=True)
class StoreAddress(Message):
    """The address of the round's store inside this pod."""

    host: Annotated[str, _TEXT, "A loopback address."]
    port: Annotated[int, Whole(1, 65535), "Its port; the same in each pod and round."]


@dataclass(frozen=True, kw_only=True)
class Round(Message):
    """A round that was formed with this worker, as it is handed to its trainer."""

    number: Annotated[int, Whole(1), JsonName("round"), "Its number."]
    rank: Annotated[int, _COUNT, "This worker's; rank 0 serves the store."]
    world_size: Annotated[int, _COUNT, JsonName("worldSize"), "How many workers the round has."]
    stage: Annotated[
        int,
        _COUNT,
        "Which of the torchruns of its container this is, from 1: those before it have succeeded.",
    ] = 0
    run_id: Annotated[str, _TEXT, JsonName("runId"), "The job's UID."]
    store: Annotated[StoreAddress, Inner(StoreAddress), "Where its store is reached from inside this pod."]
    master_address: Annotated[str, _TEXT, JsonName("masterAddress"), "Of rank 0's pod, in the pods' network."] = ""


@dataclass(frozen=True, kw_only=True)
class View(Message):
    """The rendezvous as a trainer is told of it."""

    round: Annotated[int, _COUNT, "The job's current round."]
    phase: Annotated[Phase, OneOf(Phase), "Of that round."]
    waiting: Annotated[int, _COUNT, "Workers that have joined and are not in that round."] = 0
    world_size: Annotated[int, _COUNT, JsonName("worldSize"), "Workers of that round, 0 while it forms."] = 0
    handed: Annotated[int, _COUNT, "The round that this trainer holds, of which `changed` speaks; 0 for none."] = 0
    changed: Annotated[bool, _TRUTH, "That round is over: stop its processes and join again."] = False
    broken: Annotated[
        bool,
        _TRUTH,
        "With `changed`: a member of that round may be gone, and collectives with it may never end. False where all "
        "are there, and can leave the round after the same step.",
    ] = False
    stalled: Annotated[
        bool,
        _TRUTH,
        "No process takes steps in the round that this trainer holds: report what its training processes do.",
    ] = False
    ended: Annotated[
        bool,
        _TRUTH,
        "No worker of the round that this trainer holds trains any more: all have ended in success or, after the "
        "rendezvous was closed, in another way.",
    ] = False
    leaving: Annotated[bool, _TRUTH, "This worker has to go: stop its processes; the next join says `Leaving`."] = False
    live: Annotated[
        bool,
        _TRUTH,
        "All members of the last formed round live through changes: a newcomer makes its processes ready before it "
        "joins.",
    ] = False
    restart: Annotated[
        bool, _TRUTH, "The change needs new processes: stop those of this trainer's round, even if they could live on."
    ] = False
    api_away: Annotated[
        bool,
        _TRUTH,
        JsonName("apiServerAway"),
        "The sidecar does not hear the API server: the rendezvous may have changed since.",
    ] = False
    closed: Annotated[
        bool, _TRUTH, "The rendezvous is closed: a formed round trains on, and no worker joins another."
    ] = False
    outcome: Annotated[str, OneOf(Outcome, or_empty=True), "Why it is closed, else empty."] = ""
    reason: Annotated[str, _TEXT, "Why the round was opened, formed or closed, for people."] = ""

    def ends_round(self, number: int) -> bool:
        """Say whether the round ``number``, handed to this trainer, is no longer the formed one.

        An event sent before the hand-over may be read after it, and must not cost the new round a restart. So
        ``changed`` counts only if it is about this round; a later round's number shows it by itself.
        """
        return self.leaving or self.round > number or (self.changed and self.handed == number)


@dataclass(frozen=True, kw_only=True)
class Ours(Message):
    """Whose sidecar this is. The sidecar knows that before it has seen the job."""

    rank: Annotated[int | None, _COUNT, "This worker's in the round that it holds, null without one."]
    job: Annotated[str, _TEXT, "The ElasticJob's name."]
    run_id: Annotated[str, _TEXT, JsonName("runId"), "Its UID."]


@dataclass(frozen=True, kw_only=True)
class Seen(Ours, View):
    """All that the sidecar knows. The fields of the view are missing until it has seen the job."""


@dataclass(frozen=True, kw_only=True)
class ScriptView(Message):
    """The rendezvous as scripts are told of it."""

    round: Annotated[int, _COUNT, "The round that this worker holds, 0 for none."]
    waiting: Annotated[int, _COUNT, "Workers that have joined and wait for the next round."]
    reason: Annotated[str, _TEXT, "Why the round was formed, for people."]
    ending: Annotated[bool, _TRUTH, "It is going to be replaced by plan: save now, then say so."]


@dataclass(frozen=True, kw_only=True)
class Error(Message):
    """The content of `error` in the answer to a refused call."""

    code: Annotated[str, _TEXT, "One word of the table."]
    message: Annotated[str, _TEXT, "A sentence for people."]
    outcome: Annotated[str | None, _TEXT, "With `Closed`: why the rendezvous is closed."] = None
