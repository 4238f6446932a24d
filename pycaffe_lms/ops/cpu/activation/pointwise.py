"""Compute functions of single elements. Outputs may be the memory of any input."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ....arrays import HostArray
from ..logistic import sigmoid

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

_PIECE = 1 << 15  # elements whose temporaries stay in a core's cache


def _in_pieces(function: Callable[..., None]) -> Callable[..., None]:
    """Let `function` run on one piece of its arrays after the other; infinity and NaN raise no warning, as in C."""

    @functools.wraps(function)
    def run(*args: Any) -> None:
        args = [a.reshape(-1) if isinstance(a, np.ndarray) else a for a in args]
        size = max(a.size for a in args if isinstance(a, np.ndarray))
        with np.errstate(all="ignore"):
            for i in range(0, size, _PIECE):
                function(*(a[i : i + _PIECE] if isinstance(a, np.ndarray) else a for a in args))

    return run


@_in_pieces
def absval_forward(x: HostArray, y: HostArray) -> None:
    """Compute y = |x|."""
    np.abs(x, out=y)


@_in_pieces
def absval_backward(x: HostArray, dy: HostArray, dx: HostArray) -> None:
    """Compute dx = dy * sign(x); the sign of 0 and of NaN is 0."""
    dx[...] = dy * ((x > 0).astype(x.dtype) - (x < 0))


@_in_pieces
def bnll_forward(x: HostArray, y: HostArray) -> None:
    """Compute y = log(1 + e^x)."""
    y[...] = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


@_in_pieces
def bnll_backward(x: HostArray, dy: HostArray, dx: HostArray) -> None:
    """Compute dx = dy * e / (e + 1), e = exp(min(x, 50))."""
    dx[...] = dy * sigmoid(x)


@_in_pieces
def clip_forward(x: HostArray, y: HostArray, low: float, high: float) -> None:
    """Compute y = max(low, min(x, high)): low where the ends cross, and where x is NaN."""
    np.fmax(np.minimum(x, high), low, out=y)


@_in_pieces
def clip_backward(x: HostArray, dy: HostArray, dx: HostArray, low: float, high: float) -> None:
    """Compute dx = dy where low <= x <= high, else 0."""
    dx[...] = dy * ((x >= low) & (x <= high))


@_in_pieces
def elu_forward(x: HostArray, y: HostArray, alpha: float) -> None:
    """Compute y = max(low, min(x, high)), which is low where x is NaN and where low > high."""
    y[...] = np.maximum(x, 0) + alpha * np.expm1(np.minimum(x, 0))


@_in_pieces
def elu_backward_top(y: HostArray, dy: HostArray, dx: HostArray, alpha: float) -> None:
    """Compute dx = dy * (1 where y > 0, else alpha + y), for alpha >= 0."""
    dx[...] = dy * np.where(y > 0, 1, alpha + y)


@_in_pieces
def elu_backward_bottom(x: HostArray, dy: HostArray, dx: HostArray, alpha: float) -> None:
    """Compute dx = dy * (1 where x > 0, else alpha * e^x)."""
    dx[...] = dy * np.where(x > 0, 1, alpha * np.exp(x))


@_in_pieces
def exp_forward(x: HostArray, y: HostArray, scale: float, shift: float) -> None:
    """Compute y = e^(scale * x + shift)."""
    np.exp(scale * x + shift, out=y)


@_in_pieces
def exp_backward(y: HostArray, dy: HostArray, dx: HostArray, scale: float) -> None:
    """Compute dx = dy * y * scale."""
    dx[...] = dy * y * scale


@_in_pieces
def log_forward(x: HostArray, y: HostArray, scale: float, shift: float, factor: float) -> None:
    """Compute y = ln(scale * x + shift) * factor."""
    y[...] = np.log(scale * x + shift) * factor


@_in_pieces
def log_backward(x: HostArray, dy: HostArray, dx: HostArray, scale: float, shift: float, factor: float) -> None:
    """Compute dx = dy * scale * factor / (scale * x + shift)."""
    dx[...] = dy * (scale * factor / (scale * x + shift))


@_in_pieces
def power_forward(x: HostArray, y: HostArray, power: float, scale: float, shift: float) -> None:
    """Compute y = (scale * x + shift)^power."""
    u = scale * x + shift
    y[...] = u if power == 1 else u * u if power == 2 else np.power(u, power)


@_in_pieces
def power_backward(x: HostArray | None, dy: HostArray, dx: HostArray, power: float, scale: float, shift: float) -> None:
    """Compute dx = dy * power * scale * (scale * x + shift)^(power - 1); x may be None where power is 1."""
    if power == 1:
        np.multiply(dy, scale, out=dx)
        return
    u = scale * x + shift
    dx[...] = dy * (power * scale * (u if power == 2 else np.power(u, power - 1)))


@_in_pieces
def sigmoid_forward(x: HostArray, y: HostArray) -> None:
    """Compute y = 1 / (1 + e^-x)."""
    sigmoid(x, out=y)


@_in_pieces
def sigmoid_backward(y: HostArray, dy: HostArray, dx: HostArray) -> None:
    """Compute dx = dy * y * (1 - y)."""
    dx[...] = dy * y * (1 - y)


@_in_pieces
def swish_forward(x: HostArray, y: HostArray, beta: float) -> None:
    """Compute y = x * sigmoid(beta * x)."""
    y[...] = x * sigmoid(beta * x)


@_in_pieces
def swish_backward(x: HostArray, dy: HostArray, dx: HostArray, beta: float) -> None:
    """Compute dx = dy * s * (1 + beta * x * (1 - s)), s = sigmoid(beta * x)."""
    u = np.minimum(beta * x, 50)
    e = np.exp(u)
    rest = 1 / (e + 1)  # 1 - s, computed without subtracting
    dx[...] = dy * (e * rest * (1 + u * rest))


@_in_pieces
def tanh_forward(x: HostArray, y: HostArray) -> None:
    """Compute y = tanh(x)."""
    np.tanh(x, out=y)


@_in_pieces
def tanh_backward(y: HostArray, dy: HostArray, dx: HostArray) -> None:
    """Compute dx = dy * (1 - y^2)."""
    dx[...] = dy * (1 - y * y)


@_in_pieces
def threshold_forward(x: HostArray, y: HostArray, threshold: float) -> None:
    """Compute y = 1 where x > threshold, else 0."""
    np.copyto(y, x > threshold)
