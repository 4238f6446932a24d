"""Bit masks in place of a sum that convolutions read too: faster where channels fill whole words, same bits."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.program import Mode
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import solver_class
from tests.lms.nets import _DATA, _eltwise, _pool, conv, head, train, unit

BLOCKS = (
    unit("a", "data", {0})
    + unit("b", "a", {0}, relu=False)
    + _eltwise("s", "a", "b")
    + unit("c", "s", {0}, 1)
    + unit("d", "c", {0}, relu=False)
    + _eltwise("t", "s", "d")
    + conv("e", "t", 4, 1)
    + _pool("p", "e", "AVE")
    + head("p")
)
SUMS = ["bn_b+scale_b+s+relu_s", "bn_d+scale_d+t+relu_t"]
MANAGED = LMSConfig(threshold_kb=1)


def make(channels=32, device=None, lms=None, **tuning):
    text = "base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' max_iter: 9 random_seed: 7 snapshot_after_train: false\n"
    parsed = parse_solver(f"{text} net_param {{ name: 'm'\n{_DATA}{BLOCKS.replace('{0}', str(channels))} }}")
    tuning = Tuning(**{"channels_last": True, **tuning})
    device = device or SimDevice(64 << 20)
    return solver_class(parsed.message)(parsed.message, lines=parsed.lines, device=device, lms=lms, tuning=tuning)


def sums_with_bits(solver):
    return [g.name for g in solver.net.graph.groups if g.layer.context.saves_bits and g.name in SUMS]


@pytest.mark.parametrize("lms", [None, MANAGED], ids=["in memory", "managed"])
def test_sums_keep_bits_where_channels_fill_words(lms):
    assert sums_with_bits(make(lms=lms)) == SUMS
    assert sums_with_bits(make(48, lms=lms)) == []  # a word would belong to two positions
    assert sums_with_bits(make(lms=lms, channels_last=False)) == []  # a pass of its own would make them
    assert sums_with_bits(make(lms=lms, masks=False)) == []


def test_backward_of_a_sum_reads_bits_and_not_the_value():
    found = {}
    for masks in (True, False):
        solver = make(masks=masks)
        graph = solver.net.graph
        data = {v.name: v.data for v in graph.values}
        steps = {s.step.name: s.step for s in solver.net._iteration("train", True, ()).steps}
        step = steps[f"backward:{SUMS[0]}"]
        found[masks] = {a.buffer for a in step.accesses if a.mode is Mode.READ}, data["s"], graph.groups
    (reads, value, groups), (plain, plain_value, _) = found[True], found[False]
    bits = next(g for g in groups if g.name == SUMS[0]).scratch["bits"]
    assert bits in reads and value not in reads
    assert plain_value in plain


@pytest.mark.parametrize(
    "lms",
    [
        None,
        MANAGED,
        LMSConfig(threshold_kb=1, ahead=0),
        LMSConfig(auto=True, threshold_kb=1, budget=620 << 10),
    ],
    ids=["in memory", "managed", "on demand", "a small budget"],
)
def test_training_is_the_same_to_the_bit(lms):
    expected = train(make(masks=False), 3)
    solver = make(device=SimDevice(64 << 20, order="random", seed=1), lms=lms)
    assert sums_with_bits(solver) == SUMS
    assert train(solver, 3) == expected


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("channels", [32, 96])
def test_training_on_a_gpu_is_the_same_to_the_bit(channels):
    """Six iterations: the later ones are replayed from a recording."""
    device = get_device("cuda")
    expected = train(make(channels, device, masks=False), 6)
    for lms in (None, MANAGED, LMSConfig(threshold_kb=1, ahead=0)):
        solver = make(channels, device, lms)
        assert sums_with_bits(solver) == SUMS
        assert train(solver, 6) == expected
        solver.close()
        solver.runtime.close()
