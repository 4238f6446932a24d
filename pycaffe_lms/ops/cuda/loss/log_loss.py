"""Compute logistic losses: of probabilities (n, c), and of a softmax (outer, c, inner) with class weights."""

from __future__ import annotations

import ctypes

from ....arrays import AnyArray, HostArray
from ....backend.cuda import launch
from ...records import LabelGrid
from ..source import DIVIDE, divider
from .loss_sum import LOSS_PARTS, divided_loss, scaled_loss

__all__ = [
    "multinomial_loss_forward",
    "multinomial_loss_backward",
    "upload_matrix",
    "infogain_loss_forward",
    "infogain_loss_backward",
]

_SOURCE = (
    LOSS_PARTS
    + DIVIDE
    + """
__device__ T at_least(T p) { return p < (T)1e-20 ? (T)1e-20 : p; }
extern "C" __global__ void logs(const T* p, const T* label, double* work, long long n, long long c) {
  double sum = 0;
  LOOP(i, n) {
    T k = trunc(label[i]);
    if (k >= 0 && k < c) sum -= log(at_least(p[i * c + (long long)k]));
    else sum += nan("");
  }
  write_parts(sum, 0.0, work);
}
extern "C" __global__ void logs_backward(const T* p, const T* label, const T* dloss, T* dx, double scale, long long n,
                                         long long c, long long magic, long long shift) {
  T factor = (T)(-dloss[0] * scale);
  LOOP(i, n) {
    long long item = quotient(i, c, magic, shift);
    T k = trunc(label[item]);
    if (k >= 0 && k < c) dx[i] = i - item * c == (long long)k ? factor / at_least(p[i]) : (T)0;
    else dx[i] = (T)nan("");
  }
}
extern "C" __global__ void gains(const T* prob, const T* label, const T* matrix, double* work, long long has_ignore,
                                 long long ignore, long long n, long long inner, long long i_magic, long long i_shift,
                                 long long c, long long c_magic, long long c_shift) {
  double sum = 0, count = 0;
  LOOP(i, n) {
    long long row = quotient(i, inner, i_magic, i_shift), o = quotient(row, c, c_magic, c_shift), l = row - o * c;
    T k = trunc(label[o * inner + i - row * inner]);
    if (has_ignore && k == (T)ignore) continue;
    if (l == 0) count += 1;
    if (k >= 0 && k < c) sum -= matrix[(long long)k * c + l] * log(at_least(prob[i]));
    else sum += nan("");
  }
  write_parts(sum, count, work);
}
// one block for each row
extern "C" __global__ void row_sums(const T* matrix, double* sums, long long c) {
  double sum = 0;
  for (long long l = threadIdx.x; l < c; l += 256) sum += matrix[blockIdx.x * c + l];
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
extern "C" __global__ void gains_backward(const T* prob, const T* label, const T* matrix, const T* dloss,
                                          const double* norm, const double* sums, T* dx, long long has_ignore,
                                          long long ignore, long long n, long long inner, long long i_magic,
                                          long long i_shift, long long c, long long c_magic, long long c_shift) {
  T scale = (T)(dloss[0] / norm[0]);
  LOOP(i, n) {
    long long row = quotient(i, inner, i_magic, i_shift), o = quotient(row, c, c_magic, c_shift);
    T value = trunc(label[o * inner + i - row * inner]);
    if (has_ignore && value == (T)ignore) {
      dx[i] = 0;
    } else if (value >= 0 && value < c) {
      long long k = (long long)value;
      dx[i] = (prob[i] * (T)sums[k] - matrix[k * c + row - o * c]) * scale;
    } else {
      dx[i] = (T)nan("");
    }
  }
}
"""
)


def multinomial_loss_forward(
    p: AnyArray, label: AnyArray, loss: AnyArray, work: AnyArray, scale: float, n: int, c: int
) -> None:
    """Compute loss = -scale * sum of log(max(p[label], 1e-20))."""
    scaled_loss(_SOURCE, "logs", n, (p, label, work, n, c), loss, work, scale)


def multinomial_loss_backward(
    p: AnyArray, label: AnyArray, dloss: AnyArray, dx: AnyArray, scale: float, n: int, c: int
) -> None:
    """Compute dx = -dloss * scale / max(p, 1e-20) at the label, 0 elsewhere; NaN where a label is outside 0..c-1."""
    args = (p, label, dloss, dx, float(scale), n * c, *divider(c, n * c))
    launch(_SOURCE, "logs_backward", dx.dtype, n * c, *args)


def upload_matrix(host: HostArray, matrix: AnyArray) -> None:
    """Copy `host`, an array in host memory that stays unchanged, to `matrix`."""
    matrix.data.copy_from_host_async(ctypes.c_void_p(host.ctypes.data), host.nbytes)


def infogain_loss_forward(
    prob: AnyArray,
    label: AnyArray,
    matrix: AnyArray,
    loss: AnyArray,
    norm: AnyArray,
    work: AnyArray,
    normalizer: float,
    grid: LabelGrid,
) -> None:
    """Compute loss = -sum of matrix[label, l] * log(max(p[l], 1e-20)) over labels not ignored, divided by norm[0]."""
    outer, c, inner, has_ignore, ignore_label = grid
    n = outer * c * inner
    args = (prob, label, matrix, work, int(has_ignore), ignore_label, n, *divider(inner, n), *divider(c, n))
    divided_loss(_SOURCE, "gains", n, args, loss, norm, work, normalizer)


def infogain_loss_backward(
    prob: AnyArray,
    label: AnyArray,
    matrix: AnyArray,
    dloss: AnyArray,
    norm: AnyArray,
    row_sums: AnyArray,
    dx: AnyArray,
    grid: LabelGrid,
) -> None:
    """Compute dx = (p * sum(matrix[label]) - matrix[label]) * dloss / norm[0]."""
    outer, c, inner, has_ignore, ignore_label = grid
    n = outer * c * inner
    if n == 0:
        return
    launch(_SOURCE, "row_sums", dx.dtype, 0, matrix, row_sums, c, block=256, grid=c)
    args = (prob, label, matrix, dloss, norm, row_sums, dx, int(has_ignore), ignore_label, n)
    launch(_SOURCE, "gains_backward", dx.dtype, n, *args, *divider(inner, n), *divider(c, n))
