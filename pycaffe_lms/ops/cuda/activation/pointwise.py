"""Compute functions of single elements. Outputs may be the memory of any input."""

from __future__ import annotations

import functools

from ....arrays import AnyArray
from ..elementwise import elementwise, run
from ..logistic import SIGMOID

__all__ = [
    "absval_forward",
    "absval_backward",
    "bnll_forward",
    "bnll_backward",
    "clip_forward",
    "clip_backward",
    "elu_forward",
    "elu_backward_top",
    "elu_backward_bottom",
    "exp_forward",
    "exp_backward",
    "log_forward",
    "log_backward",
    "power_forward",
    "power_backward",
    "sigmoid_forward",
    "sigmoid_backward",
    "swish_forward",
    "swish_backward",
    "tanh_forward",
    "tanh_backward",
    "threshold_forward",
]

_HELPERS = (
    SIGMOID
    + """
__device__ T clip(T x, T low, T high) {
  T below = high < x ? high : x;
  return low < below ? below : low;
}
__device__ T swish_slope(T x, T beta) {
  const T u = beta * x > 50 ? (T)50 : beta * x;
  const T e = exp(u), rest = 1 / (e + 1);  // 1 - s, without the difference
  return e * rest * (1 + u * rest);
}
__device__ T power_of(T u, T power) { return power == 1 ? u : power == 2 ? u * u : pow(u, power); }
"""
)

# a, b, c: the constants of the Python function in its order
_FORWARD = {  # y from x
    "absval_forward": "fabs(x)",
    "bnll_forward": "x > 0 ? x + log1p(exp(-x)) : log1p(exp(x))",
    "clip_forward": "clip(x, a, b)",
    "elu_forward": "x > 0 ? x : a * expm1(x)",
    "exp_forward": "exp(a * x + b)",
    "log_forward": "log(a * x + b) * c",
    "power_forward": "power_of(b * x + c, a)",
    "linear_forward": "b * x + c",
    "sigmoid_forward": "sigmoid(x)",
    "swish_forward": "x * sigmoid(a * x)",
    "tanh_forward": "tanh(x)",
    "threshold_forward": "x > a ? (T)1 : (T)0",
}
_SLOPE = {  # dx / dy from v, the bottom's or the top's value, as the function takes
    "absval_backward": "(T)((v > 0) - (v < 0))",
    "bnll_backward": "sigmoid(v)",
    "clip_backward": "(T)(v >= a && v <= b)",
    "elu_backward_top": "v > 0 ? (T)1 : a + v",
    "elu_backward_bottom": "v > 0 ? (T)1 : a * exp(v)",
    "exp_backward": "v * a",
    "log_backward": "a * c / (a * v + b)",
    "power_backward": "a * b * power_of(b * v + c, a - 1)",
    "square_backward": "a * b * (b * v + c)",
    "sigmoid_backward": "v * (1 - v)",
    "swish_backward": "swish_slope(v, a)",
    "tanh_backward": "1 - v * v",
}


@functools.cache
def _source(name: str) -> str:
    common = {
        "writes": "y" if name in _FORWARD else "dx",
        "params": "double p, double q, double r",
        "setup": "const T a = (T)p, b = (T)q, c = (T)r; (void)a, (void)b, (void)c;",
        "helpers": _HELPERS,
    }
    if name in _FORWARD:
        return elementwise(name, f"y = {_FORWARD[name]};", reads="x", **common)
    if name == "linear_backward":
        return elementwise(name, "dx = dy * a;", reads="dy", **common)
    return elementwise(name, f"dx = dy * ({_SLOPE[name]});", reads="v, dy", **common)


def _forward(name: str, x: AnyArray, y: AnyArray, a: float = 0.0, b: float = 0.0, c: float = 0.0) -> None:
    run(_source(name), name, (x, y), float(a), float(b), float(c))


def _backward(
    name: str, value: AnyArray | None, dy: AnyArray, dx: AnyArray, a: float = 0.0, b: float = 0.0, c: float = 0.0
) -> None:
    run(_source(name), name, (value, dy, dx), float(a), float(b), float(c))


def absval_forward(x: AnyArray, y: AnyArray) -> None:
    """Compute y = |x|."""
    _forward("absval_forward", x, y)


def absval_backward(x: AnyArray, dy: AnyArray, dx: AnyArray) -> None:
    """Compute dx = dy * sign(x); the sign of 0 and of NaN is 0."""
    _backward("absval_backward", x, dy, dx)


def bnll_forward(x: AnyArray, y: AnyArray) -> None:
    """Compute y = log(1 + e^x)."""
    _forward("bnll_forward", x, y)


def bnll_backward(x: AnyArray, dy: AnyArray, dx: AnyArray) -> None:
    """Compute dx = dy * e / (e + 1), e = exp(min(x, 50))."""
    _backward("bnll_backward", x, dy, dx)


def clip_forward(x: AnyArray, y: AnyArray, low: float, high: float) -> None:
    """Compute y = max(low, min(x, high)): low where the ends cross, and where x is NaN."""
    _forward("clip_forward", x, y, low, high)


def clip_backward(x: AnyArray, dy: AnyArray, dx: AnyArray, low: float, high: float) -> None:
    """Compute dx = dy where low <= x <= high, else 0."""
    _backward("clip_backward", x, dy, dx, low, high)


def elu_forward(x: AnyArray, y: AnyArray, alpha: float) -> None:
    """Compute y = max(low, min(x, high)), which is low where x is NaN and where low > high."""
    _forward("elu_forward", x, y, alpha)


def elu_backward_top(y: AnyArray, dy: AnyArray, dx: AnyArray, alpha: float) -> None:
    """Compute dx = dy * (1 where y > 0, else alpha + y), for alpha >= 0."""
    _backward("elu_backward_top", y, dy, dx, alpha)


def elu_backward_bottom(x: AnyArray, dy: AnyArray, dx: AnyArray, alpha: float) -> None:
    """Compute dx = dy * (1 where x > 0, else alpha * e^x)."""
    _backward("elu_backward_bottom", x, dy, dx, alpha)


def exp_forward(x: AnyArray, y: AnyArray, scale: float, shift: float) -> None:
    """Compute y = e^(scale * x + shift)."""
    _forward("exp_forward", x, y, scale, shift)


def exp_backward(y: AnyArray, dy: AnyArray, dx: AnyArray, scale: float) -> None:
    """Compute dx = dy * y * scale."""
    _backward("exp_backward", y, dy, dx, scale)


def log_forward(x: AnyArray, y: AnyArray, scale: float, shift: float, factor: float) -> None:
    """Compute y = ln(scale * x + shift) * factor."""
    _forward("log_forward", x, y, scale, shift, factor)


def log_backward(x: AnyArray, dy: AnyArray, dx: AnyArray, scale: float, shift: float, factor: float) -> None:
    """Compute dx = dy * scale * factor / (scale * x + shift)."""
    _backward("log_backward", x, dy, dx, scale, shift, factor)


def power_forward(x: AnyArray, y: AnyArray, power: float, scale: float, shift: float) -> None:
    """Compute y = (scale * x + shift)^power."""
    _forward("linear_forward" if power == 1 else "power_forward", x, y, power, scale, shift)


def power_backward(x: AnyArray | None, dy: AnyArray, dx: AnyArray, power: float, scale: float, shift: float) -> None:
    """Compute dx = dy * power * scale * (scale * x + shift)^(power - 1); x may be None where power is 1."""
    if power == 1:
        run(_source("linear_backward"), "linear_backward", (dy, dx), float(scale), 0.0, 0.0)
    else:
        _backward("square_backward" if power == 2 else "power_backward", x, dy, dx, power, scale, shift)


def sigmoid_forward(x: AnyArray, y: AnyArray) -> None:
    """Compute y = 1 / (1 + e^-x)."""
    _forward("sigmoid_forward", x, y)


def sigmoid_backward(y: AnyArray, dy: AnyArray, dx: AnyArray) -> None:
    """Compute dx = dy * y * (1 - y)."""
    _backward("sigmoid_backward", y, dy, dx)


def swish_forward(x: AnyArray, y: AnyArray, beta: float) -> None:
    """Compute y = x * sigmoid(beta * x)."""
    _forward("swish_forward", x, y, beta)


def swish_backward(x: AnyArray, dy: AnyArray, dx: AnyArray, beta: float) -> None:
    """Compute dx = dy * s * (1 + beta * x * (1 - s)), s = sigmoid(beta * x)."""
    _backward("swish_backward", x, dy, dx, beta)


def tanh_forward(x: AnyArray, y: AnyArray) -> None:
    """Compute y = tanh(x)."""
    _forward("tanh_forward", x, y)


def tanh_backward(y: AnyArray, dy: AnyArray, dx: AnyArray) -> None:
    """Compute dx = dy * (1 - y^2)."""
    _backward("tanh_backward", y, dy, dx)


def threshold_forward(x: AnyArray, y: AnyArray, threshold: float) -> None:
    """Compute y = 1 where x > threshold, else 0."""
    _forward("threshold_forward", x, y, threshold)
