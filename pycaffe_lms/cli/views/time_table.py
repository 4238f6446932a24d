"""Make the table of `pycaffe-lms time`: what every pass took, moved and computed, and how near the GPU's limits it is.

Pure: numbers to text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .roofline import Roofline


@dataclass(frozen=True)
class TimeRow:
    """Describe one pass of one layer, or several together.

    Attributes:
        nbytes, flops: what it must move and compute at least (`net/program/costs.py`).
        limit_ms: the least time for that, pass by pass; None: not known.
    """

    name: str
    type: str
    direction: str
    ms: float
    nbytes: int
    flops: int
    limit_ms: float | None = None


def row(
    name: str,
    kind: str,
    direction: str,
    ms: float,
    nbytes: int,
    flops: int,
    roofline: Roofline | None,
    half: bool = False,
) -> TimeRow:
    """Return the row of one pass, with a roofline its limit too. half: it computes on bfloat16."""
    limit = None if roofline is None else roofline.ms(nbytes, flops, half)
    return TimeRow(name, kind, direction, ms, nbytes, flops, limit)


def together(rows: Iterable[TimeRow], name: str, kind: str, direction: str) -> TimeRow:
    """Return the sum of rows. The limit is that of the passes that have one."""
    rows = list(rows)
    limits = [r.limit_ms for r in rows if r.limit_ms is not None]
    ms, nbytes, flops = sum(r.ms for r in rows), sum(r.nbytes for r in rows), sum(r.flops for r in rows)
    return TimeRow(name, kind, direction, ms, nbytes, flops, sum(limits) if limits else None)


def by_type(rows: Sequence[TimeRow]) -> list[TimeRow]:
    """Return a row per layer type and direction, the slowest type first, then the sums of both directions."""
    types = {r.type for r in rows}
    total = {t: sum(r.ms for r in rows if r.type == t) for t in types}
    result = []
    for kind in sorted(types, key=lambda t: (-total[t], t)):
        for direction in ("forward", "backward"):
            found = [r for r in rows if r.type == kind and r.direction == direction]
            if found:
                result.append(together(found, f"{len(found)} layers" if len(found) > 1 else "1 layer", kind, direction))
    for direction in ("forward", "backward"):
        found = [r for r in rows if r.direction == direction]
        if found:
            result.append(together(found, "all layers", "-", direction))
    return result


_HEAD = ("layer", "type", "pass", "ms", "share", "MB", "GB/s", "GFLOP", "TFLOP/s", "of limit")
_TIMED = ("ms", "GB/s", "TFLOP/s")


def text(rows: Sequence[TimeRow], total_ms: float, *, simulated: bool = False) -> str:
    """Return rows as columns of text.

    The column share is of `total_ms`, the column of limit the least possible time as a share of the time taken. With
    simulated, the heads of times and of rates made from them say that they are a model's.
    """
    head = [f"model {name}" if simulated and name in _TIMED else name for name in _HEAD]
    cells = [head, *(_cells(r, total_ms) for r in rows)]
    forms = [f"{'<' if i < 3 else '>'}{max(len(line[i]) for line in cells)}" for i in range(len(_HEAD))]
    return "\n".join("  ".join(map(format, line, forms)).rstrip() for line in cells)


def _cells(r: TimeRow, total_ms: float) -> tuple[str, ...]:
    timed = r.ms > 0
    return (
        r.name,
        r.type,
        r.direction,
        f"{r.ms:.4f}",
        f"{100 * r.ms / total_ms:.1f}%" if total_ms > 0 else "-",
        f"{r.nbytes / 1e6:.3f}" if r.nbytes else "-",
        f"{r.nbytes / r.ms / 1e6:.1f}" if r.nbytes and timed else "-",
        f"{r.flops / 1e9:.4f}" if r.flops else "-",
        f"{r.flops / r.ms / 1e9:.3f}" if r.flops and timed else "-",
        f"{100 * r.limit_ms / r.ms:.0f}%" if r.limit_ms and timed else "-",
    )
