"""`pycaffe-lms parse_log`: the files of Caffe's script, byte by byte; logs that this package writes."""

from __future__ import annotations

import csv

import pytest

from pycaffe_lms.cli.main import main
from tests.formats.test_training_log import CAFFE

from .command import caffe
from .nets import NET, SOLVER, write


def test_the_files(tmp_path, capsys):
    (tmp_path / "run.log").write_text(CAFFE)
    assert main(["parse_log", str(tmp_path / "run.log"), str(tmp_path), "--verbose"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["Wrote", "Wrote"]
    assert (tmp_path / "run.log.test").read_bytes() == (
        b"NumIters,Seconds,LearningRate,accuracy,loss\r\n0.0,1.0,0.01,0.0919,2.36417\r\n200.0,62.0,9.8e-05,0.9,0.3\r\n"
    )
    assert (tmp_path / "run.log.train").read_bytes().splitlines()[2] == b"100.0,10.0,0.00992565,0.15"


def test_a_delimiter_and_a_table_without_rows(tmp_path, capsys):
    (tmp_path / "run.log").write_text("".join(x for x in CAFFE.splitlines(True) if "Test net" not in x))
    assert main(["parse_log", str(tmp_path / "run.log"), str(tmp_path), "-delimiter", "\\t", "-verbose"]) == 0
    assert "Not writing" in capsys.readouterr().out and not (tmp_path / "run.log.test").exists()
    assert (tmp_path / "run.log.train").read_text().splitlines()[0].split("\t")[:2] == ["NumIters", "Seconds"]


def test_a_log_of_this_package(tmp_path):
    text = NET.replace('type: "Input" top: "data"', 'type: "DummyData" top: "data"')
    text = text.replace("input_param", "dummy_data_param").replace('"Input"', '"DummyData"')
    write(tmp_path, text)
    write(tmp_path, SOLVER + "display: 1 test_interval: 2 test_iter: 1\n", name="solver.prototxt")
    done = caffe("train", "-solver", "solver.prototxt", "-backend", "cpu", cwd=tmp_path)
    assert done.code == 0, done.stderr
    (tmp_path / "own.log").write_text(done.stderr)
    assert main(["parse_log", str(tmp_path / "own.log"), str(tmp_path)]) == 0
    with open(tmp_path / "own.log.train", newline="") as file:
        train = list(csv.DictReader(file))
    with open(tmp_path / "own.log.test", newline="") as file:
        test = list(csv.DictReader(file))
    assert [(row["NumIters"], row["LearningRate"]) for row in train] == [("0.0", "0.01"), ("1.0", "0.01")]
    assert [row["NumIters"] for row in test] == ["0.0", "2.0"]
    losses = [line.rsplit("= ", 2)[1].split()[0] for line in done.log if "Train net output #0: loss" in line]
    assert [float(row["loss"]) for row in train] == [float(x) for x in losses] and len(losses) == 2
    assert all(0 <= float(row["Seconds"]) < 100 for row in train + test)


@pytest.mark.parametrize(("argv", "code"), [((), 2), (("x.log", "."), 1), (("x.log", ".", "-delimiter", ",,"), 2)])
def test_wrong_use(tmp_path, monkeypatch, capsys, argv, code):
    monkeypatch.chdir(tmp_path)
    assert main(["parse_log", *argv]) == code
    assert "fix:" in capsys.readouterr().err
