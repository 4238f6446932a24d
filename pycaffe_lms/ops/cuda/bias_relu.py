"""Add a bias per channel and apply a ReLU, each optional: in place forward, in one pass over the gradients backward.

With inner 1 channels are last. Threads read 16 bytes at a time (of bfloat16,
four values) where the sizes allow. The order of a sum depends on sizes alone: one block per part of a channel (of 32 to
128 neighbouring channels where inner is 1), each thread its own elements in order, then the parts (see `channels.py`).
"""

from __future__ import annotations

from ...arrays import AnyArray
from ...backend import cuda
from ..records import Grid
from ..sum_parts import reduction_parts
from .activation.bits import BITS
from .channels import WALK, stage_two
from .source import BLOCK_SUM, DIVIDE, divider

_PACK = """
template <int W> struct alignas(W * sizeof(T)) Pack { T v[W]; };
enum { WIDE = sizeof(T) == 8 ? 2 : 4 };
template <int W> __device__ Pack<W> load(const T* from, long long aligned) {
  if (aligned) return *(const Pack<W>*)from;
  Pack<W> pack;
  for (int k = 0; k < W; ++k) pack.v[k] = from[k];
  return pack;
}
template <int W> __device__ void store(T* to, const Pack<W>& pack, long long aligned) {
  if (aligned) *(Pack<W>*)to = pack;
  else for (int k = 0; k < W; ++k) to[k] = pack.v[k];
}
"""

FORWARD = (
    DIVIDE
    + _PACK
    + """
// columns: `channels` packs make a row, each with a pack of b; else one value of b goes with a plane of `inner` packs
template <int W> __device__ void forward(T* y, const C* b, long long packs, long long bias, long long relu,
                                         long long columns, long long inner, long long inner_magic,
                                         long long inner_shift, long long channels, long long magic, long long shift) {
  LOOP(i, packs) {
    Pack<W> pack = load<W>(y + i * W, 1);
    C value[W];
    for (int k = 0; k < W; ++k) value[k] = pack.v[k];
    if (bias) {
      long long plane = columns ? i : quotient(i, inner, inner_magic, inner_shift);
      long long c = plane - quotient(plane, channels, magic, shift) * channels;
      for (int k = 0; k < W; ++k) value[k] += columns ? b[c * W + k] : b[c];
    }
    if (relu) for (int k = 0; k < W; ++k) value[k] = value[k] < 0 ? (C)0 : value[k];  // NaN stays
    for (int k = 0; k < W; ++k) pack.v[k] = value[k];
    store<W>(y + i * W, pack, 1);
  }
}
#define FORWARD(name, W)                                                                                           \\
  extern "C" __global__ void name(T* y, const C* b, long long packs, long long bias, long long relu,               \\
                                  long long columns, long long inner, long long inner_magic,                       \\
                                  long long inner_shift, long long channels, long long magic, long long shift) {   \\
    forward<W>(y, b, packs, bias, relu, columns, inner, inner_magic, inner_shift, channels, magic, shift);         \\
  }
FORWARD(bias_relu_single, 1)
FORWARD(bias_relu_wide, WIDE)
"""
)

BACKWARD = (
    BLOCK_SUM
    + WALK
    + _PACK
    + BITS
    + """
// relu: 0 no, 1 where y > 0, 2 where `bits` say so
#define ARRAYS const T* y, const unsigned* bits, const T* dy, T* out, C* work, long long relu, long long write, \\
    long long summed, long long outer, long long dim
// AHEAD: packs that a thread has under way: out may be dy, so the compiler itself cannot read ahead. Along rows few
// warps have much under way; across columns many warps, of few registers each, have little: measured on an H200.
enum { ROWS_AHEAD = 4, COLUMNS_AHEAD = sizeof(T) < 4 ? 1 : 2, COLUMNS_BLOCKS = sizeof(T) < 4 ? 8 : 4 };

template <int W, int AHEAD> __device__ A visit(const T* y, const unsigned* bits, const T* dy, T* out,
                                               const long long* at, const bool* in, A* each, long long relu,
                                               long long write, long long aligned) {
  Pack<W> pack[AHEAD], value[AHEAD];
  unsigned four[AHEAD];
  #pragma unroll
  for (int u = 0; u < AHEAD; ++u)
    if (in[u]) {
      pack[u] = load<W>(dy + at[u], aligned);
      if (relu == 1) value[u] = load<W>(y + at[u], aligned);
      if (relu == 2) four[u] = get_bits(bits, at[u]);
    }
  A sum = 0;
  #pragma unroll
  for (int u = 0; u < AHEAD; ++u)
    if (in[u]) {
      #pragma unroll
      for (int k = 0; k < W; ++k) {
        C gradient = pack[u].v[k];
        if (relu == 1) gradient *= (C)value[u].v[k] > 0 ? (C)1 : (C)0;
        if (relu == 2) gradient *= four[u] >> k & 1 ? (C)1 : (C)0;
        if (each) each[k] += gradient; else sum += gradient;
        pack[u].v[k] = gradient;
      }
      if (write) store<W>(out + at[u], pack[u], aligned);
    }
  return sum;
}

// one block of 256 threads per part of a channel
template <int W> __device__ void rows(ARRAYS, long long inner, long long parts, long long aligned) {
  A sum = 0;
  for (Walk w(outer, dim, inner / W, blockIdx.x / parts, blockIdx.x % parts, parts); w.more();) {
    long long at[ROWS_AHEAD];
    bool in[ROWS_AHEAD];
    #pragma unroll
    for (int u = 0; u < ROWS_AHEAD; ++u) {
      in[u] = w.more();
      at[u] = w.index() * W;
      w.next();
    }
    sum += visit<W, ROWS_AHEAD>(y, bits, dy, out, at, in, nullptr, relu, write, aligned);
  }
  if (!summed) return;
  sum = block_sum(sum);
  if (threadIdx.x == 0) work[blockIdx.x] = sum;
}

// inner == 1: one block of 256 threads per part of `width` channels; blocks of one part stand beside each other
template <int W> __device__ void columns(ARRAYS, long long width, long long parts, long long aligned) {
  __shared__ A sums[256 * W];
  const int lanes = (int)width / W, step = 256 / lanes, lane = threadIdx.x % lanes, row = threadIdx.x / lanes;
  const long long groups = (dim + width - 1) / width, first = blockIdx.x % groups * width, part = blockIdx.x / groups;
  const long long share = (outer + parts - 1) / parts, channel = first + lane * W;
  const long long end = part * share + share < outer ? part * share + share : outer;
  A each[W];
  for (int k = 0; k < W; ++k) each[k] = 0;
  if (channel < dim)
    for (long long o = part * share + row; o < end; o += COLUMNS_AHEAD * step) {
      long long at[COLUMNS_AHEAD];
      bool in[COLUMNS_AHEAD];
      #pragma unroll
      for (int u = 0; u < COLUMNS_AHEAD; ++u) {
        in[u] = o + u * step < end;
        at[u] = (o + u * step) * dim + channel;
      }
      visit<W, COLUMNS_AHEAD>(y, bits, dy, out, at, in, each, relu, write, aligned);
    }
  if (!summed) return;
  for (int k = 0; k < W; ++k) sums[row * width + lane * W + k] = each[k];
  __syncthreads();
  if (threadIdx.x >= width || first + threadIdx.x >= dim) return;
  A sum = 0;
  for (int r = 0; r < step; ++r) sum += sums[r * width + threadIdx.x];
  work[(first + threadIdx.x) * parts + part] = sum;
}

#define BACKWARD(name, W) \\
  extern "C" __global__ void rows_##name(ARRAYS, long long inner, long long parts, long long aligned) { \\
    rows<W>(y, bits, dy, out, work, relu, write, summed, outer, dim, inner, parts, aligned); \\
  } \\
  extern "C" __global__ void __launch_bounds__(256, COLUMNS_BLOCKS) columns_##name(ARRAYS, long long width, \\
                                                                                   long long parts, \\
                                                                                   long long aligned) { \\
    columns<W>(y, bits, dy, out, work, relu, write, summed, outer, dim, width, parts, aligned); \\
  }
BACKWARD(single, 1)
BACKWARD(wide, WIDE)
"""
)


def forward(y: AnyArray, b: AnyArray | None, relu: bool, grid: Grid) -> None:
    """Compute y = y + b (channels; None: y alone), then set negative values to 0 if `relu`."""
    outer, channels, inner = grid
    wide = min(4, 16 // y.dtype.itemsize)
    columns = inner == 1
    if (channels if columns else inner) % wide or y.data.ptr & 15:
        wide = 1
    if columns:
        channels //= wide
    else:
        inner //= wide
    packs = outer * channels * inner
    divide = (*divider(inner, packs), *divider(channels, packs))
    name = "bias_relu_single" if wide == 1 else "bias_relu_wide"
    bias = int(b is not None)
    cuda.launch(FORWARD, name, y.dtype, packs, y, b if bias else y, packs, bias, int(relu), int(columns), *divide)


def backward(
    y: AnyArray | None,
    bits: AnyArray | None,
    dy: AnyArray,
    dy_out: AnyArray | None,
    db: AnyArray | None,
    accumulate: bool,
    work: AnyArray | None,
    grid: Grid,
) -> None:
    """Compute the gradients of a bias and a ReLU.

    dy_out = dy * (y > 0); `bits`, where given, say where y > 0; without y and bits dy_out = dy. dy_out may be dy, and
    None where y and bits are. db, where given, becomes the sum of dy_out per channel, or is added to if `accumulate`.
    `work` is read where db is given: channels * reduction_parts(*grid) elements of dy's type.
    """
    outer, channels, inner = grid
    if dy.size == 0:
        if db is not None and not accumulate:
            stage_two(db, 0, db, 0, 1.0, False, channels, 0)  # writes zeros, the sums of no parts
        return
    relu, summed = 2 if bits is not None else int(y is not None), db is not None
    write = relu > 0 or (dy_out is not None and dy_out.data.ptr != dy.data.ptr)
    if not (write or summed):
        return
    out, values = dy_out if write else dy, y if relu == 1 else dy
    words = dy if bits is None else bits  # dy stands in for what the kernel does not touch
    work = work if summed else dy  # not touched
    parts = reduction_parts(outer, channels, inner)
    wide = min(4, 16 // dy.dtype.itemsize)
    width = "single" if (channels if inner == 1 else inner) % wide else "wide"
    aligned = int(width == "single" or not (out.data.ptr | values.data.ptr | dy.data.ptr) & 15)
    flags = (relu, int(write), int(summed))
    if inner == 1:
        across = 32 if channels <= 32 else 64 if channels <= 64 else 128
        name, sizes, blocks = f"columns_{width}", (outer, channels, across), -(-channels // across) * parts
    else:
        name, sizes, blocks = f"rows_{width}", (outer, channels, inner), channels * parts
    arrays = (values, words, dy, out, work)
    cuda.launch(BACKWARD, name, dy.dtype, 0, *arrays, *flags, *sizes, parts, aligned, block=256, grid=blocks)
    if summed:
        stage_two(work, 0, db, 0, 1.0, accumulate, channels, parts)
