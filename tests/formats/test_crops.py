"""Crop layers that find their offsets by themselves, against caffe.coord_map and facts of forks' nets."""

from __future__ import annotations

import pytest

from pycaffe_lms import TEST, Net
from pycaffe_lms.coord_map import crop
from pycaffe_lms.errors import PrototxtError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.net_spec import layers as L


def _fcn(crops):
    """FCN-8s as CRF-RNN has it, in V1 layers. crops: how its Crop layers are written."""
    text, last = 'input: "data" input_dim: [1, 3, 500, 500]\n', "data"
    for i in range(5):
        for pad, name in ((1 if i else 100, f"c{i}a"), (1, f"c{i}b")):
            text += _layer(
                "CONVOLUTION", name, last, f"convolution_param {{ num_output: 2 kernel_size: 3 pad: {pad} }}"
            )
            text += _layer("RELU", f"r{name}", name, top=name)
            last = name
        text += _layer("POOLING", f"p{i}", last, "pooling_param { kernel_size: 2 stride: 2 }")
        last = f"p{i}"
    text += _layer("CONVOLUTION", "fc6", last, "convolution_param { num_output: 2 kernel_size: 7 }")
    text += _layer("DROPOUT", "drop", "fc6", top="fc6") + _up("score2", "fc6", 4, 2)
    text += _score("s4", "p3") + crops.format("crop4", "s4", "score2") + _sum("f4", "score2", "crop4")
    text += _up("score4", "f4", 4, 2) + _score("s3", "p2") + crops.format("crop3", "s3", "score4")
    return text + _sum("f3", "score4", "crop3") + _up("big", "f3", 16, 8) + crops.format("coarse", "big", "data")


def _layer(kind, name, bottom, more="", top=None):
    return f'layers {{ name: "{name}" type: {kind} bottom: "{bottom}" top: "{top or name}" {more} }}\n'


def _score(name, bottom):
    return _layer("CONVOLUTION", name, bottom, "convolution_param { num_output: 2 kernel_size: 1 }")


def _up(name, bottom, size, stride):
    more = f"convolution_param {{ num_output: 2 kernel_size: {size} stride: {stride} }}"
    return _layer("DECONVOLUTION", name, bottom, more)


def _sum(name, *bottoms):
    return _layer("ELTWISE", name, '" bottom: "'.join(bottoms))


V1 = 'layers {{ name: "{0}" type: CROP bottom: "{1}" bottom: "{2}" top: "{0}" }}\n'


def test_offsets_of_fcn():
    """5, 9 and 31, as caffe.coord_map finds them (tests/layers/test_meanfield.py), and as BVLC's own FCN-8s has."""
    net = parse_net(_fcn(V1)).message
    found = {layer.name: list(layer.crop_param.offset) for layer in net.layer if layer.type == "Crop"}
    assert found == {"crop4": [5], "crop3": [9], "coarse": [31]}
    built = Net(net, TEST)
    assert built.blobs["coarse"].shape == (1, 2, 500, 500)
    built.close()


def test_offsets_of_a_side_output():
    """RCF's and HED's: what is padded around the picture is cut off again. 34 + (8 - 1) / 2 - 3 / 2 by hand."""
    text = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: [1, 3, 40, 48] } } }\n'
    last = "data"
    for i in range(3):
        pad = 1 if i else 35
        text += f'layer {{ name: "c{i}" type: "Convolution" bottom: "{last}" top: "c{i}" convolution_param {{ '
        text += f"num_output: 2 kernel_size: 3 pad: {pad} }} }}\n"
        text += f'layer {{ name: "p{i}" type: "Pooling" bottom: "c{i}" top: "p{i}" '
        text += "pooling_param { kernel_size: 2 stride: 2 } }\n"
        last = f"p{i}"
    text += 'layer { name: "up" type: "Deconvolution" bottom: "c2" top: "up" convolution_param { num_output: 2 '
    text += 'kernel_size: 8 stride: 4 } }\nlayer { name: "a" type: "AutoCrop" bottom: "up" bottom: "data" top: "a" }\n'
    (cut,) = (layer for layer in parse_net(text).message.layer if layer.name == "a")
    data = L.Input(shape={"dim": [1, 3, 40, 48]})
    top = data
    for i in range(3):
        side = L.Convolution(top, num_output=2, kernel_size=3, pad=1 if i else 35)
        top = L.Pooling(side, kernel_size=2, stride=2)
    up = L.Deconvolution(side, convolution_param={"num_output": 2, "kernel_size": 8, "stride": 4})
    assert cut.type == "Crop" and cut.crop_param.axis == 2
    assert list(cut.crop_param.offset) == crop(up, data).fn.params["crop_param"]["offset"] == [36]


def test_heights_and_widths_of_their_own():
    text = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: [1, 1, 9, 9] } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param { num_output: 1 kernel_h: 5 kernel_w: 3 pad_h: 4 pad_w: 7 dilation: 1 } }
layer { name: "a" type: "AutoCrop" bottom: "c" bottom: "x" top: "a" }
"""
    net = Net(parse_net(text).message, TEST)
    assert list(parse_net(text).message.layer[2].crop_param.offset) == [2, 6]
    assert net.blobs["a"].shape == (1, 1, 9, 9)
    net.close()


MEANFIELD = 'layer { name: "crf" type: "MultiStageMeanfield" bottom: "a" bottom: "a" bottom: "x" top: "crf" }\n'


@pytest.mark.parametrize("more, offset", [("", []), (MEANFIELD, [3])], ids=["bvlc", "crf-rnn"])
def test_a_crop_without_crop_param(more, offset):
    text = f"""
layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: [1, 3, 9, 9] }} }} }}
layer {{ name: "c" type: "Convolution" bottom: "x" top: "c"
  convolution_param {{ num_output: 2 kernel_size: 3 pad: 4 }} }}
layer {{ name: "a" type: "Crop" bottom: "c" bottom: "x" top: "a" }}
{more}"""
    assert list(parse_net(text).message.layer[2].crop_param.offset) == offset
    given = text.replace('top: "a" }', 'top: "a" crop_param { offset: 1 } }', 1)
    assert list(parse_net(given).message.layer[2].crop_param.offset) == [1]


@pytest.mark.parametrize(
    "layers, message",
    [
        ("kernel_size: 3 pad: 0", r"line 4: .*pixel x lies at 1 x \+ 1 of bottom 1"),
        ("kernel_size: 2 pad: 1", r"pixel x lies at 1 x \+ -1/2"),
        ("kernel_size: 3 stride: 2 pad: 9", "pixel x lies at 2 x"),
    ],
)
def test_blobs_that_do_not_lie_over_each_other(layers, message):
    text = f"""
layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: [1, 1, 9, 9] }} }} }}
layer {{ name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param {{ num_output: 1 {layers} }} }}
layer {{ name: "a" type: "AutoCrop" bottom: "c" bottom: "x" top: "a" }}
"""
    with pytest.raises(PrototxtError, match=message):
        parse_net(text)


def test_blobs_without_a_common_origin():
    text = """
layer { name: "x" type: "Input" top: "x" top: "y" input_param { shape { dim: [1, 1, 9, 9] } } }
layer { name: "r" type: "InnerProduct" bottom: "x" top: "r" }
layer { name: "a" type: "AutoCrop" bottom: "r" bottom: "x" top: "a" }
"""
    with pytest.raises(PrototxtError, match="bottoms without a common origin"):
        parse_net(text)
