"""SyncedMemory: one buffer with a host and a device copy. It looks up the table and runs the actions, nothing else."""

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
_KEEP = frozenset({Ask.READ_CPU, Ask.READ_GPU, Ask.SAVE, Ask.EVICT})  # the value is what it was
_WRITE_GPU = frozenset({Ask.WRITE_GPU, Ask.OVERWRITE_GPU})
_CHANGE_GPU = frozenset({Do.ZERO_GPU, Do.COPY_UP, Do.SPOIL_GPU, Do.GIVE_GPU})  # what lies on the device
_WRITES = count(1)


class SyncedMemory:
    """`nbytes` of memory in state UNINITIALIZED, HEAD_AT_CPU, HEAD_AT_GPU, SYNCED or DISCARDED.

    name: what errors call it ("conv1.data"). device: a `backend.device.Device`. pinned: take the host copy from
    page-locked memory where the device has such.  Source of the states: BVLC/caffe, syncedmem.{hpp,cpp}.
    """

    __slots__ = ("_own_home", "_own_span", "device", "device_held", "half_home", "history", "host", "host_event",
                 "host_held", "leaving", "locked", "name", "nbytes", "pinned", "span", "state", "table", "through",
                 "touched_outside", "written")  # fmt: skip

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
        self._own_span = False  # taken from the pool by ourselves, not lent by a plan
        self._own_home = None  # host copy, whether it is locked, its event: while another home is lent
        self.host_held = self.device_held = None  # references to arrays that were handed out, see `held.py`
        self.half_home: np.ndarray | None = None  # uint8: of the value in 16 bits, see `lms/runtime/compression.py`
        self.leaving = None  # the event of a copy of the device side to elsewhere, which the next write there waits for
        self.through = None  # what copies at present, by way of `half_home`; None: the device, as it is
        self.touched_outside = False  # somebody else may have queued work on the device copy since the last run
        self.written = 0  # another number, that no other memory has, whenever somebody may have written the value
        self.history: deque = deque(maxlen=16)

    @property
    def managed(self) -> bool:
        return self.table is MANAGED

    @property
    def own_bytes(self) -> int:
        """Bytes of device memory that it took from the pool; what a plan lends is not its own."""
        return self.span.nbytes if self.span is not None and self._own_span else 0

    def manage(self, on: bool) -> None:
        """Choose the table. A buffer changes hands only at home: its chunk goes back to the pool first."""
        if on:
            self.table = MANAGED
            self.ask(Ask.EVICT)
            self.give_back()  # a stale device copy goes too
        else:
            self.table = RESIDENT

    def ask(self, ask: Ask, *, span=None, stream=None, part: tuple[int, int] | None = None) -> None:
        """Make `ask` possible. `span`: device memory to use if some is taken (a plan's); default: the pool's.
        `stream`: where copies are queued; default: the compute stream. `part`: (offset, bytes) of the copy that is
        queued; default: all of it. Parts are asked for in order, and the state changes with the last: before that, a
        value on its way has arrived nowhere, and is where it was.

        Raises DiscardedRead for a value that was dropped, InvalidTransition for any other pair without a row,
        OutOfDeviceMemory / OutOfHostMemory when memory cannot be taken.
        """
        row = self.table.get((self.state, ask))
        if row is None:
            raise self._refuse(ask)
        actions, state = row
        if ask not in _KEEP:
            self.written = next(_WRITES)
        if self.leaving is not None and (ask in _WRITE_GPU or not _CHANGE_GPU.isdisjoint(actions)):
            self._let_leave(stream)
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
        """Return device memory of its own to the pool: nobody needs the copy there any more."""
        if self.leaving is not None:
            self._let_leave(None)
        self._give_gpu(None, None, None)

    def host_array(self, shape, dtype, start: int = 0) -> np.ndarray:
        """The host copy, from element `start` on, as an array; only after a host ask."""
        return _view(self.host[start * np.dtype(dtype).itemsize :] if start else self.host, shape, dtype)

    def host_view(self, shape, dtype) -> np.ndarray:
        """The host copy as an array for a user to hold; only after a host ask."""
        return _view(lend_host(self), shape, dtype)

    def device_array(self, shape, dtype, start: int = 0):
        """The device copy, from element `start` on, as an array of the device; only after a GPU ask."""
        if not start:
            return self.device.array(self.span, shape, dtype)
        itemsize = np.dtype(dtype).itemsize
        return self.device.array(self.span.at(start * itemsize, math.prod(shape) * itemsize), shape, dtype)

    @property
    def last_on_host(self) -> np.ndarray | None:
        """The host copy, as uint8, in whatever state: what was written or copied there last. None where there is none
        of its own."""
        return self.host if self._own_home is None else None

    @property
    def wants_lock(self) -> bool:
        """Whether copies would gain from another host copy: this one is not page-locked, and nobody holds a view."""
        return not self.locked and not alive(self.host_held)

    def move_home(self, slot: np.ndarray) -> None:
        """Let the host copy be this page-locked memory from now on."""
        if self.host_event is not None:
            self.device.wait_host(self.host_event)
            self.host_event = None
        if self.host is not None:
            np.copyto(slot[: self.nbytes], self.host[: self.nbytes])
        self.host, self.locked = slot, True

    def lend_home(self, slot: np.ndarray) -> None:
        """Let the host copy be this page-locked memory, which others use in turn, until `end_home`. What the own one
        holds is stale: the value is on the device."""
        if self._own_home is None:
            self._own_home = self.host, self.locked, self.host_event
            self.host, self.locked, self.host_event = slot, True, None

    def end_home(self) -> None:
        """The lent home is for others from the copy on that was queued last: the value is on the device only."""
        if self.state is State.SYNCED:
            self.state = State.HEAD_AT_GPU
        self._come_back()

    def settle(self) -> None:
        """Where a home is lent, the value moves from there to the own one. Nothing is in flight any more."""
        if self._own_home is None:
            return
        lent, holds = self.host, self.state in (State.HEAD_AT_CPU, State.SYNCED)
        self._come_back()
        if holds:
            self.host_event = None
            self._take_cpu(None, None, None)
            np.copyto(self.host[: self.nbytes], lent[: self.nbytes])

    def _come_back(self) -> None:
        if self._own_home is not None:
            (self.host, self.locked, self.host_event), self._own_home = self._own_home, None

    def hand_over(self) -> None:
        """Its device memory, which was lent, holds another buffer's value from now on; its own value is dropped."""
        self.span = None
        self.ask(Ask.DISCARD)

    def become(self, state: State, *, span=None, event=None) -> None:
        """Be in `state`, with lent device memory or none, without anything being moved: what a recording of many asks
        has made true, or will. event: ends the copies that use the host side."""
        self._come_back()
        self.state, self.span, self.host_event = state, span, event
        self._own_span, self.written = False, next(_WRITES)

    def be_found(self, span) -> None:
        """The value, which is at home, also lies in this lent device memory still."""
        if self.state is not State.HEAD_AT_CPU or self.span is not None:
            raise self._refuse(Ask.READ_GPU)
        self.state, self.span, self._own_span = State.SYNCED, span, False

    def _let_leave(self, stream) -> None:
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
            self._wait_for_strays()
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
            self._wait_for_strays()
            raise

    def _wait_for_strays(self) -> None:
        """After a copy that failed: it may be queued without an event that tells its end, and would overwrite what is
        put there after the error."""
        with suppress(Exception):  # of a device that is lost, whose work does not run
            self.device.synchronize()

    def _sides(self, part):
        """(device memory, host memory) of a part of the buffer. A plan's buffers end on a boundary, the last part may
        reach behind the value."""
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
                "used for others",
                fix=f'call net.keep("{blob}") before the iteration',
            ).at(blob=blob)
        story = "; ".join(f"{a.value} --{b.value}--> {c.value}" for a, b, c in self.history) or "none"
        return InvalidTransition(f'"{self.name}": no transition from {self.state.value} for "{ask.value}" (last '
                                 f"transitions: {story})")  # fmt: skip


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
