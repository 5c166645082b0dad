# SPDX-License-Identifier: Apache-2.0
"""torch's `Store` over one ConfigMap, for the exchange between agents before and after training.

It is the counterpart of `EtcdStore`. Each value is a key of the ConfigMap, so all of them together have 1 MiB. Changes
that depend on the present value use compare-and-set on the ``resourceVersion``; a watch ends waits.
"""

from __future__ import annotations

import secrets
import time
from contextlib import closing
from typing import TYPE_CHECKING, TypeVar

from torch.distributed import DistNetworkError, DistStoreError, Store

from elasticjob_torch.kubernetes.api import ApiError, Conflict, NotFound, Unavailable, uniform
from elasticjob_torch.kubernetes.config_map import Content
from elasticjob_torch.kubernetes.key_names import may_begin_with, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from elasticjob_torch.kubernetes.config_map import ConfigMap

T = TypeVar("T")

# The ids of the last changes, so that a change whose answer was lost is not made twice.
_WRITES = "elasticjob.io/last-writes"
_WRITES_KEPT = 64
_PATIENCE_SECONDS = 30.0
_WATCH_SECONDS = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 1.0

Changes = dict[str, "bytes | None"]


class KubernetesStore(Store):  # type: ignore[misc]
    """Keys and values in a ConfigMap, which is created if it is missing.

    Args:
        config_map: where they are kept; stores over the same one share their keys.
        scope: called for each operation; keys of different scopes are independent.

    Threads may share it. Keep a reference while a ``PrefixStore`` over it is in use: torch's C++ does not keep Python
    stores alive.

    Keys are any text, values bytes or text. ``get`` and ``wait`` wait for ``timeout``, 300 seconds unless set. Every
    method raises torch's ``DistNetworkError`` if the API server is unavailable for 30 seconds, and ``DistStoreError``
    if a wait times out, a permission is missing or the ConfigMap is full.
    """

    def __init__(self, config_map: ConfigMap, scope: Callable[[], str] = lambda: "") -> None:
        super().__init__()
        self._map = config_map
        self._scope = scope
        self._clones: list[KubernetesStore] = []

    def clone(self) -> KubernetesStore:
        """Return a store of the same keys over a connection of its own, whose calls never wait for this one's.

        It lives as long as this one.
        """
        clone = KubernetesStore(self._map.clone(), self._scope)
        clone.set_timeout(self.timeout)
        self._clones.append(clone)  # a PrefixStore that asked for it does not keep it alive
        return clone

    def set(self, key: str, value: str | bytes) -> None:
        self.multi_set([key], [value])

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        binary = {self._name(key): _to_bytes(value) for key, value in zip(keys, values, strict=True)}
        with _TorchErrors():
            try:
                self._map.patch(binary=binary, patience=_PATIENCE_SECONDS)
            except NotFound:
                self._create()
                self._map.patch(binary=binary, patience=_PATIENCE_SECONDS)

    def get(self, key: str) -> bytes:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Wait for several keys and return their values."""
        content = self._await(keys, self.timeout)
        return [content.binary[self._name(key)] for key in keys]

    def check(self, keys: Sequence[str]) -> bool:
        with _TorchErrors():
            return self._has(self._read(_PATIENCE_SECONDS), keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self._await(keys, self.timeout if timeout is None else timeout)

    def add(self, key: str, amount: int) -> int:
        """Add to a counter, which starts at 0, and return it."""

        def add_up(present: Mapping[str, bytes], name: str) -> tuple[Changes, int]:
            try:
                total = int(present.get(name, b"0")) + amount
            except ValueError:
                raise DistStoreError(f"the value of '{key}' is not a counter") from None
            return {name: str(total).encode()}, total

        return self._change(key, add_up)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        """Write a key that has the expected value, or that is missing if none is expected; return its value.

        As in torch's own stores, a missing key returns the expected value.
        """
        expected, desired = _to_bytes(expected_value), _to_bytes(desired_value)

        def compare(present: Mapping[str, bytes], name: str) -> tuple[Changes, bytes]:
            found = present.get(name)
            if found == expected or (found is None and not expected):
                return {name: desired}, desired
            return {}, expected if found is None else found

        return self._change(key, compare)

    def append(self, key: str, value: str | bytes) -> None:
        self._change(key, lambda present, name: ({name: present.get(name, b"") + _to_bytes(value)}, None))

    def delete_key(self, key: str) -> bool:
        return self._change(key, lambda present, name: ({name: None} if name in present else {}, name in present))

    def num_keys(self) -> int:
        scope = self._scope()
        with _TorchErrors():
            return sum(may_begin_with(name, scope) for name in self._read(_PATIENCE_SECONDS).binary)

    # the names by which torch's C++ calls them, for example from a PrefixStore
    deleteKey = delete_key  # noqa: N815
    getNumKeys = num_keys  # noqa: N815

    def has_extended_api(self) -> bool:
        """Say that append, multi_get and multi_set exist."""
        return True

    def keep_only(self, prefixes: Sequence[str]) -> None:
        """Delete all keys except those of this scope that begin with one of the prefixes.

        The ConfigMap is then this run's alone, and becomes its owner's, if it has one.
        """
        wanted = [self._scope() + prefix for prefix in prefixes]
        with _TorchErrors():
            content = self._read(_PATIENCE_SECONDS)
            old = [name for name in content.binary if not any(may_begin_with(name, prefix) for prefix in wanted)]
            if old or not self._map.is_owned(content):
                self._map.patch(binary=dict.fromkeys(old), patience=_PATIENCE_SECONDS, own=True)

    def _name(self, key: str) -> str:
        return name_of(self._scope() + key)

    def _has(self, content: Content, keys: Sequence[str]) -> bool:
        return all(self._name(key) in content.binary for key in keys)

    def _read(self, patience: float) -> Content:
        """Return the content, without a version if there is no ConfigMap: only writers create it."""
        try:
            return self._map.read(patience)
        except NotFound:
            return Content(version="")

    def _create(self) -> None:
        try:
            self._map.create(patience=_PATIENCE_SECONDS)
        except Conflict:
            return  # another node was faster

    def _change(self, key: str, decide: Callable[[Mapping[str, bytes], str], tuple[Changes, T]]) -> T:
        """Write the changes that ``decide`` derives from the present keys, once; return its result."""
        name, id_ = self._name(key), secrets.token_hex(4)
        deadline = time.monotonic() + self.timeout.total_seconds()
        pause, result = _FIRST_PAUSE, None
        with _TorchErrors():
            while True:
                content = self._read(_PATIENCE_SECONDS)
                if not content.version:
                    self._create()
                    continue
                writes = content.annotations.get(_WRITES, "").split()
                if id_ in writes:
                    return result  # type: ignore[return-value]
                changes, result = decide(content.binary, name)
                if not changes:
                    return result
                note = {_WRITES: " ".join([*writes, id_][-_WRITES_KEPT:])}
                try:
                    self._map.patch(
                        binary=changes, annotations=note, version=content.version, patience=_PATIENCE_SECONDS
                    )
                    return result
                except Conflict:
                    if time.monotonic() > deadline:
                        raise DistStoreError(f"timeout: too many writers changed {self._map} before '{key}'") from None
                time.sleep(uniform(0, pause))
                pause = min(pause * 2, _LONGEST_PAUSE)

    def _await(self, keys: Sequence[str], timeout: timedelta) -> Content:
        """Wait until all the keys exist; return a content that has them."""
        limit = timeout.total_seconds()
        deadline = time.monotonic() + limit
        with _TorchErrors():
            while True:
                content = self._read(max(deadline - time.monotonic(), 0))
                if self._has(content, keys):
                    return content
                left = deadline - time.monotonic()
                if left <= 0:
                    # callers look for the word "timeout"
                    raise DistStoreError(f"wait timeout after {limit:g} s, keys: {', '.join(keys)} in {self._map}")
                found = self._watch(content.version, keys, min(left, _WATCH_SECONDS))
                if found is not None:
                    return found

    def _watch(self, version: str, keys: Sequence[str], seconds: float) -> Content | None:
        """Return the first content that has all the keys; None if the watch ended before."""
        began = time.monotonic()
        try:
            with closing(self._map.watch(version, seconds)) as contents:
                for content in contents:
                    if content is None:
                        break
                    if self._has(content, keys):
                        return content
        except Unavailable:
            pass  # the next read tells whether the server is there
        if time.monotonic() - began < 1:
            time.sleep(min(uniform(0.1, 0.5), seconds))  # a pause between calls
        return None


class _TorchErrors:
    """Translates the API's errors into torch's."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Unavailable):
            raise DistNetworkError(str(error)) from error
        if isinstance(error, ApiError):
            raise DistStoreError(str(error)) from error


def _to_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
