"""Softmax over the middle axis of (outer, c, inner), and its multinomial logistic loss."""

from __future__ import annotations

from ...backend.cuda import launch
from .source import BLOCK_SUM, DIVIDE, divider

__all__ = ["softmax_forward", "softmax_backward", "softmax_loss_forward", "softmax_loss_backward"]

_SOFTMAX = (
    BLOCK_SUM
    + """
__device__ A block_max(A value) {
  __shared__ A part[256];
  part[threadIdx.x] = value;
  __syncthreads();
  for (int half = 128; half > 0; half >>= 1) {
    if (threadIdx.x < half) {
      A other = part[threadIdx.x + half];
      if (other > part[threadIdx.x]) part[threadIdx.x] = other;
    }
    __syncthreads();
  }
  A best = part[0];
  __syncthreads();
  return best;
}
// one block for each row: long rows of neighbouring elements
extern "C" __global__ void row_forward(const T* x, T* y, long long c) {
  x += blockIdx.x * c;
  y += blockIdx.x * c;
  A best = x[0], sum = 0;
  for (long long k = threadIdx.x; k < c; k += 256) if (x[k] > best) best = x[k];
  best = block_max(best);
  for (long long k = threadIdx.x; k < c; k += 256) sum += y[k] = exp(x[k] - best);
  sum = block_sum(sum);
  for (long long k = threadIdx.x; k < c; k += 256) y[k] /= sum;
}
extern "C" __global__ void row_backward(const T* y, const T* dy, T* dx, long long c) {
  y += blockIdx.x * c;
  dy += blockIdx.x * c;
  dx += blockIdx.x * c;
  A dot = 0;
  for (long long k = threadIdx.x; k < c; k += 256) dot += dy[k] * y[k];
  dot = block_sum(dot);
  for (long long k = threadIdx.x; k < c; k += 256) dx[k] = y[k] * (dy[k] - dot);
}
// one thread for each position: short rows, or elements that lie `inner` apart
extern "C" __global__ void place_forward(const T* x, T* y, long long outer, long long c, long long inner) {
  LOOP(i, outer * inner) {
    long long start = i / inner * c * inner + i % inner, end = start + c * inner;
    A best = x[start], sum = 0;
    for (long long k = start; k < end; k += inner) if (x[k] > best) best = x[k];
    for (long long k = start; k < end; k += inner) sum += y[k] = exp(x[k] - best);
    for (long long k = start; k < end; k += inner) y[k] /= sum;
  }
}
extern "C" __global__ void place_backward(const T* y, const T* dy, T* dx, long long outer, long long c,
                                          long long inner) {
  LOOP(i, outer * inner) {
    long long start = i / inner * c * inner + i % inner, end = start + c * inner;
    A dot = 0;
    for (long long k = start; k < end; k += inner) dot += dy[k] * y[k];
    for (long long k = start; k < end; k += inner) dx[k] = y[k] * (dy[k] - dot);
  }
}
"""
)

_LOSS = (
    BLOCK_SUM
    + DIVIDE
    + """
extern "C" __global__ void loss_parts(const T* prob, const T* label, double* work, long long has_ignore,
                                      long long ignore, long long outer, long long c, long long inner) {
  double sum = 0, count = 0;
  LOOP(i, outer * inner) {
    T k = trunc(label[i]);
    if (has_ignore && k == (T)ignore) continue;
    count += 1;
    if (k >= 0 && k < c) {
      T p = prob[(i / inner * c + (long long)k) * inner + i % inner];
      sum -= log(p < (T)1.17549435e-38 ? (T)1.17549435e-38 : p);
    } else {
      sum += nan("");
    }
  }
  sum = block_sum(sum);
  count = block_sum(count);
  if (threadIdx.x == 0) {
    work[blockIdx.x] = sum;
    work[256 + blockIdx.x] = count;
  }
}
extern "C" __global__ void loss_total(const double* work, T* loss, double* norm, double normalizer, long long parts) {
  double sum = block_sum(threadIdx.x < parts ? work[threadIdx.x] : 0.0);
  double count = block_sum(threadIdx.x < parts ? work[256 + threadIdx.x] : 0.0);
  if (threadIdx.x == 0) {
    if (normalizer >= 0) count = normalizer;
    norm[0] = count < 1 ? 1 : count;
    loss[0] = (T)(sum / norm[0]);
  }
}
extern "C" __global__ void loss_backward(const T* prob, const T* label, const T* dloss, const double* norm, T* dx,
                                         long long has_ignore, long long ignore, long long n, long long inner,
                                         long long i_magic, long long i_shift, long long c, long long c_magic,
                                         long long c_shift) {
  T scale = (T)(dloss[0] / norm[0]);
  LOOP(i, n) {
    long long row = quotient(i, inner, i_magic, i_shift), o = quotient(row, c, c_magic, c_shift);
    T k = trunc(label[o * inner + i - row * inner]);
    if (has_ignore && k == (T)ignore) dx[i] = 0;
    else if (k >= 0 && k < c) dx[i] = (prob[i] - (row - o * c == (long long)k ? (T)1 : (T)0)) * scale;
    else dx[i] = (T)nan("");
  }
}
"""
)


def _softmax(name, *arrays, outer, c, inner):
    dtype = arrays[0].dtype
    if inner == 1 and c > 32:
        launch(_SOFTMAX, "row_" + name, dtype, 0, *arrays, c, block=256, grid=outer)
    elif c > 0:
        launch(_SOFTMAX, "place_" + name, dtype, outer * inner, *arrays, outer, c, inner)


def softmax_forward(x, y, outer, c, inner):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) along c."""
    _softmax("forward", x, y, outer=outer, c=c, inner=inner)


def softmax_backward(y, dy, dx, outer, c, inner):
    """dx = y * (dy - sum(dy * y)), sums along c; dx may be dy."""
    _softmax("backward", y, dy, dx, outer=outer, c=c, inner=inner)


def softmax_loss_forward(prob, label, loss, norm, work, has_ignore, ignore_label, normalizer, outer, c, inner):
    """loss = sum of -log(max(p[label], FLT_MIN)) over the labels that are not ignored, divided by norm.

    norm[0] (float64) = max(1, normalizer), where a negative normalizer means the number of labels not ignored.
    A label outside 0..c-1 makes the loss NaN. `work` (512 doubles) is for the GPU's partial sums.
    """
    parts = min(256, max(1, (outer * inner + 1023) // 1024))
    args = (prob, label, work, int(has_ignore), ignore_label, outer, c, inner)
    launch(_LOSS, "loss_parts", prob.dtype, 0, *args, block=256, grid=parts)
    launch(_LOSS, "loss_total", prob.dtype, 0, work, loss, norm, float(normalizer), parts, block=256, grid=1)


def softmax_loss_backward(prob, label, dloss, norm, dx, has_ignore, ignore_label, outer, c, inner):
    """dx = (p - onehot(label)) * dloss / norm; 0 at ignored labels, NaN at a label outside 0..c-1."""
    n = outer * c * inner
    args = (prob, label, dloss, norm, dx, int(has_ignore), ignore_label, n)
    launch(_LOSS, "loss_backward", dx.dtype, n, *args, *divider(inner, n), *divider(c, n))
