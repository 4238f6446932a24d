"""tools/bench/scenarios.py: a run on four simulated ranks, its file, its table and picture."""

from __future__ import annotations

import json

import pytest

from pycaffe_lms.errors import LostRank
from pycaffe_lms.parallel.launch import Rank

from ..parallel.ranks import in_threads

GIB = 1 << 30


@pytest.fixture
def scenarios(script, monkeypatch):
    """The script, whose ranks are threads."""
    module = script("scenarios")

    def run_ranks(work, args, place, names):
        in_threads(len(names), lambda rank, path: work(*args, Rank(rank, len(names), path)))

    monkeypatch.setattr(module, "run_ranks", run_ranks)
    return module


def row(batch, who, ranks, seconds=None, **more):
    made = {"backend": "cuda", "model": "net", "budget": 16 * GIB, "math": "tf32", "batch": batch, "who": who}
    made |= {"ranks": ranks, **more}
    if seconds is None:
        return made
    return {"memory": 2 * GIB, "bytes_in": 0, "bytes_out": 0} | made | {"seconds": seconds, "iterations": 28}


ROWS = [
    row(256, "auto", 4, 0.20, digests=["b"] * 4, bytes_in=3 << 30, bytes_out=1 << 20),
    row(8, "off", 1, 0.010, digests=["a"]),
    row(8, "off", 4, 0.0125, digests=["a"] * 4),
    row(8, "auto", 4, 0.0125, digests=["a", "a", "x", "a"]),
    row(8, "tuned", 4, 0.0125, digests=["c"] * 4, kb=3000),
    row(256, "auto", 4, 0.10, digests=["b"] * 4, capture=True),
    row(256, "auto", 1, 0.08, digests=["a"]),
    row(256, "auto", 4, 0.082, digests=["a"] * 4, apart=True),
    row(256, "off", 4, fits=False, error="the net | needs 41 GiB\n  fix: more"),
    row(256, "1000", 4, error="rank 2 of 4 failed: Traceback (most recent call last):\n  File x\nOSError: none"),
]


def test_the_table(script):
    assert script("scenario_table").markdown(ROWS).splitlines()[2:] == [
        "| 8 | off | 1 | tf32 | 800 | - | 2.0 GiB | - | - | equal |",
        "| 8 | off | 4 | tf32 | 2560 | 0.800 | 2.0 GiB | - | - | equal |",
        "| 8 | tuned: -lms 3000 | 4 | tf32 | 2560 | - | 2.0 GiB | - | - | not those of off |",
        "| 8 | -lms auto | 4 | tf32 | 2560 | - | 2.0 GiB | - | - | ranks differ |",
        "| 256 | off | 4 | tf32 | does not fit: the net / needs 41 GiB | - | - | - | - | - |",
        "| 256 | -lms 1000 | 4 | tf32 | failed: OSError: none | - | - | - | - | - |",
        "| 256 | -lms auto | 1 | tf32 | 3200 | - | 2.0 GiB | - | - | equal |",
        "| 256 | -lms auto | 4, apart | tf32 | 12488 | 0.976 | 2.0 GiB | - | - | equal |",
        "| 256 | -lms auto | 4 | tf32 | 5120 | 0.400 | 2.0 GiB | 3.0 GiB | 1.0 MiB | equal |",
        "| 256 | -lms auto | 4, recorded | tf32 | 10240 | 0.800 | 2.0 GiB | - | - | equal |",
    ]


def test_the_table_of_some(script):
    shown = script("scenario_table").markdown(ROWS, [4]).splitlines()
    assert len(shown) == 2 + 8 and shown[2].startswith("| 8 | off | 4 | tf32 | 2560 | 0.800 |")
    assert shown[-5] == "| 256 | off | 4 | tf32 | does not fit | - | - | - | - | - |"


def test_the_picture(script, tmp_path):
    pytest.importorskip("matplotlib")
    script("scenario_table").figure(ROWS, tmp_path / "rows.svg")
    drawn = (tmp_path / "rows.svg").read_text()
    for said in ("does not fit", "failed", "efficiency, compared to one rank", "net, 4 ranks, 16.0 GiB"):
        assert f"<!-- {said}" in drawn or f"<!--  {said}" in drawn


def test_what_variations_mean(scenarios):
    def of(who, **more):
        return scenarios.settings(row(8, who, 1, **more), 141 * GIB)

    assert not of("off").enabled and of("off").budget == 16 * GIB and of("memory").budget is None
    assert of("1000").threshold_kb == 1000 and of("auto").auto
    tuned = of("tuned", kb=300)
    assert (tuned.threshold_kb, tuned.exclude, tuned.budget_of(141 * GIB)) == (300, 125 * GIB, 16 * GIB)


def _run(scenarios, path, *words):
    code = scenarios.main(["--backend", "sim", "--model", "digits", "--json", str(path), *words])
    return code, json.loads(path.read_text())


def test_four_simulated_ranks_have_the_same_bits_in_every_variation(scenarios, tmp_path):
    """A budget below what the net needs, and all of the memory."""
    counts = ["--ranks", "4", "--batch", "16", "--iterations", "1", "--warmup", "2"]
    code, rows = _run(scenarios, tmp_path / "rows.json", *counts, "--budget", "300KB")
    assert code == 0 and [r["who"] for r in rows] == ["memory", "off", "1000", "tuned", "auto"]
    ran = [r for r in rows if "error" not in r]
    assert {r["who"] for r in ran} == {"memory", "tuned"} and {len(r["digests"]) for r in ran} == {4}
    assert len({digest for r in ran for digest in r["digests"]}) == 1
    assert all(len(set(r["losses"])) == 4 for r in ran)  # every rank has images of its own
    refused = [r for r in rows if "error" in r]
    assert not any(r["fits"] for r in refused) and all("device memory" in r["error"] for r in refused)
    tuned = next(r for r in rows if r["who"] == "tuned")
    assert tuned["kb"] == 1 and tuned["memory"] <= 300 << 10 and tuned["bytes_in"] > 0 < tuned["bytes_out"]
    assert next(r for r in rows if r["who"] == "memory")["memory"] > 300 << 10


def test_ranks_apart_train_as_one_alone(scenarios, tmp_path):
    """All with the images and the weights of rank 0, so that every one ends with the bits of a single rank."""
    words = ["--batch", "16", "--modes", "memory", "--iterations", "1", "--warmup", "2", "--ranks", "1", "3"]
    code, (one, apart) = _run(scenarios, tmp_path / "rows.json", *words, "--apart")
    assert code == 0 and apart["apart"] and not one["apart"]
    assert apart["digests"] == 3 * one["digests"] and apart["losses"] == 3 * one["losses"]
    assert len(apart["each"]) == 3 and apart["seconds"] == max(apart["each"])
    code, (*_, joined) = _run(scenarios, tmp_path / "rows.json", *words)
    assert code == 0 and len(set(joined["losses"])) == 3 and joined["digests"][0] not in apart["digests"]


def test_ranks_apart_have_no_sums_to_record(scenarios, tmp_path, capsys):
    for more in (["--capture"], ["--network"], ["--backend", "plan"]):
        with pytest.raises(SystemExit):
            scenarios.main(["--json", str(tmp_path / "rows.json"), "--apart", *more])
        assert "--apart has no sums" in capsys.readouterr().err


def test_rows_that_are_there_are_not_run_again_and_none_begins_too_late(scenarios, monkeypatch, tmp_path):
    ran, clock = [], [0.0]

    def measured(row, iterations, warmup):
        ran.append((row["batch"], iterations, warmup))
        clock[0] += 100.0
        return {"seconds": 1.0, "memory": 1, "bytes_in": 0, "bytes_out": 0}

    monkeypatch.setattr(scenarios, "measured", measured)
    monkeypatch.setattr(scenarios.time, "monotonic", lambda: clock[0])
    path, words = tmp_path / "rows.json", ["--ranks", "1", "--modes", "off", "--batch", "8", "16", "32"]
    _run(scenarios, path, *words, "--seconds", "250")
    assert ran == [(8, 10, 4), (16, 10, 4)]  # the third might end after 300 s
    _, rows = _run(scenarios, path, *words)
    assert [batch for batch, *_ in ran] == [8, 16, 32] == [r["batch"] for r in rows]
    _run(scenarios, path, *words, "--again")
    assert len(ran) == 6


def test_a_rank_that_fails_is_a_row_with_what_it_said(scenarios, monkeypatch, tmp_path):
    def run_ranks(work, args, place, names):
        raise LostRank("rank 2 of 4 did not answer")

    monkeypatch.setattr(scenarios, "run_ranks", run_ranks)
    code, rows = _run(scenarios, tmp_path / "rows.json", "--ranks", "4", "--batch", "1", "--modes", "off")
    assert code == 1 and rows[0]["fits"] is True and rows[0]["error"] == "rank 2 of 4 did not answer"


def test_predictions_for_several_gpus(scenarios, tmp_path):
    path = tmp_path / "rows.json"
    words = ["--backend", "plan", "--batch", "256", "--ranks", "1", "4", "--modes", "memory", "off", "--budget", "1MB"]
    code, rows = _run(scenarios, path, *words)
    one, four, *off = rows
    assert code == 0 and 0.5 * four["seconds"] < one["seconds"] < four["seconds"]
    assert [r["fits"] for r in off] == [False, False]
