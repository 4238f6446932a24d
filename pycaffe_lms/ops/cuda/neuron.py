"""Element-wise activations."""

from __future__ import annotations

from .elementwise import elementwise, run

__all__ = ["relu_forward", "relu_backward"]

RELU = "y = (x < 0 ? (T)0 : x) + (T)slope * (x > 0 ? (T)0 : x);"  # NaN passes both comparisons
_FORWARD = elementwise("relu_forward", RELU, reads="x", writes="y", params="double slope")
_BACKWARD = elementwise(
    "relu_backward",
    "dx = dy * (v > 0 ? (T)1 : v <= 0 ? (T)slope : (T)0);",
    reads="v, dy",
    writes="dx",
    params="double slope",
)


def relu_forward(x, y, slope):
    """y = max(x, 0) + slope * min(x, 0); NaN stays NaN, and -inf with slope 0 gives NaN, as in Caffe."""
    run(_FORWARD, "relu_forward", (x, y), float(slope))


def relu_backward(y_or_x, dy, dx, slope):
    """dx = dy * (1 where v > 0, slope where v <= 0, 0 where v is NaN)."""
    run(_BACKWARD, "relu_backward", (y_or_x, dy, dx), float(slope))
