"""Nets rearranged for speed: channels-last storage and chains of layers that run as one, against the plain nets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.cpu import CpuDevice
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import GraphError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.passes.memory_order import matters
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.solvers import SGDSolver
from tests.lms import nets

_FLAT = 'layer { name: "flat" type: "Flatten" bottom: "%s" top: "flat" }\n'
_SOFT = 'layer { name: "soft" type: "Softmax" bottom: "%s" top: "soft" }\n'
_DROP = 'layer { name: "drop" type: "Dropout" bottom: "%s" top: "%s" }\n'

NETS = {
    **nets.NETS,
    # an image that is stored channels-last where a layer shares it under another shape, or works by position
    "flattened": nets._DATA + nets.unit("c1", "data", 6) + nets.conv("c2", "c1", 5) + _FLAT % "c2" + nets.head("flat"),
    "softmax in the middle": nets._DATA
    + nets.unit("c1", "data", 6)
    + _SOFT % "c1"
    + nets.conv("c2", "soft", 5)
    + _DROP % ("c2", "c2")
    + nets.conv("c3", "c2", 4, 1)
    + nets.head("c3"),
    "same value for two orders": nets._DATA
    + nets.conv("c1", "data", 6)
    + 'layer { name: "relu" type: "ReLU" bottom: "c1" top: "relu" }\n'
    + nets.conv("c2", "relu", 6)
    + _SOFT % "relu"
    + nets._eltwise("sum", "c2", "soft")
    + nets.head("sum"),
    "global statistics": nets._DATA
    + nets.unit("c1", "data", 6).replace(
        'top: "c1" }', 'top: "c1" batch_norm_param { use_global_stats: true eps: 1 } }'
    )
    + nets.unit("c2", "c1", 6, relu=False)
    + nets._eltwise("r1", "c1", "c2")
    + nets.head("r1"),
}
TUNINGS = {
    "plain": Tuning(channels_last=False, fuse=False),
    "fused": Tuning(channels_last=False, fuse=True),
    "channels-last": Tuning(channels_last=True, fuse=False),
    "both": Tuning(channels_last=True, fuse=True),
}


def make(net, tuning, device=None, lms=None, dtype="float64", **options):
    fields = {
        "base_lr": 0.05,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "lr_policy": '"fixed"',
        "max_iter": 100,
        "random_seed": 7,
        "snapshot_after_train": "false",
    } | options
    text = "\n".join(f"{name}: {value}" for name, value in fields.items())
    parsed = parse_solver(f"{text}\nnet_param {{ name: 'n'\n{NETS[net]} }}\n", "n.prototxt")
    return SGDSolver(parsed.message, lines=parsed.lines, device=device, lms=lms, dtype=dtype, tuning=TUNINGS[tuning])


def train(solver, n=4):
    losses = []
    for _ in range(n):
        solver.step(1)
        losses.append(solver.net.loss())
    return losses, [b.read_data().copy() for b in solver.net.learnable_params]


@pytest.mark.parametrize("tuning", ["fused", "channels-last", "both"])
@pytest.mark.parametrize("net", NETS)
def test_numbers_stay_to_rounding(net, tuning):
    expected = train(make(net, "plain"))
    solver = make(net, tuning)
    losses, params = train(solver)
    np.testing.assert_allclose(losses, expected[0], rtol=1e-9)
    for mine, theirs in zip(params, expected[1], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-9)
    if "channels-last" in tuning or tuning == "both":
        assert any(v.channels_last for v in solver.net.graph.values if matters(v.shape))


@pytest.mark.parametrize("tuning", ["fused", "channels-last", "both"])
@pytest.mark.parametrize("net", NETS)
def test_large_model_support_changes_no_bit(net, tuning):
    expected = train(make(net, tuning, SimDevice(64 << 20), dtype="float32"))
    orders = ("latest", "earliest", "random")
    for k, (order, lms) in enumerate(itertools.product(orders, (None, LMSConfig(threshold_kb=1)))):
        device = SimDevice(64 << 20, order=order, seed=k)
        losses, params = train(make(net, tuning, device, lms, dtype="float32"))
        assert losses == expected[0]
        assert all(a.tobytes() == b.tobytes() for a, b in zip(params, expected[1], strict=True))


@pytest.mark.parametrize("net", NETS)
def test_values_by_name_are_those_of_the_plain_net(net):
    """A user who runs passes by hand sees every blob, in Caffe's axes, whatever the storage."""
    plain, other = make(net, "plain").net, make(net, "both").net
    for n in (plain, other):
        n.forward_range()
        n.backward_range()
    for name, blob in plain.blobs.items():
        assert other.blobs[name].shape == blob.shape
        np.testing.assert_allclose(other.blobs[name].data, blob.data, rtol=1e-9, atol=1e-11, err_msg=name)
        np.testing.assert_allclose(other.blobs[name].diff, blob.diff, rtol=1e-7, atol=1e-9, err_msg=name)


def test_what_is_written_by_name_is_read_by_the_next_layer():
    plain, other = make("softmax in the middle", "plain").net, make("softmax in the middle", "both").net
    values = np.random.default_rng(0).normal(size=plain.blobs["c1"].shape)
    for n in (plain, other):
        n.forward_range()
        n.blobs["c1"].data[...] = values
        n.forward_range(n.layer_index("soft"))
    np.testing.assert_array_equal(other.blobs["c1"].data, values)
    np.testing.assert_allclose(other.blobs["fc"].data, plain.blobs["fc"].data, rtol=1e-9)


def test_groups_of_a_residual_net():
    names = [g.name for g in make("residual", "fused").net.graph.groups]
    assert names == [
        "bn_c1+scale_c1+relu_c1",
        "bn_c2+scale_c2+relu_c2",
        "bn_c3+scale_c3+r1+relu_r1",
        "bn_c4+scale_c4+relu_c4",
        "bn_c5+scale_c5+r2+relu_r2",
    ]


def test_a_kept_blob_is_there_after_an_iteration():
    text = NETS["residual"].replace(
        '"bn_c4" type: "BatchNorm" bottom: "c4" top: "c4"', '"bn_c4" type: "BatchNorm" bottom: "c4" top: "n4"'
    )
    text = text.replace('"scale_c4" type: "Scale" bottom: "c4"', '"scale_c4" type: "Scale" bottom: "n4"')
    text = text.replace('bottom: "n4" top: "c4"', 'bottom: "n4" top: "m4"')
    text = text.replace(
        '"relu_c4" type: "ReLU" bottom: "c4" top: "c4"', '"relu_c4" type: "ReLU" bottom: "m4" top: "m4"'
    )
    text = text.replace('name: "c5" type: "Convolution" bottom: "c4"', 'name: "c5" type: "Convolution" bottom: "m4"')
    NETS["named"] = text
    try:
        solver = make("named", "fused")
        assert "bn_c4+scale_c4+relu_c4" in [g.name for g in solver.net.graph.groups]
        with pytest.raises(GraphError):
            solver.net.keep("nothing")
        solver.net.keep("n4")
        assert "scale_c4+relu_c4" not in [g.name for g in solver.net.graph.groups]
        solver.step(1)
        plain = make("named", "plain")
        plain.step(1)
        np.testing.assert_allclose(solver.net.blobs["n4"].data, plain.net.blobs["n4"].data, rtol=1e-9)
    finally:
        del NETS["named"]


def test_an_iteration_takes_a_step_for_a_chain():
    """5 chains of 3, 3, 4, 3 and 4 layers: 12 steps less in each direction; values in between need no memory."""
    steps = {t: make("residual", t).net.memory.steps("train") for t in ("plain", "fused")}
    assert len(steps["plain"]) - len(steps["fused"]) == 2 * 12
    touched = {t: {a.buffer for s in found for a in s.step.accesses} for t, found in steps.items()}
    assert len(touched["fused"]) < len(touched["plain"])


def test_the_cpu_stays_channels_first():
    solver = SGDSolver(parse_solver(nets.solver_text("chain")).message, device=CpuDevice())
    assert not any(v.channels_last for v in solver.net.graph.values)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("tuning", ["fused", "channels-last", "both"])
@pytest.mark.parametrize("net", NETS)
def test_on_a_gpu(net, tuning):
    expected = train(make(net, "plain", get_device("cuda"), dtype="float32"))
    plain = train(make(net, tuning, get_device("cuda"), dtype="float32"))
    np.testing.assert_allclose(plain[0], expected[0], rtol=2e-2)
    with_lms = train(make(net, tuning, get_device("cuda"), LMSConfig(threshold_kb=1), dtype="float32"))
    assert with_lms[0] == plain[0]
    assert all(a.tobytes() == b.tobytes() for a, b in zip(with_lms[1], plain[1], strict=True))
