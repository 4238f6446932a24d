"""Activations cut off at 6."""

from __future__ import annotations

from .elementwise import elementwise, run

__all__ = ["relu6_forward", "relu6_backward"]

RELU6 = """
  y = x;  // NaN passes both comparisons
  if (x > 0) y = x < 6 ? x : (T)6;
  else if (x <= 0) y = slope == 0 ? (T)0 : (T)slope * x;
"""
_FORWARD = elementwise("relu6_forward", RELU6, reads="x", writes="y", params="double slope")
_BACKWARD = elementwise(
    "relu6_backward",
    "dx = dy * (v > 0 && v < 6 ? (T)1 : v <= 0 ? (T)slope : (T)0);",
    reads="v, dy",
    writes="dx",
    params="double slope",
)


def relu6_forward(x, y, slope):
    """y = min(x, 6) where x > 0, slope * x where x <= 0 (plainly 0 for a slope of 0), NaN where x is NaN."""
    run(_FORWARD, "relu6_forward", (x, y), float(slope))


def relu6_backward(y_or_x, dy, dx, slope):
    """dx = dy * (1 where 0 < v < 6, slope where v <= 0, else 0); v is x, or y where slope >= 0."""
    run(_BACKWARD, "relu6_backward", (y_or_x, dy, dx), float(slope))
