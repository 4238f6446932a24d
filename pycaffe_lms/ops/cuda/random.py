"""Fill arrays with random numbers that are a function of a key and of the element's place, the same on every device.

The words are Philox's, as in `activation/dropout.py` with its `key`: element i takes lane i % 4 of block key[2] + i //
4. Values are computed in float32, whatever the type of the array. Products and sums are intrinsics, so that no compiler
contracts them: each is rounded by itself, as on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...arrays import AnyArray
from ...backend.cuda import launch
from ..normal_numbers import ANGLE, COS, LN2, LOG, SIN, SQRT_HALF_BITS
from .activation.dropout import PHILOX
from .elementwise import elementwise, run
from .source import BLOCK_SUM

__all__ = ["random_gaussian", "random_uniform", "random_unit_rows"]


def _literal(value: np.float32) -> str:
    return f"{float(value):.9e}f"  # ten digits say which float32 it is


def _polynomial(coefficients: Sequence[np.float32], x: str) -> str:
    """Return the text of a polynomial in x by Horner's rule, from the highest power on."""
    text = _literal(coefficients[0])
    for coefficient in coefficients[1:]:
        text = f"__fadd_rn(__fmul_rn({text}, {x}), {_literal(coefficient)})"
    return text


_NORMAL = f"""
// two normal variates, z[0] and z[1], of two random words
__device__ void normal_pair(unsigned a, unsigned b, float* z) {{
  const float step = {_literal(np.float32(2.0**-32))}, share = __fadd_rn(__fmul_rn((float)a, step), 0.5f * step);
  const int share_bits = __float_as_int(share);
  const int exponent = (share_bits - {SQRT_HALF_BITS}) >> 23;
  const float x = __fadd_rn(__int_as_float(share_bits - exponent * (1 << 23)), -1.0f), e = (float)exponent;
  const float x2 = __fmul_rn(x, x);
  float p = {_polynomial(LOG, "x")};
  p = __fadd_rn(__fmul_rn(__fmul_rn(p, x), x2), __fmul_rn({_literal(LN2[1])}, e));
  p = __fadd_rn(p, -__fmul_rn(0.5f, x2));
  const float log = __fadd_rn(__fadd_rn(x, p), __fmul_rn({_literal(LN2[0])}, e));
  float radius = __fsqrt_rn(__fmul_rn(-2.0f, log));
  const float t = __fmul_rn((float)(int)(b << 2), {_literal(ANGLE)}), t2 = __fmul_rn(t, t);
  const float s = __fadd_rn(__fmul_rn(__fmul_rn({_polynomial(SIN, "t2")}, t2), t), t);
  float c = __fmul_rn(__fmul_rn({_polynomial(COS, "t2")}, t2), t2);
  c = __fadd_rn(__fadd_rn(c, -__fmul_rn(0.5f, t2)), 1.0f);
  if (b & 1u << 30) radius = -radius;
  const bool swap = b >> 31;
  z[0] = __fmul_rn(radius, swap ? s : c);
  z[1] = __fmul_rn(radius, swap ? c : s);
}}
"""
_SETUP = "const unsigned long long seed = key[0], offset = key[1], first_block = key[2];"
_WORDS = """
    const long long block = (long long)first_block + first / 4;
    unsigned c[4] = {(unsigned)block, (unsigned)(block >> 32), (unsigned)offset, (unsigned)(offset >> 32)};
    philox(c, (unsigned)seed, (unsigned)(seed >> 32));
"""

_UNIFORM = elementwise(
    "random_uniform",
    f"""
    const float unit = __fmul_rn((float)(c[lane] >> 8), {_literal(np.float32(2.0**-24))});
    const float value = __fadd_rn(__fmul_rn(unit, (float)span), (float)low);
    y = value < (float)high ? value : (float)high;
    """,
    writes="y",
    params="const unsigned long long* key, double low, double high, double span",
    setup=_SETUP,
    each=_WORDS,
    helpers=PHILOX,
)
_GAUSSIAN = elementwise(
    "random_gaussian",
    "y = __fadd_rn(__fmul_rn(z[lane], (float)deviation), (float)mean);",
    writes="y",
    params="const unsigned long long* key, double mean, double deviation",
    setup=_SETUP,
    each=_WORDS + "float z[4];\n    normal_pair(c[0], c[1], z);\n    normal_pair(c[2], c[3], z + 2);\n",
    helpers=PHILOX + _NORMAL,
)
_UNIT_ROWS = (
    BLOCK_SUM
    + """
extern "C" __global__ void unit_rows(T* y, long long size) {
  T* row = y + blockIdx.x * size;
  double sum = 0;  // of multiples of 2^-24: no partial sum is rounded
  for (long long i = threadIdx.x; i < size; i += 256) sum += 1.0 - (double)row[i];
  const float total = (float)block_sum(sum);
  for (long long i = threadIdx.x; i < size; i += 256) row[i] = (T)__fdiv_rn(__fadd_rn(1.0f, -(float)row[i]), total);
}
"""
)


def random_uniform(y: AnyArray, key: AnyArray, low: float, high: float) -> None:
    """Draw every element of y from the uniform distribution between low and high, both included."""
    ends = np.float32(low), np.float32(high)
    run(_UNIFORM, "random_uniform", (y,), key, *map(float, (*ends, ends[1] - ends[0])))


def random_gaussian(y: AnyArray, key: AnyArray, mean: float, std: float) -> None:
    """Draw every element of y from the normal distribution; see `ops/normal_numbers.py`."""
    run(_GAUSSIAN, "random_gaussian", (y,), key, float(mean), float(std))


def random_unit_rows(y: AnyArray, key: AnyArray, rows: int) -> None:
    """Draw numbers in (0, 1] and divide each of the `rows` equal parts of y by its sum, which is exact."""
    random_uniform(y, key, 0.0, 1.0)
    if y.size:
        launch(_UNIT_ROWS, "unit_rows", y.dtype, 0, y, y.size // rows, block=256, grid=rows)
