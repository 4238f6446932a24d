"""Define SyncedMemory: one buffer with a host and a device copy, kept in step by the tables of `states.py`.

`SyncedMemory.ask` looks up a transition and runs its actions. The other methods serve plans: host slots, in-place
reuse, CUDA graphs and carry-over. `split_memory.py` derives a value that is stored in several buffers.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from itertools import count

import numpy as np

from ..errors import DiscardedRead, InvalidTransition
from .exported_views import alive, lend_host
from .states import MANAGED, RESIDENT, Ask, Do, State

_HOST_ASKS = frozenset({Ask.READ_CPU, Ask.WRITE_CPU, Ask.OVERWRITE_CPU})
_KEEP = frozenset({Ask.READ_CPU, Ask.READ_GPU, Ask.SAVE, Ask.EVICT})  # requests that do not change the value
_WRITE_GPU = frozenset({Ask.WRITE_GPU, Ask.OVERWRITE_GPU})
_CHANGE_GPU = frozenset({Do.ZERO_GPU, Do.COPY_UP, Do.SPOIL_GPU, Do.GIVE_GPU})  # actions that change the device copy
_WRITES = count(1)


class SyncedMemory:
    """Hold `nbytes` of memory in state UNINITIALIZED, HEAD_AT_CPU, HEAD_AT_GPU, SYNCED or DISCARDED.

    Source of the states: BVLC/caffe, syncedmem.{hpp,cpp}.

    Args:
        nbytes: size of the value.
        name: what errors call it ("conv1.data").
        device: a `backend.device.Device`.
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

    def __init__(self, nbytes: int, name: str, device, *, pinned: bool = False):
        self.nbytes = int(nbytes)
        self.name = name
        self.device = device
        self.pinned = pinned
        self.state = State.UNINITIALIZED
        self.table = RESIDENT
        self.host: np.ndarray | None = None  # uint8
        self.locked = False  # the host copy is page-locked
        self.span = None  # device memory, see backend.device.Span
        self.host_event = None  # the last queued copy that reads or writes the host side
        self._own_span = False  # `span` is from the pool, not lent by a plan
        self._own_home = None  # own host copy, whether it is locked, its event: while a shared host slot is lent
        self.host_held = self.device_held = None  # weak references to exported views, see `exported_views.py`
        self.compressed_slot: np.ndarray | None = None  # uint8: host slot of the value in 16 bits, see `Compression`
        self.leaving = None  # event of a copy from the device copy to elsewhere; the next write there waits for it
        self.through = None  # the `Compression` that copies go through; None: exact copies
        self.touched_outside = False  # a holder of a GPU array may have queued work on it since the last run
        self.written = 0  # a number unique over all memories, new whenever the value may have changed
        self.history: deque = deque(maxlen=16)

    @property
    def managed(self) -> bool:
        return self.table is MANAGED

    @property
    def own_bytes(self) -> int:
        """Return the bytes of device memory that it took from the pool; what a plan lends is not counted."""
        return self.span.nbytes if self.span is not None and self._own_span else 0

    def manage(self, on: bool) -> None:
        """Choose the table. Managing a buffer first moves its value to the host and frees its device memory."""
        if on:
            self.table = MANAGED
            self.ask(Ask.EVICT)
            self.give_back()  # free a stale device copy too
        else:
            self.table = RESIDENT

    def ask(self, ask: Ask, *, span=None, stream=None, part: tuple[int, int] | None = None) -> None:
        """Make the transition for `ask`: run its actions and change the state.

        Args:
            span: device memory to use if some is taken (lent by a plan); default: from the pool.
            stream: where copies are queued; default: the compute stream.
            part: (offset, bytes) of the copy that is queued; default: all of it. Parts come in order, and the state
                changes with the last.

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
                    getattr(self, _ACTIONS[action])(span, stream, part)
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
        self._give_gpu(None, None, None)

    def host_array(self, shape, dtype, start: int = 0) -> np.ndarray:
        """Return the host copy, from element `start` on, as an array. Call it after a host ask only."""
        return _view(self.host[start * np.dtype(dtype).itemsize :] if start else self.host, shape, dtype)

    def host_view(self, shape, dtype) -> np.ndarray:
        """Return the host copy as an exported view. Call it after a host ask only."""
        return _view(lend_host(self), shape, dtype)

    def device_array(self, shape, dtype, start: int = 0):
        """Return the device copy, from element `start` on, as a device array. Call it after a GPU ask only."""
        if not start:
            return self.device.array(self.span, shape, dtype)
        itemsize = np.dtype(dtype).itemsize
        return self.device.array(self.span.at(start * itemsize, math.prod(shape) * itemsize), shape, dtype)

    @property
    def last_on_host(self) -> np.ndarray | None:
        """Return the own host copy as uint8 in any state, perhaps stale; None if there is none or a slot is lent."""
        return self.host if self._own_home is None else None

    @property
    def wants_lock(self) -> bool:
        """Return whether the host copy should move to page-locked memory, and may: no exported view refers to it."""
        return not self.locked and not alive(self.host_held)

    def move_home(self, slot: np.ndarray) -> None:
        """Move the host copy to this page-locked slot."""
        if self.host_event is not None:
            self.device.wait_host(self.host_event)
            self.host_event = None
        if self.host is not None:
            np.copyto(slot[: self.nbytes], self.host[: self.nbytes])
        self.host, self.locked = slot, True

    def lend_host_slot(self, slot: np.ndarray) -> None:
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
        lent, holds = self.host, self.state in (State.HEAD_AT_CPU, State.SYNCED)
        self._restore_own_host()
        if holds:
            self.host_event = None
            self._take_cpu(None, None, None)
            np.copyto(self.host[: self.nbytes], lent[: self.nbytes])

    def _restore_own_host(self) -> None:
        if self._own_home is not None:
            (self.host, self.locked, self.host_event), self._own_home = self._own_home, None

    def hand_over(self) -> None:
        """Drop the value, whose lent device memory another buffer reuses in place."""
        self.span = None
        self.ask(Ask.DISCARD)

    def become(self, state: State, *, span=None, event=None) -> None:
        """Set the state without running actions, as captured operations leave it.

        Args:
            span: device memory that is lent, or None.
            event: end of the copies that use the host copy.
        """
        self._restore_own_host()
        self.state, self.span, self.host_event = state, span, event
        self._own_span, self.written = False, next(_WRITES)

    def be_found(self, span) -> None:
        """Note that the value, which is on the host, was also carried over in this lent device memory."""
        if self.state is not State.HEAD_AT_CPU or self.span is not None:
            raise self._refuse(Ask.READ_GPU)
        self.state, self.span, self._own_span = State.SYNCED, span, False

    def _wait_for_leaving(self, stream) -> None:
        self.device.wait(self.device.compute if stream is None else stream, self.leaving)
        self.leaving = None

    # -- actions ---------------------------------------------------------------------------------------------------
    def _take_cpu(self, span, stream, part) -> None:
        if self.host is None and self.through is None:
            self.host, self.locked = self.device.host_take(self.nbytes, pinned=self.pinned), self.pinned

    def _zero_cpu(self, span, stream, part) -> None:
        if self.host_event is not None:
            self.device.wait_host(self.host_event)
        self.host[...] = 0

    def _take_gpu(self, span, stream, part) -> None:
        if self.span is None:
            self._own_span = span is None
            self.span = self.device.take(self.nbytes) if span is None else span

    def _zero_gpu(self, span, stream, part) -> None:
        self.device.zero(self.span, stream)

    def _copy_up(self, span, stream, part) -> None:
        try:
            if self.through is not None:
                self.host_event = self.through.copy_up(self, stream)
            else:
                self.host_event = self.device.copy_up(*self._sides(part), stream)
        except Exception:
            self._wait_for_failed_copy()
            raise

    def _copy_down(self, span, stream, part) -> None:
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

    def _sides(self, part):
        """Return (device memory, host memory) of a part of the buffer, cut at the end of the value.

        Sizes in plans are aligned, so the last part may be larger than what is left.
        """
        if part is None:
            return self.span, self.host
        start, end = part[0], min(sum(part), self.nbytes)
        return self.span.at(start, end - start), self.host[start:end]

    def _spoil_gpu(self, span, stream, part) -> None:
        if self.span is not None:
            self.device.spoil(self.span, stream)

    def _give_gpu(self, span, stream, part) -> None:
        if self.span is not None:
            if self._own_span:
                self.device.give(self.span, stream)
            self.span = None

    def _refuse(self, ask: Ask) -> InvalidTransition:
        if self.state is State.DISCARDED:
            blob = self.name.rsplit(".", 1)[0].split("(")[0]
            return DiscardedRead(
                f'the value of "{self.name}" was dropped: nothing in the iteration reads it again, so its memory was '
                "reused",
                fix=f'call net.keep("{blob}") before the iteration',
            ).at(blob=blob)
        story = "; ".join(f"{a.value} --{b.value}--> {c.value}" for a, b, c in self.history) or "none"
        return InvalidTransition(
            f'"{self.name}": no transition from {self.state.value} for "{ask.value}" (last transitions: {story})'
        )


_ACTIONS = {
    Do.TAKE_CPU: "_take_cpu",
    Do.ZERO_CPU: "_zero_cpu",
    Do.TAKE_GPU: "_take_gpu",
    Do.ZERO_GPU: "_zero_gpu",
    Do.COPY_UP: "_copy_up",
    Do.COPY_DOWN: "_copy_down",
    Do.SPOIL_GPU: "_spoil_gpu",
    Do.GIVE_GPU: "_give_gpu",
}


def _view(raw: np.ndarray, shape, dtype) -> np.ndarray:
    dtype = np.dtype(dtype)
    count = 1
    for d in shape:
        count *= d
    return raw[: count * dtype.itemsize].view(dtype).reshape(shape)
