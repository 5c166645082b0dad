# SPDX-License-Identifier: Apache-2.0
"""Seconds from a change of the group to the first training step of the new one: warm, fresh, and with torch's c10d.

    __main__.py    sides, runs, progress
    causes.py      what happens to a job, and how
    examples.py    the jobs of frameworks
    scripts.py     the jobs whose processes record their steps, and one whose processes live through changes
    record.py, live_digits.py   what runs in their pods
    parts.py       the new group's first step, and where the time before it went, as the logs tell it
    steps.py       the longest time without a step, and the steps done twice, as the records tell it
    table.py       medians and ranges; the table and build/bench-restart.json
    pages.py       the tables of README and docs/performance.md, with these figures

The job is the digits job of cluster_rounds, with an epoch each second as in `make demo`; on the sides `tqdm_...` with
the packages of all examples beside it, and on those of frameworks the example of that name. One job of a side lives
through all causes, run after run, and returns to its size by them; another takes its place when a new group does not
train in time.

A cause begins at this machine's clock, which the local cluster's nodes share: before kubectl is run, or where a process
is killed. The first step is done when the last member has told of it. All moments are the kubelet's of lines that the
agents and the script print.
"""
