"""From the built-in data to a trained model by the command line: CPU, simulated GPU, and with too little memory."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from pycaffe_lms.proto import caffe_pb2

from .command import caffe

README = Path(__file__).resolve().parents[2] / "README.md"
MODELS = README.parent / "models"
# As Caffe's tools/extra/parse_log.py reads a log.
ITERATION = re.compile(r"Iteration (\d+)")
TRAIN_OUTPUT = re.compile(r"Train net output #(\d+): (\S+) = ([\.\deE+-]+)")
TEST_OUTPUT = re.compile(r"Test net output #(\d+): (\S+) = ([\.\deE+-]+)")
RATE = re.compile(r"lr = ([-+]?[0-9]*\.?[0-9]+([eE]?[-+]?[0-9]+)?)")
DISPLAY = re.compile(r"Iteration \d+ \(\S+ iter/s, \S+s/20 iters\), loss = (\S+)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Digits in LMDBs, the model's prototxts, a solver of 60 iterations."""
    folder = tmp_path_factory.mktemp("digits")
    done = caffe("dataset", "digits", cwd=folder)
    assert done.code == 0, done.stderr
    assert [line.split(": ")[0] for line in done.out.splitlines()] == ["train", "test"]
    (folder / "models" / "digits").mkdir(parents=True)
    for name in ("train_val.prototxt", "solver.prototxt"):
        text = (MODELS / "digits" / name).read_text()
        for old, new in (
            ("max_iter: 1000", "max_iter: 60"),
            ("test_interval: 250", "test_interval: 30"),
            ("display: 100", "display: 20"),
            ("snapshot: 500", "snapshot: 40"),
        ):
            assert name == "train_val.prototxt" or old in text
            text = text.replace(old, new)
        (folder / "models" / "digits" / name).write_text(text)
    return folder


def _train(folder, *argv):
    done = caffe("train", "-solver", "models/digits/solver.prototxt", *argv, cwd=folder)
    assert done.code == 0 and not done.said, done.stderr
    return done


@pytest.fixture(scope="module")
def on_cpu(folder):
    return _train(folder, "-backend", "cpu")


@pytest.fixture(scope="module")
def on_sim(folder):
    return _train(folder, "-backend", "sim")


def _numbers(done):
    """Everything in the log that training computed: test and train outputs, rates, losses. No times."""
    found = []
    for line in done.log:
        loss = DISPLAY.search(line) or re.search(r"Iteration \d+, loss = (\S+)", line)
        if loss:
            found.append((ITERATION.search(line).group(1), loss.group(1)))
        elif "net output #" in line or "lr = " in line:
            found.append(line)
    return found


def test_it_learns(on_cpu):
    accuracy = [
        float(m.group(3)) for line in on_cpu.log if (m := TEST_OUTPUT.search(line)) and m.group(2) == "accuracy"
    ]
    assert len(accuracy) == 3
    assert accuracy[0] < 0.3 and accuracy[-1] > 0.75


def test_the_log_reads_as_parse_log_reads_it(on_cpu):
    """Iterations, train outputs, test outputs and rates in the order in which a reader attributes them."""
    iteration, rows = None, []
    for line in on_cpu.log:
        if m := ITERATION.search(line):
            iteration = int(m.group(1))
        for kind, pattern in (("train", TRAIN_OUTPUT), ("test", TEST_OUTPUT)):
            if m := pattern.search(line):
                rows.append((kind, iteration, int(m.group(1)), m.group(2)))
        if m := RATE.search(line):
            assert float(m.group(1)) == 0.05
            rows.append(("lr", iteration, 0, "lr"))
    tests = [[("test", i, 0, "accuracy"), ("test", i, 1, "loss")] for i in (0, 30, 60)]
    shows = [[("train", i, 0, "loss"), ("lr", i, 0, "lr")] for i in (0, 20, 40)]
    assert rows == [*tests[0], *shows[0], *shows[1], *tests[1], *shows[2], *tests[2]]


def test_the_log_tells_the_story_of_caffe(on_cpu):
    expected = [
        "Use CPU.",
        "Creating training net from net file: models/digits/train_val.prototxt",
        "This network produces output loss",
        "Network initialization done.",
        "This network produces output accuracy",
        "Solver scaffolding done.",
        "Starting Optimization",
        "Solving Digits",
        "Learning Rate Policy: step",
        "Iteration 0, Testing net (#0)",
        "Snapshotting to binary proto file models/digits/digits_iter_40.caffemodel",
        "Snapshotting solver state to binary proto file models/digits/digits_iter_40.solverstate",
        "Snapshotting to binary proto file models/digits/digits_iter_60.caffemodel",
        "Iteration 60, Testing net (#0)",
        "Optimization Done.",
    ]
    remaining = iter(on_cpu.log)
    assert [line for line in expected if line in remaining] == expected
    assert on_cpu.log[-1] == "Optimization Done." and on_cpu.log.count("Optimization Done.") == 1
    assert "Layers that do not need backward computation: digits" in on_cpu.log
    assert sum("Memory required for data" in line for line in on_cpu.log) == 2  # once for each net
    assert re.search(r"Test net output #1: loss = (\S+) \(\* 1 = \1 loss\)", "\n".join(on_cpu.log))


def test_snapshots_are_there_and_can_be_scored(on_cpu, folder):
    for k in (40, 60):
        assert (folder / f"models/digits/digits_iter_{k}.solverstate").is_file()
    net = ["-model", "models/digits/train_val.prototxt", "-weights", "models/digits/digits_iter_60.caffemodel"]
    done = caffe("test", *net, "-iterations", "27", "-backend", "cpu", cwd=folder)
    assert done.code == 0
    last = [line for line in on_cpu.log if "accuracy = " in line][-1]
    assert done.log[-2].removeprefix("accuracy = ") == last.split("accuracy = ")[1]


def test_a_run_resumed_from_a_snapshot_ends_with_the_same_numbers(on_cpu, folder):
    resumed = _train(folder, "-backend", "cpu", "-snapshot", "models/digits/digits_iter_40.solverstate")
    assert "Resuming from models/digits/digits_iter_40.solverstate" in resumed.log
    assert _numbers(resumed)[:3] == _numbers(on_cpu)[-6:-3]  # display at 40
    assert _numbers(resumed)[-3:] == _numbers(on_cpu)[-3:]


def test_the_simulated_device_computes_what_the_cpu_does(on_cpu, on_sim):
    assert _numbers(on_sim) == _numbers(on_cpu)


@pytest.mark.parametrize(
    "order, ahead", [("latest", ()), ("earliest", ("-lms_ahead", "0")), ("random", ("-lms_ahead", "1"))]
)
def test_with_too_little_memory_lms_copies_and_changes_no_digit(order, ahead, on_sim, folder):
    """1,400 KB are less than the net needs all the time, and less than all that LMS manages needs at once."""
    argv = ["-backend", "sim", "-lms_budget", "1400KB"]
    without = caffe("train", "-solver", "models/digits/solver.prototxt", *argv, cwd=folder)
    assert without.code == 1 and "-lms" in without.said[1]
    done = _train(folder, *argv, "-lms", "10", "-sim_order", order, *ahead)
    assert _numbers(done) == _numbers(on_sim)
    plan = next(line for line in done.log if line.startswith("LMS plan of train: "))
    managed, into, out = re.search(r"(\d+) buffers managed.* (\S+ \S+) in and (\S+ \S+) out per run", plan).groups()
    assert int(managed) > 1 and "0 B" not in (into, out)
    runs, into, out = re.search(r"LMS: (\d+) runs, (\S+ \S+) copied in, (\S+ \S+) copied out", done.log[-1]).groups()
    assert int(runs) >= 60 and "0 B" not in (into, out)


def test_the_command_of_the_readme_copies_and_ends_with_the_same_weights(folder):
    """To the bit; without Large Model Support there is too little memory."""
    commands = [line for line in README.read_text().splitlines() if line.startswith("pycaffe-lms train ")]
    [line] = [line for line in commands if "-backend sim -lms " in line]
    command = shlex.split(line)[2:]
    assert "-lms_budget" in command and "-lms" in command

    def weights(*argv):
        done = caffe("train", "--solver=models/digits/solver.prototxt", *argv, cwd=folder)
        assert done.code == 0, done.stderr
        net = caffe_pb2.NetParameter.FromString((folder / "models/digits/digits_iter_60.caffemodel").read_bytes())
        return [np.array(blob.data, "f4").tobytes() for layer in net.layer for blob in layer.blobs], done

    expected, _ = weights("-backend", "sim")
    found, done = weights(*command[1:])
    assert command[0] == "--solver=models/digits/solver.prototxt" and len(expected) > 2
    assert found == expected
    into, out = re.search(r"LMS: \d+ runs, (\S+ \S+) copied in, (\S+ \S+) copied out", done.log[-1]).groups()
    assert "0 B" not in (into, out)
    budget = command[command.index("-lms_budget") : command.index("-lms_budget") + 2]
    assert caffe("train", command[0], "-backend", "sim", *budget, cwd=folder).code == 1
