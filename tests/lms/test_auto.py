"""The automatic mode: what is copied, made again or stays is chosen, and changes no bit."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli.views.plan_nets import Nets
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.formats.prototxt.parser import read_net
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.planner import optimise as optimiser
from pycaffe_lms.lms.rules import SEARCH
from pycaffe_lms.lms.runtime import runtime
from pycaffe_lms.solvers.rules import RULES

from ..sampling import sample
from .nets import _DATA, NETS, conv, head, make_solver, train

ITERATIONS = 2


@functools.cache
def without_lms(net, **options):
    return train(make_solver(net, SimDevice(64 << 20), **options), ITERATIONS)


def _auto(**settings) -> LMSConfig:
    return LMSConfig(auto=True, threshold_kb=1, **settings)


@functools.cache
def _sizes(net) -> tuple[int, int]:
    """(bytes with nothing copied or made again, bytes that on-demand fetching asks for)."""
    roomy = make_solver(net, SimDevice(64 << 20), _auto()).net
    demand = make_solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, ahead=0)).net
    return tuple(
        n.runtime.resident_bytes + n.runtime.workspace_bytes + n.memory.plans()["train"].arena_bytes
        for n in (roomy, demand)
    )


@pytest.fixture(params=["fast link", "slow link"])
def link(request, monkeypatch):
    """With a slow link nearly everything that can be made again is."""
    if request.param == "slow link":
        slow = dataclasses.replace(MACHINES["h200"], link_in=1e3, link_out=1e3, link_both=2e3)
        monkeypatch.setattr(runtime, "machine_of", lambda name, memory: slow)
    return request.param


@sample("shares", (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), 1)
@pytest.mark.parametrize("net", NETS)
def test_equal_bits_in_every_budget(net, link, shares):
    most, least = _sizes(net)
    tried = rematerialized = copied = 0
    for k, share in enumerate(shares):
        budget = least + int(share * max(0, most - least)) // 512 * 512
        device = SimDevice(64 << 20, order=("random", "latest", "earliest")[k % 3], seed=k)
        try:
            solver = make_solver(net, device, _auto(budget=budget))
        except OutOfDeviceMemory:  # parameters stay, so the least may be a little more
            continue
        tried += 1
        plan = solver.net.memory.plans()["train"]
        rematerialized += plan.rematerialized
        copied += plan.bytes_in + plan.bytes_out
        assert train(solver, ITERATIONS) == without_lms(net), f"budget {budget}"
        assert device.in_use() <= budget
        assert solver.runtime.stats.held_peak <= plan.held_bytes
    assert tried >= len(shares) // 2 and rematerialized + copied > 0


def test_what_fits_is_neither_copied_nor_made_again():
    for net in NETS:
        device = SimDevice(64 << 20)
        solver = make_solver(net, device, _auto())
        plan = solver.net.memory.plans()["train"]
        assert not plan.copies and not plan.rematerialized and plan.stall == 0
        assert train(solver, 5) == train(make_solver(net, SimDevice(64 << 20)), 5)
        assert device.launches > 0  # repeated from a recording


def test_a_slow_link_means_remats_and_a_fast_one_copies(monkeypatch):
    most, least = _sizes("residual")
    budget = least + (most - least) * 7 // 10  # enough for parameters to stay
    monkeypatch.setattr(runtime, "SEARCH", dataclasses.replace(SEARCH, params_share=1.0))
    found = {}
    for name, rate in (("slow", 1e3), ("fast", 1e15)):
        machine = dataclasses.replace(
            MACHINES["h200"], link_in=rate, link_out=rate, link_both=2 * rate, copy_s=1e-12, launch_s=1e-3
        )
        monkeypatch.setattr(runtime, "machine_of", lambda n, memory, m=machine: m)
        plan = make_solver("residual", SimDevice(64 << 20), _auto(budget=budget)).net.memory.plans()["train"]
        found[name] = (plan.rematerialized, plan.bytes_out)
    assert found["slow"][0] > 0 and found["slow"][1] == 0
    assert found["fast"][0] == 0 and found["fast"][1] > 0


def test_recompute_off_and_on():
    most, least = _sizes("residual")
    budget = (most + least) // 2
    plans = {}
    for recompute in (False, True):
        lms = LMSConfig(threshold_kb=1, budget=budget, recompute=recompute)
        solver = make_solver("residual", SimDevice(64 << 20), lms)
        plans[recompute] = solver.net.memory.plans()["train"]
        assert train(solver, ITERATIONS) == without_lms("residual")
    assert plans[False].rematerialized == 0 and plans[False].copies
    assert plans[True].seconds <= plans[False].seconds


@pytest.mark.parametrize("options", [{"iter_size": 3}, {"clip_gradients": 0.5}, {"debug_info": "true"}])
def test_with_other_solver_settings(options):
    most, least = _sizes("residual")
    expected = train(make_solver("residual", SimDevice(64 << 20), **options), ITERATIONS)
    device = SimDevice(64 << 20, order="random", seed=5)
    solver = make_solver("residual", device, _auto(budget=least + (most - least) // 2), **options)
    assert train(solver, ITERATIONS) == expected


def test_kept_blobs_stay_readable():
    most, least = _sizes("residual")
    solver = make_solver("residual", SimDevice(64 << 20), _auto(budget=least + 3 * (most - least) // 4))
    plain = make_solver("residual", SimDevice(64 << 20))
    for s in (solver, plain):
        s.net.keep("c1")
        s.step(2)
    assert solver.net.blobs["c1"].read_data().tobytes() == plain.net.blobs["c1"].read_data().tobytes()


def test_measured_times_lead_to_another_plan(monkeypatch):
    """Predictions are far off: copies seem dear at first. The simulated device's clock shows that they are not."""
    most, least = _sizes("residual")
    wrong = dataclasses.replace(MACHINES["h200"], launch_s=1e-12, memory_rate=1e18, product_rate=1e18)
    monkeypatch.setattr(runtime, "machine_of", lambda name, memory: wrong)
    solver = make_solver("residual", SimDevice(64 << 20), _auto(budget=least + 3 * (most - least) // 10))
    first = solver.net.memory.plans()["train"]
    losses = train(solver, 6)
    second = solver.net.memory.plans()["train"]
    assert second is not first and solver.runtime.measured
    assert losses == train(make_solver("residual", SimDevice(64 << 20)), 6)


def test_more_memory_makes_a_small_net_no_slower():
    """Below 32 MB the arena is contiguous; the largest buffers of digits waste a third of 16 to 20 pages."""
    found = []
    for budget in (31 << 20, 36 << 20, 41 << 20):
        nets = Nets(
            read_net(str(Path(__file__).parents[2] / "models/digits/train_val.prototxt")),
            ["data=256,1,28,28"],
            level=0,
            stages=(),
            rule=RULES["SGD"],
            machine=MACHINES["h200"],
            lms=LMSConfig(auto=True, budget=budget),
            workspace=1 << 20,
        )
        found.append(nets.outcome().seconds)
    assert found[0] >= found[1] >= found[2] > 0


@pytest.mark.parametrize("below", ["", "conv"])
def test_statistics_are_read_again_where_a_backward_keeps_them(below, monkeypatch):
    """BatchNorm rematerializes from its batch's statistics. Without a backward, on data that get no gradient, it keeps
    none, and so its top is kept or copied."""
    text = _DATA + (conv("conv", "data", 3) if below else "")
    text += f'layer {{ name: "bn" type: "BatchNorm" bottom: "{below or "data"}" top: "bn" }}\n'
    text += conv("c1", "bn", 6) + 'layer { name: "tanh" type: "TanH" bottom: "c1" top: "tanh" }\n'
    net = f"norm {below}"
    monkeypatch.setitem(NETS, net, text + conv("c2", "tanh", 6) + head("c2"))
    solver = make_solver(net, SimDevice(64 << 20), LMSConfig(threshold_kb=1, auto=True))
    again = {step.name for step in solver.net.memory.planner.requests["train"].remats.values()}
    assert ("again:bn" in again) == bool(below)
    test_equal_bits_in_every_budget(net, "fast link", (0.3, 0.5, 0.7))


@pytest.mark.parametrize(("net", "kept"), [("residual", False), ("shared", True)])
def test_copies_on_demand_beside_parameters_only_where_they_are_faster(net, kept, monkeypatch):
    """No set of rules is said to give a plan while parameters stay: they are managed, unless that copies more."""
    slow = dataclasses.replace(MACHINES["h200"], link_in=1e3, link_out=1e3, link_both=2e3)
    monkeypatch.setattr(runtime, "machine_of", lambda name, memory: slow)
    most, least = _sizes(net)
    budget, real = least + int(0.9 * (most - least)) // 512 * 512, optimiser._fastest
    assert make_solver(net, SimDevice(64 << 20), _auto(budget=budget)).runtime.keeps_params()

    def fastest(problem, rules, below):
        params = [b for b in problem.buffers.values() if ".param" in b.name]
        return real(problem, rules, below) if params else None

    monkeypatch.setattr(optimiser, "_fastest", fastest)
    solver = make_solver(net, SimDevice(64 << 20), _auto(budget=budget))
    plan = solver.net.memory.plans()["train"]
    assert solver.runtime.keeps_params() is kept and (plan.how is None) is kept
    assert train(solver, ITERATIONS) == without_lms(net)
