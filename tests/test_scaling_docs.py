"""docs/scaling.md is what tools/gen_scaling_docs.py writes, and published efficiencies are where it says they are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.thorough
def test_the_file_is_current(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_scaling_docs

    assert gen_scaling_docs.main(["--check"]) == 0, "run: python tools/gen_scaling_docs.py"


@pytest.mark.pure
def test_what_was_measured_lies_between_all_hidden_and_nothing_hidden():
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    row = re.search(r"^\| 256 \| (.*) \|$", page, re.M)
    assert row is not None
    hidden, behind, ddl, hidden2, behind2, caffe2, *_ = (float(cell.rstrip("%")) for cell in row[1].split(" | "))
    assert behind < ddl == 95 < hidden and behind2 < caffe2 == 89 < hidden2
    for predicted, measured, error in re.findall(r"\| ([\d.]+)% \| ([\d.]+)% \| \+([\d.]+) points", page):
        assert float(predicted) - float(measured) == pytest.approx(float(error), abs=0.11)
