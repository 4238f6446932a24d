"""CUDA C++ kernels without barriers, compiled by the host's C++ compiler and run thread after thread."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np

from pycaffe_lms.backend.cuda import prelude

COMPILER = shutil.which("g++") or shutil.which("clang++")

_LANGUAGE = """
#include <cmath>
#include <cstring>
using std::sqrt;
#define __global__
#define __device__
#define __launch_bounds__(n)
struct Dim { int x; };
static Dim blockIdx, threadIdx, blockDim, gridDim;
static float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static double __dadd_rn(double a, double b) { return a + b; }
static float __fsqrt_rn(float a) { return sqrtf(a); }
static float __int_as_float(int bits) { float f; std::memcpy(&f, &bits, 4); return f; }
static int __float_as_int(float f) { int bits; std::memcpy(&bits, &f, 4); return bits; }
static double __longlong_as_double(long long bits) { double d; std::memcpy(&d, &bits, 8); return d; }
"""
_TYPES = {int: ctypes.c_longlong, float: ctypes.c_double}


class Kernels:
    """The kernels of some sources, compiled for one type. sources: name -> source, each with the one kernel `name`."""

    def __init__(self, folder, dtype, sources: dict[str, str]):
        ctype = {"float32": "float", "float64": "double"}[np.dtype(dtype).name]
        text = _LANGUAGE + prelude(np.dtype(dtype).name)
        for name, source in sources.items():
            text += f"namespace in_{name} {{\n{source}\n}}\n"
        text += """
extern "C" void at(int b, int t, int blocks, int threads) {
  blockIdx.x = b; threadIdx.x = t; gridDim.x = blocks; blockDim.x = threads;
}
"""
        path, library = folder / f"{ctype}.cpp", folder / f"{ctype}.so"
        path.write_text(text)
        # Nothing may be contracted but what is written so: then a GPU's bits are these.
        flags = ["-std=c++14", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC"]
        subprocess.run([COMPILER, *flags, "-o", library, path], check=True, capture_output=True)
        self._library = ctypes.CDLL(str(library))

    def run(self, name: str, grid: int, block: int, *args) -> None:
        """Every thread of a launch. args: arrays, ints and floats, as `backend.cuda.launch` takes them."""
        given = [a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else _TYPES[type(a)](a) for a in args]
        function = getattr(self._library, name)
        for b in range(grid):
            for t in range(block):
                self._library.at(b, t, grid, block)
                function(*given)
