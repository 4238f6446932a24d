"""Scaling and shifting of arrays seen as (outer, dim, inner): one factor and one shift per channel."""

from __future__ import annotations

from ...backend.cuda import launch
from .channels import DOT, SUM, channel_sum
from .source import DIVIDE, divider

__all__ = ["scale_forward", "scale_backward_data", "scale_backward_scale", "scale_backward_bias"]

_SOURCE = (
    DIVIDE
    + """
#define KERNEL(name, expression)                                                                                     \\
  extern "C" __global__ void name(const T* x, const T* s, const T* b, T* y, long long n, long long inner,            \\
                                  long long i_magic, long long i_shift, long long dim, long long d_magic,            \\
                                  long long d_shift) {                                                               \\
    LOOP(i, n) {                                                                                                     \\
      long long row = quotient(i, inner, i_magic, i_shift), c = row - quotient(row, dim, d_magic, d_shift) * dim;    \\
      y[i] = expression;                                                                                             \\
    }                                                                                                                \\
  }
KERNEL(scale, x[i] * s[c])
KERNEL(bias, x[i] + b[c])
KERNEL(scale_bias, x[i] * s[c] + b[c])
"""
)


def _apply(name, x, s, b, y, outer, dim, inner):
    n = outer * dim * inner
    launch(_SOURCE, name, y.dtype, n, x, s, b, y, n, *divider(inner, n), *divider(dim, n))


def scale_forward(x, s, b, y, outer, dim, inner):
    """y = x * s + b; s or b may be None; y may be x."""
    name = "bias" if s is None else "scale" if b is None else "scale_bias"
    _apply(name, x, b if s is None else s, s if b is None else b, y, outer, dim, inner)


def scale_backward_data(dy, s, dx, outer, dim, inner):
    """dx = dy * s; dx may be dy."""
    _apply("scale", dy, s, s, dx, outer, dim, inner)


def scale_backward_scale(x, dy, ds, accumulate, work, outer, dim, inner):
    """ds (+)= sum over outer and inner of x * dy. `work` is for the GPU's partial sums: dim * parts elements."""
    channel_sum(DOT, x, dy, ds, accumulate, work, outer, dim, inner)


def scale_backward_bias(dy, db, accumulate, work, outer, dim, inner):
    """db (+)= sum over outer and inner of dy. `work` is for the GPU's partial sums: dim * parts elements."""
    channel_sum(SUM, dy, dy, db, accumulate, work, outer, dim, inner)
