"""tools/bench/import_onnx.py: what it measures, and that its record has every net."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import pycaffe_lms as caffe

NET = """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 5 dim: 5 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "y"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
"""


@pytest.fixture
def bench(script):
    return script("import_onnx")


def test_what_is_recorded_of_a_net(bench, tmp_path, monkeypatch):
    (tmp_path / "net.prototxt").write_text(NET)
    caffe.export_onnx(caffe.Net(str(tmp_path / "net.prototxt"), caffe.TEST), str(tmp_path / "small.new.onnx"))
    (tmp_path / "bad.script.onnx").write_bytes((tmp_path / "small.new.onnx").read_bytes())
    (tmp_path / bench.VERSIONS).write_text('{"torch": "9.8"}')
    monkeypatch.setattr(bench, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(bench, "NETS", {"small": (2, 3, 5, 5), "bad": (1,)})
    bench.measure(tmp_path, ["small"])
    monkeypatch.setattr(bench, "_difference", lambda *_: "refused: why")
    bench.measure(tmp_path, ["bad"])
    known = json.loads((tmp_path / "results.json").read_text())
    assert set(known["versions"]) == {"torch", "onnx", "onnxruntime"} and known["versions"]["torch"] == "9.8"
    small, bad = known["nets"]["small"], known["nets"]["bad"]
    assert small["shape"] == [2, 3, 5, 5] and small["older"] == "not exported" and 0 <= small["newer"] < 1e-5
    assert bad == {"shape": [1], "older": "refused: why", "newer": "not exported"}


def test_every_net_was_measured(bench):
    known = json.loads(bench.RESULTS.read_text())
    assert {name: tuple(found["shape"]) for name, found in known["nets"].items()} == bench.NETS
    numbers = [found[kind] for found in known["nets"].values() for kind in bench.KINDS]
    assert all(isinstance(n, str) or 0 < n < 1e-5 for n in numbers) and len(numbers) > 40
