"""Compute GELU, and gated units: an activation of one array times another array."""

from __future__ import annotations

import math

import numpy as np

from ....arrays import HostArray
from ..channels import row_slices
from ..compiled import kernel
from ..logistic import sigmoid
from ..threads import parallel

__all__ = ["gated_unit_backward", "gated_unit_forward", "gelu_backward", "gelu_forward"]

_GRAIN = 1 << 13  # values from which a second thread pays
_CUBE = 0.044715  # of the approximation by tanh
_FLAT = 20  # beyond, its slope is 0 or 1 in float64 too


def gelu_forward(x: HostArray, y: HostArray, tanh: bool) -> None:
    """Compute y = x * Phi(x), Phi being the normal distribution's; `tanh`: approximated by a tanh. y may be x."""
    kind, x, y = "GELU_TANH" if tanh else "GELU", x.reshape(-1), y.reshape(-1)
    for part in row_slices(x.size, 1):
        y[part] = _value(kind, x[part])


def gelu_backward(x: HostArray, dy: HostArray, dx: HostArray, tanh: bool) -> None:
    """Compute dx = dy * (slope of `gelu_forward` at x); dx may be dy."""
    kind, x, dy, dx = "GELU_TANH" if tanh else "GELU", x.reshape(-1), dy.reshape(-1), dx.reshape(-1)
    for part in row_slices(x.size, 1):
        dx[part] = dy[part] * _slope(kind, x[part])


def gated_unit_forward(
    gate: HostArray, value: HostArray | None, y: HostArray, activation: str, outer: int, inner: int
) -> None:
    """Compute y = activation(gate) * value, all (outer, inner); activation: SILU, GELU, GELU_TANH or SIGMOID.

    Where value is None, `gate` is (outer, 2, inner): the gate, then the value.
    """
    a, b = _pair(gate, value, outer, inner)
    y = y.reshape(outer, inner)
    for part in row_slices(outer, inner):
        np.multiply(_value(activation, a[part]), b[part], out=y[part])


def gated_unit_backward(
    gate: HostArray,
    value: HostArray | None,
    dy: HostArray,
    dgate: HostArray | None,
    dvalue: HostArray | None,
    activation: str,
    outer: int,
    inner: int,
) -> None:
    """Compute dvalue = dy * activation(gate) and dgate = dy * value * (slope of the activation); each may be None.

    Where value is None, `dgate` has the shape of `gate` and gets both. dgate or dvalue may be dy.
    """
    a, b = _pair(gate, value, outer, inner)
    dy = dy.reshape(outer, inner)
    da, db = (None if d is None else d.reshape(outer, inner) for d in (dgate if value is not None else None, dvalue))
    if value is None:
        da, db = _pair(dgate, None, outer, inner)
    for part in row_slices(outer, inner):
        slope = None if da is None else dy[part] * b[part] * _slope(activation, a[part])
        if db is not None:
            np.multiply(dy[part], _value(activation, a[part]), out=db[part])
        if da is not None:
            da[part] = slope


def _pair(gate: HostArray, value: HostArray | None, outer: int, inner: int) -> tuple[HostArray, HostArray]:
    if value is not None:
        return gate.reshape(outer, inner), value.reshape(outer, inner)
    both = gate.reshape(outer, 2, inner)
    return both[:, 0], both[:, 1]


def _value(activation: str, x: HostArray) -> HostArray:
    """Return activation(x)."""
    if activation == "SIGMOID":
        return sigmoid(x)
    if activation == "SILU":
        return x * sigmoid(x)
    if activation == "GELU":
        return x * _normal_share(x)
    with np.errstate(over="ignore"):
        return x * sigmoid(math.sqrt(8 / math.pi) * (x + _CUBE * x * x * x))


def _slope(activation: str, x: HostArray) -> HostArray:
    """Return the slope of the activation at x."""
    if activation == "GELU":
        with np.errstate(over="ignore"):
            return _normal_share(x) + x * np.exp(-0.5 * x * x) * (1 / math.sqrt(2 * math.pi))
    if activation == "GELU_TANH":
        x = np.clip(x, -_FLAT, _FLAT)
        u = math.sqrt(8 / math.pi) * (x + _CUBE * x * x * x)
        rise = math.sqrt(8 / math.pi) * (1 + 3 * _CUBE * x * x)
    else:
        u, rise = x, 1.0
    u = np.minimum(u, 50)
    e = np.exp(u)
    rest = 1 / (e + 1)  # 1 - s, computed without subtracting
    s = e * rest
    if activation == "SIGMOID":
        return s * rest
    return s * (1 + (u if activation == "SILU" else x) * rest * rise)


def _normal_share(x: HostArray) -> HostArray:
    """Return the normal distribution's share below x: no difference of large numbers for x below 0."""
    flat = np.ascontiguousarray(x).reshape(-1)
    share = np.empty_like(flat)
    parallel(_shares, flat.size, flat, share, grain=_GRAIN)
    return share.reshape(x.shape)


@kernel
def _shares(first: int, last: int, x: HostArray, share: HostArray) -> None:
    for i in range(first, last):
        share[i] = 0.5 * math.erfc(-x[i] * math.sqrt(0.5))
