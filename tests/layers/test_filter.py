"""Filter: chosen rows, their gradients, nothing chosen, and shapes that follow the selector from batch to batch."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import pycaffe_lms as caffe
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import BlobCountError, ShapeError
from pycaffe_lms.layers.base import ShapesChanged
from pycaffe_lms.layers.shape.filter import FilterLayer
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.net import Net
from pycaffe_lms.proto.caffe_pb2 import NetParameter

from .cases import Case
from .harness import LayerBench, check_gradient

CASES = [
    Case("Filter", "", ((5, 3), (5,)), integer_bottoms=((1, 2),)),
    Case("Filter", "", ((6, 2, 3), (6, 4), (6, 1, 1)), n_top=2, integer_bottoms=((2, 3),)),
    Case("Filter", "", ((700, 2), (700,)), integer_bottoms=((1, 2),), seed=3),
    Case("Filter", "", ((4,), (4,)), integer_bottoms=((1, 1),)),
]
SELECTORS = [[1, 0, 2, 0, -1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0.5]]


@pytest.mark.parametrize("selector", SELECTORS)
def test_rows_and_gradients(selector):
    bench = LayerBench("Filter", "", ((5, 2, 2), (5, 3), (5,)), n_top=2)
    rng = np.random.default_rng(0)
    x, z = rng.normal(size=(5, 2, 2)), rng.normal(size=(5, 3))
    tops = bench.forward([x, z, np.array(selector)])
    rows = [i for i in range(5) if selector[i] != 0]
    np.testing.assert_array_equal(tops[0], x[rows])
    np.testing.assert_array_equal(tops[1], z[rows])
    diffs = [rng.normal(size=t.shape) for t in tops]
    bottom_diffs, _ = bench.backward(diffs)
    for got, given in zip(bottom_diffs[:2], diffs, strict=True):
        expected = np.zeros(got.shape)
        for k, i in enumerate(rows):
            expected[i] = given[k]
        np.testing.assert_array_equal(got, expected)
    bottom_diffs, _ = bench.backward([None, diffs[1]])
    np.testing.assert_array_equal(bottom_diffs[0], 0)


def test_numeric_gradient():
    bench = LayerBench("Filter", "", ((5, 3), (5,)))
    x = np.random.default_rng(1).normal(size=(5, 3))
    check_gradient(bench, [x, np.array([0.0, 1, 1, 0, 1])])


def test_shapes_before_anything_is_known():
    bench = LayerBench("Filter", "", ((5, 3), (5, 1)))
    assert bench.top_shapes == [(5, 3)]


def test_wrong_bottoms():
    with pytest.raises(ShapeError, match=r'"l" \(Filter\).*selector has shape \(5, 2\)'):
        LayerBench("Filter", "", ((5, 3), (5, 2)))
    with pytest.raises(ShapeError, match="selector has 4 rows"):
        LayerBench("Filter", "", ((5, 3), (4,)))
    with pytest.raises(BlobCountError, match="1 tops for 2 bottom"):
        LayerBench("Filter", "", ((5, 3), (5, 3), (5,)))


NET = """
layer {{ name: "x" type: "Input" top: "x" top: "select" top: "t"
  input_param {{ shape {{ dim: 6 dim: 90 }} shape {{ dim: 6 }} shape {{ dim: 6 dim: 3 }} }} }}
layer {{ name: "one" type: "InnerProduct" bottom: "x" top: "one" inner_product_param {{ num_output: 200
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "relu" type: "PReLU" bottom: "one" top: "relu" }}
layer {{ name: "drop" type: "Dropout" bottom: "relu" top: "drop" }}
layer {{ name: "pick" type: "Filter" bottom: "drop" bottom: "t" bottom: "select" top: "some" top: "ts" }}
layer {{ name: "two" type: "InnerProduct" bottom: "some" top: "two" inner_product_param {{ num_output: 3
  weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "two" bottom: "ts" top: "loss" }}
{more}
"""
SOLVER = "base_lr: 0.1 momentum: 0.9 lr_policy: 'fixed' max_iter: 10 random_seed: 3 snapshot_after_train: false {more}"


def _train(tmp_path, device, lms=None, more=""):
    (tmp_path / "net.prototxt").write_text(NET.format(more=""))
    (tmp_path / "solver.prototxt").write_text(f'net: "{tmp_path}/net.prototxt" ' + SOLVER.format(more=more))
    solver = caffe.SGDSolver(tmp_path / "solver.prototxt", device=device, lms=lms)
    rng = np.random.default_rng(5)
    seen = []
    for k in (6, 3, 3, 1, 4):
        for name, shape in (("x", (6, 90)), ("t", (6, 3))):
            solver.net.blobs[name].data = rng.normal(size=shape)
        select = np.zeros(6)
        select[rng.permutation(6)[:k]] = 1
        solver.net.blobs["select"].data = select
        solver.step(1)
        assert solver.net.blobs["two"].shape == (k, 3)
        seen += [solver.net.loss(), *(b.read_data().tobytes() for b in solver.net.learnable_params)]
    return seen


@pytest.mark.parametrize("more", ["", "clip_gradients: 0.5", "iter_size: 2", "debug_info: true display: 1"])
def test_training_with_shapes_that_change_in_the_middle(tmp_path, more):
    """Expect the same bits on the CPU, on the simulated device and under LMS, whatever the selector does."""
    expected = _train(tmp_path, None, more=more)
    for order in ("latest", "earliest", "random"):
        assert _train(tmp_path, SimDevice(64 << 20, order=order), more=more) == expected
        assert _train(tmp_path, SimDevice(64 << 20, order=order), LMSConfig(threshold_kb=1), more=more) == expected


def test_zero_rows_and_a_gradient_by_hand():
    """Compare with known weights: the loss of the chosen rows is the mean over them."""
    text = NET.format(more="force_backward: true").replace('"Dropout"', '"AbsVal"')
    net = Net(text_format.Parse(text, NetParameter()), 0, seed=1)
    rng = np.random.default_rng(0)
    for name in ("x", "t"):
        net.blobs[name].data = rng.normal(size=net.blobs[name].shape)
    net.blobs["select"].data = [0, 1, 0, 1, 1, 0]
    loss = net.forward_range()
    w1, b1 = (b.read_data() for b in net.params["one"])
    w2, b2 = (b.read_data() for b in net.params["two"])
    a = net.blobs["x"].read_data() @ w1.T + b1
    a = np.abs(np.where(a > 0, a, 0.25 * a))
    rows = [1, 3, 4]
    difference = a[rows] @ w2.T + b2 - net.blobs["t"].read_data()[rows]
    assert loss == pytest.approx((difference**2).sum() / 6, rel=1e-5)
    net.backward_range()
    np.testing.assert_allclose(net.params["two"][1].read_diff(), difference.sum(0) / 3, rtol=1e-4, atol=1e-6)
    net.blobs["select"].data = 0
    net.forward_range()
    assert net.blobs["two"].shape == (0, 3)
    net.clear_param_diffs()
    net.backward_range()
    assert not net.params["one"][0].read_diff().any()


def test_shapes_that_never_settle(monkeypatch):
    def look(layer, values):
        raise ShapesChanged

    monkeypatch.setattr(FilterLayer, "read_dynamic_shapes", look)
    net = Net(text_format.Parse(NET.format(more=""), NetParameter()), 0, seed=1)
    with pytest.raises(ShapeError, match=r'"pick" \(Filter\).*each time'):
        net.forward_range()
