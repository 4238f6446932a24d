"""Convolve on the CPU through oneDNN: float32, channels first, in chunks of images that bound the workspace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import HostArray
from ...geometry import ConvGeometry
from .library import load
from .primitives import (
    ALIGNMENT,
    Call,
    Handle,
    OnednnUnsupported,
    aligned,
    any_order,
    attributes,
    engine,
    implementation,
    numbers,
)

_TRAINING, _DIRECT = 64, 1
_X, _Y, _W, _B = 1, 17, 33, 41
_DX, _DY, _DW = 129, 145, 161
_BLOCK = 16  # channels that oneDNN keeps together
_CHUNK_BYTES = 32 << 20  # bytes of reordered values at a time


class OneDnnPlan:
    """Plan a convolution in chunks of images; the workspace holds a chunk's values in oneDNN's order.

    Behind these the workspace holds one gradient of the weights, for adding it to another.

    Raises:
        OnednnUnsupported: oneDNN has nothing better than a plain loop.
    """

    def __init__(self, geometry: ConvGeometry, chunks: int) -> None:
        self.geometry, self._chunks = geometry, chunks
        self._calls: dict[tuple[str, int, bool, bool], Call] = {}
        shares = {last - first for first, last in self.chunks()}
        makers = (self.forward, self.backward_data, self.backward_filter)
        self._sum_offset = max(make(images).nbytes for make in makers for images in shares)
        self.workspace_bytes = self._sum_offset + 4 * prod(_weights(geometry)) + ALIGNMENT

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Yield (first image, last image) of every chunk; the last ones are excluded."""
        batch = self.geometry.batch
        for i in range(self._chunks):
            yield batch * i // self._chunks, batch * (i + 1) // self._chunks

    def forward(self, images: int, bias: bool = False, relu: bool = False) -> Call:
        """Return the call that takes x, w, b (if there is a bias) and y."""
        return self._call("forward", images, bias, relu)

    def backward_data(self, images: int) -> Call:
        """Return the call that takes dy, w and dx."""
        return self._call("backward_data", images)

    def backward_filter(self, images: int) -> Call:
        """Return the call that takes x, dy and dw."""
        return self._call("backward_filter", images)

    def _call(self, direction: str, images: int, bias: bool = False, relu: bool = False) -> Call:
        key = direction, images, bias, relu
        if key not in self._calls:
            self._calls[key] = _build(replace(self.geometry, batch=images), direction, bias, relu)
        return self._calls[key]

    def sum_of(self, work: HostArray) -> HostArray:
        """Return the part of `work` in which a gradient of the weights lies that is to be added."""
        begin = aligned(work) - work.ctypes.data + self._sum_offset
        return work[begin : begin + 4 * prod(_weights(self.geometry))].view(np.float32)


def onednn_plan(geometry: ConvGeometry, dtype: DTypeLike, workspace_limit: int) -> OneDnnPlan | None:
    """Plan a convolution whose workspace stays within `workspace_limit` bytes; None where oneDNN does not help."""
    g = geometry
    if np.dtype(dtype) != np.float32 or g.channels_last or not 1 <= g.axes <= 3 or load() is None:
        return None
    if min(g.batch, g.channels, g.out_channels, *g.in_spatial, *g.out_spatial) < 1:
        return None
    channels = [-(-c // _BLOCK) * _BLOCK for c in (g.channels, g.out_channels)]
    nbytes = 4 * g.batch * (channels[0] * g.in_size + channels[1] * g.out_size)
    chunks = min(g.batch, -(-nbytes // _CHUNK_BYTES))
    try:
        plan = OneDnnPlan(g, chunks)
    except OnednnUnsupported:
        return None
    return plan if plan.workspace_bytes <= workspace_limit else None


def forward(
    plan: OneDnnPlan, x: HostArray, w: HostArray, b: HostArray | None, y: HostArray, work: HostArray, relu: bool
) -> None:
    """Compute y = w * x (+ b); negative values become 0 if `relu`."""
    x, y = _images(plan, x), _images(plan, y)
    rest = [w.ctypes.data] if b is None else [w.ctypes.data, b.ctypes.data]
    for first, last in plan.chunks():
        call = plan.forward(last - first, b is not None, bool(relu))
        call.run(aligned(work), x[first:last].ctypes.data, *rest, y[first:last].ctypes.data)


def backward_data(plan: OneDnnPlan, dy: HostArray, w: HostArray, dx: HostArray, work: HostArray) -> None:
    """Compute dx from dy."""
    dy, dx = _images(plan, dy), _images(plan, dx)
    for first, last in plan.chunks():
        call = plan.backward_data(last - first)
        call.run(aligned(work), dy[first:last].ctypes.data, w.ctypes.data, dx[first:last].ctypes.data)


def backward_filter(
    plan: OneDnnPlan, x: HostArray, dy: HostArray, dw: HostArray, work: HostArray, accumulate: bool
) -> None:
    """Write to dw, or add if `accumulate`, the gradient of the weights, chunk by chunk."""
    x, dy, dw = _images(plan, x), _images(plan, dy), dw.reshape(-1)
    for first, last in plan.chunks():
        add = accumulate or first > 0
        target = plan.sum_of(work) if add else dw
        call = plan.backward_filter(last - first)
        call.run(aligned(work), x[first:last].ctypes.data, dy[first:last].ctypes.data, target.ctypes.data)
        if add:
            dw += target


def _build(g: ConvGeometry, direction: str, bias: bool, relu: bool) -> Call:
    x, y, w = (g.batch, g.channels, *g.in_spatial), (g.batch, g.out_channels, *g.out_spatial), _weights(g)
    like_x, like_w, like_y = (any_order(shape) for shape in (x, w, y))
    dilation = [d - 1 for d in g.dilation]
    places = [numbers(values) for values in (g.stride, dilation, g.pad, g.pad)]
    biases = any_order((g.out_channels,)) if bias else None
    name = "convolution_{}_primitive_desc".format
    forward = _TRAINING, _DIRECT, like_x, like_w, biases, like_y
    hint = Handle(name("forward"), "create", engine(), *forward, *places, attributes(relu))
    if direction == "forward":
        arguments = [(_X, x, False), (_W, w, False), (_B, (g.out_channels,), False), (_Y, y, True)]
        return _good(hint, arguments if bias else [arguments[0], arguments[1], arguments[3]])
    if direction == "backward_data":
        backward = _DIRECT, like_x, like_w, like_y
        made = Handle(name(direction), "create", engine(), *backward, *places, hint, attributes())
        return _good(made, [(_DY, y, False), (_W, w, False), (_DX, x, True)])
    backward = _DIRECT, like_x, like_w, None, like_y
    made = Handle(name("backward_weights"), "create", engine(), *backward, *places, hint, attributes())
    return _good(made, [(_X, x, False), (_DY, y, False), (_DW, w, True)])


def _good(description: Handle, arguments: Sequence[tuple[int, Sequence[int], bool]]) -> Call:
    if "ref" in implementation(description):
        raise OnednnUnsupported(f"{implementation(description)} is a plain loop")
    return Call(description, arguments)


def _weights(g: ConvGeometry) -> tuple[int, ...]:
    groups = (g.group, g.group_outputs) if g.group > 1 else (g.out_channels,)
    return (*groups, g.group_channels, *g.kernel)


def _images(plan: OneDnnPlan, values: HostArray) -> HostArray:
    return values.reshape(plan.geometry.batch, -1)
