"""Translate texts of forks: what is dropped, what is respelled, what stays an error; lines stay those of the file."""

import logging
import struct

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from pycaffe_lms.errors import CaffeError, PrototxtError, WeightsError
from pycaffe_lms.formats.prototxt.dialect_fields import IGNORED, REFUSED
from pycaffe_lms.formats.prototxt.dialects import may_name_c3d, translate
from pycaffe_lms.formats.prototxt.parser import parse_net, parse_solver
from pycaffe_lms.formats.prototxt.scanner import tokenize
from pycaffe_lms.formats.weights.blobproto import blobproto_to_array, load_blob
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.net_spec import layers as L
from pycaffe_lms.net_spec import params as P
from pycaffe_lms.proto import caffe_pb2
from pycaffe_lms.proto.caffe_pb2 import BlobProto, LayerParameter, NetParameter

ROOT = NetParameter.DESCRIPTOR

NVIDIA = """name: "n"
default_forward_type: FLOAT16  # half
global_grad_scale: 1000.; reduce_buckets: 3, eltwise_mem_sharing: true
default_conv_algos_override: '-1,-1,-1'
layer {
  name: "bn" type: "BatchNorm" forward_type: FLOAT backward_math: FLOAT16
  batch_norm_param { scale_bias: true engine: CUDNN
    eps: 1e-4 }
}
layer { name: "c" type: "Convolution"
  convolution_param { num_output: 2 kernel_size: 1 cudnn_convolution_algo_seeker: FINDEX engine: CAFFE }
  forward_type: FLOAT
}
"""
INTEL = """engine: "MKLDNN"
multinode { model_parallel { layer_from: "a" num_nodes: 2 } }
layer { name: "c" type: "Convolution" engine: "MKL2017:MLSL,CAFFE"
  convolution_param { num_output: 2 kernel_size: 1 engine: MKL2017
    conv_algorithm: "auto" relu: false } }
layer { name: "r" type: "ReLU" relu_param { engine: MKLDNN fuse: false } }
"""


def messages(caplog):
    return [record.getMessage() for record in caplog.records]


def test_fields_without_effect_are_dropped_once_each_with_their_place(caplog):
    parsed = parse_net(NVIDIA, "f")
    assert parsed.message == text_format.Parse(
        """name: "n"
        layer { name: "bn" type: "BatchNorm" batch_norm_param { scale_bias: true eps: 1e-4 } }
        layer { name: "c" type: "Convolution" convolution_param { num_output: 2 kernel_size: 1 engine: CAFFE } }""",
        NetParameter(),
    )
    assert [parsed.lines.layer(k) for k in range(2)] == [5, 10]
    said = messages(caplog)
    nothing = "has no effect here and is ignored"
    assert f"f:3: eltwise_mem_sharing (NVIDIA Caffe) {nothing}" in said
    assert f"f:6: forward_type (NVIDIA Caffe) {nothing}, 2 times; numbers are stored and computed in float" in said
    assert [text.split()[:2] for text in said] == [
        ["f:2:", "default_forward_type"],
        ["f:3:", "global_grad_scale"],
        ["f:3:", "reduce_buckets"],
        ["f:3:", "eltwise_mem_sharing"],
        ["f:4:", "default_conv_algos_override"],
        ["f:6:", "forward_type"],
        ["f:6:", "backward_math"],
        ["f:7:", "engine"],
        ["f:11:", "cudnn_convolution_algo_seeker"],
    ]
    assert all(record.levelno == logging.WARNING for record in caplog.records)


def test_engines_of_intel(caplog):
    message = parse_net(INTEL).message
    assert message == text_format.Parse(
        """layer { name: "c" type: "Convolution" convolution_param { num_output: 2 kernel_size: 1 } }
        layer { name: "r" type: "ReLU" relu_param { } }""",
        NetParameter(),
    )
    assert messages(caplog)[0] == "line 1: engine (Intel Caffe) has no effect here and is ignored, 4 times"


def test_older_layers_and_inline_nets_too(caplog):
    old = 'layers { name: "a" type: POOLING engine: "CAFFE"\n pooling_param { engine: MKL2017 kernel_size: 2 } }'
    assert parse_net("version: 1\n" + old).message.layer[0].pooling_param.kernel_size == 2
    solver = 'larc_turbo: false\nnet_param {\n layer { name: "a" debug: true }\n layer { name: "b" } }\nbase_lr: 1'
    parsed = parse_solver(solver, "s")
    assert [layer.name for layer in parsed.message.net_param.layer] == ["a", "b"]
    assert parsed.lines.net("net_param").fields["layer"] == (3, 4) and parsed.lines.field("base_lr") == 5
    assert messages(caplog)[-2:] == [
        "s:1: larc_turbo (NVIDIA Caffe) has no effect here and is ignored; at false it changes nothing",
        "s:3: debug (NVIDIA Caffe) has no effect here and is ignored",
    ]


def test_a_list_of_devices_is_its_first(caplog):
    assert parse_solver("device_id: [3, 4]\nbase_lr: 1", "s").message.device_id == 3
    assert messages(caplog) == [
        "s:1: device_id (yjxiong's Caffe) has no effect here and is ignored; "
        "only the first is taken; -gpu 0,1 trains on several"
    ]


def test_a_text_without_forks_fields_is_not_touched(caplog):
    text = 'name: "x" # eltwise_mem_sharing: true\nlayer { name: "engine: MKL" relu_param { engine: CUDNN } }'
    same, missing = translate(text, ROOT)
    assert same is text and not missing
    assert not caplog.records


POOL = "layer {{ pooling_param {{ {} }} }}"
RESPELLED = [
    ("kernel_size: 2 kernel_size: 3 kernel_size: 4", "kernel_shape { dim: [2, 3, 4] }"),
    (
        "kernel_size: [2, 3], stride: 2; stride: 1, pad: 1",
        "kernel_shape { dim: [2, 3] } stride_shape { dim: [2, 1] } pad: 1",
    ),
    ("kernel_size: 2 pool: AVE kernel_size: 3", "kernel_shape { dim: [2, 3] } pool: AVE"),
    ("kernel_size_3d: 2 stride_3d: [1, 2, 2]", "kernel_shape { dim: 2 } stride_shape { dim: [1, 2, 2] }"),
    ("kernel_size: 2 kernel_depth: 1 stride: 3", "kernel_shape { dim: [1, 2, 2] } stride_shape { dim: [1, 3, 3] }"),
    (
        "kernel_depth: 3\nkernel_size: 2\ntemporal_stride: 4\npad: 1",
        "kernel_shape { dim: [3, 2, 2] } stride_shape { dim: [4, 1, 1] } pad_shape { dim: [0, 1, 1] }",
    ),
    ("kernel_size: 3 stride: 2", "kernel_size: 3 stride: 2"),
    ("kernel_shape { dim: 1 }", "kernel_shape { dim: 1 }"),
]


@pytest.mark.parametrize(("written", "meant"), RESPELLED)
def test_windows_with_a_value_per_axis(written, meant):
    expected = text_format.Parse(POOL.format(meant), NetParameter())
    assert parse_net(POOL.format(written)).message == expected


def test_layers_of_c3d():
    text = """layer { name: "c" type: "Convolution3D"
      convolution_param { num_output: 2 kernel_size: 3 kernel_depth: 1 pad: 1 temporal_pad: 0 } }
    layer { name: "p" type: 'Pooling3D' }"""
    conv, pool = parse_net(text).message.layer
    assert (conv.type, pool.type) == ("Convolution", "Pooling")
    assert list(conv.convolution_param.kernel_shape.dim) == [1, 3, 3]
    assert list(conv.convolution_param.pad_shape.dim) == [0, 1, 1]
    assert not conv.convolution_param.HasField("stride_shape") and not conv.convolution_param.kernel_size


def test_the_messages_of_c3d_in_both_generations():
    new = """layer { name: "p" type: "Pooling3D"
      pooling3d_param { pool: MAX kernel_size: 2 kernel_depth: 1 engine: CAFFE } }
    layer { name: "n" convolution3d_param { num_output: 3 kernel_size: 3 kernel_depth: 2 } type: "Convolution3D" }"""
    old = (
        new.replace("layer {", "layers {")
        .replace('"Pooling3D"', "POOLING3D")
        .replace('"Convolution3D"', "CONVOLUTION3D")
    )
    for text in (new, old):
        parsed = parse_net(text)
        pool, conv = parsed.message.layer
        assert (pool.type, conv.type) == ("Pooling", "Convolution")
        assert [parsed.lines.layer(k) for k in range(2)] == [1, 3]
        assert list(pool.pooling_param.kernel_shape.dim) == [1, 2, 2]
        assert list(conv.convolution_param.kernel_shape.dim) == [2, 3, 3] and conv.convolution_param.num_output == 3


def test_windows_in_python():
    top = L.Pooling(L.Input(), kernel_size=[1, 2, 2], stride=np.array([1, 2, 2]), pad=0, pool=P.Pooling.AVE)
    pool = top.to_proto().layer[1].pooling_param
    assert (
        str(pool).split()
        == str(
            caffe_pb2.PoolingParameter(
                pool=P.Pooling.AVE, kernel_shape={"dim": [1, 2, 2]}, stride_shape={"dim": [1, 2, 2]}, pad=0
            )
        ).split()
    )
    nested = L.Pooling(L.Input(), pooling_param={"kernel_size": (2, 3)}).to_proto().layer[1].pooling_param
    assert list(nested.kernel_shape.dim) == [2, 3]
    assert list(L.Convolution(L.Input(), kernel_size=[1, 2]).to_proto().layer[1].convolution_param.kernel_size) == [
        1,
        2,
    ]


HEAD = 'name: "n"\neltwise_mem_sharing: true layer {\n  name: "c1"\n  type: "Pooling"\n'
PLACE = 'f:{}: layer "c1" (Pooling): '
WRONG = [
    # text, line, the rest
    (
        HEAD + "engine: MKL2017\n trt_param { } }",
        6,
        'LayerParameter has no field "trt_param": it belongs to NVIDIA Caffe\n'
        '  fix: delete it if the layer does not need it, or write a "Python" layer',
    ),
    (
        HEAD + "pooling_param { torch_pooling: false\n torch_pooling: true } }",
        6,
        'PoolingParameter has no field "torch_pooling": it belongs to NVIDIA Caffe (not supported: '
        "a field of that name)\n"
        "  fix: write round_mode: FLOOR",
    ),
    (
        HEAD + "convolution_param { relu: false\n relu: true } }",
        6,
        'ConvolutionParameter has no field "relu": it belongs to Intel Caffe (not supported: '
        "a ReLU inside this layer)\n"
        '  fix: write a layer of type "ReLU" after it',
    ),
    (
        HEAD + "mvn_param { add_eps_before_sqrt: false\n add_eps_before_sqrt: true } }",
        6,
        'MVNParameter has no field "add_eps_before_sqrt": it belongs to Synopsys Caffe (not supported: '
        "eps inside of the root)\n  fix: delete it",
    ),
    (
        HEAD + "norm_param { add_eps_before_sqrt: true\n add_eps_before_sqrt: false } }",
        6,
        'NormalizeParameter has no field "add_eps_before_sqrt": it belongs to Synopsys Caffe (not supported: '
        "eps outside of the root)\n  fix: delete it",
    ),
    (
        HEAD + "detection_output_param { tflite_detection: false ratio_permute: false\n ratio_permute: true } }",
        6,
        'DetectionOutputParameter has no field "ratio_permute": it belongs to Synopsys Caffe (not supported: '
        "maps of that order)\n  fix: write no_permute, or flatten the maps as SSD does",
    ),
    (
        HEAD + "transform_param { pad: 0\n flow: true } }",
        6,
        'TransformationParameter has no field "flow": it belongs to Intel Caffe '
        "(not supported: this change of "
        "pictures)\n  fix: make it when the data is made, or feed it from Python",
    ),
    (
        HEAD + "pooling_param { kernel_size: 2\n kernel_size: 2.5 } }",
        6,
        "2.5 is not an integer\n  fix: write a whole number",
    ),
    (
        HEAD + "pooling_param { kernel_size: 2 kernel_size: 2 kernel_size: 2\n strid: 2 } }",
        6,
        'PoolingParameter has no field "strid"\n  fix: did you mean "stride"?',
    ),
    (
        HEAD + "pooling_param { engine: MKL2017\n engine: MLK } }",
        6,
        "MLK is not a value of Engine\n  fix: write one of DEFAULT, CAFFE, CUDNN",
    ),
    (HEAD + "forward_type: FLOAT\n nam: 1 }", 6, 'LayerParameter has no field "nam"\n  fix: did you mean "name"?'),
]


@pytest.mark.parametrize(("text", "line", "rest"), WRONG)
def test_what_changes_results_is_an_error_at_its_place(text, line, rest):
    with pytest.raises(PrototxtError) as caught:
        parse_net(text, "f")
    assert str(caught.value) == PLACE.format(line) + rest


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "stepearly: 1",
            'line 1: SolverParameter has no field "stepearly".*which no Caffe ever had(.|\\n)*"plateau" or "multistep"',
        ),
        (
            "larc_turbo: true",
            'line 1: SolverParameter has no field "larc_turbo": it belongs to NVIDIA Caffe .not supported: a rate',
        ),
        (
            "net_param { reduce_buckets: {\n",
            "line 1: .* belongs to NVIDIA Caffe, but this is no value of it",
        ),
        ("eltwise_mem_sharing: true", 'line 1: SolverParameter has no field "eltwise_mem_sharing"'),
    ],
)
def test_wrong_solvers(text, message):
    with pytest.raises(PrototxtError, match=message):
        parse_solver(text)


@pytest.mark.parametrize("text", ["reduce_buckets: layer { }", "reduce_buckets:", "reduce_buckets: {", "engine"])
def test_a_field_without_its_value_is_not_dropped(text):
    with pytest.raises(PrototxtError):
        parse_net(text)


def test_the_tables_name_messages_and_have_no_field_twice():
    known = caffe_pb2.DESCRIPTOR.message_types_by_name
    assert set(IGNORED) <= set(known) and set(REFUSED) <= set(known)
    for message, ignored in IGNORED.items():
        assert not set(ignored) & set(REFUSED.get(message, ()))


ATOMS = [
    "layer",
    "{",
    "}",
    "<",
    ">",
    ":",
    "[",
    "]",
    ",",
    ";",
    '"a"',
    "\n",
    "eltwise_mem_sharing: true",
    "engine",
    "MKL2017",
    "pooling_param",
    "kernel_size",
    "kernel_size: 2",
    "kernel_depth: 1",
    "stride",
    "2",
    "multinode",
    "type",
    '"Pooling3D"',
    "[]",
    "\ud800",
    "engine: MKL2017 \ud800",
    "pooling3d_param",
    "relu: false",
    "# x",
    "name",
    "\r",
    "\u2028",
]


@given(st.lists(st.sampled_from(ATOMS), max_size=25).map(" ".join))
def test_any_text_keeps_its_lines(text):
    new, _ = translate(text, ROOT)
    assert new.count("\n") == text.count("\n")
    assert {token.line for token in tokenize(new)} <= set(range(1, text.count("\n") + 2))
    if new != text and not may_name_c3d(text):
        with pytest.raises(text_format.ParseError):
            text_format.Parse(text, NetParameter())
    try:
        parse_net(text)
    except CaffeError as error:
        assert error.message


# Binary files


def field(number: int, payload: bytes) -> bytes:
    """A field of bytes in wire format."""

    def varint(value):
        return bytes([value & 127 | 128]) + varint(value >> 7) if value > 127 else bytes([value])

    return varint(number << 3 | 2) + varint(len(payload)) + payload


BLOB = BlobProto(shape={"dim": [2]}, data=[3, 4])
LAYER = LayerParameter(name="l", type="T", blobs=[BLOB]).SerializeToString()
FOREIGN = {
    "forward_type and its kin (NVIDIA)": b"".join(bytes([n << 3 & 127 | 128, n >> 4, 2]) for n in (145, 146, 147, 148)),
    "smooth_l1_loss_param (Intel), our clip_param": field(148, b"\x0d" + struct.pack("<f", 1)),
    "interp_param (DeepLab), our input_param": field(143, b"\x08\x05\x18\x08"),
    "a string where we have a message": field(148, b"hello"),
    "bytes where we have a message": field(202, b"\xff\xff\xff"),
    "engine (Intel)": field(149, b"MKLDNN"),
}


@pytest.mark.parametrize("extra", FOREIGN.values(), ids=FOREIGN.keys())
def test_numbers_that_mean_something_else_to_us_do_not_hide_weights(tmp_path, extra):
    path = tmp_path / "n.caffemodel"
    path.write_bytes(field(1, b"n") + field(100, LAYER + extra) + field(100, LAYER))
    first, second = read_weights(path)
    assert (first.name, first.type, second.name) == ("l", "T", "l")
    assert first.blobs[0].data.tolist() == second.blobs[0].data.tolist() == [3, 4]


def test_fields_of_forks_nets(tmp_path):
    path = tmp_path / "n.caffemodel"
    path.write_bytes(b"\x58\x02\x7d" + struct.pack("<f", 1000) + field(9, b"MKL2017") + field(100, LAYER))
    assert read_weights(path)[0].blobs[0].data.tolist() == [3, 4]


VALUES = np.array([[1, -2.5, 3e-4], [30000, np.inf, 0]])


@pytest.mark.parametrize(("kind", "dtype"), [("DOUBLE", "<f8"), ("FLOAT", "<f4"), ("FLOAT16", "<f2")])
def test_raw_values(tmp_path, kind, dtype):
    stored = VALUES.astype(dtype)
    # NVIDIA's numbers: 10 the type of the data, 12 the data, 11 and 13 the same for the diff
    code = {"DOUBLE": 0, "FLOAT": 1, "FLOAT16": 2}[kind]
    shape = field(7, field(1, b"\x02\x03"))
    raw = (
        bytes([10 << 3, code, 11 << 3, code]) + field(12, stored.tobytes()) + field(13, (stored * 2).tobytes()) + shape
    )
    path = tmp_path / "n.caffemodel"
    path.write_bytes(field(100, field(1, b"l") + field(2, b"T") + field(7, raw)))
    (blob,) = read_weights(path)[0].blobs
    assert blob.data.dtype == (np.float64 if kind == "DOUBLE" else np.float32) and blob.shape == (2, 3)
    np.testing.assert_array_equal(blob.data, stored)
    np.testing.assert_array_equal(blob.diff, stored * 2)
    blob.data[0, 0] = 7  # not a view of the file
    assert blobproto_to_array(BlobProto.FromString(raw))[0, 0] == 1


def test_raw_values_count_only_where_nothing_else_is():
    raw = {"raw_data_type": BlobProto.FLOAT, "raw_data": np.float32([9]).tobytes(), "shape": {"dim": [1]}}
    assert load_blob(BlobProto(**raw)).data.tolist() == [9]
    assert load_blob(BlobProto(data=[5], **raw)).data.tolist() == [5]
    assert load_blob(BlobProto(double_data=[6], **raw)).data.tolist() == [6]
    assert load_blob(BlobProto(**raw)).diff is None


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        ({"raw_data_type": BlobProto.FLOAT16}, r"shape \(2,\) needs 2 values, the file has 4 in `raw_data`"),
        ({"raw_data_type": BlobProto.DOUBLE}, r"needs 2 values, the file has 1 in `raw_data`"),
        ({"raw_data_type": BlobProto.INT}, "`raw_data` of which `raw_data_type` is INT"),
        ({}, "`raw_data` of which `raw_data_type` is not there"),
        ({"raw_data_type": BlobProto.FLOAT, "raw_data": b"12345"}, "the file has 1.25 in `raw_data`"),
    ],
)
def test_raw_values_that_do_not_fit(blob, message):
    with pytest.raises(WeightsError, match=message):
        load_blob(BlobProto(**{"raw_data": b"12345678", "shape": {"dim": [2]}, **blob}))


def test_a_type_without_a_value():
    with pytest.raises(CaffeError, match=r"line 1: layer \"a\": \[ is not a value of LayerType"):
        parse_net('layers { name: "a" type: [] }')
