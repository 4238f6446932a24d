"""The largest axes and blobs: what shape inference refuses for every layer, and what it does not."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.errors import ShapeError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net.net import Net

INPUT = 'layer {{ name: "d" type: "Input" top: "d" input_param {{ shape {{ {} }} }} }}\n'


def _net(dims, more=""):
    text = INPUT.format(" ".join(f"dim: {d}" for d in dims)) + more
    return Net(parse_net(text).message, 0, device=get_device("sim", capacity=1 << 62), fill=False, file="my.prototxt")


def test_the_longest_axis():
    assert _net([2**31 - 1]).graph.values[0].shape == (2**31 - 1,)
    for d in (2**31, 2**32, 2**63 - 1):
        with pytest.raises(ShapeError, match=rf'layer "d" \(Input\): axis 1 of top "d" has {d} elements.*2147483647'):
            _net([1, d])


def test_a_blob_may_have_more_elements_than_an_axis():
    shape = (4, 2**20, 2**12)  # 2^34, of which Caffe has no blob
    net = _net(shape, 'layer { name: "r" type: "ReLU" bottom: "d" top: "r" }')
    assert net.graph.values[net.graph.last["r"]].shape == shape
    with pytest.raises(ShapeError, match="more than any machine holds"):
        _net([2**30, 2**30])


@pytest.mark.parametrize(
    "layer, what",
    [
        ('type: "InnerProduct" inner_product_param { num_output: 2147483648 }', "axis 0 of parameter 0"),
        ('type: "Tile" tile_param { tiles: 2147483647 }', 'axis 1 of top "c"'),
        ('type: "Flatten" flatten_param { axis: 0 }', None),
        ('type: "Convolution" convolution_param { num_output: 1 kernel_size: 1 pad: 2147483647 }', 'axis 2 of top "c"'),
        ('type: "Reshape" reshape_param { shape { dim: 0 dim: 6 dim: 64 } }', None),
    ],
)
def test_what_layers_make(layer, what):
    more = f'layer {{ name: "c" bottom: "d" top: "c" {layer} }}'
    if what is None:
        _net([2, 6, 8, 8], more)
        return
    with pytest.raises(ShapeError, match=rf'layer "c" .*{what} has \d+ elements'):
        _net([2, 6, 8, 8], more)


def test_flattened_beyond_an_axis():
    with pytest.raises(ShapeError, match='axis 1 of top "c" has 4294967296 elements'):
        _net([1, 2**16, 2**16], 'layer { name: "c" type: "Flatten" bottom: "d" top: "c" }')


def test_shapes_of_later():
    net = _net([1, 2**15, 2**15], 'layer { name: "c" type: "Flatten" bottom: "d" top: "c" }')
    net.graph.values[0].shape = (1, 2**16, 2**16)
    with pytest.raises(ShapeError, match='layer "c" .*axis 1 of top "c"'):
        net.graph.infer_shapes()
