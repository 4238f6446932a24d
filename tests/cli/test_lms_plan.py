"""`train -lms_plan FILE`: written by the first run, replayed by the second; a file that is wrong is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pycaffe_lms.cli.main import main

from .nets import NET, SOLVER, write

ARGV = ["-backend", "sim", "-lms", "1", "-lms_budget", "256KB"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, NET)
    write(tmp_path, SOLVER, name="solver.prototxt")
    return tmp_path


def _train(*argv):
    return main(["train", "-solver", "solver.prototxt", *ARGV, *argv])


def test_written_then_replayed(folder, capsys):
    assert _train("-lms_plan", "my.plan") == 0
    text = (folder / "my.plan").read_text()
    assert "LMS: the plans of train are written to my.plan" in capsys.readouterr().err
    assert _train("--lms_plan=my.plan") == 0
    assert "plans of train are read from my.plan" in capsys.readouterr().err
    assert (folder / "my.plan").read_text() == text
    assert 'step { name: "forward:conv' in text and 'net: "small"' in text


def test_damage_names_file_and_line(folder, capsys):
    assert _train("-lms_plan", "my.plan") == 0
    lines = (folder / "my.plan").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if "step {" in line)
    lines[at] = lines[at].replace("step", "stop")
    (folder / "my.plan").write_text("\n".join(lines))
    capsys.readouterr()
    assert _train("-lms_plan", "my.plan") == 1
    err = capsys.readouterr().err
    assert f"error: my.plan:{at + 1}: not a plan" in err and "fix:" in err and "Traceback" not in err


def test_another_budget_or_another_threshold(folder, capsys):
    assert _train("-lms_plan", "my.plan") == 0
    assert _train("-lms_plan", "my.plan", "-lms", "3") == 1
    assert "my.plan:" in (err := capsys.readouterr().err) and "no managed buffer" in err
    assert _train("-lms_plan", "my.plan", "-lms_budget", "1MB") == 0  # more memory does no harm


def test_only_with_lms_and_only_in_training(folder, capsys):
    assert main(["train", "-solver", "solver.prototxt", "-lms_plan", "my.plan"]) == 2
    assert "-lms_plan has no effect without -lms" in capsys.readouterr().err
    assert main(["plan", "-model", "net.prototxt", "-lms", "1", "-lms_plan", "my.plan"]) == 2


def test_a_folder_that_is_not_there(folder, capsys):
    assert _train("-lms_plan", "nowhere/my.plan") == 1
    assert "nowhere/my.plan: cannot be written" in capsys.readouterr().err


def test_layers_in_a_given_number_of_parts(folder, capsys):
    assert _train("-lms_plan", "my.plan", "-lms_split", "2") == 0
    text = (folder / "my.plan").read_text()
    assert 'step { name: "forward:conv [2/2]' in text
    assert _train("-lms_plan", "my.plan", "-lms_split", "2") == 0
    assert "plans of train are read from my.plan" in capsys.readouterr().err
    assert (folder / "my.plan").read_text() == text
    assert _train("-lms_plan", "my.plan", "-lms_split", "off") == 1
    assert "my.plan:" in capsys.readouterr().err


def test_a_number_of_parts_that_was_chosen_is_not_in_the_file(folder, capsys):
    assert main(["plan", "-model", "net.prototxt", "-lms", "1", "-lms_split", "off", "-json", "found.json"]) == 0
    least = json.loads(Path("found.json").read_text())["least"]["nbytes"]
    capsys.readouterr()
    argv = ["-lms_budget", f"{int(0.7 * least)}B", "-lms_split", "auto"]
    assert _train(*argv) == 0 and "parts of" in capsys.readouterr().err
    assert _train(*argv, "-lms_plan", "my.plan") == 1
    err = capsys.readouterr().err
    assert "a plan file does not say so" in err and "-lms_split off" in err and not (folder / "my.plan").exists()
