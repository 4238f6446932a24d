"""Scaling and shifting of arrays seen as (outer, dim, inner): one factor and one shift per channel."""

from __future__ import annotations

import numpy as np

from .channels import channel_sum

__all__ = ["scale_forward", "scale_backward_data", "scale_backward_scale", "scale_backward_bias"]


def scale_forward(x, s, b, y, outer, dim, inner):
    """y = x * s + b; s or b may be None; y may be x."""
    x, y = x.reshape(outer, dim, inner), y.reshape(outer, dim, inner)
    if s is not None:
        x = np.multiply(x, s.reshape(dim, 1), out=y)
    if b is not None:
        np.add(x, b.reshape(dim, 1), out=y)


def scale_backward_data(dy, s, dx, outer, dim, inner):
    """dx = dy * s; dx may be dy."""
    np.multiply(dy.reshape(outer, dim, inner), s.reshape(dim, 1), out=dx.reshape(outer, dim, inner))


def _write(gradient, total, accumulate):
    total = total.astype(gradient.dtype).reshape(gradient.shape)
    gradient[...] = gradient + total if accumulate else total


def scale_backward_scale(x, dy, ds, accumulate, work, outer, dim, inner):
    """ds (+)= sum over outer and inner of x * dy. `work` is for the GPU's partial sums: dim * parts elements."""
    x, dy = x.reshape(outer, dim, inner), dy.reshape(outer, dim, inner)
    _write(ds, channel_sum(outer, dim, inner, lambda rows: x[rows] * dy[rows]), accumulate)


def scale_backward_bias(dy, db, accumulate, work, outer, dim, inner):
    """db (+)= sum over outer and inner of dy. `work` is for the GPU's partial sums: dim * parts elements."""
    dy = dy.reshape(outer, dim, inner)
    _write(db, channel_sum(outer, dim, inner, lambda rows: dy[rows]), accumulate)
