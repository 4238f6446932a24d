"""Convolve through cuDNN's graph interface, with plain device pointers.

Covers float32 convolutions in "tf32" mode over 2 or 3 axes (groups, strides, dilation) and both gradients, in either
order of the axes; a bias and a ReLU after the convolution, in the same graph where that is faster. The same for
bfloat16 images and weights, with sums and bias in float32; the gradient of the weights is rounded to bfloat16 once,
where there is an engine that does so, and added up in float32.

Raises `CudnnUnsupported` (then use `cuda/conv/im2col.py`) for what cuDNN has no engine for, for float64 (wrong results
on an H200 with cuDNN 9.19 and frontend 1.18) and for "fp32" mode (with tensor cores deselected, filter gradients of
some engines were off by 4e-3, more than TF32's own rounding).

The environment variable PYCAFFE_LMS_CUDNN says which engine runs. "measure" (default): the fastest of cuDNN's first few
recommendations, measured once per shape (`choice.py`) and kept for the process, and for later ones in a file
(`store.py`). "heuristic": the first recommendation, as also for convolutions that are too small to matter and where
there is no memory to measure in. Either way only engines that fit the workspace limit and the rules below.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import AnyArray
from ....backend import cuda
from ....backend.bfloat16 import BFLOAT16
from ....backend.cuda.rehearsal import is_rehearsal
from ....errors import DeviceError
from ... import NotBuilt
from ...geometry import ConvGeometry
from .. import bias_relu
from . import library
from .build import (
    KNOWN,
    NOT_BUILT,
    CudnnGraph,
    CudnnUnsupported,
    Wanted,
    find,
    first_line,
    handle,
    loaded,
    lock,
    mode,
)
from .graph import BIAS, DIRECTIONS, FIRST, RESULT, SECOND, Fused, Types

ALIGNMENT = 512  # bytes; cuDNN is told that every tensor starts at a multiple of 16
FUSED = "forward with bias or ReLU"

_ADD = """
extern "C" __global__ void add_into(long long from, C* to, long long n, long long add) {
  const T* source = (const T*)from;
  LOOP(i, n) to[i] = add ? to[i] + (C)source[i] : (C)source[i];
}
"""


def available() -> bool:
    """Return whether the frontend and the cuDNN library are loaded (at the first call). Never raises."""
    return library.load()[0] is not None


def why_not() -> str:
    """Return what is missing, "" if nothing is."""
    return library.load()[1]


@dataclass(frozen=True, slots=True)
class CudnnPlan:
    """Hold a convolution's built directions on one device. Calls queue on CuPy's current stream and return at once.

    Arrays are C-contiguous, of the plan's type, on the plan's device, at multiples of 16 bytes. `work` is a uint8 array
    of at least `workspace_bytes` at a multiple of 16 bytes, or None where that is 0. `fused` is what graph FUSED, where
    there is one, does after the convolution. `narrow`: the graph for the weights' gradient writes bfloat16.

    Raises:
        DeviceError: cuDNN fails.
        AssertionError: a `work` is too small.
    """

    geometry: ConvGeometry
    dtype: np.dtype[Any]
    device: int
    graphs: Mapping[str, CudnnGraph]
    fused: Fused = Fused()
    narrow: bool = False

    @property
    def workspace_by_direction(self) -> dict[str, int]:
        """Return the bytes that each built direction needs; backward_filter includes its room to accumulate."""
        sizes = {d: g.workspace_bytes for d, g in self.graphs.items()}
        if "backward_filter" in sizes:
            sizes["backward_filter"] = _align(sizes["backward_filter"]) + _filter_bytes(self.geometry, self.dtype)
        return sizes

    @property
    def workspace_bytes(self) -> int:
        """Return bytes that are enough for every built direction."""
        return max(self.workspace_by_direction.values(), default=0)

    @property
    def engines(self) -> dict[str, str]:
        """Return cuDNN's name of each built direction's engine."""
        return {d: g.name for d, g in self.graphs.items()}

    def forward(
        self, x: AnyArray, w: AnyArray, b: AnyArray | None, y: AnyArray, work: AnyArray | None, relu: bool = False
    ) -> None:
        """Compute y (N, O, *out) = w (O, C/group, *kernel) * x (N, C, *in) (+ b (O)); `relu` makes negatives 0."""
        if (b is not None, relu) == self.fused and FUSED in self.graphs:
            bias = b.data.ptr if b is not None else 0
            self._execute(FUSED, x.data.ptr, w.data.ptr, y.data.ptr, work, bias)
            return
        self._execute("forward", x.data.ptr, w.data.ptr, y.data.ptr, work)
        if b is not None or relu:
            bias_relu.forward(y, b, relu, self.geometry.grid)

    def backward_data(self, dy: AnyArray, w: AnyArray, dx: AnyArray, work: AnyArray | None) -> None:
        """Compute dx (N, C, *in) from dy (N, O, *out); every element of dx is written."""
        self._execute("backward_data", dy.data.ptr, w.data.ptr, dx.data.ptr, work)

    def backward_filter(self, x: AnyArray, dy: AnyArray, dw: AnyArray, work: AnyArray | None, accumulate: bool) -> None:
        """Write to dw (O, C/group, *kernel), or add if `accumulate`, the gradient summed over images and positions."""
        if not accumulate and not self.narrow:
            self._execute("backward_filter", x.data.ptr, dy.data.ptr, dw.data.ptr, work)
            return
        # the frontend's graphs always overwrite their output, so the sum is made in two steps
        start = _align(self.graphs["backward_filter"].workspace_bytes)
        self._check(work, start + _filter_bytes(self.geometry, self.dtype))
        added = work.data.ptr + start
        self._execute("backward_filter", x.data.ptr, dy.data.ptr, added, work)
        kind = self.dtype if self.narrow else _gradient_type(self.dtype)
        cuda.launch(_ADD, "add_into", kind, dw.size, added, dw, dw.size, int(accumulate))

    def _execute(
        self, direction: str, first: int, second: int, result: int, work: AnyArray | None, bias: int = 0
    ) -> None:
        if is_rehearsal():
            return
        built = self.graphs[direction]
        if built.workspace_bytes:
            self._check(work, built.workspace_bytes)
        assert not (first | second | result | bias) & 15, f"{direction}: a pointer is not at a multiple of 16 bytes"
        pointers = {
            FIRST: first,
            SECOND: second,
            RESULT: result,
        }  # building it costs less than locking one that is kept
        if bias:
            pointers[BIAS] = bias
        try:
            with lock:
                handle(self.device)
                built.run(pointers, work.data.ptr if work is not None else 0, built.index, None)
        except Exception as error:  # the frontend raises RuntimeError, ValueError and a type of its own
            raise DeviceError(
                f"cuDNN failed in {direction} of {self.geometry} ({self.dtype}): {first_line(error)}"
            ) from error

    def _check(self, work: AnyArray | None, needed: int) -> None:
        have = 0 if work is None else work.nbytes
        assert have >= needed, f"workspace of {have} bytes where {needed} are needed"


def plan(
    geometry: ConvGeometry,
    dtype: DTypeLike,
    workspace_limit: int | None,
    directions: Iterable[str] = DIRECTIONS,
    fused: Fused = Fused(),  # noqa: B008  (a tuple)
    seldom: Collection[str] = (),
) -> CudnnPlan:
    """Build `directions` on the current device, or find them built.

    Args:
        workspace_limit: bytes that each direction may ask for (None: any); the room to accumulate weights (one dw) is
            granted even above it.
        fused: what will follow the forward convolution.
        seldom: directions for which nothing is measured.

    Raises:
        CudnnUnsupported: cuDNN cannot do it.
        DeviceError: there is no GPU, or cuDNN cannot start.
        MissingDependency: CuPy is not installed.
        NotBuilt: within `collecting`, for engines that would have to be built.
    """
    if not available():
        raise CudnnUnsupported(why_not())
    dtype = np.dtype(dtype)
    half = dtype == BFLOAT16
    if dtype != np.float32 and not half or cuda.math() != "tf32":
        raise CudnnUnsupported(f"{dtype} convolutions in {cuda.math()} mode")
    geometry = geometry.with_axes(2)
    sizes = (geometry.batch, *geometry.in_spatial, *geometry.out_spatial)
    if geometry.axes > 3 or min(sizes) < 1:
        raise CudnnUnsupported(f"{geometry.axes} axes, sizes {sizes}")
    device, how = cuda.require().cuda.runtime.getDevice(), mode()
    graphs, asked, types, narrow = {}, dict[str, Wanted](), Types(half), False

    def ask(direction: str, wanted: Wanted) -> None:
        graphs[direction], asked[direction] = find(wanted), wanted

    with lock:
        for direction in directions:
            limit = workspace_limit
            if direction == "backward_filter" and limit is not None:
                limit = max(0, limit - _filter_bytes(geometry, dtype)) // ALIGNMENT * ALIGNMENT
            its = KNOWN if direction in seldom and how == "measure" else how
            wanted = Wanted(geometry, direction, Fused(), limit, device, its, types)
            if half and direction == "backward_filter":
                # engines that write float32 take up to 30 times as long on an H200 with cuDNN 9.19
                with contextlib.suppress(CudnnUnsupported):
                    ask(direction, replace(wanted, types=Types(half, True)))
                    narrow = True
            if direction not in graphs:
                ask(direction, wanted)
        if any(fused) and "forward" in graphs:
            # without an engine, or with a slower one only, `forward` queues a kernel of its own
            with contextlib.suppress(CudnnUnsupported):
                ask(FUSED, Wanted(geometry, "forward", fused, workspace_limit, device, how, types))
        for direction in reversed(asked):  # FUSED first
            if direction in seldom or direction == "forward" and FUSED in graphs:
                continue
            try:
                graphs[direction] = loaded(asked[direction])
            except CudnnUnsupported:  # it could not be loaded, and another choice was made
                if direction != FUSED:
                    raise
                del graphs[FUSED]
    if NOT_BUILT in graphs.values():
        raise NotBuilt
    return CudnnPlan(geometry, dtype, device, graphs, fused, narrow)


def _filter_bytes(g: ConvGeometry, dtype: np.dtype[Any]) -> int:
    """Return the bytes of the weights' gradient."""
    return g.out_channels * g.rows * _gradient_type(dtype).itemsize


def _gradient_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type of the weights' gradient for images of type `dtype`."""
    return np.dtype(np.float32) if dtype == BFLOAT16 else dtype


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
