"""The scripts that carry the names of Caffe's tools: each runs the action of its name, from any folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_lms.cli.main import ACTIONS

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
)


@pytest.mark.parametrize("action", SCRIPTS)
def test_a_script(action, tmp_path):
    done = subprocess.run([sys.executable, TOOLS / f"{action}.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and f"see pycaffe-lms {action} --help" in done.stderr


def test_every_script_with_the_name_of_an_action_runs_that_one():
    for path in TOOLS.glob("*.py"):
        if path.stem in ACTIONS and path.stem != "train":  # that is Caffe's script of another kind
            assert f'main(["{path.stem}", *sys.argv[1:]])' in path.read_text(), path
