"""Convolution of channels-last arrays on the CPU, by copies in the other order: so that nets laid out for a GPU can be
tried without one. Speed is no aim here.

Each function gets the operation that works in the other order, and that operation's arguments.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

_ROWS = 4096  # that are multiplied at once


def forward(convolve, plan, x, w, b, y, work, relu) -> None:
    plan, x_shape, w_shape, y_shape = _turned(plan)
    result = np.empty(_first(y.reshape(y_shape)).shape, y.dtype)
    convolve(plan, _copy(x, x_shape), _copy(w, w_shape), b, result, work, relu)
    y[...] = np.moveaxis(result, 1, -1).reshape(y.shape)


def backward_data(convolve, plan, dy, w, dx, work) -> None:
    plan, x_shape, w_shape, y_shape = _turned(plan)
    result = np.empty(_first(dx.reshape(x_shape)).shape, dx.dtype)
    convolve(plan, _copy(dy, y_shape), _copy(w, w_shape), result, work)
    dx[...] = np.moveaxis(result, 1, -1).reshape(dx.shape)


def backward_filter(convolve, plan, x, dy, dw, work, accumulate) -> None:
    plan, x_shape, w_shape, y_shape = _turned(plan)
    result = _copy(dw, w_shape)
    convolve(plan, _copy(x, x_shape), _copy(dy, y_shape), result, work, accumulate)
    dw[...] = np.moveaxis(result, 1, -1).reshape(dw.shape)


def add_product(dy, w, dx) -> None:
    """dx (rows, C) += dy (rows, O) * w (O, C)."""
    dx = dx.reshape(-1, w.shape[1])
    for start in range(0, len(dx), _ROWS):
        dx[start : start + _ROWS] += dy[start : start + _ROWS] @ w


def _turned(plan):
    """The plan for the other order, and the shapes of x, w and y in this one."""
    g = plan.geometry
    x, w = (g.batch, *g.in_spatial, g.channels), (g.out_channels, *g.kernel, g.group_channels)
    return replace(plan, geometry=replace(g, channels_last=False)), x, w, (g.batch, *g.out_spatial, g.out_channels)


def _first(array):
    """The last axis behind the first."""
    return np.moveaxis(array, -1, 1)


def _copy(array, shape):
    return _first(array.reshape(shape)).copy()
