"""First-generation nets; expected values are stated by hand."""

import pytest
from google.protobuf import text_format
from google.protobuf.internal import api_implementation

from pycaffe_lms.formats.prototxt.upgrade import upgrade_net
from pycaffe_lms.formats.prototxt.upgrade_v0 import upgrade_v0
from pycaffe_lms.formats.prototxt.upgraded import UpgradeError
from pycaffe_lms.proto.caffe_pb2 import NetParameter


def net(text):
    return text_format.Parse(text, NetParameter())


def one(inner):
    """The upgraded layer of a net with one V0 layer, and the notes."""
    result = upgrade_net(net(f'layers {{ bottom: "b" top: "t" layer {{ name: "l" {inner} }} }}'))
    return result.message.layer[0], [note.text for note in result.notes]


def same(inner, new):
    layer, notes = one(inner)
    assert layer == net(f'layer {{ name: "l" bottom: "b" top: "t" {new} }}').layer[0]
    assert notes == []


CASES = [
    (
        'type: "conv" num_output: 4 biasterm: false pad: 1 kernelsize: 3 group: 2 stride: 5'
        ' weight_filler { type: "gaussian" std: 0.1 } bias_filler { value: 2 }'
        " blobs_lr: 1 blobs_lr: 2 weight_decay: 3 blobs { num: 1 data: 4 }",
        'type: "Convolution" convolution_param { num_output: 4 bias_term: false pad: 1 kernel_size: 3 group: 2'
        ' stride: 5 weight_filler { type: "gaussian" std: 0.1 } bias_filler { value: 2 } }'
        " param { lr_mult: 1 decay_mult: 3 } param { lr_mult: 2 } blobs { num: 1 data: 4 }",
    ),
    (
        'type: "innerproduct" num_output: 4 biasterm: true weight_filler {} bias_filler { value: 1 }',
        'type: "InnerProduct" inner_product_param { num_output: 4 bias_term: true weight_filler {}'
        " bias_filler { value: 1 } }",
    ),
    (
        'type: "pool" pool: AVE kernelsize: 3 stride: 2 pad: 1',
        'type: "Pooling" pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }',
    ),
    ('type: "dropout" dropout_ratio: 0.25', 'type: "Dropout" dropout_param { dropout_ratio: 0.25 }'),
    (
        'type: "lrn" local_size: 3 alpha: 2 beta: 0.5 k: 4',
        'type: "LRN" lrn_param { local_size: 3 alpha: 2 beta: 0.5 k: 4 }',
    ),
    (
        'type: "data" source: "s" scale: 0.5 meanfile: "m" batchsize: 8 cropsize: 6 mirror: true rand_skip: 3',
        'type: "Data" data_param { source: "s" batch_size: 8 rand_skip: 3 }'
        ' transform_param { scale: 0.5 mean_file: "m" crop_size: 6 mirror: true }',
    ),
    (
        'type: "images" source: "s" batchsize: 8 rand_skip: 3 shuffle_images: true new_height: 5 new_width: 6',
        'type: "ImageData" image_data_param { source: "s" batch_size: 8 rand_skip: 3 shuffle: true new_height: 5'
        " new_width: 6 }",
    ),
    (
        'type: "window_data" source: "s" batchsize: 8 det_fg_threshold: 0.75 det_bg_threshold: 0.125 det_fg_fraction: 1'
        ' det_context_pad: 4 det_crop_mode: "square"',
        'type: "WindowData" window_data_param { source: "s" batch_size: 8 fg_threshold: 0.75 bg_threshold: 0.125'
        ' fg_fraction: 1 context_pad: 4 crop_mode: "square" }',
    ),
    ('type: "hdf5_data" source: "s" batchsize: 8', 'type: "HDF5Data" hdf5_data_param { source: "s" batch_size: 8 }'),
    (
        'type: "hdf5_output" hdf5_output_param { file_name: "o" }',
        'type: "HDF5Output" hdf5_output_param { file_name: "o" }',
    ),
    ('type: "infogain_loss" source: "s"', 'type: "InfogainLoss" infogain_loss_param { source: "s" }'),
    ('type: "concat" concat_dim: 0', 'type: "Concat" concat_param { concat_dim: 0 }'),
]


@pytest.mark.parametrize(("old", "new"), CASES, ids=[case[0].split('"')[1] for case in CASES])
def test_fields(old, new):
    same(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("accuracy", "Accuracy"),
        ("bnll", "BNLL"),
        ("euclidean_loss", "EuclideanLoss"),
        ("flatten", "Flatten"),
        ("im2col", "Im2col"),
        ("multinomial_logistic_loss", "MultinomialLogisticLoss"),
        ("relu", "ReLU"),
        ("sigmoid", "Sigmoid"),
        ("softmax", "Softmax"),
        ("softmax_loss", "SoftmaxWithLoss"),
        ("split", "Split"),
        ("tanh", "TanH"),
    ],
)
def test_types_without_settings(old, new):
    same(f'type: "{old}"', f'type: "{new}"')


@pytest.mark.parametrize(
    "old",
    ["new_num: 1", "new_channels: 2", "num_output: 3", "dropout_ratio: 0.5", "group: 2", 'source: "s"', "pool: MAX"],
)
def test_fields_without_a_place_are_notes(old):
    layer, notes = one(f'type: "relu" {old}')
    assert layer == net('layer { name: "l" type: "ReLU" bottom: "b" top: "t" }').layer[0]
    assert notes == [f'`{old.split(":")[0]}` has no meaning in layer "l" of type "relu" and is ignored']


PADDED = """
name: "n" input: "data" input_dim: [1, 1, 5, 5] force_backward: true
layers { bottom: "data" top: "p1" layer { name: "pad1" type: "padding" pad: 2 } }
layers { bottom: "p1" top: "c1" layer { name: "c1" type: "conv" pad: 9 } }
layers { bottom: "p1" top: "c2" layer { name: "c2" type: "pool" } }
layers { bottom: "c1" top: "p2" layer { name: "pad2" type: "padding" pad: 3 } }
layers { bottom: "p2" top: "c3" layer { name: "c3" type: "conv" } }
layers { bottom: "c1" bottom: "c3" top: "x" layer { name: "x" type: "concat" } }
"""


def test_padding_is_folded_into_every_reader():
    result = upgrade_net(net(PADDED))
    layers = result.message.layer
    assert [layer.name for layer in layers] == ["input", "c1", "c2", "c3", "x"]
    assert result.origins == (None, 1, 2, 4, 5)
    assert [list(layer.bottom) for layer in layers[1:]] == [["data"], ["data"], ["c1"], ["c1", "c3"]]
    assert [list(layers[1].convolution_param.pad), layers[2].pooling_param.pad] == [[2], 2]
    assert list(layers[3].convolution_param.pad) == [3]
    assert result.message.name == "n" and result.message.force_backward
    assert result.notes == ()


def test_padding_that_feeds_nothing_is_a_note():
    result = upgrade_net(net('layers { bottom: "d" top: "p" layer { name: "p" type: "padding" } }'))
    assert len(result.message.layer) == 0
    assert [(note.text, note.source) for note in result.notes] == [
        ('padding layer "p" feeds no layer and is dropped', 0)
    ]


PAD = 'layers { bottom: "d" top: "p" layer { name: "pad" type: "padding" pad: 1 } }'


@pytest.mark.parametrize(
    ("text", "source", "message"),
    [
        (PAD + 'layers { bottom: "p" layer { name: "r" type: "relu" } }', 1, '"pad" feeds a layer of type "relu"'),
        (PAD + 'layers { bottom: "p" bottom: "d" layer { type: "conv" } }', 1, "with 2 bottoms"),
        (PAD + 'layers { bottom: "p" layer { type: "padding" } }', 1, 'type "padding"'),
        (
            'layers { top: "p" layer { type: "padding" } } layers { bottom: "p" layer { type: "conv" } }',
            0,
            "this has 0 and 1",
        ),
        ('layers { layer { type: "relu" } } layers { name: "v1" type: RELU }', 1, "without `layer { }`"),
        (PAD + 'layers { bottom: "p" layer { type: "conv" } } layers { layer { type: "pol" } }', 2, '"pol"'),
        ('layers { layer { type: "images" new_height: -1 } }', 0, "-1"),
    ],
)
def test_errors_carry_the_index_in_the_file(text, source, message):
    with pytest.raises(UpgradeError, match=message) as caught:
        upgrade_net(net(text))
    assert caught.value.source == source


def test_only_some_fields_of_the_net_survive():
    result = upgrade_v0(net('layers { layer { type: "relu" } include {} } debug_info: true state { level: 1 }'))
    assert result.message == net("layers { type: RELU }")
    assert [(note.text, note.source) for note in result.notes] == [
        ("`state` is unknown to the first generation and ignored", None),
        ("`debug_info` is unknown to the first generation and ignored", None),
        ('`include` has no meaning in layer "" of type "relu" and is ignored', 0),
    ]


@pytest.mark.skipif(api_implementation.Type() == "python", reason="protobuf's pure Python refuses such strings")
def test_strings_that_are_not_utf8_survive():
    inner = b"\x0a\x02\xe9a" + b"\x12\x04relu"
    entry = bytes([0x0A, len(inner)]) + inner + b"\x12\x01\xff"
    result = upgrade_net(NetParameter.FromString(bytes([0x12, len(entry)]) + entry))
    assert (result.message.layer[0].name, result.message.layer[0].bottom[0]) == ("éa", "ÿ")
