# SPDX-License-Identifier: Apache-2.0
"""Models of ElasticJob, explored state by state: `make explore`. The code under test is the real one.

One model cannot have both a free environment and whole jobs, so there are two.

`OperatorScope`: one job with up to 3 workers as its operator sees it. The real `decide`, `pods_to_create` and
`pods_to_delete` run against workers that ask for anything at any time (late joins, leaves overtaken by joins, sidecars
that start anew, finishes, closes, records of pods that were given up), that suspect each other for no reason and ack
early, late, to nothing or not at all, pods that fail in every way, are evicted or called unready, pods that somebody
else has made, changes of the target and of the template, suspension, time in which the sidecars of all live, of none
or of all but one, and operators that start anew from the status, which goes through the real `status_of` and
`state_of`. It begins at landmarks of a job's life, and takes every sequence of moves from each. After every step the
rendezvous' own `violations` and `checks` must be empty.

`ComposedScope`: whole jobs with 2 or 3 pods. Each has the real sidecar's `Membership` and a small trainer; the API
server keeps what is agreed; an operator writes it, an older one may wake up and act on what it still believes. Pods,
records and statuses are seen late, apart, or never. All orders of what must happen some day are explored, around every
choice of one or two costly events: faults, scaling, a long wait, an end. Besides, `composed_pod_checks` sees to what a
trainer is told, and nobody may be taken to have finished whose trainer has not said so.

Liveness is asked of every state that is visited: left alone, it comes to rest where it should, and in time. `liveness`
and `composed_liveness` say what that means, and which jobs wait for ever by design.

Depth is what finishes in about two minutes on two cores; `explore` has the numbers, and prints how far it went. States
that differ only in names are visited once: `operator_key` and `composed_key` say what makes no difference.

`mutants` shows that all this can fail: seeded mistakes, each of which must be caught.
"""
