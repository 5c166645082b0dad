# SPDX-License-Identifier: Apache-2.0
"""A bound on connections that have not shown who they are, which a flood of them cannot turn against others."""

from collections.abc import Callable


class ConnectionSlot:
    """The slot of one connection. `release` it when the connection has ended or has shown who it is; more than once
    does no harm."""

    def __init__(self, slots: "ConnectionSlots", address: str, leave: Callable[[], None]) -> None:
        self._slots, self.address, self.leave = slots, address, leave

    def release(self) -> None:
        self._slots.release(self)


class ConnectionSlots:
    """At most `most` connections. One more costs the address that has the most of them one of its own.

    So whoever floods displaces itself: a caller that has few connections keeps them, whoever it is. With `patient` the
    fullest address loses its newest, and among equals the newcomer goes: the others have waited longer. Else it loses
    its oldest, which has had the time that `most` others took to come.
    """

    def __init__(self, most: int, *, patient: bool = False) -> None:
        self.most, self.patient = most, patient
        self.displaced = 0
        self._taken = 0
        self._held: dict[str, dict[ConnectionSlot, None]] = {}  # by address, the oldest of each first

    def __len__(self) -> int:
        return self._taken

    def take(self, address: str, leave: Callable[[], None]) -> ConnectionSlot:
        """A slot for a connection from `address`; `leave` is called if it has to make room for another."""
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
