"""`pycaffe-lms diff`: what it prints, its exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_lms.cli.main import main

from .nets import NET, SOLVER, write

ROOT = Path(__file__).resolve().parents[2]


def test_two_nets(tmp_path, capsys):
    old = write(tmp_path, NET, name="old.prototxt")
    changes = ("num_output: 16", "num_output: 32"), ('"relu" type: "ReLU"', '"e" type: "ELU"'), ("small", "large")
    new = write(tmp_path, NET, *changes, name="new.prototxt")
    assert main(["diff", str(old), str(new)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"--- {old}",
        f"+++ {new}",
        "~ name: small -> large",
        '~ layer "conv" (Convolution)',
        "    convolution_param.num_output: 16 -> 32",
        '+ layer "e" (ELU)',
        '- layer "relu" (ReLU)',
        "layers: 1 added, 1 removed, 0 moved, 1 changed",
    ]


def test_the_same(tmp_path, capsys):
    old, new = write(tmp_path, NET, name="a"), write(tmp_path, "# a comment\n" + NET, name="b")
    assert main(["diff", str(old), str(new)]) == 0
    assert capsys.readouterr().out == ""


def test_solvers_are_known_by_their_fields(tmp_path, capsys):
    old, new = write(tmp_path, SOLVER, name="a"), write(tmp_path, SOLVER, ("0.01", "0.02"), name="b")
    assert main(["diff", str(old), str(new)]) == 1
    assert capsys.readouterr().out.splitlines()[2:] == ["~ base_lr: 0.01 -> 0.02"]


def test_a_net_with_fields_that_solvers_have_too(tmp_path, capsys):
    text = NET + 'layer { name: "p" type: "Power" bottom: "ip" top: "p"\n power_param {\n power: 2\n} }\n'
    old, new = write(tmp_path, text, name="a"), write(tmp_path, text, ("power: 2", "power: 3"), name="b")
    assert main(["diff", str(old), str(new)]) == 1
    assert "    power_param.power: 2 -> 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("a", "b", "word"), [("net", "no", "no"), ("net", "solver", "solver:1"), ("net", "bad", "bad:1")]
)
def test_trouble_is_not_a_difference(tmp_path, monkeypatch, capsys, a, b, word):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, NET, name="net"), write(tmp_path, SOLVER, name="solver"), write(tmp_path, "layer {", name="bad")
    assert main(["diff", a, b]) == 2
    assert word in capsys.readouterr().err


def test_a_reader_that_has_enough():
    """`pycaffe-lms diff ... | head -1` ends without a traceback."""
    nets = [str(ROOT / "models" / name / "train_val.prototxt") for name in ("resnet-50", "resnet-152")]
    done = subprocess.run(
        f"{sys.executable} -m pycaffe_lms diff {nets[0]} {nets[1]} | head -1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.stdout.startswith("--- ") and done.stderr == "" and done.returncode == 1
