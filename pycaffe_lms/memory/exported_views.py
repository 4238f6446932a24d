"""Arrays over a buffer that a user holds, and what a run of the net owes them.

A NumPy view is over the host copy, a GPU array over the device copy. Whether somebody still holds one, or anything that
was made of it (a slice, a tensor of another library), is known from references: each goes back to one base array, which
only its views keep alive. So:

* before a run, a copy that is held counts as written by its holder;
* after a run, a copy that is held is renewed, so it shows the newest value; one whose value was dropped is filled with
  NaN, and the log says how to keep it;
* of one buffer only one side is held at a time, for nobody could say which of two written copies is the newer;
* a GPU array of memory that Large Model Support moves cannot stay: the run is refused until it is let go.

Nobody who holds nothing pays for this but with a look at each buffer's two references.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from weakref import ref

import numpy as np

from ..errors import UsageError
from .states import Ask, State

_log = logging.getLogger(__name__)


class _Base:
    """What NumPy's views of a buffer end in. NumPy shortens chains of views, but not across another object."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: np.ndarray):
        self.array = array  # whose memory it is
        self.__array_interface__ = array.__array_interface__


class DeviceBase:
    """What a GPU array keeps alive: the memory, for as long as anybody sees it."""

    __slots__ = ("__weakref__", "span")

    def __init__(self, span):
        self.span = span


def alive(reference: ref | None) -> bool:
    """Whether what was handed out is still held."""
    return reference is not None and reference() is not None


def lend_host(memory) -> np.ndarray:
    """The host copy as bytes, to make views of. After a host ask."""
    raw = memory.host_held() if memory.host_held is not None else None
    if raw is None or raw.base.array is not memory.host:
        raw = np.asarray(_Base(memory.host))
        memory.host_held = ref(raw)
    return raw


def lend_device(memory, shape: Sequence[int], dtype):
    """The device copy as an array of the device's library; work queued so far is done. After a GPU ask."""
    base = DeviceBase(memory.span)
    array = memory.device.lend(memory.span, shape, dtype, base)
    before = memory.device_held
    memory.device_held = (*[r for r in before or () if alive(r)], ref(base))
    memory.touched_outside = True
    return array


def device_side_held(memory) -> bool:
    """Whether somebody holds a GPU array of the buffer."""
    return memory.device_held is not None and any(map(alive, memory.device_held))


def check_side(memory, *, host: bool) -> None:
    """Raises UsageError where a writable array of this side is asked for while the other side is held."""
    if host and device_side_held(memory):
        raise UsageError(
            f'a GPU array of "{memory.name}" is still held, so its values on the host cannot be handed out for writing',
            fix="let it go first (del array), or only look: blob.read_data(), blob.read_diff()",
        )
    if not host and alive(memory.host_held):
        raise UsageError(
            f'a NumPy view of "{memory.name}" is still held, so its GPU array cannot be handed out',
            fix="let it go first (del view), or hold a copy: blob.data.copy()",
        )


def before_run(memories: Iterable, moved: Iterable) -> None:
    """What holders may have written counts. memories: what the program touches. moved: what a plan places elsewhere.

    Raises UsageError where a GPU array of such memory is held."""
    for memory in moved:
        if memory.device_held is not None and device_side_held(memory):
            raise UsageError(
                f'a GPU array of "{memory.name}" is still held, but Large Model Support moves that blob',
                fix="let it go first (del array), or hold a copy of it",
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
        wait.synchronize()  # the holder's work is on streams of its own


def after_run(memories: Iterable) -> None:
    """Copies that are held show the newest values."""
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


def _spoil(memory) -> None:
    raw = memory.host_held()
    if memory.host_event is not None:  # a copy in flight, of an older value
        memory.device.wait_host(memory.host_event)
        memory.host_event = None
    if raw is not None and not (raw == 0xFF).all():  # bytes of ones: NaN in every float type
        raw.fill(0xFF)
        blob = memory.name.rsplit(".", 1)[0].split("(")[0]
        _log.warning(
            'A NumPy view of "%s" is held, but its value was dropped: it is filled with NaN. net.keep("%s") keeps it',
            memory.name, blob,
        )  # fmt: skip
