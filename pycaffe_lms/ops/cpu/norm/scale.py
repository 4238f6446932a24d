"""Scale and shift arrays seen as (outer, dim, inner): one factor and one shift per channel."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..channels import channel_dots, channel_sums, over_rows, write_gradient
from ..compiled import BLOCK, kernel

__all__ = ["scale_forward", "scale_backward"]


def scale_forward(
    x: HostArray, s: HostArray | None, b: HostArray | None, y: HostArray, outer: int, dim: int, inner: int
) -> None:
    """Compute y = x * s + b; s or b may be None; y may be x."""
    _run(x, s, b, y, outer, dim, inner)


def scale_backward(
    x: HostArray | None,
    s: HostArray | None,
    dy: HostArray,
    dx: HostArray | None,
    ds: HostArray | None,
    db: HostArray | None,
    accumulate_s: bool,
    accumulate_b: bool,
    work: HostArray,
    outer: int,
    dim: int,
    inner: int,
) -> None:
    """Compute ds = sum of x * dy and db = sum of dy over outer and inner, and dx = dy * s (dy where s is None).

    ds is added to if `accumulate_s`, db if `accumulate_b`. Each of dx (which may be dy), ds and db may be None. x is
    read for ds only, s for dx only. `work` holds the GPU's partial sums: dim * parts elements for each of ds and db.
    """
    if ds is not None:
        write_gradient(ds, channel_dots(x, dy, outer, dim, inner), accumulate_s)
    if db is not None:
        write_gradient(db, channel_sums(dy, outer, dim, inner), accumulate_b)
    if dx is not None and s is None:
        np.copyto(dx.reshape(-1), dy.reshape(-1))
    elif dx is not None:
        _run(dy, s, None, dx, outer, dim, inner)


def _run(
    x: HostArray, s: HostArray | None, b: HostArray | None, y: HostArray, outer: int, dim: int, inner: int
) -> None:
    if inner == 1:
        _few(x.reshape(outer, dim), s, b, y.reshape(outer, dim))
        return
    rows = outer * dim
    nothing = np.empty(0, x.dtype)
    factor = nothing if s is None else s.reshape(-1)
    shift = nothing if b is None else b.reshape(-1)
    over_rows(_scale, outer, dim, inner, x.reshape(rows, inner), factor, shift, y.reshape(rows, inner), dim)


def _few(x: HostArray, s: HostArray | None, b: HostArray | None, y: HostArray) -> None:
    """Compute y = x * s + b for rows (outer, dim), by NumPy's broadcasting."""
    if s is not None:
        x = np.multiply(x, s.reshape(-1), out=y)
    if b is not None:
        np.add(x, b.reshape(-1), out=y)


@kernel
def _scale(first: int, last: int, x: HostArray, s: HostArray, b: HostArray, y: HostArray, dim: int) -> None:
    """Compute y = x * s + b; an empty s or b counts as none."""
    result = np.empty(BLOCK, x.dtype)
    for r in range(first, last):
        factor = s[r % dim] if s.size else x.dtype.type(1)
        shift = b[r % dim] if b.size else x.dtype.type(0)
        for start in range(0, x.shape[1], BLOCK):
            row = x[r, start : min(start + BLOCK, x.shape[1])]
            if b.size:
                for j in range(row.size):
                    result[j] = row[j] * factor + shift
            else:
                for j in range(row.size):
                    result[j] = row[j] * factor
            y[r, start : start + row.size] = result[: row.size]
