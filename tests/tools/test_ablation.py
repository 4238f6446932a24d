"""tools/bench/ablation.py: the table of docs/plan_search.md is made of the ratios that are kept beside it."""

import importlib
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def ablation():
    sys.path.insert(0, str(ROOT / "tools" / "bench"))
    try:
        yield importlib.import_module("ablation")
    finally:
        sys.path.remove(str(ROOT / "tools" / "bench"))


def test_the_page_has_the_table_of_the_ratios(ablation):
    record = json.loads((ROOT / "docs" / "plan_search.json").read_text())
    assert ablation.page_table(record) in (ROOT / "docs" / "plan_search.md").read_text()


def test_the_page_has_the_table_of_what_was_measured(ablation):
    record = json.loads((ROOT / "docs" / "plan_measured.json").read_text())
    assert set(record) == {f"{net} {budget}" for net, (_, budget) in ablation.MEASURED.items()}
    assert ablation.measured_table(record) in (ROOT / "docs" / "plan_search.md").read_text()


def test_measured_results(ablation):
    done = [{"case": "a 1GB", "change": change, "seconds": s} for change, s in (("", 1.0), ("x", 1.1), ("y", 1.0))]
    done += [
        {"case": "measured a 1GB", "change": "", "seconds": 2.0},
        {"case": "measured b 1GB", "change": "", "seconds": 1},
    ]
    done += [{"case": "b 1GB", "change": "", "seconds": 1.0}, {"case": "b 1GB", "change": "z", "seconds": 1.2}]
    done += [{"case": "measured a 1GB", "change": "x", "seconds": 3.0}]
    done += [{"case": "measured b 1GB", "change": "z", "seconds": None}]
    record = ablation.measured_of(done)
    assert record == {"a 1GB": {"": [2.0, 1.0], "x": [3.0, 1.1]}, "b 1GB": {"": [1, 1.0], "z": [None, 1.2]}}
    rows = ablation.measured_table(record).splitlines()[2:]
    assert rows == [
        "| none | 2000.0 ms (1000.0) | 1000.0 ms (1000.0) |",
        "| x | 1.500 (1.100) |  |",
        "| z |  | does not fit |",
    ]


def test_ratios_of_results(ablation):
    cases = [f"a 5%{mode}" for mode in ("", " -lms 1000", " -lms 1000 -lms_pages off")]
    done = [{"case": case, "change": "", "seconds": 2.0} for case in cases]
    done += [{"case": case, "change": "x", "seconds": s} for case, s in zip(cases, (3.0, 2.0, 1.0), strict=True)]
    done += [{"case": cases[0], "change": "only one", "seconds": 2.0}]
    record = ablation.ratios_of(done)
    assert record == {"cases": sorted(cases), "ratios": {"x": {cases[0]: 1.5, cases[2]: 0.5}}}
    row = ablation.page_table(record).splitlines()[2]
    assert row == "| x | 1.5000 | 1.500 a 5% | 1.0000 | - | 0.5000 | - |"
