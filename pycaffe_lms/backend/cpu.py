"""Present the CPU as a device: no device memory, no streams; operations run when they are called."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import HostArray
from ..errors import DeviceError, OutOfHostMemory, human_bytes
from .device import Span, Stream


def _absent(device: CpuDevice, *args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError("the CPU has no device memory and no streams: ask is_host first")


class CpuDevice:
    """Run layers on NumPy arrays. Large Model Support manages nothing here: all memory is host memory."""

    name = "cpu"
    operations = "cpu"
    is_host, simulated = True, False
    can_capture = capturing = host_may_be_late = False  # everything runs at once
    compute: Stream = None
    copy_in: Stream = None
    copy_out: Stream = None
    side: Stream = None
    branch: Stream = None
    page: int | None = None
    lock = nullcontext()  # nets of two threads share nothing

    def __init__(self) -> None:
        self.ops: Any = None  # see ops.ops_of

    def describe(self) -> str:
        return "CPU"

    def active(self) -> AbstractContextManager[None]:
        """Do nothing: there is no current device to choose."""
        return nullcontext()

    def on(self, stream: Stream) -> AbstractContextManager[None]:
        """Do nothing: there are no streams."""
        return nullcontext()

    def adopt(self, ops: Any) -> Any:
        """Return the operations with convolutions by a library, where one is installed."""
        return ops.use_libraries()

    def host_take(self, nbytes: int, *, pinned: bool = False) -> HostArray:
        return host_bytes(nbytes)

    def lend(self, span: Span, shape: Sequence[int], dtype: DTypeLike, owner: object) -> NoReturn:
        raise DeviceError(
            "the net runs on the CPU: its blobs have no GPU arrays",
            fix="use data and diff; or build the net after caffe.set_mode_gpu()",
        )

    def synchronize(self) -> None: ...

    def idle(self) -> bool:
        return True

    def trim(self) -> None: ...

    def stream_clock(self) -> None: ...

    capacity = in_use = set_budget = take = give = let_go = reclaim = pages = spoil = place = array = zero = _absent
    copy_up = copy_down = record = timed_event = elapsed_ms = wait = wait_host = pause = settings = capture = _absent


def host_bytes(nbytes: int) -> HostArray:
    """Allocate uninitialised pageable memory, 64-byte aligned, as uint8. Raises OutOfHostMemory."""
    try:
        raw = np.empty(nbytes + 64, np.uint8)
    except MemoryError as error:
        raise OutOfHostMemory(
            f"the host cannot give {human_bytes(nbytes)}", needed=nbytes, free=0, fix="lower batch_size"
        ) from error
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]
