"""Compute half the squared distance of two batches."""

from __future__ import annotations

from ....arrays import AnyArray
from ..elementwise import elementwise, run, totals
from ..packs import aligned
from .loss_sum import LOSS_PARTS, WRITE_PARTS, scaled_loss

__all__ = ["euclidean_loss_forward", "euclidean_loss_backward"]

_SQUARES = totals(
    "squares",
    "const T d = a - b; sum += (double)d * d;",
    WRITE_PARTS,
    reads="a, b",
    params="double* work",
    helpers=LOSS_PARTS,
)
_BACKWARD = {
    names: elementwise(
        "backward",
        "const T slope = (a - b) * factor;" + "da = slope;" * ("da" in names) + "db = -slope;" * ("db" in names),
        reads="a, b",
        writes=names,
        params="const T* dloss, double scale",
        setup="const T factor = (T)(dloss[0] * scale);",
    )
    for names in ("da", "db", "da, db")
}


def euclidean_loss_forward(a: AnyArray, b: AnyArray, loss: AnyArray, work: AnyArray, scale: float) -> None:
    """Compute loss = scale * sum of (a - b)^2, in float64. `work`: 2 * LOSS_BLOCKS doubles for a GPU's partial sums."""
    scaled_loss(_SQUARES, "squares", a.size, (a, b, work, aligned(a, b), a.size), loss, work, scale)


def euclidean_loss_backward(
    a: AnyArray, b: AnyArray, dloss: AnyArray, da: AnyArray | None, db: AnyArray | None, scale: float
) -> None:
    """Compute da = dloss * scale * (a - b), db = -da; one of them may be None."""
    wanted = {name: dx for name, dx in (("da", da), ("db", db)) if dx is not None}
    run(_BACKWARD[", ".join(wanted)], "backward", (a, b, *wanted.values()), dloss, float(scale))
