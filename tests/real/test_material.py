"""Every published prototxt is read, has its shapes at full size, and runs: with databases, at a small batch."""

from __future__ import annotations

import importlib
import sys
import types

import numpy as np
import pytest

import pycaffe_lms
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.net.build.source import load_source
from pycaffe_lms.net.build.wiring import wire
from pycaffe_lms.pycaffe.classes import PycaffeNet
from tests.shared_data import needs_shared

from .material import FILES, MATERIAL, ONE_PHASE, TEST, TRAIN, fill_parameters, full_size, is_deploy, path_of, with_data

pytestmark = [needs_shared, pytest.mark.shared]

# Files that cannot run, and the feature that is missing for each.
MISSING: dict[str, str] = {}


class Proposals(pycaffe_lms.Layer):
    """Stands in for Faster R-CNN's proposal layer, which is not part of Caffe: three regions of the picture."""

    def setup(self, bottom, top):
        assert eval(f"dict({{{self.param_str}}})") == {"feat_stride": 16}
        assert [len(blob.shape) for blob in bottom] == [4, 4, 2]

    def reshape(self, bottom, top):
        top[0].reshape(3, 5)

    def forward(self, bottom, top):
        height, width = bottom[2].data[0, :2]
        top[0].data[...] = [[0, 0, 0, width - 1, height - 1], [0, 10, 20, 90, 80], [0, 50, 0, 60, height / 2]]


@pytest.fixture(autouse=True)
def _modules_of_the_material(monkeypatch):
    importlib.import_module("pycaffe_lms.layers")
    module = types.ModuleType("rpn.proposal_layer")
    module.ProposalLayer = Proposals
    monkeypatch.setitem(sys.modules, "rpn", types.ModuleType("rpn"))
    monkeypatch.setitem(sys.modules, "rpn.proposal_layer", module)


def test_every_file_has_its_test():
    assert {str(p.relative_to(MATERIAL).with_suffix("")) for p in MATERIAL.glob("*/*.prototxt")} == set(FILES)
    assert set(MISSING) <= set(FILES)


def wired(name, phase):
    parsed = full_size(name)
    stages = FILES[name].stages if phase == TEST else ()
    source = load_source(parsed.message, phase=phase, stages=stages, lines=parsed.lines, file=name)
    return wire(source.message, source.lines, file=name, dtype="float32")


# The shape of one blob near the end of each net at full size, in TRAIN (deploy nets: as they are).
LAST = {
    "autoencoder/mnist_autoencoder": ("decode1", (100, 784)),
    "bvlc_alexnet/train_val": ("fc8", (256, 1000)),
    "bvlc_googlenet/train_val": ("loss3/classifier", (32, 1000)),
    "c3d/c3d_ucf101_deploy": ("pool5", (1, 256, 1, 4, 4)),
    "faster_rcnn_intel/deploy": ("rpn_bbox_pred", (1, 36, 38, 50)),
    "legacy/imagenet_train_v0": ("fc8", (256, 1000)),
    "legacy/imagenet_train_v1": ("fc8", (256, 1000)),
    "lstm_lm/lstm_language_model": ("predict", (20, 100, 8801)),
    "mobilenet/mobilenet_deploy": ("prob", (1, 1000, 1, 1)),
    "resnet50_nvidia/train_val": ("fc", (256, 1000)),
    "resnet50_yihui/resnet_50": ("fc1000", (32, 1000)),
    "resnext50_soeaver/deploy_resnext50-32x4d": ("prob", (1, 1000)),
    "siamese/mnist_siamese_train_test": ("feat_p", (64, 2)),
    "slim320/slim-320": ("boxes", (1, 4420, 4)),
    "squeezenet_v1.1/train_val": ("pool10", (32, 1000, 1, 1)),
    "vgg16_intel/train_val": ("fc8", (64, 1000)),
}


@pytest.mark.parametrize("name", [n for n in FILES if n not in MISSING])
def test_shapes_at_full_size(name):
    phases = [TRAIN] if name in ONE_PHASE else [TRAIN, TEST]
    for phase in phases:
        shapes = {value.name: value.shape for value in wired(name, phase).values}
        blob, expected = LAST[name]
        assert shapes[blob][1:] == expected[1:]
        assert phase == TEST or shapes[blob] == expected


LARGE = ("vgg16_intel/train_val", "faster_rcnn_intel/deploy", "bvlc_alexnet/train_val", "legacy/imagenet_train_v0")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.thorough if n in LARGE else ()) for n in FILES if n not in MISSING]
)
def test_runs(name, tmp_path):
    parsed = with_data(name, tmp_path)
    deploy = is_deploy(parsed.message)
    net = PycaffeNet(parsed.message, TEST if deploy else TRAIN, lines=parsed.lines, file=str(path_of(name)))
    rng = np.random.default_rng(4)
    if deploy:
        fill_parameters(net)
        for blob in net.inputs:
            net.blobs[blob].data[...] = rng.standard_normal(net.blobs[blob].shape, np.float32)
        if "im_info" in net.inputs:
            net.blobs["im_info"].data[...] = [*net.blobs["data"].shape[2:], 1]
        outputs = net.forward()
        assert outputs and all(np.isfinite(values).all() and values.any() for values in outputs.values())
        for key in ("prob", "cls_prob", "scores"):
            if key in outputs:
                np.testing.assert_allclose(outputs[key].sum(axis=-1 if key == "scores" else 1), 1, rtol=1e-5)
    else:
        outputs = net.forward()
        net.clear_param_diffs()
        net.backward()
        losses = [b for b, weight in net.blob_loss_weights.items() if weight]
        assert losses and all(0 < float(net.blobs[b].data) < 1e4 for b in losses)
        statistics = {
            id(b) for n in net.graph.nodes if n.layer.param.type == "BatchNorm" for b in net.params[n.name][:3]
        }
        for layer, blobs in net.params.items():
            for k, blob in enumerate(blobs):
                assert np.isfinite(blob.diff).all(), (layer, k)
                # (A bias that two branches share may count with both signs.)
                assert id(blob) in statistics or blob.diff.any() or len(blob.shape) == 1, (layer, k)
    net.close()


TESTED = [n for n in FILES if n not in MISSING and FILES[n].tested]


@pytest.mark.parametrize("name", TESTED)
def test_runs_when_testing(name, tmp_path):
    """The other data layers, accuracies, and normalisation by running statistics."""
    parsed = with_data(name, tmp_path)
    net = PycaffeNet(parsed.message, TEST, stages=FILES[name].stages, lines=parsed.lines, file=str(path_of(name)))
    fill_parameters(net, types=("BatchNorm",))
    outputs = net.forward()
    losses = {b for b, weight in net.blob_loss_weights.items() if weight}
    assert outputs
    for blob, values in outputs.items():
        assert np.isfinite(values).all(), blob
        assert values.min() >= 0 and (blob in losses or values.max() <= 1 or "error" in blob), blob
    net.close()


def test_trained_weights_give_published_outputs():
    """Weights as published; what OpenCV computes with them."""
    golden = np.load(MATERIAL / "slim320/golden_opencv.npz")
    parsed = with_data("slim320/slim-320", None)
    net = PycaffeNet(parsed.message, TEST, lines=parsed.lines, file="slim-320.prototxt")
    path = MATERIAL / "slim320/slim-320.caffemodel"
    assert sum(len(layer.blobs) for layer in read_weights(path)) == sum(len(blobs) for blobs in net.params.values())
    net.copy_from(path)
    outputs = net.forward(input=golden["input"])
    for key in ("boxes", "scores"):
        np.testing.assert_allclose(outputs[key], golden[key], rtol=1e-4, atol=1e-4)
    net.close()
