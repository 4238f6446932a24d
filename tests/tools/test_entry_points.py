"""The scripts that carry the names of Caffe's tools: each runs the action of its name, from any folder."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_lms.cli.catalogue import COMMANDS

TOOLS = Path(__file__).resolve().parents[2] / "tools"
SCRIPTS = (
    "summarize",
    "parse_log",
    "extract_features",
    "plot_training_log",
    "draw_net",
    "classify",
    "detect",
    "dataset",
    "convert_imageset",
    "convert_annoset",
    "get_image_size",
    "convert_mnist_data",
    "convert_mnist_siamese_data",
    "convert_cifar_data",
    "compute_image_mean",
)


def test_a_script_runs_from_any_folder(tmp_path):
    done = subprocess.run([sys.executable, TOOLS / "summarize.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and "see pycaffe-lms summarize --help" in done.stderr


@pytest.mark.parametrize("action", SCRIPTS)
def test_a_script(action, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [f"{action}.py"])
    monkeypatch.setattr(sys, "path", [str(TOOLS), *sys.path])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOOLS / f"{action}.py"), run_name="__main__")
    assert ended.value.code == 2 and f"see pycaffe-lms {action} --help" in capsys.readouterr().err


def test_every_script_with_the_name_of_an_action_runs_that_one():
    for path in TOOLS.glob("*.py"):
        if path.stem in COMMANDS and path.stem != "train":  # that is Caffe's script of another kind
            assert f'main(["{path.stem}", *sys.argv[1:]])' in path.read_text(), path
