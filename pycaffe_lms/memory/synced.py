"""Define SyncedMemory: one buffer with a host and a device copy, kept in step by the tables of `states.py`.

`SyncedMemory.ask` looks up a transition and runs its actions. The other methods serve plans: host slots, in-place
reuse, CUDA graphs and carry-over. `split_memory.py` derives a value that is stored in several buffers.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Protocol, TypeAlias
from weakref import ref

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import AnyArray, HostArray
from ..backend.device import Device, Event, Span, Stream
from ..errors import DiscardedRead, InvalidTransition
from .exported_views import alive, lend_host
from .states import MANAGED, RESIDENT, Ask, Do, State

if TYPE_CHECKING:
    from .exported_views import DeviceBase

Part: TypeAlias = "tuple[int, int]"
"""(offset, bytes) of a part of a buffer."""

_HOST_ASKS = frozenset({Ask.READ_CPU, Ask.WRITE_CPU, Ask.OVERWRITE_CPU})
_KEEP = frozenset({Ask.READ_CPU, Ask.READ_GPU, Ask.SAVE, Ask.EVICT})  # requests that do not change the value
_WRITE_GPU = frozenset({Ask.WRITE_GPU, Ask.OVERWRITE_GPU})
_CHANGE_GPU = frozenset({Do.ZERO_GPU, Do.COPY_UP, Do.SPOIL_GPU, Do.GIVE_GPU})  # actions that change the device copy
_WRITES = count(1)
_PARAM_GRADIENT = re.compile(r"\.param\d+( \[\d+/\d+\])?\.diff$")  # ends the name of its buffer


class CompressedCopies(Protocol):
    """Copy a value in fewer bits: see `lms/runtime/compression.py`."""

    def copy_up(self, memory: SyncedMemory, stream: Stream) -> Event:
        """Queue a copy to the device; return its event."""

    def copy_down(self, memory: SyncedMemory, stream: Stream) -> Event:
        """Queue a copy to the host; return its event."""


class SyncedMemory:
    """Hold `nbytes` of memory in state UNINITIALIZED, HEAD_AT_CPU, HEAD_AT_GPU, SYNCED or DISCARDED.

    Source of the states: BVLC/caffe, syncedmem.{hpp,cpp}.

    Args:
        nbytes: size of the value.
        name: what errors call it ("conv1.data").
        device: where its device copy is.
        pinned: allocate the host copy in page-locked memory if the device has any.
    """

    __slots__ = (
        "_own_home",
        "_own_span",
        "device",
        "device_held",
        "compressed_slot",
        "history",
        "host",
        "host_event",
        "host_held",
        "leaving",
        "locked",
        "name",
        "nbytes",
        "pinned",
        "span",
        "state",
        "table",
        "through",
        "touched_outside",
        "written",
    )

    def __init__(self, nbytes: int, name: str, device: Device, *, pinned: bool = False):
        self.nbytes = int(nbytes)
        self.name = name
        self.device = device
        self.pinned = pinned
        self.state = State.UNINITIALIZED
        self.table = RESIDENT
        self.host: HostArray | None = None  # uint8
        self.locked = False  # the host copy is page-locked
        self.span: Span | None = None  # device memory
        self.host_event: Event = None  # the last queued copy that reads or writes the host side
        self._own_span = False  # `span` is from the pool, not lent by a plan
        # own host copy, whether it is locked, its event: while a shared host slot is lent
        self._own_home: tuple[HostArray | None, bool, Event] | None = None
        self.host_held: ref[HostArray] | None = None  # exported views, see `exported_views.py`
        self.device_held: tuple[ref[DeviceBase], ...] | None = None
        self.compressed_slot: HostArray | None = None  # uint8: host slot of the value in 16 bits
        self.leaving: Event = None  # a copy from the device copy to elsewhere; the next write there waits for it
        self.through: CompressedCopies | None = None  # None: exact copies
        self.touched_outside = False  # a holder of a GPU array may have queued work on it since the last run
        self.written = 0  # a number unique over all memories, new whenever the value may have changed
        self.history: deque[tuple[State, Ask, State]] = deque(maxlen=16)

    @property
    def managed(self) -> bool:
        """Return whether Large Model Support moves the value."""
        return self.table is MANAGED

    @property
    def own_bytes(self) -> int:
        """Return the bytes of device memory from the pool; memory that a plan lends is not counted."""
        return self.span.nbytes if self.span is not None and self._own_span else 0

    def manage(self, on: bool) -> None:
        """Choose the table. Managing a buffer first moves its value to the host and frees its device memory."""
        if on:
            self.table = MANAGED
            self.ask(Ask.EVICT)
            self.give_back()  # free a stale device copy too
        else:
            self.table = RESIDENT

    def ask(self, ask: Ask, *, span: Span | None = None, stream: Stream = None, part: Part | None = None) -> None:
        """Make the transition for `ask`: run its actions and change the state.

        Args:
            span: device memory that a plan lends, used if the buffer has none; default: from the pool.
            stream: where copies are queued; default: the compute stream.
            part: the part to copy; default: all of it. Parts come in order, and the state changes with the last.

        Raises:
            DiscardedRead: the value was dropped.
            InvalidTransition: any other pair without a row.
            OutOfDeviceMemory, OutOfHostMemory: memory cannot be allocated.
        """
        row = self.table.get((self.state, ask))
        if row is None:
            raise self._refuse(ask)
        actions, state = row
        if ask not in _KEEP:
            self.written = next(_WRITES)
        if self.leaving is not None and (ask in _WRITE_GPU or not _CHANGE_GPU.isdisjoint(actions)):
            self._wait_for_leaving(stream)
        if actions:
            with self.device.lock:
                for action in actions:
                    _ACTIONS[action](self, span, stream, part)
        if part is not None and sum(part) < self.nbytes:
            return
        if self.state is not state or actions:
            self.history.append((self.state, ask, state))
        self.state = state
        if ask in _HOST_ASKS and self.host_event is not None:
            self.device.wait_host(self.host_event)
            self.host_event = None

    def give_back(self) -> None:
        """Release the device memory: to the pool if it is its own. The copy there must not be needed any more."""
        if self.leaving is not None:
            self._wait_for_leaving(None)
        self._give_gpu(None)

    @property
    def host_bytes(self) -> HostArray:
        """Return the host copy as uint8, shape (nbytes,). Call it after a host ask only."""
        assert self.host is not None
        return self.host[: self.nbytes]

    def host_array(self, shape: Sequence[int], dtype: DTypeLike, start: int = 0) -> HostArray:
        """Return the host copy, from element `start` on, as an array. Call it after a host ask only."""
        assert self.host is not None
        return _view(self.host[start * np.dtype(dtype).itemsize :] if start else self.host, shape, dtype)

    def host_view(self, shape: Sequence[int], dtype: DTypeLike) -> HostArray:
        """Return the host copy as an exported view. Call it after a host ask only."""
        return _view(lend_host(self, np.dtype(dtype).itemsize), shape, dtype)

    def device_array(self, shape: Sequence[int], dtype: DTypeLike, start: int = 0) -> AnyArray:
        """Return the device copy, from element `start` on, as a device array. Call it after a GPU ask only."""
        assert self.span is not None
        if not start:
            return self.device.array(self.span, shape, dtype)
        itemsize = np.dtype(dtype).itemsize
        return self.device.array(self.span.at(start * itemsize, math.prod(shape) * itemsize), shape, dtype)

    @property
    def last_on_host(self) -> HostArray | None:
        """Return the own host copy as uint8 in any state, perhaps stale; None if there is none or a slot is lent."""
        return self.host if self._own_home is None else None

    @property
    def wants_lock(self) -> bool:
        """Return whether the host copy should move to page-locked memory, and may: no exported view refers to it."""
        return not self.locked and not alive(self.host_held)

    def move_home(self, slot: HostArray) -> None:
        """Move the host copy to this page-locked slot."""
        if self.host_event is not None:
            self.device.wait_host(self.host_event)
            self.host_event = None
        if self.host is not None:
            np.copyto(slot[: self.nbytes], self.host[: self.nbytes])
        self.host, self.locked = slot, True

    def lend_host_slot(self, slot: HostArray) -> None:
        """Use this shared page-locked slot as the host copy until `end_home`.

        The value is on the device: the own host copy is stale.
        """
        if self._own_home is None:
            self._own_home = self.host, self.locked, self.host_event
            self.host, self.locked, self.host_event = slot, True, None

    def end_home(self) -> None:
        """Stop using the shared host slot, after the copy in was queued: the value is on the device only."""
        if self.state is State.SYNCED:
            self.state = State.HEAD_AT_GPU
        self._restore_own_host()

    def settle(self) -> None:
        """Move the value from a shared host slot, if one is lent, to the own host copy. No copy may be in flight."""
        if self._own_home is None:
            return
        lent, holds = self.host_bytes, self.state in (State.HEAD_AT_CPU, State.SYNCED)
        self._restore_own_host()
        if holds:
            self.host_event = None
            self._take_cpu()
            np.copyto(self.host_bytes, lent)

    def _restore_own_host(self) -> None:
        if self._own_home is not None:
            (self.host, self.locked, self.host_event), self._own_home = self._own_home, None

    def forget(self) -> None:
        """Drop the value, if there is one, with its device memory; reading it before it is written raises."""
        if self.state is not State.UNINITIALIZED:
            self.table = MANAGED
            self.ask(Ask.DISCARD)

    def hand_over(self) -> None:
        """Drop the value, whose lent device memory another buffer reuses in place."""
        self.span = None
        self.ask(Ask.DISCARD)

    def become(self, state: State, *, span: Span | None = None, event: Event = None) -> None:
        """Set the state without running actions, as captured operations leave it.

        Args:
            span: device memory that is lent, or None.
            event: end of the copies that use the host copy.
        """
        self._restore_own_host()
        self.state, self.span, self.host_event = state, span, event
        self._own_span, self.written = False, next(_WRITES)

    def be_found(self, span: Span) -> None:
        """Note that the value, which is on the host, was also carried over in this lent device memory."""
        if self.state is not State.HEAD_AT_CPU or self.span is not None:
            raise self._refuse(Ask.READ_GPU)
        self.state, self.span, self._own_span = State.SYNCED, span, False

    def _wait_for_leaving(self, stream: Stream) -> None:
        self.device.wait(self.device.compute if stream is None else stream, self.leaving)
        self.leaving = None

    # -- actions ---------------------------------------------------------------------------------------------------
    def _take_cpu(self) -> None:
        if self.host is None and self.through is None:
            self.host, self.locked = self.device.host_take(self.nbytes, pinned=self.pinned), self.pinned

    def _zero_cpu(self) -> None:
        if self.host_event is not None:
            self.device.wait_host(self.host_event)
        self.host_bytes.fill(0)

    def _take_gpu(self, span: Span | None) -> None:
        if self.span is None:
            self._own_span = span is None
            self.span = self.device.take(self.nbytes) if span is None else span

    def _zero_gpu(self, stream: Stream) -> None:
        assert self.span is not None
        self.device.zero(self.span, stream)

    def _copy_up(self, stream: Stream, part: Part | None) -> None:
        try:
            if self.through is not None:
                self.host_event = self.through.copy_up(self, stream)
            else:
                self.host_event = self.device.copy_up(*self._sides(part), stream)
        except Exception:
            self._wait_for_failed_copy()
            raise

    def _copy_down(self, stream: Stream, part: Part | None) -> None:
        if self.touched_outside:
            self.device.synchronize()
        try:
            if self.through is not None:
                self.host_event = self.through.copy_down(self, stream)
            else:
                span, host = self._sides(part)
                self.host_event = self.device.copy_down(host, span, stream)
        except Exception:
            self._wait_for_failed_copy()
            raise

    def _wait_for_failed_copy(self) -> None:
        """Wait for a copy that failed: it may be queued without an event, and would overwrite later values."""
        with suppress(Exception):  # the device is lost: its work does not run
            self.device.synchronize()

    def _sides(self, part: Part | None) -> tuple[Span, HostArray]:
        """Return (device memory, host memory) of a part of the buffer, cut at the end of the value.

        Sizes in plans are aligned, so the last part may be larger than what is left.
        """
        assert self.span is not None and self.host is not None
        if part is None:
            return self.span, self.host
        start, end = part[0], min(sum(part), self.nbytes)
        return self.span.at(start, end - start), self.host[start:end]

    def _spoil_gpu(self, stream: Stream) -> None:
        if self.span is not None:
            self.device.spoil(self.span, stream)

    def _give_gpu(self, stream: Stream) -> None:
        if self.span is not None:
            if self._own_span:
                self.device.give(self.span, stream)
            self.span = None

    def _refuse(self, ask: Ask) -> InvalidTransition:
        if self.state is State.DISCARDED:
            blob = self.name.rsplit(".", 1)[0].split("(")[0]
            keep = f'call net.keep("{blob}") before the iteration'
            if _PARAM_GRADIENT.search(self.name):
                keep = "train with -pack off (Tuning(pack=False)), or with snapshot_diff: true in the solver"
            return DiscardedRead(
                f'the value of "{self.name}" was dropped: nothing in the iteration reads it again, so its memory was '
                "reused",
                fix=keep,
            ).at(blob=blob)
        story = "; ".join(f"{a.value} --{b.value}--> {c.value}" for a, b, c in self.history) or "none"
        return InvalidTransition(
            f'"{self.name}": no transition from {self.state.value} for "{ask.value}" (last transitions: {story})'
        )


_ACTIONS: dict[Do, Callable[[SyncedMemory, Span | None, Stream, Part | None], None]] = {
    Do.TAKE_CPU: lambda memory, span, stream, part: memory._take_cpu(),
    Do.ZERO_CPU: lambda memory, span, stream, part: memory._zero_cpu(),
    Do.TAKE_GPU: lambda memory, span, stream, part: memory._take_gpu(span),
    Do.ZERO_GPU: lambda memory, span, stream, part: memory._zero_gpu(stream),
    Do.COPY_UP: lambda memory, span, stream, part: memory._copy_up(stream, part),
    Do.COPY_DOWN: lambda memory, span, stream, part: memory._copy_down(stream, part),
    Do.SPOIL_GPU: lambda memory, span, stream, part: memory._spoil_gpu(stream),
    Do.GIVE_GPU: lambda memory, span, stream, part: memory._give_gpu(stream),
}


def _view(raw: HostArray, shape: Sequence[int], dtype: DTypeLike) -> HostArray:
    dtype = np.dtype(dtype)
    return raw[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)
