"""upgrade_net_proto_text, upgrade_net_proto_binary and upgrade_solver_proto_text."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

from pycaffe_lms.cli.main import main
from pycaffe_lms.proto.caffe_pb2 import NetParameter, SolverParameter
from tests.shared_data import SHARED, needs_shared

from .command import caffe, complaint

pytestmark = pytest.mark.pure

V1 = """
name: "old" input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "conv" type: CONVOLUTION bottom: "data" top: "conv" blobs_lr: 1 blobs_lr: 2 weight_decay: 0.5
  convolution_param { num_output: 4 kernel_size: 3 } }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "conv" bottom: "data" top: "loss" }
"""
NEW = """
name: "old"
layer { name: "input" type: "Input" top: "data" input_param { shape { dim: 1 dim: 3 dim: 8 dim: 8 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" param { lr_mult: 1 decay_mult: 0.5 }
  param { lr_mult: 2 } convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "conv" bottom: "data" top: "loss" }
"""


def test_a_net_of_the_second_generation(tmp_path):
    (tmp_path / "old.prototxt").write_text(V1)
    done = caffe("upgrade_net_proto_text", "old.prototxt", "new.prototxt", cwd=tmp_path)
    assert done.code == 0 and done.log == ["Wrote upgraded text proto to new.prototxt"]
    new = text_format.Parse((tmp_path / "new.prototxt").read_text(), NetParameter())
    assert new == text_format.Parse(NEW, NetParameter())
    assert (tmp_path / "old.prototxt").read_text() == V1


def test_what_is_new_already_is_written_too(tmp_path, capfd):
    (tmp_path / "a").write_text(NEW)
    assert main(["upgrade_net_proto_text", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    assert f"File already in latest proto format: {tmp_path / 'a'}\n" in capfd.readouterr().err
    assert text_format.Parse((tmp_path / "b").read_text(), NetParameter()) == text_format.Parse(NEW, NetParameter())


def test_a_binary_net_keeps_its_weights(tmp_path, capfd):
    old = text_format.Parse(V1, NetParameter())
    old.layers[0].blobs.add(num=1, channels=1, height=1, width=4, data=[1, 2, 3, 4])
    (tmp_path / "old").write_bytes(old.SerializeToString())
    assert main(["upgrade_net_proto_binary", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    assert "already" not in capfd.readouterr().err
    new = NetParameter.FromString((tmp_path / "new").read_bytes())
    assert list(new.layer[1].blobs[0].data) == [1, 2, 3, 4]
    del new.layer[1].blobs[:]
    assert new == text_format.Parse(NEW, NetParameter())


def test_a_solver(tmp_path):
    (tmp_path / "old").write_text("solver_type: ADAM base_lr: 0.1\n# a comment\nnet_param {" + V1 + "}")
    assert main(["upgrade_solver_proto_text", str(tmp_path / "old"), str(tmp_path / "new")]) == 0
    new = text_format.Parse((tmp_path / "new").read_text(), SolverParameter())
    assert new.type == "Adam" and not new.HasField("solver_type") and new.base_lr == pytest.approx(0.1)
    assert new.net_param == text_format.Parse(NEW, NetParameter())


def test_wrong_input(tmp_path):
    (tmp_path / "bad").write_text("layers { name: 'x'\n  typo: 3 }")
    message, _ = complaint(caffe("upgrade_net_proto_text", "bad", "new", cwd=tmp_path), 1)
    assert message.startswith("bad:2:") and "typo" in message
    message, _ = complaint(caffe("upgrade_net_proto_binary", "bad", "new", cwd=tmp_path), 1)
    assert message.startswith("bad: not a binary net")
    message, _ = complaint(caffe("upgrade_solver_proto_text", "bad", cwd=tmp_path), 2)
    assert "OUTPUT" in message
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad"]


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("generation", ["v0", "v1"])
def test_a_real_net_of_each_old_generation(generation, tmp_path, capfd):
    source = SHARED / "material" / "legacy" / f"imagenet_train_{generation}.prototxt"
    assert main(["upgrade_net_proto_text", str(source), str(tmp_path / "new")]) == 0
    assert "already" not in capfd.readouterr().err
    new = text_format.Parse((tmp_path / "new").read_text(), NetParameter())
    assert new.layer and not new.layers
    types = [layer.type for layer in new.layer]
    assert types.count("Convolution") == 5 and types.count("InnerProduct") == 3 and "SoftmaxWithLoss" in types
    assert main(["upgrade_net_proto_text", str(tmp_path / "new"), str(tmp_path / "again")]) == 0
    assert "already" in capfd.readouterr().err
    assert (tmp_path / "again").read_text() == (tmp_path / "new").read_text()
