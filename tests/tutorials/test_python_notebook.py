"""Every block of docs/python_notebook.md runs, in order, as one script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pycaffe_lms as caffe

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python_notebook.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 64 dim: 1000 } shape { dim: 64 } data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 500 weight_filler { type: "xavier" } } }
layer { name: "ra" type: "ReLU" bottom: "a" top: "ra" }
layer { name: "b" type: "InnerProduct" bottom: "ra" top: "b" inner_product_param { num_output: 500 weight_filler { type: "xavier" } } }
layer { name: "rb" type: "ReLU" bottom: "b" top: "rb" }
layer { name: "c" type: "InnerProduct" bottom: "rb" top: "c" inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "c" bottom: "label" top: "loss" }
layer { name: "accuracy" type: "Accuracy" bottom: "c" bottom: "label" top: "accuracy" include { phase: TEST } }
"""  # noqa: E501
SOLVER = (
    'net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 300 test_iter: 1 test_interval: 50 random_seed: 1'
)


def test_every_block_runs(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    assert len(BLOCKS) >= 7
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    names: dict = {"caffe": caffe}
    for block in BLOCKS:
        if "import torch" in block and not _there("torch"):
            continue
        try:
            exec(compile(block, str(PAGE), "exec"), names)
        finally:
            caffe.set_mode_cpu()
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert names["seen"] == ["start", "gradients"] * 2 and len(names["history"]) == 100
    assert names["n"].to_proto().layer[1].convolution_param.num_output == 16
    printed = capsys.readouterr().out
    assert "7.0 MiB are there" in printed, "too little memory without Large Model Support"
    [copied] = [int(line) for line in printed.splitlines() if line.isdigit()]
    assert copied > 0, "bytes that were copied to the host with it"
    assert 'call net.keep("ra")' in printed and "invalid value encountered in reduce" in printed


def _there(package: str) -> bool:
    try:
        __import__(package)
    except ImportError:
        return False
    return True
