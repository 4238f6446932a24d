"""The largest axes and blobs: what shape inference refuses for every layer, and what it does not."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.cli.main import main
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
    """From its prototxt, and as a net is reshaped from Python."""
    shape, relu = (4, 2**20, 2**12), 'layer { name: "r" type: "ReLU" bottom: "d" top: "r" }'  # 2^34 elements
    net = _net(shape, relu)
    assert net.graph.values[net.graph.last["r"]].shape == shape
    net = _net((4, 2), relu)
    net.blobs["d"].reshape(*shape)
    net.reshape()
    assert net.blobs["r"].shape == shape and net.blobs["r"].count == 2**34
    with pytest.raises(ShapeError, match="more than any machine holds"):
        _net([2**30, 2**30])


VOLUME = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 2048 dim: 1024 dim: 1040 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 1 kernel_size: 3
  kernel_size: 3 kernel_size: 3 pad: 1 } }
layer { name: "act" type: "Sigmoid" bottom: "conv" top: "act" }
layer { name: "loss" type: "Reduction" bottom: "act" top: "loss" loss_weight: 1 }
"""


def test_training_on_such_a_volume_is_planned(tmp_path, capsys):
    """2.2e9 voxels, 8.1 GiB a blob: in 40 GB, not in 16, where the convolution's backward has two of them at once."""
    (tmp_path / "net.prototxt").write_text(VOLUME)
    argv = ["plan", "-model", str(tmp_path / "net.prototxt"), "-lms", "1", "-summary", "-cache", "off"]
    assert main([*argv, "-lms_budget", "40GB"]) == 0
    assert "8.1 GiB" in capsys.readouterr().out
    assert main([*argv, "-lms_budget", "16GB"]) == 1
    assert "device memory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "columns"),
    [("cpu", 2**12), pytest.param("cuda", 2**30 + 2**21, marks=pytest.mark.gpu)],  # 2^31 + 2^22 elements, 35 GB
)
def test_gradients_of_such_a_blob(device, columns):
    """d loss / d factor of a row is its sum; the elements beyond the first 2^31 decide that of the second row."""
    if device == "cuda" and not cuda_available():
        pytest.skip("no GPU")
    text = INPUT.format(f"dim: 2 dim: {columns}") + 'layer { name: "s" type: "Scale" bottom: "d" top: "s" scale_param '
    text += '{ axis: 0 } }\nlayer { name: "l" type: "Reduction" bottom: "s" top: "l" loss_weight: 1 }\n'
    net = Net(parse_net(text).message, 0, device=get_device(device))
    tail, values = 2 * columns - 2**31 if device == "cuda" else columns // 4, net.blobs["d"].data
    values[...] = 1
    values[1, -tail:] = 1000
    net.clear_param_diffs()
    assert net.forward_range() == pytest.approx(2 * columns + 999 * tail, rel=1e-3)
    net.backward_range()
    assert net.params["s"][0].diff.tolist() == pytest.approx([columns, columns + 999 * tail], rel=1e-3)


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
