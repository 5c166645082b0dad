# SPDX-License-Identifier: Apache-2.0
"""`python -m fleet.sampled FILE FLAGS`: the operator's program, which notes where it is each time that it has had a few
milliseconds of the processor.

It does so from SIGUSR1 to SIGUSR2, and then writes FILE: how often each stack was found, its innermost function first.
"""

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

MILLISECONDS = 4  # the kernel's own grain


def stack_of(frame: FrameType | None) -> Iterator[str]:
    """Its functions, as `module:qualified name`."""
    while frame is not None:
        yield f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
        frame = frame.f_back


def main() -> None:
    file, *flags = sys.argv[1:]
    found = Counter[str]()

    def note(_: int, frame: FrameType | None) -> None:
        found["\n".join(stack_of(frame))] += 1

    def begin(*_: object) -> None:
        found.clear()
        signal.setitimer(signal.ITIMER_PROF, MILLISECONDS / 1000, MILLISECONDS / 1000)

    def end(*_: object) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        unfinished = Path(f"{file}.new")
        unfinished.write_text(json.dumps(found))
        os.replace(unfinished, file)

    signal.signal(signal.SIGPROF, note)
    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    sys.argv = ["elasticjob-operator", *flags]
    from elasticjob_operator.__main__ import main as operate

    operate()


if __name__ == "__main__":
    main()
