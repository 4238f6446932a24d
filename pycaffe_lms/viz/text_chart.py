"""Draw curves in plain characters, for a terminal. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

TERMINAL = "-"  # in place of a picture's name
WIDTH, HEIGHT = 64, 12  # characters of the chart inside its axes
_SIGNS = "*o+x#@"
_WIDE = 20.0  # ratio of the largest to the smallest value, from which the axis is logarithmic

Points = Sequence[tuple[float, float]]


def text_chart(
    title: str, curves: Iterable[tuple[str, Points]], below: str, width: int = WIDTH, height: int = HEIGHT
) -> list[str]:
    """Return the lines of a chart of curves over the same horizontal axis.

    Each curve has a sign of its own; of curves in one place the later is seen. Between points a curve is a straight
    line, several points in one column are averaged. Values that are not finite are left out.

    Args:
        curves: label and points (x, y), x ascending.
        below: what the horizontal axis shows.
    """
    finite = [(label, [(x, y) for x, y in points if math.isfinite(y)]) for label, points in curves]
    finite = [(label, points) for label, points in finite if points]
    if not finite:
        return [f"{title}: no values"]
    ys = [y for _, points in finite for _, y in points]
    left, right = (end(x for _, points in finite for x, _ in points) for end in (min, max))
    low, high = min(ys), max(ys)
    log = low > 0 and high > _WIDE * low

    def row(y: float) -> int:
        """Return the row of a value, 0 at the bottom."""
        if high == low:
            return height // 2
        part = math.log(y / low) / math.log(high / low) if log else (y - low) / (high - low)
        return round((height - 1) * part)

    cells = [[" "] * width for _ in range(height)]
    for k, (_, points) in enumerate(finite):
        for column, value in enumerate(_columns(points, left, right, width)):
            if value is not None:
                cells[row(value)][column] = _SIGNS[k % len(_SIGNS)]
    key = "   ".join(f"{_SIGNS[k % len(_SIGNS)]} {label}" for k, (label, _) in enumerate(finite) if label)
    labels = {row(y): f"{y:.4g}" for y in (low, (low * high) ** 0.5 if log else (low + high) / 2, high)}
    gap = max(map(len, labels.values()))
    head = "   ".join(filter(None, (title, key, "logarithmic" if log else "")))
    lines = [f"{labels.get(r, ''):>{gap}} |{''.join(cells[r]).rstrip()}".rstrip() for r in reversed(range(height))]
    ends = f"{left:g}", f"{right:g}"
    axis = f"{ends[0]}{below:^{max(0, width - len(ends[0]) - len(ends[1]))}}{ends[1]}"
    return [head, *lines, f"{'':{gap}} +{'-' * width}", f"{'':{gap}}  {axis}"]


def _columns(points: Points, left: float, right: float, width: int) -> list[float | None]:
    """Return the curve's value in each column; None before its first and behind its last point."""
    step = (right - left) / (width - 1) or 1.0
    at: dict[int, list[float]] = {}
    for x, y in points:
        at.setdefault(round((x - left) / step), []).append(y)
    known = sorted(at)
    means = [sum(at[c]) / len(at[c]) for c in known]
    found: list[float | None] = [None] * width
    for column in range(known[0], known[-1] + 1):
        i = bisect_left(known, column)
        value = means[i]
        if known[i] != column:
            value += (means[i - 1] - means[i]) * (known[i] - column) / (known[i] - known[i - 1])
        found[column] = value
    return found
