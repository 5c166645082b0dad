"""How long the things took that people wait for, for the table at the end of the session."""

from collections import defaultdict


class Timings:
    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def note(self, what: str, seconds: float) -> None:
        self._seconds[what].append(seconds)

    def lines(self) -> list[str]:
        width = max((len(what) for what in self._seconds), default=0)
        return [
            f"{what:{width}}  " + "  ".join(f"{one:6.2f} s" for one in seconds)
            for what, seconds in self._seconds.items()
        ]
