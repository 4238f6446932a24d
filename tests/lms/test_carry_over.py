"""Images that nobody changes stay where the next iteration begins: they are copied in once, and whoever touches them,
or the memory where they lie, is heard. On the simulated device, in many legal orders."""

from __future__ import annotations

import dataclasses
import functools
from itertools import pairwise

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import PlanError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.cost.timing import time_plan
from pycaffe_lms.lms.layout.packing import Stretch, pack_within
from pycaffe_lms.lms.layout.paging import paged_within, pages_of
from pycaffe_lms.lms.plan.plan import OpKind, Placement, Plan
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.lms.program import Access, Mode, unchanged
from pycaffe_lms.lms.runtime import runtime
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver

from ..seeds import seeded
from .nets import _DATA, _pool, conv, head
from .test_paging import PAGE, check, lifetimes

SLOW = dataclasses.replace(MACHINES["h200"], link_in=1e7, link_out=1e7, link_both=2e7, launch_s=1e-6)
INPUT = """
layer { name: "data" type: "Input" top: "data" top: "label" input_param {
  shape { dim: 4 dim: 3 dim: 12 dim: 12 } shape { dim: 4 } } }
"""
TEXT = INPUT + conv("a", "data", 8) + conv("b", "a", 8) + _pool("p", "b") + conv("c", "p", 8) + head("c")
TEST = _DATA + TEXT[len(INPUT) :]
IMAGES = 4 * 3 * 12 * 12 * 4
TIGHT = LMSConfig(threshold_kb=1, auto=True, budget=144 << 10, split=0)
CONFIGS = {
    "tight": TIGHT,
    "tight, in one piece": dataclasses.replace(TIGHT, budget=114 << 10, pages=False),
    "roomy": dataclasses.replace(TIGHT, budget=160 << 10),
    "by time": LMSConfig(threshold_kb=1),
    "in lockstep": dataclasses.replace(TIGHT, sync=3),
}
ORDERS = [("latest", 0), ("earliest", 0), ("random", 1), ("random", 2)]


@pytest.fixture(autouse=True)
def slow_link(monkeypatch):
    """A copy takes as long as it does for large images."""
    monkeypatch.setattr(runtime, "machine_of", lambda name, memory: SLOW)


def make(lms=None, device=None, graph=True, tests=False) -> SGDSolver:
    nets = f"net_param {{ name: 'm'\n{TEXT} }}"
    if tests:
        nets = f"train_{nets} test_net_param {{ name: 'm'\n{TEST} }} test_iter: 1 test_interval: 1"
    parsed = parse_solver(
        "base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' max_iter: 99 random_seed: 7 snapshot_after_train: false\n"
        + nets
    )
    tuning = Tuning(channels_last=True, graph=graph)
    solver = SGDSolver(parsed.message, lines=parsed.lines, device=device or SimDevice(64 << 20), lms=lms, tuning=tuning)
    show(solver, 0)
    return solver


def show(solver, seed):
    rng = np.random.default_rng(seed)
    solver.net.blobs["data"].data[...] = rng.standard_normal((4, 3, 12, 12))
    solver.net.blobs["label"].data[...] = rng.integers(0, 5, 4)


# -- who touches the images between two iterations ---------------------------------------------------------------------
def nothing(solver, k, kept):
    pass


def other_images(solver, k, kept):
    if k % 2:
        show(solver, k)


def a_view_that_is_held(solver, k, kept):
    if k == 2:
        kept.append(solver.net.blobs["data"].data)
    if 3 <= k < 6:
        kept[0][0, 0] += 1
    if k == 6:
        kept.clear()


def a_look(solver, k, kept):
    assert solver.net.blobs["data"].read_data().shape == (4, 3, 12, 12)


def a_pass_by_hand(solver, k, kept):
    if k in (3, 4):
        solver.net.forward_range()


def parameters(solver, k, kept):
    if k == 4:
        solver.net.params["a"][0].data[...] *= 0.5


ACTS = [nothing, other_images, a_view_that_is_held, a_look, a_pass_by_hand, parameters]


def trained(solver, act, iterations=7) -> list[bytes]:
    losses, kept = [], []
    for k in range(iterations):
        act(solver, k, kept)
        solver.step(1)
        losses.append(np.float32(solver.net.loss()).tobytes())
    return losses + [p.data.copy().tobytes() for name in "abc" for p in solver.net.params[name]]


@functools.cache
def expected(act, tests=False):
    return trained(make(tests=tests), act)


def combinations():
    """Every act with every configuration, recorded or step by step: a quarter by default, the others thorough."""
    for i, act in enumerate(ACTS):
        for j, name in enumerate(CONFIGS):
            for graph in (False, True):
                chosen = (i + j) % 2 == 0 and graph == bool((i + j) // 2 % 2)
                marks = () if chosen else pytest.mark.thorough
                yield pytest.param(act, name, graph, ORDERS[(2 * i + j) % len(ORDERS)], marks=marks)


@pytest.mark.parametrize(("act", "name", "graph", "order"), [*combinations()])
def test_results_are_those_without(act, name, graph, order):
    solver = make(CONFIGS[name], SimDevice(64 << 20, order=order[0], seed=order[1]), graph)
    assert trained(solver, act) == expected(act)


@pytest.mark.parametrize("graph", [False, True], ids=["step by step", "recorded"])
@pytest.mark.parametrize("name", ["tight", "tight, in one piece", "by time"])
def test_with_test_nets_in_the_same_memory(name, graph):
    """They run between any two iterations, and overwrite whatever was left."""
    order, seed = ORDERS[1 + graph]
    solver = make(CONFIGS[name], SimDevice(64 << 20, order=order, seed=seed), graph, tests=True)
    assert trained(solver, nothing) == expected(nothing, True)
    assert _copied(solver) == _copies(solver, False)


def _plan(solver) -> Plan:
    return solver.net.memory.plans()["train"]


def _names(solver) -> set[str]:
    return {_plan(solver).buffers[op.place.buffer].name for op in _plan(solver).carried_over}


def _copied(solver) -> int:
    """Bytes that the last iteration copied in."""
    return solver.runtime.stats.programs["train"].last.bytes_in


def _copies(solver, left: bool) -> int:
    """Bytes that an iteration copies in; left: with the carried_over ones left by the one before."""
    plan, memories = _plan(solver), solver.net.memory.memories
    kept = plan.carried_over if left else ()
    return sum(memories[o.place.buffer].nbytes for o in plan.ops if o.kind is OpKind.IN and o not in kept)


@pytest.mark.parametrize("graph", [False, True], ids=["step by step", "recorded"])
@pytest.mark.parametrize("name", ["tight", "tight, in one piece", "roomy"])
def test_images_are_copied_at_the_start_of_the_first_iteration_only(name, graph):
    solver = make(CONFIGS[name], graph=graph)
    assert "data.data" in _names(solver)
    memories = solver.net.memory.memories.values()
    once = sum(m.nbytes for m in memories if not m.managed)  # what stays on the device comes up in the first iteration
    for k in range(6):
        before = solver.runtime.device.bytes_in
        solver.step(1)
        copied = solver.runtime.device.bytes_in - before
        assert 0 <= copied - _copied(solver) < 2000 + (once if k == 0 else 0)  # and a few numbers of each update
    assert _copied(solver) == _copies(solver, True) <= _copies(solver, False) - IMAGES
    show(solver, 1)
    solver.step(1)
    assert _copies(solver, True) + IMAGES <= _copied(solver) <= _copies(solver, False)


def test_memory_that_was_given_back_has_nothing_left():
    solver = make(TIGHT)
    solver.step(6)
    assert _copied(solver) == _copies(solver, True)
    solver.runtime.arena.shrink(0)
    solver.step(1)
    assert _copied(solver) == _copies(solver, False)


def test_after_a_failure_in_the_middle_nothing_is_known():
    solver = make(TIGHT, graph=False)
    solver.step(6)
    layer = next(node.layer for node in solver.net.run_graph.nodes if node.name == "c")
    backward, layer.backward = layer.backward, None
    with pytest.raises(TypeError):
        solver.step(1)
    layer.backward = backward
    solver.step(1)
    assert _copied(solver) == _copies(solver, False)


def test_predictions_and_totals_leave_out_what_is_left():
    plan = _plan(solver := make(TIGHT))
    ins = sum(plan.copied(op) for op in plan.ops if op.kind is OpKind.IN)
    left = sum(map(plan.copied, plan.carried_over))
    assert IMAGES <= left == ins - plan.bytes_in
    times = time_plan(plan, solver.net.memory.planner.requests["train"].costs)
    for op in plan.ops:
        if op.kind is OpKind.IN:
            assert (times.start[op.id] == times.end[op.id]) == (op in plan.carried_over)


# -- what a plan must be like ------------------------------------------------------------------------------------------
def test_the_verifier_proves_that_it_is_left():
    """Be it said of a value that changes, or of a place where somebody else was first, or last."""
    plan = _plan(make(TIGHT))
    verify(plan)
    same = unchanged(plan.program, plan.buffers)
    wrong = [(op, place) for op in plan.ops for place in op.comers if place.buffer not in same]
    assert len(wrong) > 10
    for op, place in wrong:
        says = dataclasses.replace(plan)
        vars(says)["carried_over"] = (dataclasses.replace(op, place=place),)
        with pytest.raises(PlanError, match="not left where the next run begins"):
            verify(says)


def test_no_more_than_is_left_counts():
    plan = _plan(make(CONFIGS["tight, in one piece"]))
    first = next(op for op in plan.carried_over if plan.buffers[op.place.buffer].name == "data.data")
    data, place = first.place.buffer, first.place
    last = max(op.id for op in plan.ops if data in {p.buffer for p in op.comers})
    freed = max(op.id for op in plan.ops if data in op.frees)
    assert first.id < last < freed < len(plan.ops) - 1

    def left(at: int, **changes) -> bool:
        ops = [*plan.ops]
        ops[at] = dataclasses.replace(ops[at], **changes)
        return first in dataclasses.replace(plan, ops=tuple(ops)).carried_over

    end = plan.ops[-1]
    assert left(-1)
    assert not left(last, place=Placement(data, place.offset + 512))  # its last place is another
    assert not left(-1, births=(*end.births, Placement(max(plan.buffers), place.offset)))  # somebody comes behind it
    assert not left(freed, frees=(), drops=(data,))  # its value ends
    steps = list(plan.program.steps)
    steps[-1] = dataclasses.replace(steps[-1], accesses=(*steps[-1].accesses, Access(data, Mode.UPDATE)))
    changed = dataclasses.replace(plan, program=dataclasses.replace(plan.program, steps=tuple(steps)))
    assert first not in changed.carried_over


# -- packing -----------------------------------------------------------------------------------------------------------
def tied(seed, size, steps=40):
    """Lifetimes, the last two of which are one value at the start and at the end; and wishes for a little more."""
    rng = seeded(seed)
    lives = lifetimes(seed, steps=steps)
    start, end = rng.randrange(1, 6), rng.randrange(steps - 6, steps - 1)
    lives += [type(lives[0])(0, start, size), type(lives[0])(end, steps - 1, size)]
    constraints = [
        Stretch(x, max(0, x.start - rng.randrange(3)), min(steps - 1, x.end + rng.randrange(3))) for x in lives
    ]
    constraints[-2:] = [Stretch(lives[-2], 0, start), Stretch(lives[-1], end, steps - 1)]
    n = len(lives)
    return constraints, {n - 2: n - 1, n - 1: n - 2}


@pytest.mark.parametrize("seed", range(30))
def test_tied_ones_have_one_offset(seed):
    constraints, ties = tied(seed, 5000)
    lives, packing = pack_within(constraints, 400_000, ties)
    assert packing.offsets[-1] == packing.offsets[-2]
    for step in range(40):
        here = sorted((o, o + x.size) for o, x in zip(packing.offsets, lives, strict=True) if x.start <= step <= x.end)
        assert all(a[1] <= b[0] for a, b in pairwise(here))
    for wish, life in zip(constraints, lives, strict=True):
        assert wish.start <= life.start <= wish.must.start and wish.must.end <= life.end <= wish.end


@pytest.mark.parametrize("size", [300, 24_000])
@pytest.mark.parametrize("seed", range(30))
def test_tied_ones_have_one_place_among_pages(seed, size):
    constraints, ties = tied(seed, size)
    found = []
    for full in (False, True):
        lives, packing = paged_within(constraints, 700_000, PAGE, full, ties)
        check(lives, packing)
        found.append(packing.offsets[-1] == packing.offsets[-2])
        assert (packing.offsets[-1] >= packing.paging.linear) == bool(pages_of(size, PAGE))
    assert found == [True, True]


@pytest.mark.parametrize("seed", range(30))
def test_where_memory_is_short_a_tie_is_given_up_before_anything_else(seed):
    """Whatever fits without it fits with it."""
    constraints, ties = tied(seed, 24_000)
    least = next(
        n for n in range(100_000, 900_000, PAGE) if not isinstance(paged_within(constraints, n, PAGE, False), int)
    )
    lives, packing = paged_within(constraints, least, PAGE, False, ties)
    check(lives, packing)
    assert packing.peak <= least


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("graph", [False, True], ids=["step by step", "recorded"])
@pytest.mark.parametrize("act", ACTS)
def test_results_on_a_gpu(act, graph):
    device = get_device("cuda")
    found = []
    for lms in (None, LMSConfig(threshold_kb=1), dataclasses.replace(TIGHT, budget=24 << 20)):
        solver = make(lms, device, graph)
        found.append(trained(solver, act))
        solver.close()
        solver.runtime.close()
    assert found[1:] == found[:1] * 2
