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

import numpy as np

from ...arrays import AnyArray
from ...errors import DeviceError
from ..bfloat16 import BFLOAT16
from .rehearsal import is_rehearsal

_NO_TRANSPOSE, _TRANSPOSE = 0, 1
_TYPES = {"float32": 0, "float64": 1, "uint16": 14}  # cudaDataType: CUDA_R_32F, CUDA_R_64F, CUDA_R_16BF
_COMPUTE_32F, _COMPUTE_32F_FAST_TF32, _COMPUTE_64F = 68, 77, 70  # cublasComputeType_t
_FLOAT_COMPUTE = {"tf32": _COMPUTE_32F_FAST_TF32, "fp32": _COMPUTE_32F}
_DEFAULT_ALGORITHM = -1
_WORKSPACE_BYTES = 32 << 20  # what cuBLAS takes by itself on a Hopper GPU

_int, _long, _pointer = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_MATRIX = (_pointer, _int, _int, _long)  # address, type, leading dimension, stride
_math = "tf32"


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
    product.argtypes = (_pointer, *[_int] * 5, _pointer, *_MATRIX, *_MATRIX, _pointer, *_MATRIX, *[_int] * 3)
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


def set_math(mode: str) -> None:
    """Choose whether matrix products and convolutions of float32 may round their inputs to TF32 (tensor cores).

    mode: "tf32": they may; "fp32": they do not. Products of float64 keep full precision in either mode.
    """
    global _math
    if mode not in ("tf32", "fp32"):
        raise DeviceError(f'unknown math mode "{mode}"', fix="use tf32 or fp32")
    _math = mode


def math() -> str:
    """Return the current math mode, "tf32" or "fp32"."""
    return _math


def gemm(
    trans_a: bool,
    trans_b: bool,
    m: int,
    n: int,
    k: int,
    alpha: float,
    a: AnyArray,
    b: AnyArray,
    beta: float,
    c: AnyArray,
) -> None:
    """Queue C[m, n] = alpha * op(A)[m, k] op(B)[k, n] + beta * C, row-major, through cuBLAS.

    `a`, `b`, `c` are C-contiguous CuPy arrays of one type; sums of bfloat16 are float32, and so may C be. Only pointers
    are used, so any array will do whose elements from its start are the matrix (a slice of a larger contiguous array,
    say).
    """
    gemm_batched(trans_a, trans_b, m, n, k, alpha, a, 0, b, 0, beta, c, 0, 1)


def gemm_batched(
    trans_a: bool,
    trans_b: bool,
    m: int,
    n: int,
    k: int,
    alpha: float,
    a: AnyArray,
    stride_a: int,
    b: AnyArray,
    stride_b: int,
    beta: float,
    c: AnyArray,
    stride_c: int,
    batch: int,
    leading: tuple[int, int, int] | None = None,
) -> None:
    """Queue `gemm` for `batch` matrices that begin `stride_*` elements apart (0: the same one for all).

    leading: elements from one row in memory to the next, of a, b and c; None: rows follow each other.
    """
    if m == 0 or n == 0 or batch == 0 or is_rehearsal():
        return
    dtype, half = c.dtype, a.dtype == BFLOAT16
    kind, kind_c = _TYPES[str(a.dtype)], _TYPES[str(dtype)]
    compute = _COMPUTE_64F if dtype == np.float64 else _COMPUTE_32F if half else _FLOAT_COMPUTE[_math]
    op_a, op_b = (_TRANSPOSE if t else _NO_TRANSPOSE for t in (trans_a, trans_b))
    factors = np.array([alpha, beta], np.float32 if half else dtype)
    alpha_at, beta_at = factors.ctypes.data, factors.ctypes.data + factors.itemsize
    row_a, row_b, row_c = leading or (m if trans_a else k, k if trans_b else n, n)
    in_a = a.data.ptr, kind, max(1, row_a), stride_a
    in_b = b.data.ptr, kind, max(1, row_b), stride_b
    out = c.data.ptr, kind_c, max(1, row_c), stride_c
    # cuBLAS is column-major: C' = op(B)' op(A)', so the operands are swapped
    sizes = op_b, op_a, n, m, k
    status = _library().cublasGemmStridedBatchedEx(
        _handle(), *sizes, alpha_at, *in_b, *in_a, beta_at, *out, batch, compute, _DEFAULT_ALGORITHM
    )
    _check(status, f"a product of {n} x {k} and {k} x {m}")
