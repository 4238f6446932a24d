"""Compute ReLU with one slope per channel, of arrays seen as (outer, dim, inner)."""

from __future__ import annotations

import functools

from ....arrays import AnyArray
from ...records import Grid
from ..channel_walk import add_up, run_walk, walking
from ..per_channel import per_channel, run_per_channel

__all__ = ["prelu_forward", "prelu_backward"]

_FORWARD = per_channel(
    "prelu_forward",
    "y = (x < 0 ? (T)0 : x) + a * (x > 0 ? (T)0 : x);",  # NaN passes both comparisons
    channel="a",
    reads="x",
    writes="y",
)
_DATA = "dx = dy * (x > 0 ? (T)1 : x <= 0 ? a : (T)0);"
_BACKWARD_DATA = per_channel("prelu_backward", _DATA, channel="a", reads="x, dy", writes="dx")


@functools.cache
def _backward(want_dx: bool) -> str:
    return walking(
        "prelu_backward",
        "sum0 += dy * (x > 0 ? (T)0 : x);" + _DATA * want_dx,
        reads="x, dy",
        writes="dx" * want_dx,
        channel="a" * want_dx,
        sums=1,
    )


def prelu_forward(x: AnyArray, a: AnyArray, y: AnyArray, grid: Grid) -> None:
    """Compute y = max(x, 0) + a * min(x, 0); y may be x."""
    run_per_channel(_FORWARD, "prelu_forward", (x, y), [a], grid)


def prelu_backward(
    x: AnyArray,
    a: AnyArray,
    dy: AnyArray,
    dx: AnyArray | None,
    da: AnyArray | None,
    accumulate: bool,
    work: AnyArray,
    grid: Grid,
) -> None:
    """Compute the gradients of `prelu_forward`."""
    if da is None:
        run_per_channel(_BACKWARD_DATA, "prelu_backward", (x, dy, dx), [a], grid)
        return
    arrays, channel = ((x, dy), []) if dx is None else ((x, dy, dx), [a])
    parts = run_walk(_backward(dx is not None), "prelu_backward", arrays, channel, grid, work)
    add_up(work, 0, da, accumulate, grid.channels, parts)
