"""Memory over time and costs of layers, against plain loops over the plan's operations."""

from __future__ import annotations

import dataclasses

import pytest

from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.cost.timing import time_plan
from pycaffe_lms.lms.plan.plan import OpKind
from pycaffe_lms.lms.planner.lookahead import make_plan
from pycaffe_lms.lms.report.layer_costs import KINDS, layer_costs, layer_of, occupancy, residencies
from pycaffe_lms.net.inspect.account import predicted

from .programs import net_program
from .test_stats import auto_plan

SLOW = dataclasses.replace(MACHINES["h200"], link_in=3e7, link_out=3e7, link_both=4e7)


def timed_plan(seed: int, ahead: int = 2):
    program, buffers = net_program(seed)
    plan = make_plan(program, buffers, limit=None, ahead=ahead)
    costs = Costs([1e-5 * (1 + s % 3) for s in range(len(program.steps))], {}, SLOW)
    return plan, time_plan(plan, costs)


def _kinds(plan) -> dict[int, str]:
    return {b: KINDS[b % len(KINDS)] for b in plan.buffers}


@pytest.mark.parametrize("seed", range(12))
def test_what_is_held_when(seed):
    """At the middle of every operation: who began and did not end, looked up operation by operation."""
    plan, times = timed_plan(seed)
    kinds, found = _kinds(plan), occupancy(plan, times, _kinds(plan))
    alive = residencies(plan, times)
    assert found.peak <= plan.arena_bytes
    assert all(now == 0 for now in (values[-1] for values in found.held.values()))
    moments = sorted({(a + b) / 2 for a, b in zip(times.start, times.end, strict=True)})
    for t in moments:
        i = max(i for i, at in enumerate(found.at) if at <= t)
        for kind in KINDS:
            want = sum(plan.buffers[s.buffer].nbytes for s in alive if s.start <= t < s.end and kinds[s.buffer] == kind)
            assert found.held[kind][i] == want


@pytest.mark.parametrize("seed", range(12))
def test_a_buffer_is_held_while_it_is_used_and_no_place_twice(seed):
    plan, times = timed_plan(seed)
    alive = residencies(plan, times)
    begun = sum(op.kind is OpKind.IN for op in plan.ops) + sum(len(op.births) for op in plan.ops)
    assert len(alive) == begun
    for op in plan.ops:
        start, end = times.start[op.id], times.end[op.id]
        used = [op.place.buffer] if op.place else []
        if op.kind is OpKind.COMPUTE:
            used = [a.buffer for a in plan.program.steps[op.step].accesses if a.buffer in plan.buffers]
        given = {old for old, _ in op.inplace_reuses}
        for b in used:
            if b not in given:
                assert any(s.buffer == b and s.start <= start and end <= s.end for s in alive)


def test_fewer_points_keep_the_peak():
    plan, times = timed_plan(5)
    whole = occupancy(plan, times, _kinds(plan))
    few = occupancy(plan, times, _kinds(plan), 7)
    assert len(few.at) <= 7 < len(whole.at) and few.peak == whole.peak and few.at[0] == 0


@pytest.mark.parametrize("seed", range(12))
def test_costs_of_layers(seed):
    plan, times = timed_plan(seed)
    steps = plan.program.steps
    want: dict[str, list] = {}
    for s, step in enumerate(steps):
        row = want.setdefault(layer_of(step.name), [0, 0, 0, 0, 0.0])
        row[4] += times.stalls[s]
    for op in plan.ops:
        if op.place is None:
            continue
        b, s = op.place.buffer, op.step
        touches = [any(a.buffer == b for a in step.accesses) for step in steps]
        if op.kind is OpKind.IN:
            while not touches[s]:
                s += 1
        else:
            while not any(a.buffer == b and a.mode.value != "read" for a in steps[s].accesses):
                s -= 1
        row = want[layer_of(steps[s].name)]
        at = 0 if op.kind is OpKind.IN else 2
        row[at] += 1
        row[at + 1] += plan.buffers[b].nbytes
    rows = layer_costs(plan, times)
    assert [r.layer for r in rows] == list(want)
    assert [[r.copies_in, r.bytes_in, r.copies_out, r.bytes_out, r.stall] for r in rows] == list(want.values())
    assert sum(r.bytes_in for r in rows) == plan.bytes_in and sum(r.bytes_out for r in rows) == plan.bytes_out
    assert sum(r.stall for r in rows) == pytest.approx(times.stall)
    assert all(r.measured is None and r.remats == 0 for r in rows)


def test_remats_and_measured_times_of_layers(monkeypatch):
    solver, plan = auto_plan(monkeypatch)
    times = predicted(solver.net, plan)
    assert times.seconds == pytest.approx(plan.seconds) and times.stall == pytest.approx(plan.stall)
    twice = dataclasses.replace(
        times,
        start=tuple(2 * t for t in times.start),
        end=tuple(2 * t for t in times.end),
        stalls=tuple(2 * t for t in times.stalls),
    )
    rows = layer_costs(plan, times, twice)
    assert sum(r.remats for r in rows) == plan.rematerialized > 0
    for r in rows:
        assert r.measured == pytest.approx(2 * r.predicted) and r.measured_stall == pytest.approx(2 * r.stall)
    # remats count for their layer, whose forward they repeat
    assert all(any(layer_of(s.name) == r.layer for s in plan.program.steps) for r in rows if r.remats)


def test_names_of_layers():
    assert layer_of("forward:a:b") == "a:b" and layer_of("loss") == "loss" and layer_of("update:all") == "all"
