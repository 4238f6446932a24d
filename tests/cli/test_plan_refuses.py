"""What `train` refuses before its first iteration, `plan` refuses too, with the same words."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.data.datum import encode_datum
from pycaffe_lms.data.lmdb_writer import write_lmdb

from .nets import DATA_NET, NET, SOLVER, write

FILLER = 'weight_filler { type: "xavier" }'
SLIPS = {
    "an unknown filler": (FILLER, 'weight_filler { type: "xaver" }'),
    "a sparse filler that cannot be": (FILLER, 'weight_filler { type: "xavier" sparse: 2 }'),
    "a uniform filler without room": (FILLER, 'weight_filler { type: "uniform" min: 2 max: 1 }'),
    "a bias filler of a kernel": ("kernel_size: 3", 'kernel_size: 3 bias_filler { type: "bilinear" }'),
    "blobs of another shape": (
        'top: "ip"', 'top: "ip" blobs { shape { dim: 2 } data: 1 data: 2 } blobs { shape { dim: 1 } data: 1 }'),
    "a blob without its values": ('top: "ip"', 'top: "ip" blobs { shape { dim: 3 } }'),
    "too few blobs": ('top: "ip"', 'top: "ip" blobs { shape { dim: 1 } data: 1 }'),
    "an unknown layer": ('"ReLU"', '"Relu"'),
    "a kernel without room": ("kernel_size: 3", "kernel_size: 30"),
    "labels that do not fit": ("shape { dim: 4 } }", "shape { dim: 5 } }"),
    "parameters shared in another shape": (
        "num_output: 10", 'num_output: 10 } param { name: "w" } } layer { name: "more" type: "InnerProduct" '
        'bottom: "ip" top: "more" param { name: "w" } inner_product_param { num_output: 3'),
}  # fmt: skip


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
