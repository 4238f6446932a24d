"""What a device is: memory, streams, events, copies, operations. Every backend implements `Device`.

The compute stream runs layers, `copy_in` carries host to device, `copy_out` device to host. Work on one stream runs in
order; between streams only events order it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..errors import OutOfDeviceMemory, human_bytes

ON_THE_CPU = "run on the CPU: solver_mode: CPU, -backend cpu, or in Python caffe.set_mode_cpu()"  # what fixes advise
ALIGN = 512  # bytes; every chunk and every planned offset starts on such a boundary


def align(nbytes: int) -> int:
    """`nbytes` rounded up to the alignment (0 stays 0)."""
    return (nbytes + ALIGN - 1) // ALIGN * ALIGN


@dataclass(frozen=True)
class Span:
    """`nbytes` of device memory, `offset` bytes into the chunk `base` (whatever the backend calls a chunk)."""

    base: Any
    offset: int
    nbytes: int

    def at(self, offset: int, nbytes: int) -> Span:
        """A part of this span."""
        return Span(self.base, self.offset + offset, nbytes)


class Device(Protocol):
    """A place where layers run. `is_host`: there is no device memory, arrays are NumPy's and work runs at once."""

    name: str
    operations: str  # which folder of ops/ runs here
    is_host: bool
    simulated: bool  # times of its streams are those of a model, not of this machine
    ops: Any  # set by ops.ops_of
    lock: AbstractContextManager  # held while work is queued: threads take turns, a program each

    def active(self) -> AbstractContextManager:
        """Within: the calling thread's operations run here, on the compute stream."""

    def on(self, stream) -> AbstractContextManager:
        """Within `active`: the calling thread's operations are queued on this stream in place of the compute stream."""

    def adopt(self, ops) -> Any:
        """The operations as this device runs them (at once, or queued)."""

    compute: Any
    copy_in: Any
    copy_out: Any
    side: Any  # for work beside the layers (sums over several GPUs); whoever uses it joins it with `compute` again
    branch: Any  # for a part of one layer's work beside the rest of it; it is joined when the layer is done

    def capacity(self) -> int:
        """Bytes this process may use: the budget where one is set, else the device's memory."""

    def in_use(self) -> int:
        """Bytes taken from the pool."""

    def set_budget(self, nbytes: int | None) -> None:
        """Hard limit of the shared pool."""

    def take(self, nbytes: int) -> Span:
        """Device memory from the shared pool. Raises OutOfDeviceMemory."""

    def give(self, span: Span, stream=None) -> None:
        """Back to the pool, once work queued so far on `stream` has run."""

    def let_go(self, give: Callable[[], None]) -> None:
        """Memory that nobody has any more is given back by `give()`, later: what is queued may still use it, and the
        calling thread may be anywhere (in a finalizer)."""

    def reclaim(self) -> None:
        """Give back what was let go, once work queued so far is done; `take` and pages do so where memory is short."""

    page: int | None  # bytes of a page that `pages` gives; None: the device has no such memory

    def pages(self) -> Any:
        """Device memory in pages, of the same capacity and budget: see `pages.Pages`. Only where `page` is a number."""

    def spoil(self, span: Span, stream=None) -> None:
        """What lies there is not to be read after what is queued on `stream`; the simulated device poisons it."""

    def host_take(self, nbytes: int, *, pinned: bool = False) -> np.ndarray:
        """Host memory as uint8. Raises OutOfHostMemory."""

    def place(self, span: Span) -> int:
        """The address where it begins."""

    def array(self, span: Span, shape, dtype):
        """An array over device memory, which it does not keep on a GPU: to be used while the span is held."""

    def lend(self, span: Span, shape, dtype, owner):
        """An array over device memory for a user, of the library that the device's users know; work queued so far is
        done. `owner` lives as long as anybody sees the memory. Raises DeviceError where there is no such library."""

    def copy_up(self, span: Span, host: np.ndarray, stream=None):
        """Queue a copy to the device; returns its event."""

    def copy_down(self, host: np.ndarray, span: Span, stream=None):
        """Queue a copy to the host; returns its event."""

    def zero(self, span: Span, stream=None) -> None: ...

    def record(self, stream):
        """An event behind what is queued on the stream so far; its `done` says whether all of that has run."""

    def timed_event(self, stream=None):
        """An event (default: of the compute stream) for `elapsed_ms`; only where there are streams."""

    def elapsed_ms(self, start, end) -> float:
        """Milliseconds between two timed events; waits for them."""

    def wait(self, stream, event) -> None: ...

    def wait_host(self, event) -> None:
        """Block the calling thread until `event`."""

    def pause(self, seconds: float) -> None:
        """Let the compute stream stand still, so that the host gets ahead of it; only where streams run by a clock of
        their own."""

    def synchronize(self) -> None: ...

    host_may_be_late: bool  # whether times depend on when the host queues work
    can_capture: bool  # whether `capture` may be asked
    capturing: bool  # whether one is under way

    def settings(self):
        """What operations depend on beside their arguments, to compare with `==`."""

    def capture(self, work: Callable[[], None]) -> Callable[[], None]:
        """Record what `work` queues, without running it; the result queues it on the compute stream, at each call.

        `work` may use all streams: the copies' begin after the start and are joined at the end, `side` and
        `branch` are used between a wait for the compute stream and one of the compute stream for them. It may record
        events and let streams wait for them; such an event means nothing afterwards, and `work` waits for no other.
        Within it no memory is taken or given back, and the host waits for nothing. Copies are of page-locked memory,
        which must stay where it is. A launch is ordered with the compute stream only: whoever queues copies beside
        it on the other streams lets them wait for it, and it for them."""

    def close(self) -> None: ...


def cannot_give(device: Device, who: str, nbytes: int, how: str = "") -> OutOfDeviceMemory:
    """The error of a device where less than `nbytes` are free. who: what the message calls it."""
    capacity = device.capacity()
    free = capacity - device.in_use()
    left = f"{human_bytes(max(free, 0))} of {human_bytes(capacity)} are free"
    return OutOfDeviceMemory(f"{who} cannot give {human_bytes(nbytes)}{how}: {left}", needed=nbytes, free=free)
