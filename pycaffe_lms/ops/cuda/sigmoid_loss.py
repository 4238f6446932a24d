"""Cross entropy of sigmoids, element by element."""

from __future__ import annotations

from ...backend.cuda import launch
from .loss_sum import LOSS_PARTS, divided_loss

__all__ = ["sigmoid_loss_forward", "sigmoid_loss_backward"]

_SOURCE = (
    LOSS_PARTS
    + """
extern "C" __global__ void entropy(const T* score, const T* target, double* work, long long has_ignore,
                                   long long ignore, long long n) {
  double sum = 0, count = 0;
  LOOP(i, n) {
    T x = score[i], t = target[i];
    if (has_ignore && trunc(t) == (T)ignore) continue;
    count += 1;
    sum += log1p(exp(-fabs(x))) - x * (t - (x >= 0 ? (T)1 : (T)0));
  }
  write_parts(sum, count, work);
}
extern "C" __global__ void backward(const T* score, const T* target, const T* dloss, const double* norm, T* dx,
                                    long long has_ignore, long long ignore, long long n) {
  T scale = (T)(dloss[0] / norm[0]);
  LOOP(i, n) {
    T t = target[i];
    bool ignored = has_ignore && trunc(t) == (T)ignore;
    dx[i] = ignored ? (T)0 : ((T)0.5 * tanh((T)0.5 * score[i]) + (T)0.5 - t) * scale;
  }
}
"""
)


def sigmoid_loss_forward(x, t, loss, norm, work, has_ignore, ignore_label, normalizer):
    """loss = -sum of (t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) over targets not ignored, divided by norm.

    norm[0] (float64) = max(1, normalizer), where a negative normalizer means the number of targets not ignored.
    A target whose integer part is ignore_label is ignored. `work` (512 doubles) is for the GPU's partial sums.
    """
    args = (x, t, work, int(has_ignore), ignore_label, x.size)
    divided_loss(_SOURCE, "entropy", x.size, args, loss, norm, work, normalizer)


def sigmoid_loss_backward(x, t, dloss, norm, dx, has_ignore, ignore_label):
    """dx = (sigmoid(x) - t) * dloss / norm; 0 at ignored targets."""
    args = (x, t, dloss, norm, dx, int(has_ignore), ignore_label, dx.size)
    launch(_SOURCE, "backward", dx.dtype, dx.size, *args)
