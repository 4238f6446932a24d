"""OpenCV 5, which has no reader of Caffe's files any more, reads the models and gives the net's values."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("cv2")

import cv2

from pycaffe_lms.onnx_export import export_onnx
from tests.layers.test_detection_output import inputs

from .harness import fill_params, net_of, one_layer, run_net
from .test_graphs import DATA, conv, layer

OLD = int(cv2.__version__.split(".")[0]) < 5
pytestmark = pytest.mark.skipif(OLD, reason="OpenCV 4 reads Caffe's own files")


def of_opencv(net, feed, tmp_path) -> dict:
    export_onnx(net, tmp_path / "net.onnx")
    theirs = cv2.dnn.readNetFromONNX(str(tmp_path / "net.onnx"))
    for name, values in feed.items():
        theirs.setInput(values, name)
    names = theirs.getUnconnectedOutLayersNames()
    return dict(zip(names, theirs.forward(names), strict=True))


NETS = {
    "padded 1 x 1": conv("c", "data", "c", more="num_output: 4 kernel_size: 1 pad: 1"),
    "classifier": conv("c", "data", "c")
    + layer("bn", "BatchNorm", "c", "c")
    + layer("s", "Scale", "c", "c", "scale_param { bias_term: true }")
    + layer("r", "ReLU", "c", "c")
    + layer("p", "Pooling", "c", "p", "pooling_param { kernel_size: 3 stride: 2 }")
    + layer("l", "LRN", "p", "l")
    + layer("i", "InnerProduct", "l", "i", "inner_product_param { num_output: 4 }")
    + layer("prob", "Softmax", "i", "prob"),
}


@pytest.mark.parametrize("name", NETS)
def test_a_net(name, tmp_path):
    net = net_of(DATA + NETS[name])
    fill_params(net)
    feed = {"data": np.random.default_rng(0).normal(size=(2, 3, 6, 5)).astype(np.float32)}
    ours, theirs = run_net(net, feed), of_opencv(net, feed, tmp_path)
    assert set(ours) == set(theirs)
    for output, expected in ours.items():
        np.testing.assert_allclose(theirs[output].reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "more",
    ["keep_top_k: 7 confidence_threshold: 0.1 nms_param { top_k: 10 }", "confidence_threshold: 2", "nms_param {}"],
)
def test_detections(more, tmp_path):
    blobs = [b.astype(np.float32) for b in inputs(1, 16, 3)]
    text = f"detection_output_param {{ num_classes: 3 code_type: CENTER_SIZE {more} }}"
    net = one_layer("DetectionOutput", text, [b.shape for b in blobs])
    feed = {f"b{i}": b for i, b in enumerate(blobs)}
    ours, theirs = run_net(net, feed)["t0"], of_opencv(net, feed, tmp_path)["t0"]
    assert theirs.shape == ours.shape
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
