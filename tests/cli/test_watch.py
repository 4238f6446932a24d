"""Following a run: -metrics, -tensorboard, -plot and the display in a terminal, against the log and the solver."""

from __future__ import annotations

import io
import json
import math
import os
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
from types import SimpleNamespace

import pytest

from pycaffe_lms.cli import curves, event_files, live, metrics, terminal, watcher
from pycaffe_lms.cli.gauges import Gauges, Reading, images_per_iteration
from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import CaffeError, DataError, MissingDependency, UsageError
from pycaffe_lms.solvers.events import Display, Evaluation, Output

from ..solvers.helpers import GAUSSIAN, PLACES, inner, loss, make, solver_text

ACCURACY = 'layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" top: "acc" include { phase: TEST } }\n'
NET = GAUSSIAN + inner() + loss() + ACCURACY
OPTIONS = {
    **{"max_iter": 6, "display": 2, "test_iter": 2, "test_interval": 3, "lr_policy": '"step"', "gamma": 0.5},
    **{"stepsize": 2, "snapshot": 3, "snapshot_after_train": "false"},
}
DISPLAYS = re.compile(r"Iteration (\d+) \(.*\), loss = (\S+)")
RATES = re.compile(r"Iteration (\d+), lr = (\S+)")
TESTED = re.compile(r"Test net output #\d+: (\S+) = (\S+)")


@pytest.fixture
def train(tmp_path, monkeypatch, capsys):
    """Trains with more flags and options in `tmp_path`; returns the exit code and what stood on stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*argv, **options):
        text = solver_text(NET, **OPTIONS | {"snapshot_prefix": '"s"'} | options)
        (tmp_path / "solver.prototxt").write_text(text)
        code = main(["train", "-solver", "solver.prototxt", "-backend", "cpu", *argv])
        return code, capsys.readouterr().err

    return run


def _six(value) -> str:
    return f"{value:.6g}"


def _lines(path) -> list[dict]:
    with open(path) as file:
        return [json.loads(line) for line in file]


# -- metrics ---------------------------------------------------------------------------------------------------------
def test_metrics_are_the_log_as_json(train):
    code, log = train("-metrics", "m.jsonl")
    assert code == 0
    rows = _lines("m.jsonl")
    shown, tested = ([r for r in rows if r["kind"] == kind] for kind in ("train", "test"))
    assert [(str(r["iteration"]), _six(r["loss"])) for r in shown] == DISPLAYS.findall(log)
    assert [(str(r["iteration"]), _six(r["lr"])) for r in shown] == RATES.findall(log)
    assert [(n, _six(v)) for r in tested for n, v in r["outputs"].items()] == TESTED.findall(log)
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


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / "m.jsonl").write_text('{"kind": "test", "iteration": 0, "outputs": {}}\n{"kind": 3}\n')
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


# -- gauges ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("place", PLACES)
def test_readings(place):
    """Memory is what the device gave; copies are the runtime's, per iteration since the last display."""
    solver = make(GAUSSIAN + inner(outputs=600) + loss(), place, iter_size=3, max_iter=9, display=4)
    gauges, readings, copied = Gauges(solver), [], [0]
    stats, device = solver.runtime.stats, solver.runtime.device

    class Watch(watcher.Watcher):
        def on_display(self, display):
            readings.append((gauges.read(display), display))
            copied.append(stats.bytes_in)

    solver.observers.append(Watch())
    solver.step(9)
    assert images_per_iteration(solver) == 4 * 3
    for k, (reading, display) in enumerate(readings):
        assert reading.device_bytes == (None if device.is_host else device.in_use())
        if solver.runtime.active:
            assert reading.lms_in * max(1, display.iterations) == copied[k + 1] - copied[k] > 0
        else:
            assert reading.lms_in is reading.lms_out is reading.lms_stall is None
        assert k == 0 or reading.images_per_second == pytest.approx(12 * 4 / display.seconds)


# -- tensorboard -----------------------------------------------------------------------------------------------------
def _scalars(folder):
    """Of all event files in a folder, in order: (tag, step, value), read by the format of TFRecord files: a length
    of 8 bytes, 4 bytes of checksum, the message, 4 bytes of checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found, purged = [], []
    for path in sorted(folder.iterdir()):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + size])
            at += 16 + size
            found += [(v.tag, event.step, v.simple_value) for v in event.summary.value]
            purged += [event.step] if event.session_log.status == 1 else []  # START
    return found, purged


def test_event_files(train, tmp_path):
    pytest.importorskip("tensorboardX")
    code, log = train("-tensorboard", "events/run", "-metrics", "m.jsonl")
    assert code == 0
    found, purged = _scalars(tmp_path / "events" / "run")
    assert not purged
    losses = [(str(step), _six(value)) for tag, step, value in found if tag == "train/loss"]
    assert losses == DISPLAYS.findall(log)
    tests = [(r["iteration"], r["outputs"]["acc"]) for r in metrics.read("m.jsonl") if r["kind"] == "test"]
    assert [(step, pytest.approx(value)) for tag, step, value in found if tag == "test/acc"] == tests
    assert {tag for tag, *_ in found} == {
        *("train/loss", "train/lr", "train/outputs/loss", "test/acc", "test/loss"),
        *("speed/images_per_second", "speed/iterations_per_second"),
    }


def test_event_files_of_a_resumed_run_take_back_what_is_done_again(train, tmp_path):
    pytest.importorskip("tensorboardX")
    train("-tensorboard", "events")
    first = set((tmp_path / "events").iterdir())
    (tmp_path / "first").mkdir()
    for path in first:
        path.rename(tmp_path / "first" / path.name)
    train("-tensorboard", "events", "-snapshot", "s_iter_3.solverstate")
    found, purged = _scalars(tmp_path / "events")
    assert purged == [3] and min(step for _, step, _ in found) == 3


def test_elements_of_outputs_have_tags_of_their_own():
    outputs = (Output("a", 1.0, 0), Output("p", 2.0, 0), Output("p", 3.0, 0))
    test = Evaluation(5, 1, outputs, 0.5, 1)
    assert list(event_files.test_scalars(test)) == [
        *(("test1/a", 1.0), ("test1/p/0", 2.0), ("test1/p/1", 3.0), ("test1/mean_loss", 0.5)),
    ]


# -- curves ----------------------------------------------------------------------------------------------------------
def test_panels():
    records = [
        {"kind": "test", "iteration": 0, "net": 0, "loss": None, "outputs": {"acc": 0.1, "loss": 2.0}},
        {"kind": "train", "iteration": 0, "loss": 2.5, "lr": 0.1, "outputs": {"loss": 2.4, "p": [1.0, 2.0]}},
        {"kind": "test", "iteration": 2, "net": 1, "loss": 0.5, "outputs": {"acc": None}},
        {"kind": "train", "iteration": 2, "loss": 1.5, "lr": 0.01, "outputs": {"loss": 1.4, "p": [3.0, 4.0]}},
    ]
    shown = curves.panels(records)
    assert list(shown) == ["loss", "acc", "p", "learning rate"]
    assert shown["loss"] == {"test": [(0, 2.0)], "train, mean": [(0, 2.5), (2, 1.5)], "test 1, mean": [(2, 0.5)]}
    assert shown["p"] == {"train, 0": [(0, 1.0), (2, 3.0)], "train, 1": [(0, 2.0), (2, 4.0)]}
    assert shown["learning rate"] == {"": [(0, 0.1), (2, 0.01)]}
    assert shown["acc"]["test"] == [(0, 0.1)] and math.isnan(shown["acc"]["test 1"][0][1])


def test_a_picture(train, tmp_path):
    pytest.importorskip("matplotlib")
    code, log = train("-plot", "curves.svg")
    assert code == 0 and "Plotted the learning curves to curves.svg" in log
    root = ElementTree.parse(tmp_path / "curves.svg").getroot()
    assert root.tag.endswith("svg")
    assert train("-plot", "curves.png")[0] == 0
    assert (tmp_path / "curves.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_what_is_drawn():
    """The lines of the figure have the points, one panel above the other."""
    figure_class = pytest.importorskip("matplotlib.figure").Figure
    shown = {"loss": {"train, mean": [(0, 2.0), (5, 1.0)], "test": [(0, 3.0)]}, "learning rate": {"": [(0, 0.1)]}}
    figure = curves.draw(figure_class, shown, "lenet")
    drawn = [{line.get_label(): line.get_xydata().tolist() for line in axes.lines} for axes in figure.axes]
    assert drawn[0] == {"train, mean": [[0, 2], [5, 1]], "test": [[0, 3]]}
    assert list(drawn[1].values()) == [[[0, 0.1]]]
    assert [axes.get_ylabel() for axes in figure.axes] == ["loss", "learning rate"]
    assert figure.axes[-1].get_xlabel() == "iteration" and figure.get_suptitle() == "lenet"


def test_a_resumed_run_is_drawn_from_its_beginning(train, monkeypatch):
    pytest.importorskip("matplotlib")
    train("-metrics", "m.jsonl")
    seen, real = [], curves.draw
    monkeypatch.setattr(curves, "draw", lambda figure, shown, title: seen.append(shown) or real(figure, shown, title))
    resume = ("-snapshot", "s_iter_3.solverstate")
    assert train("-metrics", "m.jsonl", "-plot", "p.png", *resume)[0] == train("-plot", "p.png", *resume)[0] == 0
    assert [[x for x, _ in shown["loss"]["train, mean"]] for shown in seen] == [[0, 2, 4], [4]]
    assert [[x for x, _ in shown["acc"]["test"]] for shown in seen] == [[0, 3, 6], [3, 6]]


def test_nothing_to_draw_is_said(train, tmp_path):
    pytest.importorskip("matplotlib")
    code, log = train("-plot", "p.png", display=0, test_iter=None, test_interval=0)
    assert code == 0 and "-plot p.png: not written, for nothing was displayed" in log
    assert not (tmp_path / "p.png").exists()


# -- before training -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("package", "argv", "extra"), [("tensorboardX", ("-tensorboard", "tb"), "tensorboard"),
                                                        ("matplotlib.figure", ("-plot", "p.png"), "plot"),
                                                        ("rich", ("-progress", "bar"), "progress")])  # fmt: skip
def test_a_missing_package_is_said_first(package, argv, extra, train, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    code, log = train(*argv)
    assert code == MissingDependency("", "").exit_code != 0
    assert argv[0] in log and f"pip install 'pycaffe-lms[{extra}]'" in log and "Solving" not in log


@pytest.mark.parametrize(("argv", "message"), [(("-metrics", "no/m.jsonl"), "-metrics no/m.jsonl: no file can be"),
                                               (("-plot", "no/p.png"), "-plot no/p.png: no file can be written"),
                                               (("-plot", "p.pdf"), "-plot p.pdf: pictures are .png or .svg"),
                                               (("-tensorboard", "solver.prototxt"), "-tensorboard s")])  # fmt: skip
def test_a_wrong_place_is_said_first(argv, message, train):
    pytest.importorskip("matplotlib")
    pytest.importorskip("tensorboardX")
    code, log = train(*argv)
    assert code == UsageError("").exit_code and message in log and "Solving" not in log


# -- in a terminal ---------------------------------------------------------------------------------------------------
def test_pace():
    """From where the run was during the last minute."""
    pace = live.Pace()
    assert pace.left(100) is None
    pace.at(0.0, 0)
    assert pace.left(100) is None
    pace.at(10.0, 20)
    assert pace.left(100) == 80 / (20 / 10)
    for second in range(20, 400, 10):  # slower: one iteration in 10 s
        pace.at(float(second), 20 + second // 10)
    assert pace.left(100) == (100 - 59) * 10
    pace.at(400.0, 5)
    assert pace.left(100) is None


def test_lines():
    status = live.Status(capacity=4 << 30)
    assert status.numbers() == status.tests() == []
    status.display = Display(20, 0.123456789, 0.01, (), 10, 2.0)
    status.reading = Reading(1234.5, 3 << 30, 2048.0, 1024.0, 0.0025)
    status.evaluations = {1: Evaluation(10, 1, tuple(Output(c, 0.5, 0) for c in "abcdef"), None, 2)}
    assert status.numbers() == [
        "iteration 20  loss 0.123457  lr 0.01  1230 images/s  device memory 3.0 GiB of 4.0 GiB",
        "LMS per iteration: 2.0 KiB in, 1.0 KiB out, 2.5 ms of waiting predicted",
    ]
    assert status.tests() == ["test 1 at 10: a 0.5  b 0.5  c 0.5  d 0.5  and 2 more"]
    status.reading = Reading()
    assert status.numbers() == ["iteration 20  loss 0.123457  lr 0.01"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-:--:--"), (math.inf, "-:--:--"), (0.4, "0:00:00"), (59.6, "0:01:00"), (360001, "100:00:01")],
)
def test_clock(seconds, text):
    assert live.clock(seconds) == text


def test_the_picture_of_a_run(monkeypatch):
    """Drawn after every event: how far it is, the last numbers, the last test."""
    console = pytest.importorskip("rich.console")
    solver, shown = make(NET, "sim with LMS", **OPTIONS | {"snapshot": 0}), []
    display = live.Live()
    monkeypatch.setattr(live.terminal, "Screen", lambda drawn: SimpleNamespace(start=int, stop=int))

    class Draw(watcher.Watcher):
        def draw(self, event):
            out = console.Console(file=io.StringIO(), width=150)
            out.print(display.picture())
            shown.append(out.file.getvalue().splitlines())

        on_start = on_display = on_test = draw

    with watcher.watched(solver, [display, Draw()]):
        solver.solve()
    assert shown[0][0].startswith("small ") and " 0/6 " in shown[0][0] and len(shown[0]) == 1
    last = shown[-1]
    assert " 6/6 " in last[0] and last[0].rstrip().endswith("0:00:00 left")
    assert (
        last[1].startswith("iteration 4  loss ") and " lr 0.025 " in last[1] and " images/s  device memory " in last[1]
    )
    assert last[2].startswith("LMS per iteration: ") and last[3].startswith("test 0 at 6: acc ")


def test_the_log_goes_on_above_the_picture_and_training_is_the_same(train, monkeypatch):
    pytest.importorskip("rich")
    _, plain = train("-metrics", "a.jsonl")
    stderr = io.StringIO()
    stderr.isatty = lambda: True
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "stderr", stderr)
    assert train("-metrics", "b.jsonl")[0] == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stderr.getvalue())
    assert RATES.findall(text) == RATES.findall(plain) and " 6/6 " in text
    rows = [[(r["iteration"], r["outputs"]) for r in metrics.read(f"{name}.jsonl")] for name in "ab"]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(("mode", "tty", "bar"), [("auto", True, True), ("auto", False, False), ("log", True, False),
                                                  ("bar", False, True)])  # fmt: skip
def test_modes(mode, tty, bar, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: tty))
    assert terminal.wants_bar(mode) is bar


def test_watchers_are_stopped_whatever_happens():
    told = []

    class One(watcher.Watcher):
        def __init__(self, name):
            self.name = name

        def start(self, solver):
            told.append(f"start {self.name}")
            if self.name == "b":
                raise CaffeError("b cannot")

        def stop(self):
            told.append(f"stop {self.name}")

    solver = make(NET)
    with pytest.raises(CaffeError, match="b cannot"), watcher.watched(solver, [One("a"), One("b"), One("c")]):
        pass
    assert told == ["start a", "start b", "stop b", "stop a"] and not solver.observers
