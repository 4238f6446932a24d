"""Define the types of CUDA C++ sources: the text before every kernel."""

from __future__ import annotations

# dtype of the arrays -> (T, A, C)
_TYPES = {
    "float32": ("float", "float", "float"),
    "float64": ("double", "double", "double"),
    "int32": ("int", "float", "int"),
    "uint16": ("bf16", "float", "float"),
}

# The conversion is PTX because kernels are compiled to flush subnormal floats, in conversions too.
_BF16 = """
#define BF16
struct bf16 {
  unsigned short bits;
  bf16() = default;
  __device__ bf16(float v) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v)); }
  __device__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};
"""
_PRELUDE = """
typedef {data} T;  // of the arrays
typedef {sum} A;  // of sums
typedef {value} C;  // of one value that is worked on, and of parameters: T, but float where T is bf16
#define LOOP(i, n) for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (n); \\
                        i += (long long)gridDim.x * blockDim.x)
"""


def prelude(dtype: str) -> str:
    """Return the text before kernels for arrays of a NumPy type, by its name; "uint16" is bfloat16."""
    data, total, value = _TYPES[dtype]
    return (_BF16 if data == "bf16" else "") + _PRELUDE.format(data=data, sum=total, value=value)
