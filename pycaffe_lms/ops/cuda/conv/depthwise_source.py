"""Hold the CUDA C++ of the depthwise kernels, for both memory orders; `depthwise.py` sets the numbers in front of it.

A thread works on V neighbouring channels (1 unless channels are last) and a strip of rows in one column. With channels
last, LANES threads stand side by side along the channels of a block's group, and blocks of one place are neighbours.
Sums of both orders are the same sums: taps of one column after another, rows within.
"""

from __future__ import annotations

COMMON = """
enum { THREADS = 256 };
#define BOUNDS(blocks) __launch_bounds__(THREADS, sizeof(A) == 8 ? 1 : blocks)
template <typename E, int N> struct alignas(ALIGNED ? (N * sizeof(E) < 16 ? N * sizeof(E) : 16) : sizeof(E)) Pack {
  E v[N];
};
template <int N> __device__ __forceinline__ void load(A (&to)[N], const T* from, bool inside) {
  Pack<T, N> pack;
  if (inside) pack = *(const Pack<T, N>*)from;
  #pragma unroll
  for (int v = 0; v < N; v++) to[v] = inside ? (A)(C)pack.v[v] : (A)0;
}
template <int N> __device__ __forceinline__ void store(T* to, const A (&from)[N]) {
  Pack<T, N> pack;
  #pragma unroll
  for (int v = 0; v < N; v++) pack.v[v] = (T)(C)from[v];
  *(Pack<T, N>*)to = pack;
}

// an array (images, CHANNELS, D, H, W) in either order: distances between neighbours along each axis
template <int CHANNELS, int D, int H, int W> struct Array {
  static constexpr Offset COLUMN = LAST ? CHANNELS : 1, ROW = W * COLUMN, PLANE = H * ROW, VOLUME = D * PLANE;
  static constexpr Offset CHANNEL = LAST ? 1 : VOLUME;
  static constexpr long long IMAGE = (long long)VOLUME * (LAST ? 1 : CHANNELS);
};
typedef Array<CHANNELS, IN_D, IN_H, IN_W> In;
typedef Array<OUTPUTS, OUT_D, OUT_H, OUT_W> Out;

// one of the strips of all images, or with channels last of one channel
template <int CHANNELS, int D, int STRIPS, int W> struct Strip {
  int channel, d, strip, column;
  Index image;
  __device__ void at(Index rest) {
    column = rest % W; rest /= W;
    strip = rest % STRIPS; rest /= STRIPS;
    d = rest % D; rest /= D;
    if (!LAST) { channel = rest % CHANNELS; rest /= CHANNELS; }
    image = rest;
  }
};

// a thread's strip
template <int CHANNELS, int D, int STRIPS, int W, int LANES, int V> struct Place : Strip<CHANNELS, D, STRIPS, W> {
  static constexpr int GROUPS = LAST ? (CHANNELS / V + LANES - 1) / LANES : 1;
  int first;  // the first channel of the block
  bool in;
  __device__ Place(long long n) {
    Index rest;
    if (LAST) {
      first = (int)(blockIdx.x % GROUPS) * LANES * V;
      this->channel = first + (int)threadIdx.x % LANES * V;
      rest = (Index)(blockIdx.x / GROUPS) * (THREADS / LANES) + threadIdx.x / LANES;
    } else {
      rest = (Index)blockIdx.x * THREADS + threadIdx.x;
    }
    in = rest < (Index)n && (!LAST || this->channel < CHANNELS);
    this->at(rest);
  }
};

// the weights of a block's channels, EACH for every channel: in shared memory where channels are last and they fit
template <int EACH, int CHANNELS, int WIDTH> struct Weights {
  enum { SHARED = LAST && EACH * WIDTH * sizeof(C) <= 16384 };
  C at[SHARED ? EACH : 1][SHARED ? WIDTH : 1];
  __device__ void fetch(const C* w, int first) {
    if (!SHARED) return;
    for (int i = threadIdx.x; i < EACH * WIDTH; i += THREADS)
      if (first + i / EACH < CHANNELS) at[i % EACH][i / EACH] = w[(long long)first * EACH + i];
  }
  template <int V> __device__ __forceinline__ void tap(A (&to)[V], const C* w, int first, int channel, int t) const {
    #pragma unroll
    for (int v = 0; v < V; v++)
      to[v] = SHARED ? at[SHARED ? t : 0][SHARED ? channel - first + v : 0] : w[(long long)(channel + v) * EACH + t];
  }
};
"""

FORWARD = """
extern "C" __global__ void BOUNDS(BLOCKS)
forward(const T* __restrict__ x, const C* __restrict__ w, const C* __restrict__ b, T* __restrict__ y,
        long long use_bias, long long relu, long long n) {
  typedef Weights<TAPS, OUTPUTS, LANES * V> Taps;
  __shared__ Taps taps;
  const Place<OUTPUTS, OUT_D, (OUT_H + STRIP - 1) / STRIP, OUT_W, LANES, V> p(n);
  taps.fetch(w, LAST ? p.first : 0);
  if (Taps::SHARED) __syncthreads();
  if (!p.in) return;
  const int o = p.channel, h0 = p.strip * STRIP * S_H - P_H, w0 = p.column * S_W - P_W, d0 = p.d * S_D - P_D;
  const T* in = x + p.image * In::IMAGE + o / MULTIPLE * In::CHANNEL + h0 * In::ROW + w0 * In::COLUMN + d0 * In::PLANE;
  A sum[STRIP][V] = {};
  #pragma unroll UNROLL
  for (int a = 0; a < K_D; a++)
    #pragma unroll UNROLL
    for (int e = 0; e < K_W; e++) {
      const bool inside = (unsigned)(d0 + a * L_D) < IN_D && (unsigned)(w0 + e * L_W) < IN_W;
      const T* from = in + (a * L_D * In::PLANE + e * L_W * In::COLUMN);
      A value[ROWS][V];
      #pragma unroll
      for (int j = 0; j < ROWS; j++) load<V>(value[j], from + j * In::ROW, inside && (unsigned)(h0 + j) < IN_H);
      #pragma unroll
      for (int k = 0; k < K_H; k++) {
        A tap[V];
        taps.tap<V>(tap, w, LAST ? p.first : 0, o, (a * K_H + k) * K_W + e);
        #pragma unroll
        for (int r = 0; r < STRIP; r++)
          #pragma unroll
          for (int v = 0; v < V; v++) sum[r][v] += tap[v] * value[r * S_H + k * L_H][v];
      }
    }
  const int h = p.strip * STRIP;
  T* to = y + p.image * Out::IMAGE + o * Out::CHANNEL + p.d * Out::PLANE + h * Out::ROW + p.column * Out::COLUMN;
  #pragma unroll
  for (int r = 0; r < STRIP; r++) {
    #pragma unroll
    for (int v = 0; v < V; v++) {
      const C value = (C)(T)(C)(sum[r][v] + (use_bias ? (A)b[o + v] : (A)0));
      sum[r][v] = relu && value < 0 ? (C)0 : value;  // NaN stays
    }
    if (h + r < OUT_H) store<V>(to + r * Out::ROW, sum[r]);
  }
}
"""

# BAND is a multiple of S_H: so which taps meet which row is known to the compiler
BACKWARD_DATA = """
extern "C" __global__ void BOUNDS(BAND_BLOCKS)
backward_data(const T* __restrict__ dy, const C* __restrict__ w, T* __restrict__ dx, long long n) {
  typedef Weights<TAPS * MULTIPLE, CHANNELS, LANES * V> Taps;
  __shared__ Taps taps;
  const Place<CHANNELS, IN_D, (IN_H + BAND - 1) / BAND, IN_W, LANES, V> p(n);
  taps.fetch(w, LAST ? p.first : 0);
  if (Taps::SHARED) __syncthreads();
  if (!p.in) return;
  const int h0 = p.strip * (BAND / S_H) + LOW;
  A sum[BAND][V] = {};
  for (int m = 0; m < MULTIPLE; m++) {
    const T* out = dy + p.image * Out::IMAGE + (p.channel * MULTIPLE + m) * Out::CHANNEL + h0 * Out::ROW;
    #pragma unroll UNROLL
    for (int a = 0; a < K_D; a++)
      #pragma unroll UNROLL
      for (int e = 0; e < K_W; e++) {
        const int d = p.d + P_D - a * L_D, at = p.column + P_W - e * L_W;
        const bool inside = d >= 0 && d % S_D == 0 && d / S_D < OUT_D && at >= 0 && at % S_W == 0 && at / S_W < OUT_W;
        const T* from = out + (d / S_D * Out::PLANE + at / S_W * Out::COLUMN);
        A value[BAND_ROWS][V];
        #pragma unroll
        for (int j = 0; j < BAND_ROWS; j++)
          load<V>(value[j], from + j * Out::ROW, inside && (unsigned)(h0 + j) < OUT_H);
        #pragma unroll
        for (int k = 0; k < K_H; k++) {
          A tap[V];
          taps.tap<V>(tap, w, LAST ? p.first : 0, p.channel, m * TAPS + (a * K_H + k) * K_W + e);
          #pragma unroll
          for (int r = 0; r < BAND; r++) {
            const int row = r + P_H - k * L_H - LOW * S_H;  // never negative
            #pragma unroll
            for (int v = 0; v < V; v++)
              if (row % S_H == 0) sum[r][v] += tap[v] * value[row / S_H][v];
          }
        }
      }
  }
  const int h = p.strip * BAND;
  T* to = dx + p.image * In::IMAGE + p.channel * In::CHANNEL + p.d * In::PLANE + h * In::ROW + p.column * In::COLUMN;
  #pragma unroll
  for (int r = 0; r < BAND; r++)
    if (h + r < IN_H) store<V>(to + r * In::ROW, sum[r]);
}
"""

# one block per part, group of output channels and group of columns of taps
BACKWARD_FILTER = """
extern "C" __global__ void BOUNDS(F_BLOCKS)
backward_filter(const T* __restrict__ x, const T* __restrict__ dy, C* __restrict__ parts, long long each,
                long long total) {
  enum { SUMS = COLUMNS * K_H, WIDTH = F_LANES * F_V, GROUPS = (OUTPUTS / F_V + F_LANES - 1) / F_LANES };
  enum { WALKERS = THREADS / F_LANES };
  __shared__ A warps[THREADS / 32][SUMS][WIDTH];
  const int split = blockIdx.x % SPLITS, first = (int)(blockIdx.x / SPLITS % GROUPS) * WIDTH;
  const int lane = threadIdx.x % F_LANES, o = first + lane * F_V;
  const long long part = blockIdx.x / SPLITS / GROUPS, end = (part + 1) * each < total ? (part + 1) * each : total;
  A sum[SUMS][F_V] = {};
  if (o < OUTPUTS)
    for (Index j = part * each + threadIdx.x / F_LANES; j < (Index)end; j += WALKERS) {
      Strip<1, OUT_D, (OUT_H + F_STRIP - 1) / F_STRIP, OUT_W> p;
      p.at(j);
      const int d = p.d, h = p.strip * F_STRIP;
      const T* out = dy + p.image * Out::IMAGE;
      out += o * Out::CHANNEL + d * Out::PLANE + h * Out::ROW + p.column * Out::COLUMN;
      A gradient[F_STRIP][F_V];
      #pragma unroll
      for (int r = 0; r < F_STRIP; r++) load<F_V>(gradient[r], out + r * Out::ROW, h + r < OUT_H);
      const int h0 = h * S_H - P_H, w0 = p.column * S_W - P_W, d0 = d * S_D - P_D;
      const T* in =
          x + p.image * In::IMAGE + (o / MULTIPLE * In::CHANNEL + h0 * In::ROW + w0 * In::COLUMN + d0 * In::PLANE);
      #pragma unroll
      for (int q = 0; q < COLUMNS; q++) {
        const int a = (SPLITS == 1 ? q : split) / K_W, e = (SPLITS == 1 ? q : split) % K_W;
        const bool inside = (unsigned)(d0 + a * L_D) < IN_D && (unsigned)(w0 + e * L_W) < IN_W;
        const T* from = in + (a * L_D * In::PLANE + e * L_W * In::COLUMN);
        A value[F_ROWS][F_V];
        #pragma unroll
        for (int k = 0; k < F_ROWS; k++)
          load<F_V>(value[k], from + k * In::ROW, inside && (unsigned)(h0 + k) < IN_H);
        #pragma unroll
        for (int k = 0; k < K_H; k++)
          #pragma unroll
          for (int r = 0; r < F_STRIP; r++)
            #pragma unroll
            for (int v = 0; v < F_V; v++) sum[q * K_H + k][v] += gradient[r][v] * value[r * S_H + k * L_H][v];
      }
    }
  #pragma unroll
  for (int s = 0; s < SUMS; s++)
    #pragma unroll
    for (int v = 0; v < F_V; v++) {
      A whole = sum[s][v];
      #pragma unroll
      for (int half = 16; half >= F_LANES; half >>= 1) whole += __shfl_xor_sync(0xffffffffu, whole, half);
      if (threadIdx.x % 32 < F_LANES) warps[threadIdx.x / 32][s][lane * F_V + v] = whole;
    }
  __syncthreads();
  for (int i = threadIdx.x; i < SUMS * WIDTH; i += THREADS) {
    const int s = i / WIDTH, c = i % WIDTH;
    if (first + c >= OUTPUTS) continue;
    A whole = 0;
    for (int k = 0; k < THREADS / 32; k++) whole += warps[k][s][c];
    const int column = SPLITS == 1 ? s / K_H : split, k = s % K_H;
    parts[(part * OUTPUTS + first + c) * TAPS + (column / K_W * K_H + k) * K_W + column % K_W] = (C)whole;
  }
}
"""

ADD_PARTS = """
// 8 weights of a block of 256 threads: 32 sums of each, then their sum
extern "C" __global__ void add_parts(const T* __restrict__ parts, T* __restrict__ dw, long long count, long long n,
                                     long long accumulate) {
  __shared__ double sums[32][8];
  const int lane = threadIdx.x % 8, slice = threadIdx.x / 8;
  const long long i = blockIdx.x * 8ll + lane;
  double sum = 0;
  if (i < n)
    for (long long p = slice; p < count; p += 32) sum += parts[p * n + i];
  sums[slice][lane] = sum;
  __syncthreads();
  if (slice || i >= n) return;
  sum = 0;
  for (int s = 0; s < 32; s++) sum += sums[s][lane];
  dw[i] = (T)(accumulate ? dw[i] + sum : sum);
}
"""

SOURCE = COMMON + FORWARD + BACKWARD_DATA + BACKWARD_FILTER
