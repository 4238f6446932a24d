"""Export views (arrays over a buffer that a user holds), and keep them valid across runs of the net.

A NumPy view shows the host copy, a GPU array the device copy. Every view, and all that is derived from it (a slice, a
tensor of another library), keeps one base object alive; a weak reference to it tells whether one still exists:

* before a run, a copy with an exported view counts as written by the user (`before_run`);
* after a run, that copy is updated to the newest value; if the value was dropped, it is filled with signaling NaN, and
  the log says how to keep it (`after_run`). A plain array cannot raise when it is read, but NumPy warns of arithmetic
  with these ("invalid value encountered"), or raises under `np.errstate(invalid="raise")`; arithmetic with other NaN is
  silent;
* only one side of a buffer can be exported at a time, since else it is unknown which copy is newer (`check_side`);
* a GPU array of memory that Large Model Support moves is refused: the run raises until the array is deleted.

Without exported views the cost is one check of two references per buffer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import AnyArray, HostArray
from ..backend.device import Span
from ..errors import UsageError
from .states import Ask, State

if TYPE_CHECKING:
    from .synced import SyncedMemory

_log = logging.getLogger(__name__)
_SIGNALING = {4: 0x7FA00000, 8: 0x7FF4000000000000}  # NaN, by bytes of a float, whose use sets the "invalid" flag


class _Base:
    """Be the base object of NumPy views of a buffer: NumPy shortens chains of views, but not across other objects."""

    __slots__ = ("__array_interface__", "array", "itemsize")

    def __init__(self, array: HostArray, itemsize: int):
        self.array = array  # owns the memory
        self.itemsize = itemsize  # of the views, which all have the net's type
        self.__array_interface__: dict[str, Any] = array.__array_interface__


class DeviceBase:
    """Be the base object of GPU arrays: it keeps the memory alive as long as one of them exists."""

    __slots__ = ("__weakref__", "span")

    def __init__(self, span: Span):
        self.span = span


def alive(reference: ref[Any] | None) -> bool:
    """Return whether the exported view still exists."""
    return reference is not None and reference() is not None


def lend_host(memory: SyncedMemory, itemsize: int) -> HostArray:
    """Return the host copy as uint8, the base of exported views. Call it after a host ask.

    itemsize: bytes of a number, which is a float.
    """
    assert memory.host is not None
    raw = memory.host_held() if memory.host_held is not None else None
    if raw is None or not isinstance(raw.base, _Base) or raw.base.array is not memory.host:
        raw = np.asarray(_Base(memory.host, itemsize))
        memory.host_held = ref(raw)
    return raw


def lend_device(memory: SyncedMemory, shape: Sequence[int], dtype: DTypeLike) -> AnyArray:
    """Return the device copy as an array of the device's library; queued work is done. Call it after a GPU ask."""
    assert memory.span is not None
    base = DeviceBase(memory.span)
    array = memory.device.lend(memory.span, shape, dtype, base)
    before = memory.device_held
    memory.device_held = (*[r for r in before or () if alive(r)], ref(base))
    memory.touched_outside = True
    return array


def device_side_held(memory: SyncedMemory) -> bool:
    """Return whether an exported GPU array of the buffer exists."""
    return memory.device_held is not None and any(map(alive, memory.device_held))


def check_side(memory: SyncedMemory, *, host: bool) -> None:
    """Raise UsageError if the other side of the buffer has an exported view.

    host: the side of which a writable array is requested.
    """
    if host and device_side_held(memory):
        raise UsageError(
            f'a GPU array of "{memory.name}" is still held, so its values on the host cannot be exported for writing',
            fix="delete it first (del array), or only read: blob.read_data(), blob.read_diff()",
        )
    if not host and alive(memory.host_held):
        raise UsageError(
            f'a NumPy view of "{memory.name}" is still held, so its GPU array cannot be exported',
            fix="delete it first (del view), or hold a copy: blob.data.copy()",
        )


def before_run(memories: Iterable[SyncedMemory], moved: Iterable[SyncedMemory]) -> None:
    """Mark the buffers as written that users may have changed through exported views.

    Args:
        memories: buffers that the program accesses.
        moved: buffers that the plan moves.

    Raises:
        UsageError: a GPU array of a moved buffer still exists.
    """
    for memory in moved:
        if memory.device_held is not None and device_side_held(memory):
            raise UsageError(
                f'a GPU array of "{memory.name}" is still held, but Large Model Support moves that blob',
                fix="delete it first (del array), or hold a copy of it",
            )
    wait = None
    for memory in memories:
        if memory.touched_outside:
            wait = memory.device
            if memory.state is State.SYNCED:
                memory.ask(Ask.WRITE_GPU)
            memory.touched_outside = device_side_held(memory)
        elif (view := memory.host_held) is not None and memory.state is State.SYNCED and view() is not None:
            memory.ask(Ask.WRITE_CPU)
    if wait is not None:
        wait.synchronize()  # the user's work may be on other streams


def after_run(memories: Iterable[SyncedMemory]) -> None:
    """Update exported views to the newest values; fill those of dropped values with NaN."""
    wait = None
    for memory in memories:
        if (view := memory.host_held) is not None and view() is not None:
            if memory.state is State.DISCARDED:
                _spoil(memory)
            elif memory.state is not State.UNINITIALIZED:
                memory.ask(Ask.READ_CPU)  # waits for copies in flight, too
        if memory.touched_outside and device_side_held(memory):
            if memory.state is State.HEAD_AT_CPU:
                memory.ask(Ask.READ_GPU)
            wait = memory.device
    if wait is not None:
        wait.synchronize()


def _spoil(memory: SyncedMemory) -> None:
    raw = memory.host_held() if memory.host_held is not None else None
    if memory.host_event is not None:  # a copy in flight, of an older value
        memory.device.wait_host(memory.host_event)
        memory.host_event = None
    if raw is None:
        return
    size = raw.base.itemsize  # type: ignore[union-attr]  # a `_Base`
    words, dropped = raw[: raw.nbytes // size * size].view(f"u{size}"), _SIGNALING[size]
    if (words != dropped).any():
        words.fill(dropped)
        blob = memory.name.rsplit(".", 1)[0].split("(")[0]
        _log.warning(
            'A NumPy view of "%s" is held, but its value was dropped: it is filled with NaN. net.keep("%s") keeps it',
            memory.name,
            blob,
        )
