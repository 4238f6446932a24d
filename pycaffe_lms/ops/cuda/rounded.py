"""Hold arithmetic of CUDA kernels of which every step is rounded by itself, as on the CPU."""

from __future__ import annotations

# A compiler may join a product and a sum into one rounding (FMA), but never these.
ROUNDED = """
__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double times(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double plus(double a, double b) { return __dadd_rn(a, b); }
__device__ inline float share(float a, float b) { return __fdiv_rn(a, b); }
__device__ inline double share(double a, double b) { return __ddiv_rn(a, b); }
"""
