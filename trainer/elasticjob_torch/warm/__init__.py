# SPDX-License-Identifier: Apache-2.0
"""Warm restart: the next round's training processes are started ahead of it, and wait with their imports done.

A **prestarted** process is started with exactly the command of a training process. Python imports our ``sitecustomize``
before it opens the script. There it imports what the script imported the last time, waits for its orders (environment,
standard output and error) and returns, so that Python runs the script as usual. If anything would differ from an
ordinary start, the process is started in the ordinary way instead, or restarts itself in its place.

`launch`, `pool` and the modules that they use run in torchrun's process; `prestarted`, `reads` and `learning` run in
training processes, where they must import little and leave nothing behind.
"""
