"""Draw the charts of a plan's page as SVG: memory over an iteration, and the streams as a timeline. Pure.

Charts are stretched to the page's width, so they contain no text: labels are beside them. In all charts X is time in
TICKS per run, so that the page can zoom them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from ...errors import human_bytes
from ..cost.timing import PlanTimes
from ..plan.plan import Op, OpKind, Plan
from .layer_costs import KINDS, Occupancy

TICKS = 100_000
HEIGHT = 1000  # of the memory chart, in its own units
LANE = 26  # height of a row of the timeline, in its own units
LANES = ("compute", "copies in", "copies out")
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


def milliseconds(seconds: float) -> str:
    """Return a time with its unit: ms below a second, else s."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3f} s"


def memory_chart(held: Occupancy, fixed: Sequence[tuple[str, int]], seconds: float, budget: int | None) -> str:
    """Return stacked areas as SVG: fixed memory (name, bytes) at the bottom, managed buffers by kind above.

    A budget in bytes is drawn as a line.
    """
    top = chart_top(held, fixed, budget)
    paths, n = [], len(held.at)
    xs = [_x(t, seconds) for t in held.at]
    below = [0] * n
    layers = [(name, [nbytes] * n) for name, nbytes in fixed] + [(k, list(held.held[k])) for k in KINDS]
    for name, values in layers:
        above = [a + b for a, b in zip(below, values, strict=True)]
        if any(values):
            line = _steps(xs, [_y(v, top) for v in above])
            back = _steps(xs, [_y(v, top) for v in below])[::-1]
            points = " ".join(f"{x},{y}" for x, y in line + back)
            paths.append(f'<polygon class="k-{name}" points="{points}"/>')
        below = above
    if budget is not None:
        y = _y(budget, top)
        paths.append(f'<line class="budget" x1="0" x2="{TICKS}" y1="{y}" y2="{y}"/>')
    return (
        f'<svg class="zooms" id="memory" viewBox="0 0 {TICKS} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="device memory over an iteration">{"".join(paths)}</svg>'
    )


def chart_top(held: Occupancy, fixed: Sequence[tuple[str, int]], budget: int | None) -> int:
    """Return the bytes at the upper edge of the memory chart."""
    most = held.peak + sum(nbytes for _, nbytes in fixed)
    return max(1, int(1.05 * max(most, budget or 0)))


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
    """Return a mark per operation, and one per step that waits for copies."""
    found: list[Mark] = []
    steps, last = plan.program.steps, len(plan.program.steps) - 1
    ends = [end for op, end in zip(plan.ops, times.end, strict=True) if op.place is None]
    done = max(ends, default=0.0)
    behind = min(times.stalls[-1], max(0.0, times.seconds - done)) if times.stalls else 0.0  # stall after the last step

    def stall(end: float, seconds: float, name: str) -> None:
        if seconds > 0:
            text = f"{name} waits {milliseconds(seconds)} for copies"
            found.append(Mark(0, "stall", max(0.0, end - seconds), end, text))

    for op in plan.ops:
        start, end = times.start[op.id], times.end[op.id]
        if op.place is None:
            stall(start, times.stalls[op.step] - (behind if op.step == last else 0.0), steps[op.step].name)
        lane, look, name = _looks(plan, op)
        found.append(Mark(lane, look, start, end, f"{name}: {milliseconds(end - start)} at {milliseconds(start)}"))
    stall(done + behind, behind, "the end")
    return found


def _looks(plan: Plan, op: Op) -> tuple[int, str, str]:
    """Return an operation's (row, CSS class, name)."""
    if op.kind in (OpKind.IN, OpKind.OUT):
        buffer = plan.buffers[op.placed.buffer]
        out = op.kind is OpKind.OUT
        size = human_bytes(buffer.nbytes)
        size = size if op.part is None else f"{human_bytes(op.part[1])} of {size}"
        return 1 + out, "out" if out else "in", f"{op.kind.value} {buffer.name}, {size}"
    name = plan.program.steps[op.step].name
    if op.kind is OpKind.HOST:
        return 0, "host", f"{name} (on the host)"
    if plan.order[op.step][1]:
        return 0, "again", name
    look = name.partition(":")[0]
    return 0, look if look in ("forward", "backward") else "other", name


def timeline(marks: Iterable[Mark], seconds: float, label: str) -> str:
    """Return the marks as SVG rows. Neighbours are joined if there are more than MARKS."""
    height = LANE * len(LANES)
    rects = []
    for m in joined(list(marks), MARKS):
        x = _x(m.start, seconds)
        width = max(1, _x(m.end, seconds) - x)
        rects.append(
            f'<rect class="{m.look}" x="{x}" y="{m.lane * LANE + 3}" width="{width}" height="{LANE - 6}" '
            f'data-t="{plain(m.text)}"/>'
        )
    return (
        f'<svg class="zooms lanes" viewBox="0 0 {TICKS} {height}" preserveAspectRatio="none" role="img" '
        f'aria-label="{plain(label)}">{"".join(rects)}</svg>'
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
