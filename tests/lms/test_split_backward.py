"""When gradients are planned in two steps: where an iteration is predicted to be faster so, or fits only so."""

from __future__ import annotations

import functools
import json
import logging
import re
from dataclasses import replace

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import OutOfDeviceMemory, PlanError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.plan.statistics import plan_statistics
from pycaffe_lms.lms.program import layer_of, makes_param_gradients
from pycaffe_lms.lms.report.layer_costs import layer_costs
from pycaffe_lms.lms.runtime import runtime
from pycaffe_lms.net.inspect.account import predicted
from tests.net.test_split_backward import TEXTS, solver

from .nets import train

NETS = ["chain", "residual", "groups", "shared", "joined residual"]
SLOW = replace(MACHINES["h200"], link_in=1e6, link_out=1e6, link_both=2e6, launch_s=1e-6)


@pytest.fixture(autouse=True)
def slow_link(monkeypatch):
    """Copies take far longer than these small layers, as on a GPU with large ones."""
    monkeypatch.setattr(runtime, "machine_of", lambda name, memory: SLOW)


def make(net, budget=None, separate=None, *, kb=1, auto=True, **more):
    lms = LMSConfig(threshold_kb=kb, auto=auto, budget=budget, pages=False, **{"split": 0} | more)
    return solver(net, SimDevice(64 << 20, order="random", seed=1), separate, lms)


def plan_of(one):
    return one.net.memory.plans()["train"]


def halves(one) -> set[str]:
    return {layer_of(s.name) for s in plan_of(one).program.steps if makes_param_gradients(s.name)}


def takes(one) -> int:
    return one.runtime.resident_bytes + one.runtime.workspace_bytes + plan_of(one).arena_bytes


@functools.cache
def least(net, separate) -> int:
    """Bytes without which everything fetched on demand does not fit."""
    low, high = 0, takes(make(net, None, separate, auto=False, ahead=0))
    while high - low > 512:
        middle = (low + high) // 2
        try:
            high = min(middle, takes(make(net, middle, separate, auto=False, ahead=0)))
        except OutOfDeviceMemory:
            low = middle
    return high


@pytest.mark.parametrize("net", NETS)
def test_no_net_needs_more(net):
    assert least(net, True) <= least(net, False)


# In these the largest step is the backward of a layer that may be two; else it is that of a chain that runs as one.
TIGHT = ["convolutions", "branches", "two bottoms"]


@pytest.mark.parametrize("auto", [True, False])
@pytest.mark.parametrize("net", TIGHT)
def test_what_fits_only_so_trains_to_the_same_bits(net, auto):
    budget = (least(net, True) + least(net, False)) // 2
    with pytest.raises(OutOfDeviceMemory):
        make(net, budget, False, auto=False)
    one = make(net, budget, auto=auto, split="auto")
    assert halves(one) and not one.net.arrangement.micro_batched.starts  # parts of the batch would change the bits
    assert takes(one) <= budget
    assert train(one, 3) == train(solver(net, SimDevice(64 << 20), False), 3)


@pytest.mark.parametrize("net", NETS)
def test_with_memory_enough_steps_stay_whole(net):
    assert not halves(make(net, 32 << 20))


@pytest.mark.parametrize(
    "nets, shares",
    [
        pytest.param(("chain", "groups", "shared", "joined residual"), (0.05,), id="sample"),
        pytest.param(NETS, (0.05, 0.3, 0.6, 0.9), id="all", marks=pytest.mark.thorough),
    ],
)
def test_the_faster_program_counts(nets, shares):
    chosen = []
    for net in nets:
        need, all_of_it = least(net, False), takes(make(net, None, False, kb=1))
        for share in shares:
            budget = int(need + share * (all_of_it - need))
            whole, apart, one = (make(net, budget, separate) for separate in (False, True, None))
            seconds = [plan_of(s).seconds for s in (whole, apart)]
            if halves(one):
                assert plan_of(one).seconds == seconds[1] < seconds[0]
            else:
                steps = sum(one.net.memory.planner.requests["train"].costs.steps)
                assert plan_of(one).seconds == seconds[0]
                assert seconds[0] <= seconds[1] or seconds[0] <= 1.15 * steps
            assert predicted(one.net, plan_of(one)).seconds == pytest.approx(plan_of(one).seconds)
            chosen.append(bool(halves(one)))
    assert not all(chosen) and any(chosen)  # in little memory some are faster so


@functools.cache
def _faster_so():
    """(net, budget) for which two steps are chosen although one fits."""
    for net in ("groups", *NETS):  # which is quick to plan
        for share in (1.0, 1.05, 1.1, 1.2, 1.4):
            budget = int(share * least(net, False))
            if halves(make(net, budget)):
                return net, budget
    raise AssertionError("there is none")


# -- plan files ----------------------------------------------------------------------------------------------------
def test_a_file_says_which_program_it_is_of(tmp_path, monkeypatch):
    net, budget = _faster_so()
    expected = train(solver(net, SimDevice(64 << 20), False), 3)
    written = {}
    for separate in (None, False):  # of the second, as of an older file, no step is half a backward
        file = tmp_path / f"{separate}.plan"
        one = make(net, budget, separate, plan_file=str(file))
        assert bool(halves(one)) is (separate is None)
        written[file] = plan_of(one)
    monkeypatch.setattr("pycaffe_lms.lms.planner.choose.optimise", None)  # nobody plans
    for file, plan in written.items():
        again = make(net, budget, plan_file=str(file))
        assert plan_of(again).program == plan.program and plan_of(again).ops == plan.ops
        assert train(again, 3) == expected


def test_a_mistake_in_such_a_file_is_found(tmp_path):
    net, budget = _faster_so()
    file = tmp_path / "lms.plan"
    make(net, budget, plan_file=str(file))
    text = file.read_text()
    first = re.search(r'  step \{ name: "backward:(\w+) \[params\]".*\n', text)
    file.write_text(text.replace(first[0], ""))
    with pytest.raises(PlanError):
        make(net, budget, plan_file=str(file))


# -- later ---------------------------------------------------------------------------------------------------------
def test_measured_times_keep_the_program_that_runs():
    net, budget = _faster_so()
    one = make(net, budget)
    names = sorted(
        s.name for s, (_, again) in zip(plan_of(one).program.steps, plan_of(one).order, strict=True) if not again
    )
    expected = train(solver(net, SimDevice(64 << 20), False), 8)
    assert train(one, 8) == expected and one.settled
    assert any(makes_param_gradients(name) for name in one.runtime.measured)
    after = plan_of(one)
    own = sorted(s.name for s, (_, again) in zip(after.program.steps, after.order, strict=True) if not again)
    assert own == names


def test_gradients_over_several_batches():
    """Every program of an iteration is chosen by itself."""
    net, budget = _faster_so()
    lms = LMSConfig(threshold_kb=1, auto=True, budget=budget, pages=False, split=0)
    one = solver(net, SimDevice(64 << 20), None, lms, iter_size=2)
    plans = one.net.memory.plans()
    assert any(makes_param_gradients(s.name) for key in ("train first", "train last") for s in plans[key].program.steps)
    assert train(one, 3) == train(solver(net, SimDevice(64 << 20), False, iter_size=2), 3)


# -- what people see -----------------------------------------------------------------------------------------------
def test_both_steps_are_one_row_of_a_layer():
    net, budget = _faster_so()
    one = make(net, budget)
    plan, times = plan_of(one), predicted(one.net, plan_of(one))
    rows = {row.layer: row for row in layer_costs(plan, times)}
    assert rows.keys() <= {"numbers", *(n.name for n in one.net.run_graph.everyone())} | {
        layer_of(s.name) for s in plan.program.steps if s.name.startswith("update")
    }
    costs, steps = one.net.memory.planner.requests["train"].costs, one.net.memory.steps("train")
    own = [s for s, (_, again) in zip(steps, plan.order, strict=True) if not again]
    for layer in halves(one):
        expected = sum(
            costs.steps[plan.order[s][0]]
            for s, step in enumerate(steps)
            if not plan.order[s][1] and layer_of(step.step.name) == layer
        )
        again = sum(
            costs.again[plan.order[s][0]]
            for s, step in enumerate(steps)
            if plan.order[s][1] and layer_of(step.step.name) == layer
        )
        assert rows[layer].predicted == pytest.approx(expected + again)
    assert len(own) == plan_statistics(plan)["steps"] - plan.rematerialized


def test_the_log_says_so(caplog):
    net, budget = _faster_so()
    with caplog.at_level(logging.INFO):
        n = len(halves(make(net, budget)))
    assert f"gradients of {n} layers as two steps each" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.INFO):
        make(net, 32 << 20)
    assert "two steps" not in caplog.text


def test_a_plan_without_a_gpu_chooses_alike(tmp_path, capsys):
    """And the least budget is that of the program that fits with less."""
    net = "convolutions"
    model = tmp_path / "net.prototxt"
    model.write_text(TEXTS[net])
    out = tmp_path / "plan.json"
    argv = ["plan", "-model", str(model), "-lms", "1", "-lms_ahead", "0", "-lms_pages", "off", "-json", str(out)]
    assert main(argv) == 0
    assert "two steps" not in capsys.readouterr().out or json.loads(out.read_text())["layers_in_two_steps"]
    budget = json.loads(out.read_text())["least"]["nbytes"]
    assert budget < least(net, False)
    assert main([*argv, "-lms_budget", f"{budget}B", "-lms_split", "off"]) == 0
    said = capsys.readouterr().out
    found = json.loads(out.read_text())
    assert found["layers_in_two_steps"] == 3
    assert "gradients of 3 layers as two steps each, of parameters and then of bottoms" in said
    assert found["least"]["step"] and "[params]" not in found["least"]["layer"]
