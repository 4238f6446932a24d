"""Draw the charts of a plan's page as SVG: memory over an iteration, and the streams as a timeline. Pure.

Charts are stretched to the page's width, so they contain no text: labels are beside them. In all charts X is the
device's time (`device_time.py`) in TICKS per run, so that the page can zoom them together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ...errors import human_bytes
from ..cost.timing import PlanTimes
from ..plan.plan import Op, OpKind, Plan
from ..program import layer_of
from .device_time import device_times
from .layer_costs import KINDS, Occupancy

TICKS = 100_000
HEIGHT = 1000  # of the memory chart, in its own units
LANE = 26  # height of a row of the timeline, in its own units
LANES = ("compute", "copies in", "copies out", "host")
MARKS = 8_000  # most marks of a timeline: above, neighbours are joined


@dataclass(frozen=True)
class Mark:
    """Hold a mark on row `lane` from `start` to `end` seconds. look: its CSS class; text: its tooltip."""

    lane: int
    look: str
    start: float
    end: float
    text: str


def plain(text: str) -> str:
    """Return a name as HTML text or attribute: escaped, control characters replaced."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text), quote=True)


def duration(seconds: float) -> str:
    """Return a time with three digits and a unit that suits it: s, ms or µs."""
    if seconds >= 0.9995:
        return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:.0f} s"
    value, unit = (1e3 * seconds, "ms") if seconds >= 0.9995e-3 else (1e6 * seconds, "µs")
    return f"{value:.3g} {unit}" if seconds else "0"


def time_ticks(seconds: float, most: int = 12) -> list[tuple[float, str]]:
    """Return (seconds, label) of round moments from 0 on; all labels have the same unit."""
    if seconds <= 0:
        return [(0.0, "0")]
    factor, unit = next(((f, u) for f, u in ((1.0, "s"), (1e-3, "ms")) if seconds >= f), (1e-6, "µs"))
    ten = 10.0 ** math.floor(math.log10(seconds / most))
    each = next(ten * k for k in (1, 2, 5, 10) if seconds / (ten * k) <= most)
    return [(i * each, f"{i * each / factor:.6g} {unit}") for i in range(int(seconds / each + 1e-9) + 1)]


def byte_ticks(top: int, most: int = 5) -> list[tuple[int, str]]:
    """Return (bytes, label) of round sizes from 0 to `top`; all labels have the same unit."""
    unit = next((u for u in (1 << 40, 1 << 30, 1 << 20, 1 << 10) if top >= u), 1)
    name = {1 << 40: "TiB", 1 << 30: "GiB", 1 << 20: "MiB", 1 << 10: "KiB", 1: "B"}[unit]
    parts = (unit * k / 4 if unit > 1 else k for k in (1, 2, 4, 8, 20, 40, 80, 160, 400, 800, 1600))
    each = next(part for part in parts if top / part <= most)
    return [(int(i * each), f"{i * each / unit:g} {name}" if i else "0") for i in range(int(top / each) + 1)]


def memory_chart(held: Occupancy, fixed: Sequence[tuple[str, int]], seconds: float, budget: int | None) -> str:
    """Return stacked areas as SVG: fixed memory (name, bytes) at the bottom, managed buffers by kind above.

    A budget in bytes is drawn as a line.
    """
    top = chart_top(held, fixed, budget)
    grid = "".join(f"M0 {_y(nbytes, top)}H{TICKS}" for nbytes, _ in byte_ticks(top)[1:])
    paths, n = [f'<path class="grid" d="{grid}"/>'], len(held.at)
    xs = [_x(t, seconds) for t in held.at]
    below = [0] * n
    layers = [(name, [nbytes] * n) for name, nbytes in fixed] + [(k, list(held.held[k])) for k in KINDS]
    for name, values in layers:
        above = [a + b for a, b in zip(below, values, strict=True)]
        if any(values):
            line = _steps(xs, [_y(v, top) for v in above])
            back = _steps(xs, [_y(v, top) for v in below])[::-1]
            points = " ".join(f"{x},{y}" for x, y in line + back)
            paths.append(f'<polygon class="{name}" points="{points}"/>')
        below = above
    if budget is not None and budget <= top:
        y = _y(budget, top)
        paths.append(f'<line class="budget" x1="0" x2="{TICKS}" y1="{y}" y2="{y}"/>')
    return (
        f'<svg class="zooms memory" viewBox="0 0 {TICKS} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="device memory over an iteration">{"".join(paths)}</svg>'
    )


def chart_top(held: Occupancy, fixed: Sequence[tuple[str, int]], budget: int | None) -> int:
    """Return the bytes at the upper edge of the memory chart.

    A budget of which less than half is used is not on the chart.
    """
    most = held.peak + sum(nbytes for _, nbytes in fixed)
    return max(1, int(1.05 * max(most, budget if budget and budget <= 2 * most else 0)))


def _x(seconds: float, total: float) -> int:
    return round(TICKS * min(1.0, seconds / total)) if total > 0 else 0


def _y(nbytes: int, top: int) -> int:
    return round(HEIGHT * (1 - nbytes / top))


def _steps(xs: Sequence[int], ys: Sequence[int]) -> list[tuple[int, int]]:
    """Return the points of a step line up to the right edge; points between equal values are left out."""
    found: list[tuple[int, int]] = []
    for x, y, until in zip(xs, ys, [*xs[1:], TICKS], strict=True):
        if found and found[-1][1] == y:
            found[-1] = (until, y)
        else:
            found += [(x, y), (until, y)]
    return found


def marks_of(plan: Plan, times: PlanTimes) -> list[Mark]:
    """Return a mark per operation, and one per step that waits for copies, at the device's time."""
    found: list[Mark] = []
    shown = device_times(plan, times)
    steps, last = plan.program.steps, len(plan.program.steps) - 1
    ends = [end for op, end in zip(plan.ops, shown.end, strict=True) if op.place is None]
    done = max(ends, default=0.0)
    behind = min(times.stalls[-1], max(0.0, shown.seconds - done)) if times.stalls else 0.0  # stall after the last step

    def stall(end: float, seconds: float, name: str) -> None:
        if seconds > 0:
            found.append(Mark(0, "stall", max(0.0, end - seconds), end, f"{name} waits {duration(seconds)} for copies"))

    for op in plan.ops:
        start, end = shown.start[op.id], shown.end[op.id]
        if op.place is None:
            stall(start, times.stalls[op.step] - (behind if op.step == last else 0.0), steps[op.step].name)
        lane, look, name = _looks(plan, op)
        text = f"{name}: {duration(times.end[op.id] - times.start[op.id])} at {duration(start)}"
        found.append(Mark(lane, look, start, end, text))
    stall(done + behind, behind, "the end")
    return found


def _looks(plan: Plan, op: Op) -> tuple[int, str, str]:
    """Return an operation's (row, CSS class, name)."""
    if op.kind in (OpKind.IN, OpKind.OUT):
        buffer = plan.buffers[op.placed.buffer]
        out = op.kind is OpKind.OUT
        size = human_bytes(buffer.nbytes)
        size = size if op.part is None else f"{human_bytes(op.part[1])} of {size}"
        return 1 + out, "out" if out else "in", f"copy {op.kind.value} {buffer.name}, {size}"
    name = plan.program.steps[op.step].name
    if op.kind is OpKind.HOST:
        return 3, "host", f"{name} (on the host)"
    if plan.order[op.step][1]:
        return 0, "again", f"{name} (run again)"
    look = name.partition(":")[0]
    return 0, look if look in ("forward", "backward") else "other", name


def phases(marks: Sequence[Mark]) -> list[tuple[str, float, float]]:
    """Return (name, start, end) of forward, of backward, which has layers that run again, and of what follows it."""
    compute = [m for m in marks if m.lane == 0 and m.look != "stall"]
    end = max((m.end for m in marks), default=0.0)
    backward = [m for m in compute if m.look == "backward"]
    if not backward:
        return [("forward", 0.0, end)] if compute else []
    begin, over = backward[0].start, backward[-1].end
    found = [("forward", 0.0, begin), ("backward", begin, over), ("update", over, end)]
    return [phase for phase in found if phase[1] < phase[2]]


def layer_spans(plan: Plan, times: PlanTimes, seconds: float) -> list[tuple[int, int, str]]:
    """Return (start, end, name) of all steps on the device in TICKS, for the names of layers under a chart.

    Neighbouring steps of one layer are one; of layers that run as one step the first is named, the others counted.
    """
    shown = device_times(plan, times)
    found: list[tuple[int, int, str]] = []
    for op in plan.ops:
        if op.kind is not OpKind.COMPUTE:
            continue
        first, *others = layer_of(plan.program.steps[op.step].name).split("+")
        name = f"{first} +{len(others)}" if others else first
        start, end = _x(shown.start[op.id], seconds), _x(shown.end[op.id], seconds)
        if found and found[-1][2] == name:
            start = found.pop()[0]
        found.append((start, end, name))
    return found


def timeline(marks: Iterable[Mark], lanes: int, seconds: float, label: str) -> str:
    """Return the marks as SVG rows. Neighbours are joined if there are more than MARKS."""
    rects = []
    for m in joined(list(marks), MARKS):
        x = _x(m.start, seconds)
        width = max(1, _x(m.end, seconds) - x)
        rects.append(
            f'<rect class="{m.look}" x="{x}" y="{m.lane * LANE + 3}" width="{width}" height="{LANE - 6}" '
            f'data-t="{plain(m.text)}"/>'
        )
    return (
        f'<svg class="zooms" viewBox="0 0 {TICKS} {LANE * lanes}" height="{LANE * lanes}" preserveAspectRatio="none" '
        f'role="img" aria-label="{plain(label)}">{"".join(rects)}</svg>'
    )


def joined(marks: list[Mark], most: int) -> list[Mark]:
    """Join runs of neighbours on a row until about `most` marks are left. Stalls are joined with stalls only."""
    if len(marks) <= most:
        return marks
    each = -(-len(marks) // most)
    found: list[Mark] = []
    for lane in range(len(LANES)):
        for stalls in (False, True):
            row = [m for m in marks if m.lane == lane and (m.look == "stall") == stalls]
            for i in range(0, len(row), each):
                run = row[i : i + each]
                text = run[0].text if len(run) == 1 else f"{len(run)} operations, from {run[0].text}"
                found.append(Mark(lane, run[0].look, run[0].start, max(m.end for m in run), text))
    return found
