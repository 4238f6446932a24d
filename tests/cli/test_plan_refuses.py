"""What `train` refuses before its first iteration, `plan` refuses too, with the same words."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb

from .nets import DATA_NET, NET, SOLVER, write

FILLER = 'weight_filler { type: "xavier" }'
SLIPS = {
    "an unknown filler": (FILLER, 'weight_filler { type: "xaver" }'),
    "a sparse filler that cannot be": (FILLER, 'weight_filler { type: "xavier" sparse: 2 }'),
    "a uniform filler without room": (FILLER, 'weight_filler { type: "uniform" min: 2 max: 1 }'),
    "a bias filler of a kernel": ("kernel_size: 3", 'kernel_size: 3 bias_filler { type: "bilinear" }'),
    "blobs of another shape": (
        'top: "ip"',
        'top: "ip" blobs { shape { dim: 2 } data: 1 data: 2 } blobs { shape { dim: 1 } data: 1 }',
    ),
    "a blob without its values": ('top: "ip"', 'top: "ip" blobs { shape { dim: 3 } }'),
    "too few blobs": ('top: "ip"', 'top: "ip" blobs { shape { dim: 1 } data: 1 }'),
    "an unknown layer": ('"ReLU"', '"Relu"'),
    "a kernel without room": ("kernel_size: 3", "kernel_size: 30"),
    "labels that do not fit": ("shape { dim: 4 } }", "shape { dim: 5 } }"),
    "parameters shared in another shape": (
        "num_output: 10",
        'num_output: 10 } param { name: "w" } } layer { name: "more" type: "InnerProduct" '
        'bottom: "ip" top: "more" param { name: "w" } inner_product_param { num_output: 3',
    ),
}

RATE, NONE = 'lr_policy: "fixed"', "snapshot_after_train: false"
TESTED = f"{NONE} test_iter: 1 test_interval: 1"
SOLVERS = {
    "an unknown policy": (RATE, 'lr_policy: "fixd"'),
    "no policy": (RATE, ""),
    "step without stepsize": (RATE, 'lr_policy: "step" gamma: 0.1'),
    "a negative gamma": (RATE, 'lr_policy: "exp" gamma: -1'),
    "an unknown type": (NONE, f'{NONE} type: "Sgd"'),
    "two types": (NONE, f'{NONE} type: "SGD" solver_type: SGD'),
    "a limit that is no number": (NONE, f"{NONE} clip_gradients: nan"),
    "a rate that is infinite": ("base_lr: 0.01", "base_lr: inf"),
    "a negative iter_size": (NONE, f"{NONE} iter_size: -1"),
    "no losses to average": (NONE, f"{NONE} average_loss: 0"),
    "a negative max_iter": ("max_iter: 2", "max_iter: -2"),
    "an unknown regularization": (NONE, f'{NONE} regularization_type: "L3"'),
    "momentum of AdaGrad": (NONE, f'{NONE} type: "AdaGrad" momentum: 0.9'),
    "momentum2 of Adam": (NONE, f'{NONE} type: "Adam" momentum2: 1'),
    "a field that is none": (NONE, f"{NONE} lr: 1"),
    "no train net": ('net: "net.prototxt"', ""),
    "two train nets": (NONE, f'{NONE} train_net: "net.prototxt"'),
    "a net that is not there": ("net.prototxt", "other.prototxt"),
    "test nets without an interval": (NONE, f"{NONE} test_iter: 1"),
    "more test nets than test_iter": (NONE, f'{NONE} test_net: "net.prototxt"'),
    "more states than test nets": (NONE, f"{TESTED} test_state {{ }} test_state {{ }}"),
    "a train net with a slip": (NONE, f'{NONE} train_state {{ stage: "slip" }}'),
    "a test net with a slip": (NONE, f'{TESTED} test_state {{ stage: "slip" }}'),
    "a test net in the file with a slip": (
        NONE,
        f'{TESTED} test_net_param {{ layer {{ name: "r" type: "Relu" bottom: "x" top: "y" }} }}',
    ),
}
SLIP = 'layer { name: "slip" type: "Relu" bottom: "ip" top: "slip" include { stage: "slip" } }\n'


def _said(argv, capsys):
    assert main(argv) == 1
    err = capsys.readouterr().err
    return err[err.index("error: ") :]


@pytest.mark.parametrize("change", SLIPS.values(), ids=SLIPS)
@pytest.mark.parametrize("lms", ["0", "auto"])
def test_nets(tmp_path, monkeypatch, capsys, change, lms):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, NET, change)
    write(tmp_path, SOLVER, name="solver.prototxt")
    trained = _said(["train", "-solver", "solver.prototxt", "-backend", "cpu"], capsys)
    assert trained.startswith("error: net.prototxt")
    assert _said(["plan", "-model", "net.prototxt", "-lms", lms], capsys) == trained
    assert _said(["summarize", "net.prototxt"], capsys) == trained


@pytest.mark.parametrize("fields", ["force_color: true force_gray: true", 'mean_file: "m" mean_value: 3'])
def test_settings_of_data_that_is_not_there(tmp_path, monkeypatch, capsys, fields):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, DATA_NET, ("data_param {", f"transform_param {{ {fields} }} data_param {{"))
    write(tmp_path, SOLVER, name="solver.prototxt")
    planned = _said(["plan", "-model", "net.prototxt", "-shape", "data=2,1,4,4"], capsys)
    write_lmdb(tmp_path / "db", [(b"0", encode_datum(np.zeros((1, 4, 4), np.uint8), 0))])
    assert _said(["train", "-solver", "solver.prototxt", "-backend", "cpu"], capsys) == planned
    assert "are both set" in planned and 'layer "data" (Data)' in planned


@pytest.mark.parametrize("change", SOLVERS.values(), ids=SOLVERS)
def test_solvers(tmp_path, monkeypatch, capsys, change):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, NET + SLIP)
    write(tmp_path, SOLVER, change, name="solver.prototxt")
    trained = _said(["train", "-solver", "solver.prototxt", "-backend", "cpu"], capsys)
    assert _said(["plan", "-solver", "solver.prototxt"], capsys) == trained


def test_a_solver_that_trains_is_planned(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, NET + SLIP)
    write(tmp_path, SOLVER, (NONE, f'{TESTED} snapshot_prefix: "new/x" type: "Adam"'), name="solver.prototxt")
    before = sorted(tmp_path.iterdir())
    numbers = {}
    for net in (["-solver", "solver.prototxt"], ["-model", "net.prototxt", "-solver_type", "Adam"]):
        argv = ["plan", *net, "-lms", "0", "-cache", "off", "-json", str(tmp_path / "plan.json")]
        assert main(argv) == 0
        numbers[net[0]] = json.loads((tmp_path / "plan.json").read_text())
        (tmp_path / "plan.json").unlink()
    assert sorted(tmp_path.iterdir()) == before  # nothing else is written
    assert numbers["-solver"].pop("model") == "solver.prototxt" and numbers["-model"].pop("model") == "net.prototxt"
    assert numbers["-solver"] == numbers["-model"]
    capsys.readouterr()


def test_shapes_go_to_the_nets_that_have_the_blob(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, DATA_NET)
    tested = DATA_NET.replace('"data"', '"images"').replace(
        "num_output: 10", 'num_output: 10 weight_filler { type: "x" }'
    )
    write(tmp_path, tested, name="test.prototxt")
    write(tmp_path, SOLVER, ("net:", "train_net:"), (NONE, f'{TESTED} test_net: "test.prototxt"'), name="s.prototxt")
    shapes = ["-shape", "data=2,1,4,4", "-shape", "images=2,1,4,4"]
    assert '"x"' in _said(["plan", "-solver", "s.prototxt", *shapes], capsys)
    write(tmp_path, tested, ('"x"', '"xavier"'), name="test.prototxt")
    assert main(["plan", "-solver", "s.prototxt", "-summary", *shapes]) == 0
    assert main(["plan", "-solver", "s.prototxt", *shapes, "-shape", "fata=2"]) != 0
    assert "no net of s.prototxt has that blob" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["-model", "net.prototxt"], ["-solver_type", "Adam"], ["-phase", "TEST"]])
def test_flags_that_a_solver_excludes(tmp_path, monkeypatch, capsys, more):
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "-solver", "solver.prototxt", *more]) == 2
    assert "exclude each other" in capsys.readouterr().err
    assert main(["plan"]) == 2
    assert "-model or -solver is missing" in capsys.readouterr().err


@pytest.mark.parametrize(("lms", "fix"), [("auto", "or try -lms 1"), ("1000", "lower -lms (the threshold in KB)")])
def test_the_fix_for_what_always_stays_is_one_that_the_setting_has(lms, fix, tmp_path, capsys):
    """`auto` has no threshold that could be lower."""
    path = write(tmp_path, NET, name="train_val.prototxt")
    assert main(["plan", str(path), "-lms", lms, "-budget", "2KB", "-cache", "off"]) == 1
    said = capsys.readouterr().err
    assert "of device memory all the time" in said and fix in said.rpartition("fix:")[2]
