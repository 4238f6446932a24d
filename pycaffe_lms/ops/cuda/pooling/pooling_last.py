"""Pool over two axes in front of the channels, on a GPU. Backward passes gather, as in `pooling.py`.

x and dx are (items, *in_spatial, channels), y and dy (items, *out_spatial, channels). A mask holds each maximum's
row-major place in its window (see `ops/geometry.py`). A thread works on N neighbouring channels of one position, so a
warp reads neighbouring addresses. Stride, pad and small windows are constants of the compiled kernel: their loops are
unrolled, and the loads of a row of the window are under way together.
"""

from __future__ import annotations

import functools
from typing import Any

from ....arrays import AnyArray
from ....backend import cuda
from ...geometry import C_TYPES, Ints, PoolGeometry, place_dtype
from ..packs import PACK, packs_of
from ..source import DIVIDE, divider

__all__ = ["average_pool_last_backward", "average_pool_last_forward", "max_pool_last_backward", "max_pool_last_forward"]

_UNROLLED = 8  # the widest window whose loops are unrolled; wider ones mostly depend on the image's size

_COMMON = """
typedef Pack<M, N> Places;
#define NOWHERE ((M)-1)

#define SIZES long long n, long long in_h, long long in_w, long long out_h, long long out_w, long long k_h, \\
    long long k_w, long long packs, long long p_magic, long long p_shift, long long width, long long w_magic, \\
    long long w_shift, long long height, long long h_magic, long long h_shift

// the item, the row h and the column w of pack i of an array (items, height, width, packs)
#define PLACE(i) \\
    const long long place = quotient(i, packs, p_magic, p_shift), row = quotient(place, width, w_magic, w_shift); \\
    const long long item = quotient(row, height, h_magic, h_shift), pack = (i) - place * packs; \\
    const int w = (int)(place - row * width), h = (int)(row - item * height)

// visits the places of output (h, w)'s window, row by row: visit(r, c, value, whether it lies inside the image)
#define WINDOW(xs, visit) \\
    const int h0 = h * S_H - P_H, w0 = w * S_W - P_W; \\
    const Values* image = (const Values*)(xs) + item * in_h * in_w * packs + pack; \\
    _Pragma("unroll") \\
    for (int r = 0; r < K_H; r++) { \\
      if (h0 + r < 0 || h0 + r >= (int)in_h) continue; \\
      const Values* line = image + (h0 + r) * in_w * packs; \\
      for (int first = 0; first < K_W; first += AHEAD_WINDOW) { \\
        Values ahead[AHEAD_WINDOW]; \\
        _Pragma("unroll") \\
        for (int j = 0; j < AHEAD_WINDOW; j++) {  /* without a branch: beyond the border, the border */ \\
          const int at = w0 + first + j < 0 ? 0 : w0 + first + j; \\
          ahead[j] = line[(at < (int)in_w ? at : (int)in_w - 1) * packs]; \\
        } \\
        _Pragma("unroll") \\
        for (int j = 0; j < AHEAD_WINDOW; j++) { \\
          const int c = first + j, at = w0 + c; \\
          const bool inside = at >= 0 && at < (int)in_w; \\
          _Pragma("unroll") \\
          for (int k = 0; k < N; k++) visit(r, c, ahead[j].v[k], inside); \\
        } \\
      } \\
    }

// the outputs whose windows hold input (h, w): rows [o_h, o_h1) and columns [o_w, o_w1)
#define COVER \\
    const int ph = h + P_H, pw = w + P_W; \\
    const int o_h = ph < K_H ? 0 : (ph - K_H) / S_H + 1, o_w = pw < K_W ? 0 : (pw - K_W) / S_W + 1; \\
    const int o_h1 = ph / S_H + 1 < (int)out_h ? ph / S_H + 1 : (int)out_h; \\
    const int o_w1 = pw / S_W + 1 < (int)out_w ? pw / S_W + 1 : (int)out_w; \\
    const long long origin = item * out_h * out_w * packs + pack

// what the window's sum along one axis is divided by: clipped to size + pad at the far end only, or to the inside
__device__ inline int divisor(int start, int kernel, int size, int pad) {
  const int first = INSIDE && start < 0 ? 0 : start, end = INSIDE ? size : size + pad;
  const int places = (start + kernel < end ? start + kernel : end) - first;
  return places > 1 ? places : 1;
}
"""

# A kernel is a program of its own: unrolled loops take up to a second to compile.
_KERNELS = {
    "max_forward": """
extern "C" __global__ void max_forward(const T* __restrict__ x, T* __restrict__ y, M* __restrict__ mask,
                                       T* __restrict__ top_mask, long long use_mask, long long use_top_mask, SIZES) {
  LOOP(i, n) {
    PLACE(i);
    Values best;
    int where[N];
    #pragma unroll
    for (int k = 0; k < N; k++) { best.v[k] = (T)-3.402823466385288598e+38; where[k] = -1; }
#define LARGER(r, c, value, inside) { \\
      const bool more = inside && value > best.v[k]; \\
      best.v[k] = more ? value : best.v[k]; \\
      where[k] = more ? r * K_W + c : where[k]; \\
    }
    WINDOW(x, LARGER)
    ((Values*)y)[i] = best;
    if (use_mask) {
      Places saved;
      #pragma unroll
      for (int k = 0; k < N; k++) saved.v[k] = (M)where[k];
      ((Places*)mask)[i] = saved;
    }
    if (use_top_mask) {
      Values index;
      #pragma unroll
      for (int k = 0; k < N; k++)
        index.v[k] = where[k] < 0 ? (T)-1 : (T)((h0 + where[k] / K_W) * (int)in_w + w0 + where[k] % K_W);
      ((Values*)top_mask)[i] = index;
    }
  }
}
""",
    "max_backward": """
extern "C" __global__ void max_backward(const T* __restrict__ dy, const M* __restrict__ mask, T* __restrict__ dx,
                                        SIZES) {
  LOOP(i, n) {
    PLACE(i);
    COVER;
    A sum[N];
    #pragma unroll
    for (int k = 0; k < N; k++) sum[k] = 0;
    #pragma unroll
    for (int a = 0; a < COVER_H; a++) {
      const int oh = o_h + a;
      if (oh >= o_h1) break;
      const int line = (h - oh * S_H + P_H) * K_W + w + P_W;  // this input's place in the window of output column 0
      for (int first = o_w; first < o_w1; first += AHEAD_COVER) {
        Values gradient[AHEAD_COVER];
        Places place[AHEAD_COVER];
        #pragma unroll
        for (int j = 0; j < AHEAD_COVER; j++) {  // without a branch: beyond the last output, the first one
          const long long o = origin + (oh * out_w + (first + j < o_w1 ? first + j : first)) * packs;
          place[j] = ((const Places*)mask)[o];
          gradient[j] = ((const Values*)dy)[o];
        }
        #pragma unroll
        for (int j = 0; j < AHEAD_COVER; j++) {
          const M self = (M)(line - (first + j) * S_W);
          const bool real = first + j < o_w1;
          #pragma unroll
          for (int k = 0; k < N; k++) sum[k] = real && place[j].v[k] == self ? sum[k] + gradient[j].v[k] : sum[k];
        }
      }
    }
    Values out;
    #pragma unroll
    for (int k = 0; k < N; k++) out.v[k] = (T)sum[k];
    ((Values*)dx)[i] = out;
  }
}
""",
    "average_forward": """
extern "C" __global__ void average_forward(const T* __restrict__ x, T* __restrict__ y, SIZES) {
  LOOP(i, n) {
    PLACE(i);
    A sum[N];
    #pragma unroll
    for (int k = 0; k < N; k++) sum[k] = 0;
#define ADD(r, c, value, inside) sum[k] = inside ? sum[k] + value : sum[k];
    WINDOW(x, ADD)
    const A size = (A)(divisor(h0, K_H, (int)in_h, P_H) * divisor(w0, K_W, (int)in_w, P_W));
    Values out;
    #pragma unroll
    for (int k = 0; k < N; k++) out.v[k] = (T)(sum[k] / size);
    ((Values*)y)[i] = out;
  }
}
""",
    "average_backward": """
extern "C" __global__ void average_backward(const T* __restrict__ dy, T* __restrict__ dx, SIZES) {
  LOOP(i, n) {
    PLACE(i);
    COVER;
    A sum[N];
    #pragma unroll
    for (int k = 0; k < N; k++) sum[k] = 0;
    for (int oh = o_h; oh < o_h1; oh++) {
      const int size_h = divisor(oh * S_H - P_H, K_H, (int)in_h, P_H);
      for (int ow = o_w; ow < o_w1; ow++) {
        const A size = (A)(size_h * divisor(ow * S_W - P_W, K_W, (int)in_w, P_W));
        const Values gradient = ((const Values*)dy)[origin + (oh * out_w + ow) * packs];
        #pragma unroll
        for (int k = 0; k < N; k++) sum[k] += gradient.v[k] / size;
      }
    }
    Values out;
    #pragma unroll
    for (int k = 0; k < N; k++) out.v[k] = (T)sum[k];
    ((Values*)dx)[i] = out;
  }
}
""",
}


def max_pool_last_forward(
    x: AnyArray, y: AnyArray, mask: AnyArray | None, top_mask: AnyArray | None, channels: int, geometry: PoolGeometry
) -> None:
    """Compute y = the maximum of each window: the first one in row-major order, never a NaN."""
    given = [a for a in (mask, top_mask) if a is not None]
    n = packs_of(channels, x, y, *given)
    use = int(mask is not None), int(top_mask is not None)
    # y stands in for masks that are not wanted: a kernel's argument must be an array
    arrays = x, y, y if mask is None else mask, y if top_mask is None else top_mask, *use
    _launch("max_forward", n, y, channels, geometry, geometry.out_spatial, *arrays)


def max_pool_last_backward(dy: AnyArray, mask: AnyArray, dx: AnyArray, channels: int, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy over the windows whose maximum it was."""
    n = packs_of(channels, dy, dx, mask)
    _launch("max_backward", n, dx, channels, geometry, geometry.in_spatial, dy, mask, dx)


def average_pool_last_forward(x: AnyArray, y: AnyArray, channels: int, geometry: PoolGeometry) -> None:
    """Compute y = the sum of each window's pixels / its size with padding (see PoolGeometry.divisors)."""
    _launch("average_forward", packs_of(channels, x, y), y, channels, geometry, geometry.out_spatial, x, y)


def average_pool_last_backward(dy: AnyArray, dx: AnyArray, channels: int, geometry: PoolGeometry) -> None:
    """Compute dx = for each input, the sum of dy / the window's size over the windows that hold it."""
    _launch("average_backward", packs_of(channels, dy, dx), dx, channels, geometry, geometry.in_spatial, dy, dx)


def _launch(name: str, n: int, result: AnyArray, channels: int, g: PoolGeometry, places: Ints, *args: Any) -> None:
    """Queue a kernel with a thread for N channels of each of `places` (rows, columns)."""
    threads = result.size // n
    split = (*divider(channels // n, threads), *divider(places[1], threads), *divider(places[0], threads))
    kernel = g.kernel if max(g.kernel) <= _UNROLLED else None
    source = _source(name, n, C_TYPES[place_dtype(g)], kernel, g.stride, g.pad, g.inside)
    sizes = (threads, *g.in_spatial, *g.out_spatial, *g.kernel)
    cuda.launch(source, name, result.dtype, threads, *args, *sizes, *split)


@functools.cache
def _source(name: str, n: int, places: str, kernel: Ints | None, stride: Ints, pad: Ints, inside: bool) -> str:
    """Return a kernel for one form of window; `places` is the type of a mask.

    kernel None: it is a parameter, so that windows as large as an image do not need a compilation each.
    """
    if kernel is None:
        window = {"K_H": "(int)k_h", "K_W": "(int)k_w", "AHEAD_WINDOW": 1, "AHEAD_COVER": 1}
        window["COVER_H"] = "(o_h1 - o_h)"
    else:
        covers = [-(-k // s) for k, s in zip(kernel, stride, strict=True)]
        window = {"K_H": kernel[0], "K_W": kernel[1], "AHEAD_WINDOW": kernel[1]}
        window |= {"COVER_H": covers[0], "AHEAD_COVER": covers[1]}
    window |= {"S_H": stride[0], "S_W": stride[1], "P_H": pad[0], "P_W": pad[1], "N": n, "INSIDE": int(inside)}
    defines = "".join(f"#define {name} {value}\n" for name, value in window.items())
    return f"{defines}typedef {places} M;\n{PACK}{DIVIDE}{_COMMON}{_KERNELS[name]}"
