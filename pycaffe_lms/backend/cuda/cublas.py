"""Call matrix products of cuBLAS directly: CuPy's own binding refuses to be recorded into a CUDA graph.

The library is the one that CuPy loads. The handles are our own: CuPy sets the stream of its handle at each of its
products, so a user's `a @ b` between two of ours would move ours to another stream. Each handle has a workspace of its
own; without one, a product would allocate memory while it is recorded.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref

from ...arrays import HostArray
from ...errors import DeviceError

NO_TRANSPOSE, TRANSPOSE = 0, 1
COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F = 68, 77, 70  # cublasComputeType_t
_DEFAULT_ALGORITHM = -1
_WORKSPACE_BYTES = 32 << 20  # what cuBLAS takes by itself on a Hopper GPU

_int, _long, _pointer = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_MATRIX = (_pointer, _int, _int, _long)  # address, type, leading dimension, stride
_Matrix = tuple[int, int, int]  # address, leading dimension, elements from one matrix to the next


class _Local(threading.local):
    """Hold the calling thread's handles, by device."""

    def __init__(self) -> None:
        self.handles: dict[int, _Handle] = {}


_local = _Local()


@functools.cache
def _library() -> ctypes.CDLL:
    """Return cuBLAS as CuPy has loaded it."""
    import cupy

    cupy.cuda.device.get_cublas_handle()  # loads it
    family = cupy.cuda.runtime.runtimeGetVersion() // 1000
    try:
        library = ctypes.CDLL(f"libcublas.so.{family}")
    except OSError as error:
        raise DeviceError(f"cuBLAS cannot be reached: {error}", fix="install CuPy with its CUDA libraries") from error
    product = library.cublasGemmStridedBatchedEx
    product.argtypes = (
        _pointer,
        _int,
        _int,
        _int,
        _int,
        _int,
        _pointer,
        *_MATRIX,
        *_MATRIX,
        _pointer,
        *_MATRIX,
        _int,
        _int,
        _int,
    )
    library.cublasCreate_v2.argtypes = (ctypes.POINTER(_pointer),)
    library.cublasDestroy_v2.argtypes = (_pointer,)
    library.cublasSetStream_v2.argtypes = (_pointer, _pointer)
    library.cublasSetWorkspace_v2.argtypes = (_pointer, _pointer, ctypes.c_size_t)
    return library


def _check(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"cuBLAS failed in {what} (status {status})")


class _Handle:
    """Own a handle of cuBLAS for the current device, with its workspace, for one thread; destroyed with the thread."""

    def __init__(self) -> None:
        import cupy

        self._library = _library()
        self._stream: int | None = None
        self._workspace = cupy.cuda.Memory(_WORKSPACE_BYTES)
        self._address = _pointer()
        _check(self._library.cublasCreate_v2(ctypes.byref(self._address)), "making a handle")
        weakref.finalize(self, self._library.cublasDestroy_v2, self._address).atexit = False

    def on(self, stream: int) -> ctypes.c_void_p:
        """Return the address of the handle, set to queue on this stream."""
        if stream != self._stream:
            _check(self._library.cublasSetStream_v2(self._address, stream), "setting the stream")
            size = _WORKSPACE_BYTES  # setting the stream takes the workspace away
            _check(
                self._library.cublasSetWorkspace_v2(self._address, self._workspace.ptr, size), "setting the workspace"
            )
            self._stream = stream
        return self._address


def _handle() -> ctypes.c_void_p:
    """Return the calling thread's handle for the current device, set to CuPy's current stream."""
    import cupy

    device, handles = cupy.cuda.runtime.getDevice(), _local.handles
    if device not in handles:
        handles[device] = _Handle()
    return handles[device].on(cupy.cuda.get_current_stream().ptr)


def products(
    op_a: int,
    op_b: int,
    m: int,
    n: int,
    k: int,
    alpha_beta: HostArray,
    a: _Matrix,
    b: _Matrix,
    c: _Matrix,
    kind: int,
    compute: int,
    batch: int,
) -> None:
    """Queue C = alpha op(A) op(B) + beta C, column-major, for a batch on CuPy's current stream.

    Args:
        op_a, op_b: NO_TRANSPOSE or TRANSPOSE.
        alpha_beta: both factors, of the type of the sums.
        a, b, c: (address, leading dimension, elements from one matrix to the next).
        kind: cudaDataType of the matrices.
        compute: COMPUTE_32F and so on.

    Raises:
        DeviceError: cuBLAS fails.
    """
    alpha, size = alpha_beta.ctypes.data, alpha_beta.itemsize
    matrices = [(address, kind, ld, stride) for address, ld, stride in (a, b, c)]
    status = _library().cublasGemmStridedBatchedEx(
        _handle(),
        op_a,
        op_b,
        m,
        n,
        k,
        alpha,
        *matrices[0],
        *matrices[1],
        alpha + size,
        *matrices[2],
        batch,
        compute,
        _DEFAULT_ALGORITHM,
    )
    _check(status, f"a product of {m} x {k} and {k} x {n}")
