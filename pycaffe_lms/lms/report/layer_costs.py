"""Where the time and the memory of a plan's run go: what is on the device when, and what every layer costs. Pure.

Times are a prediction's or a recorded run's, both `timing.PlanTimes`. See also: `page.py`, which draws this.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..cost.timing import PlanTimes
from ..plan.plan import OpKind, Plan
from ..program import Mode, layer_of

KINDS = ("parameters", "activations", "gradients", "scratch")  # of managed buffers, from bottom to top


@dataclass(frozen=True)
class Residency:
    """A managed buffer has memory on the device from `start` to `end` seconds."""

    buffer: int
    start: float
    end: float


def residencies(plan: Plan, times: PlanTimes) -> list[Residency]:
    """Every stay of a run, by its end. A copy in has memory from its start, a copy out to its end."""
    since: dict[int, float] = {}
    saved: dict[int, float] = {}  # when the copy out of a buffer ends, which may be after its last step
    found: list[Residency] = []

    def end(buffer: int, at: float) -> None:
        found.append(Residency(buffer, since.pop(buffer), at))

    for op in plan.ops:
        start, stop = times.start[op.id], times.end[op.id]
        if op.kind is OpKind.IN:
            since.setdefault(op.place.buffer, start)
        elif op.kind is OpKind.OUT:
            saved[op.place.buffer] = stop
            if op.release:
                end(op.place.buffer, stop)
        elif op.kind is OpKind.COMPUTE:
            given = {old for old, _ in op.inplace_reuses}
            for old in given:
                end(old, start)
            for place in op.births:
                since[place.buffer] = start
            for b in (*op.frees, *op.drops):
                if b not in given:
                    end(b, max(stop, saved.get(b, 0.0)))
    return found


@dataclass(frozen=True)
class Occupancy:
    """Bytes of managed buffers on the device, by kind: `held[kind][i]` from `at[i]` seconds to the next."""

    at: tuple[float, ...]
    held: Mapping[str, tuple[int, ...]]

    @property
    def peak(self) -> int:
        return max((sum(now) for now in zip(*self.held.values(), strict=True)), default=0)


def occupancy(plan: Plan, times: PlanTimes, kinds: Mapping[int, str], points: int | None = None) -> Occupancy:
    """kinds: one of KINDS for every managed buffer. points: most points of the result (None: all); where there are
    more, each stands for several, and is the one of them with the most bytes."""
    changes: list[tuple[float, int, str]] = []
    for stay in residencies(plan, times):
        kind, nbytes = kinds[stay.buffer], plan.buffers[stay.buffer].nbytes
        changes += [(stay.start, nbytes, kind), (stay.end, -nbytes, kind)]
    changes.sort()  # of one moment what ends comes first
    now = dict.fromkeys(KINDS, 0)
    found: list[tuple[float, tuple[int, ...]]] = [(0.0, tuple(now.values()))]
    for at, nbytes, kind in changes:
        now[kind] += nbytes
        if at == found[-1][0]:
            found.pop()
        found.append((at, tuple(now.values())))
    if points is not None and len(found) > points:
        each = -(-len(found) // points)
        groups = (found[i : i + each] for i in range(0, len(found), each))
        found = [(g[0][0], max((held for _, held in g), key=sum)) for g in groups]
    columns = zip(*(held for _, held in found), strict=True)
    return Occupancy(tuple(at for at, _ in found), dict(zip(KINDS, columns, strict=True)))


@dataclass
class LayerCost:
    """Of one layer in a run. needs_bytes: most that one of its steps needs on the device at once. bytes_in, copies_in:
    fetched for its steps; bytes_out, copies_out: of values that its steps made. replays: steps that ran a second time.
    predicted, measured: seconds of its steps; stall, measured_stall: seconds that they waited for copies. measured and
    measured_stall are None where no run was recorded."""

    layer: str
    needs_bytes: int = 0
    bytes_in: int = 0
    copies_in: int = 0
    bytes_out: int = 0
    copies_out: int = 0
    replays: int = 0
    predicted: float = 0.0
    stall: float = 0.0
    measured: float | None = None
    measured_stall: float | None = None


def layer_costs(plan: Plan, times: PlanTimes, measured: PlanTimes | None = None) -> list[LayerCost]:
    """A row per layer, in the order of their first steps."""
    rows: dict[str, LayerCost] = {}
    steps, sizes = plan.program.steps, {b: buffer.nbytes for b, buffer in plan.buffers.items()}
    for s, step in enumerate(steps):
        row = rows.setdefault(layer_of(step.name), LayerCost(layer_of(step.name)))
        row.needs_bytes = max(row.needs_bytes, step.device_bytes(sizes))
        row.replays += plan.order[s][1]
        row.stall += times.stalls[s]
        if measured is not None:
            row.measured_stall = (row.measured_stall or 0.0) + measured.stalls[s]
    touches, writes = _uses(plan)
    for op in plan.ops:
        if op.kind is OpKind.IN:
            row = rows[layer_of(steps[_first_from(touches[op.place.buffer], op.step)].name)]
            row.copies_in += op.begins
            row.bytes_in += plan.stored(op)
        elif op.kind is OpKind.OUT:
            row = rows[layer_of(steps[_last_until(writes[op.place.buffer], op.step)].name)]
            row.copies_out += op.begins
            row.bytes_out += plan.stored(op)
        else:
            row = rows[layer_of(steps[op.step].name)]
            row.predicted += times.end[op.id] - times.start[op.id]
            if measured is not None:
                row.measured = (row.measured or 0.0) + measured.end[op.id] - measured.start[op.id]
    return list(rows.values())


def _uses(plan: Plan) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """(buffer -> steps that touch it, buffer -> steps that write it)."""
    touches: dict[int, list[int]] = {b: [] for b in plan.buffers}
    writes: dict[int, list[int]] = {b: [] for b in plan.buffers}
    for s, step in enumerate(plan.program.steps):
        for a in step.accesses:
            if a.buffer in touches:
                touches[a.buffer].append(s)
                if a.mode is not Mode.READ:
                    writes[a.buffer].append(s)
    return touches, writes


def _first_from(steps: Sequence[int], step: int) -> int:
    at = bisect_left(steps, step)
    return steps[at] if at < len(steps) else step


def _last_until(steps: Sequence[int], step: int) -> int:
    at = bisect_right(steps, step)
    return steps[at - 1] if at else step
