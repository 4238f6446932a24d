"""Scale and shift arrays seen as (outer, dim, inner): one factor and one shift per channel."""

from __future__ import annotations

import functools

from ....arrays import AnyArray
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


def scale_forward(
    x: AnyArray, s: AnyArray | None, b: AnyArray | None, y: AnyArray, outer: int, dim: int, inner: int
) -> None:
    """Compute y = x * s + b; s or b may be None; y may be x."""
    name = "bias" if s is None else "scale" if b is None else "scale_bias"
    run_per_channel(_FORWARD[name], name, (x, y), [v for v in (s, b) if v is not None], dim, inner)


def scale_backward(
    x: AnyArray | None,
    s: AnyArray | None,
    dy: AnyArray,
    dx: AnyArray | None,
    ds: AnyArray | None,
    db: AnyArray | None,
    accumulate_s: bool,
    accumulate_b: bool,
    work: AnyArray,
    outer: int,
    dim: int,
    inner: int,
) -> None:
    """Compute ds = sum of x * dy and db = sum of dy over outer and inner, and dx = dy * s (dy where s is None).

    ds is added to if `accumulate_s`, db if `accumulate_b`. Each of dx (which may be dy), ds and db may be None. x is
    read for ds only, s for dx only. `work` holds the GPU's partial sums: dim * parts elements for each of ds and db.
    """
    wanted = [
        (name, out, add) for name, out, add in (("s", ds, accumulate_s), ("b", db, accumulate_b)) if out is not None
    ]
    copies = dx is not None and s is None and dx.data.ptr != dy.data.ptr
    data = "scale" if dx is not None and s is not None else "copy" if copies else ""
    if wanted:
        sums = "".join(name for name, _, _ in wanted)
        arrays = ([x] if ds is not None else []) + [dy] + ([dx] if data else [])
        channel = [s] if data == "scale" else []
        parts = run_walk(_backward(sums, data), "scale_backward", arrays, channel, outer, dim, inner, work)
        for which, (_, out, add) in enumerate(wanted):
            add_up(work, which, out, add, dim, parts)
    elif data == "scale":
        run_per_channel(_FORWARD["scale"], "scale", (dy, dx), [s], dim, inner)
    elif data == "copy":
        copy(dy, dx)
