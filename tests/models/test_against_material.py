"""Beside prototxts of others for the same nets: equal layers with weights, and equal shapes of the blobs between."""

from __future__ import annotations

import pytest

from pycaffe_lms.formats.prototxt.parser import read_net
from pycaffe_lms.net.net import Net
from tests.shared_data import SHARED, needs_shared

from .nets import ALL, MODELS, TEST, TRAIN, fed

pytestmark = [needs_shared, pytest.mark.shared]

MATERIAL = SHARED / "material"
PAIRS = {  # ours: theirs, and names of theirs that are ours under another name
    "alexnet": ("bvlc_alexnet/train_val", {}),
    "googlenet": ("bvlc_googlenet/train_val", {}),
    "squeezenet-1.1": ("squeezenet_v1.1/train_val", {}),
    "vgg-16": ("vgg16_intel/train_val", {}),
    "resnet-50": ("resnet50_yihui/resnet_50", {}),
    "mnist_autoencoder": ("autoencoder/mnist_autoencoder", {}),
    "mnist_siamese": ("siamese/mnist_siamese_train_test", {}),
}


def parameters(net: Net) -> dict[str, list[tuple[int, ...]]]:
    return {name: [blob.shape for blob in blobs] for name, blobs in net.params.items()}


def blobs(net: Net) -> dict[str, tuple[int, ...]]:
    return {name: net.graph.values[v].shape for name, v in net.graph.last.items() if "_split_" not in name}


@pytest.mark.parametrize("folder", PAIRS)
def test_training_nets(folder):
    theirs, names = PAIRS[folder]
    model = ALL[f"{folder}/train_val"]
    mine, other = (
        Net(fed(text, model.data, model.classes), TRAIN, fill=False)
        for text in ((MODELS / model.path).read_text(), (MATERIAL / f"{theirs}.prototxt").read_text())
    )
    assert parameters(mine) == {names.get(name, name): shapes for name, shapes in parameters(other).items()}
    common = set(blobs(mine)) & set(blobs(other))
    assert len(common) > len(blobs(other)) * 0.9
    assert {name: blobs(mine)[name] for name in common} == {name: blobs(other)[name] for name in common}


def test_mobilenet():
    other = Net(read_net(MATERIAL / "mobilenet/mobilenet_deploy.prototxt").message, TEST, fill=False)
    mine = Net(MODELS / "mobilenet-v1/deploy.prototxt", TEST, fill=False)
    assert parameters(mine) == parameters(other) and blobs(mine) == blobs(other)


def test_c3d_of_a_fork_has_our_stages():
    """Its UCF-101 net is narrower and has one convolution a stage: the windows and poolings are the same."""
    other = read_net(MATERIAL / "c3d/c3d_ucf101_deploy.prototxt").message
    mine = read_net(MODELS / "c3d/deploy.prototxt").message

    def poolings(net):
        params = [layer.pooling_param for layer in net.layer if "Pooling" in layer.type]
        return [(list(p.kernel_shape.dim), list(p.stride_shape.dim)) for p in params]

    assert poolings(mine) == poolings(other)
