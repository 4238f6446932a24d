"""Compute GELU, and gated units: an activation of one array times another array."""

from __future__ import annotations

import functools
from typing import Any

from ....arrays import AnyArray
from ....backend.cuda import launch
from ..elementwise import elementwise, of_values, run
from ..logistic import SIGMOID
from ..packs import PACK, packs_of
from ..source import DIVIDE, divider

__all__ = ["gated_unit_backward", "gated_unit_forward", "gelu_backward", "gelu_forward"]

# 1.59...: sqrt(8 / pi); beyond 20 the slope is 0 or 1 in float64 too. normal_share: Phi(x). With bfloat16 erfc would
# take longer than the memory: Phi(-a) = exp(-a^2 / 2) R(1 / (1 + 0.37 a)), with a polynomial R that was fitted for this
# file over a = 0 to 20; its relative error, 2e-5, is a hundredth of what rounding to bfloat16 may change.
_FUNCTIONS = SIGMOID + of_values("""
#ifdef BF16
__device__ inline float bell(float x) { return __expf(-0.5f * x * x); }
__device__ inline float normal_share(float x) {
  const float t = __fdividef(1.0f, 1 + 0.37f * fabsf(x));
  const float r = 6.935832e-5f + t * (0.14599076f + t * (0.1619539f + t * (0.065780446f + t * (0.22074483f
                  - t * 0.09454967f))));
  const float tail = bell(x) * r;
  return x < 0 ? tail : 1 - tail;
}
#else
__device__ inline T bell(T x) { return exp((T)-0.5 * x * x); }
__device__ inline T normal_share(T x) { return (T)0.5 * erfc(-x * (T)0.70710678118654752440); }
#endif
__device__ inline T gelu(T x) { return x * normal_share(x); }
__device__ inline T gelu_slope(T x) { return normal_share(x) + x * bell(x) * (T)0.39894228040143267794; }
__device__ inline T gelu_tanh(T x) {
  return x * sigmoid((T)1.5957691216057307118 * (x + (T)0.044715 * x * x * x));
}
__device__ inline T slope_of(T u, T x, T rise) {  // of x * sigmoid(u), where u has the slope `rise`
  const T e = exp(u > 50 ? (T)50 : u), rest = 1 / (e + 1);  // rest: 1 - s, without the difference
  return e * rest * (1 + x * rest * rise);
}
__device__ inline T gelu_tanh_slope(T x) {
  const T v = x < -20 ? (T)-20 : x > 20 ? (T)20 : x;
  return slope_of((T)1.5957691216057307118 * (v + (T)0.044715 * v * v * v), v,
                  (T)1.5957691216057307118 * (1 + (T)0.134145 * v * v));
}
__device__ inline T silu(T x) { return x * sigmoid(x); }
__device__ inline T silu_slope(T x) {
  const T v = x > 50 ? (T)50 : x;
  return slope_of(v, v, (T)1);
}
__device__ inline T sigmoid_slope(T x) {
  const T e = exp(x > 50 ? (T)50 : x), rest = 1 / (e + 1);
  return e * rest * rest;
}
""")

# STRIDE packs from row to row of the gate and the value
_GATED = """
#define PAIR(i) \\
    const long long row = quotient(i, inner, magic, shift), at = i + row * (stride - inner); \\
    const Values a = ((const Values*)gate)[at], b = ((const Values*)value)[at]
extern "C" __global__ void gated_forward(const T* gate, const T* value, T* y, long long n, long long stride,
                                         long long inner, long long magic, long long shift) {
  LOOP(i, n) {
    PAIR(i);
    Values out;
    #pragma unroll
    for (int j = 0; j < N; ++j) out.v[j] = (T)(ACTIVATION((C)a.v[j]) * (C)b.v[j]);
    ((Values*)y)[i] = out;
  }
}
extern "C" __global__ void gated_backward(const T* gate, const T* value, const T* dy, T* dgate, T* dvalue,
                                          long long n, long long stride, long long wants_gate, long long wants_value,
                                          long long inner, long long magic, long long shift) {
  LOOP(i, n) {
    PAIR(i);
    const Values g = ((const Values*)dy)[i];
    Values da, db;
    #pragma unroll
    for (int j = 0; j < N; ++j) {
      da.v[j] = (T)((C)g.v[j] * (C)b.v[j] * ACTIVATION_SLOPE((C)a.v[j]));
      db.v[j] = (T)((C)g.v[j] * ACTIVATION((C)a.v[j]));
    }
    if (wants_gate) ((Values*)dgate)[at] = da;
    if (wants_value) ((Values*)dvalue)[at] = db;
  }
}
"""


@functools.cache
def _gelu(name: str, backward: bool) -> str:
    if backward:
        return elementwise("backward", f"dx = dy * {name}_slope(x);", reads="x, dy", writes="dx", helpers=_FUNCTIONS)
    return elementwise("forward", f"y = {name}(x);", reads="x", writes="y", helpers=_FUNCTIONS)


@functools.cache
def _gated(activation: str, n: int) -> str:
    name = activation.lower()
    macros = f"#define N {n}\n#define ACTIVATION {name}\n#define ACTIVATION_SLOPE {name}_slope\n"
    return macros + PACK + DIVIDE + _FUNCTIONS + _GATED


def gelu_forward(x: AnyArray, y: AnyArray, tanh: bool) -> None:
    """Compute y = x * Phi(x), Phi being the normal distribution's; `tanh`: approximated by a tanh. y may be x."""
    run(_gelu("gelu_tanh" if tanh else "gelu", False), "forward", (x, y))


def gelu_backward(x: AnyArray, dy: AnyArray, dx: AnyArray, tanh: bool) -> None:
    """Compute dx = dy * (slope of `gelu_forward` at x); dx may be dy."""
    run(_gelu("gelu_tanh" if tanh else "gelu", True), "backward", (x, dy, dx))


def gated_unit_forward(
    gate: AnyArray, value: AnyArray | None, y: AnyArray, activation: str, outer: int, inner: int
) -> None:
    """Compute y = activation(gate) * value, all (outer, inner); activation: SILU, GELU, GELU_TANH or SIGMOID."""
    pair = (gate, value) if value is not None else _halves(gate, inner)
    _run("gated_forward", (*pair, y), activation, (outer, inner, value is None))


def gated_unit_backward(
    gate: AnyArray,
    value: AnyArray | None,
    dy: AnyArray,
    dgate: AnyArray | None,
    dvalue: AnyArray | None,
    activation: str,
    outer: int,
    inner: int,
) -> None:
    """Compute dvalue = dy * activation(gate) and dgate = dy * value * (slope of the activation); each may be None."""
    pair, gradients = (gate, value), (dgate, dvalue)
    if value is None:
        pair, gradients = _halves(gate, inner), _halves(dgate, inner)
    wants = (int(g is not None) for g in gradients)
    arrays = (*pair, dy, *(dy if g is None else g for g in gradients))
    _run("gated_backward", arrays, activation, (outer, inner, value is None), *wants)


def _halves(both: AnyArray, inner: int) -> tuple[AnyArray, AnyArray]:
    """Return arrays that begin where the first gate and the first value are."""
    flat = both.reshape(-1)
    return flat, flat[inner:]


def _run(name: str, arrays: tuple[AnyArray, ...], activation: str, size: tuple[int, int, bool], *wants: Any) -> None:
    outer, inner, halves = size
    if outer * inner == 0:
        return
    n = packs_of(inner, *arrays)
    packs, width = outer * inner // n, inner // n
    args = (packs, width * (2 if halves else 1), *wants, *divider(width, packs))
    launch(_gated(activation, n), name, arrays[0].dtype, packs, *arrays, *args)
