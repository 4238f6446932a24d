"""Adds up how long the compute stream takes between two places, by the GPU's own clock, in recorded graphs too.

Timed events cannot be used inside a CUDA graph: a replay does not record them anew. Kernels of one thread can: the
first stores the time, the second adds what has passed and writes the sum to page-locked memory of the host. A copy of
the sum would have to wait behind those of Large Model Support.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from . import NOW, launch, require

if TYPE_CHECKING:
    from . import CudaDevice

_SOURCE = f"""{NOW}
extern "C" __global__ void start_time(long long* times) {{ times[0] = now(); }}
extern "C" __global__ void stop_time(long long* times, long long* shown) {{
  times[1] += now() - times[0];
  *shown = times[1];
}}
"""


class CudaStreamClock:
    """Implement `StreamClock`. What is recorded uses its memory, so it must outlive recordings."""

    def __init__(self, device: CudaDevice):
        cupy, self._device = require(), device
        with device.lock, device.active():
            memory = cupy.cuda.Memory(16)  # not from the pool: a budget may leave nothing there
            self._times = cupy.ndarray((2,), np.int64, memptr=cupy.cuda.MemoryPointer(memory, 0))  # start, sum; ns
            pinned = cupy.cuda.PinnedMemory(8)  # has one address on host and GPU
            self._host = np.frombuffer(cupy.cuda.PinnedMemoryPointer(pinned, 0), np.int64, 1)
            seen = cupy.cuda.UnownedMemory(pinned.ptr, 8, pinned, device.index)
            self._shown = cupy.ndarray((1,), np.int64, memptr=cupy.cuda.MemoryPointer(seen, 0))
            self._host[0] = 0
            cupy.cuda.runtime.memsetAsync(memory.ptr, 0, 16, device.compute.ptr)
            self.start()  # compile and load the kernels now, not in an iteration that other ranks wait for
            self.stop()

    def start(self) -> None:
        with self._device.on(self._device.compute):
            launch(_SOURCE, "start_time", "float32", 0, self._times, block=1, grid=1)

    def stop(self) -> None:
        with self._device.on(self._device.compute):
            launch(_SOURCE, "stop_time", "float32", 0, self._times, self._shown, block=1, grid=1)

    def read(self) -> float:
        return 1e-9 * int(self._host[0])
