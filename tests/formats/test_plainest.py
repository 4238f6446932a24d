"""Forks' spellings in BVLC's words: the same net, the same numbers, and nothing left to change."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import PrototxtError
from pycaffe_lms.formats.prototxt.parser import parse_net, read_net
from pycaffe_lms.formats.prototxt.plainest import write_plainly
from pycaffe_lms.net.net import Net
from pycaffe_lms.proto.caffe_pb2 import LayerParameter, NetParameter
from tests.shared_data import SHARED, needs_shared

from .test_dialects import INTEL, NVIDIA

ROOT = Path(__file__).resolve().parents[2]
TEST = 1


def shaped(name: str, *values: int) -> str:
    return f"{name}_shape {{ {' '.join(f'dim: {v}' for v in values)} }}"


# (a layer as forks write it, the same in BVLC's words)
FORKS = [
    (
        'type: "NdConvolution" convolution_param { num_output: 3 '
        f"{shaped('kernel', 2, 3)} {shaped('stride', 2, 2)} }}",
        'type: "Convolution" convolution_param { num_output: 3 kernel_size: 2 kernel_size: 3 stride: 2 }',
    ),
    (
        f'type: "Deconvolution" convolution_param {{ num_output: 3 {shaped("kernel", 3)} {shaped("pad", 0, 1)} }}',
        'type: "Deconvolution" convolution_param { num_output: 3 kernel_size: 3 pad: 0 pad: 1 }',
    ),
    (
        'type: "NdPooling" pooling_param { pool: AVE ceil_mode: false '
        f"{shaped('kernel', 3, 2)} {shaped('pad', 1, 1)} }}",
        'type: "Pooling" pooling_param { pool: AVE kernel_h: 3 kernel_w: 2 pad: 1 round_mode: FLOOR }',
    ),
    (
        'type: "Pooling" pooling_param { kernel_size: 2 stride: 2 ceil_mode: true }',
        'type: "Pooling" pooling_param { kernel_size: 2 stride: 2 round_mode: CEIL }',
    ),
    (
        'type: "Pooling" pooling_param { kernel_size: 2 stride: 2 ceil_mode: false round_mode: FLOOR }',
        'type: "Pooling" pooling_param { kernel_size: 2 stride: 2 round_mode: FLOOR }',
    ),
]
# contradictions, of which there is no plainer form
KEPT = [
    'type: "Pooling" pooling_param { kernel_size: 2 ceil_mode: false round_mode: CEIL }',
    f'type: "Pooling" pooling_param {{ kernel_size: 2 {shaped("kernel", 3, 3)} }}',
    f'type: "Convolution" convolution_param {{ num_output: 1 kernel_h: 1 kernel_w: 1 {shaped("kernel", 3, 3)} }}',
    f'type: "Pooling" pooling_param {{ {shaped("kernel", 1, 2, 3)} }}',  # three axes, which BVLC's Pooling lacks
]


def layer(text: str) -> LayerParameter:
    return text_format.Parse(f'name: "l" bottom: "x" top: "y" {text}', LayerParameter())


@pytest.mark.parametrize(("theirs", "ours"), FORKS)
def test_the_plainest_form_is_the_same_layer(theirs, ours):
    changed, outputs = layer(theirs), []
    assert write_plainly(changed) and changed == layer(ours)
    assert write_plainly(changed) == []
    for one in (layer(theirs), changed):
        message = NetParameter(layer=[one])
        message.layer.insert(0, LayerParameter(name="x", type="Input", top=["x"]))
        message.layer[0].input_param.shape.add(dim=[2, 3, 7, 6])
        net = Net(message, TEST, seed=1)
        rng = np.random.default_rng(0)
        for blob in (*net.learnable_params, net.blobs["x"]):
            blob.data = rng.normal(size=blob.shape)
        net.forward_range()
        outputs.append(net.blobs["y"].data.copy())
    assert outputs[0].shape == outputs[1].shape and outputs[0].tobytes() == outputs[1].tobytes()


@pytest.mark.parametrize("text", KEPT)
def test_what_has_no_plainer_form_stays(text):
    one = layer(text)
    assert write_plainly(one) == [] and one == layer(text)


def test_the_log_names_each_change_with_its_line(tmp_path, capfd):
    source = tmp_path / "fork.prototxt"
    source.write_text(
        'layer { name: "x" type: "Input" top: "x" }\n' + 'layer { name: "l" bottom: "x" top: "y"\n'
        'forward_type: FLOAT16 type: "Pooling" pooling_param { kernel_size: 2 ceil_mode: false } }\n'
    )
    assert main(["upgrade_net_proto_text", str(source), str(tmp_path / "plain")]) == 0
    said = capfd.readouterr().err
    assert f"{source}:3: forward_type (NVIDIA Caffe) has no effect here and is ignored" in said
    assert f'{source}:2: layer "l"' in said
    assert "written plainly: ceil_mode: false is round_mode: FLOOR" in said
    assert "ceil_mode" not in (tmp_path / "plain").read_text()


def plainly(text: str) -> str:
    """The text that the command writes."""
    message = parse_net(text, "f").message
    for one in message.layer:
        write_plainly(one)
    return text_format.MessageToString(message)


C3D = """layers { name: "c" type: CONVOLUTION3D bottom: "x" top: "c"
  convolution_param { num_output: 2 kernel_size: 3 kernel_depth: 2 pad: 1 temporal_pad: 0 } }
layers { name: "p" type: POOLING3D bottom: "c" top: "p"
  pooling_param { kernel_size: 2 kernel_depth: 1 stride: 2 temporal_stride: 1 } }
"""


@pytest.mark.parametrize("text", [NVIDIA, INTEL, C3D], ids=["NVIDIA", "Intel", "C3D"])
def test_forks_texts_are_read_again_as_the_same_net(text):
    once = plainly(text)
    assert text_format.Parse(once, NetParameter()) == parse_net(once).message  # nothing of a fork's language is left
    assert plainly(once) == once


def test_windows_of_c3d():
    written = parse_net(plainly(C3D)).message.layer
    assert list(written[0].convolution_param.kernel_size) == [2, 3, 3]
    assert list(written[0].convolution_param.pad) == [0, 1, 1]
    assert list(written[1].pooling_param.kernel_shape.dim) == [1, 2, 2]


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("path", sorted((SHARED / "material").rglob("*.prototxt")), ids=lambda p: p.parent.name)
def test_real_files_are_read_again_as_the_same_net(path, caplog):
    caplog.set_level(logging.WARNING)
    try:
        before = read_net(path).message
    except PrototxtError as error:
        assert error.fix  # a field of a fork that nothing here has
        return
    once = plainly(path.read_text(errors="replace"))
    caplog.clear()
    again = parse_net(once)
    assert not caplog.records  # nothing more to drop
    assert [(n.name, list(n.bottom), list(n.top)) for n in again.message.layer] == [
        (n.name, list(n.bottom), list(n.top)) for n in before.layer
    ]
    assert plainly(once) == once
