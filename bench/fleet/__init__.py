# SPDX-License-Identifier: Apache-2.0
"""One operator with many jobs: its memory, its take-overs, and what it costs at rest (`make bench-fleet`).

__main__.py    the phases of a measurement, in their order
figures.py     one row of build/bench-fleet.json: what each figure means, in which unit
objects.py     a job, its pods as a kubelet writes them, its records as sidecars do
writer.py      a process that writes the objects of some jobs, and keeps writing as their sidecars would
operators.py   the operator's process, in a container or without one, and what it and the kernel say of it
sampled.py     the operator's process with its stacks noted, for `--samples`
parts.py       what it has the processor for, by these stacks
lease.py       the benchmark's own hold on the operators' Lease, by which a term begins and ends
plane.py       etcd and the API server, and what they count
"""
