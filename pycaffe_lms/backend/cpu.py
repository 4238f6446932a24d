"""The CPU as a device: no device memory, no streams; operations run when they are called."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from ..errors import DeviceError, OutOfHostMemory, human_bytes


class CpuDevice:
    """Layers run on NumPy arrays. Large Model Support has nothing to manage here: host memory is all there is."""

    name = "cpu"
    operations = "cpu"  # which folder of ops/ runs here
    is_host, simulated = True, False
    can_capture = capturing = host_may_be_late = False  # everything runs at once
    compute = copy_in = copy_out = side = branch = None
    page = None
    lock = nullcontext()  # nothing is shared between the nets of two threads

    def __init__(self) -> None:
        self.ops = None  # see ops.ops_of

    def describe(self) -> str:
        return "CPU"

    def active(self):
        """There is no current device to choose."""
        return nullcontext()

    def on(self, stream):
        """There are no streams."""
        return nullcontext()

    def adopt(self, ops):
        """The operations as this device runs them: at once, convolutions by a library where there is one."""
        return ops.use_libraries()

    def host_take(self, nbytes: int, *, pinned: bool = False) -> np.ndarray:
        return host_bytes(nbytes)

    def lend(self, span, shape, dtype, owner):
        raise DeviceError(
            "the net runs on the CPU: its blobs have no GPU arrays",
            fix="use data and diff; or build the net after caffe.set_mode_gpu()",
        )

    def wait_host(self, event) -> None:
        raise AssertionError("nothing is ever in flight on the CPU")

    def synchronize(self) -> None: ...

    def close(self) -> None: ...


def host_bytes(nbytes: int) -> np.ndarray:
    """Uninitialised, 64-byte aligned pageable memory. Raises OutOfHostMemory."""
    try:
        raw = np.empty(nbytes + 64, np.uint8)
    except MemoryError as error:
        raise OutOfHostMemory(
            f"the host cannot give {human_bytes(nbytes)}", needed=nbytes, free=0, fix="lower batch_size"
        ) from error
    start = -raw.ctypes.data % 64
    return raw[start : start + nbytes]
