"""tools/bench/scaling.py: its table, and a run of small size on CPUs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .conftest import BENCH


@pytest.fixture
def scaling(script):
    return script("scaling")


def test_the_table_compares_with_one_gpu_of_the_same_mode(scaling):
    lines = [
        {"gpus": 1, "mode": "off", "layer_wise": True, "batch": 8, "images_per_s": 100.0},
        {"gpus": 2, "mode": "off", "layer_wise": True, "batch": 8, "images_per_s": 190.0},
        {"gpus": 4, "mode": "off", "layer_wise": None, "batch": 8, "images_per_s": 400.0},
        {"gpus": 4, "mode": "off", "layer_wise": False, "batch": 8, "images_per_s": 300.0},
        {"gpus": 2, "mode": "auto", "layer_wise": True, "batch": 8, "images_per_s": 150.0},
        {"gpus": 4, "mode": "auto", "layer_wise": True, "batch": 8, "error": "rank 1 | gone\nTraceback"},
    ]
    assert scaling.markdown(lines).splitlines()[2:] == [
        "| 1 | off | - | 8 | 100 | 100.0% |  |",
        "| 2 | off | beside the backward | 8 | 190 | 95.0% |  |",
        "| 4 | off | none, each by itself | 8 | 400 | 100.0% | 100.0% |",
        "| 4 | off | at the end | 8 | 300 | 75.0% | 75.0% |",
        "| 2 | auto | beside the backward | 8 | 150 |  |  |",
        "| 4 | auto | beside the backward | 8 | rank 1 / gone | | |",
    ]


def test_modes(scaling):
    assert not scaling.settings("off", "16GB").enabled and scaling.settings("off", "16GB").budget is None
    assert scaling.settings("auto", "1GB").auto and scaling.settings("auto", "1GB").budget == 1 << 30
    assert scaling.settings("100", None).threshold_kb == 100


NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param { data_filler { type: "gaussian" }
  shape { dim: 8 dim: 3 } data_filler { type: "constant" } shape { dim: 8 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 1000 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def test_a_small_run(tmp_path):
    (tmp_path / "train_dummy.prototxt").write_text(NET)
    words = ["--model", tmp_path, "--batch", "1", "--gpus", "2", "--iterations", "1", "--backend", "cpu"]
    words += ["--apart", "--warm", "0.01"]
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, BENCH / "scaling.py", *words, "--modes", "off", "--json", out],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = json.loads(out.read_text())
    assert [(x["gpus"], x["layer_wise"]) for x in lines] == [(2, None), (2, True), (2, False)]
    assert all(x["images_per_s"] == pytest.approx(2 / x["seconds"]) for x in lines[1:])
    assert lines[0]["images_per_s"] > 1 / lines[0]["seconds"]  # those of both
    assert done.stdout.count("| 2 | off |") == 3
