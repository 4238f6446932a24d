"""Every training net runs forward and backward at a small size, and its gradients reach every weight."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from pycaffe_lms.formats.prototxt.parser import read_solver
from pycaffe_lms.net.net import Net

from .nets import ALL, MODELS, SOME, TEST, TRAIN, full_size, shape_of, tiny

# Weights whose gradient is zero in the first iteration, for the scores behind them start at zero.
BEHIND_ZEROS = {"fcn-8s": 21}


def run(name: str) -> Net:
    model = ALL[name]
    net = Net(tiny(model), TRAIN, seed=5, file=str(model.path))
    net.forward_range()
    if not any(v.loss_weight for v in net.graph.values):  # half of a pair of nets
        (out,) = net.outputs
        net.blobs[out].diff = np.random.default_rng(6).standard_normal(net.blobs[out].shape)
    net.clear_param_diffs()
    net.backward_range()
    return net


@pytest.mark.parametrize("name", SOME)
def test_forward_and_backward(name):
    net, model = run(name), ALL[name]
    losses = [v for v in net.graph.values if v.loss_weight]
    assert losses or model.file == "generator"
    assert all(0 < float(net.blobs[v.name].data) < 1e6 for v in losses)
    assert np.isfinite([net.loss()]).all()
    for node in net.graph.nodes:
        for k, p in enumerate(node.params):
            param = net.graph.params[p]
            if param.lr_mult == 0:
                continue
            diff = net.params[node.name][k].diff
            assert np.isfinite(diff).all(), (node.name, k)
            if model.folder not in BEHIND_ZEROS and len(param.shape) > 1:
                assert diff.any(), (node.name, k)


@pytest.mark.parametrize("name", SOME)
def test_nets_for_testing(name):
    """The other phase has the same weights, its own accuracies, and every solver's test states exist."""
    model = ALL[name]
    (solver,) = [
        p
        for p in (MODELS / model.folder).glob("*solver.prototxt")
        if read_solver(p).message.net == f"models/{model.path}"
    ]
    states = read_solver(solver).message.test_state or [None]
    train = full_size(name)
    for state in states:
        net = Net(tiny(model), TEST, stages=tuple(state.stage) if state else (), fill=False)
        assert {n: len(blobs) for n, blobs in net.params.items()} == {
            n: len(blobs) for n, blobs in train.params.items()
        }
        extra = set(net.outputs) - set(train.outputs)
        if "ssd" in model.folder:
            assert extra == {"detection_eval"} and set(train.outputs) == {"mbox_loss"}
            continue
        assert all(shape_of(net, blob) == () for blob in extra)
        pixels_or_classes = model.classes and model.file == "train_val" and model.folder != "mnist_siamese"
        assert bool(extra) == bool(pixels_or_classes), extra


def test_fcn_8s_starts_with_equal_scores_of_all_classes():
    net = run("fcn-8s/train_val")
    height, width = net.blobs["label"].shape[2:]
    assert float(net.blobs["loss"].data) == pytest.approx(height * width * log(21), rel=1e-5)  # the sum over pixels
    assert net.params["score_pool3"][0].diff.any() and not net.params["conv1_1"][0].diff.any()


def test_the_towers_of_the_siamese_net_share_their_weights():
    net = run("mnist_siamese/train_val")
    for name in ("conv1", "conv2", "ip1", "ip2", "feat"):
        for mine, theirs in zip(net.params[name], net.params[f"{name}_p"], strict=True):
            np.testing.assert_array_equal(mine.data, theirs.data)


def test_the_generator_learns_from_the_discriminators_pictures():
    net = run("dcgan/discriminator")
    assert net.blobs["data"].diff.any()
