"""Convert values to 16 bits and back, for copies that may lose digits, on a GPU. Rules: `ops/cpu/half.py`."""

from __future__ import annotations

from ...arrays import AnyArray
from .elementwise import elementwise, run

__all__ = ["from_half", "to_half"]

# kernels are compiled to flush subnormal floats to zero, even in conversions; conversions written as PTX do not
_TYPES = """typedef unsigned short H;
__device__ float narrow(float v) { return v; }
__device__ float narrow(double v) { float f; asm("cvt.rn.f32.f64 %0, %1;" : "=f"(f) : "d"(v)); return f; }
__device__ void widen(float f, float& x) { x = f; }
__device__ void widen(float f, double& x) { asm("cvt.f64.f32 %0, %1;" : "=d"(x) : "f"(f)); }
"""
_TO_FP16 = """
  float value = narrow(x);
  const float size = fabsf(value);
  if (size > 65504.0f && size <= 3.402823466e+38f) {
    value = copysignf(65504.0f, value);
    atomicAdd(saturated, 1ull);  // rare, or training is lost anyway
  }
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
"""
_TO_BF16 = """
  const float value = narrow(x);
  const unsigned bits = __float_as_uint(value);
  const unsigned rounded = value != value ? bits | 0x400000u : bits + (0x7fffu + (bits >> 16 & 1u));
  half = (H)(rounded >> 16);
"""
_FROM_FP16 = """
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  T wide;
  widen(value, wide);
  x = wide;
"""
_FROM_BF16 = "T wide; widen(__uint_as_float((unsigned)half << 16), wide); x = wide;"


def _to(body: str, params: str) -> str:
    # past the end a thread repeats the last element, which must not be counted again
    guarded = f"if (first + lane < n) {{ {body} }}"
    return elementwise("to_half", guarded, reads="x", writes="H half", params=params, helpers=_TYPES)


_TO = {kind: _to(body, "unsigned long long* saturated") for kind, body in (("fp16", _TO_FP16), ("bf16", _TO_BF16))}
_FROM = {
    kind: elementwise("from_half", body, reads="H half", writes="x", helpers=_TYPES)
    for kind, body in (("fp16", _FROM_FP16), ("bf16", _FROM_BF16))
}


def to_half(x: AnyArray, half: AnyArray, kind: str, saturated: AnyArray) -> None:
    """Write the values of x in 16 bits to half (uint16)."""
    run(_TO[kind], "to_half", (x, half), saturated)


def from_half(half: AnyArray, x: AnyArray, kind: str) -> None:
    """Write the values of half (uint16) to x."""
    run(_FROM[kind], "from_half", (half, x), dtype=x.dtype)
