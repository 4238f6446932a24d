"""tools/bench/leaving_caffe.py: what it exports, what it measures."""

from __future__ import annotations

import json

import numpy as np
import pytest

pytest.importorskip("cv2")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

NET = """name: "n"
layer { name: "data" type: "MemoryData" top: "data" top: "label"
  memory_data_param { batch_size: 1 channels: 3 height: 1 width: 1 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "proposal" type: "Python" bottom: "conv" top: "rois" python_param { module: "none" layer: "None" } }
layer { name: "pool" type: "ROIPooling" bottom: "conv" bottom: "rois" top: "pool"
  roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "pool" top: "ip" inner_product_param { num_output: 3 } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


@pytest.fixture
def bench(script):
    return script("leaving_caffe")


def test_a_net_that_is_cut_in_two(bench, tmp_path, monkeypatch, capsys):
    """Both parts run; OpenCV is replaced by the net itself, one number changed."""
    (tmp_path / "n.prototxt").write_text(NET)
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"models": {"n": {"cut": "proposal", "size": [9, 10]}, "absent": {}}}))
    monkeypatch.setattr(bench, "RESULTS", results)
    monkeypatch.setattr("sys.argv", ["leaving_caffe.py", str(tmp_path)])

    def of_opencv(net, prototxt, weights, inputs):
        assert weights.is_file()
        found = {name: net.blobs[name].data.copy() for name in net.outputs}
        for array in found.values():
            array.flat[0] += 0.5
        return found

    monkeypatch.setattr(bench, "of_opencv", of_opencv)
    assert bench.main() == 0
    known = json.loads(results.read_text())
    first, second = known["models"]["n"]["results"]
    assert first["inputs"] == {"data": [1, 3, 9, 10]} and second["inputs"] == {"conv": [1, 4, 7, 8], "rois": [100, 5]}
    assert list(first["onnx"]) == ["conv"] and list(second["onnx"]) == ["ip"]  # without the Softmax
    for result in (first, second):
        assert result["weights"] == "random"
        assert max(relative for _, relative in result["onnx"].values()) < 1e-5
        assert all(absolute == pytest.approx(0.5) for absolute, _ in result["opencv"].values())
    assert known["models"]["absent"] == {} and known["versions"]["seed"] == bench.SEED


def test_rows_of_detections_may_change_places(bench):
    ours = np.arange(21, dtype=np.float32).reshape(1, 1, 3, 7) + 1
    theirs = np.concatenate([ours[:, :, ::-1], np.zeros((1, 1, 4, 7), np.float32)], axis=2)
    assert bench.apart(ours, theirs, True) == [0, 0]
    theirs[0, 0, 1, 3] += 0.25
    assert bench.apart(ours, theirs, True)[0] == 0.25
    assert bench.apart(ours, theirs[:, :, 1:], True) == ["2 rows instead of 3", None]
    assert bench.apart(np.zeros(3), np.zeros(4), False)[1] is None
