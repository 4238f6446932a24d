"""Account for a plan's memory over time (`occupancy`) and for copies and seconds by layer (`layer_costs`). Pure.

Times are predicted or recorded, both as `PlanTimes` of `cost/timing.py`. `page.py` shows the results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..cost.timing import PlanTimes
from ..plan.plan import OpKind, Plan
from ..program import Mode, layer_of, uses_of

KINDS = ("parameters", "activations", "gradients", "scratch")  # of managed buffers, from the chart's bottom to top


@dataclass(frozen=True)
class Residency:
    """Hold one live range of a managed buffer: it has device memory from `start` to `end` seconds."""

    buffer: int
    start: float
    end: float


def residencies(plan: Plan, times: PlanTimes) -> list[Residency]:
    """Return all live ranges of a run, in the order of their ends.

    A copy in has device memory from its start, a copy out until its end.
    """
    since: dict[int, float] = {}
    saved: dict[int, float] = {}  # when the copy out of a buffer ends, which may be after its last step
    found: list[Residency] = []

    def end(buffer: int, at: float) -> None:
        found.append(Residency(buffer, since.pop(buffer), at))

    for op in plan.ops:
        start, stop = times.start[op.id], times.end[op.id]
        if op.kind is OpKind.IN:
            since.setdefault(op.placed.buffer, start)
        elif op.kind is OpKind.OUT:
            saved[op.placed.buffer] = stop
            if op.release:
                end(op.placed.buffer, stop)
        elif op.kind is OpKind.COMPUTE:
            reused = {old for old, _ in op.inplace_reuses}
            for old in reused:
                end(old, start)
            for place in op.births:
                since[place.buffer] = start
            for b in (*op.frees, *op.drops):
                if b not in reused:
                    end(b, max(stop, saved.get(b, 0.0)))
    return found


@dataclass(frozen=True)
class Occupancy:
    """Hold the bytes of managed buffers on the device, by kind: `held[kind][i]` from `at[i]` to `at[i + 1]` seconds."""

    at: tuple[float, ...]
    held: Mapping[str, tuple[int, ...]]

    @property
    def peak(self) -> int:
        """Return the most bytes of all kinds together."""
        return max((sum(now) for now in zip(*self.held.values(), strict=True)), default=0)


def occupancy(plan: Plan, times: PlanTimes, kinds: Mapping[int, str], points: int | None = None) -> Occupancy:
    """Return the bytes of managed buffers on the device over time.

    Args:
        kinds: one of KINDS for every managed buffer.
        points: most points of the result; None: all. Of each group of neighbours the one with most bytes is kept.
    """
    changes: list[tuple[float, int, str]] = []
    for live in residencies(plan, times):
        kind, nbytes = kinds[live.buffer], plan.buffers[live.buffer].nbytes
        changes += [(live.start, nbytes, kind), (live.end, -nbytes, kind)]
    changes.sort()  # ends before starts at the same moment
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
    """Hold the costs of one layer in a run.

    Attributes:
        needs_bytes: most bytes that one of its steps needs on the device at once.
        bytes_in, copies_in: copied in for its steps.
        bytes_out, copies_out: copied out of values that its steps wrote.
        remats: steps that ran again for rematerialization.
        predicted, measured: seconds of its steps.
        stall, measured_stall: seconds that its steps waited for copies.

    measured and measured_stall are None if no run was recorded.
    """

    layer: str
    needs_bytes: int = 0
    bytes_in: int = 0
    copies_in: int = 0
    bytes_out: int = 0
    copies_out: int = 0
    remats: int = 0
    predicted: float = 0.0
    stall: float = 0.0
    measured: float | None = None
    measured_stall: float | None = None


def layer_costs(plan: Plan, times: PlanTimes, measured: PlanTimes | None = None) -> list[LayerCost]:
    """Return the costs of each layer, in the order of their first steps."""
    rows: dict[str, LayerCost] = {}
    steps, sizes = plan.program.steps, {b: buffer.nbytes for b, buffer in plan.buffers.items()}
    for s, step in enumerate(steps):
        row = rows.setdefault(layer_of(step.name), LayerCost(layer_of(step.name)))
        row.needs_bytes = max(row.needs_bytes, step.device_bytes(sizes))
        row.remats += plan.order[s][1]
        row.stall += times.stalls[s]
        if measured is not None:
            row.measured_stall = (row.measured_stall or 0.0) + measured.stalls[s]
    uses = uses_of(plan.program, plan.buffers)
    accesses = {b: [s for s, _, _ in mine] for b, mine in uses.items()}
    writes = {b: [s for s, mode, _ in mine if mode is not Mode.READ] for b, mine in uses.items()}
    for op in plan.ops:
        if op.kind is OpKind.IN:
            reader = next((s for s in accesses[op.placed.buffer] if s >= op.step), op.step)
            row = rows[layer_of(steps[reader].name)]
            row.copies_in += op.begins
            row.bytes_in += plan.stored(op)
        elif op.kind is OpKind.OUT:
            writer = max((s for s in writes[op.placed.buffer] if s <= op.step), default=op.step)
            row = rows[layer_of(steps[writer].name)]
            row.copies_out += op.begins
            row.bytes_out += plan.stored(op)
        else:
            row = rows[layer_of(steps[op.step].name)]
            row.predicted += times.end[op.id] - times.start[op.id]
            if measured is not None:
                row.measured = (row.measured or 0.0) + measured.end[op.id] - measured.start[op.id]
    return list(rows.values())
