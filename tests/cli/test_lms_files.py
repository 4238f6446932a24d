"""`-lms_report`, `-lms_stats`, `plan -report`, and the line in the training log."""

from __future__ import annotations

import json
import re

import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import human_bytes

from ..lms.test_page import Page
from .command import caffe, complaint
from .nets import NET, SOLVER, write

# What Caffe's own scripts look for in a log.
PARSED = [
    r"Iteration (\d+)",
    r"(Train|Test) net output #(\d+): (\S+) = ([\.\deE+-]+)",
    r"lr = ([-+]?\d*\.?\d+)",
    r"Solving",
    r"Testing",
    r", loss = ",
    r"Test ",
]
LINE = re.compile(
    r"LMS: ([\d.]+ \w+) in, ([\d.]+ \w+) out, stall ([\d.e-]+) ms \(predicted\), (\d+) steps rematerialized each time; "
    r"peak ([\d.]+ \w+) of ([\d.]+ \w+)"
)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, NET)
    return tmp_path


def _train(folder, *flags, iterations=6, more=""):
    write(folder, SOLVER + more, ("max_iter: 2", f"max_iter: {iterations}"), name="solver.prototxt")
    return caffe("train", "-solver", "solver.prototxt", *flags, cwd=folder)


def test_report_statistics_and_log_of_one_run(folder):
    done = _train(
        folder,
        "-backend",
        "sim",
        "-lms",
        "1",
        "-lms_report",
        "r.html",
        "-lms_stats=s.json",
        iterations=6,
        more="display: 2\n",
    )
    assert done.code == 0, done.stderr
    found = json.loads((folder / "s.json").read_text())
    train = found["programs"]["train"]
    assert found["iterations"] == train["total"]["runs"] == 6
    assert train["measured"]["iteration"] == "iteration 4" and train["measured"]["simulated"]
    lines = [m for m in map(LINE.fullmatch, done.log) if m]
    assert len(lines) == 3  # iterations 0, 2 and 4
    others = train["last_run"]["bytes_in"]
    images = 4 * 3 * 8 * 8 * 4  # they do not change: they come in at first, and when the recording is made
    assert train["total"]["bytes_in"] == 6 * others + 2 * images
    assert (lines[0][1], lines[-1][1]) == (human_bytes(others + images), human_bytes(others))
    for m in lines:
        assert m[2] == human_bytes(train["last_run"]["bytes_out"])
        assert float(m[3]) == pytest.approx(train["plan"]["stall_ms_predicted"], rel=0.01)
        fixed = found["resident_bytes"] + found["workspace_bytes"]
        assert m[5] == human_bytes(fixed + train["plan"]["held_bytes"])
        assert not any(re.search(pattern, m[0]) for pattern in PARSED)
    page = Page((folder / "r.html").read_text())
    assert "measured" not in (folder / "r.html").read_text().lower(), "a model clock measures nothing"
    assert "time, simulated" in page.texts["th"] and "simulated: iteration 4" in page.texts["h3"]
    operations = train["plan"]["steps"] + train["plan"]["copies_in"] + train["plan"]["copies_out"]
    assert sum(a["class"] != "stall" for a in page.all("rect")) == 2 * operations
    assert {"conv+relu", "pool", "ip", "loss"} <= set(page.texts["td"])


def test_the_automatic_mode_is_recorded_once_its_plan_has_settled(folder):
    """It is planned anew after iteration 5; the last recording is the automatic mode's own."""
    write(folder, NET, ("dim: 4 dim: 3", "dim: 64 dim: 3"), ("shape { dim: 4 }", "shape { dim: 64 }"))
    done = _train(folder, "-backend", "sim", "-lms", "auto", "-lms_stats", "s.json", iterations=8)
    assert done.code == 0, done.stderr
    measured = json.loads((folder / "s.json").read_text())["programs"]["train"]["measured"]
    assert measured["iteration"] == "iteration 8"


def test_a_trace_of_the_same_iterations_does_not_come_between(folder):
    flags = ("-backend", "sim", "-lms", "1", "-lms_report", "r.html", "-profile", "t.json")
    done = _train(folder, *flags, iterations=5)
    assert done.code == 0, done.stderr
    trace = json.loads((folder / "t.json").read_text())
    assert [e["name"] for e in trace["traceEvents"] if e["ph"] == "i"] == [f"iteration {i}" for i in (2, 3, 4)]
    page = Page((folder / "r.html").read_text())
    assert "simulated: iteration 4" in page.texts["h3"]


def test_a_short_run_records_its_last_iteration(folder):
    done = _train(folder, "-backend", "sim", "-lms", "1", "-lms_report", "r.html", iterations=2)
    assert done.code == 0, done.stderr
    assert "simulated: iteration 2" in Page((folder / "r.html").read_text()).texts["h3"]


def test_without_lms_there_is_no_line_and_nothing_to_report(folder):
    done = _train(folder, "-backend", "sim", more="display: 1\n")
    assert done.code == 0 and not any(line.startswith("LMS") for line in done.log)
    for flags in (("-backend", "sim"), ("-backend", "cpu", "-lms", "1")):
        message, fix = complaint(_train(folder, *flags, "-lms_stats", "s.json"), 2)
        assert message.startswith("-lms_stats") and "-lms" in fix
    assert not (folder / "s.json").exists()


def test_a_folder_that_is_not_there_is_refused_at_once(folder):
    for flag in ("-lms_report", "-lms_stats"):
        message, _ = complaint(_train(folder, "-backend", "sim", "-lms", "1", flag, "no/where"), 2)
        assert f"{flag} no/where" in message


def test_where_nothing_is_managed_the_log_says_why_there_is_no_report(folder):
    done = _train(folder, "-backend", "sim", "-lms", "100000", "-lms_report", "r.html")
    assert done.code == 0, done.stderr
    assert any("-lms_report r.html: not written" in line for line in done.log)
    assert not (folder / "r.html").exists()


def test_plan_writes_a_page_of_predictions(folder, capsys):
    path = folder / "p.html"
    assert main(["plan", "-model", str(folder / "net.prototxt"), "-lms", "1", "-report", str(path)]) == 0
    assert f"wrote {path}" in capsys.readouterr().out
    page = Page(path.read_text())
    assert page.texts["title"] == ["Large Model Support: small"]
    assert page.texts["p"][0] == "small (net.prototxt), a training iteration. All times are predictions; nothing ran."
    assert "time, measured" not in page.texts["th"] and "139.0 GiB" in page.texts["dd"]
    budget = ["-lms_budget", "1MB", "-report", str(path)]
    assert main(["plan", "-model", str(folder / "net.prototxt"), "-lms", "1", *budget]) == 0
    assert "1.0 MiB" in Page(path.read_text()).texts["dd"]
    assert main(["plan", "-model", str(folder / "net.prototxt"), "-lms", "1", "-report", str(folder / "no/p")]) == 2
    capsys.readouterr()
    path.unlink()
    assert main(["plan", "-model", str(folder / "net.prototxt"), "-lms", "9999", "-report", str(path)]) == 0
    assert "is not written" in capsys.readouterr().out and not path.exists()


def test_a_page_for_several_budgets(folder, capsys):
    """The budgets are less than the 79.5 KiB that the net takes without LMS; see the test below."""
    path = folder / "p.html"
    argv = ["plan", "-model", str(folder / "net.prototxt"), "-lms", "1", "-lms_budget", "60KB", "-summary"]
    assert main([*argv, "-report", str(path), "-report_budgets", "1KB, 70KB,55KB,60KB"]) == 0
    said = capsys.readouterr().out
    assert f"{path} does not show 1.0 KiB: the net does not fit" in said
    page = Page(path.read_text())
    assert len(page.all("section", **{"class": "plan"})) == 3  # 60 KB once
    assert list(dict.fromkeys(t for t in page.texts["dd"] if t in ("55.0 KiB", "60.0 KiB", "70.0 KiB"))) == [
        "55.0 KiB",
        "60.0 KiB",
        "70.0 KiB",
    ]
    assert [a["value"] for a in page.all("input")] == ["1"]
    assert main([*argv, "-report_budgets", "1KB"]) == 2
    assert "-report_budgets needs a page" in capsys.readouterr().err
    assert main([*argv, "-report", str(path), "-report_budgets", "1 elephant"]) == 2
    assert "-report_budgets" in capsys.readouterr().err


def test_what_fits_without_has_statistics_but_no_plan_to_show(folder):
    """Nothing is copied, nothing lossy, and no file of plans written that a run with copies would replay."""
    argv = ["-backend", "sim", "-lms", "100000", "-lms_budget", "82KB", "-lms_compress", "fp16"]  # 79.5 without LMS
    files = ["-lms_report", "r.html", "-lms_stats", "s.json", "-lms_plan", "p.txt"]
    done = _train(folder, *argv, *files)
    assert done.code == 0, done.stderr
    found = json.loads((folder / "s.json").read_text())
    assert (found["enabled"], found["lossy"], found["total"]["bytes_in"]) == (False, "", 0)
    assert not (folder / "r.html").exists() and not (folder / "p.txt").exists()
    for file in ("-lms_report r.html", "-lms_plan p.txt"):
        assert any(line.startswith(f"{file}: not written, for nothing is managed") for line in done.log)


def test_a_line_that_says_the_same_as_the_last_is_left_out(folder):
    """From iteration 4 on every iteration copies as much: only changes are logged."""
    done = _train(folder, "-backend", "sim", "-lms", "1", iterations=12, more="display: 1\n")
    lines = [m[0] for m in map(LINE.fullmatch, done.log) if m]
    assert done.code == 0 and sum(", loss = " in line for line in done.log) >= 12
    assert 1 <= len(lines) < 12 and all(a != b for a, b in zip(lines, lines[1:], strict=False))


@pytest.mark.parametrize(("math", "rate"), [("tf32", "255 TFLOP/s"), ("fp32", "43 TFLOP/s"), ("bf16", "255 TFLOP/s")])
def test_predictions_are_for_the_math_that_runs(folder, capsys, math, rate):
    """As `plan -gpu h200 -math` has them; the simulated device is an H200 to predictions."""
    done = _train(folder, "-backend", "sim", "-lms", "1", "-lms_budget", "60KB", "-math", math, "-lms_report", "r.html")
    assert done.code == 0, done.stderr
    [rates] = [text for text in Page((folder / "r.html").read_text()).texts["dd"] if "TFLOP/s" in text]
    assert rate in rates
    assert main(["plan", str(folder / "net.prototxt"), "-gpu", "h200", "-math", math]) == 0
    assert rate in capsys.readouterr().out
    _train(folder, "-backend", "sim")  # leaves the process in the mode it was in
