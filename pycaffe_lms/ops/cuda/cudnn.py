"""Convolutions through cuDNN's graph interface, with plain device pointers.

Covers: float32 convolutions in "tf32" mode over 2 or 3 axes (groups, strides, dilation) and both gradients; everything
is NCHW and contiguous. Does not cover: bias, and what `Unsupported` is raised for (use `im2col.py`): what cuDNN has no
engine for, float64 (wrong results on an H200 with cuDNN 9.19 and frontend 1.18) and "fp32" mode (with tensor cores
deselected, filter gradients of some engines were off by 4e-3, more than TF32's own rounding).

Which engine runs is cuDNN's first recommendation that fits the workspace limit and the rules below. Nothing is timed,
so the choice is the same on every run, for one cuDNN version and one GPU model.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backend import cuda
from ...errors import DeviceError
from ..geometry import ConvGeometry
from . import cudnn_library

DIRECTIONS = ("forward", "backward_data", "backward_filter")
ALIGNMENT = 512  # bytes; cuDNN is told that every tensor starts at a multiple of 16

# Engines left out: sums whose order changes between runs, float32 rounded to half precision (narrower range), sums kept
# in less than the tensors' type.
_NEVER = ("NONDETERMINISTIC", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")

_ADD = """
extern "C" __global__ void add_into(long long from, T* to, long long n) {
  const T* source = (const T*)from;
  LOOP(i, n) to[i] += source[i];
}
"""
_FIRST, _SECOND, _RESULT = 1, 2, 3  # names of the two inputs and the output within every graph

_lock = threading.RLock()  # one handle per device: its stream must not change between being set and being used
_handles: dict[int, list] = {}  # device -> [cuDNN handle, address of the stream it is set to]
_graphs: dict[tuple, _Graph] = {}


class Unsupported(Exception):
    """cuDNN has no engine for this convolution under these limits; the text is cuDNN's reason."""


def available() -> bool:
    """Whether the frontend and the cuDNN library are loaded (at the first call). Never raises."""
    return cudnn_library.load()[0] is not None


def why_not() -> str:
    """What is missing, "" if nothing is."""
    return cudnn_library.load()[1]


@dataclass(frozen=True, slots=True)
class _Graph:
    """One built direction: `graph` is the frontend's object, `workspace_bytes` what its engine needs."""

    graph: Any
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class CudnnPlan:
    """A convolution's built directions, on one device. Calls queue on CuPy's current stream and return at once.

    Arrays are C-contiguous, of the plan's type, on the plan's device, at multiples of 16 bytes. `work` is a uint8 array
    of at least `workspace_bytes` at a multiple of 16 bytes, or None where that is 0.
    Raises: DeviceError if cuDNN fails; AssertionError for a `work` that is too small.
    """

    geometry: ConvGeometry
    dtype: np.dtype
    device: int
    graphs: Mapping[str, _Graph]

    @property
    def workspace_by_direction(self) -> dict[str, int]:
        """Bytes that each built direction needs; backward_filter includes its room to accumulate."""
        sizes = {d: g.workspace_bytes for d, g in self.graphs.items()}
        if "backward_filter" in sizes:
            sizes["backward_filter"] = _align(sizes["backward_filter"]) + _filter_bytes(self.geometry, self.dtype)
        return sizes

    @property
    def workspace_bytes(self) -> int:
        """Bytes that are enough for every built direction."""
        return max(self.workspace_by_direction.values(), default=0)

    def forward(self, x, w, b, y, work) -> None:
        """y (N, O, *out) = w (O, C/group, *kernel) * x (N, C, *in). b is not read: adding it is the caller's."""
        self._execute("forward", x.data.ptr, w.data.ptr, y.data.ptr, work)

    def backward_data(self, dy, w, dx, work) -> None:
        """dx (N, C, *in) from dy (N, O, *out); every element of dx is written."""
        self._execute("backward_data", dy.data.ptr, w.data.ptr, dx.data.ptr, work)

    def backward_filter(self, x, dy, dw, work, accumulate) -> None:
        """dw (O, C/group, *kernel) (+)= the gradient of the weights, summed over images and positions."""
        if not accumulate:
            self._execute("backward_filter", x.data.ptr, dy.data.ptr, dw.data.ptr, work)
            return
        # the frontend's graphs always overwrite their output, so the sum is made in two steps
        start = _align(self.graphs["backward_filter"].workspace_bytes)
        self._check(work, start + _filter_bytes(self.geometry, self.dtype))
        added = work.data.ptr + start
        self._execute("backward_filter", x.data.ptr, dy.data.ptr, added, work)
        cuda.launch(_ADD, "add_into", self.dtype, dw.size, added, dw, dw.size)

    def _execute(self, direction: str, first: int, second: int, result: int, work) -> None:
        built = self.graphs[direction]
        self._check(work, built.workspace_bytes)
        assert not (first | second | result) & 15, f"{direction}: a pointer is not at a multiple of 16 bytes"
        pointers = {_FIRST: first, _SECOND: second, _RESULT: result}  # costs less than guarding one that is kept
        try:
            with _lock:
                _handle(self.device)
                built.graph.execute(pointers, work.data.ptr if work is not None else 0)
        except Exception as error:  # the frontend raises RuntimeError, ValueError and a type of its own
            raise DeviceError(
                f"cuDNN failed in {direction} of {self.geometry} ({self.dtype}): {_first_line(error)}"
            ) from error

    def _check(self, work, needed: int) -> None:
        have = 0 if work is None else work.nbytes
        assert have >= needed, f"workspace of {have} bytes where {needed} are needed"


def plan(
    geometry: ConvGeometry, dtype, workspace_limit: int | None, directions: Iterable[str] = DIRECTIONS
) -> CudnnPlan:
    """Build `directions` on the current device, or find them built. `workspace_limit` (bytes, None: any) bounds what
    each direction asks for; only the room to accumulate weights (one dw) is granted even above it.

    Raises: Unsupported; DeviceError without a GPU or where cuDNN cannot start; MissingDependency without CuPy.
    """
    if not available():
        raise Unsupported(why_not())
    dtype = np.dtype(dtype)
    if dtype != np.float32 or cuda.math() != "tf32":
        raise Unsupported(f"{dtype} convolutions in {cuda.math()} mode")
    geometry = geometry.with_axes(2)
    sizes = (geometry.batch, *geometry.in_spatial, *geometry.out_spatial)
    if geometry.axes > 3 or min(sizes) < 1:
        raise Unsupported(f"{geometry.axes} axes, sizes {sizes}")
    device = cuda.require().cuda.runtime.getDevice()
    graphs = {}
    with _lock:
        for direction in directions:
            limit = workspace_limit
            if direction == "backward_filter" and limit is not None:
                limit = max(0, limit - _filter_bytes(geometry, dtype)) // ALIGNMENT * ALIGNMENT
            key = (geometry, direction, limit, device)
            if key not in _graphs:
                _graphs[key] = _build(geometry, direction, limit, device)
            graphs[direction] = _graphs[key]
    return CudnnPlan(geometry, dtype, device, graphs)


def _build(g: ConvGeometry, direction: str, limit: int | None, device: int) -> _Graph:
    frontend, handle = cudnn_library.load()[0], _handle(device)
    try:
        graph = _describe(frontend, g, direction, handle)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([frontend.heur_mode.A, frontend.heur_mode.FALLBACK])
        graph.deselect_numeric_notes([getattr(frontend.numerical_note, note) for note in _NEVER])
        if limit is not None:
            graph.deselect_workspace_greater_than(limit)
        graph.check_support()
        graph.build_plans()  # in cuDNN's order, until one builds
        needed = graph.get_workspace_size()
    except (frontend.cudnnGraphNotSupportedError, RuntimeError, ValueError, NotImplementedError) as error:
        raise Unsupported(f"{direction} of {g} (tf32): {_first_line(error)}") from error
    if limit is not None and needed > limit:
        raise Unsupported(f"{direction} of {g} (tf32): {needed} bytes of workspace, {limit} allowed")
    return _Graph(graph, needed)


def _describe(frontend, g: ConvGeometry, direction: str, handle):
    """The frontend's graph of one operation. That a weight has fewer channels than x is how it learns of groups."""
    kind = frontend.data_type.FLOAT
    graph = frontend.pygraph(
        io_data_type=kind, intermediate_data_type=kind, compute_data_type=kind, handle=handle, name=direction
    )
    x = [g.batch, g.channels, *g.in_spatial]
    w = [g.out_channels, g.group_channels, *g.kernel]
    y = [g.batch, g.out_channels, *g.out_spatial]
    steps = {"padding": list(g.pad), "stride": list(g.stride), "dilation": list(g.dilation)}

    def tensor(name, dims, uid):
        return graph.tensor(name=name, dim=dims, stride=_strides(dims), data_type=kind, uid=uid)

    if direction == "forward":
        out, dims = graph.conv_fprop(image=tensor("x", x, _FIRST), weight=tensor("w", w, _SECOND), **steps), y
    elif direction == "backward_data":
        out, dims = graph.conv_dgrad(loss=tensor("dy", y, _FIRST), filter=tensor("w", w, _SECOND), **steps), x
    else:
        out, dims = graph.conv_wgrad(image=tensor("x", x, _FIRST), loss=tensor("dy", y, _SECOND), **steps), w
    # set, never inferred: strides lose the input's size, groups its channels, and the default layout is NHWC
    out.set_output(True).set_data_type(kind).set_dim(dims).set_stride(_strides(dims)).set_uid(_RESULT)
    return graph


def _handle(device: int):
    """The device's cuDNN handle, set to CuPy's current stream. Setting costs several driver calls, so not twice."""
    frontend = cudnn_library.load()[0]
    stream = cuda.require().cuda.get_current_stream().ptr
    entry = _handles.get(device)
    if entry is None:
        try:
            entry = _handles[device] = [frontend.create_handle(), None]
        except RuntimeError as error:
            raise DeviceError(
                f"cuDNN cannot be started on device {device}: {_first_line(error)}",
                fix="leave it some device memory, or check that driver and cuDNN fit each other",
            ) from error
    if entry[1] != stream:
        frontend.set_stream(handle=entry[0], stream=stream)
        entry[1] = stream
    return entry[0]


def _strides(dims: list[int]) -> list[int]:
    """Elements between neighbours along each axis of a C-contiguous array."""
    return list(itertools.accumulate(dims[:0:-1], lambda a, b: a * b, initial=1))[::-1]


def _filter_bytes(g: ConvGeometry, dtype: np.dtype) -> int:
    return g.out_channels * g.rows * dtype.itemsize


def _align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
