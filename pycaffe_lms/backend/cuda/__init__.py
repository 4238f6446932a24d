"""Use a GPU through CuPy: launch kernels, multiply matrices, and implement `Device`.

Only this file, `kernels.py` and `cublas.py` import cupy. Importing this one never fails; using it without CuPy or
without a GPU raises an error that says what to install. Convolutions through cuDNN are in
`ops/cuda/cudnn/convolution.py`.
"""

from __future__ import annotations

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...arrays import AnyArray, HostArray
from ...errors import DeviceError, MissingDependency
from ..cpu import host_bytes
from ..device import ON_THE_CPU, Event, Span, Stream, StreamClock, align, cannot_give
from .cublas import gemm as gemm
from .cublas import gemm_batched as gemm_batched
from .cublas import math as math
from .cublas import set_math as set_math
from .kernels import compile_kernels as compile_kernels
from .kernels import kernel
from .kernels import prelude as prelude
from .pages import CudaPages, page_bytes
from .pinned import nothing_unlocked, pinned_bytes
from .rehearsal import is_rehearsal, note

try:
    import cupy
except ImportError as error:
    cupy = None
    _missing: ImportError | None = error

BLOCK = 256
MAX_BLOCKS = 1 << 20  # kernels loop over the rest (grid stride)

_dtype_name = functools.cache(lambda dtype: str(np.dtype(dtype)))  # NumPy takes longer than a launch


def require() -> Any:
    """Return the cupy module. Raises MissingDependency without CuPy."""
    if cupy is None:
        pip, otherwise = "'pycaffe-lms[cuda13]' (or [cuda12])", ON_THE_CPU
        raise MissingDependency("cupy", "the CUDA backend", pip, otherwise) from _missing
    return cupy


def available() -> bool:
    """Return whether CuPy is installed and sees a GPU."""
    if cupy is None:
        return False
    try:
        return bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


def nccl_available() -> bool:
    """Return whether CuPy is installed with NCCL."""
    if cupy is None:
        return False
    from cupy.cuda import nccl  # CuPy loads it only when asked

    return bool(nccl.available)


def nccl() -> Any:
    """Return CuPy's module for NCCL. Raises MissingDependency without CuPy or without NCCL."""
    cp = require()
    if not nccl_available():
        family = cp.cuda.runtime.runtimeGetVersion() // 1000
        raise MissingDependency(
            f"nvidia-nccl-cu{family}", "training on several GPUs", f"nvidia-nccl-cu{family}", "train on one GPU"
        )
    return cp.cuda.nccl


def device_count() -> int:
    """Return the number of GPUs."""
    return int(require().cuda.runtime.getDeviceCount())


def launch(
    source: str,
    name: str,
    dtype: np.dtype[Any] | type | str,
    threads: int,
    *args: Any,
    block: int = BLOCK,
    grid: int | None = None,
    shared: int = 0,
) -> None:
    """Queue a kernel on the current stream. Zero threads launch nothing.

    Args:
        threads: least threads of the grid; above a limit each thread loops over several elements.
        block: threads of a block.
        grid: exact number of blocks, in place of `threads`.
        shared: bytes of shared memory of a block.
    """
    if threads <= 0 and not grid:
        return
    if is_rehearsal():
        note(source, name, _dtype_name(dtype))
        return
    blocks = grid if grid is not None else min((threads + block - 1) // block, MAX_BLOCKS)
    kernel(source, name, _dtype_name(dtype))((blocks,), (block,), args, shared)


NOW = """
__device__ long long now() { long long ns; asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns)); return ns; }
"""  # nanoseconds of the GPU's clock
_PAUSE = f"""{NOW}
extern "C" __global__ void pause(long long ns) {{ for (const long long start = now(); now() - start < ns;); }}
"""


def knows_bfloat16() -> bool:
    """Return whether the current GPU has instructions for bfloat16."""
    return int(require().cuda.Device().compute_capability) >= 80


class CudaDevice:
    """Use one GPU: a shared CuPy memory pool with a hard limit, five streams, pinned host memory.

    `backend.get_device` makes one object per GPU and process. Raises DeviceError when the GPU cannot be used.
    """

    name = "cuda"
    operations = "cuda"
    is_host = simulated = False
    host_may_be_late = can_capture = True

    def __init__(self, index: int = 0):
        cp = require()
        self.index = index
        try:
            self._device = cp.cuda.Device(index)
            self._device.use()
            self._properties = cp.cuda.runtime.getDeviceProperties(index)
        except cp.cuda.runtime.CUDARuntimeError as error:
            raise DeviceError(f"GPU {index} cannot be used: {error}", fix="run with -backend cpu") from error
        self._budget: int | None = None
        self.page = page_bytes(index)
        self._paged = 0  # bytes of pages, which are not the pool's
        self._gone: deque[Callable[[], None]] = deque()  # give back pages that nothing refers to any more
        self.pool = cp.cuda.MemoryPool()
        self.compute = cp.cuda.Stream(non_blocking=True)
        self.copy_in, self.copy_out, self.side, self.branch = (cp.cuda.Stream(non_blocking=True) for _ in range(4))
        self.capturing = False
        self.ops: Any = None  # see ops.ops_of
        self.lock = threading.RLock()
        self.bytes_in = self.bytes_out = 0

    def describe(self) -> str:
        name: str = self._properties["name"].decode()
        return name

    @contextmanager
    def active(self) -> Iterator[None]:
        """Within: queue the calling thread's operations on this GPU's compute stream."""
        with self._device, self.compute:
            yield

    def properties(self) -> dict[str, Any]:
        """Return CUDA's device properties, by their C names."""
        properties: dict[str, Any] = self._properties
        return properties

    def on(self, stream: Stream) -> AbstractContextManager[Any]:
        """Return the stream, which is its own context: within, it is the current one."""
        context: AbstractContextManager[Any] = stream
        return context

    def adopt(self, ops: Any) -> Any:
        """Return the operations unchanged: they queue by themselves."""
        return ops

    # -- memory ----------------------------------------------------------------------------------------------------
    def capacity(self) -> int:
        if self._budget is not None:
            return self._budget
        free, _ = self.memory_info()
        return free + int(self.pool.total_bytes()) + self._paged

    def in_use(self) -> int:
        return int(self.pool.used_bytes()) + self._paged

    def let_go(self, give: Callable[[], None]) -> None:
        self._gone.append(give)

    def reclaim(self) -> None:
        if not self._gone:
            return
        with self.lock, self.active():
            self.synchronize()
            while self._gone:
                self._gone.popleft()()

    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) bytes of the GPU."""
        free, total = self._device.mem_info
        return free, total

    def set_budget(self, nbytes: int | None) -> None:
        self._budget = nbytes
        self.pool.free_all_blocks()
        self._limit_pool()

    def trim(self) -> None:
        with self.lock, self.active():
            self.synchronize()
            self.pool.free_all_blocks()

    def _limit_pool(self) -> None:
        self.pool.set_limit(size=0 if self._budget is None else max(1, self._budget - self._paged))  # 0: no limit

    def take(self, nbytes: int) -> Span:
        size = max(align(nbytes), align(1))
        with self.lock, self.active():  # the pool keeps free blocks by stream
            try:
                return Span(self.pool.malloc(size), 0, size)
            except cupy.cuda.memory.OutOfMemoryError:
                self.synchronize()
                self.reclaim()
                self.pool.free_all_blocks()
            try:
                return Span(self.pool.malloc(size), 0, size)
            except cupy.cuda.memory.OutOfMemoryError as error:
                raise cannot_give(self, f"GPU {self.index}", size) from error

    def give(self, span: Span, stream: Stream = None) -> None:
        if stream is not None and stream is not self.compute:
            self.wait(self.compute, self.record(stream))  # the pool hands it out in the compute stream's order
        del span  # the last reference returns the block to the pool

    def spoil(self, span: Span, stream: Stream = None) -> None: ...

    def pages(self) -> CudaPages:
        assert self.page is not None
        return CudaPages(self.index, self.page, self._count_pages, self._pointer)

    def _count_pages(self, nbytes: int) -> None:
        with self.lock, self.active():
            if nbytes > 0:
                self.synchronize()
                self.reclaim()
                self.pool.free_all_blocks()
                if nbytes > self.capacity() - self.in_use():
                    raise cannot_give(self, f"GPU {self.index}", nbytes, " in pages")
            self._paged += nbytes
            self._limit_pool()

    def _pointer(self, address: int, nbytes: int) -> Any:
        memory = cupy.cuda.UnownedMemory(address, nbytes, self, self.index)
        return cupy.cuda.MemoryPointer(memory, 0)

    def host_take(self, nbytes: int, *, pinned: bool = False) -> HostArray:
        if not pinned:
            return host_bytes(nbytes)
        return pinned_bytes(nbytes, cupy.cuda.runtime)

    def place(self, span: Span) -> int:
        start: int = span.base.ptr
        return start + span.offset

    def array(self, span: Span, shape: Sequence[int], dtype: DTypeLike) -> AnyArray:
        return cupy.ndarray(shape, dtype, memptr=self._pointer(self.place(span), span.nbytes))

    def lend(self, span: Span, shape: Sequence[int], dtype: DTypeLike, owner: object) -> AnyArray:
        """Return a CuPy array that keeps `owner` alive, as does all that is made of it (a view, a DLPack capsule)."""
        self.synchronize()
        pointer = span.base.ptr + span.offset
        memory = cupy.cuda.UnownedMemory(pointer, span.nbytes, owner, self.index)
        return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0))

    # -- queued work -------------------------------------------------------------------------------------------------
    def copy_up(self, span: Span, host: HostArray, stream: Stream = None) -> Event:
        stream = stream or self.compute
        self.bytes_in += host.nbytes
        cupy.cuda.runtime.memcpyAsync(span.base.ptr + span.offset, host.ctypes.data, host.nbytes, 1, stream.ptr)
        return self.record(stream)

    def copy_down(self, host: HostArray, span: Span, stream: Stream = None) -> Event:
        stream = stream or self.compute
        self.bytes_out += host.nbytes
        cupy.cuda.runtime.memcpyAsync(host.ctypes.data, span.base.ptr + span.offset, host.nbytes, 2, stream.ptr)
        return self.record(stream)

    def zero(self, span: Span, stream: Stream = None) -> None:
        cupy.cuda.runtime.memsetAsync(span.base.ptr + span.offset, 0, span.nbytes, (stream or self.compute).ptr)

    def record(self, stream: Stream) -> Event:
        event = cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        return event

    def timed_event(self, stream: Stream = None) -> Event:
        """Return an event on a stream (default: the compute stream) that `elapsed_ms` can use."""
        event = cupy.cuda.Event()
        event.record(stream or self.compute)
        return event

    def pause(self, seconds: float) -> None:
        with self.active():
            launch(_PAUSE, "pause", "float32", 0, int(1e9 * seconds), block=1, grid=1)

    def elapsed_ms(self, start: Event, end: Event) -> float:
        """Return the milliseconds between two timed events, once the later one has run."""
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end))

    def stream_clock(self) -> StreamClock:
        from .stream_clock import CudaStreamClock  # it launches kernels through this file

        return CudaStreamClock(self)

    def wait(self, stream: Stream, event: Event) -> None:
        stream.wait_event(event)

    def wait_host(self, event: Event) -> None:
        event.synchronize()

    def synchronize(self) -> None:
        with self.lock:  # not while another thread records
            self._device.synchronize()

    def idle(self) -> bool:
        if self.capturing:  # when a stream must not be asked
            return False
        try:
            with self._device:
                return all(s.done for s in (self.compute, self.copy_in, self.copy_out, self.side, self.branch))
        except cupy.cuda.runtime.CUDARuntimeError:  # it has failed, and who waits for it will be told
            return False

    # -- graphs ------------------------------------------------------------------------------------------------------
    def settings(self) -> str:
        return math()

    def capture(self, work: Callable[[], object]) -> Callable[[], None]:
        """Record a CUDA graph, in relaxed mode: threads of data layers may take pinned memory meanwhile."""
        before = self.bytes_in, self.bytes_out
        with self.active(), nothing_unlocked():
            self.compute.begin_capture(cupy.cuda.runtime.streamCaptureModeRelaxed)
            self.capturing = True
            try:
                start = self.record(self.compute)
                for stream in (self.copy_in, self.copy_out):
                    stream.wait_event(start)
                work()
                self._join_copies()
                graph = self.compute.end_capture()
            except BaseException:
                refused = suppress(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
                with refused:
                    self._join_copies()
                with refused:
                    self.compute.end_capture()  # else the streams stay in capture
                raise
            finally:
                self.capturing = False
                copied = self.bytes_in - before[0], self.bytes_out - before[1]
                self.bytes_in, self.bytes_out = before  # nothing was copied yet

        def launch() -> None:
            self.bytes_in, self.bytes_out = self.bytes_in + copied[0], self.bytes_out + copied[1]
            graph.launch(self.compute)

        return launch

    def _join_copies(self) -> None:
        for stream in (self.copy_in, self.copy_out):
            self.compute.wait_event(self.record(stream))
