"""Compute the cross entropy of sigmoids, element by element."""

from __future__ import annotations

from ....arrays import AnyArray
from ..elementwise import elementwise, run, totals
from ..logistic import SIGMOID
from ..packs import aligned
from .loss_sum import LOSS_PARTS, WRITE_PARTS, divided_loss

__all__ = ["sigmoid_loss_forward", "sigmoid_loss_backward"]

_ENTROPY = totals(
    "entropy",
    """
          if (!has_ignore || trunc(t) != (T)ignore) {
            count += 1;
            sum += log1p(exp(-fabs(x))) - x * (t - (x >= 0 ? (T)1 : (T)0));
          }
    """,
    WRITE_PARTS,
    reads="x, t",
    params="double* work, long long has_ignore, long long ignore",
    helpers=LOSS_PARTS,
)
_BACKWARD = elementwise(
    "backward",
    """
      const bool ignored = has_ignore && trunc(t) == (T)ignore;
      dx = ignored ? (T)0 : (sigmoid(x) - t) * scale;
    """,
    reads="x, t",
    writes="dx",
    params="const T* dloss, const double* norm, long long has_ignore, long long ignore",
    setup="const T scale = (T)(dloss[0] / norm[0]);",
    helpers=SIGMOID,
)


def sigmoid_loss_forward(
    x: AnyArray,
    t: AnyArray,
    loss: AnyArray,
    norm: AnyArray,
    work: AnyArray,
    has_ignore: bool,
    ignore_label: int,
    normalizer: float,
) -> None:
    """Compute loss = -sum of (t log(sigmoid(x)) + (1 - t) log(1 - sigmoid(x))) over targets not ignored, by norm[0]."""
    args = (x, t, work, int(has_ignore), ignore_label, aligned(x, t), x.size)
    divided_loss(_ENTROPY, "entropy", x.size, args, loss, norm, work, normalizer)


def sigmoid_loss_backward(
    x: AnyArray, t: AnyArray, dloss: AnyArray, norm: AnyArray, dx: AnyArray, has_ignore: bool, ignore_label: int
) -> None:
    """Compute dx = (sigmoid(x) - t) * dloss / norm[0]; 0 at ignored targets."""
    run(_BACKWARD, "backward", (x, t, dx), dloss, norm, int(has_ignore), ignore_label)
