"""Run recurrent layers on a GPU. h (T, N, D); W (D, D), for an LSTM (4D, D), its gates i, f, o, g; cont (T, N).

`hidden` is cont_t * h_(t-1): (T, N, D) where backward will need all of it, else (N, D), used again in every step. `add`
is added to the products: (D or 4D), the same for all items, or (N, D or 4D). Every time step is two launches: a
product, and one kernel for all that is done element by element.
"""

from __future__ import annotations

from ...arrays import AnyArray
from ...backend import cuda
from ..records import LstmState
from .logistic import SIGMOID

__all__ = [
    "bias_tanh",
    "lstm_backward",
    "lstm_forward",
    "lstm_unit_backward",
    "lstm_unit_forward",
    "rnn_backward",
    "rnn_forward",
]

_CELL = (
    SIGMOID
    + """
struct Cell { A i, f, o, g; };  // gates after activation

__device__ Cell activate(A i, A f, A o, A g) { return {sigmoid(i), sigmoid(f), sigmoid(o), tanh(g)}; }

__device__ A next_cell(const Cell& x, A c_prev, A cont) { return cont * x.f * c_prev + x.i * x.g; }

// from the gradients of h and c to those of the gates before activation, and of c_prev
__device__ Cell cell_gradient(const Cell& x, A c_prev, A cont, A dh, A dc, A* dc_prev) {
  const A tanh_c = tanh(next_cell(x, c_prev, cont));
  dc += dh * x.o * (1 - tanh_c * tanh_c);
  *dc_prev = dc * cont * x.f;
  return {dc * x.g * x.i * (1 - x.i), dc * cont * c_prev * x.f * (1 - x.f), dh * tanh_c * x.o * (1 - x.o),
          dc * x.i * (1 - x.g * x.g)};
}
"""
)

_START = """
// hidden = cont * h0; c = c0 unless there is none
extern "C" __global__ void start(const T* h0, const T* c0, const T* cont, T* hidden, T* c, long long items,
                                 long long dim, long long cells) {
  LOOP(j, items * dim) {
    hidden[j] = cont[(unsigned)j / (unsigned)dim] * h0[j];
    if (cells) c[j] = c0[j];
  }
}
"""

_LSTM = (
    _CELL
    + _START
    + """
extern "C" __global__ void lstm_step(T* gates, const T* add, const T* cont, T* cells, T* hidden, T* h, T* h_last,
                                     T* c_last, long long t, long long steps, long long items, long long dim,
                                     long long add_per_item, long long keep) {
  const bool last = t + 1 == steps;
  const long long size = items * dim;
  const T* c_prev = keep ? cells + t * size : c_last;
  T* c = keep && !last ? cells + (t + 1) * size : c_last;
  T* before = last ? h_last : keep ? hidden + (t + 1) * size : hidden;
  LOOP(j, size) {
    const long long n = (unsigned)j / (unsigned)dim, d = j - n * dim;
    T* x = gates + (t * items + n) * 4 * dim + d;
    const T* b = add + (add_per_item ? n * 4 * dim : 0) + d;
    const Cell a = activate((A)x[0] + b[0], (A)x[dim] + b[dim], (A)x[2 * dim] + b[2 * dim], (A)x[3 * dim] + b[3 * dim]);
    const A c_new = next_cell(a, c_prev[j], cont[t * items + n]);
    const A y = a.o * tanh(c_new);
    if (keep) { x[0] = a.i; x[dim] = a.f; x[2 * dim] = a.o; x[3 * dim] = a.g; }
    c[j] = c_new;
    h[t * size + j] = y;
    before[j] = last ? y : y * cont[(t + 1) * items + n];
  }
}

__device__ A cut(A x, A most) { return x > most ? most : x < -most ? -most : x; }

extern "C" __global__ void lstm_step_backward(const T* gates, const T* cells, const T* cont, const T* dh, const T* back,
                                              T* dgates, T* carry, long long t, long long steps, long long items,
                                              long long dim, double limit) {
  const A most = limit;
  const bool last = t + 1 == steps;
  const long long size = items * dim;
  LOOP(j, size) {
    const long long n = (unsigned)j / (unsigned)dim, d = j - n * dim, first = (t * items + n) * 4 * dim + d;
    const T* x = gates + first;
    T* dx = dgates + first;
    const A d_h = last ? (A)dh[t * size + j] : dh[t * size + j] + back[j] * (A)cont[(t + 1) * items + n];
    const A d_c = last ? (A)0 : (A)carry[j];
    A dc_prev;
    Cell g = cell_gradient({x[0], x[dim], x[2 * dim], x[3 * dim]}, cells[t * size + j], cont[t * items + n], d_h, d_c,
                           &dc_prev);
    if (limit > 0) g = {cut(g.i, most), cut(g.f, most), cut(g.o, most), cut(g.g, most)};
    dx[0] = g.i; dx[dim] = g.f; dx[2 * dim] = g.o; dx[3 * dim] = g.g;
    carry[j] = dc_prev;
  }
}
"""
)

_UNIT = (
    _CELL
    + """
extern "C" __global__ void unit(const T* c_prev, const T* x, const T* cont, T* c, T* h, long long items,
                                long long dim) {
  LOOP(j, items * dim) {
    const long long n = (unsigned)j / (unsigned)dim;
    const T* p = x + n * 3 * dim + j;
    const Cell a = activate(p[0], p[dim], p[2 * dim], p[3 * dim]);
    const A c_new = next_cell(a, c_prev[j], cont[n]);
    c[j] = c_new;
    h[j] = a.o * tanh(c_new);
  }
}

// `given` has bit 0 for dc and bit 1 for dh, `wanted` bit 0 for dc_prev and bit 1 for dx
extern "C" __global__ void unit_backward(const T* c_prev, const T* x, const T* cont, const T* dc, const T* dh,
                                         T* dc_prev, T* dx, long long items, long long dim, long long given,
                                         long long wanted) {
  LOOP(j, items * dim) {
    const long long n = (unsigned)j / (unsigned)dim, first = n * 3 * dim + j;
    const T* p = x + first;
    A d_prev;
    const Cell g = cell_gradient(activate(p[0], p[dim], p[2 * dim], p[3 * dim]), c_prev[j], cont[n],
                                 given & 2 ? (A)dh[j] : (A)0, given & 1 ? (A)dc[j] : (A)0, &d_prev);
    if (wanted & 1) dc_prev[j] = d_prev;
    if (wanted & 2) {
      T* q = dx + first;
      q[0] = g.i; q[dim] = g.f; q[2 * dim] = g.o; q[3 * dim] = g.g;
    }
  }
}
"""
)

_RNN = (
    _START
    + """
extern "C" __global__ void rnn_step(T* states, const T* add, const T* cont, T* next, long long t, long long steps,
                                    long long items, long long dim, long long add_per_item) {
  const bool last = t + 1 == steps;
  T* x = states + t * items * dim;
  LOOP(j, items * dim) {
    const long long n = (unsigned)j / (unsigned)dim;
    const A y = tanh((A)x[j] + add[add_per_item ? j : j - n * dim]);
    x[j] = y;
    next[j] = last ? y : y * cont[(t + 1) * items + n];
  }
}

extern "C" __global__ void rnn_step_backward(const T* states, const T* cont, const T* back, T* dstates, long long t,
                                             long long steps, long long items, long long dim) {
  const bool last = t + 1 == steps;
  const long long start = t * items * dim;
  LOOP(j, items * dim) {
    const A y = states[start + j];
    A d = dstates[start + j];
    if (!last) d += back[j] * (A)cont[(t + 1) * items + (unsigned)j / (unsigned)dim];
    dstates[start + j] = d * (1 - y * y);
  }
}

extern "C" __global__ void bias_tanh(T* y, const T* b, long long n, long long dim) {
  LOOP(i, n) y[i] = tanh((A)y[i] + b[i % dim]);
}
"""
)


def lstm_forward(
    gates: AnyArray,
    add: AnyArray,
    weight: AnyArray,
    cont: AnyArray,
    first: LstmState,
    h: AnyArray,
    last: LstmState,
    kept: LstmState,
) -> None:
    """Run all time steps of an LSTM."""
    (h0, c0), (h_last, c_last), (hidden, cells) = first, last, kept
    steps, items, dim = h.shape
    size, keep = items * dim, cells is not None
    cell = cells if keep else c_last
    cuda.launch(_LSTM, "start", h.dtype, size, h0, c0, cont, hidden, cell, items, dim, 1)
    for t in range(steps):
        before = hidden[t] if keep else hidden
        cuda.gemm(False, True, items, 4 * dim, dim, 1.0, before, weight, 1.0, gates[t])
        arrays = (gates, add, cont, cell, hidden, h, h_last, c_last)
        cuda.launch(_LSTM, "lstm_step", h.dtype, size, *arrays, t, steps, items, dim, int(add.ndim == 2), int(keep))


def lstm_backward(
    gates: AnyArray,
    cells: AnyArray,
    cont: AnyArray,
    weight: AnyArray,
    dh: AnyArray,
    dgates: AnyArray,
    back: LstmState,
    limit: float,
) -> None:
    """Compute dgates (T, N, 4D) from what forward kept and dh; back (N, D each) is workspace."""
    steps, items, dim = dh.shape
    arrays = (gates, cells, cont, dh, back.h, dgates, back.c)
    for t in reversed(range(steps)):
        if t + 1 < steps:
            cuda.gemm(False, False, items, dim, 4 * dim, 1.0, dgates[t + 1], weight, 0.0, back.h)
        cuda.launch(_LSTM, "lstm_step_backward", dh.dtype, items * dim, *arrays, t, steps, items, dim, float(limit))


def lstm_unit_forward(c_prev: AnyArray, x: AnyArray, cont: AnyArray, c: AnyArray, h: AnyArray) -> None:
    """Run one time step from gates x (1, N, 4D) before activation; c_prev (1, N, D)."""
    _, items, dim = c_prev.shape
    cuda.launch(_UNIT, "unit", c.dtype, items * dim, c_prev, x, cont, c, h, items, dim)


def lstm_unit_backward(
    c_prev: AnyArray,
    x: AnyArray,
    cont: AnyArray,
    dc: AnyArray | None,
    dh: AnyArray | None,
    dc_prev: AnyArray | None,
    dx: AnyArray | None,
) -> None:
    """Compute the gradients of c_prev and x. dc or dh may be None (zero), dc_prev or dx too (not wanted)."""
    _, items, dim = c_prev.shape
    given = (dc is not None) + 2 * (dh is not None)
    wanted = (dc_prev is not None) + 2 * (dx is not None)
    arrays = [x if a is None else a for a in (dc, dh, dc_prev, dx)]  # the kernel does not touch x where it stands in
    size = items * dim
    cuda.launch(_UNIT, "unit_backward", x.dtype, size, c_prev, x, cont, *arrays, items, dim, given, wanted)


def rnn_forward(
    states: AnyArray, add: AnyArray, weight: AnyArray, cont: AnyArray, h0: AnyArray, h_last: AnyArray, hidden: AnyArray
) -> None:
    """Run all time steps of an RNN."""
    steps, items, dim = states.shape
    size, keep, dtype = items * dim, hidden.ndim == 3, states.dtype
    cuda.launch(_RNN, "start", dtype, size, h0, h0, cont, hidden, hidden, items, dim, 0)
    for t in range(steps):
        before = hidden[t] if keep else hidden
        cuda.gemm(False, True, items, dim, dim, 1.0, before, weight, 1.0, states[t])
        following = h_last if t + 1 == steps else hidden[t + 1] if keep else hidden
        per_item = int(add.ndim == 2)
        cuda.launch(_RNN, "rnn_step", dtype, size, states, add, cont, following, t, steps, items, dim, per_item)


def rnn_backward(states: AnyArray, cont: AnyArray, weight: AnyArray, dstates: AnyArray, back: AnyArray) -> None:
    """Compute the gradients of the sums within tanh."""
    steps, items, dim = states.shape
    for t in reversed(range(steps)):
        if t + 1 < steps:
            cuda.gemm(False, False, items, dim, dim, 1.0, dstates[t + 1], weight, 0.0, back)
        cuda.launch(
            _RNN, "rnn_step_backward", states.dtype, items * dim, states, cont, back, dstates, t, steps, items, dim
        )


def bias_tanh(y: AnyArray, b: AnyArray) -> None:
    """Compute y = tanh(y + b), b along the last axis."""
    cuda.launch(_RNN, "bias_tanh", y.dtype, y.size, y, b, y.size, b.size)
