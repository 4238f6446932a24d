"""Convolve depthwise on the CPU: compiled loops over whole planes, without columns.

Arrays are those of `conv.py`, with one channel per group. An input plane is copied into a padded one, its pixels sorted
by their place modulo the stride. Then a tap is an offset, and what it adds to all outputs is one contiguous piece (with
some values at the ends of rows that belong to no output). Planes are shared out among threads; for the weights'
gradient channels are, each summing over images in order, so the cuts change no bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from ....arrays import HostArray
from ...geometry import ConvGeometry, Ints
from ..compiled import kernel, sums
from ..threads import parallel
from . import conv_channels_last as channels_last

__all__ = ["depthwise_backward_data", "depthwise_backward_filter", "depthwise_forward", "depthwise_plan"]

_GRAIN = 1 << 16  # products that are worth a thread of their own


@dataclass(frozen=True, slots=True)
class DepthwisePlan:
    """Describe how input planes are spread into padded ones.

    There are prod(stride) padded planes of `cells` (3 sizes) each; outputs lie in the first `length` of a plane's
    cells. Tap t is at `places[t]` in plane `planes[t]`. `order` lists the taps plane by plane, those of plane p from
    `bounds[p]` on.
    """

    geometry: ConvGeometry
    cells: Ints
    length: int
    planes: HostArray
    places: HostArray
    order: HostArray
    bounds: HostArray
    workspace_bytes: int = 0


def depthwise_plan(geometry: ConvGeometry, dtype: DTypeLike, workspace_limit: int, half: bool = False) -> DepthwisePlan:
    """Plan a convolution whose `geometry.depthwise` is true; it needs no workspace. half: images are bfloat16."""
    g = geometry.with_axes(3)
    steps = list(zip(g.out_spatial, g.kernel, g.stride, g.dilation, strict=True))
    cells = tuple(((out - 1) * s + (k - 1) * d) // s + 1 for out, k, s, d in steps)
    planes, places = (np.zeros(g.kernel, np.int64) for _ in range(2))
    for a, (_, k, s, d) in enumerate(steps):
        at = (np.arange(k) * d).reshape([-1 if i == a else 1 for i in range(3)])
        planes, places = planes * s + at % s, places * cells[a] + at // s
    planes, places = planes.reshape(-1), places.reshape(-1)
    length = ((g.out_spatial[0] - 1) * cells[1] + g.out_spatial[1] - 1) * cells[2] + g.out_spatial[2]
    bounds = np.searchsorted(np.sort(planes), np.arange(prod(g.stride) + 1))
    return DepthwisePlan(geometry, cells, length, planes, places, np.argsort(planes, kind="stable"), bounds)


def depthwise_forward(
    plan: DepthwisePlan,
    x: HostArray,
    w: HostArray,
    b: HostArray | None,
    y: HostArray,
    work: HostArray | None,
    relu: bool = False,
) -> None:
    """Compute y = w * x (+ b), and set negative values to 0 if `relu`.

    x (N, C, *in), w (O, 1, *kernel), b (O) or None, y (N, O, *out).
    """
    if plan.geometry.channels_last:
        channels_last.forward(depthwise_forward, plan, x, w, b, y, work, relu)
        return
    g, x, w, y = _arrays(plan, x, w, y)
    bias = np.zeros(g.out_channels, y.dtype) if b is None else b.reshape(g.out_channels)
    offsets, windows = plan.planes * prod(plan.cells) + plan.places, (plan.cells, g.stride, g.pad)
    grain = _grain(g, g.group_outputs)
    parallel(_forward, len(x), x, w, bias, y, offsets, plan.length, windows, grain=grain)
    if relu:
        np.maximum(y, 0, out=y)


def depthwise_backward_data(
    plan: DepthwisePlan, dy: HostArray, w: HostArray, dx: HostArray, work: HostArray | None
) -> None:
    """Compute dx from dy, the transpose of `depthwise_forward`; every element of dx is written."""
    if plan.geometry.channels_last:
        channels_last.backward_data(depthwise_backward_data, plan, dy, w, dx, work)
        return
    g, dx, w, dy = _arrays(plan, dx, w, dy)
    taps = plan.places, plan.order, plan.bounds
    grain = _grain(g, g.group_outputs)
    parallel(_backward_data, len(dx), dy, w, dx, plan.cells, *taps, g.stride, g.pad, grain=grain)


def depthwise_backward_filter(
    plan: DepthwisePlan, x: HostArray, dy: HostArray, dw: HostArray, work: HostArray | None, accumulate: bool
) -> None:
    """Write to dw (or add, if `accumulate`) the gradient of the weights, summed over images and positions."""
    if plan.geometry.channels_last:
        channels_last.backward_filter(depthwise_backward_filter, plan, x, dy, dw, work, accumulate)
        return
    g, x, dw, dy = _arrays(plan, x, dw, dy)
    offsets, windows = plan.planes * prod(plan.cells) + plan.places, (plan.cells, g.stride, g.pad)
    args = x, dy, dw, g.batch, g.group_outputs, bool(accumulate), offsets, plan.length, windows
    parallel(_backward_filter, g.channels, *args, grain=_grain(g, g.group_outputs * g.batch))


def _arrays(
    plan: DepthwisePlan, x: HostArray, w: HostArray, y: HostArray
) -> tuple[ConvGeometry, HostArray, HostArray, HostArray]:
    """Return the geometry with 3 axes, inputs (planes, d, h, w), weights (outputs, taps), outputs (planes, d, h, w)."""
    g = plan.geometry.with_axes(3)
    inputs = x.reshape(g.batch * g.channels, *g.in_spatial)
    return g, inputs, w.reshape(g.out_channels, g.rows), y.reshape(g.batch * g.out_channels, *g.out_spatial)


def _grain(g: ConvGeometry, planes: int) -> int:
    """Return how many times `planes` output planes are worth a thread of their own."""
    return max(1, _GRAIN // max(1, planes * g.out_size * g.rows))


@kernel
def _copy(plane: HostArray, padded: HostArray, stride: Ints, pad: Ints, back: bool) -> None:
    """Copy a plane's pixels into the padded planes (stride..., cells...), or back; leave pixels without a place."""
    step, cells = stride[2], padded.shape[5]
    for d in range(plane.shape[0]):
        at_d = d + pad[0]
        for h in range(plane.shape[1]):
            at_h = h + pad[1]
            if at_d // stride[0] >= padded.shape[3] or at_h // stride[1] >= padded.shape[4]:
                continue
            row = plane[d, h]
            for phase in range(step):
                first = (phase - pad[2]) % step  # the first pixel of this phase
                cell = (first + pad[2]) // step
                n = min((len(row) - first + step - 1) // step, cells - cell)
                if n <= 0:
                    continue
                there = padded[at_d % stride[0], at_h % stride[1], phase, at_d // stride[0], at_h // stride[1]]
                there, here = there[cell : cell + n], row[first:]
                if back and step == 1:
                    for i in range(n):
                        here[i] = there[i]
                elif back:
                    for i in range(n):
                        here[i * step] = there[i]
                elif step == 1:
                    for i in range(n):
                        there[i] = here[i]
                else:
                    for i in range(n):
                        there[i] = here[i * step]


@kernel
def _add(to: HostArray, source: HostArray, offsets: HostArray, taps: HostArray) -> None:
    """Add taps[t] * source[offsets[t] + i] to to[i] for every tap, three taps at a time to read `to` less often."""
    n, count = len(to), len(taps)
    for t in range(0, count - 2, 3):
        tap0, tap1, tap2 = taps[t], taps[t + 1], taps[t + 2]
        row0 = source[offsets[t] : offsets[t] + n]
        row1 = source[offsets[t + 1] : offsets[t + 1] + n]
        row2 = source[offsets[t + 2] : offsets[t + 2] + n]
        for i in range(n):
            to[i] += tap0 * row0[i] + tap1 * row1[i] + tap2 * row2[i]
    for t in range(count - count % 3, count):
        tap, row = taps[t], source[offsets[t] : offsets[t] + n]
        for i in range(n):
            to[i] += tap * row[i]


@kernel
def _forward(
    start: int,
    stop: int,
    x: HostArray,
    w: HostArray,
    bias: HostArray,
    y: HostArray,
    offsets: HostArray,
    length: int,
    windows: tuple[Ints, Ints, Ints],
) -> None:
    cells, stride, pad = windows
    outputs, multiple = len(w), len(y) // len(x)
    padded = np.zeros((*stride, *cells), x.dtype)
    source, result = padded.reshape(-1), np.empty(length, x.dtype)
    for plane in range(start, stop):
        _copy(x[plane], padded, stride, pad, False)
        for m in range(plane * multiple, (plane + 1) * multiple):
            result[:] = bias[m % outputs]
            _add(result, source, offsets, w[m % outputs])
            for d in range(y.shape[1]):
                for h in range(y.shape[2]):
                    first = (d * cells[1] + h) * cells[2]
                    y[m, d, h] = result[first : first + y.shape[3]]


@kernel
def _spread_out(plane: HostArray, flat: HostArray, cells: Ints) -> None:
    """Copy the rows of a plane into `flat`, as far apart as rows of padded planes."""
    for d in range(plane.shape[0]):
        for h in range(plane.shape[1]):
            first = (d * cells[1] + h) * cells[2]
            flat[first : first + plane.shape[2]] = plane[d, h]


@kernel
def _backward_data(
    start: int,
    stop: int,
    dy: HostArray,
    w: HostArray,
    dx: HostArray,
    cells: Ints,
    places: HostArray,
    order: HostArray,
    bounds: HostArray,
    stride: Ints,
    pad: Ints,
) -> None:
    outputs, multiple, size = len(w), len(dy) // len(dx), cells[0] * cells[1] * cells[2]
    margin = places.max()
    padded = np.empty((*stride, *cells), dx.dtype)
    target, source = padded.reshape(-1), np.zeros(margin + size, dx.dtype)
    offsets, taps = margin - places[order], np.empty(len(places), dx.dtype)
    for plane in range(start, stop):
        target[:] = 0
        for m in range(plane * multiple, (plane + 1) * multiple):
            _spread_out(dy[m], source[margin:], cells)
            for i in range(len(taps)):
                taps[i] = w[m % outputs, order[i]]
            for p in range(len(bounds) - 1):
                a, b = bounds[p], bounds[p + 1]
                if b > a:
                    _add(target[p * size : (p + 1) * size], source, offsets[a:b], taps[a:b])
        dx[plane] = 0
        _copy(dx[plane], padded, stride, pad, True)


@sums
def _product(left: HostArray, right: HostArray) -> float:
    total = left[0] * 0
    for i in range(len(left)):
        total += left[i] * right[i]
    return total


@kernel
def _backward_filter(
    start: int,
    stop: int,
    x: HostArray,
    dy: HostArray,
    dw: HostArray,
    images: int,
    multiple: int,
    accumulate: bool,
    offsets: HostArray,
    length: int,
    windows: tuple[Ints, Ints, Ints],
) -> None:
    cells, stride, pad = windows
    channels, taps = len(dw) // multiple, dw.shape[1]
    padded = np.zeros((*stride, *cells), x.dtype)
    source, gradient = padded.reshape(-1), np.zeros(length, x.dtype)
    total = np.empty((multiple, taps))  # float64: one term per image
    for c in range(start, stop):
        total[:] = 0
        for n in range(images):
            _copy(x[n * channels + c], padded, stride, pad, False)
            for m in range(multiple):
                _spread_out(dy[(n * channels + c) * multiple + m], gradient, cells)
                for t in range(taps):
                    total[m, t] += _product(gradient, source[offsets[t] : offsets[t] + length])
        for m in range(multiple):
            for t in range(taps):
                dw[c * multiple + m, t] = total[m, t] + (dw[c * multiple + m, t] if accumulate else 0)
