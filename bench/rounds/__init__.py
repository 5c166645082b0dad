# SPDX-License-Identifier: Apache-2.0
"""How long a round takes: ElasticJob, torch's c10d, and the floor under both, in one run on one machine.

    __main__.py    sizes, runs, the table and build/bench.json
    ours.py        an ElasticJob on the kind cluster, whose pods are objects without machines
    c10d.py        torch's own rendezvous, one server and N agents
    floor.py       the same writes and deliveries by a bare client
    handlers.py    a process of many agents' handlers, of either backend: what is timed
    sidecars.py    a process of many sidecars
    operators.py   the operator's process, while the installed one rests
    processes.py   all processes, started and ended
    starter.py     starts those that stand for other machines, where they give way to all others
    steady.py      what a job costs while nothing happens to it (`python -m rounds.steady`)
    silence.py     until all know that one stands still (`python -m rounds.silence`)
    costs.py       how that is counted
    api.py         the administrator's calls to the API server, and what it counts

All moments are CLOCK_MONOTONIC in seconds, which the processes of one machine share.
"""
