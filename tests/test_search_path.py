"""Check that `python -m pycaffe_lms` imports what the installed command does: nothing from the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_lms.search_path import searched

ROOT = Path(__file__).resolve().parents[1]
SHADOWS = ("re", "numpy", "google", "h5py", "json", "argparse", "logging", "cupy", "mine")
LAYER = """
from pathlib import Path
Path(__file__).with_suffix(".ran").touch()
import pycaffe_lms as caffe
class Mine(caffe.Layer):
    def reshape(self, bottom, top): top[0].reshape(3)
    def forward(self, bottom, top): top[0].data[...] = 7
"""
NET = """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 } } }
layer { name: "p" type: "Python" bottom: "x" top: "y" python_param { module: "mine" layer: "Mine" } }"""

SOLVER = """net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: 1 display: 1 snapshot_after_train: false"""


@pytest.fixture
def folder(tmp_path):
    """Make a folder with a net, and with modules that have the names of well-known ones."""
    for name in SHADOWS[:-1]:
        text = f"open({str(tmp_path / name)!r} + '.ran', 'w').close()\nraise ImportError('not this one')\n"
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "mine.py").write_text(LAYER)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    return tmp_path


def _ran(folder):
    return sorted(p.stem for p in folder.glob("*.ran"))


def _installed(tmp_path):
    """Write the command of an installation, alone in its folder."""
    script = tmp_path / "bin" / "pycaffe-lms"
    script.parent.mkdir()
    script.write_text("import sys\nfrom pycaffe_lms.cli.main import main\nsys.exit(main())\n")
    return [str(script)]


@pytest.mark.parametrize(
    "how", ["installed", "-m", pytest.param("-m pycaffe_lms.cli.main", marks=pytest.mark.thorough)]
)
def test_both_commands_import_the_same(how, folder, tmp_path_factory):
    module = ["-m", "pycaffe_lms"] if how == "-m" else how.split()
    command = _installed(tmp_path_factory.mktemp("elsewhere")) if how == "installed" else module

    def run(*argv, path=()):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *path])}
        argv = [sys.executable, *command, *argv]
        return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)

    shown = run("summarize", "net.prototxt", "-shape", "y=3")
    assert shown.returncode == 0 and "y (3)" in shown.stdout, shown.stderr
    refused = run("train", "-solver", "solver.prototxt", "-backend", "cpu")
    assert refused.returncode == 1 and 'no Python module "mine"' in refused.stderr
    assert "put the folder of mine.py on PYTHONPATH" in refused.stderr
    assert _ran(folder) == []
    elsewhere = folder / "layers"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_text(LAYER)
    done = run("train", "-solver", "solver.prototxt", "-backend", "cpu", path=[str(elsewhere)])
    assert done.returncode == 0 and "y = 7" in done.stderr, done.stderr
    assert _ran(folder) == [] and _ran(elsewhere) == ["mine"]


@pytest.mark.parametrize(
    "path, argv, command, expected",
    [
        (["/here", "/lib"], ["-m"], ["python", "-m", "pycaffe_lms"], ["/lib"]),
        (["", "/lib"], ["-m", "train"], ["python", "-B", "-m", "pycaffe_lms", "train"], ["/lib"]),
        (["/here", "/here", "/lib"], ["-m", "a"], ["python", "-Bmpycaffe_lms", "a"], ["/here", "/lib"]),  # PYTHONPATH
        (["/here", "/lib"], ["-m"], ["python", "-m", "pycaffe_lms.cli.main"], ["/lib"]),
        (["/here", "/lib"], ["-m"], ["python", "-m", "pytest"], None),
        (["/here", "/lib"], ["-m", "pycaffe_lms"], ["python", "-m", "other", "pycaffe_lms"], None),
        (["/here", "/lib"], ["-m"], ["python", "-m", "pycaffe_lms_more"], None),
        (["/here", "/lib"], ["script.py"], ["python", "script.py"], None),
        (["/here", "/lib"], [""], ["python"], None),
    ],
)
def test_what_is_taken_out(path, argv, command, expected):
    assert searched(path, argv, command, "/lib") == (path if expected is None else expected)


def test_a_checkout_in_the_current_folder_goes_behind_all_others():
    command = ["python", "-m", "pycaffe_lms"]
    assert searched(["/here", "/lib"], ["-m"], command, "/here") == ["/lib", "/here"]
