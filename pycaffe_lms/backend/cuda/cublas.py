"""Matrix products of cuBLAS, called directly: CuPy's own binding refuses to be recorded into a CUDA graph.

The library and the handle are CuPy's. A workspace of ours is given to the handle, for otherwise a product that is being
recorded would have to take memory.
"""

from __future__ import annotations

import ctypes
import functools
import threading

from ...errors import DeviceError

NO_TRANSPOSE, TRANSPOSE = 0, 1
COMPUTE_32F, COMPUTE_32F_FAST_TF32, COMPUTE_64F = 68, 77, 70  # cublasComputeType_t
_DEFAULT_ALGORITHM = -1
_WORKSPACE_BYTES = 32 << 20  # what cuBLAS takes by itself on a Hopper GPU

_int, _long, _pointer = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
_MATRIX = (_pointer, _int, _int, _long)  # address, type, leading dimension, stride
_local = threading.local()


@functools.cache
def _library():
    """cuBLAS as CuPy has loaded it."""
    import cupy

    cupy.cuda.device.get_cublas_handle()  # loads it
    family = cupy.cuda.runtime.runtimeGetVersion() // 1000
    try:
        library = ctypes.CDLL(f"libcublas.so.{family}")
    except OSError as error:
        raise DeviceError(f"cuBLAS cannot be reached: {error}", fix="install CuPy with its CUDA libraries") from error
    product = library.cublasGemmStridedBatchedEx
    product.argtypes = (
        _pointer, _int, _int, _int, _int, _int, _pointer, *_MATRIX, *_MATRIX, _pointer, *_MATRIX, _int, _int, _int,
    )  # fmt: skip
    library.cublasSetStream_v2.argtypes = (_pointer, _pointer)
    library.cublasSetWorkspace_v2.argtypes = (_pointer, _pointer, ctypes.c_size_t)
    return library


def _check(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"cuBLAS failed in {what} (status {status})")


def _handle():
    """The calling thread's handle for the current device, set to CuPy's current stream."""
    import cupy

    handle, stream = cupy.cuda.device.get_cublas_handle(), cupy.cuda.get_current_stream().ptr
    states = _local.__dict__.setdefault("states", {})
    state = states.get(handle)
    if state is None or state[0] != stream:
        library = _library()
        workspace = state[1] if state else cupy.cuda.Memory(_WORKSPACE_BYTES)
        _check(library.cublasSetStream_v2(handle, stream), "setting the stream")
        _check(library.cublasSetWorkspace_v2(handle, workspace.ptr, _WORKSPACE_BYTES), "setting the workspace")
        states[handle] = stream, workspace
    return handle


def products(op_a, op_b, m, n, k, alpha_beta, a, b, c, kind, compute, batch) -> None:
    """Column-major C = alpha op(A) op(B) + beta C for a batch, queued on CuPy's current stream.

    a, b, c: (address, leading dimension, elements from one matrix to the next). alpha_beta: array of the two, of the
    type that sums have. kind: cudaDataType. Raises: DeviceError.
    """
    alpha, size = alpha_beta.ctypes.data, alpha_beta.itemsize
    matrices = [(address, kind, ld, stride) for address, ld, stride in (a, b, c)]
    status = _library().cublasGemmStridedBatchedEx(
        _handle(), op_a, op_b, m, n, k, alpha, *matrices[0], *matrices[1], alpha + size, *matrices[2], batch, compute,
        _DEFAULT_ALGORITHM,
    )  # fmt: skip
    _check(status, f"a product of {m} x {k} and {k} x {n}")
