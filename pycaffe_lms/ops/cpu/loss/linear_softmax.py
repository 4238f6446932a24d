"""Compute the multinomial logistic loss of a linear layer's scores, a chunk of positions at a time."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import LinearGradients, LinearLoss, LinearLossInputs, LossRows
from ..conv import inner_product
from .softmax import labels_of

__all__ = ["linear_softmax_loss_backward", "linear_softmax_loss_forward"]


def linear_softmax_loss_forward(
    inputs: LinearLossInputs,
    loss: HostArray,
    saved: LossRows,
    scores: HostArray,
    losses: HostArray,
    shape: LinearLoss,
) -> None:
    """Compute loss = sum of -log(softmax(x w' + b)[label]) over the labels not ignored, divided by norm[0].

    lse (positions) becomes the logarithm of each position's sum of exponentials, losses (positions) the loss of each,
    0 at ignored labels, NaN at a label outside 0..classes-1. norm[0] (float64) becomes max(1, shape.normalizer), or
    max(1, number of labels not ignored) if that is negative. `scores`: room for rows * classes elements. Where x and
    the weights are bfloat16, scores, sums and parameters' gradients are still of the net's type.
    """
    number, counted, wrong = labels_of(inputs.label.reshape(-1), shape.has_ignore, shape.ignore, shape.classes)
    lse, norm = saved
    for first, end in shape.chunks():
        s = _scores(inputs, scores, shape, first, end)
        best = s.max(axis=1, keepdims=True)
        there = np.flatnonzero((counted & ~wrong)[first:end])
        losses[first:end] = 0
        chosen = s[there, number[first:end][there].astype(np.int64)]
        with np.errstate(invalid="ignore"):  # infinite scores give NaN
            np.exp(np.subtract(s, best, out=s), out=s)
        lse[first:end] = best[:, 0] + np.log(s.sum(axis=1))
        losses[first + there] = lse[first + there] - chosen
    losses[wrong] = np.nan
    norm[0] = max(1.0, float(counted.sum()) if shape.normalizer < 0 else shape.normalizer)
    loss.fill(losses.sum(dtype=np.float64) / norm[0])


def linear_softmax_loss_backward(
    inputs: LinearLossInputs,
    dloss: HostArray,
    gradients: LinearGradients,
    saved: LossRows,
    scores: HostArray,
    shape: LinearLoss,
) -> None:
    """Compute the wanted gradients of x, w and b from dloss and what `linear_softmax_loss_forward` wrote.

    The slope of each score is (p - onehot(label)) * dloss / norm[0], 0 at ignored labels, NaN at a label outside
    0..classes-1. `scores`: room for rows * classes elements, half as many more where x is bfloat16: on a GPU slopes are
    then bfloat16 too. The chunks' sums are added up in order.
    """
    dx, dw, db, add_w, add_b = gradients
    number, counted, wrong = labels_of(inputs.label.reshape(-1), shape.has_ignore, shape.ignore, shape.classes)
    for gradient, add in ((dw, add_w), (db, add_b)):
        if gradient is not None and not add and not shape.positions:
            gradient[...] = 0
    lse, norm = saved
    factor = lse.dtype.type(dloss.reshape(-1)[0] / norm[0])
    for first, end in shape.chunks():
        s = _scores(inputs, scores, shape, first, end)
        with np.errstate(invalid="ignore"):
            np.exp(np.subtract(s, lse[first:end, None], out=s), out=s)
        there = np.flatnonzero((counted & ~wrong)[first:end])
        s[there, number[first:end][there].astype(np.int64)] -= 1
        s *= factor
        s[~counted[first:end]] = 0
        s[wrong[first:end]] = np.nan
        size = end - first, shape.classes, shape.width, shape.transpose
        rows = slice(first, end)
        if dx is not None:
            out = dx.reshape(-1, shape.width)[rows]
            inner_product.inner_product_backward_data(s, inputs.weight, out, *size, False)
        if dw is not None:
            chunk = inputs.x.reshape(-1, shape.width)[rows]
            inner_product.inner_product_backward_weight(chunk, s, dw, *size, add_w or first > 0)
        if db is not None:
            inner_product.inner_product_backward_bias(s, db, *size[:2], add_b or first > 0)


def _scores(inputs: LinearLossInputs, room: HostArray, shape: LinearLoss, first: int, end: int) -> HostArray:
    """Return the scores (end - first, classes) of positions `first` to `end` in `room`."""
    s = room[: (end - first) * shape.classes].reshape(end - first, shape.classes)
    size = end - first, shape.classes, shape.width, shape.transpose
    inner_product.inner_product_forward(
        inputs.x.reshape(-1, shape.width)[first:end], inputs.weight, inputs.bias, s, *size
    )
    return s
