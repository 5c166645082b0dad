# SPDX-License-Identifier: Apache-2.0
"""The digits job on a cluster: from a kubectl command to the new group's training, ElasticJob beside torch's c10d.

    __main__.py    events, runs, progress
    digits.py      the job, as an ElasticJob and as a StatefulSet with c10d in two setups
    table.py       medians, ranges, ratios; the table and build/bench-c10d-cluster.json

A figure is all that a user waits for, pods and processes that start included. It begins at this process's clock,
before kubectl is run, and ends at the kubelet's time of the line with which rank 0 tells of the first epoch of a group
of the wanted size that began afterwards. The local cluster's nodes have this machine's clock.

The script prints nothing of a single step. As the gradients of each step are summed over all workers, the first
epoch's line says that all of them train; an epoch takes 0.2 s here, on either side.

`ours` starts its processes fresh; `warm` is the same with `warmRestart`, and nothing happens to it before each worker's
next process is prestarted.

A second table says how much of that it took until the last agent was out of its rendezvous, as torch's agent logs it.
The rest is the start of the training processes, which is the same on all sides but the warm one.
"""
