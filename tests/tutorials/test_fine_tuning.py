"""Fine-tuning: a net that tells digits apart learns odd and even; its last layer is new, the others are copied."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms import layers as L
from pycaffe_lms import params as P
from tests.real.files import LENET, mnist

pytestmark = pytest.mark.shared
WEIGHTS = str(LENET / "lenet_iter_10000.caffemodel")
FROZEN = [dict(lr_mult=0), dict(lr_mult=0)]
LEARNED = [dict(lr_mult=10, decay_mult=1), dict(lr_mult=20, decay_mult=0)]


def parity_net(*, learn_all=False, train=True):
    """LeNet with a new last layer of two outputs; only that one learns, unless learn_all."""
    other = [dict(lr_mult=1), dict(lr_mult=2)] if learn_all else FROZEN
    n = caffe.NetSpec()
    n.data = L.Input(shape=dict(dim=[64, 1, 28, 28]))
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, param=other)
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=5, num_output=50, param=other)
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.ip1 = L.InnerProduct(n.pool2, num_output=500, param=other)
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2_parity = L.InnerProduct(
        n.relu1,
        num_output=2,
        param=LEARNED,
        weight_filler=dict(type="gaussian", std=0.01),
        bias_filler=dict(type="constant", value=0.25),
    )
    if train:
        n.label = L.Input(shape=dict(dim=[64]))
        n.loss = L.SoftmaxWithLoss(n.ip2_parity, n.label)
        n.acc = L.Accuracy(n.ip2_parity, n.label)
    return n.to_proto()


def make_solver(folder, **options):
    (folder / "net.prototxt").write_text(str(parity_net(**options)))
    (folder / "solver.prototxt").write_text(
        f'train_net: "{folder}/net.prototxt" base_lr: 0.001 momentum: 0.9 lr_policy: "fixed" random_seed: 3\n'
        f'max_iter: 100 snapshot_prefix: "{folder}/parity"'
    )
    return caffe.get_solver(str(folder / "solver.prototxt"))


@pytest.fixture
def digits(mnist_lmdb):
    images, labels = mnist("train")
    return images[:2560].astype(np.float32) / 256, labels[:2560] % 2


def feed(net, digits, start):
    images, odd = digits
    net.blobs["data"].data[...] = images[start : start + 64]
    net.blobs["label"].data[...] = odd[start : start + 64]


def test_names_decide_what_is_copied(tmp_path, mnist_lmdb):
    solver = make_solver(tmp_path)
    untouched = solver.net.params["ip2_parity"][0].data.copy()
    solver.net.copy_from(WEIGHTS)
    source = caffe.Net(str(LENET / "lenet.prototxt"), caffe.TEST, weights=WEIGHTS)
    for name in ("conv1", "conv2", "ip1"):
        for ours, theirs in zip(solver.net.params[name], source.params[name], strict=True):
            assert theirs.data.any()
            np.testing.assert_array_equal(ours.data, theirs.data)
    # The renamed layer is as its fillers made it.
    weights, bias = (blob.data for blob in solver.net.params["ip2_parity"])
    np.testing.assert_array_equal(weights, untouched)
    assert weights.std() == pytest.approx(0.01, rel=0.1) and (bias == 0.25).all()


def test_it_learns_with_everything_else_frozen(tmp_path, digits):
    solver = make_solver(tmp_path)
    solver.net.copy_from(WEIGHTS)
    net = solver.net
    before = {name: [blob.data.copy() for blob in blobs] for name, blobs in net.params.items()}

    feed(net, digits, 0)
    solver.step(1)
    for blob, old, rate in zip(net.params["ip2_parity"], before["ip2_parity"], (0.01, 0.02), strict=True):
        # diff holds the update; it is the gradient times base_lr * lr_mult: 0.001 * 10 and 0.001 * 20.
        np.testing.assert_allclose(blob.data, old - blob.diff, rtol=1e-5, atol=1e-7)
        assert np.abs(blob.diff).max() > 0.1 * rate * 0.01
    accuracy = []
    for start in range(64, 2560, 64):
        feed(net, digits, start)
        solver.step(1)
        accuracy.append(float(net.blobs["acc"].data))
    for name in ("conv1", "conv2", "ip1"):
        for blob, old in zip(net.params[name], before[name], strict=True):
            np.testing.assert_array_equal(blob.data, old)
    assert accuracy[0] < 0.9 and np.mean(accuracy[-10:]) > 0.95


def test_rates_multiply(tmp_path, digits):
    """The first update of every parameter is base_lr * lr_mult * gradient, by the gradients that backward leaves."""
    solver = make_solver(tmp_path, learn_all=True)
    solver.net.copy_from(WEIGHTS)
    feed(solver.net, digits, 0)
    solver.net.clear_param_diffs()
    solver.net.forward()
    solver.net.backward()
    gradients = {name: [blob.diff.copy() for blob in blobs] for name, blobs in solver.net.params.items()}
    before = {name: [blob.data.copy() for blob in blobs] for name, blobs in solver.net.params.items()}
    solver.step(1)
    for name, blobs in solver.net.params.items():
        for k, blob in enumerate(blobs):
            rate = 0.001 * ((10, 20) if name == "ip2_parity" else (1, 2))[k]
            moved = before[name][k] - blob.data
            np.testing.assert_allclose(moved, rate * gradients[name][k], rtol=1e-2, atol=2e-7)
            assert np.abs(moved).max() > 1e-6


def test_the_deploy_net_takes_the_tuned_weights(tmp_path, digits):
    solver = make_solver(tmp_path)
    solver.net.copy_from(WEIGHTS)
    for start in range(0, 1280, 64):
        feed(solver.net, digits, start)
        solver.step(1)
    solver.net.save(str(tmp_path / "parity.caffemodel"))
    (tmp_path / "deploy.prototxt").write_text(str(parity_net(train=False)))
    deploy = caffe.Net(str(tmp_path / "deploy.prototxt"), caffe.TEST, weights=str(tmp_path / "parity.caffemodel"))
    feed(solver.net, digits, 1280)
    expected = solver.net.forward(end="ip2_parity")["ip2_parity"]
    scores = deploy.forward(data=digits[0][1280:1344])["ip2_parity"]
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6)
    assert (scores.argmax(1) == digits[1][1280:1344]).mean() > 0.9
