"""The first promise: with any settings and any budget training gives the bits that it gives without Large Model
Support, or is refused with a fix. What fits without it is never refused."""

from __future__ import annotations

import logging
import random
import re

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory
from pycaffe_lms.formats.prototxt.parser import parse_net, parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.memory.fit import Candidate, arrange
from pycaffe_lms.net.net import Net
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver

from .nets import _eltwise as added
from .nets import _pool as pool
from .nets import conv, head, train, unit

ITERATIONS = 2
ROOM = 64 << 20


def random_net(rng: random.Random) -> str:
    """A net of three to six pieces: convolutions, BatchNorm, sums, branches, pooling, Dropout, and a head."""
    items, channels, size = rng.randint(2, 9), rng.randint(2, 6), rng.choice((8, 11, 14))
    text = f"""layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
        shape {{ dim: {items} dim: {channels} dim: {size} dim: {size} }} shape {{ dim: {items} }}
        data_filler {{ type: "gaussian" }} data_filler {{ type: "uniform" min: 0 max: 4.99 }} }} }}\n"""
    last, pools = "data", 0
    for i in range(rng.randint(3, 6)):
        kind, outputs = rng.choice(("conv", "unit", "sum", "branches", "pool", "drop", "norm")), rng.randint(3, 9)
        if kind == "pool" and pools < 2:
            text += pool(f"p{i}", last, rng.choice(("MAX", "AVE")))
            last, pools = f"p{i}", pools + 1
        elif kind == "sum":
            text += unit(f"a{i}", last, outputs) + unit(f"b{i}", f"a{i}", outputs, relu=False)
            text += added(f"s{i}", f"a{i}", f"b{i}")
            last = f"s{i}"
        elif kind == "branches":
            text += conv(f"a{i}", last, outputs, 1) + conv(f"b{i}", last, outputs)
            text += f'layer {{ name: "c{i}" type: "Concat" bottom: "a{i}" bottom: "b{i}" top: "c{i}" }}\n'
            last = f"c{i}"
        elif kind in ("drop", "norm"):
            layer = {"drop": "Dropout", "norm": "LRN"}[kind]
            text += f'layer {{ name: "n{i}" type: "{layer}" bottom: "{last}" top: "n{i}" }}\n'
            last = f"n{i}"
        else:
            text += (unit if kind == "unit" else conv)(f"u{i}", last, outputs, rng.choice((1, 3)))
            last = f"u{i}"
    return text + head(last)


def random_lms(rng: random.Random, budget: int, **more) -> LMSConfig:
    auto = rng.random() < 0.4
    fields = {
        "threshold_kb": rng.choice((0, 1, 8) if auto else (1, 2, 4, 8, 16, 1000)),
        "auto": auto,
        "frac": rng.choice((0.0, 0.0, 0.2, 0.6)),
        "ahead": rng.choice((None, None, 0, 2)),
        "recompute": rng.choice((None, True, False)),
        "sync": rng.choice((0, 0, 3)),
        "budget": budget,
    }
    return LMSConfig(**fields | more)


def make(net: str, rng: random.Random, lms: LMSConfig | None, tuning: Tuning, tested: bool) -> SGDSolver:
    test = "test_iter: 1 test_interval: 1 test_initialization: true" if tested else ""
    test += " snapshot_diff: true" * (len(net) % 2)  # keeps gradients
    parsed = parse_solver(
        'base_lr: 0.01 momentum: 0.9 weight_decay: 0.01 lr_policy: "fixed" max_iter: 9 random_seed: 5 '
        f"snapshot_after_train: false {test} net_param {{ {net} }}",
        "random.prototxt",
    )
    device = SimDevice(ROOM, order="random", seed=rng.randrange(1000))
    return SGDSolver(parsed.message, lines=parsed.lines, device=device, lms=lms, tuning=tuning)


def need(solver: SGDSolver) -> int:
    """Bytes of the device that training takes."""
    plans = [p for net in (solver.net, *solver.test_nets) for p in net.memory.plans().values() if p is not None]
    return (
        solver.runtime.resident_bytes + solver.runtime.workspace_bytes + max((p.arena_bytes for p in plans), default=0)
    )


def outcome(net: str, seed: int) -> set[str]:
    """What five random settings came to, each checked."""
    rng, seen = random.Random(seed), set()
    share = {"graph": 0.5, "half": 0.25, "masks": 0.8, "pack": 0.8, "channels_last": 0.4}
    tuning = Tuning(**{name: rng.random() < p for name, p in share.items()})
    tested = rng.random() < 0.4
    plain = make(net, rng, None, tuning, tested)
    most, expected = need(plain), train(plain, ITERATIONS)
    for _ in range(5):
        budget = int(most * rng.choice((0.2, 0.35, 0.5, 0.7, 0.85, 0.95, 1.0, 1.02, 1.2)))
        lms = random_lms(rng, budget)
        said = f"seed {seed}, {lms}"
        try:
            solver = make(net, rng, lms, tuning, tested)
        except OutOfDeviceMemory as error:
            assert budget < most, f"{said}: refused, but fits without Large Model Support: {error}"
            assert error.fix, said
            seen.add("refused")
            continue
        assert train(solver, ITERATIONS) == expected, said
        assert not solver.net.arrangement.micro_batched.starts and not solver.net.arrangement.micro_batched.cuts, said
        assert solver.runtime.device.in_use() <= budget, said
        seen.add("as without" if solver.runtime.idle else "copied" if solver.runtime.stats.bytes_in else "stayed")
    return seen


@pytest.mark.parametrize(
    "first", [pytest.param(n, marks=pytest.mark.thorough if n % 20 else ()) for n in range(0, 60, 10)]
)
def test_random_nets_settings_and_budgets_give_the_same_bits_or_are_refused(first):
    seen = set()
    for seed in range(first, first + 10):
        seen |= outcome(random_net(random.Random(seed)), seed)
    assert seen >= {"refused", "copied"}


def digits(lms: LMSConfig | None, tuning: Tuning | None = None) -> SGDSolver:
    """Like models/digits: one convolution whose top is much of what the net needs, little else."""
    net = """layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
        shape { dim: 128 dim: 1 dim: 8 dim: 8 } shape { dim: 128 }
        data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 4.99 } } }\n"""
    net += conv("conv1", "data", 32) + 'layer { name: "r" type: "ReLU" bottom: "conv1" top: "conv1" }\n'
    net += pool("pool1", "conv1", kernel=3) + head("pool1")
    return make(net, random.Random(1), lms, tuning or Tuning(pack=True), True)


@pytest.mark.parametrize(
    "lms", [{"auto": True}, {"threshold_kb": 1000}, {"threshold_kb": 16}, {"threshold_kb": 10_000}], ids=str
)
@pytest.mark.parametrize("half", [False, True])
def test_where_everything_fits_nothing_changes(lms, half, caplog):
    """To the byte of what it takes without, where it ran in parts, or was refused: what is not managed stayed, and
    shared memory with nothing."""
    tuning = Tuning(half=half, pack=True)
    plain = digits(None, tuning)
    with caplog.at_level(logging.INFO, "pycaffe_lms.net.memory.fit"):
        solver = digits(LMSConfig(budget=need(plain), **lms), tuning)
    assert train(solver, 3) == train(plain, 3)
    assert "parts" not in caplog.text
    if solver.runtime.idle:
        assert "nothing is managed" in caplog.text and solver.runtime.stats.bytes_in == 0
        assert solver.runtime.device.in_use() <= need(plain)


def test_parts_are_for_what_does_not_fit_without_either():
    """Though they are asked for."""
    plain = digits(None)
    solver = digits(LMSConfig(threshold_kb=10_000, split="auto", budget=need(plain)))
    assert not solver.net.arrangement.micro_batched.starts and solver.runtime.idle
    solver = digits(LMSConfig(threshold_kb=100, split="auto", budget=need(plain) // 2))
    assert solver.net.arrangement.micro_batched.starts and not solver.runtime.idle


def test_the_refusal_names_the_flag_and_what_it_costs(caplog):
    budget = need(digits(None)) // 2
    with pytest.raises(OutOfDeviceMemory) as caught:
        digits(LMSConfig(threshold_kb=100, budget=budget))
    assert "-lms_split auto" in caught.value.fix and "not to the bit" in caught.value.fix
    with caplog.at_level(logging.INFO, "pycaffe_lms.net.memory.fit"):
        digits(LMSConfig(threshold_kb=100, budget=budget, split="auto"))
    assert re.search(r'layers "conv1" .. "fc" run in \d parts', caplog.text) and "not to the bit" in caplog.text


def test_a_batch_that_grows_goes_on_without_where_it_fits_so():
    """With a threshold above all buffers nothing is managed, and every one has memory of its own."""
    inputs = "input_param { shape { dim: 16 dim: 3 dim: 8 dim: 8 } shape { dim: 16 } }"
    net = f'layer {{ name: "data" type: "Input" top: "data" top: "label" {inputs} }}\n'
    net += unit("u1", "data", 16) + pool("p1", "u1") + head("p1")

    def run(lms):
        solver, rng, idle = make(net, random.Random(2), lms, Tuning(pack=True), False), np.random.default_rng(4), []
        for items in (16, 16, 40, 40, 16, 40):
            solver.net.blobs["data"].reshape(items, 3, 8, 8)
            solver.net.blobs["label"].reshape(items)
            solver.net.blobs["data"].data[...] = rng.normal(size=(items, 3, 8, 8))
            solver.net.blobs["label"].data[...] = rng.integers(5, size=items)
            solver.step(1)
            idle.append(solver.runtime.idle)
        blobs = (*solver.net.learnable_params, *(b for b in solver.history_blobs() if not isinstance(b, tuple)))
        return idle, [b.read_data().tobytes() for b in blobs], need(solver)

    _, expected, most = run(None)
    idle, ours, _ = run(LMSConfig(threshold_kb=10_000, budget=most))
    assert ours == expected and not idle[0] and idle[-1]


@pytest.mark.parametrize("seed", range(100, 106))
def test_going_on_without_and_with_again_changes_no_bit(seed):
    """Between iterations; parameters, histories, running means and draws go along."""
    net, tuning = random_net(random.Random(seed)), Tuning(pack=True, graph=True)
    expected = train(make(net, random.Random(seed), None, tuning, True), 8)
    lms = random_lms(random.Random(seed), ROOM, threshold_kb=1, compress=None)
    solver = make(net, random.Random(seed), lms, tuning, True)
    losses, values = [], []
    for idle in (False, True, False, True):
        arrange(solver.runtime, [solver.net, *solver.test_nets], Candidate(idle, solver.runtime.keeps_params(), idle))
        more, values = train(solver, 2)
        losses += more
        assert solver.runtime.active is not idle
    assert (losses, values) == expected


@pytest.mark.parametrize("parts", ["auto", None])
def test_a_net_by_hand_that_fits_without_fits_with(parts):
    """A forward and a backward by hand, of which every value survives."""
    text = random_net(random.Random(3))

    def net_of(device, lms=None):
        parsed = parse_net(text, "n.prototxt")
        net = Net(parsed.message, 0, lines=parsed.lines, device=device, lms=lms, seed=3)
        net.forward_range()
        net.backward_range()
        return net

    device = SimDevice(ROOM)
    plain = net_of(device)
    lms = LMSConfig(threshold_kb=10_000, budget=device.in_use(), split=parts)
    net = net_of(SimDevice(ROOM), lms)
    assert not net.arrangement.micro_batched.starts
    for name in plain.blobs:
        assert net.blobs[name].read_data().tobytes() == plain.blobs[name].read_data().tobytes(), name
    for ours, theirs in zip(net.learnable_params, plain.learnable_params, strict=True):
        assert ours.read_diff().tobytes() == theirs.read_diff().tobytes()
