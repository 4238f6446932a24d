"""`-profile FILE`: the trace of a recording, and what the commands write."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from pycaffe_lms.backend.device import align
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli.views import profile
from pycaffe_lms.cli.views.profile import Recorded
from pycaffe_lms.errors import UsageError, human_bytes
from pycaffe_lms.lms.runtime.recorder import COPIES_IN, COPIES_OUT, HOST, STEPS, RecordedTimes

from .command import caffe, complaint
from .nets import NET, SOLVER, write


def _rows(found: dict) -> dict[str, list[dict]]:
    """Events with a duration, by the name of their row."""
    events = found["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    rows: dict[str, list[dict]] = {name: [] for name in names.values()}
    for e in events:
        if e["ph"] == "X":
            rows[names[e["tid"]]].append(e)
    return rows


def _check_order(found: dict) -> None:
    times = [e["ts"] for e in found["traceEvents"] if e["ph"] != "M"]
    assert times == sorted(times) and times[0] >= 0
    for row in _rows(found).values():
        assert all(e["dur"] >= 0 for e in row)
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(row))


def _iterations(found: dict) -> list[str]:
    return [e["name"] for e in found["traceEvents"] if e["ph"] == "i"]


def test_every_row_in_order_with_its_totals():
    timed = [RecordedTimes(STEPS, "b", 20, 50), RecordedTimes(STEPS, "a", 5, 20), RecordedTimes(HOST, "a", 1, 2)]
    timed += [
        RecordedTimes(COPIES_IN, "x.data", 0, 10, nbytes=20_000),
        RecordedTimes(COPIES_OUT, "y.data", 30, 30, nbytes=4),
    ]
    found = json.loads(json.dumps(profile.build_trace([Recorded("title", timed, [("iteration 2", 0.0)])])))
    _check_order(found)
    rows = _rows(found)
    assert list(rows) == [STEPS, COPIES_IN, COPIES_OUT, HOST]
    assert {name: sum(e["dur"] for e in row) for name, row in rows.items()} == {
        STEPS: 45,
        COPIES_IN: 10,
        COPIES_OUT: 0,
        HOST: 1,
    }
    assert [e["name"] for e in rows[STEPS]] == ["a", "b"]
    assert rows[COPIES_IN][0]["args"] == {"bytes": 20_000, "GB/s": 2.0}
    assert rows[COPIES_OUT][0]["args"] == {"bytes": 4}
    assert _iterations(found) == ["iteration 2"]
    assert found["traceEvents"][0]["args"] == {"name": "title"}


def test_what_seems_to_overlap_by_a_tick_of_the_clock_follows():
    steps = [RecordedTimes(STEPS, "a", 0, 10.5), RecordedTimes(STEPS, "b", 10, 12)]
    found = profile.build_trace([Recorded("", steps, [])])
    assert [(e["ts"], e["dur"]) for e in _rows(found)[STEPS]] == [(0, 10.5), (10.5, 1.5)]


def test_a_copy_before_the_first_iteration_moves_the_origin():
    timed = [RecordedTimes(COPIES_IN, "x", -2, 1), RecordedTimes(STEPS, "a", 1, 3)]
    found = profile.build_trace([Recorded("", timed, [("iteration 1", 0.0)])])
    _check_order(found)
    assert [e["ts"] for e in found["traceEvents"] if e["ph"] != "M"] == [0, 2, 3]


def test_ranks_are_processes_on_one_clock():
    """The second began 5 us after the first, and copies 2 us before that."""
    first = Recorded("rank 0", [RecordedTimes(STEPS, "a", 1, 4)], [("iteration 2", 0.0)], began_us=-100.0)
    second = Recorded("rank 1", [RecordedTimes(COPIES_IN, "x", -2, 1, 8)], [("iteration 2", 0.0)], began_us=-95.0)
    assert Recorded.decoded(second.encoded()) == replace(second, iterations=[["iteration 2", 0.0]])
    found = profile.build_trace([first, Recorded.decoded(second.encoded())])
    _check_order(found)
    events = [(e["pid"], e["name"], e["ts"], e.get("dur")) for e in found["traceEvents"] if e["ph"] != "M"]
    assert events == [
        (1, "iteration 2", 0, None),
        (1, "a", 1, 3),
        (2, "x", 3, 3),
        (2, "iteration 2", 5, None),
    ]
    names = {e["pid"]: e["args"]["name"] for e in found["traceEvents"] if e["name"] == "process_name"}
    assert names == {1: "rank 0", 2: "rank 1"}
    earlier = profile.build_trace([first, replace(second, began_us=-100.5)])
    assert min(e["ts"] for e in earlier["traceEvents"] if e["ph"] != "M") == 0


def test_time_on_the_cpu_has_one_row_of_wall_clock_times(tmp_path):
    write(tmp_path, NET)
    done = caffe(
        "time", "-model", "net.prototxt", "-backend", "cpu", "-iterations", "2", "-profile", "t.json", cwd=tmp_path
    )
    assert done.code == 0, done.stderr
    found = json.loads((tmp_path / "t.json").read_text())
    _check_order(found)
    rows = _rows(found)
    assert list(rows) == [STEPS]
    assert _iterations(found) == ["iteration 1", "iteration 2"]
    names = [e["name"] for e in rows[STEPS]]
    passes = [f"forward:{n}" for n in ("conv", "relu", "pool", "ip", "loss")]
    passes += [f"backward:{n}" for n in ("loss", "ip", "pool", "relu", "conv")]
    assert [n for n in names if n in passes] == passes * 2
    assert all(e["dur"] > 0 for e in rows[STEPS] if e["name"] in passes)


def test_training_under_lms_records_iterations_two_to_four_and_every_copy(tmp_path):
    write(tmp_path, NET)
    write(tmp_path, SOLVER, ("max_iter: 2", "max_iter: 6"), name="solver.prototxt")
    done = caffe("train", "-solver", "solver.prototxt", "-backend", "sim", "-lms", "1", "-profile=t.json", cwd=tmp_path)
    assert done.code == 0, done.stderr
    found = json.loads((tmp_path / "t.json").read_text())
    _check_order(found)
    assert _iterations(found) == ["iteration 2", "iteration 3", "iteration 4"]
    rows = _rows(found)
    assert set(rows) == {STEPS, COPIES_IN, COPIES_OUT, HOST}
    assert sum(e["name"] == "forward:ip" for e in rows[STEPS]) == 3
    assert {e["name"] for e in rows[STEPS]} <= {e["name"] for e in rows[HOST]}
    for row in (rows[COPIES_IN], rows[COPIES_OUT]):  # the model clock knows what a copy takes
        link = 1e-6 * SimDevice.link_bytes_per_s
        assert sum(e["dur"] for e in row) == pytest.approx(sum(e["args"]["bytes"] for e in row) / link, rel=0.05)
    planned = sum(align(e["args"]["bytes"]) for e in rows[COPIES_IN]) / 3
    line = next(line for line in done.log if line.startswith("LMS plan of train"))
    assert f" {human_bytes(planned)} in and " in line


def test_a_run_too_short_to_record_says_so(tmp_path):
    write(tmp_path, NET)
    write(tmp_path, SOLVER, ("max_iter: 2", "max_iter: 1"), name="solver.prototxt")
    done = caffe("train", "-solver", "solver.prototxt", "-backend", "cpu", "-profile", "t.json", cwd=tmp_path)
    assert done.code == 0 and not (tmp_path / "t.json").exists()
    assert any("-profile t.json: not written" in line for line in done.log)


def test_a_run_that_ends_early_writes_what_there_is(tmp_path):
    write(tmp_path, NET)
    write(tmp_path, SOLVER, ("max_iter: 2", "max_iter: 3"), name="solver.prototxt")
    done = caffe("train", "-solver", "solver.prototxt", "-backend", "cpu", "-profile", "t.json", cwd=tmp_path)
    assert done.code == 0
    assert _iterations(json.loads((tmp_path / "t.json").read_text())) == ["iteration 2", "iteration 3"]


def test_a_folder_that_is_not_there_is_refused_before_anything_runs(tmp_path):
    write(tmp_path, NET)
    message, _ = complaint(
        caffe("time", "-model", "net.prototxt", "-backend", "cpu", "-profile", "no/t.json", cwd=tmp_path), 2
    )
    assert "-profile no/t.json" in message
    with pytest.raises(UsageError):
        profile.Profile(str(tmp_path), None, "")


def test_without_the_flag_nothing_is_recorded():
    class Runtime:
        recorder = None

    record = profile.Profile("", Runtime, "")
    with record.iteration():
        assert Runtime.recorder is None
    record.write()
