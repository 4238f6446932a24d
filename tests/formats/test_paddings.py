"""Nets of Synopsys Caffe: paddings of single sides, averages without padding and ReLU6, against loops."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

from pycaffe_lms import TEST, Net
from pycaffe_lms.errors import PrototxtError
from pycaffe_lms.formats.prototxt.parser import parse_net

INPUT = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: [2, 3, 7, 8] } } }\n'


def _run(layer, **values):
    parsed = parse_net(INPUT + layer)
    with closing(Net(parsed.message, TEST, dtype="float64", seed=2)) as net:
        x = np.random.default_rng(1).normal(size=(2, 3, 7, 8))
        net.blobs["x"].data[...] = x
        net.forward()
        params = [p.data.copy() for p in net.params["y"]] if "y" in net.params else []
        return x, net.blobs["y"].data.copy(), params, parsed


@pytest.mark.parametrize("sides", [(0, 1, 0, 1), (1, 1, 1, 1), (2, 0, 1, 3), (1, 1, 2, 2), (0, 0, 0, 0)])
@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_has_zeros_on_its_sides(sides, stride):
    top, bottom, left, right = sides
    fields = f"pad_t: {top} pad_b: {bottom} pad_l: {left} pad_r: {right} kernel_h: 3 kernel_w: 2 stride: {stride}"
    x, y, (w, b), parsed = _run(
        f'layer {{ name: "y" type: "Convolution" bottom: "x" top: "y" convolution_param {{ num_output: 4 {fields}\n'
        '  weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } } }'
    )
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    for h, v in np.ndindex(*y.shape[2:]):
        window = padded[:, :, h * stride : h * stride + 3, v * stride : v * stride + 2]
        np.testing.assert_allclose(y[:, :, h, v], np.tensordot(window, w, ([1, 2, 3], [1, 2, 3])) + b, rtol=1e-12)
    assert y.shape[2:] == tuple((n - k) // stride + 1 for n, k in zip(padded.shape[2:], (3, 2), strict=True))
    even = (top, left) == (bottom, right)
    assert [layer.type for layer in parsed.message.layer] == ["Input", *["Pad"] * (not even), "Convolution"]
    assert parsed.lines.layer(1) == parsed.lines.layer(len(parsed.message.layer) - 1) == 2


@pytest.mark.parametrize("sides, stride", [((0, 1, 0, 1), 2), ((1, 1, 1, 1), 1), ((0, 2, 0, 2), 3)])
def test_a_maximum_does_not_see_its_padding(sides, stride):
    top, bottom, left, right = sides
    fields = (
        f"kernel_size: 3 stride: {stride} pad_t: {top} pad_b: {bottom} pad_l: {left} pad_r: {right} ceil_mode: false"
    )
    x, y, _, _ = _run(f'layer {{ name: "y" type: "Pooling" bottom: "x" top: "y" pooling_param {{ {fields} }} }}')
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=-np.inf)
    assert y.shape[2:] == tuple((n - 3) // stride + 1 for n in padded.shape[2:])
    for h, v in np.ndindex(*y.shape[2:]):
        window = padded[:, :, h * stride : h * stride + 3, v * stride : v * stride + 3]
        np.testing.assert_array_equal(y[:, :, h, v], window.max(axis=(2, 3)))


@pytest.mark.parametrize("kernel", [(2, 2), (3, 3), (1, 4), (2, 3)])
def test_a_maximum_that_keeps_the_size(kernel):
    """TensorFlow's SAME: of kernel - 1 the larger half is below and on the right."""
    fields = f"kernel_h: {kernel[0]} kernel_w: {kernel[1]} stride: 1 pad_type: 1"
    x, y, _, parsed = _run(f'layer {{ name: "y" type: "Pooling" bottom: "x" top: "y" pooling_param {{ {fields} }} }}')
    sides = [((size - 1) // 2, size // 2) for size in kernel]
    padded = np.pad(x, ((0, 0), (0, 0), *sides), constant_values=-np.inf)
    assert y.shape == x.shape
    for h, v in np.ndindex(*y.shape[2:]):
        window = padded[:, :, h : h + kernel[0], v : v + kernel[1]]
        np.testing.assert_array_equal(y[:, :, h, v], window.max(axis=(2, 3)))
    even = not all(size % 2 for size in kernel)
    assert [layer.type for layer in parsed.message.layer] == ["Input", "Pooling", *["Crop"] * even]


def test_a_pad_type_of_0_says_nothing():
    (_, layer) = parse_net(
        INPUT + 'layer { name: "y" bottom: "x" top: "y" type: "Pooling" pooling_param { kernel_size: 2 pad_type: 0 } }'
    ).message.layer
    assert not layer.pooling_param.HasField("pad_type")


def test_averages_without_padding_relu6_and_squeeze():
    x, y, _, parsed = _run(
        'layer { name: "r" type: "ReLU" bottom: "x" top: "r" relu_param { relu6: true } }\n'
        'layer { name: "p" type: "Pooling" bottom: "r" top: "p" pooling_param {\n'
        "  pool: AVE_EXC_PAD kernel_h: 7 kernel_w: 8 pad_l: 0 pad_r: 0 ceil_mode: false } }\n"
        'layer { name: "y" type: "Squeeze" bottom: "p" top: "y" squeeze_param { axis: 2 axis: -1 } }'
    )
    np.testing.assert_allclose(y, np.clip(x, 0, 6).mean(axis=(2, 3)), rtol=1e-12)
    assert [layer.type for layer in parsed.message.layer] == ["Input", "ReLU6", "Pooling", "Squeeze"]


def test_averages_of_what_is_inside_the_padding():
    sides = "pad_l: 1 pad_r: 1 pad_t: 1 pad_b: 1"
    x, y, _, parsed = _run(
        'layer { name: "y" type: "Pooling" bottom: "x" top: "y" pooling_param {\n'
        f"  pool: AVE_EXC_PAD kernel_h: 3 kernel_w: 3 {sides} ceil_mode: false }} }}"
    )
    assert y.shape == x.shape and parsed.message.layer[1].pooling_param.pad_h == 1
    for h, v in np.ndindex(*y.shape[2:]):
        window = x[:, :, max(0, h - 1) : h + 2, max(0, v - 1) : v + 2]
        np.testing.assert_allclose(y[:, :, h, v], window.mean(axis=(2, 3)), rtol=1e-12)


@pytest.mark.parametrize(
    "layer, message",
    [
        ('"Pooling" pooling_param { kernel_size: 3 stride: 2 pad_t: 1 pad_b: 0 ceil_mode: false }', "pads 1 above"),
        ('"Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad_r: 1 pad_b: 1 ceil_mode: false }', "pads 0"),
        ('"Pooling" pooling_param { kernel_size: 2 stride: 2 pad_type: 1 }', "has pad_type 1"),
        ('"Pooling" pooling_param { kernel_size: 2 pad_type: 1 pool: AVE }', "has pad_type 1"),
        ('"Pooling" pooling_param { kernel_size: 2 pad_type: 1 pad: 1 }', "has pad_type 1"),
        ('"Pooling" pooling_param { kernel_size: 2 pad_type: 2 }', "has pad_type 2"),
        ('"Convolution" convolution_param { num_output: 1 kernel_size: 3 pad: 1 pad_l: 1 }', "single sides and pad"),
        ('"Convolution" convolution_param { num_output: 1 kernel_size: 3 pad_l: -1 }', "a padding of -1"),
        ('"Deconvolution" convolution_param { num_output: 1 kernel_size: 3 pad_l: 1 }', "a Convolution alone has"),
        ('"ReLU" relu_param { relu6: true negative_slope: 0.5 }', "relu6 and a negative_slope"),
    ],
)
def test_refused(layer, message):
    with pytest.raises(PrototxtError, match=f'"y".*{message}'):
        parse_net(f'{INPUT}layer {{ name: "y" bottom: "x" top: "y" type: {layer} }}')
