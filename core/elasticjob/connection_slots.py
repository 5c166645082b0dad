# SPDX-License-Identifier: Apache-2.0
"""A bound on unauthenticated connections that a flood cannot turn against other callers."""

from collections.abc import Callable


class ConnectionSlot:
    """The slot of one connection. `release` it once the connection has ended or is authenticated; repeated calls are
    harmless."""

    def __init__(self, slots: "ConnectionSlots", address: str, leave: Callable[[], None]) -> None:
        self._slots, self.address, self.leave = slots, address, leave

    def release(self) -> None:
        self._slots.release(self)


class ConnectionSlots:
    """At most `most` connections. One more displaces a connection of the address that has the most.

    So a flood displaces itself, and a caller with few connections keeps them. With `patient` the fullest address loses
    its newest connection, and among equally full ones the newcomer is refused, as the others have waited longer.
    Otherwise it loses its oldest, which has had the time in which `most` others came.
    """

    def __init__(self, most: int, *, patient: bool = False) -> None:
        self.most, self.patient = most, patient
        self.displaced = 0
        self._taken = 0
        self._held: dict[str, dict[ConnectionSlot, None]] = {}  # by address, the oldest of each first

    def __len__(self) -> int:
        return self._taken

    def take(self, address: str, leave: Callable[[], None]) -> ConnectionSlot:
        """A slot for a connection from `address`. `leave` is called if another connection displaces it."""
        slot = ConnectionSlot(self, address, leave)
        mine = self._held.setdefault(address, {})
        mine[slot] = None
        self._taken += 1
        if self._taken > self.most:
            fullest = max(self._held.values(), key=len)
            if self.patient:
                displaced = next(reversed(mine if len(mine) == len(fullest) else fullest))
            else:
                displaced = next(iter(fullest))
            self.displaced += 1
            self.release(displaced)
            displaced.leave()
        return slot

    def release(self, slot: ConnectionSlot) -> None:
        held = self._held.get(slot.address, {})
        if slot not in held:
            return
        del held[slot]
        self._taken -= 1
        if not held:
            del self._held[slot.address]
