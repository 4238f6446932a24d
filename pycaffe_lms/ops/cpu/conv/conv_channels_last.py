"""Convolve channels-last arrays on the CPU by copying them to channels first and back.

So nets that are laid out for a GPU can be tried without one; speed is no aim. Each function gets the operation that
works on channels first, and that operation's arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ....arrays import HostArray
from ...geometry import ConvGeometry, Ints


def forward(
    convolve: Callable[..., None],
    plan: Any,
    x: HostArray,
    w: HostArray,
    b: HostArray | None,
    y: HostArray,
    work: HostArray | None,
    relu: bool,
) -> None:
    """Compute y = w * x (+ b) by `convolve`, the operation for channels first."""
    plan, x_shape, w_shape, y_shape = _channels_first(plan)
    result = np.empty(_second_axis(y.reshape(y_shape)).shape, y.dtype)
    convolve(plan, _copy(x, x_shape), _copy(w, w_shape), b, result, work, relu)
    y[...] = np.moveaxis(result, 1, -1).reshape(y.shape)


def backward_data(
    convolve: Callable[..., None], plan: Any, dy: HostArray, w: HostArray, dx: HostArray, work: HostArray | None
) -> None:
    """Compute dx from dy by `convolve`, the operation for channels first."""
    plan, x_shape, w_shape, y_shape = _channels_first(plan)
    result = np.empty(_second_axis(dx.reshape(x_shape)).shape, dx.dtype)
    convolve(plan, _copy(dy, y_shape), _copy(w, w_shape), result, work)
    dx[...] = np.moveaxis(result, 1, -1).reshape(dx.shape)


def backward_filter(
    convolve: Callable[..., None],
    plan: Any,
    x: HostArray,
    dy: HostArray,
    dw: HostArray,
    work: HostArray | None,
    accumulate: bool,
) -> None:
    """Write to dw, or add if `accumulate`, by `convolve`, the operation for channels first."""
    plan, x_shape, w_shape, y_shape = _channels_first(plan)
    result = _copy(dw, w_shape)
    convolve(plan, _copy(x, x_shape), _copy(dy, y_shape), result, work, accumulate)
    dw[...] = np.moveaxis(result, 1, -1).reshape(dw.shape)


def add_backward_data(g: ConvGeometry, dy: HostArray, w: HostArray, dx: HostArray) -> None:
    """Add w (O, C, ones...) applied to dy (N, *out, O) to every stride-th position of dx (N, *in, C)."""
    dy, w = dy.reshape(g.batch, *g.out_spatial, g.out_channels), w.reshape(g.out_channels, g.channels)
    seen = (slice(0, (out - 1) * step + 1, step) for out, step in zip(g.out_spatial, g.stride, strict=True))
    places = dx.reshape(g.batch, *g.in_spatial, g.channels)[(slice(None), *seen)]
    for n in range(g.batch):
        places[n] += dy[n] @ w


def _channels_first(plan: Any) -> tuple[Any, Ints, Ints, Ints]:
    """Return the plan for channels first, and the shapes of x, w and y with channels last."""
    g = plan.geometry
    x, w = (g.batch, *g.in_spatial, g.channels), (g.out_channels, *g.kernel, g.group_channels)
    return replace(plan, geometry=replace(g, channels_last=False)), x, w, (g.batch, *g.out_spatial, g.out_channels)


def _second_axis(array: HostArray) -> HostArray:
    """Return a view with the last axis moved behind the first."""
    return np.moveaxis(array, -1, 1)


def _copy(array: HostArray, shape: Ints) -> HostArray:
    return _second_axis(array.reshape(shape)).copy()
