"""Compute the multinomial logistic loss of a linear layer's scores on a GPU, a chunk of positions at a time."""

from __future__ import annotations

from ....arrays import AnyArray
from ....backend.bfloat16 import BFLOAT16
from ....backend.cuda import launch
from ...records import LinearGradients, LinearLoss, LinearLossInputs, LossRows
from ..conv import inner_product
from ..source import BLOCK_MAX, BLOCK_SUM

__all__ = ["linear_softmax_loss_backward", "linear_softmax_loss_forward"]

# A block of threads for each row of scores (rows, classes). Slopes may be written over them.
_ROWS = (
    BLOCK_MAX
    + BLOCK_SUM
    + """
extern "C" __global__ void __launch_bounds__(256) row_losses(const T* scores, const T* label, T* lse, T* losses,
                                                             long long has_ignore, long long ignore,
                                                             long long classes) {
  const long long row = blockIdx.x;
  const T* s = scores + row * classes;
  A best = s[0], sum = 0;
  for (long long c = threadIdx.x; c < classes; c += 256) if (s[c] > best) best = s[c];
  best = block_max(best);
  for (long long c = threadIdx.x; c < classes; c += 256) sum += exp((A)s[c] - best);
  sum = block_sum(sum);
  if (threadIdx.x > 0) return;
  const A level = best + log(sum);
  const T k = trunc(label[row]);
  lse[row] = (T)level;
  if (has_ignore && k == (T)ignore) losses[row] = 0;
  else losses[row] = k >= 0 && k < classes ? (T)(level - (A)s[(long long)k]) : (T)nan("");
}
extern "C" __global__ void __launch_bounds__(256) row_slopes(const C* scores, T* slopes, const C* label, const C* lse,
                                                             const C* dloss, const double* norm, long long has_ignore,
                                                             long long ignore, long long classes) {
  const long long row = blockIdx.x;
  const C* s = scores + row * classes;
  const A level = lse[row], factor = (A)(dloss[0] / norm[0]);
  const C k = trunc(label[row]);
  const bool ignored = has_ignore && k == (C)ignore, right = k >= 0 && k < classes;
  for (long long c = threadIdx.x; c < classes; c += 256) {
    const A slope = (exp((A)s[c] - level) - (c == (long long)k ? 1 : 0)) * factor;
    slopes[row * classes + c] = (T)(ignored ? (C)0 : right ? (C)slope : (C)nan(""));
  }
}
extern "C" __global__ void __launch_bounds__(256) total(const T* losses, const T* label, T* loss, double* norm,
                                                        double normalizer, long long has_ignore, long long ignore,
                                                        long long positions) {
  double sum = 0, counted = 0;
  for (long long i = threadIdx.x; i < positions; i += 256) {
    sum += losses[i];
    counted += !has_ignore || trunc(label[i]) != (T)ignore;
  }
  sum = block_sum(sum);
  counted = block_sum(counted);
  if (threadIdx.x > 0) return;
  if (normalizer >= 0) counted = normalizer;
  norm[0] = counted < 1 ? 1 : counted;
  loss[0] = (T)(sum / norm[0]);
}
"""
)


def linear_softmax_loss_forward(
    inputs: LinearLossInputs,
    loss: AnyArray,
    saved: LossRows,
    scores: AnyArray,
    losses: AnyArray,
    shape: LinearLoss,
) -> None:
    """Compute loss = sum of -log(softmax(x w' + b)[label]) over the labels not ignored, divided by norm[0]."""
    (lse, norm), flat, classes = saved, inputs.label.reshape(-1), shape.classes
    ignored = int(shape.has_ignore), shape.ignore
    for first, end in shape.chunks():
        _scores(inputs, scores, shape, first, end)
        rows = scores, flat[first:end], lse[first:end], losses[first:end]
        launch(_ROWS, "row_losses", lse.dtype, 0, *rows, *ignored, classes, block=256, grid=end - first)
    numbers = float(shape.normalizer), *ignored, shape.positions
    launch(_ROWS, "total", lse.dtype, 0, losses, flat, loss, norm, *numbers, block=256, grid=1)


def linear_softmax_loss_backward(
    inputs: LinearLossInputs,
    dloss: AnyArray,
    gradients: LinearGradients,
    saved: LossRows,
    scores: AnyArray,
    shape: LinearLoss,
) -> None:
    """Compute the wanted gradients of x, w and b from dloss and what `linear_softmax_loss_forward` wrote."""
    dx, dw, db, add_w, add_b = gradients
    for gradient, add in ((dw, add_w), (db, add_b)):
        if gradient is not None and not add and not shape.positions:
            gradient.fill(0)
    (lse, norm), flat, ignored = saved, inputs.label.reshape(-1), (int(shape.has_ignore), shape.ignore)
    slopes = scores  # but products of bfloat16 take it alone: then behind the scores, where `scores` has room
    if inputs.x.dtype == BFLOAT16:
        slopes = scores[shape.rows * shape.classes :].view(BFLOAT16)
    for first, end in shape.chunks():
        _scores(inputs, scores, shape, first, end)
        rows = scores, slopes, flat[first:end], lse[first:end], dloss, norm
        launch(_ROWS, "row_slopes", slopes.dtype, 0, *rows, *ignored, shape.classes, block=256, grid=end - first)
        size = end - first, shape.classes, shape.width, shape.transpose
        if dx is not None:
            out = dx.reshape(-1)[first * shape.width :]
            inner_product.inner_product_backward_data(slopes, inputs.weight, out, *size, False)
        if dw is not None:
            chunk = inputs.x.reshape(-1)[first * shape.width :]
            inner_product.inner_product_backward_weight(chunk, slopes, dw, *size, add_w or first > 0)
        if db is not None:
            inner_product.inner_product_backward_bias(slopes, db, *size[:2], add_b or first > 0)


def _scores(inputs: LinearLossInputs, scores: AnyArray, shape: LinearLoss, first: int, end: int) -> None:
    """Write the scores of positions `first` to `end` to where `scores` begins."""
    size = end - first, shape.classes, shape.width, shape.transpose
    room = scores[: (end - first) * shape.classes]
    x = inputs.x.reshape(-1)[first * shape.width :]
    inner_product.inner_product_forward(x, inputs.weight, inputs.bias, room, *size)
