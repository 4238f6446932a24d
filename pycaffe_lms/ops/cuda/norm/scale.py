"""Scale and shift arrays: one factor and one shift per channel."""

from __future__ import annotations

import functools

from ....arrays import AnyArray
from ...records import Affine, AffineGradients, Grid
from ..basic import copy
from ..channel_walk import add_up, run_walk, walking
from ..per_channel import per_channel, run_per_channel

__all__ = ["scale_forward", "scale_backward"]

_FORWARD = {
    "scale": per_channel("scale", "y = x * s;", channel="s", reads="x", writes="y"),
    "bias": per_channel("bias", "y = x + b;", channel="b", reads="x", writes="y"),
    "scale_bias": per_channel("scale_bias", "y = x * s + b;", channel="s, b", reads="x", writes="y"),
}


@functools.cache
def _backward(sums: str, data: str) -> str:
    """Return the kernel for the wanted sums ("s", "b" or "sb") and dx ("" none, "copy" dy or "scale" dy * s)."""
    adds = {"s": "sum0 += dy * x;", "b": "sum0 += dy;", "sb": "sum0 += dy * x; sum1 += dy;"}[sums]
    writes = {"": "", "copy": "dx = dy;", "scale": "dx = dy * s;"}[data]
    return walking(
        "scale_backward",
        adds + writes,
        reads="x, dy" if "s" in sums else "dy",
        writes="dx" if data else "",
        channel="s" if data == "scale" else "",
        sums=len(sums),
    )


def scale_forward(x: AnyArray, affine: Affine, y: AnyArray, grid: Grid) -> None:
    """Compute y = x * scale + bias; y may be x."""
    name = "bias" if affine.scale is None else "scale" if affine.bias is None else "scale_bias"
    run_per_channel(_FORWARD[name], name, (x, y), [v for v in affine if v is not None], grid)


def scale_backward(
    x: AnyArray | None,
    scale: AnyArray | None,
    dy: AnyArray,
    dx: AnyArray | None,
    gradients: AffineGradients,
    work: AnyArray,
    grid: Grid,
) -> None:
    """Compute the gradients of scale and bias, and dx = dy * scale (dy where scale is None)."""
    ds, db, add_scale, add_bias = gradients
    wanted = [(name, out, add) for name, out, add in (("s", ds, add_scale), ("b", db, add_bias)) if out is not None]
    copies = dx is not None and scale is None and dx.data.ptr != dy.data.ptr
    data = "scale" if dx is not None and scale is not None else "copy" if copies else ""
    if wanted:
        sums = "".join(name for name, _, _ in wanted)
        arrays = ([x] if ds is not None else []) + [dy] + ([dx] if data else [])
        channel = [scale] if data == "scale" else []
        parts = run_walk(_backward(sums, data), "scale_backward", arrays, channel, grid, work)
        for which, (_, out, add) in enumerate(wanted):
            add_up(work, which, out, add, grid.channels, parts)
    elif data == "scale":
        run_per_channel(_FORWARD["scale"], "scale", (dy, dx), [scale], grid)
    elif data == "copy":
        copy(dy, dx)
