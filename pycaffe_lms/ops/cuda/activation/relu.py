"""Compute ReLU and ReLU6 and their gradients from values. Those that keep bits are in `bits.py`."""

from __future__ import annotations

from ....arrays import AnyArray
from ..elementwise import elementwise, run

__all__ = ["relu_forward", "relu_backward", "relu6_forward", "relu6_backward"]

RELU = "y = (x < 0 ? (T)0 : x) + (T)slope * (x > 0 ? (T)0 : x);"  # NaN passes both comparisons
_FORWARD = elementwise("relu_forward", RELU, reads="x", writes="y", params="double slope")
_BACKWARD = elementwise(
    "relu_backward",
    "dx = dy * (v > 0 ? (T)1 : v <= 0 ? (T)slope : (T)0);",
    reads="v, dy",
    writes="dx",
    params="double slope",
)


def relu_forward(x: AnyArray, y: AnyArray, slope: float) -> None:
    """Compute y = max(x, 0) + slope * min(x, 0); NaN stays NaN, and -inf with slope 0 gives NaN, as in Caffe."""
    run(_FORWARD, "relu_forward", (x, y), float(slope))


def relu_backward(y_or_x: AnyArray, dy: AnyArray, dx: AnyArray, slope: float) -> None:
    """Compute dx = dy * (1 where v > 0, slope where v <= 0, 0 where v is NaN), v being `y_or_x`."""
    run(_BACKWARD, "relu_backward", (y_or_x, dy, dx), float(slope))


RELU6 = """
  y = x;  // NaN passes both comparisons
  if (x > 0) y = x < 6 ? x : (T)6;
  else if (x <= 0) y = slope == 0 ? (T)0 : (T)slope * x;
"""
_RELU6_FORWARD = elementwise("relu6_forward", RELU6, reads="x", writes="y", params="double slope")
_RELU6_BACKWARD = elementwise(
    "relu6_backward",
    "dx = dy * (v > 0 && v < 6 ? (T)1 : v <= 0 ? (T)slope : (T)0);",
    reads="v, dy",
    writes="dx",
    params="double slope",
)


def relu6_forward(x: AnyArray, y: AnyArray, slope: float) -> None:
    """Compute y = min(x, 6) where x > 0, slope * x where x <= 0 (0 for slope 0, even at -inf), NaN where x is NaN."""
    run(_RELU6_FORWARD, "relu6_forward", (x, y), float(slope))


def relu6_backward(y_or_x: AnyArray, dy: AnyArray, dx: AnyArray, slope: float) -> None:
    """Compute dx = dy * (1 where 0 < v < 6, slope where v <= 0, else 0)."""
    run(_RELU6_BACKWARD, "relu6_backward", (y_or_x, dy, dx), float(slope))
