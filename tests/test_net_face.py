"""Tests arrays of any length through a net, vectors and ids that third-party code uses, what is refused and how."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import ArrayError, GraphError, ShapeError, UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.pycaffe.batches import Collected, batches
from pycaffe_lms.vectors import BlobVec, IntVec, LayerVec, StringVec

from .net.nets import inputs, ip, layer, loss, make_net, relu

W = np.array([[1, 2, 3], [0, -1, 1]], np.float32)
RNG = np.random.default_rng(2)


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(
        "force_backward: true\n"
        + inputs(x=(4, 3))
        + ip("y", "x", 2)
        + layer("z", "Power", "y", text=("power_param { scale: 2 }"))
    )
    net = caffe.Net(str(path), caffe.TEST)
    net.params["y"][0].data[...] = W
    net.params["y"][1].data[...] = [0.5, 0]
    return net


# -- arrays of any length --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 11])
def test_forward_all(net, n):
    x = RNG.normal(size=(n, 3)).astype(np.float32)
    out = net.forward_all(x=x)
    assert list(out) == ["z"]
    np.testing.assert_allclose(out["z"], 2 * (x @ W.T + [0.5, 0]), rtol=1e-5)
    out = net.forward_all(["y"], x=x)
    np.testing.assert_allclose(out["y"], x @ W.T + [0.5, 0], rtol=1e-5)
    assert out["z"].shape == out["y"].shape == (n, 2) and not np.shares_memory(out["y"], net.blobs["y"].data)


@pytest.mark.parametrize("n", [2, 4, 7])
def test_forward_backward_all(net, n):
    x, d = RNG.normal(size=(n, 3)), RNG.normal(size=(n, 2))
    blobs, diffs = net.forward_backward_all(blobs=["y"], diffs=["y"], x=x, z=d)
    assert list(blobs) == ["z", "y"] and list(diffs) == ["x", "y"]
    np.testing.assert_allclose(blobs["y"], x @ W.T + [0.5, 0], rtol=1e-4)
    np.testing.assert_allclose(diffs["y"], 2 * d, rtol=1e-5)
    np.testing.assert_allclose(diffs["x"], 2 * d @ W, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net.params["y"][1].diff, 2 * d.sum(axis=0), rtol=1e-4, atol=1e-5)


def test_a_loss_comes_once_per_batch():
    net = make_net(inputs(x=(2, 3), label=(2,)) + loss("x"))
    x, label = RNG.normal(size=(6, 3)).astype(np.float32), np.arange(6) % 3
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    each = -np.log(p[np.arange(6), label])
    np.testing.assert_allclose(net.forward_all(x=x, label=label)["loss"], each.reshape(3, 2).mean(axis=1), rtol=1e-5)


def test_what_forward_all_refuses(net):
    with pytest.raises(UsageError) as caught:
        net.forward_all(y=np.zeros((5, 3)))
    assert str(caught.value).startswith("Input blob arguments do not match net inputs.")
    with pytest.raises(UsageError, match="do not match net inputs"):
        net.forward_backward_all(x=np.zeros((4, 3)), w=np.zeros((4, 3)))
    two = make_net(inputs(a=(2, 3), b=(2, 3)) + layer("s", "Eltwise", "a b"))
    with pytest.raises(UsageError, match="different numbers of items: a 4, b 6"):
        two.forward_all(a=np.zeros((4, 3)), b=np.zeros((6, 3)))
    with pytest.raises(UsageError, match="b none"):
        two.forward_all(a=np.zeros((4, 3)), b=0)
    with pytest.raises(ArrayError, match=r'blob "x": values of shape \(4, 5\) do not fit the blob.s shape'):
        net.forward(x=np.zeros((4, 5)))


def test_batches_are_filled_up_with_zeros(net):
    x = np.arange(7).reshape(7, 1)
    got = [b["x"].ravel().tolist() for b in batches({"x": x}, 3)]
    assert got == [[0, 1, 2], [3, 4, 5], [6, 0, 0]] and list(batches({}, 3)) == []
    assert [len(b["x"]) for b in net._batch({"x": np.zeros((9, 3))})] == [4, 4, 4]
    with pytest.raises(UsageError, match="0 items"):
        list(batches({"x": x}, 0))


def test_collected_values_are_copies():
    found, piece = Collected(2, 3), np.zeros((2, 1))
    for k in range(2):
        piece[...] = k
        found.add({"per item": piece, "per class": np.full((5, 1), k), "scalar": np.float32(k)})
    joined = found.joined()
    assert joined["per item"].ravel().tolist() == [0, 0, 1] and joined["scalar"].tolist() == [0, 1]
    assert joined["per class"].ravel().tolist() == [0] * 5 + [1] * 5


# -- refused, in pycaffe's words -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "call, words",
    [
        (lambda n: n.forward(y=1), "Input blob arguments do not match net inputs."),
        (lambda n: n.forward(x=np.zeros((3, 3))), "Input is not batch sized"),
        (lambda n: n.backward(y=1), "Top diff arguments do not match net outputs."),
        (lambda n: n.backward(z=np.zeros((5, 2))), "Diff is not batch sized"),
    ],
)
def test_the_words_of_errors(net, call, words):
    with pytest.raises(Exception) as caught:
        call(net)
    assert str(caught.value).splitlines()[0] == words and isinstance(caught.value, RuntimeError)


def test_names_that_are_not_there(net):
    for call in (
        lambda: net.forward(blobs=["w"]),
        lambda: net.backward(diffs=["w"]),
        lambda: net.forward(end="w"),
        lambda: net.backward(start="w"),
    ):
        with pytest.raises(GraphError, match='no (blob|layer) "w"'):
            call()


def test_constructors_refuse(tmp_path):
    path = tmp_path / "n.prototxt"
    path.write_text(inputs(x=(1, 1)))
    for args, options in (
        ((7,), {}),
        ((caffe.TEST,), {"stages": "deep"}),
        ((caffe.TEST, 0, [], None, 1), {}),
        ((caffe.TEST,), {"lms": [1000]}),
    ):
        with pytest.raises(UsageError):
            caffe.Net(str(path), *args, **options)


# -- vectors and ids -------------------------------------------------------------------------------------------------
def test_vectors_and_ids():
    net = make_net(
        inputs(x=(2, 3), label=(2,))
        + ip("y", "x", 3)
        + relu("r", "y")
        + loss("y", text="loss_weight: 3")
        + layer("p", "Softmax", "y")
    )
    names = ["x", "label", "y", "y_r_0_split_0", "y_r_0_split_1", "loss", "p"]
    assert list(net._blob_names) == list(net.blobs) == names and isinstance(net._blob_names, StringVec)
    assert list(net._layer_names) == ["x", "label", "y", "r", "y_r_0_split", "loss", "p"]
    assert net._inputs == [0, 1] and net._outputs == [5, 6] and isinstance(net._inputs, IntVec)
    assert [names[i] for i in net._top_ids(4)] == names[3:5] and net._bottom_ids(3) == net._top_ids(3) == [2]
    assert net._blob_loss_weights == [0, 0, 0, 0, 0, 3, 0]
    assert isinstance(net._blobs, BlobVec) and all(a is b for a, b in zip(net._blobs, net.blobs.values(), strict=True))
    assert isinstance(net.layers, LayerVec) and [b.shape for b in net.params["y"]] == [(3, 3), (3,)]
    for shown in (net.blobs, net.params, net.layer_dict, net.top_names, net.bottom_names, net.blob_loss_weights):
        assert isinstance(shown, OrderedDict)
    assert isinstance(net.params["y"], BlobVec) and isinstance(net.layers[2].blobs, BlobVec)
    for wrong in ((3, 2), (-1, 2), (0, 7)):
        with pytest.raises(UsageError, match="out of range"):
            net._forward(*wrong)


# -- blobs -----------------------------------------------------------------------------------------------------------
def test_blob_members(net):
    blob = net.blobs["x"]
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (4, 3, 1, 1, 12)
    assert list(blob.shape) == [4, 3]
    blob.reshape(2, 3, 5, 7)
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (2, 3, 5, 7, 210)
    blob.reshape()
    assert blob.shape == () and blob.data.shape == () and blob.count == 1
    blob.reshape([2, 3])
    assert net.forward(x=np.ones((2, 3)))["z"].shape == (2, 2)
    blob.reshape(1, 1, 1, 1, 3)
    with pytest.raises(ShapeError, match="at most 4 axes"):
        _ = blob.num
    for args, named in (((-1,), {}), ((2.5,), {}), (("2",), {}), ((), {"num": 3})):
        with pytest.raises(RuntimeError, match="is no blob shape"):
            blob.reshape(*args, **named)


# -- shared parameters -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1)])
def test_nets_that_share_parameters_on_one_device(lms):
    """One has Large Model Support, one has not: each sees the other's changes of a parameter."""
    device = SimDevice(64 << 20)
    text = inputs(x=(2, 300)) + ip("y", "x", 300)
    mine, other = make_net(text, device=device, lms=lms, seed=1), make_net(text, device=device, lms=None, seed=2)
    for net in (mine, other):
        net.blobs["x"].data[...] = 1
        net.forward()
    mine.share_with(other)
    for k in (1, 2):
        for w in (mine, other)[k - 1].params["y"]:
            w.data[...] = k
        for net in (mine, other, mine):
            assert (net.forward()["y"] == 301 * k).all()
    with pytest.raises(UsageError, match="simulated device.*CPU: memory cannot be shared"):
        mine.share_with(make_net(text))
