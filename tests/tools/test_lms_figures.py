"""tools/bench: results read back from a table of the docs, and what the bars of the scenarios show."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "tools" / "bench"
GIB = 1 << 30


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    yield
    for name in ("lms_table", "lms_figures"):
        sys.modules.pop(name, None)


def result(batch, who, seconds=None, peak=0.0, budget=16 * GIB, **more):
    found = {"model": "net", "batch": batch, "budget": budget, "who": who} | more
    return found if seconds is None else found | {"seconds": seconds, "device_peak": peak * GIB}


RESULTS = [
    result(8, "memory", 0.010, 2.0),
    result(8, "off", 0.010, 2.0),
    result(8, "auto", 0.011, 1.5),
    result(64, "memory", 0.050, 24.0),
    result(64, "off", error="does not fit"),
    result(64, "1000", 0.100, 16.0),
    result(64, "auto", 0.060, 16.0),
    result(64, "auto", 0.9, 4.0, budget=4 * GIB),
]


def test_a_table_is_read_back(bench):
    from lms_table import markdown, read_markdown

    text = f"words\n\n{markdown(RESULTS)}\n\nmore | words\n"
    key = lambda r: (-r["budget"], r["batch"], r["who"])  # noqa: E731
    for a, b in zip(sorted(read_markdown(text), key=key), sorted(RESULTS, key=key), strict=True):
        assert a.keys() == b.keys()
        for name, value in b.items():
            assert a[name] == (pytest.approx(value) if isinstance(value, float) else value), name


def test_bars_of_the_scenarios(bench, tmp_path):
    from lms_figures import bars, scenarios

    batches, memory, time = bars(RESULTS, "net", 16 * GIB)
    assert batches == [8, 64]
    assert memory == {"off": [2.0, "no"], "1000": [None, 16.0], "auto": [1.5, 16.0]}
    assert time["off"] == [1.0, "no"] and time["1000"] == [None, 2.0]
    assert time["auto"] == pytest.approx([1.1, 1.2])
    pytest.importorskip("matplotlib")
    scenarios(RESULTS, "net", 16 * GIB, tmp_path / "bars.svg")
    assert (tmp_path / "bars.svg").read_text().count("<path") > 7


def test_the_table_in_the_docs_is_whole(bench):
    from lms_table import read_markdown

    found = {
        (r["model"], r["batch"], r["budget"] and round(r["budget"] / GIB, 2), r["who"]): r
        for r in read_markdown((ROOT / "docs" / "speed.md").read_text())
    }
    assert found["resnet-152", 256, 16.0, "auto"]["seconds"] == pytest.approx(0.1646)
    assert found["resnet-152", 128, 16.0, "off"]["error"] == "does not fit"
    assert found["resnet-50", 256, 2.56, "auto"]["seconds"] == pytest.approx(0.0938)
    assert found["unet-3d", 1, 16.0, "1000"]["device_peak"] == 16 * GIB
