"""`lms_param { policy: ... }` in a prototxt: a layer's word wins over -lms and -lms_frac; what cannot be is refused."""

from __future__ import annotations

import functools
from dataclasses import replace

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DiscardedRead, LayerParamError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import MACHINES
from pycaffe_lms.lms.plan.plan import OpKind
from pycaffe_lms.lms.program import Mode
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver

from ..sampling import sample
from .nets import _DATA, HOST_DATA, make_solver, solver_text, train


def _solver(policy: str, config: LMSConfig | None, net="residual", layers=("c2",), device=None, **tuning) -> SGDSolver:
    text = solver_text(net.removesuffix(" on the host"))
    if net.endswith(" on the host"):
        text = text.replace(_DATA, HOST_DATA)
    for layer in layers:
        begin = f'layer {{ name: "{layer}" '
        assert text.count(begin) == 1
        text = text.replace(begin, begin + f"lms_param {{ policy: {policy} }} ")
    parsed = parse_solver(text, "policy.prototxt")
    options = {"file": "policy.prototxt", "lines": parsed.lines, "device": device or SimDevice(64 << 20)}
    return SGDSolver(parsed.message, lms=config, tuning=Tuning(graph=True, **tuning), **options)


def _managed(solver, prefix):
    memory = solver.net.memory
    return {m.name: b in memory.store.managed_ids for b, m in memory.memories.items() if m.name.startswith(prefix)}


def test_keep():
    solver = _solver("KEEP", LMSConfig(threshold_kb=1))
    assert not _managed(solver, "c2.data")["c2.data"] and not any(_managed(solver, "c2.param").values())
    assert all(_managed(solver, "c1.data").values())
    assert train(solver, 2) == train(make_solver("residual"), 2)


def test_swap_is_managed_below_the_threshold():
    solver = _solver("SWAP", LMSConfig(threshold_kb=100_000))
    assert _managed(solver, "c2.data")["c2.data"]
    assert not any(_managed(solver, "c1.data").values())
    assert train(solver, 2) == train(make_solver("residual"), 2)


def test_swap_needs_lms():
    assert not any(_managed(_solver("SWAP", LMSConfig()), "c2").values())


# -- RECOMPUTE ------------------------------------------------------------------------------------------------------
LMS = {
    "swap": LMSConfig(threshold_kb=1),
    "on demand": LMSConfig(threshold_kb=1, ahead=0),
    "only this": LMSConfig(threshold_kb=100_000),
    "auto": LMSConfig(auto=True, threshold_kb=1),
    "budget": LMSConfig(threshold_kb=1, budget=200 << 10),
}
# Layers that are made again, and what their remats make that backward reads; "" where nothing does.
CASES = {
    "a convolution": ("residual", ["c2"], ["c2.data"]),
    "three in a row": ("residual", ["c1", "c2", "c4"], ["c1.data", "c2.data", "c4.data"]),
    "a chain that runs as one": ("residual", ["bn_c2", "scale_c2", "relu_c2"], ["c2(scale_c2).data"]),
    "norm and its convolution": ("residual", ["c2", "bn_c2", "scale_c2", "relu_c2"], ["c2.data", "c2(scale_c2).data"]),
    "pooling with a mask": ("groups", ["pool1"], ["pool1.data", "pool1.mask"]),
    "Concat": ("branches", ["cat"], ["cat.data"]),
    "products": ("groups", ["conv2", "bias6"], ["conv2.data", "bias6.data"]),
    "nothing that backward reads": ("chain", ["fc"], []),
}


def _made_again(plan) -> set[str]:
    steps = [step for step, (_, again) in zip(plan.program.steps, plan.order, strict=True) if again]
    writes = {a.buffer for step in steps for a in step.accesses if a.mode is Mode.OVERWRITE}
    return {plan.buffers[b].name for b in writes & plan.buffers.keys() if not plan.buffers[b].call_scratch}


@functools.cache
def _reference(net: str, layers: tuple[str, ...]):
    return train(_solver("RECOMPUTE", None, net, layers), 3)


@pytest.mark.parametrize("lms", LMS.values(), ids=LMS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_recompute_makes_the_same_numbers_without_copies(case, lms):
    """To the bit, in a random legal order of what is queued; everything that is not made again is as without."""
    net, layers, names = case
    solver = _solver("RECOMPUTE", lms, net, layers, SimDevice(64 << 20, order="random", seed=5))
    plan = solver.net.memory.plans()["train"]
    assert set(names) <= _made_again(plan)
    if not lms.recomputes:
        assert _made_again(plan) == set(names)
    copied = {plan.buffers[op.place.buffer].name for op in plan.ops if op.place is not None}
    assert not copied & set(names)
    assert train(solver, 3) == _reference(net, tuple(layers))
    for name in names:
        assert _managed(solver, name)[name]


def test_recompute_drops_after_the_forward_and_makes_again_before_the_backward():
    plan = _solver("RECOMPUTE", LMSConfig(threshold_kb=100_000)).net.memory.plans()["train"]
    (mine,) = (b for b, buffer in plan.buffers.items() if buffer.name == "c2.data")
    names = [step.name for step in plan.program.steps]
    last_forward = max(s for s, name in enumerate(names) if name.startswith("forward:"))
    dropped = [op.step for op in plan.ops if op.kind is OpKind.COMPUTE and mine in op.drops]
    born = [op.step for op in plan.ops if mine in {p.buffer for p in op.births}]
    assert len(born) == len(dropped) == 2
    assert names[born[0]] == "forward:c2" and dropped[0] < last_forward
    assert names[born[1]] == "again:c2" and born[1] > last_forward and names[dropped[1]].startswith("backward:bn_c2")


@pytest.mark.parametrize(
    "layer, net, why",
    [
        ("data", "chain on the host", "would not make the same values, or runs on the host"),
        ("pool1", "chain", 'layer "relu1" changes its top "pool1" in place'),
        ("relu1", "chain", 'runs in place on "pool1"'),
        ("loss", "chain", "is an output of the net"),
        ("reshape", "groups", "makes no value of its own|would not make the same"),
        ("other", "branches", "would not make the same values"),
    ],
)
def test_recompute_that_cannot_be(layer, net, why):
    with pytest.raises(LayerParamError, match=rf'policy.prototxt:\d+: layer "{layer}" .*RECOMPUTE.*({why})') as error:
        _solver("RECOMPUTE", LMSConfig(threshold_kb=1), net, [layer])
    assert "fix:" in str(error.value)
    _solver("RECOMPUTE", None, net, [layer])  # without Large Model Support it says nothing


def test_recompute_contradicts_the_flag_that_forbids_it():
    with pytest.raises(LayerParamError, match="contradicts -lms_recompute off"):
        _solver("RECOMPUTE", LMSConfig(threshold_kb=1, recompute=False))


def test_recompute_of_what_is_kept():
    """What the user keeps survives, so it is copied home, and not made again."""
    solver = _solver("RECOMPUTE", LMSConfig(threshold_kb=1))
    solver.net.keep("c2")
    other = _solver("RECOMPUTE", None)
    other.net.keep("c2")
    assert train(solver, 2) == train(other, 2)
    assert solver.net.blobs["c2"].read_data().tobytes() == other.net.blobs["c2"].read_data().tobytes()


def test_what_was_made_again_may_be_looked_at():
    """After an iteration the value is gone, as with any other that nobody reads again."""
    solver = _solver("RECOMPUTE", LMSConfig(threshold_kb=1), "groups", ["pool1"])
    solver.step(1)
    with pytest.raises(DiscardedRead, match="pool1"):
        solver.net.blobs["pool1"].read_data()
    solver.net.forward_range()  # by hand everything survives
    assert solver.net.blobs["pool1"].read_data().any()


@sample("budgets", (180, 140, 220), 1)
def test_swap_is_never_made_again(monkeypatch, budgets):
    """With auto, little memory and a slow link others are; these are copied."""
    slow = replace(MACHINES["h200"], link_in=1e6, link_out=1e6, link_both=2e6)
    monkeypatch.setattr("pycaffe_lms.lms.runtime.runtime.machine_of", lambda name, memory: slow)
    layers = ["c2", "c4", "bn_c2", "scale_c2", "relu_c2"]
    mine, free = {"c2.data", "c4.data", "c2(scale_c2).data"}, set()
    expected = train(_solver("SWAP", None, layers=layers), 2)
    for budget in budgets:
        lms = LMSConfig(auto=True, threshold_kb=1, budget=budget << 10)
        free |= _made_again(_solver("AUTO", lms, layers=layers).net.memory.plans()["train"])
        solver = _solver("SWAP", lms, layers=layers)
        assert not _made_again(solver.net.memory.plans()["train"]) & mine
        assert train(solver, 2) == expected
    assert free & mine
