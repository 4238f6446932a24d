"""Whole heads of detectors: rows as OpenCV gives them, sizes that are known only after a run."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from pycaffe_lms.errors import ExportError, ShapeError
from pycaffe_lms.onnx_export import export_onnx
from pycaffe_lms.onnx_export.trial import random_inputs
from tests.layers.test_detection_output import MAPS, OPENCV, OPTIONS, inputs, parted, turned

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


@pytest.mark.parametrize("locations", [1, 3])
def test_maps_as_bottoms_of_their_own(locations, tmp_path):
    """The rows of the head whose bottoms are one of each, as OpenCV gives them."""
    blobs, name = inputs(2, 15, 3, locations), "center" if locations == 1 else "own"
    for bottoms, text in (
        (turned(blobs, MAPS, 3), "nbottom: 2 no_permute: true"),
        (parted(blobs, (12, 3), 3), "nbottom: 2"),
    ):
        feed = {f"b{i}": b.astype(np.float32) for i, b in enumerate(bottoms)}
        agree(net := head(f"num_classes: 3 {OPTIONS[name]} {text}", bottoms), Exported(net, tmp_path), feed)
        assert len(net.blobs["t0"].data[0, 0]) > 5


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


HEAD = """
layer { name: "in" type: "Input" top: "x" top: "im_info"
  input_param { shape { dim: [1, 3, 6, 8] } shape { dim: [1, 3] } } }
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param { num_output: 6 kernel_size: 3 pad: 1 } }
layer { name: "score" type: "Convolution" bottom: "c" top: "score" convolution_param { num_output: 4 kernel_size: 1 } }
layer { name: "pair" type: "Reshape" bottom: "score" top: "pair" reshape_param { shape { dim: [0, 2, -1, 0] } } }
layer { name: "soft" type: "Softmax" bottom: "pair" top: "soft" }
layer { name: "prob" type: "Reshape" bottom: "soft" top: "prob" reshape_param { shape { dim: [0, 4, -1, 0] } } }
layer { name: "move" type: "Convolution" bottom: "c" top: "move" convolution_param { num_output: 8 kernel_size: 1 } }
layer { name: "proposal" type: "Proposal" bottom: "prob" bottom: "move" bottom: "im_info" top: "rois"
  proposal_param { ratio: [0.667, 1.5] scale: 2 nms_thresh: 0.15 post_nms_topn: 50 min_size: 4 } }
layer { name: "pool" type: "ROIPooling" bottom: "c" bottom: "rois" top: "pool"
  roi_pooling_param { pooled_h: 2 pooled_w: 3 spatial_scale: 0.0625 } }
layer { name: "flat" type: "Flatten" bottom: "pool" top: "flat" }
layer { name: "fc" type: "InnerProduct" bottom: "flat" top: "fc" inner_product_param { num_output: 7 } }
layer { name: "relu" type: "ReLU" bottom: "fc" top: "fc" }
layer { name: "cls" type: "InnerProduct" bottom: "fc" top: "cls" inner_product_param { num_output: 3 } }
layer { name: "cls_prob" type: "Softmax" bottom: "cls" top: "cls_prob" }
"""


@pytest.mark.parametrize("opset", [11, 17])
def test_a_detector_of_two_stages(opset, tmp_path):
    """Regions as Faster R-CNN finds them, in a number that no size in the file names, and classes of each of them."""
    net = net_of(HEAD)
    rng = np.random.default_rng(1)
    for name in net.params:
        net.params[name][0].data = rng.normal(size=net.params[name][0].shape) * 0.3
    exported = Exported(net, tmp_path, opset=opset)
    assert exported.shape("cls_prob") == ["", 3]
    numbers = set()
    for _ in range(3):
        picture = rng.normal(size=(1, 3, 6, 8)).astype(np.float32)
        agree(net, exported, {"x": picture, "im_info": np.float32([[96, 128, 1]])})
        numbers.add(len(net.blobs["cls_prob"].data))
    assert len(numbers) > 1 and min(numbers) > 3


@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_behind_chosen_rows(dynamic, tmp_path):
    shapes = "shape { dim: [6, 4] } shape { dim: 6 }"
    text = layer("in", "Input", "", "x chosen", f"input_param {{ {shapes} }}")
    text += layer("f", "Filter", "x chosen", "some")
    text += layer("fc", "InnerProduct", "some", "fc", "inner_product_param { num_output: 3 }")
    text += layer("soft", "Softmax", "fc", "soft")
    net = net_of(text)
    net.params["fc"][0].data = np.random.default_rng(0).normal(size=(3, 4))
    exported = Exported(net, tmp_path, dynamic_batch=dynamic)
    assert exported.shape("soft") == ["", 3] and exported.shape("x") == ["batch" if dynamic else 6, 4]
    for n in (6, 9) if dynamic else (6,):
        net.blobs["x"].reshape(n, 4)
        net.blobs["chosen"].reshape(n)
        for rows in ([0, 3], range(n), [5], []):
            chosen = np.isin(np.arange(n), list(rows))
            agree(net, exported, {"x": np.random.default_rng(n).normal(size=(n, 4)), "chosen": chosen * 2})
            assert net.blobs["soft"].shape == (len(rows), 3)


def test_a_layer_that_needs_the_number_of_rows_is_refused(tmp_path):
    text = layer("in", "Input", "", "x chosen", "input_param { shape { dim: [6, 4] } shape { dim: 6 } }")
    text += layer("f", "Filter", "x chosen", "some")
    slices = layer("s", "Slice", "some", "a b", "slice_param { axis: 0 slice_point: 2 }")
    with pytest.raises(ExportError, match=r'layer "s" \(Slice\): is not the same for each number of rows'):
        export_onnx(net_of(text + slices), tmp_path / "a.onnx")
    product = layer("p", "InnerProduct", "some", "p", "inner_product_param { num_output: 3 axis: 0 }")
    with pytest.raises(ShapeError, match=r'(?s)layer "p" \(InnerProduct\).*two rows more than now'):
        export_onnx(net_of(text + product), tmp_path / "b.onnx")
    lost = layer("loss", "SoftmaxWithLoss", "some chosen", "loss")  # which needs as many rows of both
    with pytest.raises(ExportError, match=r'layer "loss" \(SoftmaxWithLoss\): is for training'):
        export_onnx(net_of(text + lost), tmp_path / "d.onnx")
    split = layer("r", "Reshape", "some", "r", "reshape_param { shape { dim: [2, 3, 4] } }")
    with pytest.raises(ShapeError, match=r'(?s)layer "r".*two rows more than now'):
        export_onnx(net_of(text + split), tmp_path / "c.onnx")


def test_random_inputs_choose_rows_and_tell_the_pictures_size():
    net = net_of(HEAD.split('layer { name: "pool"')[0])
    assert random_inputs(net, 0)["im_info"].tolist() == [[96, 128, 1]]
    text = layer(
        "in", "Input", "", "x y chosen", "input_param { shape { dim: [40, 1] } shape { dim: 40 } shape { dim: 40 } }"
    )
    net = net_of(text + layer("f", "Filter", "x y chosen", "some more"))
    found = random_inputs(net, 0)
    assert set(found["chosen"]) == {0, 1} and len(set(found["y"])) == 40
