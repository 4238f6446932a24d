"""Layers of Synopsys' Caffe written as several, and other words of forks that upgrades turn into plain ones."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pycaffe_lms import TEST, TRAIN, Net
from pycaffe_lms.errors import PrototxtError, ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net, parse_solver

SHUFFLE = """
layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: [2, 12, 3, 5] }} }} }}
layer {{ name: "up" type: "Reshape" bottom: "x" top: "up" reshape_param {{ {0} }} }}
layer {{ name: "r" type: "ReLU" bottom: "up" top: "up" }}
"""


def test_channels_become_squares():
    """As the fork's loop says: channel c goes to channel c / 4, row c / 2 % 2 and column c % 2 of a square."""
    net = Net(parse_net(SHUFFLE.format("pixelshuffler: 2")).message, TRAIN, dtype="float64")
    x = np.random.default_rng(1).uniform(0.1, 1, size=(2, 12, 3, 5))
    expected = np.zeros((2, 3, 6, 10))
    for n, c, h, w in np.ndindex(*x.shape):
        expected[n, c // 4, 2 * h + c // 2 % 2, 2 * w + c % 2] = x[n, c, h, w]
    net.blobs["x"].data[...] = x
    net.forward()
    np.testing.assert_array_equal(net.blobs["up"].data, expected)
    net.close()


def test_one_changes_nothing():
    (_, layer, _) = parse_net(SHUFFLE.format("pixelshuffler: 1 shape { dim: [0, -1] }")).message.layer
    assert layer.type == "Reshape" and list(layer.reshape_param.shape.dim) == [0, -1]


@pytest.mark.parametrize("fields", ["pixelshuffler: 2 axis: 1", "pixelshuffler: 0"])
def test_refused(fields):
    with pytest.raises(PrototxtError, match='line 3: layer "up".*has pixelshuffler'):
        parse_net(SHUFFLE.format(fields))


def test_hard_swish():
    text = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: [1, 2, 2, 3] } } }\n'
    text += 'layer { name: "h" type: "HardSwish" bottom: "x" top: "h" }'
    net = Net(parse_net(text).message, TEST, dtype="float64")
    x = np.array([-5, -3, -1.5, 0, 0.5, 1, 2, 2.9, 3, 3.5, 7, -2.9]).reshape(1, 2, 2, 3)
    net.blobs["x"].data[...] = x
    net.forward()
    np.testing.assert_allclose(net.blobs["h"].data, x * np.minimum(np.maximum(x + 3, 0), 6) / 6, rtol=1e-6, atol=1e-7)
    net.close()


MUL = """
layer { name: "x" type: "Input" top: "x" top: "f" input_param { shape { dim: [2, 3, 4, 5] }
  shape { dim: [2, 3, 1, 1] } } }
layer { name: "m" type: "Mul" bottom: "x" bottom: "f" top: "m" }
"""


def test_a_factor_for_each_channel():
    net, rng = Net(parse_net(MUL).message, TEST, dtype="float64"), np.random.default_rng(1)
    x, f = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(2, 3, 1, 1))
    net.blobs["x"].data[...], net.blobs["f"].data[...] = x, f
    net.forward()
    np.testing.assert_allclose(net.blobs["m"].data, x * f, rtol=1e-12)
    net.close()
    with pytest.raises(PrototxtError, match='line 4: layer "m".*has 1 bottoms'):
        parse_net(MUL.replace('bottom: "f"', ""))
    with pytest.raises(ShapeError, match="factors"):
        Net(parse_net(MUL.replace("dim: [2, 3, 1, 1]", "dim: [2, 3, 4, 5]")).message, TEST)


DARKNET = """
layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: [2, 3, 2, 3] }} }} }}
layer {{ name: "u" type: "UpsampleDarknet" bottom: "x" top: "u" upsample_darknet_param {{ stride: {} }} }}
"""


@pytest.mark.parametrize("stride", [1, 3])
def test_repeated_pixels(stride):
    net, x = Net(parse_net(DARKNET.format(stride)).message, TEST), np.arange(36, dtype=np.float32).reshape(2, 3, 2, 3)
    net.blobs["x"].data[...] = x
    net.forward()
    assert net.blobs["u"].data.shape == (2, 3, 2 * stride, 3 * stride)
    for n, c, h, w in np.ndindex(*net.blobs["u"].data.shape):
        assert net.blobs["u"].data[n, c, h, w] == x[n, c, h // stride, w // stride]
    net.close()


def test_a_repetition_that_is_refused():
    with pytest.raises(PrototxtError, match='line 3: layer "u".*has stride 0'):
        parse_net(DARKNET.format(0))


TRANSPOSE = """
layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: [2, 3, 4, 5] }} }} }}
layer {{ name: "t" type: "Transpose" bottom: "x" top: "t" {} }}
"""


def test_a_transpose():
    """CTPN, caffe.proto: the parameter for turning N x C x H x W into W x N x H x C is 3, 0, 2, 1."""
    net = Net(parse_net(TRANSPOSE.format("transpose_param { dim: 3 dim: 0 dim: 2 dim: 1 }")).message, TEST)
    x = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    net.blobs["x"].data[...] = x
    net.forward()
    assert net.blobs["t"].data.shape == (5, 2, 4, 3)
    assert all(net.blobs["t"].data[w, n, h, c] == x[n, c, h, w] for n, c, h, w in np.ndindex(*x.shape))
    net.close()


@pytest.mark.parametrize("fields", ["", "transpose_param { dim: [0, 1, 1, 3] }", "transpose_param { dim: [0, -1] }"])
def test_a_transpose_that_is_refused(fields):
    with pytest.raises(PrototxtError, match='line 3: layer "t".*does not name every axis once'):
        parse_net(TRANSPOSE.format(fields))


DATA = """name: "n"
richness: 1000
mem_param {{ optimize_train: true }}
layer {{ name: "data" type: "{0}" top: "data" transform_param {{ {1} }} data_param {{ shuffle_pool_size: 10 }} }}
"""


@pytest.mark.parametrize(
    "fields, sides",
    [("crop_height: 7 crop_width: 5", (7, 5)), ("crop_height: 7 crop_size: 4", (7, 4)), ("crop_width: 5", (0, 5))],
)
def test_crops_of_two_sides(fields, sides, caplog):
    """Cysu's Caffe, data_transformer.cpp: a side that is not given is crop_size."""
    with caplog.at_level(logging.WARNING):
        (layer,) = parse_net(DATA.format("Data", fields)).message.layer
    p = layer.transform_param
    assert (p.crop_h, p.crop_w) == sides and not (p.crop_size or p.crop_height or p.crop_width)
    for word in ("richness", "mem_param", "shuffle_pool_size"):
        assert any(f"{word} (" in record.getMessage() for record in caplog.records)
    (layer,) = parse_net(DATA.format("ImageSegData", "crop_height: 7 crop_width: 5")).message.layer
    assert (layer.transform_param.crop_height, layer.transform_param.crop_h) == (7, 0)


def test_forces_between_filters_need_a_solver_that_has_them(caplog):
    """SCNN, sgd_solver.cpp: the force is force_decay * force_mult."""
    with caplog.at_level(logging.WARNING):
        (layer,) = parse_net('layer { type: "InnerProduct" param { lr_mult: 2 force_mult: 1 } }').message.layer
    assert layer.param[0].lr_mult == 2 and not layer.unsupported
    assert any("force_mult (" in record.getMessage() for record in caplog.records)
    with pytest.raises(PrototxtError, match="force_decay.*SCNN"):
        parse_solver("force_decay: 0.1")


def test_neutral_fields_of_resizing():
    text = 'net_param {{ layer {{ name: "d" type: "Data" top: "d"\ntransform_param {{ resize_param {{ {} }} }} }} }}'
    (layer,) = parse_solver(text.format("height: 4 width: 5 center_object: false max_angle: 0")).message.net_param.layer
    assert layer.transform_param.resize_param.height == 4 and not layer.unsupported
    for field in ("center_object: true", "max_angle: 5"):
        net = parse_solver(text.format(field)).message.net_param
        assert [f.name for f in net.layer[0].unsupported] == [field.split(":")[0]]


def test_a_net_of_four_layers_builds():
    built = Net(parse_net(SHUFFLE.format("pixelshuffler: 2")).message, TEST)
    assert [str(name) for name in built._layer_names] == ["x", "up/channels", "up/order", "up/rows", "up", "r"]
    built.close()
