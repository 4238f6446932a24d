"""Compute Huber's loss of weighted differences: quadratic near zero, linear beyond."""

from __future__ import annotations

import functools

from ....arrays import AnyArray
from ....backend.cuda import launch
from ...records import BoxWeights, Grid
from ..elementwise import elementwise, run, totals
from ..packs import aligned
from .loss_sum import LOSS_PARTS, WRITE_PARTS, scaled_loss

__all__ = ["smooth_l1_loss_forward", "smooth_l1_loss_backward", "smooth_l1_losses"]


_LOSSES = """
// one thread for each position; a weight that is not given is 1
extern "C" __global__ void losses(const T* a, const T* b, const T* inside, const T* outside, T* losses, long long in,
                                  long long out, double sigma2, long long n, long long channels, long long inner) {
  LOOP(i, n) {
    const long long start = i / inner * channels * inner + i % inner;
    double sum = 0;
    for (long long c = 0; c < channels; ++c) {
      const long long k = start + c * inner;
      C difference = (C)a[k] - (C)b[k];
      if (in) difference = difference * (C)inside[k];
      const double d = fabs((double)difference), f = d < 1 / sigma2 ? 0.5 * sigma2 * d * d : d - 0.5 / sigma2;
      sum += out ? f * (double)(C)outside[k] : f;
    }
    losses[i] = (T)sum;
  }
}
"""


@functools.cache
def _sources(weights: int, gradients: str = "") -> tuple[str, str]:
    """Return (forward, backward) for the given weights: 1 inside, 2 outside; `gradients` names da, db or both."""
    names = "a, b" + ", inside" * (weights & 1) + ", outside" * (weights >> 1)
    inside, outside = "inside" if weights & 1 else "(T)1", "outside" if weights & 2 else "(T)1"
    forward = totals(
        "smooth_l1",
        f"""
          const T difference = (a - b) * {inside};
          const double d = fabs((double)difference), f = d < 1 / sigma2 ? 0.5 * sigma2 * d * d : d - 0.5 / sigma2;
          sum += f * {outside};
        """,
        WRITE_PARTS,
        reads=names,
        params="double* work, double sigma2",
        helpers=LOSS_PARTS,
    )
    backward = elementwise(
        "backward",
        f"""
      T d = (a - b) * {inside} * (T)sigma2;
      d = d > 1 ? (T)1 : d < -1 ? (T)-1 : d;  // NaN passes both comparisons
      d = d * {inside} * {outside} * factor;
      {"da = d;" * ("da" in gradients)} {"db = -d;" * ("db" in gradients)}
        """,
        reads=names,
        writes=gradients,
        params="const T* dloss, double sigma2, double scale",
        setup="const T factor = (T)(dloss[0] * scale);",
    )
    return forward, backward


def _chosen(
    a: AnyArray, b: AnyArray, weights: BoxWeights, gradients: str = ""
) -> tuple[tuple[AnyArray, ...], tuple[str, str]]:
    """Return (the arrays that are given, their kernels)."""
    arrays = tuple(array for array in (a, b, *weights) if array is not None)
    return arrays, _sources(int(weights.inside is not None) + 2 * int(weights.outside is not None), gradients)


def smooth_l1_loss_forward(
    a: AnyArray,
    b: AnyArray,
    weights: BoxWeights,
    loss: AnyArray,
    work: AnyArray,
    sigma2: float,
    scale: float,
) -> None:
    """Compute loss = scale * sum of outside * f(inside * (a - b)), summed in float64."""
    arrays, (source, _) = _chosen(a, b, weights)
    args = (*arrays, work, float(sigma2), aligned(*arrays), a.size)
    scaled_loss(source, "smooth_l1", a.size, args, loss, work, scale)


def smooth_l1_losses(
    a: AnyArray, b: AnyArray, weights: BoxWeights, losses: AnyArray, sigma2: float, grid: Grid
) -> None:
    """Compute losses (outer, inner) = the sum over channels of outside * f(inside * (a - b)), in float64."""
    given = [a if w is None else w for w in weights]
    flags = [int(w is not None) for w in weights]
    sizes = (grid.outer * grid.inner, grid.channels, grid.inner)
    launch(_LOSSES, "losses", a.dtype, sizes[0], a, b, *given, losses, *flags, float(sigma2), *sizes)


def smooth_l1_loss_backward(
    a: AnyArray,
    b: AnyArray,
    weights: BoxWeights,
    dloss: AnyArray,
    da: AnyArray | None,
    db: AnyArray | None,
    sigma2: float,
    scale: float,
) -> None:
    """Compute da = dloss * scale * outside * inside * f'(inside * (a - b)), db = -da; one of them may be None."""
    wanted = {name: dx for name, dx in (("da", da), ("db", db)) if dx is not None}
    arrays, (_, source) = _chosen(a, b, weights, ", ".join(wanted))
    run(source, "backward", (*arrays, *wanted.values()), dloss, float(sigma2), float(scale))
