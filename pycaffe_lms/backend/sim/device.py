"""Simulate a GPU: device memory is host bytes with a capacity, freed memory is poisoned, streams are lazy.

A missing wait, a reuse before a drain or a read of a dropped value therefore gives NaN or an error on a machine without
a GPU. Operations are the CPU's, queued; a model clock adds up the time that the work would take (bytes / bandwidth).
"""

from __future__ import annotations

import functools
import math
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from ...arrays import HostArray
from ...errors import DeviceError, OutOfHostMemory, human_bytes
from ...faults import Faults
from ..cpu import host_bytes
from ..device import Span, align, cannot_give
from .pages import SimPages
from .streams import Recording, Scheduler, SimEvent, SimStream

POISON = 0xFF  # bytes of it are NaN in every float type and -1 in every signed integer
SMALL = 256 << 20
WORKSPACE_LIMIT = 64 << 10  # bytes: little, so that small budgets can be tried

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _locked(method: Callable[Concatenate[SimDevice, _P], _R]) -> Callable[Concatenate[SimDevice, _P], _R]:
    """Let threads that call the method at the same time take turns."""

    @functools.wraps(method)
    def run(self: SimDevice, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        with self.lock:
            return method(self, *args, **kwargs)

    return run


@dataclass(frozen=True)
class _Chunk(Span):
    """Be what `take` returns. lost: frees the memory when the last reference is gone without a call of `give`."""

    lost: weakref.finalize[..., HostArray]


class SimDevice:
    """Simulate one GPU.

    The model clock's rates are those of an H200: 55 GB/s a copy direction, 4.3 TB/s of device memory, 5 us a launch.

    Args:
        capacity: bytes of device memory.
        order: "latest", "earliest" or "random" (with `seed`), see Scheduler.
        page: bytes of its pages, a multiple of the host's; 0: as fits the capacity; None: it has no pages.
        faults: which operations fail, for tests.
    """

    name = "sim"
    operations = "cpu"
    is_host = host_may_be_late = False
    can_capture = simulated = True
    link_bytes_per_s = 55e9
    memory_bytes_per_s = 4.3e12
    launch_s = 5e-6

    def __init__(
        self,
        capacity: int = 16 << 30,
        *,
        order: str = "latest",
        seed: int = 0,
        page: int | None = 0,
        faults: Faults | None = None,
    ):
        self.faults = faults
        self._capacity = capacity
        self.page = _page_of(capacity) if page == 0 else page
        self._budget: int | None = None
        self._used = 0
        self._gone: deque[Callable[[], None]] = deque()  # give back memory that nothing refers to any more
        names = ("compute", "in", "out", "side", "branch")
        self._streams = [SimStream(n) for n in names]
        self.compute, self.copy_in, self.copy_out, self.side, self.branch = self._streams
        self._operations_on = self.compute
        self._lanes = [SimStream(f"{n}, of a launch") for n in names[1:]]
        self._scheduler = Scheduler([*self._streams, *self._lanes], order, seed)
        self.ops: Any = None  # see ops.ops_of
        self.lock = threading.RLock()
        self.bytes_in = self.bytes_out = 0
        self._recording: Recording | None = None  # of a capture that is in progress
        self.launches = 0  # of captured work

    def describe(self) -> str:
        return f"simulated device (as an H200), {human_bytes(self.capacity())}"

    def active(self) -> AbstractContextManager[None]:
        """Do nothing: there is no current device to choose."""
        return nullcontext()

    @contextmanager
    def on(self, stream: SimStream) -> Iterator[None]:
        """Within: queue operations on this stream; other threads wait before they queue any."""
        with self.lock:
            before, self._operations_on = self._operations_on, stream
            try:
                yield
            finally:
                self._operations_on = before

    def adopt(self, ops: Any) -> Any:
        """Return the operations as this device runs them: queued on the compute stream; plans are made at once."""
        return ops.wrapped("sim", WORKSPACE_LIMIT, lambda function: functools.partial(self.queue, function))

    # -- memory ----------------------------------------------------------------------------------------------------
    def capacity(self) -> int:
        return self._capacity if self._budget is None else min(self._budget, self._capacity)

    def in_use(self) -> int:
        self.reclaim()
        return self._used

    def trim(self) -> None: ...

    def let_go(self, give: Callable[[], None]) -> None:
        self._gone.append(give)

    @_locked
    def reclaim(self) -> None:
        while self._gone and self._recording is None:
            self._gone.popleft()()

    def _lose(self, size: int) -> None:
        self._used -= size

    def set_budget(self, nbytes: int | None) -> None:
        self._budget = nbytes

    @_locked
    def take(self, nbytes: int) -> Span:
        self._not_in_capture("memory is taken")
        size = max(align(nbytes), align(1))
        if size > self.capacity() - self.in_use() or self._strikes("allocation"):
            raise cannot_give(self, "the simulated device", size)
        self._used += size
        raw: HostArray = np.full(size, POISON, np.uint8)
        lost = weakref.finalize(raw, self.let_go, functools.partial(self._lose, size))
        lost.atexit = False
        return _Chunk(raw, 0, size, lost)

    @_locked
    def give(self, span: Span, stream: SimStream | None = None) -> None:
        self._not_in_capture("memory is given back")
        assert isinstance(span, _Chunk)  # the pool gets back what it gave
        span.lost.detach()
        self._used -= span.nbytes
        self.spoil(span, stream)

    def spoil(self, span: Span, stream: SimStream | None = None) -> None:
        raw = _bytes(span)
        self._work(stream or self.compute, functools.partial(raw.fill, POISON), 0.0)

    def pages(self) -> SimPages:
        assert self.page is not None
        return SimPages(self.page, self._count_pages, POISON)

    @_locked
    def _count_pages(self, nbytes: int) -> None:
        self._not_in_capture("memory is taken")
        if nbytes > self.capacity() - self.in_use() or (nbytes > 0 and self._strikes("allocation")):
            raise cannot_give(self, "the simulated device", nbytes, " in pages")
        self._used += nbytes

    def host_take(self, nbytes: int, *, pinned: bool = False) -> HostArray:
        if self._strikes("host allocation"):
            raise OutOfHostMemory(
                f"the host cannot give {human_bytes(nbytes)}",
                needed=nbytes,
                free=0,
                fix="lower batch_size, or manage fewer buffers (larger -lms)",
            )
        raw = host_bytes(nbytes)
        raw.fill(POISON)
        return raw

    def place(self, span: Span) -> int:
        start: int = span.base.__array_interface__["data"][0]
        return start + span.offset

    def array(self, span: Span, shape: Sequence[int], dtype: DTypeLike) -> HostArray:
        dtype = np.dtype(dtype)
        return _bytes(span)[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def lend(self, span: Span, shape: Sequence[int], dtype: DTypeLike, owner: object) -> NoReturn:
        raise DeviceError(
            "the simulated device hands out no arrays: its work runs late, so they would show anything",
            fix="use data and diff",
        )

    # -- queued work -------------------------------------------------------------------------------------------------
    def queue(self, function: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Queue an operation on the compute stream, or within `on` on its stream."""
        arrays = [a for a in _flatten(args) if isinstance(a, np.ndarray)]
        seconds = self.launch_s + sum(a.nbytes for a in arrays) / self.memory_bytes_per_s
        self._work(self._operations_on, functools.partial(function, *args, **kwargs), seconds)

    @_locked
    def copy_up(self, span: Span, host: HostArray, stream: SimStream | None = None) -> SimEvent:
        self._may_fail("copy")
        self.bytes_in += host.nbytes
        return self._copy(_bytes(span)[: host.nbytes], host, stream or self.compute)

    @_locked
    def copy_down(self, host: HostArray, span: Span, stream: SimStream | None = None) -> SimEvent:
        self._may_fail("copy")
        self.bytes_out += host.nbytes
        return self._copy(host, _bytes(span)[: host.nbytes], stream or self.compute)

    def _copy(self, to: HostArray, source: HostArray, stream: SimStream) -> SimEvent:
        self._work(stream, functools.partial(np.copyto, to, source), source.nbytes / self.link_bytes_per_s)
        return self.record(stream)

    def zero(self, span: Span, stream: SimStream | None = None) -> None:
        self._work(stream or self.compute, functools.partial(_bytes(span).fill, 0), self.launch_s)

    @_locked
    def _work(self, stream: SimStream, task: Callable[[], None], seconds: float) -> None:
        if self.faults is not None:
            task = functools.partial(self._run, task)
        (self._recording or self._scheduler).work(stream, task, seconds)

    def _run(self, task: Callable[[], None]) -> None:
        self._may_fail("operation")
        task()

    def _strikes(self, kind: str) -> bool:
        return self.faults is not None and self.faults.strikes(kind)

    def _may_fail(self, kind: str) -> None:
        if self.faults is not None and self.faults.strikes(kind):
            raise DeviceError(
                f"the simulated device failed: {kind} {self.faults.counts[kind]}", fix="resume from the last snapshot"
            )

    @_locked
    def record(self, stream: SimStream) -> SimEvent:
        self._may_fail("event")
        return (self._recording or self._scheduler).record(stream)

    @_locked
    def timed_event(self, stream: SimStream | None = None) -> SimEvent:
        """Return an event on a stream (default: the compute stream) that `elapsed_ms` can use."""
        self._not_in_capture("time is taken")
        return self._scheduler.record(stream or self.compute)

    def pause(self, seconds: float) -> None:
        """Do nothing: on the model clock the host is never late."""

    def elapsed_ms(self, start: SimEvent, end: SimEvent) -> float:
        """Return the milliseconds of the model clock between two events."""
        return 1e3 * (end.time - start.time)

    def stream_clock(self) -> None:
        """Return None: ranks on simulated devices exchange on the host, which takes the time."""

    @_locked
    def wait(self, stream: SimStream, event: SimEvent) -> None:
        self._of_this_capture(event)
        (self._recording or self._scheduler).wait(stream, event)

    @_locked
    def wait_host(self, event: SimEvent) -> None:
        self._not_in_capture("the host waits")
        self._of_this_capture(event)
        self._scheduler.finish(event)

    @_locked
    def synchronize(self) -> None:
        self._not_in_capture("the host waits")
        self._scheduler.drain()

    def idle(self) -> bool:
        return True  # queued work runs where the host waits for it, on the host's thread

    # -- graphs ------------------------------------------------------------------------------------------------------
    def settings(self) -> None: ...

    @property
    def capturing(self) -> bool:
        return self._recording is not None

    @_locked
    def capture(self, work: Callable[[], object]) -> Callable[[], None]:
        """Record what `work()` queues; each call of the result queues it again, with the same arguments."""
        self._not_in_capture("another begins")
        before = self.bytes_in, self.bytes_out
        recording = self._recording = Recording(self._scheduler, self._streams, self._lanes)
        try:
            work()
        finally:
            self._recording = None
            copied = self.bytes_in - before[0], self.bytes_out - before[1]
            self.bytes_in, self.bytes_out = before  # nothing was copied yet

        def launch() -> None:
            with self.lock:
                self.launches += 1
                self.bytes_in, self.bytes_out = self.bytes_in + copied[0], self.bytes_out + copied[1]
                recording.launch()

        return launch

    def _of_this_capture(self, event: SimEvent) -> None:
        if event.recording is not self._recording:
            raise DeviceError("an event of a capture is used outside of it, or the reverse", fix="this is a bug")

    def _not_in_capture(self, what: str) -> None:
        if self._recording is not None:
            raise DeviceError(f"{what} in the middle of a capture", fix="this is a bug")

    def model_seconds(self) -> float:
        """Return the time of the model clock when the last of the streams ends."""
        return max(s.time for s in self._streams)


def _page_of(capacity: int) -> int | None:
    """Return bytes of a page: the host's for little memory, a GPU's for much, None where the host cannot map any."""
    if not hasattr(os, "memfd_create"):
        return None
    return mmap.PAGESIZE if capacity <= SMALL else 2 << 20


def _bytes(span: Span) -> HostArray:
    chunk: HostArray = span.base
    return chunk[span.offset : span.offset + span.nbytes]


def _flatten(args: Iterable[object]) -> Iterator[object]:
    for a in args:
        if isinstance(a, (list, tuple)):
            yield from _flatten(a)
        else:
            yield a
