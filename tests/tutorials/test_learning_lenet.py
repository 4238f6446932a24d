"""Learning LeNet: nets written in Python, a solver step by step, a test loop of one's own."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms import layers as L
from pycaffe_lms import params as P
from tests.real.files import mnist

from .conftest import TEST_ITEMS

pytestmark = pytest.mark.shared


def lenet(lmdb, batch_size):
    n = caffe.NetSpec()
    n.data, n.label = L.Data(
        batch_size=batch_size, backend=P.Data.LMDB, source=lmdb, transform_param=dict(scale=1.0 / 255), ntop=2
    )
    n.conv1 = L.Convolution(n.data, kernel_size=5, num_output=20, weight_filler=dict(type="xavier"))
    n.pool1 = L.Pooling(n.conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.conv2 = L.Convolution(n.pool1, kernel_size=5, num_output=50, weight_filler=dict(type="xavier"))
    n.pool2 = L.Pooling(n.conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    n.fc1 = L.InnerProduct(n.pool2, num_output=500, weight_filler=dict(type="xavier"))
    n.relu1 = L.ReLU(n.fc1, in_place=True)
    n.score = L.InnerProduct(n.relu1, num_output=10, weight_filler=dict(type="xavier"))
    n.loss = L.SoftmaxWithLoss(n.score, n.label)
    return n.to_proto()


@pytest.fixture(scope="module")
def solver(mnist_lmdb, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lenet")
    for part, batch_size in (("train", 64), ("test", 100)):
        (folder / f"{part}.prototxt").write_text(str(lenet(mnist_lmdb[part], batch_size)))
    (folder / "solver.prototxt").write_text(
        f'train_net: "{folder}/train.prototxt" test_net: "{folder}/test.prototxt" test_iter: 10 test_interval: 500\n'
        'base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "inv" gamma: 0.0001 power: 0.75\n'
        f'random_seed: 7 max_iter: 10000 snapshot_prefix: "{folder}/lenet"'
    )
    caffe.set_mode_cpu()
    return caffe.SGDSolver(str(folder / "solver.prototxt"))


def test_it_learns(solver):
    # What the tutorial looks at first: shapes of intermediate features and of parameters.
    assert [(name, blob.data.shape) for name, blob in solver.net.blobs.items()] == [
        ("data", (64, 1, 28, 28)),
        ("label", (64,)),
        ("conv1", (64, 20, 24, 24)),
        ("pool1", (64, 20, 12, 12)),
        ("conv2", (64, 50, 8, 8)),
        ("pool2", (64, 50, 4, 4)),
        ("fc1", (64, 500)),
        ("score", (64, 10)),
        ("loss", ()),
    ]
    assert [(name, v[0].data.shape) for name, v in solver.net.params.items()] == [
        ("conv1", (20, 1, 5, 5)),
        ("conv2", (50, 20, 5, 5)),
        ("fc1", (500, 800)),
        ("score", (10, 500)),
    ]

    # Data is there after one forward: the first digits, scaled.
    solver.net.forward()
    solver.test_nets[0].forward()
    for net, part, count in ((solver.net, "train", 64), (solver.test_nets[0], "t10k", 100)):
        images, labels = mnist(part)
        np.testing.assert_allclose(net.blobs["data"].data, images[:count] / 255, rtol=1e-5)
        np.testing.assert_array_equal(net.blobs["label"].data, labels[:count])
    assert solver.net.blobs["loss"].data == pytest.approx(np.log(10), rel=0.3)  # knows nothing yet

    # One step: gradients came down to the first filters, and the weights moved by them.
    before = solver.net.params["conv1"][0].data.copy()
    solver.step(1)
    moved = solver.net.params["conv1"][0].data - before
    np.testing.assert_allclose(moved, -solver.net.params["conv1"][0].diff, rtol=1e-3, atol=1e-6)
    filters = solver.net.params["conv1"][0].diff[:, 0].reshape(4, 5, 5, 5).transpose(0, 2, 1, 3).reshape(4 * 5, 5 * 5)
    assert filters.shape == (20, 25) and np.abs(filters).max() > 1e-5
    np.testing.assert_array_equal(filters[5:10, 10:15], solver.net.params["conv1"][0].diff[7, 0])

    # A loop of one's own, with a test of one's own.
    niter, test_interval = 75, 25
    train_loss, test_acc, output = np.zeros(niter), np.zeros(niter // test_interval + 1), np.zeros((niter, 8, 10))
    for it in range(niter):
        solver.step(1)
        train_loss[it] = solver.net.blobs["loss"].data
        solver.test_nets[0].forward(start="conv1")  # the data stays, so that the same eight digits are followed
        output[it] = solver.test_nets[0].blobs["score"].data[:8]
        if (it + 1) % test_interval == 0:
            correct = 0
            for _ in range(TEST_ITEMS // 100):
                solver.test_nets[0].forward()
                correct += (
                    solver.test_nets[0].blobs["score"].data.argmax(1) == solver.test_nets[0].blobs["label"].data
                ).sum()
            test_acc[(it + 1) // test_interval] = correct / TEST_ITEMS
    assert solver.iter == niter + 1
    assert train_loss[:3].mean() > 1.5 and train_loss[-10:].mean() < 0.6
    assert test_acc[1] > 0.5 and test_acc[-1] > 0.85
    assert (np.diff(output, axis=0) != 0).any()


def test_layers_start_and_end(solver):
    """The score of a batch, from the middle of the net on, is the one of the whole net."""
    net = solver.test_nets[0]
    whole = net.forward()["loss"].copy()
    net.blobs["score"].data[...] = 0
    assert net.forward(start="conv2", end="score")["score"].any()
    assert net.forward(start="loss")["loss"] == whole
