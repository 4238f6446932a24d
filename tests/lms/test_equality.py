"""Training with Large Model Support equals training without it, bit for bit, in every legal order of the streams."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.lms.config import LMSConfig

from ..sampling import sample
from .nets import NETS, TYPES, make_solver, train, type_name

ITERATIONS = 3


@functools.cache
def without_lms(net, **options):
    return train(make_solver(net, SimDevice(64 << 20), **options), ITERATIONS)


def _check(solver, net, expected=None):
    assert train(solver, ITERATIONS) == (expected or without_lms(net))
    runtime = solver.runtime
    plans = [p for p in solver.net.memory.plans().values() if p is not None]
    assert plans
    assert runtime.stats.held == 0
    assert runtime.stats.held_peak <= max(p.held_bytes for p in plans) <= max(p.arena_bytes for p in plans)


@pytest.mark.parametrize("net", NETS)
def test_simulated_device_equals_the_cpu(net):
    """The same operations, queued or at once: also equal to the bit, workspace apart (hence within rounding)."""
    losses, _ = train(make_solver(net, get_device("cpu")), ITERATIONS)
    assert losses == pytest.approx(without_lms(net)[0], rel=1e-5)


@pytest.mark.parametrize("order", ["latest", "earliest"])
@pytest.mark.parametrize("ahead", [0, 1, 4, 32])
@pytest.mark.parametrize("net", NETS)
def test_everything_managed(net, ahead, order):
    device = SimDevice(64 << 20, order=order)
    solver = make_solver(net, device, LMSConfig(threshold_kb=1, ahead=ahead))
    _check(solver, net)
    assert device.bytes_in > 0 and device.bytes_out > 0


@pytest.mark.parametrize("net", NETS)
@sample("seeds", range(40), 7)
def test_two_hundred_random_orders(net, seeds):
    """40 seeds a net, 5 nets: 200 random legal orders, with thresholds, shares, look-ahead and sync modes mixed."""
    for seed in seeds:
        config = LMSConfig(
            threshold_kb=(1, 2, 8)[seed % 3],
            frac=(0.0, 0.001, 0.002)[seed % 5 % 3],
            ahead=(0, 1, 3, 32)[seed % 4],
            sync=seed // 4 % 4,
        )
        solver = make_solver(net, SimDevice(64 << 20, order="random", seed=seed), config)
        assert train(solver, 2) == two_iterations(net), f"seed {seed}"


@functools.cache
def two_iterations(net):
    return train(make_solver(net, SimDevice(64 << 20)), 2)


@pytest.mark.parametrize(("net", "options"), [*((net, {}) for net in NETS), ("residual", TYPES[-1])], ids=str)
def test_smallest_budget_that_the_plan_allows(net, options):
    """Down to the very bytes the plan asks for; a little less is refused before anything runs."""
    roomy = make_solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, ahead=0), **options)
    plan = roomy.net.memory.plans()["train"]
    need = roomy.runtime.resident_bytes + roomy.runtime.workspace_bytes + plan.arena_bytes
    device = SimDevice(64 << 20, order="random", seed=1)
    solver = make_solver(net, device, LMSConfig(threshold_kb=1, ahead=1, budget=need), **options)
    _check(solver, net, train(make_solver(net, SimDevice(64 << 20), **options), ITERATIONS))
    assert device.in_use() <= need
    with pytest.raises(OutOfDeviceMemory, match="fix:"):
        make_solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=need // 2, split=0), **options)


def test_does_not_fit_without_and_trains_with():
    budget = 120 << 10
    with pytest.raises(OutOfDeviceMemory) as caught:
        make_solver("residual", SimDevice(64 << 20), LMSConfig(budget=budget))
    text = str(caught.value)
    assert "residual.prototxt" in text and "layer" in text and "use Large Model Support" in text
    solver = make_solver("residual", SimDevice(64 << 20), LMSConfig(threshold_kb=1, budget=budget))
    _check(solver, "residual")


@pytest.mark.parametrize(
    "options", [{"iter_size": 3}, {"clip_gradients": 0.5}, {"iter_size": 2, "clip_gradients": 0.1}]
)
@pytest.mark.parametrize("net", ["residual", "shared", "branches"])
def test_gradient_accumulation_and_clipping(net, options):
    expected = train(make_solver(net, SimDevice(64 << 20), **options), ITERATIONS)
    solver = make_solver(net, SimDevice(64 << 20, order="random", seed=3), LMSConfig(threshold_kb=1), **options)
    _check(solver, net, expected)


@sample("orders", (("random", 1), ("latest", 0), ("earliest", 0), ("random", 2)), 1)
@pytest.mark.parametrize("more", [{}, {"clip_gradients": 0.5}, {"iter_size": 2}], ids=str)
@pytest.mark.parametrize("options", TYPES, ids=type_name)
def test_every_solver_type(options, more, orders):
    """Without it one operation updates all parameters; with it there is a step for each, and histories come and go."""
    options = options | more | {"base_lr": 0.01}
    expected = train(make_solver("residual", SimDevice(64 << 20), **options), 5)
    for order, seed in orders:
        device = SimDevice(64 << 20, order=order, seed=seed)
        solver = make_solver("residual", device, LMSConfig(threshold_kb=1, ahead=2), **options)
        assert train(solver, 5) == expected
        assert solver.runtime.stats.held == 0
    auto = make_solver("residual", SimDevice(64 << 20), LMSConfig(auto=True, threshold_kb=1), **options)
    assert train(auto, 5) == expected
    planned = {b for p in solver.net.memory.plans().values() if p is not None for b in p.buffers}
    for slot in zip(*(slots for _, slots in solver.updates.pieces), strict=True):
        assert planned & set(slot), "some histories of this net are larger than 1 KB"


def test_no_growth_after_the_third_iteration():
    device = SimDevice(64 << 20)
    solver = make_solver("residual", device, LMSConfig(threshold_kb=1))
    train(solver, 3)
    device_bytes, host_bytes = device.in_use(), solver.runtime.slab.nbytes
    train(solver, 5)
    assert (device.in_use(), solver.runtime.slab.nbytes) == (device_bytes, host_bytes)


def test_budget_is_monotone():
    """A smaller budget never makes the predicted peak larger."""
    peaks = []
    for budget_kb in (2000, 1000, 500, 300, 200, 150, 120):
        solver = make_solver(
            "residual", SimDevice(64 << 20), LMSConfig(threshold_kb=1, ahead=3, budget=budget_kb << 10)
        )
        peaks.append(solver.net.memory.plans()["train"].arena_bytes)
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize("kind", ["in", "out", "compute"])
def test_these_tests_can_fail(kind):
    """Without the waits of one kind of operation, some order gives other numbers: the simulated device notices."""

    def changes(seed):
        solver = make_solver(
            "residual",
            SimDevice(64 << 20, order=("latest", "random")[seed % 2], seed=seed),
            LMSConfig(threshold_kb=1, ahead=4, budget=150 << 10),
        )
        plans = solver.net.memory.programs.bound
        bound = plans["train"]
        ops = tuple(dataclasses.replace(op, waits=()) if op.kind.value == kind else op for op in bound.plan.ops)
        plan = dataclasses.replace(bound.plan, ops=ops)
        plans["train"] = dataclasses.replace(bound, plan=plan, replay=None)
        solver.nan = "ignore"
        with np.errstate(all="ignore"):  # what comes too early may be any number
            return train(solver, 2) != two_iterations("residual")

    assert any(map(changes, range(12)))
