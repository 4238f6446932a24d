"""Tests `mpiexec -n N pycaffe-lms train`: the same bits as with -gpu, one voice, and one error that ends all ranks."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
import subprocess
import sys

import pytest

from .mpi_ranks import TRAIN, environment, mpiexec, needs_mpi

pytestmark = needs_mpi
HOST = socket.gethostname()
NET = """
name: "small"
layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 8 dim: 3 dim: 8 dim: 8 } shape { dim: 8 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 4.99 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param { num_output: 16 kernel_size: 3
  weight_filler { type: "msra" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "drop" }
layer { name: "ip1" type: "InnerProduct" bottom: "drop" top: "ip1" inner_product_param { num_output: 20
  weight_filler { type: "xavier" } } }
layer { name: "ip" type: "InnerProduct" bottom: "ip1" top: "ip" inner_product_param { num_output: 5
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.001 max_iter: 6 display: 2
snapshot: 3 snapshot_prefix: "run" random_seed: 5
"""
LMS = {"off": [], "1 KB": ["-lms", "1"], "auto": ["-lms", "auto", "-lms_budget", "400KB"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of a net and its solver."""
    return filled(tmp_path_factory.mktemp("mpi"))


def filled(place):
    (place / "net.prototxt").write_text(NET)
    (place / "s.prototxt").write_text(SOLVER)
    return place


def snapshots(folder) -> list[bytes]:
    return [(folder / f"run_iter_6.{kind}").read_bytes() for kind in ("caffemodel", "solverstate")]


def train(folder, count: int, *words: str, **more: str) -> tuple[int, str]:
    return mpiexec(count, [*TRAIN, "-solver", "s.prototxt", *words], folder, **more)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return a function of a number of processes that this package starts: what they compute."""

    @functools.cache
    def computed(count):
        place, gpus = filled(tmp_path_factory.mktemp("gpus")), ",".join(map(str, range(count)))
        command = [*TRAIN, "-solver", "s.prototxt", "-backend", "cpu", "-gpu", gpus]
        subprocess.run(command, cwd=place, env=environment(), check=True, capture_output=True)
        return snapshots(place)

    return computed


@pytest.mark.parametrize(
    ("count", "backend", "lms"),
    [
        (2, "cpu", "off"),
        pytest.param(2, "sim", "off", marks=pytest.mark.thorough),
        pytest.param(2, "sim", "1 KB", marks=pytest.mark.thorough),
        (2, "sim", "auto"),
        pytest.param(4, "cpu", "off", marks=pytest.mark.thorough),
        (4, "sim", "auto"),
    ],
)
def test_the_bits_of_ranks_on_one_host(folder, expected, count, backend, lms):
    code, said = train(folder, count, "-backend", backend, *LMS[lms])
    assert code == 0, said
    assert snapshots(folder) == expected(count)
    assert said.count("Iteration 4 (") == 1 and said.count("Optimization Done.") == 1
    assert re.search(rf"Ranks on {HOST}: 0 \(process \d+\), 1 \(process \d+\)", said)


def test_one_process_trains_alone(folder):
    """Without mpi4py too."""
    code, said = train(folder, 1, "-backend", "cpu", PYTHONPATH=without_mpi4py(folder))
    assert code == 0 and "Ranks on" not in said


def without_mpi4py(folder) -> str:
    (folder / "absent" / "mpi4py").mkdir(parents=True, exist_ok=True)
    (folder / "absent" / "mpi4py" / "__init__.py").write_text("raise ImportError('absent')\n")
    return f"{folder / 'absent'}:{environment()['PYTHONPATH']}"


@pytest.mark.thorough
def test_without_mpi4py_no_rank_trains(folder):
    code, said = train(folder, 2, "-backend", "cpu", "-set", "snapshot_prefix=alone", PYTHONPATH=without_mpi4py(folder))
    assert code == 1 and said.count("error:") == 1 and "pip install 'pycaffe-lms[mpi]'" in said
    assert not list(folder.glob("alone*"))


def test_a_launcher_of_another_mpi(folder):
    """Its processes do not find each other: they would be trainings of one rank each."""
    code, said = train(folder, 2, "-backend", "cpu", OMPI_COMM_WORLD_SIZE="8", OMPI_COMM_WORLD_RANK="0")
    assert code == 1 and "the launcher started 8 processes, of which mpi4py sees 2" in said


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-solver", "absent.prototxt"], 1, "Could not open file absent.prototxt"),
        (["-lms_budget", "lots"], 2, "lots"),
        (["-solvr", "x"], 2, "unknown flag '-solvr'"),
    ],
)
def test_an_error_of_all_ranks_is_printed_once(folder, words, code, message):
    found, said = mpiexec(3, [*TRAIN, "-solver", "s.prototxt", "-backend", "cpu", *words], folder)
    assert found == code and said.count("error:") == 1
    assert f"error: rank 0 of 3 on {HOST}: " in said and message in said


@pytest.mark.parametrize(
    "command",
    ["test", pytest.param("time", marks=pytest.mark.thorough), pytest.param("benchmark", marks=pytest.mark.thorough)],
)
def test_commands_of_one_process(folder, command):
    code, said = mpiexec(2, [sys.executable, "-m", "pycaffe_lms", command, "-model", "net.prototxt"], folder)
    assert code == 2 and said.count("error:") == 1 and f"fix: run {command} alone" in said


def test_logs_of_ranks(folder):
    """Rank 0 prints; each writes its own file."""
    code, said = train(folder, 2, "-backend", "cpu", "-rank_logs", "logs")
    assert code == 0 and sorted(os.listdir(folder / "logs")) == ["rank-000.log", "rank-001.log"]
    first, second = ((folder / "logs" / f"rank-00{r}.log").read_text() for r in range(2))
    assert "Solving small" in first and "Solving small" in second
    assert "Iteration 4 (" in first and "Iteration 4 (" not in second
    assert said.count("Solving small") == 1


def test_what_is_seen_of_ranks(tmp_path):
    """A trace with a process for each rank, a row of each at the end of the log, sums over ranks in the metrics."""
    folder = filled(tmp_path)
    files = ["-profile", "trace.json", "-metrics", "metrics.jsonl", "-lms_stats", "stats.json"]
    code, said = train(folder, 2, "-backend", "sim", *LMS["1 KB"], *files, "-set", "max_iter=12")
    assert code == 0, said
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert [names[p].partition(":")[0] for p in (1, 2)] == [f"rank {r} on {HOST}" for r in range(2)]
    for process in names:
        mine = [e for e in events if e["pid"] == process]
        assert [e["name"] for e in mine if e["ph"] == "i"] == ["iteration 2", "iteration 3", "iteration 4"]
        assert sum(e["name"].startswith("forward:conv") for e in mine) >= 3
    row = rf"rank (\d) on {HOST}: [\d.e+]+ ms own work, .* exchanging .*; LMS ([\d.]+) KiB in, ([\d.]+) KiB out"
    rows = re.findall(row, said)
    assert [rank for rank, _, _ in rows] == ["0", "1"]
    stats = json.loads((folder / "stats.json").read_text())["ranks"]
    assert [row["host"] for row in stats] == [HOST] * 2
    for row, (_, into, _) in zip(stats, rows, strict=True):
        assert row["bytes_in"] / row["iterations"] == pytest.approx(1024 * float(into), rel=0.01)
        assert 0 < row["exchange_seconds"] < row["seconds"]
    shown = [json.loads(text) for text in (folder / "metrics.jsonl").read_text().splitlines()]
    assert "lms_bytes_in" not in shown[0]
    for name, column in (("lms_bytes_in", 1), ("lms_bytes_out", 2)):
        assert shown[-1][name] == pytest.approx(1024 * sum(float(r[column]) for r in rows), rel=0.01)
    assert shown[-1]["images_per_second"] == pytest.approx(2 * 8 * shown[-1]["iterations_per_second"])


def test_ranks_of_different_commands(folder):
    """All know the same before the first iteration; rank 0 says it."""
    alone = [*TRAIN, "-solver", "s.prototxt", "-backend", "cpu"]
    code, said = mpiexec(1, [*alone, "-lms_budget", "8GB", ":", "-n", "1", *alone, "-lms_budget", "6GB"], folder)
    assert code == 2 and said.count("error:") == 1 and "Iteration 0" not in said
    assert f"error: rank 1 on {HOST}: -lms_budget is 6GB, rank 0 on {HOST} has 8GB\n  fix: " in said


def test_hosts_that_do_not_see_the_same_snapshots(folder, tmp_path):
    """Folders stand for the disks of two hosts, of which one has a snapshot."""
    alone = [*TRAIN, "-solver", "s.prototxt", "-backend", "cpu", "-resume", "latest"]
    (tmp_path / "one").mkdir()
    other = filled(tmp_path / "one")
    code, said = train(folder, 1, "-backend", "cpu")
    assert code == 0, said
    code, said = mpiexec(1, [*alone, ":", "-n", "1", "-wdir", str(other), *alone], folder)
    assert code == 2 and said.count("error:") == 1
    assert f"rank 1 on {HOST}: the snapshot to resume from is none, rank 0 on {HOST} has run_iter_6.solverstate" in said
