"""docs/leaving_caffe.md shows what docs/leaving_caffe.json holds, and what was measured is near enough."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
RESULTS = json.loads((ROOT / "docs" / "leaving_caffe.json").read_text())
NETS = [(name, i, r) for name, m in RESULTS["models"].items() for i, r in enumerate(m["results"])]


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_leaving_caffe

    return gen_leaving_caffe


def test_the_page_is_current(generator):
    assert generator.main(["--check"]) == 0, "run: python tools/gen_leaving_caffe.py"


def test_every_net_has_a_row_with_its_worst_output(generator):
    table = generator.differences(RESULTS).partition("|---:|\n")[2].splitlines()
    assert len(table) == len(NETS)
    for row, (_, _, result) in zip(table, NETS, strict=True):
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if "refused" in result:
            assert cells[2].startswith("refused: ")
            continue
        worst = max(relative for _, relative in result["onnx"].values())
        assert float(cells[2]) == pytest.approx(worst, rel=0.06, abs=1e-12) and cells[1] == result["weights"]


@pytest.mark.parametrize(("name", "part", "result"), [n for n in NETS if "refused" not in n[2]])
def test_the_measured_models_agree_with_their_nets(name, part, result):
    """The tolerance that the command's -check has."""
    for kind in ("onnx", "opencv", "opencv5"):
        for output, (_, relative) in result.get(kind, {}).items():
            assert relative is None or relative < 1e-4, (kind, output)
    assert max(relative for _, relative in result["onnx"].values()) < 1e-4


def test_the_page_says_how_many_ran_with_real_weights(generator):
    said = re.search(r"Only (\d+) of these nets ran with their real weights, the other (\d+)", generator.text())
    real, random = (sum(r.get("weights") == w and "refused" not in r for _, _, r in NETS) for w in ("real", "random"))
    assert said is not None and [int(n) for n in said.groups()] == [real, random] and real > 0
