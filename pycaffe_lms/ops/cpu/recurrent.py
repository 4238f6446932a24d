"""Run recurrent layers on the CPU. h (T, N, D); W (D, D), for an LSTM (4D, D), its gates i, f, o, g; cont (T, N).

`hidden` is cont_t * h_(t-1): (T, N, D) where backward will need all of it, else (N, D), used again in every step. `add`
is added to the products: (D or 4D), the same for all items, or (N, D or 4D).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...arrays import HostArray
from ..records import LstmState
from .logistic import sigmoid

__all__ = [
    "bias_tanh",
    "lstm_backward",
    "lstm_forward",
    "lstm_unit_backward",
    "lstm_unit_forward",
    "rnn_backward",
    "rnn_forward",
]

_PIECE = 1 << 16  # elements whose temporaries stay in a core's cache


def _without_warnings(function: Callable[..., None]) -> Callable[..., None]:
    """Let `function` run without warnings of infinity and NaN, as in C."""

    @functools.wraps(function)
    def run(*args: Any) -> None:
        with np.errstate(all="ignore"):
            function(*args)

    return run


def _pieces(items: int, width: int) -> list[slice]:
    step = max(1, _PIECE // max(1, width))
    return [slice(n, min(n + step, items)) for n in range(0, items, step)]


def _column(cont: HostArray, rows: slice) -> HostArray:
    return cont[rows, None]


def _activate(x: HostArray, dim: int) -> None:
    """Apply the sigmoid to the first three quarters of the columns and tanh to the last, in place."""
    sigmoids, candidates = x[:, : 3 * dim], x[:, 3 * dim :]
    sigmoid(sigmoids, out=sigmoids)
    np.tanh(candidates, out=candidates)


def _gates(x: HostArray, dim: int) -> Iterator[HostArray]:
    return (x[:, j * dim : (j + 1) * dim] for j in range(4))


def _cell_forward(x: HostArray, c_prev: HostArray, cont: HostArray, c: HostArray, h: HostArray, dim: int) -> None:
    """Compute c = cont f c_prev + i g, h = o tanh(c); x holds the activated gates, c may be c_prev."""
    i, f, o, g = _gates(x, dim)
    work = f * c_prev
    work *= cont
    np.multiply(i, g, out=c)
    c += work
    np.tanh(c, out=work)
    np.multiply(o, work, out=h)


def _cell_backward(
    x: HostArray,
    c_prev: HostArray,
    cont: HostArray,
    dh: HostArray | float,
    dc: HostArray | float,
    dx: HostArray,
    dc_prev: HostArray | None,
    dim: int,
) -> None:
    """Compute the gradients of the gates before activation and of c_prev from those of h and c; dc_prev may be dc."""
    i, f, o, g = _gates(x, dim)
    di, df, do, dg = _gates(dx, dim)
    forget = f * cont
    c = forget * c_prev
    c += i * g
    tanh_c = np.tanh(c, out=c)
    np.multiply(dh * tanh_c, o * (1 - o), out=do)
    dc = dh * o * (1 - tanh_c * tanh_c) + dc
    np.multiply(dc * g, i * (1 - i), out=di)
    np.multiply(dc * c_prev, forget * (1 - f), out=df)
    np.multiply(dc * i, 1 - g * g, out=dg)
    if dc_prev is not None:
        np.multiply(dc, forget, out=dc_prev)


@_without_warnings
def lstm_forward(
    gates: HostArray,
    add: HostArray,
    weight: HostArray,
    cont: HostArray,
    first: LstmState,
    h: HostArray,
    last: LstmState,
    kept: LstmState,
) -> None:
    """Run all time steps of an LSTM.

    gates (T, N, 4D) holds the inputs' share of the gates, and receives the activated gates; h (T, N, D) and `last`
    receive the results. `first` (N D values each) may be `last`. `kept` receives `hidden`, and c_(t-1) or None.
    """
    (h0, c0), (h_last, c_last), (hidden, cells) = first, last, kept
    steps, items, dim = h.shape
    cont, h_last, c_last = cont.reshape(steps, items), h_last.reshape(items, dim), c_last.reshape(items, dim)
    keep = cells is not None
    before, c = (hidden[0], cells[0]) if keep else (hidden, c_last)
    np.multiply(h0.reshape(items, dim), _column(cont[0], slice(None)), out=before)
    np.copyto(c, c0.reshape(items, dim))
    product = np.empty((items, 4 * dim), gates.dtype)
    for t in range(steps):
        np.matmul(before, weight.T, out=product)
        ends = t + 1 == steps
        c_next = cells[t + 1] if keep and not ends else c_last
        before = h_last if ends else hidden[t + 1] if keep else hidden
        for rows in _pieces(items, 4 * dim):
            x, y = gates[t, rows], h[t, rows]
            x += product[rows]
            x += add[rows] if add.ndim == 2 else add
            _activate(x, dim)
            _cell_forward(x, c[rows], _column(cont[t], rows), c_next[rows], y, dim)
            np.multiply(y, 1 if ends else _column(cont[t + 1], rows), out=before[rows])
        c = c_next


@_without_warnings
def lstm_backward(
    gates: HostArray,
    cells: HostArray,
    cont: HostArray,
    weight: HostArray,
    dh: HostArray,
    dgates: HostArray,
    back: LstmState,
    limit: float,
) -> None:
    """Compute dgates (T, N, 4D) from what forward kept and dh; back (N, D each) is workspace.

    limit: above 0, dgates are cut to -limit..limit, step by step.
    """
    dh_prev, carry = back
    steps, items, dim = dh.shape
    cont = cont.reshape(steps, items)
    carry.fill(0)
    for t in reversed(range(steps)):
        last = t + 1 == steps
        if not last:
            np.matmul(dgates[t + 1], weight, out=dh_prev)
        for rows in _pieces(items, 4 * dim):
            d = dh[t, rows] if last else dh[t, rows] + dh_prev[rows] * _column(cont[t + 1], rows)
            k, dc = _column(cont[t], rows), carry[rows]
            _cell_backward(gates[t, rows], cells[t, rows], k, d, dc, dgates[t, rows], dc, dim)
            if limit > 0:
                np.clip(dgates[t, rows], -limit, limit, out=dgates[t, rows])


@_without_warnings
def lstm_unit_forward(c_prev: HostArray, x: HostArray, cont: HostArray, c: HostArray, h: HostArray) -> None:
    """Run one time step from gates x (1, N, 4D) before activation; c_prev (1, N, D)."""
    _, items, dim = c_prev.shape
    c_prev, c, h = (a.reshape(items, dim) for a in (c_prev, c, h))
    for rows in _pieces(items, 4 * dim):
        gates = x.reshape(items, 4 * dim)[rows].copy()
        _activate(gates, dim)
        _cell_forward(gates, c_prev[rows], _column(cont.reshape(items), rows), c[rows], h[rows], dim)


@_without_warnings
def lstm_unit_backward(
    c_prev: HostArray,
    x: HostArray,
    cont: HostArray,
    dc: HostArray | None,
    dh: HostArray | None,
    dc_prev: HostArray | None,
    dx: HostArray | None,
) -> None:
    """Compute the gradients of c_prev and x. dc or dh may be None (zero), dc_prev or dx too (not wanted)."""
    _, items, dim = c_prev.shape
    for rows in _pieces(items, 4 * dim):
        gates = x.reshape(items, 4 * dim)[rows].copy()
        _activate(gates, dim)
        given = [0.0 if d is None else d.reshape(items, dim)[rows] for d in (dh, dc)]
        to_x = np.empty_like(gates) if dx is None else dx.reshape(items, 4 * dim)[rows]
        to_c = None if dc_prev is None else dc_prev.reshape(items, dim)[rows]
        k = _column(cont.reshape(items), rows)
        _cell_backward(gates, c_prev.reshape(items, dim)[rows], k, *given, to_x, to_c, dim)


@_without_warnings
def rnn_forward(
    states: HostArray,
    add: HostArray,
    weight: HostArray,
    cont: HostArray,
    h0: HostArray,
    h_last: HostArray,
    hidden: HostArray,
) -> None:
    """Run all time steps of an RNN.

    states (T, N, D) holds the inputs' share of the sums, and receives h; h_last receives the last of them and may be
    h0.
    """
    steps, items, dim = states.shape
    cont, h_last = cont.reshape(steps, items), h_last.reshape(items, dim)
    keep = hidden.ndim == 3
    before = hidden[0] if keep else hidden
    np.multiply(h0.reshape(items, dim), _column(cont[0], slice(None)), out=before)
    product = np.empty((items, dim), states.dtype)
    for t in range(steps):
        np.matmul(before, weight.T, out=product)
        last = t + 1 == steps
        before = h_last if last else hidden[t + 1] if keep else hidden
        for rows in _pieces(items, dim):
            x = states[t, rows]
            x += product[rows]
            x += add[rows] if add.ndim == 2 else add
            np.tanh(x, out=x)
            np.multiply(x, 1 if last else _column(cont[t + 1], rows), out=before[rows])


@_without_warnings
def rnn_backward(states: HostArray, cont: HostArray, weight: HostArray, dstates: HostArray, back: HostArray) -> None:
    """Compute the gradients of the sums within tanh.

    dstates (T, N, D) holds the outputs' share of the gradients of h, and receives the result; back (N, D) is workspace.
    """
    steps, items, dim = states.shape
    cont = cont.reshape(steps, items)
    for t in reversed(range(steps)):
        if t + 1 < steps:
            np.matmul(dstates[t + 1], weight, out=back)
            back *= _column(cont[t + 1], slice(None))
            dstates[t] += back
        for rows in _pieces(items, dim):
            y, d = states[t, rows], dstates[t, rows]
            d *= 1 - y * y


@_without_warnings
def bias_tanh(y: HostArray, b: HostArray) -> None:
    """Compute y = tanh(y + b), b along the last axis."""
    y = y.reshape(-1, b.size)
    for rows in _pieces(*y.shape):
        x = y[rows]
        x += b
        np.tanh(x, out=x)
