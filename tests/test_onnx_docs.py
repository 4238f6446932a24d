"""docs/onnx.md is what tools/gen_onnx_docs.py writes, and every layer type is in it."""

import re
from pathlib import Path

import pytest

from pycaffe_lms.layers.registry import LAYERS
from pycaffe_lms.onnx_export.convert import CONVERTERS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def gen_onnx_docs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import gen_onnx_docs

    return gen_onnx_docs


def test_the_file_is_current(gen_onnx_docs):
    assert gen_onnx_docs.main(["--check"]) == 0, "run: python tools/gen_onnx_docs.py"


def test_every_type_has_one_place(gen_onnx_docs):
    rows, _, rest = gen_onnx_docs.text().partition("|---|---|---|\n")[2].partition("\nWithout a counterpart")
    exported = [name for row in rows.splitlines() for name in row.split(" | ")[0].lstrip("| ").split(", ") if name]
    assert sorted(exported) == sorted(CONVERTERS)
    others = re.findall(r"\w+", rest.partition(":")[2])
    assert set(others) == set(LAYERS) - set(CONVERTERS)


def test_check_writes_nothing(gen_onnx_docs, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gen_onnx_docs, "FILE", tmp_path / "docs" / "onnx.md")
    assert gen_onnx_docs.main(["--check"]) == 1
    assert capsys.readouterr().out == "not current: onnx.md\n" and not list(tmp_path.iterdir())
    assert gen_onnx_docs.main([]) == 0 and gen_onnx_docs.main(["--check"]) == 0
