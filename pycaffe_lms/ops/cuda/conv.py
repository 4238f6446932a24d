"""Convolution on a GPU: through cuDNN where it is there and can do it, else through column matrices and cuBLAS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..column_plan import ColumnPlan
from ..geometry import ConvGeometry
from . import channel_bias, im2col

__all__ = [
    "conv_add_bias",
    "conv_backward_bias",
    "conv_backward_data",
    "conv_backward_filter",
    "conv_bias_gradient",
    "conv_forward",
    "conv_plan",
]


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """One of the two engines: `cudnn` (an object of `cudnn.py`), or `columns`."""

    geometry: ConvGeometry
    workspace_bytes: int
    cudnn: Any = None
    columns: ColumnPlan | None = None


def conv_plan(geometry: ConvGeometry, dtype, workspace_limit: int) -> ConvPlan:
    """Choose an engine and its algorithms. Raises LayerParamError for more than 3 spatial axes."""
    from . import cudnn  # here, so that a machine without cuDNN's packages can still import the operations

    dtype = np.dtype(dtype)
    if geometry.batch and 1 <= geometry.axes <= 3 and cudnn.available():
        try:
            plan = cudnn.plan(geometry.with_axes(2), dtype, workspace_limit)
            return ConvPlan(geometry, plan.workspace_bytes, cudnn=plan)
        except cudnn.Unsupported:
            pass  # what cuDNN has no algorithm for, column matrices can do
    columns = im2col.plan(geometry, dtype.itemsize, workspace_limit)
    return ConvPlan(geometry, columns.workspace_bytes, columns=columns)


def conv_forward(plan, x, w, b, y, work) -> None:
    """y = w * x (+ b): x (N, C, *in), w (O, C/group, *kernel), b (O) or None, y (N, O, *out)."""
    g = plan.geometry
    if plan.cudnn is not None:
        plan.cudnn.forward(x, w, None, y, work)
    else:
        im2col.forward(plan.columns, x, w, y, work)
    if b is not None:
        channel_bias.add_bias(y, b, g.batch, g.out_channels, g.out_size)


def conv_backward_data(plan, dy, w, dx, work) -> None:
    """dx from dy: the transpose of `conv_forward` (every element of dx is written)."""
    if plan.cudnn is not None:
        plan.cudnn.backward_data(dy, w, dx, work)
    else:
        im2col.backward_data(plan.columns, dy, w, dx, work)


def conv_backward_filter(plan, x, dy, dw, work, accumulate) -> None:
    """dw (+)= the gradient of the weights, summed over images and positions."""
    if plan.cudnn is not None:
        plan.cudnn.backward_filter(x, dy, dw, work, accumulate)
    else:
        im2col.backward_filter(plan.columns, x, dy, dw, work, accumulate)


def conv_backward_bias(plan, dy, db, accumulate) -> None:
    """db (+)= dy summed over images and positions."""
    g = plan.geometry
    channel_bias.bias_gradient(dy, db, g.batch, g.out_channels, g.out_size, accumulate)


def conv_add_bias(y, b, outer, channels, inner) -> None:
    """y (outer, channels, inner) += b (channels)."""
    channel_bias.add_bias(y, b, outer, channels, inner)


def conv_bias_gradient(dy, db, outer, channels, inner, accumulate) -> None:
    """db (channels) (+)= dy (outer, channels, inner) summed over outer and inner."""
    channel_bias.bias_gradient(dy, db, outer, channels, inner, accumulate)
