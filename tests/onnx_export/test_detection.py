"""Whole heads of detectors: rows as OpenCV gives them, sizes that are known only after a run."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from pycaffe_lms.errors import ExportError
from pycaffe_lms.onnx_export import export_onnx
from pycaffe_lms.onnx_export.trial import random_inputs
from tests.layers.test_detection_output import OPENCV, OPTIONS, inputs

from .harness import Exported, agree, net_of, one_layer
from .test_graphs import layer


def head(text: str, blobs):
    return one_layer("DetectionOutput", f"detection_output_param {{ {text} }}", [b.shape for b in blobs])


@pytest.mark.parametrize("name", OPENCV)
def test_opencvs_rows(name, tmp_path):
    """cv2.dnn's rows, recorded in the layer's own tests."""
    blobs = [b.astype(np.float32) for b in inputs(2, 16, 3, locations=3 if name == "own" else 1)]
    found = Exported(head(f"num_classes: 3 {OPTIONS[name]}", blobs), tmp_path).run(
        **{f"b{i}": b for i, b in enumerate(blobs)}
    )["t0"]
    assert found.shape == (1, 1, len(OPENCV[name]), 7)
    np.testing.assert_allclose(found[0, 0], OPENCV[name], rtol=0, atol=1e-6)


def test_many_random_boxes_in_any_batch(tmp_path):
    blobs = [b.astype(np.float32) for b in inputs(2, 300, 6)]
    text = "num_classes: 6 code_type: CENTER_SIZE confidence_threshold: 0.1 keep_top_k: 40 nms_param { top_k: 60 }"
    net = head(text, blobs)
    exported = Exported(net, tmp_path, dynamic_batch=True)
    for n in (2, 1, 4):
        blobs = [b.astype(np.float32) for b in inputs(n, 300, 6, seed=n)]
        for i, b in enumerate(blobs):
            net.blobs[f"b{i}"].reshape(*b.shape)
        agree(net, exported, {f"b{i}": b for i, b in enumerate(blobs)})
        rows = net.blobs["t0"].data[0, 0]
        assert len(rows) > 10 * n and set(rows[:, 0]) == set(range(n))


def test_a_box_that_ends_before_it_begins_suppresses_none(tmp_path):
    """The operator would turn it round, and drop the second box, which lies inside."""
    priors = np.float32([[0.8, 0.8, 0.2, 0.2], [0.2, 0.2, 0.8, 0.8]])
    blobs = [np.zeros((1, 8)), [[0.1, 0.9, 0.2, 0.8]], np.stack([priors, np.ones((2, 4))]).reshape(1, 2, 8)]
    blobs = [np.asarray(b, np.float32) for b in blobs]
    net = head("num_classes: 2 nms_param { nms_threshold: 0.3 }", blobs)
    feed = {f"b{i}": b for i, b in enumerate(blobs)}
    exported = Exported(net, tmp_path)
    agree(net, exported, feed)
    assert exported.run(**feed)["t0"].shape == (1, 1, 2, 7)


def test_the_number_of_rows_is_open_and_nothing_may_read_it(tmp_path):
    blobs = inputs(1, 16, 3)
    shapes = [" ".join(f"dim: {n}" for n in b.shape) for b in blobs]
    text = "".join(
        layer(f"in{i}", "Input", "", f"b{i}", f"input_param {{ shape {{ {shape} }} }}")
        for i, shape in enumerate(shapes)
    )
    text += layer("d", "DetectionOutput", "b0 b1 b2", "d", "detection_output_param { num_classes: 3 }")
    net = net_of(text)
    assert Exported(net, tmp_path).shape("d") == [1, 1, "", 7]
    with pytest.raises(ExportError, match=r'layer "r" \(ReLU\): reads a blob whose size is known only after a run'):
        export_onnx(net_of(text + layer("r", "ReLU", "d", "r")), tmp_path / "more.onnx")


def test_eta_is_refused_where_it_matters(tmp_path):
    blobs = inputs(1, 16, 3)
    with pytest.raises(ExportError, match="has eta below 1"):
        export_onnx(head("num_classes: 3 nms_param { nms_threshold: 0.6 eta: 0.9 }", blobs), tmp_path / "a.onnx")


def test_the_number_of_regions_stays_open_where_they_are_the_first_input(tmp_path):
    text = layer("r", "Input", "", "rois", "input_param { shape { dim: 9 dim: 5 } }")
    text += layer("m", "Input", "", "map", "input_param { shape { dim: 1 dim: 8 dim: 7 dim: 6 } }")
    pooling = "psroi_pooling_param { spatial_scale: 0.5 output_dim: 2 group_size: 2 }"
    text += layer("p", "PSROIPooling", "map rois", "p", pooling)
    text += layer(
        "q", "ROIPooling", "map rois", "q", "roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.5 }"
    )
    net = net_of(text)
    exported = Exported(net, tmp_path, dynamic_batch=True)
    assert exported.shape("rois") == ["batch", 5] and exported.shape("map") == [1, 8, 7, 6]
    for n in (9, 1, 14):
        net.blobs["rois"].reshape(n, 5)
        agree(net, exported, random_inputs(net, n))
        assert net.blobs["p"].shape[0] == n and net.blobs["p"].data.any()
