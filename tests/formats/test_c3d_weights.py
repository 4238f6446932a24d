"""Read weights of C3D 1.0, built here byte by byte from its field numbers (facebookarchive/C3D, caffe.proto)."""

from __future__ import annotations

import struct

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.errors import WeightsError
from pycaffe_lms.formats.weights.caffemodel import read_weights

CONVOLUTION3D, INNER_PRODUCT = 30, 14

NET = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 dim: 3 dim: 4 dim: 4 } } }
layer { name: "conv1a" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 3 kernel_size: 3
  pad: 1 weight_filler { type: "xavier" } } }
layer { name: "fc6-1" type: "InnerProduct" bottom: "c" top: "y" inner_product_param { num_output: 5 } }
"""


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def content(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(payload)) + payload


def blob(values: np.ndarray, diff: np.ndarray | None = None) -> bytes:
    """num 1, channels 2, length 3, height 4, width 5, data 6, diff 7."""
    sizes = (1,) * (5 - values.ndim) + values.shape
    made = b"".join(number(i, size) for i, size in enumerate(sizes, 1))
    for field, array in ((6, values), (7, diff)):
        if array is not None:
            made += content(field, struct.pack(f"<{array.size}f", *array.reshape(-1)))
    return made


def layer(name: str, kind: int, *blobs: bytes, param: bytes = b"") -> bytes:
    """bottom 2, top 3, name 4, type 5, blobs 6, blobs_lr 7, a message of parameters 10."""
    made = content(2, b"below") + content(3, b"above") + content(4, name.encode()) + number(5, kind)
    made += b"".join(content(6, b) for b in blobs) + varint(7 << 3 | 5) + struct.pack("<f", 1.0)
    return content(2, made + (content(10, param) if param else b""))


@pytest.fixture
def arrays():
    rng = np.random.default_rng(5)
    shapes = {"conv": (3, 2, 3, 3, 3), "bias": (3,), "fc": (5, 3 * 3 * 4 * 4), "fc bias": (5,)}
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def model(arrays, diff=False) -> bytes:
    conv, bias, fc, fc_bias = (blob(a, -a if diff else None) for a in arrays.values())
    param = number(1, 3) + number(3, 1) + number(4, 3) + number(6, 3)  # num_output, pad, kernel_size, kernel_depth
    whole = content(1, b"DeepVideoNet") + layer("data", 33)
    return whole + layer("conv1a", CONVOLUTION3D, conv, bias, param=param) + layer("fc6-1", INNER_PRODUCT, fc, fc_bias)


@pytest.mark.parametrize("diff", [False, True])
def test_they_fill_a_net(tmp_path, arrays, diff):
    path = tmp_path / "conv3d.caffemodel"
    path.write_bytes(model(arrays, diff))
    (tmp_path / "net.prototxt").write_text(NET)
    net = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST, weights=str(path))
    found = [net.params["conv1a"][0], net.params["conv1a"][1], net.params["fc6-1"][0], net.params["fc6-1"][1]]
    for mine, theirs in zip(found, arrays.values(), strict=True):
        assert np.array_equal(mine.data, theirs)
    stored = {w.name: w for w in read_weights(path)}
    assert stored["data"].blobs == () and stored["conv1a"].blobs[0].shape == (3, 2, 3, 3, 3)
    assert stored["fc6-1"].blobs[1].shape == (1, 1, 1, 1, 5)
    if diff:
        assert np.array_equal(stored["conv1a"].blobs[1].diff.reshape(-1), -arrays["bias"])


def test_what_does_not_fill_its_shape_is_named(tmp_path, arrays):
    path = tmp_path / "conv3d.caffemodel"
    short = blob(arrays["conv"])[:-4]  # one value less
    head = blob(arrays["conv"])[:10]
    path.write_bytes(layer("conv1a", CONVOLUTION3D, head + content(6, short[-4 * 161 :])))
    with pytest.raises(WeightsError, match=r'layer "conv1a", blob "0": .*\(3, 2, 3, 3, 3\) needs 162 values, .* 161'):
        read_weights(path)
    path.write_bytes(model(arrays)[:-7])
    with pytest.raises(WeightsError):
        read_weights(path)
