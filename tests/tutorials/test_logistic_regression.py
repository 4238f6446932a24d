"""Brewing a logistic regression on HDF5 data, and one layer more; the first is compared with plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms import layers as L
from pycaffe_lms import params as P
from pycaffe_lms.proto import caffe_pb2

h5py = pytest.importorskip("h5py")
TRAIN_ITEMS, TEST_ITEMS, BATCH, RATE, MOMENTUM, DECAY = 750, 250, 10, 0.01, 0.9, 5e-4


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Four features, two classes: which side of a bent surface. Lists of HDF5 files, and the arrays."""
    folder = tmp_path_factory.mktemp("hdf5")
    rng = np.random.default_rng(21)
    x = rng.normal(size=(TRAIN_ITEMS + TEST_ITEMS, 4)).astype(np.float32)
    y = (x[:, 0] + 0.7 * x[:, 1] - 1.2 * np.abs(x[:, 2]) + 0.6 > 0).astype(np.float32)
    arrays = {"train": (x[:TRAIN_ITEMS], y[:TRAIN_ITEMS]), "test": (x[TRAIN_ITEMS:], y[TRAIN_ITEMS:])}
    lists = {}
    for part, (features, labels) in arrays.items():
        pieces = np.array_split(np.arange(len(features)), 2)  # two files each
        for k, piece in enumerate(pieces):
            with h5py.File(folder / f"{part}{k}.h5", "w") as file:
                file.create_dataset("data", data=features[piece], compression="gzip" if k else None)
                file.create_dataset("label", data=labels[piece])
        lists[part] = folder / f"{part}.txt"
        lists[part].write_text("".join(f"{folder}/{part}{k}.h5\n" for k in range(2)))
    return lists, arrays


def logreg(hdf5, batch_size):
    n = caffe.NetSpec()
    n.data, n.label = L.HDF5Data(batch_size=batch_size, source=str(hdf5), ntop=2)
    n.ip1 = L.InnerProduct(n.data, num_output=2, weight_filler=dict(type="xavier"))
    n.accuracy = L.Accuracy(n.ip1, n.label)
    n.loss = L.SoftmaxWithLoss(n.ip1, n.label)
    return n.to_proto()


def nonlinear_net(hdf5, batch_size):
    n = caffe.NetSpec()
    n.data, n.label = L.HDF5Data(batch_size=batch_size, source=str(hdf5), ntop=2)
    n.ip1 = L.InnerProduct(n.data, num_output=40, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.ip1, num_output=2, weight_filler=dict(type="xavier"))
    n.accuracy = L.Accuracy(n.ip2, n.label)
    n.loss = L.SoftmaxWithLoss(n.ip2, n.label)
    return n.to_proto()


def make_solver(folder, lists, net, max_iter):
    for part in ("train", "test"):
        (folder / f"{part}.prototxt").write_text(str(net(lists[part], BATCH)))
    s = caffe_pb2.SolverParameter()
    s.train_net = str(folder / "train.prototxt")
    s.test_net.append(str(folder / "test.prototxt"))
    s.test_iter.append(TEST_ITEMS // BATCH)
    s.test_interval = max_iter
    s.base_lr, s.momentum, s.weight_decay, s.lr_policy = RATE, MOMENTUM, DECAY, "fixed"
    s.max_iter, s.random_seed, s.snapshot_prefix = max_iter, 5, str(folder / "brew")
    s.solver_mode = P.Solver.CPU
    (folder / "solver.prototxt").write_text(str(s))
    return caffe.get_solver(str(folder / "solver.prototxt"))


def accuracy_of(solver):
    """The mean over the test net's batches, by a loop of one's own."""
    rounds = TEST_ITEMS // BATCH
    return np.mean([float(solver.test_nets[0].forward()["accuracy"]) for _ in range(rounds)])


def in_numpy(weights, bias, x, y, iterations):
    """Momentum descent on the softmax loss with L2 decay of weights and bias, batch after batch, in float64."""
    params = [weights.astype(np.float64), bias.astype(np.float64)]
    history = [np.zeros_like(p) for p in params]
    for it in range(iterations):
        at = np.arange(it * BATCH, (it + 1) * BATCH) % len(x)
        scores = x[at] @ params[0].T + params[1]
        p = np.exp(scores - scores.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(BATCH), y[at].astype(int)] -= 1
        for k, gradient in enumerate((p.T @ x[at] / BATCH, p.sum(0) / BATCH)):
            history[k] = MOMENTUM * history[k] + RATE * (gradient + DECAY * params[k])
            params[k] = params[k] - history[k]
    return params


def test_logistic_regression_is_that_of_numpy(tmp_path, data):
    lists, arrays = data
    solver = make_solver(tmp_path, lists, logreg, max_iter=300)
    start = [blob.data.copy() for blob in solver.net.params["ip1"]]
    solver.solve()
    weights, bias = in_numpy(*start, *arrays["train"], iterations=300)
    np.testing.assert_allclose(solver.net.params["ip1"][0].data, weights, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(solver.net.params["ip1"][1].data, bias, rtol=1e-3, atol=1e-4)
    x, y = arrays["test"]
    expected = ((x @ weights.T + bias).argmax(1) == y).mean()
    assert accuracy_of(solver) == pytest.approx(expected, abs=0.005) and expected > 0.7
    assert (tmp_path / "brew_iter_300.caffemodel").exists()


def test_one_layer_more_sees_the_bend(tmp_path, data):
    lists, _ = data
    solver = make_solver(tmp_path, lists, nonlinear_net, max_iter=1500)
    solver.step(1500)
    accuracy = accuracy_of(solver)
    assert accuracy > 0.93
    solver.net.save(str(tmp_path / "saved.caffemodel"))
    net = caffe.Net(str(tmp_path / "test.prototxt"), caffe.TEST, weights=str(tmp_path / "saved.caffemodel"))
    again = [float(net.forward()["accuracy"]) for _ in range(TEST_ITEMS // BATCH)]
    assert np.mean(again) == pytest.approx(accuracy)
