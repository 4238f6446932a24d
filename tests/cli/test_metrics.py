"""-metrics: JSON lines, against the log; runs that are resumed, files of other kinds, full disks."""

from __future__ import annotations

import json
import math
import os

import pytest

from pycaffe_lms.cli.live import metrics
from pycaffe_lms.cli.live.gauges import Reading
from pycaffe_lms.errors import CaffeError, DataError, UsageError
from pycaffe_lms.solvers.events import Display, Evaluation, Output

from ..solvers.helpers import make
from .watching import DISPLAYS, NET, RATES, TESTED, six


def _lines(path) -> list[dict]:
    with open(path) as file:
        return [json.loads(line) for line in file]


def test_metrics_are_the_log_as_json(train):
    code, log = train("-metrics", "m.jsonl")
    assert code == 0
    rows = _lines("m.jsonl")
    shown, tested = ([r for r in rows if r["kind"] == kind] for kind in ("train", "test"))
    assert [(str(r["iteration"]), six(r["loss"])) for r in shown] == DISPLAYS.findall(log)
    assert [(str(r["iteration"]), six(r["lr"])) for r in shown] == RATES.findall(log)
    assert [(n, six(v)) for r in tested for n, v in r["outputs"].items()] == TESTED.findall(log)
    assert [r["iteration"] for r in tested] == [0, 3, 6] and all(r["net"] == 0 and r["loss"] is None for r in tested)
    assert [r["iteration"] for r in rows] == [0, 0, 2, 3, 4, 6]
    assert shown[0]["images_per_second"] is None and shown[0]["iterations_per_second"] is None
    for r in shown[1:]:
        assert r["images_per_second"] == pytest.approx(4 * r["iterations_per_second"])  # the batch is of 4
    assert [r["time"] for r in rows] == sorted(r["time"] for r in rows)
    assert all(r["device_bytes"] is None and "lms_bytes_in" not in r for r in shown)


def test_a_resumed_run_continues(train):
    """A run of 6 iterations, and one that is killed in the middle of a line and resumed at 3."""
    train("-metrics", "whole.jsonl")
    train("-metrics", "m.jsonl")
    with open("m.jsonl", "a") as file:
        file.write('{"kind": "train", "iterat')
    code, log = train("-metrics", "m.jsonl", "-snapshot", "s_iter_3.solverstate")
    assert code == 0 and "-metrics m.jsonl: its last line is not complete" in log
    assert [row["iteration"] for row in _lines("m.jsonl")] == [0, 0, 2, 3, 4, 6, 3, 4, 6]
    whole, resumed = (metrics.continued(metrics.read(f"{name}.jsonl")) for name in ("whole", "m"))
    assert [(r["kind"], r["iteration"], r["loss"]) for r in resumed] == [
        (r["kind"], r["iteration"], r["loss"]) for r in whole
    ]


def test_what_a_resumed_run_did_again():
    """Ten test nets at one iteration; each record replaces its own, and everything later goes."""
    tests = [{"kind": "test", "net": net, "iteration": 4, "n": net} for net in range(10)]
    later = [{"kind": "train", "iteration": 4, "n": 10}, {"kind": "train", "iteration": 6, "n": 11}]
    again = [{**r, "n": 100 + r["n"]} for r in (*tests, *later)]
    early = [{"kind": "train", "iteration": 2, "n": -1}]
    assert metrics.continued([*early, *tests, *later]) == [*early, *tests, *later]
    assert metrics.continued([*early, *tests, *later, *again]) == [*early, *again]
    assert metrics.continued([*early, *tests, *later, again[0]]) == [*early, *tests[1:], later[0], again[0]]


def test_what_is_no_number_is_null():
    display = Display(1, math.nan, 0.5, (Output("a", math.inf, 0.0), Output("b", 1.0, 0), Output("b", 2.0, 0)), 0, 1.0)
    record = metrics.train_record(display, Reading(), 7.0)
    assert json.loads(json.dumps(record, allow_nan=False)) == {
        **{"kind": "train", "iteration": 1, "time": 7.0, "loss": None, "lr": 0.5},
        "outputs": {"a": None, "b": [1.0, 2.0]},
        **{"iterations_per_second": None, "images_per_second": None, "device_bytes": None},
    }


@pytest.mark.parametrize("content", [b"not json\n", b'{"some": "json"}\n', b"\x89PNG no line", b"[" * 100_000 + b"\n"])
def test_a_file_of_another_kind_stays_as_it_is(content, train, tmp_path):
    (tmp_path / "m.jsonl").write_bytes(content)
    code, log = train("-metrics", "m.jsonl")
    assert code == 1 and "m.jsonl" in log and "-metrics" in log and "Optimization Done" not in log
    assert (tmp_path / "m.jsonl").read_bytes() == content


def test_what_is_no_file_is_refused(train):
    os.mkfifo("pipe")
    code, log = train("-metrics", "pipe")
    assert code == UsageError("").exit_code and "-metrics pipe: " in log and "Solving" not in log


@pytest.mark.parametrize("line", ['{"kind": 3}', '{"kind": {}, "iteration": 0, "outputs": {}}', "[" * 5000, "\xff"])
def test_a_damaged_line_is_named(tmp_path, line):
    (tmp_path / "m.jsonl").write_text(f'{{"kind": "test", "iteration": 0, "outputs": {{}}}}\n{line}\n')
    with pytest.raises(DataError, match=r"m.jsonl:2: this line is no record"):
        metrics.read(str(tmp_path / "m.jsonl"))


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    """Half of a line is written, then nothing: it is taken back, and the error names the file."""
    made = metrics.Metrics(str(tmp_path / "m.jsonl"))
    made.start(make(NET))
    made.on_test(Evaluation(1, 0, (), None, 1))
    before, real = (tmp_path / "m.jsonl").read_bytes(), metrics.os.write
    monkeypatch.setattr(metrics.os, "write", lambda file, line: real(file, line[: len(line) // 2]))
    with pytest.raises(CaffeError, match="m.jsonl: cannot be written: the disk is full"):
        made.on_test(Evaluation(2, 0, (), None, 1))
    made.stop()
    assert (tmp_path / "m.jsonl").read_bytes() == before != b""
