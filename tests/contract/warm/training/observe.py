# SPDX-License-Identifier: Apache-2.0
"""A training script that looks at itself: writes all it can see to `seen-<pid>`, then ends as `end-<pid>` says.

It imports `library`'s modules, which do what real ones do when they are imported; CONTRACT_IMPORTS has more of them.
With the argument --torch it is one that imports torch.
"""

import os
import sys


def descriptors():
    """What is open, by number: what it is, and how."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            what = os.readlink(f"/proc/self/fd/{name}")
            found[name] = [what, os.get_inheritable(int(name))]
        except OSError:  # the directory itself
            continue
    return found


START = {
    "descriptors": descriptors(),
    "meta_path": [repr(finder) for finder in sys.meta_path],
    "path": list(sys.path),
    "main": sorted(vars(sys.modules["__main__"])),
    "threads": len(os.listdir("/proc/self/task")),
    "excepthook": sys.excepthook.__module__ if hasattr(sys.excepthook, "__module__") else "",
    "modules": sorted(sys.modules),
}
print("the script begins")

import early_plain  # noqa: E402, F401

if "--quiet" in sys.argv:  # which the imports after it depend on
    import logging
    import warnings

    warnings.simplefilter("ignore")
    logging.disable()

import early_state  # noqa: E402, F401

for name in os.environ.get("CONTRACT_IMPORTS", "").split() if __name__ == "__main__" else ():
    __import__(name)

if "--torch" in sys.argv:
    import torch.nn
    import torch.optim
    import torch.utils.data  # noqa: F401

import atexit  # noqa: E402
import inspect  # noqa: E402
import json  # noqa: E402
import pickle  # noqa: E402
import signal  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import early_last  # noqa: E402, F401

if __package__:
    from training import seen, seen_torch
else:
    import seen
    import seen_torch

SECONDS = 600.0  # a script that nobody tells to end
CONTRACT, POD = Path(os.environ["CONTRACT"]), os.environ["CONTRACT_POD"]


class NoSuchDataError(Exception):
    """An exception of `__main__`."""


def in_child(_=None):
    """What a process sees that multiprocessing has started from this one."""
    return seen.of_child()


def main():
    items = {
        "start": START,
        "frames": [[frame.filename, frame.function] for frame in inspect.stack()],
        "pickled": pickle.dumps(NoSuchDataError).decode("latin-1"),
        **{item.__name__: item() for item in seen.ITEMS},
    }
    if "--torch" in sys.argv:
        items |= {item.__name__: item() for item in seen_torch.ITEMS}
    if (CONTRACT / "thorough").exists() and os.environ["LOCAL_RANK"] == "0":
        if "--torch" in sys.argv:
            items["loaders"] = seen_torch.loaders()
        else:
            items["children"] = seen.children(in_child)
    atexit.register(print, "registered first")
    atexit.register(print, "registered last")
    signal.signal(signal.SIGTERM, told_to_stop)
    print("the script waits")
    sys.stderr.write("and says so\n")
    show(items)
    end(ordered())


def show(items):
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE")
    (CONTRACT / f"seen-{os.getpid()}").write_text(json.dumps(items))
    event = {"pod": POD, "pid": os.getpid()}
    with (CONTRACT / "events").open("a") as events:
        events.write(json.dumps(event | {name: os.environ[name] for name in names}) + "\n")


def ordered():
    order, all_of_them = CONTRACT / f"end-{os.getpid()}", CONTRACT / "finish"
    deadline, parent = time.monotonic() + SECONDS, os.getppid()
    while os.getppid() == parent and time.monotonic() < deadline:
        if order.exists():
            return order.read_text()
        if all_of_them.exists():
            return "return"
        time.sleep(0.02)
    return "nobody said how to end"


def end(kind):
    if kind == "raise":
        try:
            {}["no such key"]
        except KeyError as error:
            raise NoSuchDataError("no such data") from error
    if kind == "code":
        sys.exit(3)
    if kind == "at once":
        os._exit(5)
    if kind.startswith("SIG"):
        os.kill(os.getpid(), signal.Signals[kind])
    if kind != "return":
        sys.exit(kind)


def told_to_stop(number, _):
    print("told to stop by", signal.Signals(number).name)
    sys.exit(0)


if __name__ == "__main__":
    if "--torch" in sys.argv:
        main = seen_torch.record(main)
    main()
