"""`-set FIELD=VALUE`: what it overrides, how it is typed and logged, and what it says of a slip."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import UsageError
from pycaffe_lms.formats.prototxt.overrides import override_net, override_solver
from pycaffe_lms.formats.prototxt.parser import parse_net, read_solver
from pycaffe_lms.proto.caffe_pb2 import PoolingParameter, SolverParameter

NET = """name: "small"
layer { name: "data" type: "DummyData" top: "data" top: "label" include { phase: TRAIN }
  dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 } } }
layer { name: "data" type: "DummyData" top: "data" top: "label" include { phase: TEST }
  dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
layer { name: "res.ip" type: "InnerProduct" bottom: "data" top: "ip" param { lr_mult: 1 } param { lr_mult: 2 }
  inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """net: "net.prototxt"
base_lr: 0.1
lr_policy: "fixed"
max_iter: 2
test_iter: 1
test_interval: 2
snapshot_prefix: "s"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)


def net(*given):
    return override_net(parse_net(NET, "net.prototxt"), given).message


def solver(*given):
    return override_solver(read_solver("solver.prototxt"), given)


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ("base_lr=0.001", "base_lr", pytest.approx(0.001)),
        ("max_iter=7", "max_iter", 7),
        ("lr_policy=multistep", "lr_policy", "multistep"),
        ("stepvalue=10,20", "stepvalue", [10, 20]),
        ("solver_mode=gpu", "solver_mode", SolverParameter.GPU),
        ("debug_info=true", "debug_info", True),
        ("snapshot_prefix=a b/c=d", "snapshot_prefix", "a b/c=d"),
        ("clip_gradients=1e-2", "clip_gradients", pytest.approx(0.01)),
        ("train_state.level=3", None, 3),
        ("test_iter=5", "test_iter", [5]),
    ],
)
def test_a_value_has_the_type_of_the_solvers_field(given, field, value):
    found = solver(given).message
    assert (getattr(found, field) if field else found.train_state.level) == value


def test_fields_of_layers():
    found = net(
        "layer.res.ip.inner_product_param.num_output=9",
        "layer.res.ip.param.1.lr_mult=0",
        "layer.data.dummy_data_param.shape.0.dim=8,3",
        "layer.loss.pooling_param.pool=ave",
        "force_backward=1",
    )
    train, test, ip, loss = found.layer
    assert ip.inner_product_param.num_output == 9 and [p.lr_mult for p in ip.param] == [1, 0]
    assert [list(x.dummy_data_param.shape[0].dim) for x in (train, test)] == [[8, 3], [8, 3]]
    assert loss.pooling_param.pool == PoolingParameter.AVE and found.force_backward


def test_each_is_logged_with_its_place(caplog):
    caplog.set_level(logging.INFO)
    net("layer.data.dummy_data_param.shape.1.dim=9")
    solver("base_lr=0.02", "iter_size=2")
    assert caplog.messages == [
        "-set layer.data.dummy_data_param.shape.1.dim: 9, was 4 (net.prototxt:2)",
        "-set layer.data.dummy_data_param.shape.1.dim: 9, was 2 (net.prototxt:4)",
        "-set base_lr: 0.02, was 0.1 (solver.prototxt)",
        "-set iter_size: 2, was not set (solver.prototxt)",
    ]


def test_of_a_solver_the_nets_are_read_and_keep_their_file_and_lines():
    found = solver("layer.res.ip.inner_product_param.num_output=9")
    assert not found.message.HasField("net") and found.message.net_param.layer[2].inner_product_param.num_output == 9
    lines = found.lines.net("net_param")
    assert lines.file == "net.prototxt" and lines.layer(2) == 6


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("base_lrr=1", "the solver has no field 'base_lrr'; did you mean base_lr?"),
        ("res.ip=1", "the net has no field 'res'"),
        ("loss.loss_weight=1", "the net has no field 'loss'; did you mean layer.loss?"),
        ("layer.los.loss_weight=1", "no layer has this name; did you mean layer.loss?"),
        (
            "layer.res.ip.num_output=3",
            "the layer has no field 'num_output'; did you mean inner_product_param.num_output?",
        ),
        ("layer.res.ip.inner_product_param.num_outputs=3", "did you mean num_output?"),
        ("layer.res.ip=3", "names a layer, but no field of it"),
        ("layer.res.ip.param.2.lr_mult=3", "'2' is no element of param, it has 2"),
        ("layer.res.ip.param=3", "param is a message"),
        ("base_lr.x=3", "base_lr is no message"),
        ("max_iter=1.5", "max_iter takes a whole number"),
        ("max_iter=99999999999", "max_iter takes a whole number"),
        ("base_lr=fast", "base_lr takes a number"),
        ("base_lr=1 max_iter: 3", "base_lr takes a number"),
        ("debug_info=2", "debug_info takes true or false"),
        ("solver_mode=TPU", "solver_mode takes one of CPU, GPU"),
        ("base_lr", "is not FIELD=VALUE"),
        ("=3", "is not FIELD=VALUE"),
    ],
)
def test_slips(given, words):
    with pytest.raises(UsageError) as error:
        solver(given)
    assert words in str(error.value) and str(error.value).startswith("-set ")


def test_a_solvers_field_for_a_net_alone():
    with pytest.raises(UsageError, match="base_lr is a field of a solver"):
        net("base_lr=1")


def test_train_and_test_obey(capsys):
    changes = ["-set", "max_iter=3", "-set", "layer.res.ip.inner_product_param.num_output=6", "-backend", "cpu"]
    assert main(["train", "solver.prototxt", *changes]) == 0
    log = capsys.readouterr().err
    assert "Creating training net specified in net_param (file net.prototxt)" in log
    assert "s_iter_3.caffemodel" in log and "Top shape: 4 6 (24)" in log
    scored = ["test", "net.prototxt", "-weights", "s_iter_3.caffemodel", "-iterations", "1", "-backend", "cpu"]
    assert main(scored) == 1  # the net of the file has other shapes
    assert main([*scored, *changes[2:4]]) == 0


def test_an_error_in_a_layer_that_was_changed_names_the_nets_file(capsys):
    assert main(["train", "solver.prototxt", "-set", "layer.res.ip.inner_product_param.num_output=0"]) == 1
    assert 'net.prototxt:6: layer "res.ip"' in capsys.readouterr().err


def test_plan_and_time_obey(capsys):
    batch = [
        "-set",
        "layer.data.dummy_data_param.shape.0.dim=16,3",
        "-set",
        "layer.data.dummy_data_param.shape.1.dim=16",
    ]
    assert main(["time", "net.prototxt", *batch, "-iterations", "1", "-backend", "cpu"]) == 0
    assert "Top shape: 16 5 (80)" in capsys.readouterr().err
    assert main(["plan", "net.prototxt", *batch, "-json", "plan.json"]) == 0
    assert main(["plan", "solver.prototxt", *batch, "-json", "of_solver.json"]) == 0
    assert [json.loads(Path(name).read_text())["batch"] for name in ("plan.json", "of_solver.json")] == [16, 16]
