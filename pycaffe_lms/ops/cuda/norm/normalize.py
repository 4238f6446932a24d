"""Divide by the L2 norm: arrays seen as (n, c, s), one norm for each (n, s), or one for each n (`across`).

`squares` holds the sums of x^2, (n, s) or (n); `scale` has c elements, or 1 for all channels. A norm for each (n, s) is
one kernel's work: the second pass finds in the cache what the sum has read.
"""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import Grid, L2Norm
from ...sum_parts import reduction_parts
from ..basic import fill
from ..channels import WALK, stage_two
from ..source import BLOCK_SUM, DIVIDE, divider

__all__ = ["normalize_forward", "normalize_backward_data", "normalize_backward_scale"]

_SUMS = (
    BLOCK_SUM
    + WALK
    + DIVIDE
    + """
#define AHEAD 4  // elements that a thread has under way together
// what is added up: x^2, or scale * x * dy
__device__ A term(const T* x, const T* dy, const T* scale, long long i, long long channel, long long dots) {
  return dots ? (A)scale[channel] * x[i] * dy[i] : (A)x[i] * x[i];
}
// one norm for a row of `dim` elements: one block for each part of a row
extern "C" __global__ void row_parts(const T* x, const T* dy, const T* scale, T* work, long long dots, long long dim,
                                     long long each, long long parts, long long s, long long magic, long long shift) {
  long long row = blockIdx.x / parts, share = (dim + parts - 1) / parts, at = blockIdx.x % parts * share;
  long long end = at + share < dim ? at + share : dim;
  A sum = 0;
  for (long long i = at + threadIdx.x; i < end; i += 256)
    sum += term(x, dy, scale, row * dim + i, each ? quotient(i, s, magic, shift) : 0, dots);
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}
// gradient of the scale: sums over images and `inner` for each of `dim` channels (1: all channels at once)
extern "C" __global__ void scale_parts(const T* x, const T* dy, const T* squares, T* work, double eps, long long n,
                                       long long dim, long long inner, long long s, long long across,
                                       long long parts) {
  A sum = 0;
  for (Walk w(n, dim, inner, blockIdx.x / parts, blockIdx.x % parts, parts); w.more();) {
    A value[AHEAD], slope[AHEAD], square[AHEAD];
    #pragma unroll
    for (int u = 0; u < AHEAD; ++u) {
      const bool more = w.more();
      const long long norm = across ? w.image : w.image * s + (inner == s ? w.pos : w.pos % s);
      value[u] = more ? (A)x[w.index()] : (A)0;
      slope[u] = more ? (A)dy[w.index()] : (A)0;
      square[u] = more ? (A)squares[norm] : (A)1;
      w.next();
    }
    #pragma unroll
    for (int u = 0; u < AHEAD; ++u) sum += value[u] * slope[u] * rsqrt(square[u] + (A)eps);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}
"""
)

_APPLY = (
    DIVIDE
    + """
#define PLACE long long plane = quotient(i, s, s_magic, s_shift), image = quotient(plane, c, c_magic, c_shift),       \\
                        channel = plane - image * c, norm = across ? image : image * s + i - plane * s
#define SIZES long long each, long long across, long long total, long long s, long long s_magic, long long s_shift,   \\
              long long c, long long c_magic, long long c_shift
extern "C" __global__ void forward(const T* x, const T* scale, const T* squares, T* y, double eps, SIZES) {
  LOOP(i, total) {
    PLACE;
    y[i] = x[i] * (T)(scale[each ? channel : 0] / sqrt((A)squares[norm] + (A)eps));
  }
}
extern "C" __global__ void backward(const T* x, const T* scale, const T* dy, const T* squares, const T* dots, T* dx,
                                    double eps, SIZES) {
  LOOP(i, total) {
    PLACE;
    A sum = (A)squares[norm] + (A)eps;
    dx[i] = (T)((scale[each ? channel : 0] * dy[i] - x[i] * (dots[norm] / sum)) / sqrt(sum));
  }
}
"""
)

# A norm for each place: a block takes 32 neighbouring places of an image, eight threads share the channels of each
_PLACES = """
#define AHEAD 8  // channels that a thread has under way together
#define PLACE                                                                                                         \\
    const long long image = blockIdx.x / blocks, place = blockIdx.x % blocks * 32 + threadIdx.x % 32;                 \\
    const int group = threadIdx.x / 32;                                                                               \\
    const bool there = place < s;                                                                                     \\
    const long long start = image * c * s + (there ? place : 0)
// load(channel, u), then use(channel, u), for this thread's channels
template <typename F, typename G> __device__ inline void channels(long long c, int group, F load, G use) {
  for (long long k = group; k < c; k += 8 * AHEAD) {
    #pragma unroll
    for (int u = 0; u < AHEAD; ++u) if (k + 8 * u < c) load(k + 8 * u, u);
    #pragma unroll
    for (int u = 0; u < AHEAD; ++u) if (k + 8 * u < c) use(k + 8 * u, u);
  }
}
__device__ A of_place(A value) {  // the sum over a place's threads, in order
  __shared__ A part[256];
  part[threadIdx.x] = value;
  __syncthreads();
  A sum = part[threadIdx.x % 32];
  for (int other = 1; other < 8; ++other) sum += part[threadIdx.x % 32 + 32 * other];
  return sum;
}
extern "C" __global__ void __launch_bounds__(256) forward(const T* x, const T* scale, T* squares, T* y, double eps,
                                                          long long c, long long each, long long s, long long blocks) {
  PLACE;
  T v[AHEAD];
  A sum = 0;
  channels(c, group, [&](long long k, int u) { v[u] = x[start + k * s]; },
           [&](long long k, int u) { sum += (A)v[u] * v[u]; });
  sum = of_place(sum);
  if (!there) return;
  if (group == 0) squares[image * s + place] = (T)sum;
  const A factor = 1 / sqrt((A)(T)sum + (A)eps);
  channels(c, group, [&](long long k, int u) { v[u] = x[start + k * s]; },
           [&](long long k, int u) { y[start + k * s] = v[u] * (T)(scale[each ? k : 0] * factor); });
}
extern "C" __global__ void __launch_bounds__(256) backward(const T* x, const T* scale, const T* dy, const T* squares,
                                                           T* dots, T* dx, double eps, long long c, long long each,
                                                           long long s, long long blocks) {
  PLACE;
  T v[AHEAD], g[AHEAD];
  A sum = 0;
  channels(c, group, [&](long long k, int u) { v[u] = x[start + k * s]; g[u] = dy[start + k * s]; },
           [&](long long k, int u) { sum += (A)scale[each ? k : 0] * v[u] * g[u]; });
  sum = of_place(sum);
  if (!there) return;
  if (group == 0) dots[image * s + place] = (T)sum;
  const A square = (A)squares[image * s + place] + (A)eps, factor = 1 / sqrt(square), slope = (A)(T)sum / square;
  channels(c, group, [&](long long k, int u) { v[u] = x[start + k * s]; g[u] = dy[start + k * s]; },
           [&](long long k, int u) { dx[start + k * s] = (T)((scale[each ? k : 0] * g[u] - v[u] * slope) * factor); });
}
"""


def _by_place(name: str, arrays: tuple[AnyArray, ...], scale: AnyArray, norm: L2Norm) -> None:
    """Queue a kernel of `_PLACES`."""
    n, c, s = norm.grid
    blocks = (s + 31) // 32
    sizes = float(norm.eps), c, int(scale.size > 1), s, blocks
    launch(_PLACES, name, arrays[0].dtype, 0, *arrays, *sizes, block=256, grid=n * blocks)


def _sums(x: AnyArray, dy: AnyArray, scale: AnyArray, out: AnyArray, work: AnyArray, dots: int, grid: Grid) -> None:
    """Compute out = sums of x^2, or of scale * x * dy if `dots`, over the rows of c * s elements."""
    if x.size == 0:
        fill(out, 0)
        return
    n, c, s = grid
    parts = reduction_parts(1, n, c * s)
    args = (x, dy, scale, work, dots, c * s, int(scale.size > 1), parts, *divider(s, c * s))
    launch(_SUMS, "row_parts", x.dtype, 0, *args, block=256, grid=n * parts)
    stage_two(work, 0, out, 0, 1.0, False, n, parts)


def _norm_of_places(x: AnyArray, norm: L2Norm) -> bool:
    return x.size > 0 and norm.grid.inner > 1 and not norm.across


def _sizes(scale: AnyArray, norm: L2Norm) -> tuple[int, ...]:
    n, c, s = norm.grid
    total = n * c * s
    return int(scale.size > 1), int(norm.across), total, *divider(s, total), *divider(c, total)


def normalize_forward(
    x: AnyArray, scale: AnyArray, y: AnyArray, squares: AnyArray, work: AnyArray, norm: L2Norm
) -> None:
    """Compute y = scale * x / sqrt(squares + eps), and write squares. `work`: n * parts elements for the GPU's sums."""
    if _norm_of_places(x, norm):
        _by_place("forward", (x, scale, squares, y), scale, norm)
        return
    _sums(x, x, scale, squares, work, 0, norm.grid)
    launch(_APPLY, "forward", y.dtype, y.size, x, scale, squares, y, float(norm.eps), *_sizes(scale, norm))


def normalize_backward_data(
    x: AnyArray,
    scale: AnyArray,
    dy: AnyArray,
    dx: AnyArray,
    squares: AnyArray,
    dots: AnyArray,
    work: AnyArray,
    norm: L2Norm,
) -> None:
    """Compute dx = (scale * dy - x * dots / (squares + eps)) / sqrt(squares + eps), and write dots."""
    if _norm_of_places(x, norm):
        _by_place("backward", (x, scale, dy, squares, dots, dx), scale, norm)
        return
    _sums(x, dy, scale, dots, work, 1, norm.grid)
    launch(
        _APPLY, "backward", dx.dtype, dx.size, x, scale, dy, squares, dots, dx, float(norm.eps), *_sizes(scale, norm)
    )


def normalize_backward_scale(
    x: AnyArray,
    dy: AnyArray,
    dscale: AnyArray,
    accumulate: bool,
    squares: AnyArray,
    work: AnyArray,
    norm: L2Norm,
) -> None:
    """Write to dscale, or add if `accumulate`, the sums of x * dy / sqrt(squares + eps) per channel."""
    if x.size == 0:
        if not accumulate:
            fill(dscale, 0)
        return
    n, c, s = norm.grid
    dim, inner = (1, c * s) if dscale.size == 1 else (c, s)
    parts = reduction_parts(n, dim, inner)
    args = (x, dy, squares, work, float(norm.eps), n, dim, inner, s, int(norm.across), parts)
    launch(_SUMS, "scale_parts", x.dtype, 0, *args, block=256, grid=dim * parts)
    stage_two(work, 0, dscale, 0, 1.0, accumulate, dim, parts)
