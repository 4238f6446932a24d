"""CUDA C++ kernels, compiled by the host's C++ compiler and run thread after thread, from barrier to barrier."""

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
#include <utility>
#include <vector>
#include <ucontext.h>
using std::sqrt;
#define __global__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
struct Dim { int x; };
static Dim blockIdx, threadIdx, blockDim, gridDim;
static float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
static double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
static float __fmul_rn(float a, float b) { return a * b; }
static double __dmul_rn(double a, double b) { return a * b; }
static float __fadd_rn(float a, float b) { return a + b; }
static double __dadd_rn(double a, double b) { return a + b; }
#define __expf expf
static float __fdividef(float a, float b) { return a / b; }
static float __fdiv_rn(float a, float b) { return a / b; }
static double __ddiv_rn(double a, double b) { return a / b; }
static float __fsqrt_rn(float a) { return sqrtf(a); }
static float __int_as_float(int bits) { float f; std::memcpy(&f, &bits, 4); return f; }
static int __float_as_int(float f) { int bits; std::memcpy(&bits, &f, 4); return bits; }
static float __uint_as_float(unsigned bits) { float f; std::memcpy(&f, &bits, 4); return f; }
static unsigned short bfloat16_bits(float f) {  // to nearest, ties to even
  unsigned bits;
  std::memcpy(&bits, &f, 4);
  return std::isnan(f) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
static double __longlong_as_double(long long bits) { double d; std::memcpy(&d, &bits, 8); return d; }
static long long __double_as_longlong(double d) { long long bits; std::memcpy(&bits, &d, 8); return bits; }
static int atomicAdd(int* p, int v) { const int old = *p; *p += v; return old; }  // threads take turns

// Threads of a block take turns: each runs to the next barrier. All must meet the same barriers, or have returned.
static ucontext_t scheduler, turns[1024];
static double told[1024];
static void __syncthreads() { swapcontext(&turns[threadIdx.x], &scheduler); }
template <typename V> V __shfl_xor_sync(unsigned, V value, int mask) {
  told[threadIdx.x] = value;
  __syncthreads();
  const V result = told[threadIdx.x ^ mask];
  __syncthreads();
  return result;
}
static int __syncthreads_or(int value) {
  told[threadIdx.x] = value;
  __syncthreads();
  int any = 0;
  for (int t = 0; t < blockDim.x; t++) any |= told[t] != 0;
  __syncthreads();
  return any;
}
template <typename... P, size_t... I> void call(void (*kernel)(P...), void** args, std::index_sequence<I...>) {
  kernel(*(P*)args[I]...);
}
template <typename... P> struct Launch {
  static void (*kernel)(P...);
  static void** args;
  static bool done[1024];
  static void thread() {
    call(kernel, args, std::index_sequence_for<P...>());
    done[threadIdx.x] = true;
  }
};
template <typename... P> void (*Launch<P...>::kernel)(P...);
template <typename... P> void** Launch<P...>::args;
template <typename... P> bool Launch<P...>::done[1024];
template <typename... P> void launch(void (*kernel)(P...), int grid, int block, bool barriers, void** args) {
  enum { STACK = 1 << 16 };
  static std::vector<char> stacks(1024 * STACK);
  Launch<P...>::kernel = kernel;
  Launch<P...>::args = args;
  gridDim.x = grid;
  blockDim.x = block;
  for (blockIdx.x = 0; blockIdx.x < grid; blockIdx.x++) {
    for (int t = 0; t < block; t++) {
      threadIdx.x = t;
      if (!barriers) {
        Launch<P...>::thread();
        continue;
      }
      Launch<P...>::done[t] = false;
      getcontext(&turns[t]);
      turns[t].uc_stack.ss_sp = &stacks[t * STACK];
      turns[t].uc_stack.ss_size = STACK;
      turns[t].uc_link = &scheduler;
      makecontext(&turns[t], (void (*)())Launch<P...>::thread, 0);
    }
    for (bool more = barriers; more;) {
      more = false;
      for (int t = 0; t < block; t++)
        if (!Launch<P...>::done[t]) {
          threadIdx.x = t;
          swapcontext(&scheduler, &turns[t]);
          more = true;
        }
    }
  }
}
"""
_ROUND = 'asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));'
_TYPES = {int: ctypes.c_longlong, float: ctypes.c_double}


class Kernels:
    """The kernels of some sources, compiled for one type. sources: names of its kernels -> source."""

    def __init__(self, folder, dtype, sources: dict[str, str]):
        ctype = {"float32": "float", "float64": "double", "uint16": "bf16"}[np.dtype(dtype).name]
        text = _LANGUAGE + prelude(np.dtype(dtype).name).replace(_ROUND, "bits = bfloat16_bits(v);")
        for number, (names, source) in enumerate(sources.items()):
            barriers = int("__sync" in source or "_sync(" in source)
            text += f"namespace source{number} {{\n{source}\n}}\n"
            for name in names.split():
                text += f'extern "C" void run_{name}(int grid, int block, void** args) '
                text += f"{{ launch(source{number}::{name}, grid, block, {barriers}, args); }}\n"
        path, library = folder / f"{ctype}.cpp", folder / f"{ctype}.so"
        path.write_text(text)
        # Nothing may be contracted but what is written so: then a GPU's bits are these.
        flags = ["-std=c++14", "-O1", "-ffp-contract=off", "-w", "-shared", "-fPIC"]
        subprocess.run([COMPILER, *flags, "-o", library, path], check=True, capture_output=True)
        self._library = ctypes.CDLL(str(library))

    def run(self, name: str, grid: int, block: int, *args) -> None:
        """Every thread of a launch. args: arrays, ints and floats, as `backend.cuda.launch` takes them."""
        given = [a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else _TYPES[type(a)](a) for a in args]
        places = (ctypes.c_void_p * len(given))(*(ctypes.addressof(value) for value in given))
        getattr(self._library, f"run_{name}")(grid, block, places)
