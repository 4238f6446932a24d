"""Which layers save bit masks, and that training is bit-identical and takes less memory."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli import flags
from pycaffe_lms.errors import DiscardedRead
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.program import Mode
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import solver_class
from tests.lms.nets import _DATA, _pool, conv, head, train, unit

MANAGED = LMSConfig(threshold_kb=1)


def relu(blob, fields="", kind="ReLU", top=None):
    return f'layer {{ name: "{top or kind}_{blob}" type: "{kind}" bottom: "{blob}" top: "{top or blob}" {fields} }}\n'


def concat(top, *bottoms):
    return f'layer {{ name: "{top}" type: "Concat" {" ".join(f"bottom: {b!r}" for b in bottoms)} top: "{top}" }}\n'


FROZEN = "\n".join(
    line.replace("top:", "param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 } top:", 1)
    if "BatchNorm" in line
    else line.replace("top:", "param { lr_mult: 0 } param { lr_mult: 0 } top:", 1)
    if "Scale" in line
    else line
    for line in unit("c", "a", 4).splitlines()
).replace('type: "BatchNorm"', 'type: "BatchNorm" batch_norm_param { use_global_stats: true }')

# net: (its text, whose forward saves bits, in order)
NETS = {
    "before pooling": (
        _DATA + conv("a", "data", 6) + relu("a") + _pool("p", "a") + conv("b", "p", 4) + relu("b") + head("b"),
        ["a+ReLU_a"],  # the inner product reads b
    ),
    "alone": (
        _DATA + conv("a", "data", 6) + relu("a", top="r") + _pool("p", "r", "AVE") + head("p"),
        ["r_a"],  # not in place, so no part of a chain
    ),
    "read by a convolution too": (
        _DATA
        + conv("a", "data", 6)
        + relu("a")
        + _pool("p", "a", "AVE")
        + conv("b", "a", 4, 1)
        + _pool("q", "b")
        + concat("cat", "p", "q")
        + head("cat"),
        [],
    ),
    "inception": (
        _DATA
        + conv("a", "data", 4, 1)
        + relu("a")
        + conv("b", "data", 4, 3)
        + relu("b", "relu_param { negative_slope: 0.1 }")
        + conv("c", "data", 4, 5)
        + relu("c", kind="ReLU6")
        + concat("cat", "a", "b", "c")
        + conv("d", "cat", 4, 1)
        + relu("d", "clip_param { min: -0.5 max: 0.5 }", "Clip", top="e")
        + _pool("p", "e")
        + head("p"),
        ["a+ReLU_a", "ReLU_b", "ReLU6_c", "e_d"],
    ),
    "end of a residual chain": (
        _DATA
        + unit("a", "data", 4)
        + unit("b", "a", 4, relu=False)
        + 'layer { name: "s" type: "Eltwise" bottom: "a" bottom: "b" top: "s" }\n'
        + relu("s")
        + _pool("p", "s", "AVE")
        + head("p"),
        ["bn_b+scale_b+s+ReLU_s"],
    ),
    "frozen normalisation": (
        _DATA + conv("a", "data", 4) + FROZEN + "\n" + _pool("p", "c") + head("p"),
        ["bn_c+scale_c+relu_c"],
    ),
    "a slope that turns values round": (
        _DATA + conv("a", "data", 6) + relu("a", "relu_param { negative_slope: -0.5 }") + _pool("p", "a") + head("p"),
        ["ReLU_a"],  # needs its bottom, which nobody else does
    ),
}


def make(net, device=None, lms=None, *, masks=True, fuse=True, keep=()):
    text = (
        "base_lr: 0.05 momentum: 0.9 lr_policy: 'fixed' max_iter: 9 random_seed: 7 snapshot_after_train: false\n"
        f"net_param {{ name: 'm'\n{NETS[net][0]} }}\n"
    )
    parsed = parse_solver(text, "m.prototxt")
    more = {"file": parsed.filename, "lines": parsed.lines, "device": device or SimDevice(64 << 20), "lms": lms}
    solver = solver_class(parsed.message)(parsed.message, tuning=Tuning(masks=masks, fuse=fuse), **more)
    solver.nan = "ignore"  # one net diverges on a GPU, and must do so alike
    return solver


def masked(solver):
    return [group.name for group in solver.net.graph.groups if group.layer.context.saves_bits]


def carried(net):
    """Bytes of managed buffers that forward writes and backward reads."""
    steps = net._iteration("train", True, ()).steps
    cut = next(i for i, step in enumerate(steps) if not step.forward)
    written = {a.buffer for s in steps[:cut] for a in s.step.accesses if a.mode is not Mode.READ}
    first = {}
    for step in steps[cut:]:
        for a in step.step.accesses:
            first.setdefault(a.buffer, a.mode)
    return sum(net.memory.buffers[b].nbytes for b, mode in first.items() if mode is not Mode.OVERWRITE and b in written)


@pytest.mark.parametrize("net", NETS)
def test_who_saves_bits(net):
    solver, plain = make(net, lms=MANAGED), make(net, lms=MANAGED, masks=False)
    assert masked(solver) == NETS[net][1]
    assert masked(plain) == masked(make(net)) == []
    bits = [b for b in solver.net.memory.buffers.values() if b.name.endswith(".bits")]
    assert len(bits) == len(NETS[net][1])
    if bits:
        assert carried(solver.net) < carried(plain.net)
    else:
        assert carried(solver.net) == carried(plain.net)


@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "single"])
@pytest.mark.parametrize("net", NETS)
def test_training_is_the_same_to_the_bit(net, fuse):
    expected = train(make(net, fuse=fuse), 3)
    for seed, config in enumerate(
        (
            MANAGED,
            LMSConfig(threshold_kb=1, ahead=0),
            LMSConfig(threshold_kb=1, recompute=True),
            LMSConfig(threshold_kb=1, frac=0.001),
            LMSConfig(auto=True, threshold_kb=1),
        )
    ):
        device = SimDevice(64 << 20, order="random", seed=seed)
        solver = make(net, device, config, fuse=fuse)
        assert train(solver, 3) == expected


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "single"])
@pytest.mark.parametrize("net", NETS)
def test_training_on_a_gpu_is_the_same_to_the_bit(net, fuse):
    """Six iterations: the later ones are replayed from a recording."""
    device = get_device("cuda")
    expected = train(make(net, device, fuse=fuse), 6)
    for config in (MANAGED, LMSConfig(threshold_kb=1, ahead=0), LMSConfig(auto=True, threshold_kb=1)):
        for masks in (True, False):
            solver = make(net, device, config, fuse=fuse, masks=masks)
            losses, found = train(solver, 6)
            np.testing.assert_array_equal(losses, expected[0])  # one net diverges: NaN equals NaN
            assert found == expected[1], (config, masks)
            solver.runtime.close()


@pytest.mark.parametrize("net", [name for name, (_, names) in NETS.items() if names])
def test_the_smallest_budget_trains_the_same(net):
    expected = train(make(net), 2)
    roomy = make(net, lms=LMSConfig(threshold_kb=1, ahead=0))
    plan = roomy.net.memory.plans()["train"]
    need = roomy.runtime.resident_bytes + roomy.runtime.workspace_bytes + plan.arena_bytes
    device = SimDevice(64 << 20, order="random", seed=3)
    assert train(make(net, device, LMSConfig(threshold_kb=1, ahead=0, budget=need)), 2) == expected
    assert device.in_use() <= need


def test_a_value_that_is_kept_or_stays_saves_no_bits():
    solver = make("before pooling", lms=MANAGED)
    expected = train(make("before pooling"), 2)
    solver.net.keep("a")
    assert masked(solver) == []
    assert train(solver, 2) == expected
    assert solver.net.blobs["a"].read_data().min() == 0
    large = make("before pooling", lms=LMSConfig(threshold_kb=1000))
    assert masked(large) == []


def test_passes_by_hand_read_values():
    solver, plain = make("before pooling", lms=MANAGED), make("before pooling")
    for net in (solver.net, plain.net):
        net.forward_range()
        net.blobs["a"].data = np.zeros(net.blobs["a"].shape)  # a user's change counts, as in Caffe
        net.backward_range()
        assert not net.params["a"][0].read_diff().any() and net.params["b"][0].read_diff().any()


def test_a_value_that_went_is_an_error_that_says_so():
    solver = make("before pooling", lms=MANAGED)
    solver.step(1)
    with pytest.raises(DiscardedRead, match="net.keep"):
        solver.net.blobs["a"].read_data()


def test_a_reshaped_net_decides_anew():
    solver = make("before pooling", lms=MANAGED)
    solver.net.reshape()
    assert masked(solver) == ["a+ReLU_a"]
    solver.step(1)


def test_the_flag_reaches_the_tuning():
    parser = flags.parser("train", "")
    flags.add_tuning(parser)
    assert flags.tuning(flags.parse(parser, [])).masks
    assert not flags.tuning(flags.parse(parser, ["-masks", "off"])).masks
