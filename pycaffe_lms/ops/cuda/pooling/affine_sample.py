"""Sample maps bilinearly at the places to which an affine transformation takes a grid.

Places are computed in float64, with the same roundings on every device, since slopes jump where they are whole numbers.
"""

from __future__ import annotations

import math

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import SAMPLE_PARTS, Affinity
from ..source import BLOCK_SUM

__all__ = ["affine_sample_backward", "affine_sample_backward_theta", "affine_sample_forward"]

_SOURCE = (
    BLOCK_SUM
    + f"#define PARTS {SAMPLE_PARTS}\n"
    + """
#define MATRIX double m0, double m1, double m2, double m3, double m4, double m5
#define NUMBERS m0, m1, m2, m3, m4, m5
#define SIZES long long channels, long long height, long long width, long long out_h, long long out_w
__device__ inline double product(double a, double b) { return __dmul_rn(a, b); }
__device__ inline double total(double a, double b) { return __dadd_rn(a, b); }

struct Sampling {  // of one item: numbers that are NaN are theta's, in order
  double m[6];
  long long height, width, out_h, out_w;
  __device__ Sampling(const T* theta, long long n, MATRIX, long long h, long long w, long long oh, long long ow)
      : height(h), width(w), out_h(oh), out_w(ow) {
    const double given[6] = {NUMBERS};
    int open = 0, next = 0;
    for (int i = 0; i < 6; ++i) open += given[i] != given[i];
    for (int i = 0; i < 6; ++i) m[i] = given[i] != given[i] ? (double)theta[n * open + next++] : given[i];
  }
  __device__ static double grid(long long at, long long size) { return total(2.0 * (double)at / (double)size, -1.0); }
  __device__ double along(int row, double g, double k, long long size) const {
    const double u = total(total(product(m[row], g), product(m[row + 1], k)), m[row + 2]);
    return product(total(u, 1.0) / 2.0, (double)size);
  }
  __device__ bool place(long long p, long long q, double& u, double& v) const {
    const double g = grid(p, out_h), k = grid(q, out_w);
    u = along(0, g, k, height);
    v = along(3, g, k, width);
    return u > -1.0 && u < (double)height && v > -1.0 && v < (double)width;
  }
};

extern "C" __global__ void forward(const T* x, const T* theta, T* y, long long n, SIZES, MATRIX) {
  LOOP(i, n) {
    const long long q = i % out_w, p = i / out_w % out_h, plane = i / (out_w * out_h);
    const Sampling sampling(theta, plane / channels, NUMBERS, height, width, out_h, out_w);
    double u, v, sum = 0;
    if (sampling.place(p, q, u, v)) {
      const long long top = (long long)floor(u), left = (long long)floor(v);
      for (long long h = top; h < top + 2; ++h)
        for (long long w = left; w < left + 2; ++w)
          if (h >= 0 && h < height && w >= 0 && w < width)
            sum += (1 - fabs(u - (double)h)) * (1 - fabs(v - (double)w)) * (double)x[(plane * height + h) * width + w];
    }
    y[i] = (T)sum;
  }
}

// A thread for each input: the outputs that use it lie in a parallelogram, and it looks through the rows and columns
// around that; through all where the transformation has no inverse.
extern "C" __global__ void backward(const T* theta, const T* dy, T* dx, long long n, SIZES, MATRIX) {
  LOOP(i, n) {
    const long long w = i % width, h = i / width % height, plane = i / (width * height);
    const Sampling sampling(theta, plane / channels, NUMBERS, height, width, out_h, out_w);
    // u = u0 + a p + b q and v = v0 + c p + d q
    const double a = sampling.m[0] * height / out_h, b = sampling.m[1] * height / out_w;
    const double c = sampling.m[3] * width / out_h, d = sampling.m[4] * width / out_w;
    const double u0 = sampling.along(0, -1, -1, height), v0 = sampling.along(3, -1, -1, width);
    const double det = a * d - b * c;
    const double p = (d * (h - u0) - b * (w - v0)) / det, q = (a * (w - v0) - c * (h - u0)) / det;
    const double down_by = 1 + 1e-12 * fabs(h - u0), right_by = 1 + 1e-12 * fabs(w - v0);  // with room for roundings
    const double far_p = (fabs(d) * down_by + fabs(b) * right_by) / fabs(det) + 1;
    const double far_q = (fabs(a) * right_by + fabs(c) * down_by) / fabs(det) + 1;
    long long first_p = 0, last_p = out_h - 1, first_q = 0, last_q = out_w - 1;
    if (fabs(det) > 1e-9 * (fabs(a * d) + fabs(b * c))) {
      first_p = p - far_p > 0 ? p - far_p < (double)out_h ? (long long)(p - far_p) : out_h : 0;
      last_p = p + far_p < (double)last_p ? p + far_p > -1.0 ? (long long)(p + far_p) : -1 : last_p;
      first_q = q - far_q > 0 ? q - far_q < (double)out_w ? (long long)(q - far_q) : out_w : 0;
      last_q = q + far_q < (double)last_q ? q + far_q > -1.0 ? (long long)(q + far_q) : -1 : last_q;
    }
    double sum = 0;
    for (long long at_p = first_p; at_p <= last_p; ++at_p)
      for (long long at_q = first_q; at_q <= last_q; ++at_q) {
        double u, v;
        if (!sampling.place(at_p, at_q, u, v)) continue;
        const double down = fabs(u - (double)h), right = fabs(v - (double)w);
        if (down < 1 && right < 1) sum += (1 - down) * (1 - right) * (double)dy[(plane * out_h + at_p) * out_w + at_q];
      }
    dx[i] = (T)sum;
  }
}

// PARTS blocks for each item; a thread takes one place of all channels
extern "C" __global__ void theta_parts(const T* x, const T* theta, const T* dy, double* work, SIZES, MATRIX) {
  const long long n = blockIdx.x / PARTS, part = blockIdx.x % PARTS;
  const Sampling sampling(theta, n, NUMBERS, height, width, out_h, out_w);
  double sums[6] = {0, 0, 0, 0, 0, 0};
  for (long long i = part * 256 + threadIdx.x; i < out_h * out_w; i += PARTS * 256) {
    const long long p = i / out_w, q = i % out_w;
    double u, v, du = 0, dv = 0;
    if (!sampling.place(p, q, u, v)) continue;
    const long long top = (long long)floor(u), left = (long long)floor(v);
    for (long long c = 0; c < channels; ++c)
      for (long long h = top; h < top + 2; ++h)
        for (long long w = left; w < left + 2; ++w)
          if (h >= 0 && h < height && w >= 0 && w < width) {
            const double value = (double)x[((n * channels + c) * height + h) * width + w] *
                                 (double)dy[((n * channels + c) * out_h + p) * out_w + q];
            du += (h > top ? 1.0 : -1.0) * (1 - fabs(v - (double)w)) * value;
            dv += (w > left ? 1.0 : -1.0) * (1 - fabs(u - (double)h)) * value;
          }
    const double g = Sampling::grid(p, out_h), k = Sampling::grid(q, out_w);
    du *= height / 2.0;
    dv *= width / 2.0;
    sums[0] += du * g, sums[1] += du * k, sums[2] += du;
    sums[3] += dv * g, sums[4] += dv * k, sums[5] += dv;
  }
  for (int j = 0; j < 6; ++j) {
    const double sum = block_sum(sums[j]);
    if (threadIdx.x == 0) work[blockIdx.x * 6 + j] = sum;
  }
}

extern "C" __global__ void theta_sums(const double* work, T* dtheta, long long items, MATRIX) {
  const double given[6] = {NUMBERS};
  int open = 0;
  for (int j = 0; j < 6; ++j) open += given[j] != given[j];
  LOOP(n, items) {
    int next = 0;
    for (int j = 0; j < 6; ++j) {
      if (given[j] == given[j]) continue;
      double sum = 0;
      for (int part = 0; part < PARTS; ++part) sum += work[(n * PARTS + part) * 6 + j];
      dtheta[n * open + next++] = (T)sum;
    }
  }
}
"""
)


def affine_sample_forward(x: AnyArray, theta: AnyArray, y: AnyArray, affinity: Affinity) -> None:
    """Compute y (N, C, oh, ow) = x (N, C, H, W) at (u, v), bilinearly, with zeros around x."""
    launch(_SOURCE, "forward", y.dtype, y.size, x, theta, y, y.size, *x.shape[1:], *y.shape[2:], *affinity)


def affine_sample_backward(theta: AnyArray, dy: AnyArray, dx: AnyArray, affinity: Affinity) -> None:
    """Compute dx = for each input, the sum of dy * its weight."""
    args = (theta, dy, dx, dx.size, *dx.shape[1:], *dy.shape[2:], *affinity)
    launch(_SOURCE, "backward", dx.dtype, dx.size, *args)


def affine_sample_backward_theta(
    x: AnyArray, theta: AnyArray, dy: AnyArray, dtheta: AnyArray, work: AnyArray, affinity: Affinity
) -> None:
    """Compute the gradient of theta. work (N, SAMPLE_PARTS, 6), in float64: the GPU's partial sums."""
    if not any(map(math.isnan, affinity)):
        return
    args = (x, theta, dy, work, *x.shape[1:], *dy.shape[2:], *affinity)
    launch(_SOURCE, "theta_parts", x.dtype, 0, *args, block=256, grid=SAMPLE_PARTS * x.shape[0])
    launch(_SOURCE, "theta_sums", x.dtype, x.shape[0], work, dtheta, x.shape[0], *affinity)
