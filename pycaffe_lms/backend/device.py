"""Define what a device is: memory, pages, streams, events, copies, operations. Every backend implements `Device`.

The compute stream runs layers, `copy_in` copies from host to device, `copy_out` from device to host. Work on one stream
runs in order; work on two streams is ordered by events only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol, TypeAlias

from numpy.typing import DTypeLike

from ..arrays import AnyArray, HostArray
from ..errors import OutOfDeviceMemory, human_bytes

ON_THE_CPU = "run on the CPU: solver_mode: CPU, -backend cpu, or in Python caffe.set_mode_cpu()"  # what fixes advise
ALIGN = 512  # bytes; every chunk and every planned offset starts on such a boundary

Stream: TypeAlias = Any
"""A queue of work of one device: CuPy's stream (CuPy has no types) or a `SimStream`; None: the compute stream."""

Event: TypeAlias = Any
"""A mark in a stream: CuPy's event or a `SimEvent`. `done` says whether the work before it has run."""

Piece: TypeAlias = tuple[int, Sequence[int]]
"""Bytes from the start of a view, and the numbers of the pages that are mapped from there on, in order."""


def align(nbytes: int) -> int:
    """Return `nbytes` rounded up to the alignment (0 stays 0)."""
    return (nbytes + ALIGN - 1) // ALIGN * ALIGN


@dataclass(frozen=True)
class Span:
    """Name `nbytes` of device memory, `offset` bytes into the chunk `base` (of a type that the backend chooses)."""

    base: Any
    offset: int
    nbytes: int

    def at(self, offset: int, nbytes: int) -> Span:
        """Return a part of this span."""
        return Span(self.base, self.offset + offset, nbytes)


class Pages(Protocol):
    """Hold device memory in pages of one size, numbered from 0."""

    @property
    def count(self) -> int:
        """Return the number of pages."""

    def grow(self, count: int) -> None:
        """Allocate until there are `count` pages. Raises OutOfDeviceMemory; then there are as many as before."""

    def shrink(self, count: int) -> None:
        """Free the pages from number `count` on. No view and no queued work may use them."""

    def view(self, nbytes: int, pieces: Iterable[Piece]) -> Span:
        """Return `nbytes` of addresses with pages mapped to some of them.

        A page may be mapped in many places at once; the caller orders writes in one place and reads in another.
        """

    def drop(self, view: Span) -> None:
        """Free a view's addresses. Nothing may use them, queued work included."""

    def close(self) -> None:
        """Free all views and pages. No queued work may use them."""


class StreamClock(Protocol):
    """Add up how long the compute stream takes from `start` to `stop`, by the device's clock.

    Both are queued, and may be recorded by `Device.capture`: each launch adds its own time."""

    def start(self) -> None:
        """Queue that time counts from here on."""

    def stop(self) -> None:
        """Queue that time counts up to here."""

    def read(self) -> float:
        """Return the seconds up to the last `stop` that the device has come to; wait for nothing."""


class Device(Protocol):
    """Run layers in one place, and own its memory and its streams."""

    name: str
    operations: str  # the folder of ops/ with its operations
    is_host: bool  # no device memory: arrays are NumPy's, and work runs at once
    simulated: bool  # times of its streams are those of a model, not of this machine
    ops: Any  # set by ops.ops_of

    compute: Stream
    copy_in: Stream
    copy_out: Stream
    side: Stream  # for work beside the layers (sums over several GPUs); its user joins it with `compute` again
    branch: Stream  # for a part of one layer's work beside the rest of it; joined when the layer is done

    page: int | None  # bytes of a page of `pages`; None: the device has no such memory
    host_may_be_late: bool  # times depend on when the host queues work
    can_capture: bool  # `capture` may be called

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Return the lock that is held while work is queued: threads take turns, one program each."""

    @property
    def capturing(self) -> bool:
        """Return whether a capture is in progress."""

    def describe(self) -> str:
        """Return the device's name for people."""

    def active(self) -> AbstractContextManager[Any]:
        """Within: run the calling thread's operations here, on the compute stream."""

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        """Within, inside `active`: queue the calling thread's operations on this stream, not on the compute stream."""

    def adopt(self, ops: Any) -> Any:
        """Return the operations as this device runs them (at once, or queued)."""

    def capacity(self) -> int:
        """Return the bytes that this process may use: the budget where one is set, else the device's memory."""

    def in_use(self) -> int:
        """Return the bytes that are taken from the pool."""

    def set_budget(self, nbytes: int | None) -> None:
        """Set a hard limit of the shared pool; None: no limit."""

    def trim(self) -> None:
        """Return memory that the pool holds and nothing uses to the driver, for other processes."""

    def take(self, nbytes: int) -> Span:
        """Allocate device memory from the shared pool. Raises OutOfDeviceMemory."""

    def give(self, span: Span, stream: Stream = None) -> None:
        """Return memory to the pool, once the work queued so far on `stream` has run."""

    def let_go(self, give: Callable[[], None]) -> None:
        """Call `give()` later, to free memory that nothing refers to any more.

        Queued work may still use that memory, and the caller may be a finalizer, at any place of its thread.
        """

    def reclaim(self) -> None:
        """Free what was let go, once work queued so far has run; `take` and pages do so where memory is short."""

    def pages(self) -> Pages:
        """Return device memory in pages, under the same capacity and budget. Only where `page` is a number."""

    def spoil(self, span: Span, stream: Stream = None) -> None:
        """Declare that work queued after this does not read the old values; the simulated device poisons them."""

    def host_take(self, nbytes: int, *, pinned: bool = False) -> HostArray:
        """Allocate host memory, as uint8; pinned: page-locked. Raises OutOfHostMemory."""

    def place(self, span: Span) -> int:
        """Return the address of its first byte."""

    def array(self, span: Span, shape: Sequence[int], dtype: DTypeLike) -> AnyArray:
        """Return an array over device memory. On a GPU it does not keep the memory: the caller holds the span."""

    def lend(self, span: Span, shape: Sequence[int], dtype: DTypeLike, owner: object) -> AnyArray:
        """Return an array over device memory for a user, of the library that the device's users know.

        Work queued so far is done. The array, and all that is made of it, keeps `owner` alive. Raises DeviceError where
        there is no such library.
        """

    def copy_up(self, span: Span, host: HostArray, stream: Stream = None) -> Event:
        """Queue a copy to the device; return its event."""

    def copy_down(self, host: HostArray, span: Span, stream: Stream = None) -> Event:
        """Queue a copy to the host; return its event."""

    def zero(self, span: Span, stream: Stream = None) -> None:
        """Queue writing zeros."""

    def record(self, stream: Stream) -> Event:
        """Return an event behind the work queued so far on the stream."""

    def timed_event(self, stream: Stream = None) -> Event:
        """Return an event (default: of the compute stream) for `elapsed_ms`; only where there are streams."""

    def elapsed_ms(self, start: Event, end: Event) -> float:
        """Return the milliseconds between two timed events; wait for them."""

    def stream_clock(self) -> StreamClock | None:
        """Return a new clock for the compute stream; None: this device has none that a capture could contain."""

    def wait(self, stream: Stream, event: Event) -> None:
        """Let later work on the stream wait for the event."""

    def wait_host(self, event: Event) -> None:
        """Block the calling thread until the event."""

    def pause(self, seconds: float) -> None:
        """Let the compute stream stand still, so that the host gets ahead of it; only where streams have a clock of
        their own."""

    def synchronize(self) -> None:
        """Block the calling thread until all queued work has run."""

    def idle(self) -> bool:
        """Return whether no queued work is left that runs by itself. May be called from any thread, and waits for
        nothing."""

    def settings(self) -> object:
        """Return what operations depend on beside their arguments, to compare with `==`."""

    def capture(self, work: Callable[[], object]) -> Callable[[], None]:
        """Record the work that `work()` queues, without running it; each call of the result queues it.

        `work` may use all streams: copies begin after the start and are joined at the end; `side` and `branch` are used
        between a wait for the compute stream and one of the compute stream for them. It may record events and let
        streams wait for them; these events mean nothing afterwards, and `work` waits for no others. It allocates and
        frees no memory, and the host waits for nothing. Copies use page-locked memory, which must stay where it is. A
        launch is ordered with the compute stream only: the caller orders copies on the other streams with it.
        """


def cannot_give(device: Device, what: str, nbytes: int, how: str = "") -> OutOfDeviceMemory:
    """Return the error of a device where less than `nbytes` are free. what: its name in the message."""
    capacity = device.capacity()
    free = capacity - device.in_use()
    left = f"{human_bytes(max(free, 0))} of {human_bytes(capacity)} are free"
    return OutOfDeviceMemory(f"{what} cannot give {human_bytes(nbytes)}{how}: {left}", needed=nbytes, free=free)


def runs(pages: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return the stretches of consecutive page numbers: (index of the first, its number, how many)."""
    if not pages:
        return []
    cuts = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(pages)) if b != a + 1), len(pages)]
    return [(a, pages[a], b - a) for a, b in pairwise(cuts)]
