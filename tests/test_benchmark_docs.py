"""docs/benchmark.md shows what the files of docs/benchmarks hold."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def gen_benchmark_docs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_benchmark_docs

    return gen_benchmark_docs


def test_the_page_is_current(gen_benchmark_docs):
    assert gen_benchmark_docs.main(["--check"]) == 0, "run: python tools/gen_benchmark_docs.py"


@pytest.mark.parametrize("model", ["resnet-152", "unet-3d"])
def test_rates_are_batches_over_medians(model):
    rows = json.loads((ROOT / "docs" / "benchmarks" / f"{model}.json").read_text())["results"]
    page = (ROOT / "docs" / "benchmark.md").read_text()
    for row in rows:
        if not row["fits"]:
            assert row["least"] > row["budget"]
            continue
        seconds = sorted(row["seconds"])
        rate = row["batch"] / ((seconds[4] + seconds[5]) / 2)
        line = next(li.split() for li in page.splitlines() if li.split()[:2] == [str(row["batch"]), row["lms"]])
        assert len(seconds) == 10 and float(line[2]) == pytest.approx(rate, rel=2e-3)


def test_a_page_without_markers_is_refused(gen_benchmark_docs, monkeypatch, tmp_path):
    page = tmp_path / "benchmark.md"
    page.write_text("# Measure a model\n")
    monkeypatch.setattr(gen_benchmark_docs, "FILE", page)
    with pytest.raises(ValueError, match="markers"):
        gen_benchmark_docs.main([])
    assert page.read_text() == "# Measure a model\n"
