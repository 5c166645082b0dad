"""Warm restart: the next round's training processes are started ahead of it, and wait with their imports done.

A **prestarted** process is started with exactly the command of a training process. Python imports our ``sitecustomize``
before it opens the script; that does there what the script imported the last time, waits for its orders (environment,
standard output and error) and returns, so that Python goes on to run the script as ever. What cannot be the same as in
an ordinary start is not done: the process is started in the ordinary way, or starts itself anew in its place.

`launch`, `pool` and what they use run in torchrun's process; `prestarted`, `reads` and `learning` in training
processes, where they have to import little and leave nothing behind.
"""
