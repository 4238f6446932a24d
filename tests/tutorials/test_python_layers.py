"""A data layer and a loss layer written in Python, in nets that learn."""

from __future__ import annotations

import json

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms import layers as L

from .python_layers import labels_of

MODULE = "tests.tutorials.python_layers"


def python_layer(name, *bottoms, **keywords):
    return L.Python(*bottoms, module=MODULE, layer=name, **keywords)


def points_net(**params):
    """The scores of three labels by one matrix product, its loss, and the data that the layer makes."""
    n = caffe.NetSpec()
    n.data, n.label = python_layer("PointsDataLayer", ntop=2, param_str=json.dumps(params))
    n.score = L.InnerProduct(n.data, num_output=3, weight_filler=dict(type="gaussian", std=0.01))
    n.loss = L.SigmoidCrossEntropyLoss(n.score, n.label)
    return n.to_proto()


def write(folder, proto, name="net.prototxt"):
    (folder / name).write_text(str(proto))
    return str(folder / name)


# -- data --------------------------------------------------------------------------------------------------------------
def test_batches_go_round(tmp_path):
    net = caffe.Net(write(tmp_path, points_net(batch_size=4, items=6, seed=1)), caffe.TRAIN)
    assert net.blobs["data"].data.shape == (4, 2) and net.blobs["label"].data.shape == (4, 3)
    seen = np.concatenate([net.forward(blobs=["data"])["data"].copy() for _ in range(3)])
    expected = np.random.default_rng(1).uniform(-1, 1, (6, 2)).astype(np.float32)
    np.testing.assert_array_equal(seen, np.concatenate([expected, expected]))


def test_several_labels_are_learned(tmp_path):
    file = write(tmp_path, points_net(batch_size=50, items=1000, seed=2, shuffle=True))
    solver_file = write(
        tmp_path, f'train_net: "{file}" base_lr: 2 momentum: 0.9 lr_policy: "fixed" max_iter: 100', "solver.prototxt"
    )
    caffe.set_random_seed(1)
    solver = caffe.SGDSolver(solver_file)
    solver.step(100)
    net = solver.net
    right = []
    for _ in range(10):
        net.forward()
        right.append((net.blobs["score"].data > 0) == (net.blobs["label"].data > 0))
    assert np.mean(right) > 0.95
    fresh = np.random.default_rng(9).uniform(-1, 1, (400, 2))
    weights, bias = (blob.data for blob in net.params["score"])
    assert ((fresh @ weights.T + bias > 0) == (labels_of(fresh) > 0)).mean() > 0.95
    # What it found: half planes through the origin, x > 0, y > 0, x > y.
    directions = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    np.testing.assert_allclose(directions, [[1, 0], [0, 1], [0.5**0.5, -(0.5**0.5)]], atol=0.1)


def test_its_errors_arrive(tmp_path):
    with pytest.raises(Exception, match="Params must include items, seed"):
        caffe.Net(write(tmp_path, points_net(batch_size=4)), caffe.TRAIN)


# -- loss --------------------------------------------------------------------------------------------------------------
def regression(loss):
    n = caffe.NetSpec()
    n.data = L.Input(shape=dict(dim=[5, 4]))
    n.truth = L.Input(shape=dict(dim=[5, 3]))
    n.ip = L.InnerProduct(n.data, num_output=3, weight_filler=dict(type="xavier"))
    n.loss = loss(n)
    proto = n.to_proto()
    proto.force_backward = True
    return proto


BUILT_IN = regression(lambda n: L.EuclideanLoss(n.ip, n.truth, loss_weight=0.7))
PYTHON = regression(lambda n: python_layer("EuclideanLossLayer", n.ip, n.truth, loss_weight=0.7))


def test_python_loss_equals_the_built_in_one(tmp_path):
    rng = np.random.default_rng(4)
    data, truth = rng.normal(size=(5, 4)), rng.normal(size=(5, 3))
    nets = []
    for k, proto in enumerate((BUILT_IN, PYTHON)):
        caffe.set_random_seed(11)
        net = caffe.Net(write(tmp_path, proto, f"net{k}.prototxt"), caffe.TRAIN)
        net.blobs["data"].data[...], net.blobs["truth"].data[...] = data, truth
        net.forward()
        net.backward()
        nets.append(net)
    built_in, python = nets
    np.testing.assert_array_equal(built_in.params["ip"][0].data, python.params["ip"][0].data)
    by_hand = ((python.blobs["ip"].data - truth) ** 2).sum() / 5 / 2
    assert float(python.blobs["loss"].data[0]) == pytest.approx(by_hand, rel=1e-5)
    assert float(built_in.blobs["loss"].data) == pytest.approx(by_hand, rel=1e-5)
    for name in ("data", "truth", "ip"):
        assert np.abs(python.blobs[name].diff).max() > 0.01
        np.testing.assert_allclose(python.blobs[name].diff, built_in.blobs[name].diff, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(python.params["ip"][0].diff, built_in.params["ip"][0].diff, rtol=1e-5, atol=1e-7)


def test_python_loss_trains(tmp_path):
    """The solver finds the matrix that made the data."""
    file = write(tmp_path, PYTHON)
    solver = caffe.get_solver(
        write(tmp_path, f'train_net: "{file}" base_lr: 0.3 lr_policy: "fixed" random_seed: 5', "solver.prototxt")
    )
    rng = np.random.default_rng(6)
    matrix = rng.normal(size=(3, 4))
    for _ in range(200):
        data = rng.normal(size=(5, 4))
        solver.net.blobs["data"].data[...], solver.net.blobs["truth"].data[...] = data, data @ matrix.T + 0.5
        solver.step(1)
    np.testing.assert_allclose(solver.net.params["ip"][0].data, matrix, atol=0.01)
    np.testing.assert_allclose(solver.net.params["ip"][1].data, 0.5, atol=0.01)


def test_a_missing_bottom_is_the_layers_own_error(tmp_path):
    proto = regression(lambda n: python_layer("EuclideanLossLayer", n.ip, loss_weight=1))
    with pytest.raises(Exception, match=r"Need two inputs to compute distance"):
        caffe.Net(write(tmp_path, proto), caffe.TRAIN)
