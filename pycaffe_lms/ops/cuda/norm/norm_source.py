"""Hold the CUDA C++ of the fused normalisation's forward and backward.

Each kernel serves both memory layouts and all its switches, which are defined in front of it. `cuda/channel_walk.py`
says how the array is walked.
"""

from __future__ import annotations

from ..activation.bits import BITS
from ..channel_walk import TOTALS, WALK

# The one place where a value before the activation is computed: backward must find the sign that forward saw, so no
# choice about joining the product and the sum is left to the compiler. A missing gamma is a 1 that it does not see.
_AFFINE = (
    "#define BYTES 32\n"
    + WALK
    + BITS
    + """
struct Affine {
  C mean[K], inv_std[K], gamma[K], beta[K];
  __device__ Affine(long long channel, long long c, const C* means, const C* inv_stds, const C* gammas, const C* betas,
                    long long has) {
    CHANNELS(k) {
      const bool inside = channel < c;
      mean[k] = inside ? means[channel + k] : (C)0;
      inv_std[k] = inside ? inv_stds[channel + k] : (C)0;
      gamma[k] = inside && (has & 1) ? gammas[channel + k] : (C)1;
      beta[k] = inside && (has & 2) ? betas[channel + k] : (C)0;
    }
  }
  __device__ C operator()(C x, int v) const {
    return fma((x - mean[v % K]) * inv_std[v % K], gamma[v % K], beta[v % K]);
  }
};
#define AFFINE const C* mean, const C* inv_std, const C* gamma, const C* beta, long long has
"""
)

# RESIDUAL: r is added; RELU; BITS: where y > 0 is kept (rows whose channels are whole words, each lane a bit of one)
FORWARD = (
    _AFFINE
    + """
__device__ C active(C v) { return v > 0 ? v : (C)0 * v + (C)0; }  // NaN stays NaN, -inf becomes NaN: as the ReLU layer
// the threads that make a word stand in one line, so all of them are here or none
__device__ void keep_bits(unsigned* bits, long long at, const Pack& pack) {
  const unsigned threads = 32 / V, lane = threadIdx.x % threads;
  const unsigned here = (threads == 32 ? 0xffffffffu : (1u << threads) - 1) << (threadIdx.x % 32 - lane);
  unsigned word = 0;
  LANES(v) word |= (unsigned)((C)pack.v[v] > 0) << v;
  word <<= lane * V;
  for (unsigned step = 1; step < threads; step *= 2) word |= __shfl_xor_sync(here, word, step);
  if (lane == 0) bits[at >> 5] = word;
}
template <bool full> __device__ void visit(Walk& w, const Affine& value, const T* x, const T* r, T* y,
                                           unsigned* bits) {
  PLACES(w, count)
  Pack pack[DEPTH], more[DEPTH];
  EACH(u) pack[u] = load(x, at[u]);
  if (RESIDUAL) EACH(u) more[u] = load(r, at[u]);
  EACH(u) {
    LANES(v) {
      C result = value(pack[u].v[v], v);
      if (RESIDUAL) result += (C)more[u].v[v];
      pack[u].v[v] = RELU ? active(result) : result;
    }
    store(y, at[u], pack[u]);
    if (BITS) keep_bits(bits, at[u], pack[u]);
  }
}
WALKER forward(const T* x, const T* r, T* y, unsigned* bits, AFFINE, SIZES) {
  Walk w(true, n, c, s, parts, share, across);
  const Affine value(w.channel, c, mean, inv_std, gamma, beta, has);
  while (w.left >= DEPTH) visit<true>(w, value, x, r, y, bits);
  if (w.left > 0) visit<false>(w, value, x, r, y, bits);
}
"""
)

# MASK: 0 none, 1 from y, 2 from x; SUMS: 0 none, 1 of g, 2 of g and of g * (x - mean); DR: g is written to dr;
# DX: gamma * inv_std * g is written to dx
GRADIENTS = (
    _AFFINE
    + """
template <bool full> __device__ void visit(Walk& w, const Affine& value, A* sum, A* dot, const T* x, const T* y,
                                           const unsigned* bits, const T* dy, T* dr, T* dx) {
  PLACES(w, count)
  Pack g[DEPTH], xs[DEPTH], ys[DEPTH];
  EACH(u) g[u] = load(dy, at[u]);
  if (MASK == 2 || SUMS == 2) EACH(u) xs[u] = load(x, at[u]);
  if (MASK == 1) EACH(u) ys[u] = load(y, at[u]);
  unsigned word[DEPTH];
  if (MASK == 3) EACH(u) word[u] = get_bits(bits, at[u]);
  EACH(u) {
    LANES(v) {
      C gradient = g[u].v[v];
      if (MASK == 1) gradient *= (C)ys[u].v[v] > 0 ? (C)1 : (C)0;
      if (MASK == 2) gradient *= value(xs[u].v[v], v) > 0 ? (C)1 : (C)0;
      if (MASK == 3) gradient *= word[u] >> v & 1 ? (C)1 : (C)0;
      if (SUMS) sum[v % K] += gradient;
      if (SUMS == 2) dot[v % K] += gradient * ((C)xs[u].v[v] - value.mean[v % K]);
      g[u].v[v] = gradient;
    }
    if (DR) store(dr, at[u], g[u]);
    if (DX) {
      LANES(v) g[u].v[v] = (C)g[u].v[v] * (value.gamma[v % K] * value.inv_std[v % K]);
      store(dx, at[u], g[u]);
    }
  }
}
WALKER gradients(const T* x, const T* y, const T* dy, T* dr, T* dx, const unsigned* bits, C* work, AFFINE, SIZES) {
  Walk w(false, n, c, s, parts, share, across);
  const Affine value(w.channel, c, mean, inv_std, gamma, beta, has);
  A sum[K], dot[K];
  CHANNELS(k) sum[k] = dot[k] = 0;
  while (w.left >= DEPTH) visit<true>(w, value, sum, dot, x, y, bits, dy, dr, dx);
  if (w.left > 0) visit<false>(w, value, sum, dot, x, y, bits, dy, dr, dx);
#if SUMS
  __shared__ A sums[256][K], dots[256][K];
  const int me = threadIdx.x;
  for (int half = 128; half >= across; half >>= 1) {  // a fixed tree over the threads of the same channels
    if (me >= half && me < 2 * half) CHANNELS(k) { sums[me][k] = sum[k]; dots[me][k] = dot[k]; }
    __syncthreads();
    if (me < half) CHANNELS(k) { sum[k] += sums[me + half][k]; dot[k] += dots[me + half][k]; }
  }
  if (me >= across || w.channel >= c) return;
  CHANNELS(k) {
    work[(w.channel + k) * parts + w.part] = sum[k];
    if (SUMS == 2) work[(c + w.channel + k) * parts + w.part] = dot[k];
  }
#endif
}
"""
)

# has: 1 dbeta, 2 dbeta is added to, 4 dgamma, 8 dgamma is added to, 16 the means of g and g * xhat behind the parts
GRADIENT_SUMS = (
    TOTALS
    + """
extern "C" __global__ void __launch_bounds__(256) gradient_sums(T* work, const T* inv_std, T* dgamma, T* dbeta,
                                                                long long has, double items, long long c,
                                                                long long parts) {
  const long long channel = blockIdx.x;
  double sum = 0, dot = 0;
  for (long long p = threadIdx.x; p < parts; p += 256) {
    sum += work[channel * parts + p];
    if (has & (4 | 16)) dot += work[(c + channel) * parts + p];
  }
  sum = block_total(sum);
  dot = block_total(dot) * inv_std[channel];
  if (threadIdx.x != 0) return;
  if (has & 1) dbeta[channel] = (T)(has & 2 ? dbeta[channel] + sum : sum);
  if (has & 4) dgamma[channel] = (T)(has & 8 ? dgamma[channel] + dot : dot);
  if (has & 16) {
    work[2 * c * parts + channel] = (T)(sum / items);
    work[2 * c * parts + c + channel] = (T)(dot / items);
  }
}
"""
)

# MASK as above
APPLY = (
    _AFFINE
    + """
template <bool full> __device__ void visit(Walk& w, const Affine& value, const C* shift, const C* slope, const T* x,
                                           const T* y, const unsigned* bits, const T* dy, T* dx) {
  PLACES(w, count)
  Pack g[DEPTH], xs[DEPTH], ys[DEPTH];
  EACH(u) g[u] = load(dy, at[u]);
  EACH(u) xs[u] = load(x, at[u]);
  if (MASK == 1) EACH(u) ys[u] = load(y, at[u]);
  unsigned word[DEPTH];
  if (MASK == 3) EACH(u) word[u] = get_bits(bits, at[u]);
  EACH(u) {
    LANES(v) {
      const C gap = (C)xs[u].v[v] - value.mean[v % K];
      C gradient = g[u].v[v];
      if (MASK == 1) gradient *= (C)ys[u].v[v] > 0 ? (C)1 : (C)0;
      if (MASK == 2) gradient *= value(xs[u].v[v], v) > 0 ? (C)1 : (C)0;
      if (MASK == 3) gradient *= word[u] >> v & 1 ? (C)1 : (C)0;
      g[u].v[v] = (gradient - shift[v % K] - gap * slope[v % K]) * (value.gamma[v % K] * value.inv_std[v % K]);
    }
    store(dx, at[u], g[u]);
  }
}
WALKER apply(const T* x, const T* y, const T* dy, T* dx, const unsigned* bits, const C* work,
             AFFINE, SIZES) {
  Walk w(true, n, c, s, parts, share, across);
  const Affine value(w.channel, c, mean, inv_std, gamma, beta, has);
  const C* means = work + 2 * c * parts;
  C shift[K], slope[K];
  CHANNELS(k) {
    shift[k] = w.channel < c ? means[w.channel + k] : (C)0;
    slope[k] = w.channel < c ? means[c + w.channel + k] * value.inv_std[k] : (C)0;
  }
  while (w.left >= DEPTH) visit<true>(w, value, shift, slope, x, y, bits, dy, dx);
  if (w.left > 0) visit<false>(w, value, shift, slope, x, y, bits, dy, dx);
}
"""
)
