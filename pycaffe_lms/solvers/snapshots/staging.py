"""Copies the values of a snapshot to host memory, on a GPU without waiting for it."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from ...arrays import HostArray
from ...backend.device import Device, Span, align
from ...blob import Blob, stored_view
from ...errors import OutOfHostMemory, human_bytes
from ...memory.states import Ask, State
from ...memory.synced import SyncedMemory
from .gathered import Gathered, gather, table_bytes

_log = logging.getLogger(__name__)
_SEGMENT = 64 << 20  # least bytes of an allocation, unless four times what is needed is less
_PIECE = 8 << 20  # bytes that one thread copies at a time
_THREADS = min(8, os.cpu_count() or 1)


class Staging:
    """Own the page-locked memory of one snapshot. Call `begin`, `blob` or `memory` for each value, `end`; then `wait`,
    from any thread.

    Values on the device are copied after all work that is queued, on the stream of copies out, beside later work; the
    host does not wait for it. With `spare`, where the device has room, one operation first gathers the values in memory
    of their own, and they are copied from there. Else they are copied from where they are, and the next write there
    waits for the copy (`SyncedMemory.leaving`). States of buffers and plans do not change. Values on the host are
    copied at once.

    Args:
        pinned_limit: most bytes of page-locked memory; further memory is pageable.
        spare: device memory may be taken until the copies are done.
    """

    def __init__(self, device: Device, pinned_limit: int | None = None, *, spare: bool = False):
        self._device, self._limit, self._spare = device, pinned_limit, spare
        self._segments: list[np.ndarray] = []
        self._pinned = 0
        self._free: list[np.ndarray] = []  # what is left of each segment
        self._taken: dict[int, np.ndarray] = {}  # by id of the memory: layers may share one
        self._there: list[tuple[HostArray, SyncedMemory, Span]] = []  # copies from the device: to, from
        self._held: list[Span] = []  # what queued copies read: kept from being freed until they are done
        self._on_host: list[tuple[HostArray, HostArray]] = []  # copies on the host: to, from
        self._ready: Any = None  # the event after the last copy
        self._gathered: Gathered | None = None
        self._offered = False  # whether the device will call `_asked`

    @property
    def nbytes(self) -> int:
        """Return the bytes of all memory that it owns."""
        return sum(segment.nbytes for segment in self._segments)

    def reserve(self, sizes: Iterable[int]) -> None:
        """Allocate memory for values of so many bytes now, so that none is allocated later."""
        sizes = list(sizes)
        missing = sum(map(align, [*sizes, table_bytes(sizes) if self._spare else 0])) - self.nbytes
        if missing > 0:
            self._take(missing)

    def begin(self) -> None:
        """Use the memory anew, once the last snapshot is written."""
        self._taken.clear()
        self._free = list(self._segments)
        self._ready = None

    def blob(self, blob: Blob, which: str = "data") -> np.ndarray:
        """Return the values ("data") or gradients ("diff") of a blob, valid once `wait` has returned."""
        memory, last = getattr(blob, f"{which}_memory"), getattr(blob, f"{which}_last")
        raw = self._copy(memory, getattr(blob, f"read_{which}"))
        return stored_view(raw, blob.shape, blob.dtype, last)

    def memory(self, memory: SyncedMemory) -> np.ndarray:
        """Return the bytes of a buffer, valid once `wait` has returned."""
        return self._copy(memory, lambda: memory.ask(Ask.READ_CPU))

    def end(self) -> None:
        """Queue the copies: work that is queued on the device later does not change what they copy."""
        device = self._device
        if self._there:
            with device.lock, device.active():
                pairs = [(raw, span) for raw, _, span in self._there]
                self._gathered = gather(device, pairs, self._slot) if self._spare else None
                device.wait(device.copy_out, device.record(device.compute))
                if self._gathered is not None:
                    for raw, span in self._gathered.runs:
                        self._ready = device.copy_down(raw, span, device.copy_out)
                else:
                    for raw, memory, span in self._there:
                        memory.leaving = self._ready = device.copy_down(raw, span, device.copy_out)
                    self._held = [span for _, span in pairs]
                self._there.clear()
                self._offer()
        if sum(raw.nbytes for raw, _ in self._on_host) > _PIECE:
            with ThreadPoolExecutor(_THREADS) as threads:
                list(threads.map(lambda pair: np.copyto(*pair), self._on_host))
        else:
            for raw, values in self._on_host:
                np.copyto(raw, values)
        self._on_host.clear()

    def _offer(self) -> None:
        """Let the device ask for memory that is held for the copies before it reports that none is free."""
        if not self._offered:
            self._offered = True
            self._device.let_go(partial(_call, weakref.WeakMethod(self._asked)))

    def _asked(self) -> None:
        self._offered = False
        self.wait()

    def wait(self) -> None:
        """Block the calling thread until the values are copied."""
        if self._ready is not None:
            self._device.wait_host(self._ready)
        if self._gathered is not None:
            self._gathered.give()
        self._held = []

    def _copy(self, memory: SyncedMemory, read: Callable[[], object]) -> np.ndarray:
        """Return host memory for a value, and note or make the copy.

        read: brings the value to the host, where it is neither simply on the device nor on the host."""
        raw = self._taken.get(id(memory))
        if raw is not None:
            return raw
        raw = self._taken[id(memory)] = self._slot(memory.nbytes)
        plain = type(memory) is SyncedMemory and not memory.touched_outside
        if plain and memory.state is State.HEAD_AT_GPU and memory.own_bytes and memory.span is not None:
            self._there.append((raw, memory, memory.span))
            return raw
        if not plain or memory.state not in (State.HEAD_AT_CPU, State.SYNCED):
            read()
        elif memory.host_event is not None:
            self._device.wait_host(memory.host_event)
        values = memory.host_array((memory.nbytes,), np.uint8)
        self._on_host += [(raw[i : i + _PIECE], values[i : i + _PIECE]) for i in range(0, memory.nbytes, _PIECE)]
        return raw

    def _slot(self, nbytes: int) -> np.ndarray:
        room = next((k for k, free in enumerate(self._free) if free.nbytes >= nbytes), len(self._free))
        if room == len(self._free):
            self._free.append(self._take(nbytes))
        free = self._free[room]
        self._free[room] = free[align(nbytes) :]
        return free[:nbytes]

    def _take(self, nbytes: int) -> np.ndarray:
        size = max(nbytes, min(_SEGMENT, nbytes * 4))
        raw = None
        if self._limit is None or self._pinned + size <= self._limit:
            try:
                raw = self._device.host_take(size, pinned=True)
                self._pinned += size
            except OutOfHostMemory as error:
                _log.warning("Snapshots are copied to pageable memory, which takes longer: %s", error.message)
        if raw is None:
            raw = self._device.host_take(size)
        self._segments.append(raw)
        _log.debug("Snapshots: %s of host memory", human_bytes(self.nbytes))
        return raw


def _call(method: weakref.WeakMethod[Callable[[], None]]) -> None:
    """Call a method whose object still exists."""
    bound = method()
    if bound is not None:
        bound()
