"""Input shapes that go up and down: what stays on the device and what is managed changes with them, so the arena gives
way, and whatever fits by its plan runs. A buffer of a small batch lies below the threshold of -lms and stays."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.backend.sim.streams import ORDERS
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.program import makes_param_gradients
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver

from ..sampling import sample
from .nets import conv, head

SMALL, LARGE, TESTED = 1, 200, 100  # images
PAGES = [None, 4096]
LMS = {
    "on demand": {"threshold_kb": 4, "ahead": 0},
    "ahead": {"threshold_kb": 4},
    "auto": {"threshold_kb": 4, "auto": True},
}


def _input(items, phase):
    shapes = f"shape {{ dim: {items} dim: 3 dim: 8 dim: 8 }} shape {{ dim: {items} }}"
    return (
        f'layer {{ name: "data" type: "Input" top: "data" top: "label" include {{ phase: {phase} }} '
        f"input_param {{ {shapes} }} }}\n"
    )


def _net():
    text, bottom = _input(SMALL, "TRAIN") + _input(TESTED, "TEST"), "data"
    for i in range(4):
        text += conv(f"c{i}", bottom, 6)
        text += f'layer {{ name: "r{i}" type: "ReLU" bottom: "c{i}" top: "r{i}" }}\n'
        bottom = f"r{i}"
    return text + head(bottom)


def _solver(device, lms=None, *, tests=False, tuning=None, **options):
    """Inputs are fed; a test before every iteration but the first, where asked for."""
    fields = {
        "base_lr": 0.01,
        "momentum": 0.9,
        "lr_policy": '"fixed"',
        "max_iter": 99,
        "random_seed": 7,
        "snapshot_after_train": "false",
    } | options
    if tests:
        fields |= {"test_iter": 1, "test_interval": 1, "test_initialization": "false"}
    text = "\n".join(f"{name}: {value}" for name, value in fields.items())
    parsed = parse_solver(f"{text}\nnet_param {{ {_net()} }}", "fed.prototxt")
    solver = SGDSolver(parsed.message, lines=parsed.lines, device=device, lms=lms, tuning=tuning)
    for net in solver.test_nets:
        _feed(net, TESTED, 99)
    return solver


def _feed(net, items, seed):
    rng = np.random.default_rng(seed)
    net.blobs["data"].reshape(items, 3, 8, 8)
    net.blobs["label"].reshape(items)
    net.blobs["data"].data[...] = rng.normal(size=(items, 3, 8, 8))
    net.blobs["label"].data[...] = rng.integers(5, size=items)


def _train(solver, batches, seen=None, *, whose=None):
    """(losses of train and test nets, parameters and gradients to the bit) of an iteration per batch size."""
    losses = []
    for k, items in enumerate(batches):
        _feed(whose or solver.net, items, k)
        solver.step(1)
        losses.append([net.loss() for net in (solver.net, *solver.test_nets)])
        if seen is not None:
            seen.append(_in_use(solver))
    return losses, _params(solver)


def _params(solver):
    return [b.read_data().tobytes() + b.read_diff().tobytes() for b in solver.net.learnable_params]


def _in_use(solver):
    runtime = solver.runtime
    return runtime.device.in_use(), runtime.slab.nbytes, runtime.resident_bytes, runtime.demanded


@functools.cache
def _without_lms(batches, tests):
    return _train(_solver(SimDevice(64 << 20), tests=tests), batches)


@functools.cache
def _least(page, mode, tests=False):
    """Bytes that the large batch needs, where everything is fetched on demand."""
    device = SimDevice(64 << 20, page=page)
    on_demand = LMS[mode] | {"ahead": 0} | ({"recompute": False} if mode == "auto" else {})
    solver = _solver(device, LMSConfig(**on_demand), tests=tests)
    _train(solver, [LARGE])
    runtime = solver.runtime
    return runtime.resident_bytes + runtime.workspace_bytes + solver.net.memory.plans()["train"].arena_bytes


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("page", PAGES, ids=["one piece", "pages"])
@pytest.mark.parametrize("mode", LMS)
@pytest.mark.parametrize("tests", [False, True], ids=["train", "with tests"])
@sample("shares", (1.004, 1.1, 1.5), 1)
def test_up_and_down_in_a_budget(mode, page, order, tests, shares):
    """What fits by its plan runs: the same bits as without Large Model Support, never more than the budget."""
    batches = (SMALL, LARGE, SMALL, 2, LARGE, 3, SMALL)
    for share in shares:
        budget = int(share * _least(page, mode, tests))
        device, seen = SimDevice(64 << 20, page=page, order=order, seed=3), []
        solver = _solver(device, LMSConfig(**LMS[mode], budget=budget, split=0), tests=tests)
        assert _train(solver, batches, seen) == _without_lms(batches, tests), share
        assert max(in_use for in_use, *_ in seen) <= budget


@pytest.mark.parametrize("page", PAGES, ids=["one piece", "pages"])
@pytest.mark.parametrize("tests", [False, True], ids=["train", "with tests"])
def test_memory_does_not_grow_however_often_shapes_alternate(page, tests):
    """Neither on the device nor, page-locked, on the host."""
    budget = int(1.2 * _least(page, "ahead", tests))
    solver, seen = _solver(SimDevice(64 << 20, page=page), LMSConfig(**LMS["ahead"], budget=budget), tests=tests), []
    _train(solver, [SMALL, LARGE, 2] * 8, seen)
    assert seen[3:6] * 7 == seen[3:]
    assert len({resident for _, _, resident, _ in seen[:3]}) == 3


@pytest.mark.parametrize(
    ("page", "options"),
    [
        pytest.param(PAGES[0], {}, id="one piece-one program", marks=pytest.mark.thorough),
        pytest.param(PAGES[0], {"iter_size": 3}, id="one piece-three programs"),
        pytest.param(PAGES[1], {}, id="pages-one program"),
        pytest.param(PAGES[1], {"iter_size": 3}, id="pages-three programs", marks=pytest.mark.thorough),
    ],
)
def test_plans_of_another_net_are_made_anew(page, options):
    """The test net's batch changes. The train net's plans, which had used what there was, must leave it more now; what
    was recorded of them is recorded anew, where it lies now."""
    budget = int(1.2 * _least(page, "ahead"))
    batches = (*[TESTED] * 4, *[2] * 4, TESTED, 2, *[TESTED] * 3)
    found = []
    for lms in (None, LMSConfig(**LMS["ahead"], budget=budget, split=0)):
        solver = _solver(SimDevice(64 << 20, page=page), lms, tests=True, **options)
        _feed(solver.net, LARGE, 5)
        solver.step(1)
        before, memory, resident = solver.net.memory.plans(), solver.net.memory, solver.runtime.resident_bytes
        found.append(_train(solver, batches, whose=solver.test_nets[0]))
        if lms is None:
            continue
        solver.test_nets[0].blobs["data"].reshape(2, 3, 8, 8)
        solver.test_nets[0].blobs["label"].reshape(2)
        solver.step(1)
        runtime, after = solver.runtime, solver.net.memory.plans()
        assert runtime.device.launches >= 3
        assert solver.net.memory is memory and after.keys() == before.keys() and runtime.resident_bytes > resident
        assert all(plan.arena_bytes <= runtime.limit() for plan in after.values())
        assert max(plan.arena_bytes for plan in before.values()) > runtime.limit()
    assert found[0] == found[1]


def _tight(page, *, separate=False, **settings):
    """A solver in just what its large batch needs on demand, a layer's gradients in one step, beside a test net of many
    images: of few there would stay more than is left. separate: whether steps may be two then."""
    fixed = {**LMS["on demand"], "split": 0}
    whole = Tuning(split_backward=False)
    probe = _solver(SimDevice(64 << 20, page=page), LMSConfig(**fixed), tests=True, tuning=whole)
    _train(probe, [LARGE, LARGE])
    runtime, plan = probe.runtime, probe.net.memory.plans()["train"]
    budget = runtime.resident_bytes + runtime.workspace_bytes + plan.arena_bytes + 4096
    lms = LMSConfig(**(fixed | settings), budget=budget)
    solver = _solver(SimDevice(64 << 20, page=page), lms, tests=True, tuning=Tuning() if separate else whole)
    _train(solver, [LARGE, LARGE])
    return solver


@pytest.mark.parametrize("page", PAGES, ids=["one piece", "pages"])
def test_what_cannot_fit_any_more_is_refused_and_fits_again_later(page):
    """The refusal names the layer, comes before anything runs, and loses nothing."""
    solver = _tight(page)
    [tested] = solver.test_nets
    reference = _solver(SimDevice(64 << 20), tests=True)
    _train(reference, [LARGE, LARGE])
    before = _params(solver)
    _feed(tested, 2, 8)
    _feed(reference.test_nets[0], 2, 8)
    assert solver.test() == reference.test()  # there is room for this one
    with pytest.raises(OutOfDeviceMemory, match=r'layer "c3" \(Convolution\): step backward:c3 needs .* at once'):
        solver.step(1)
    assert _params(solver) == before == _params(reference) and solver.iter == 2
    for s in (solver, reference):
        _feed(s.test_nets[0], TESTED, 9)
    assert _train(solver, [LARGE, SMALL]) == _train(reference, [LARGE, SMALL])


@pytest.mark.parametrize("page", PAGES, ids=["one piece", "pages"])
def test_what_does_not_fit_whole_any_more_goes_on_in_parts(page):
    """With its histories, and the values that it had."""
    solver, reference = _tight(page, split="auto"), _solver(SimDevice(64 << 20), tests=True)
    _train(reference, [LARGE, LARGE])
    assert not solver.net.arrangement.micro_batched.starts and _params(solver) == _params(reference)
    for s in (solver, reference):
        _feed(s.test_nets[0], 2, 8)
        s.step(3)
    assert (
        solver.net.arrangement.micro_batched.starts and solver.runtime.device.in_use() <= solver.runtime.config.budget
    )
    for ours, theirs in zip(solver.net.learnable_params, reference.net.learnable_params, strict=True):
        np.testing.assert_allclose(ours.read_data(), theirs.read_data(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("page", PAGES, ids=["one piece", "pages"])
def test_what_does_not_fit_in_one_step_any_more_goes_on_in_two(page):
    """Before layers run in parts, for so results stay the same to the bit."""
    solver, reference = _tight(page, separate=True, split="auto"), _solver(SimDevice(64 << 20), tests=True)
    _train(reference, [LARGE, LARGE])
    for s in (solver, reference):
        _feed(s.test_nets[0], 2, 8)
        s.step(3)
    assert any(makes_param_gradients(s.step.name) for s in solver.net.memory.steps("train"))
    assert (
        not solver.net.arrangement.micro_batched.starts
        and solver.runtime.device.in_use() <= solver.runtime.config.budget
    )
    assert _params(solver) == _params(reference)


@pytest.mark.parametrize("page", PAGES, ids=["one piece", "pages"])
def test_what_stays_for_good_and_cannot_fit_is_refused(page):
    """Nothing is large enough to be managed: the layer where memory ends is named before anything runs."""
    lms = LMSConfig(threshold_kb=1 << 20, budget=120 << 10)
    solver = _solver(SimDevice(64 << 20, page=page), lms)
    _train(solver, [SMALL])
    _feed(solver.net, LARGE, 1)
    with pytest.raises(OutOfDeviceMemory, match="all the time .*memory ends at this layer's") as caught:
        solver.step(1)
    assert caught.value.where.layer == "data" and solver.iter == 1


@pytest.mark.parametrize("page", PAGES, ids=["one piece", "pages"])
def test_by_hand(page):
    """Every value survives, so all are copied home; the net follows its inputs as a solver's does."""
    found = []
    for lms in (None, LMSConfig(threshold_kb=4, budget=1400 << 10, split=0)):
        parsed = parse_solver(f"net_param {{ {_net()} }}", "fed.prototxt")
        device = SimDevice(64 << 20, page=page)
        net = Net(parsed.message.net_param, 0, device=device, lms=lms, seed=3)
        seen = []
        for k, items in enumerate((SMALL, LARGE, 2, LARGE, SMALL)):
            _feed(net, items, k)
            net.clear_param_diffs()
            seen.append([net.forward_range(), net.backward_range(), net.blobs["r1"].data.tobytes()])
            seen.append([p.read_diff().tobytes() for p in net.learnable_params])
            assert lms is None or device.in_use() <= lms.budget
        found.append(seen)
    assert found[0] == found[1]


def _filtered(lms=None, **tuning):
    """Losses and parameters of iterations in which another number of images passes a layer each time."""
    inputs = "shape { dim: 8 dim: 3 dim: 8 dim: 8 } shape { dim: 8 } shape { dim: 8 }"
    text = f'layer {{ name: "in" type: "Input" top: "data" top: "all" top: "chosen" input_param {{ {inputs} }} }}\n'
    text += conv("a", "data", 4) + 'layer { name: "ra" type: "ReLU" bottom: "a" top: "ra" }\n' + conv("b", "ra", 4)
    text += 'layer { name: "norm" type: "BatchNorm" bottom: "b" top: "norm" }\n'
    text += 'layer { name: "both" type: "Concat" bottom: "ra" bottom: "norm" top: "both" }\n'
    text += (
        'layer { name: "some" type: "Filter" bottom: "both" bottom: "all" bottom: "chosen" top: "some" top: "label" }\n'
    )
    text += conv("c", "some", 6) + 'layer { name: "rc" type: "ReLU" bottom: "c" top: "rc" }\n'
    text += head("rc").replace('bottom: "label"', 'bottom: "label" propagate_down: true propagate_down: false')
    fields = "base_lr: 0.01 lr_policy: 'fixed' max_iter: 99 random_seed: 7 snapshot_after_train: false"
    parsed = parse_solver(f"{fields} net_param {{ {text} }}", "filtered.prototxt")
    device = SimDevice(64 << 20, order="random", seed=3)
    solver = SGDSolver(parsed.message, lines=parsed.lines, device=device, lms=lms, tuning=Tuning(**tuning))
    rng, losses = np.random.default_rng(5), []
    for passing in (8, 3, 3, 5, 1, 8, 8):
        solver.net.blobs["data"].data[...] = rng.normal(size=(8, 3, 8, 8))
        solver.net.blobs["all"].data[...] = rng.integers(5, size=8)
        solver.net.blobs["chosen"].data[...] = np.arange(8) < passing
        solver.step(1)
        losses.append(solver.net.loss())
        assert solver.net.blobs["some"].shape[0] == passing
    return losses, [b.read_data().tobytes() for b in solver.net.learnable_params], solver


def test_shapes_that_change_within_an_iteration_where_memory_is_shared():
    """Without Large Model Support: the rest of the iteration reads what its beginning made in shared memory."""
    losses, params, apart = _filtered(pack=False)
    again, same, shared = _filtered(pack=True)
    assert (losses, params) == (again, same) and not apart.net.memory.store.packed
    assert shared.net.memory.plans()["train"].arena_bytes and shared.net.memory.store.packed
    assert (losses, params) == _filtered(LMSConfig(threshold_kb=1), pack=True)[:2]
