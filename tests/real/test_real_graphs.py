"""Published prototxts build their graphs and have the shapes and parameter counts that are published for them."""

from __future__ import annotations

import math

import pytest

from pycaffe_lms.formats.prototxt.parser import read_net
from pycaffe_lms.net.build.source import load_source
from pycaffe_lms.net.build.wiring import wire
from pycaffe_lms.net.program.buffers import assign
from tests.shared_data import needs_shared

from .files import MATERIAL

pytestmark = [needs_shared, pytest.mark.shared]
TRAIN, TEST = 0, 1


def graph(path, phase, size):
    """The graph of a published file. Data layers become Input layers: the pictures themselves are not here."""
    parsed = read_net(MATERIAL / path)
    for layer in parsed.message.layer:
        if layer.type != "Data":
            continue
        batch = layer.data_param.batch_size
        layer.type = "Input"
        layer.ClearField("data_param")
        for dims in ([batch, 3, size, size], [batch]):
            layer.input_param.shape.add(dim=dims)
    source = load_source(parsed.message, phase=phase, lines=parsed.lines, file=path)
    return wire(source.message, source.lines, file=path, dtype="float32")


def shapes(g):
    return {v.name: v.shape for v in g.values}


def learned(g):
    """Elements of parameters, running statistics aside."""
    return sum(math.prod(p.shape) for p in g.learnable if g.nodes[p.node].layer.param.type != "BatchNorm")


ALEXNET = {
    "conv1": (96, 55, 55),
    "pool1": (96, 27, 27),
    "conv2": (256, 27, 27),
    "pool2": (256, 13, 13),
    "conv3": (384, 13, 13),
    "conv4": (384, 13, 13),
    "conv5": (256, 13, 13),
    "pool5": (256, 6, 6),
    "fc6": (4096,),
    "fc7": (4096,),
    "fc8": (1000,),
}
SQUEEZENET = {
    "conv1": (64, 113, 113),
    "pool1": (64, 56, 56),
    "fire2/concat": (128, 56, 56),
    "fire3/concat": (128, 56, 56),
    "pool3": (128, 28, 28),
    "fire4/concat": (256, 28, 28),
    "fire5/concat": (256, 28, 28),
    "pool5": (256, 14, 14),
    "fire6/concat": (384, 14, 14),
    "fire7/concat": (384, 14, 14),
    "fire8/concat": (512, 14, 14),
    "fire9/concat": (512, 14, 14),
    "conv10": (1000, 14, 14),
    "pool10": (1000, 1, 1),
}
RESNET = {
    "conv1": (64, 112, 112),
    "pool1": (64, 56, 56),
    "res2c": (256, 56, 56),
    "res3d": (512, 28, 28),
    "res4f": (1024, 14, 14),
    "res5c": (2048, 7, 7),
    "pool5": (2048, 1, 1),
    "fc1000": (1000,),
}
MOBILENET = {
    "conv1": (32, 112, 112),
    "conv2_1/dw": (32, 112, 112),
    "conv2_1/sep": (64, 112, 112),
    "conv2_2/dw": (64, 56, 56),
    "conv3_1/sep": (128, 56, 56),
    "conv4_1/sep": (256, 28, 28),
    "conv5_5/sep": (512, 14, 14),
    "conv6/sep": (1024, 7, 7),
    "pool6": (1024, 1, 1),
    "fc7": (1000, 1, 1),
}


@pytest.mark.parametrize(
    ("path", "size", "batches", "expected", "count"),
    [
        ("bvlc_alexnet/train_val.prototxt", 227, (256, 50), ALEXNET, 60_965_224),
        ("squeezenet_v1.1/train_val.prototxt", 227, (32, 25), SQUEEZENET, 1_235_496),
        # 25,557,032 as published, and 64 biases that this file's first convolution has
        ("resnet50_yihui/resnet_50.prototxt", 224, (32, 8), RESNET, 25_557_032 + 64),
        ("mobilenet/mobilenet_deploy.prototxt", 224, (1, 1), MOBILENET, 4_231_976),
    ],
    ids=["alexnet", "squeezenet", "resnet50", "mobilenet"],
)
@pytest.mark.parametrize("phase", [TRAIN, TEST], ids=["train", "test"])
def test_published_shapes(path, size, batches, expected, count, phase):
    g = graph(path, phase, size)
    found = shapes(g)
    assert {name: found[name] for name in expected} == {n: (batches[phase], *s) for n, s in expected.items()}
    assert learned(g) == count


@pytest.mark.parametrize(
    ("path", "train", "test"),
    [
        ("bvlc_alexnet/train_val.prototxt", ["loss"], ["accuracy", "loss"]),
        (
            "resnet50_yihui/resnet_50.prototxt",
            ["accuracy@1", "accuracy@5", "prob"],
            ["accuracy@1", "accuracy@5"],
        ),
    ],
)
def test_outputs_of_each_phase(path, train, test):
    size = 227 if "alexnet" in path else 224
    assert graph(path, TRAIN, size).outputs == train
    assert graph(path, TEST, size).outputs == test


def test_resnet_in_place_units_need_two_buffers():
    """Convolution, BatchNorm, Scale, ReLU in place: what the convolution makes and what Scale makes, no more."""
    g = graph("resnet50_yihui/resnet_50.prototxt", TRAIN, 224)
    assign(g, 4)
    versions = [v.data for v in g.values if v.name == "res3a_branch2a"]
    assert len(versions) == 4 and len(set(versions)) == 2
    g = graph("resnet50_yihui/resnet_50.prototxt", TEST, 224)
    for node in g.nodes:  # a deploy net has no loss
        node.need_backward = False
    assign(g, 4)
    assert len({v.data for v in g.values if v.name == "res3a_branch2a"}) == 1
