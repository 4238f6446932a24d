"""tools/bench/incore.py: its table, its file of results, its flags, and a run of small size on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .conftest import BENCH

RAN = {"ms": 100.0, "issue_ms": 12.3, "memory": 3 << 30, "versions": "GPU"}


@pytest.fixture
def table(script):
    return script("incore_table")


@pytest.fixture
def incore(script):
    return script("incore")


def _result(who, net="resnet-50", batch=256, **more):
    return {"net": net, "batch": batch, "who": who, **(more or RAN)}


def test_the_table_has_ratios_memory_and_failures(table):
    results = [
        _result("ours"),
        _result("eager", **(RAN | {"ms": 125.0, "memory": 5 << 30})),
        _result("compile", error="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        _result("ours", batch=16, error="DeviceError: a | b"),
    ]
    lines = table.markdown(results).splitlines()
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
    assert len({len(c) for c in cells}) == 1
    assert cells[0] == [
        "net",
        "batch",
        "ours ms",
        "images/s",
        "host ms",
        "GiB",
        "PyTorch ms",
        "ours / it",
        "GiB",
        "PyTorch compiled ms",
        "ours / it",
        "GiB",
    ]
    assert cells[2] == [
        "resnet-50",
        "256",
        "100.0",
        "2560",
        "12.3",
        "3.0",
        "125.0",
        "0.80",
        "5.0",
        "out of memory",
        "-",
        "-",
    ]
    assert cells[3][:6] == ["resnet-50", "16", "DeviceError: a / b", "-", "-", "-"]


def test_ratios_are_of_what_ran(table):
    results = [
        _result("ours"),
        _result("eager", **(RAN | {"ms": 50.0})),
        _result("compile", error="no"),
        _result("eager", batch=16),
    ]
    assert table.with_ratios(results)[0]["ratio"] == {"eager": 2.0}


def test_several_calls_build_one_file_and_a_repeated_run_replaces(table, tmp_path):
    path = tmp_path / "r.json"
    assert table.load(path) == []
    table.save(path, table.merge(table.load(path), [_result("ours"), _result("eager")]))
    table.save(path, table.merge(table.load(path), [_result("ours", ms=7.0), _result("ours", batch=16)]))
    found = [(r["who"], r["batch"], r["ms"]) for r in table.load(path)]
    assert found == [("eager", 256, 100.0), ("ours", 256, 7.0), ("ours", 16, 100.0)]
    assert list(tmp_path.iterdir()) == [path]


def test_compiled_peers_run_when_asked_for(incore):
    assert incore.arguments([]).peers == ["eager", "channels_last"]
    assert incore.arguments(["--compile"]).peers == ["eager", "channels_last", "compile", "compile_graphs"]
    assert incore.arguments(["--peers", "compile", "--compile"]).peers == ["compile", "compile_graphs"]
    assert incore.arguments(["--peers"]).peers == []
    for wrong in ("resnet-50", "resnet-50:0", "resnet-50:x"):
        with pytest.raises(SystemExit, match="NAME:BATCH"):
            incore.arguments(["--nets", wrong])


def test_every_net_of_the_default_table_has_its_prototxt(incore):
    for net in incore.NETS:
        assert (BENCH.parents[1] / "models" / net.split(":")[0] / "train_val.prototxt").exists()


def test_the_line_that_names_the_error_is_the_reason(incore):
    said = ["Traceback (most recent call last):", '  File "x"', "ValueError: too large", "some warning afterwards"]
    assert incore._reason(said) == "ValueError: too large"
    assert incore._reason(["Killed"]) == "Killed"


def test_times_leave_the_warm_up_out(incore):
    steps = []
    times, first = incore._times(lambda: steps.append(1), lambda: None, 3, 4, 0.0)
    assert len(times) == 4 and len(steps) == 7 and first > 0


def test_a_run_on_the_cpu_ends_in_the_file(tmp_path):
    """Ours for real; a peer's failure (here: no such interpreter output) is a row, not the end."""
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho 'ImportError: no torch' >&2\nexit 1\n")
    fake.chmod(0o755)
    command = [
        sys.executable,
        str(BENCH / "incore.py"),
        "--nets",
        "googlenet:1",
        "--backend",
        "cpu",
        "--warmup",
        "1",
        "--iterations",
        "1",
        "--peers",
        "eager",
        "--torch_python",
        str(fake),
        "--json",
        "r.json",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    ours, peer = json.loads((tmp_path / "r.json").read_text())["results"]
    assert ours["who"] == "ours" and ours["ms"] >= ours["least_ms"] > 0 and ours["issue_ms"] > 0
    assert ours["loss"] > 0 and ours["versions"] == "CPU"
    assert peer["error"] == "ImportError: no torch"
    assert "| googlenet | 1 |" in done.stdout and "ImportError: no torch" in done.stdout
