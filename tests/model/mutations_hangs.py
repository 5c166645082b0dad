"""Seeded mistakes in what concerns a training that hangs, for `make mutants`; see `model.mutations`."""

from model.mutations import LOSSES, Mutation

RULES, OPERATOR_TESTS = "tests/unit/core/rendezvous/test_hangs.py", "tests/unit/operator/job/test_stalls.py"
SIDECAR_TESTS, RECONCILER = "tests/unit/sidecar/membership/test_stalls.py", "tests/unit/operator/test_reconciler.py"
TRAINER_TESTS = "tests/unit/trainer/agent/test_stalls.py"
JUDGES, ANSWERS, LOOKS, ASKS = (
    "operator/elasticjob_operator/job/stalls.py",
    "sidecar/elasticjob_sidecar/membership/stalls.py",
    "trainer/elasticjob_torch/agent/stalls.py",
    "trainer/elasticjob_torch/agent/stacks.py",
)

MUTATIONS = (
    Mutation(
        "hangs: they count as no failure",
        LOSSES,
        "RoundCause.TRAINING_HUNG, worker.hung, True)",
        "RoundCause.TRAINING_HUNG, worker.hung, False)",
        RULES,
    ),
    Mutation(
        "hangs: a round that trains on after a Close is ended",
        LOSSES,
        "worker.hung and state.phase is RendezvousPhase.FORMED",
        "worker.hung",
        RULES,
    ),
    Mutation(
        "hangs: one rank that reports no more is enough",
        JUDGES,
        "any(stall.step is not None and not stall.stalled for stall in stalls)",
        "False",
        OPERATOR_TESTS,
    ),
    Mutation(
        "hangs: who has not answered is not waited for",
        JUDGES,
        "    if left > 0 and not answered:\n",
        "    if False:\n",
        OPERATOR_TESTS,
    ),
    Mutation(
        "hangs: who never answers is waited for without an end",
        JUDGES,
        "    if left > 0 and not answered:\n",
        "    if not answered:\n",
        OPERATOR_TESTS,
    ),
    Mutation(
        "hangs: what was said of an earlier round counts",
        JUDGES,
        "if status.stall and status.stall.round == agreed.round else None",
        "if status.stall else None",
        OPERATOR_TESTS,
    ),
    Mutation(
        "hangs: a job that only wants to be told is restarted",
        JUDGES,
        '    if not hang.sentence or spec.hang_policy != "Restart":\n',
        "    if not hang.sentence:\n",
        OPERATOR_TESTS,
    ),
    Mutation(
        "hangs: a worker whose sidecar knows no such question is named for it",
        JUDGES,
        "        if one.stall is not None:  # an older sidecar knows no such question, and says nothing\n"
        "            by_state.setdefault(one.stall.process, []).append(one)\n",
        "        by_state.setdefault(one.stall.process if one.stall else None, []).append(one)\n",
        OPERATOR_TESTS,
    ),
    Mutation(
        "hangs: many that compute are named, as where they wait for a GPU",
        JUDGES,
        "    if not found and 0 < len(computing) <= len(waiting):\n",
        "    if not found and computing:\n",
        OPERATOR_TESTS,
    ),
    Mutation(
        "hangs: all who are a step behind are named",
        JUDGES,
        "    if 0 < 2 * len(behind) < len(steps):\n",
        "    if behind:\n",
        OPERATOR_TESTS,
    ),
    Mutation(
        "hangs: they are announced again while the status waits to be written",
        JUDGES,
        "    told = asked.told or hung\n",
        "    told = hung\n",
        RECONCILER,
    ),
    Mutation(
        "hangs: a new operator takes one for over until it has its own answers",
        JUDGES,
        "    answered = (hung and agreed.stalled == agreed.round) or all(\n",
        "    answered = all(\n",
        OPERATOR_TESTS,
    ),
    Mutation(
        "hangs: a script that has taken no step yet stalls",
        ANSWERS,
        "        if not self._round or (step is None and self._since is None):\n",
        "        if not self._round:\n",
        SIDECAR_TESTS,
    ),
    Mutation(
        "hangs: the next round goes by the steps of the last",
        ANSWERS,
        "        if round != self._round:\n",
        "        if round and not self._round:\n",
        SIDECAR_TESTS,
    ),
    Mutation(
        "hangs: a trainer that has finished stalls",
        ANSWERS,
        "worker.held if worker.mode is Mode.HANDED and worker.in_round(worker.held) else 0",
        "worker.held if worker.in_round(worker.held) else 0",
        SIDECAR_TESTS,
    ),
    Mutation(
        "hangs: what a process did before it went on is told of the next stall",
        ANSWERS,
        "            self._process = None if known is not None and known.stalled else self._process\n",
        "",
        SIDECAR_TESTS,
    ),
    Mutation(
        "hangs: a process that does not catch the signal is ended by it",
        ASKS,
        '    if not _has_signal(process, "SigCgt"):\n        return False\n',
        "",
        TRAINER_TESTS,
    ),
    Mutation(
        "hangs: who waits for a GPU is said to compute",
        LOOKS,
        "(state is State.COMPUTES and _uses_device(process))",
        "False",
        TRAINER_TESTS,
    ),
)
