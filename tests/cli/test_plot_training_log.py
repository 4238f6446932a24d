"""`pycaffe-lms plot_training_log`."""

from __future__ import annotations

import pytest

from pycaffe_lms.cli.main import main
from tests.formats.test_training_log import CAFFE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.log").write_text(CAFFE)
    (tmp_path / "two.log").write_text(CAFFE)
    return tmp_path


def test_a_picture_of_two_logs(folder):
    pytest.importorskip("matplotlib")
    assert main(["plot_training_log", "6", "out.svg", "one.log", "two.log"]) == 0
    svg = (folder / "out.svg").read_text()
    assert all(word in svg for word in ("Train loss vs. Iters", "<!-- one -->", "<!-- two -->"))


def test_a_chart_in_the_terminal(folder, capsys):
    assert main(["plot_training_log", "6", "-", "one.log", "two.log"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("LeNet: train loss   * one   o two")
    assert lines[-1].split() == ["0", "iteration", "200"] and lines[1].split()[0] == "2.413"
    assert {p.name for p in folder.iterdir()} == {"one.log", "two.log"}


@pytest.mark.parametrize(
    ("argv", "code", "word"),
    [
        (("8", "x.png", "one.log"), 2, "no chart 8"),
        (("-1", "x.png", "one.log"), 2, "no chart -1"),
        (("six", "x.png", "one.log"), 2, "six"),
        (("6", "x.gif", "one.log"), 2, ".png, .svg, .pdf"),
        (("6", "x.png"), 2, "LOG"),
        (("6", "x.png", "one.log", "-output", "loss"), 2, "test outputs"),
        (("0", "x.png", "one.log", "none.log"), 1, "none.log"),
        (("0", "x.png", "one.log", "-output", "acc"), 1, "one.log"),
        (("0", "no/x.png", "one.log"), 2, "no/x.png"),
    ],
)
def test_wrong_use(folder, capsys, argv, code, word):
    if argv[1].startswith("no/"):
        pytest.importorskip("matplotlib")
    assert main(["plot_training_log", *argv]) == code
    err = capsys.readouterr().err
    assert word in err and "fix:" in err
    assert {p.name for p in folder.iterdir()} == {"one.log", "two.log"}
