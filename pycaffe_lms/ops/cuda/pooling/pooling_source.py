"""Hold the CUDA C++ of the pooling kernels.

Window, stride and pad (K, S, P) are constants in front of the source where the window is small, so that its loops are
unrolled and their loads are under way together. Inside a plane all arithmetic has 32 bits.
"""

from __future__ import annotations

from ..elementwise import QUADS
from ..source import BLOCK_SUM, DIVIDE

WINDOWS = (
    QUADS
    + DIVIDE
    + """
const int UNROLLED = UNROLL;  // rows of a window
#define SHAPE long long in_h, long long in_w, long long out_h, long long out_w, long long k_h, long long k_w, \\
    long long s_h, long long s_w, long long p_h, long long p_w
#define DIVIDER(d) long long d, long long d##_magic, long long d##_shift
#define OVER(i, d) quotient(i, d, d##_magic, d##_shift)

// the window of output i: rows h0 .. h0 + K_H - 1 and columns w0 .. w0 + K_W - 1, of the plane `in`
#define WINDOW(i) \\
    const long long line = OVER(i, columns), plane = OVER(line, rows); \\
    const int h0 = (int)(line - plane * rows) * S_H - P_H, w0 = (int)(i - line * columns) * S_W - P_W; \\
    const int height = (int)in_h, width = (int)in_w; \\
    const T* in = x + plane * in_h * in_w

// visit(value, place in the window) for the window's places, `absent` in place of those outside
template <typename F> __device__ inline void each_place(const T* in, int h0, int w0, int height, int width, int k_h,
                                                        int k_w, T absent, F visit) {
  #pragma unroll UNROLLED
  for (int r = 0; r < K_H; ++r) {
    const int h = h0 + r;
    const bool row_inside = h >= 0 && h < height;
    for (int first = 0; first < K_W; first += AHEAD_X) {
      T ahead[AHEAD_X];
      #pragma unroll
      for (int j = 0; j < AHEAD_X; ++j) {
        const int c = first + j, w = w0 + c;
        ahead[j] = row_inside && c < K_W && w >= 0 && w < width ? in[h * width + w] : absent;
      }
      #pragma unroll
      for (int j = 0; j < AHEAD_X; ++j) visit(ahead[j], r * k_w + first + j);
    }
  }
}

// what the window's sum along one axis is divided by: clipped to size + pad at the far end only, or to the inside
__device__ inline int divisor(int start, int kernel, int size, int pad) {
  const int first = INSIDE && start < 0 ? 0 : start, end = INSIDE ? size : size + pad;
  const int places = (start + kernel < end ? start + kernel : end) - first;
  return places > 1 ? places : 1;
}

extern "C" __global__ void max_pool_forward(const T* __restrict__ x, T* __restrict__ y, M* __restrict__ mask,
                                            T* __restrict__ top_mask, long long use_mask, long long use_top_mask,
                                            long long n, SHAPE, DIVIDER(columns), DIVIDER(rows)) {
  LOOP(i, n) {
    WINDOW(i);
    T best = (T)-3.402823466385288598e+38;
    int where = -1;
    each_place(in, h0, w0, height, width, (int)k_h, (int)k_w, (T)nan(""), [&](T value, int place) {
      if (value > best) { best = value; where = place; }
    });
    y[i] = best;
    if (use_mask) mask[i] = (M)where;
    if (use_top_mask) top_mask[i] = (T)(where < 0 ? -1 : (h0 + where / K_W) * width + w0 + where % K_W);
  }
}

extern "C" __global__ void average_pool_forward(const T* __restrict__ x, T* __restrict__ y, long long n, SHAPE,
                                                DIVIDER(columns), DIVIDER(rows)) {
  LOOP(i, n) {
    WINDOW(i);
    A sum = 0;
    each_place(in, h0, w0, height, width, (int)k_h, (int)k_w, (T)0, [&](T value, int) { sum += value; });
    y[i] = (T)(sum / (A)(divisor(h0, K_H, height, P_H) * divisor(w0, K_W, width, P_W)));
  }
}

// four neighbouring inputs (h, w) .. (h, w + 3) of a plane, and the first outputs whose windows reach them
#define FOUR(i) \\
    const long long line = OVER(i, quads), plane = OVER(line, rows); \\
    const int h = (int)(line - plane * rows), w = (int)(i - line * quads) * 4, height = (int)in_h, width = (int)in_w; \\
    const int ph = h + P_H, pw = w + P_W, row_end = (int)out_h, column_end = (int)out_w; \\
    const int o_h0 = ph < K_H ? 0 : (int)((unsigned)(ph - K_H) / (unsigned)S_H) + 1; \\
    const int o_w0 = pw < K_W ? 0 : (int)((unsigned)(pw - K_W) / (unsigned)S_W) + 1; \\
    const long long outputs = plane * out_h * out_w; \\
    A sum[4] = {0, 0, 0, 0}; \\
    (void)height

// rows and columns of the outputs that hold any of the four: a row oh, columns ow = o_w0 + first + j
#define COVERING_ROWS \\
    for (int oh = o_h0; oh < row_end && oh * S_H <= ph; ++oh)
#define COVERING_COLUMNS \\
    for (int first = o_w0; first < column_end && first * S_W <= pw + 3; first += AHEAD_Y)
#define COVERS(ow) ((ow) < column_end && (ow) * S_W <= pw + 3)

__device__ inline void put_four(T* dx, long long start, int w, int width, bool whole, const A* sum) {
  Quad<T> out;
  #pragma unroll
  for (int lane = 0; lane < 4; ++lane) out.v[lane] = (T)sum[lane];
  put_quad(dx, start + w, whole, start + width, out);
}

extern "C" __global__ void max_pool_backward(const T* __restrict__ dy, const M* __restrict__ mask,
                                             T* __restrict__ dx, long long n, SHAPE, long long whole, DIVIDER(quads),
                                             DIVIDER(rows)) {
  LOOP(i, n) {
    FOUR(i);
    COVERING_ROWS {
      const int row = (ph - oh * S_H) * K_W;  // this row's first place in the windows of row oh
      COVERING_COLUMNS {
        int places[AHEAD_Y];
        T values[AHEAD_Y];
        #pragma unroll
        for (int j = 0; j < AHEAD_Y; ++j) {
          const bool there = COVERS(first + j);
          const long long o = outputs + oh * column_end + first + j;
          places[j] = there ? mask[o] : -1;
          values[j] = there ? dy[o] : (T)0;
        }
        #pragma unroll
        for (int j = 0; j < AHEAD_Y; ++j) {
          #pragma unroll
          for (int lane = 0; lane < 4; ++lane) {
            const int column = pw + lane - (first + j) * S_W;
            if (column >= 0 && column < K_W && places[j] == row + column && w + lane < width) sum[lane] += values[j];
          }
        }
      }
    }
    put_four(dx, line * in_w, w, width, whole, sum);
  }
}

extern "C" __global__ void average_pool_backward(const T* __restrict__ dy, T* __restrict__ dx, long long n, SHAPE,
                                                 long long whole, DIVIDER(quads), DIVIDER(rows)) {
  LOOP(i, n) {
    FOUR(i);
    COVERING_ROWS {
      const int size_h = divisor(oh * S_H - P_H, K_H, height, P_H);
      COVERING_COLUMNS {
        T values[AHEAD_Y];
        #pragma unroll
        for (int j = 0; j < AHEAD_Y; ++j)
          values[j] = COVERS(first + j) ? dy[outputs + oh * column_end + first + j] : (T)0;
        #pragma unroll
        for (int j = 0; j < AHEAD_Y; ++j) {
          if (!COVERS(first + j)) continue;
          const int start = (first + j) * S_W;
          const A share = values[j] / (A)(size_h * divisor(start - P_W, K_W, width, P_W));
          #pragma unroll
          for (int lane = 0; lane < 4; ++lane)
            if (start <= pw + lane && pw + lane < start + K_W) sum[lane] += share;
        }
      }
    }
    put_four(dx, line * in_w, w, width, whole, sum);
  }
}
"""
)

PLANES = (
    BLOCK_SUM
    + """
// averages of whole planes: a warp for each, and a block for each
extern "C" __global__ void short_planes(const T* x, T* y, long long planes, long long size) {
  LOOP(i, planes * 32) {
    const long long plane = i / 32;
    const T* in = x + plane * size;
    const int lane = (int)(i % 32), end = (int)size;
    A sum = 0;
    #pragma unroll 4
    for (int k = lane; k < end; k += 32) sum += in[k];
    sum = warp_sum(sum);
    if (lane == 0) y[plane] = (T)(sum / (A)size);
  }
}
extern "C" __global__ void long_planes(const T* x, T* y, long long size) {
  x += blockIdx.x * size;
  A sum = 0;
  #pragma unroll 4
  for (long long k = threadIdx.x; k < size; k += 256) sum += x[k];
  sum = block_sum(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = (T)(sum / (A)size);
}
"""
)
