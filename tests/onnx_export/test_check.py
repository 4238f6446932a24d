"""`check_onnx`: it measures how far a model is from its net, and finds what was changed in the model."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx

from pycaffe_lms.errors import ExportError
from pycaffe_lms.onnx_export import check_onnx, export_onnx
from pycaffe_lms.onnx_export.trial import random_inputs

from .harness import fill_params, net_of
from .test_graphs import DATA, RECURRENT, conv, layer

IP = layer("i", "InnerProduct", "c", "i", "inner_product_param { num_output: 4 }")


@pytest.fixture
def made(tmp_path):
    """A net, its model, and a function that adds a number to a constant of the model."""
    net = net_of(DATA + conv("c", "data", "c") + IP)
    fill_params(net)
    path = tmp_path / "net.onnx"
    export_onnx(net, path, dynamic_batch=True)

    def change(name: str, by: float) -> None:
        model = onnx.load(path)
        (tensor,) = [t for t in model.graph.initializer if t.name == name]
        array = onnx.numpy_helper.to_array(tensor) + np.float32(by)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, name))
        onnx.save(model, path)

    return net, path, change


def test_a_faithful_model(made):
    net, path, _ = made
    (found,) = check_onnx(net, path, dynamic_batch=True)
    assert found.output == "i" and 0 <= found.relative < 1e-5 and found.absolute < 1e-2
    assert tuple(net.blobs["data"].shape) == (2, 3, 6, 5)  # as before


def test_a_changed_bias_is_measured(made):
    """By one half: the largest difference is that, on every input."""
    net, path, change = made
    change("i/bias", 0.5)
    (found,) = check_onnx(net, path)
    assert found.absolute == pytest.approx(0.5, abs=0.02)
    net.blobs["data"].data = np.ones((2, 3, 6, 5))
    net.forward_range()
    ones = {"ones": {"data": np.ones((2, 3, 6, 5), np.float32)}}
    expected = 0.5 / np.abs(net.blobs["i"].data).max()
    (with_ones,) = check_onnx(net, path, ones)
    assert with_ones.relative >= expected * 0.99


def test_the_given_input_is_run(made):
    """A change that only shows where the input is large: the difference is found there."""
    net, path, change = made
    change("c/weight", 1e-3)
    (found,) = check_onnx(net, path, {"large": {"data": np.full((2, 3, 6, 5), 1e4, np.float32)}})
    assert found.absolute > 1 and found.where in ("large", "random numbers", "random pixels")


def test_what_is_not_a_number_is_infinitely_far(made):
    net, path, change = made
    change("i/bias", np.nan)
    (found,) = check_onnx(net, path)
    assert found.absolute == np.inf == found.relative


def test_another_shape(made, tmp_path):
    net, _, _ = made
    other = net_of(DATA + conv("c", "data", "c") + IP.replace("num_output: 4", "num_output: 5"))
    export_onnx(other, tmp_path / "other.onnx")
    (found,) = check_onnx(net, tmp_path / "other.onnx")
    assert found.absolute == np.inf and "shape (2, 5) instead of (2, 4)" in found.where


def test_a_damaged_model(made):
    net, path, _ = made
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ExportError, match="onnxruntime does not check this model"):
        check_onnx(net, path)


def test_an_input_that_is_an_output(tmp_path):
    net = net_of('layer { name: "in" type: "Input" top: "data" top: "x" input_param { shape { dim: 2 dim: 3 } } }')
    export_onnx(net, tmp_path / "net.onnx")
    assert {d.output: d.absolute for d in check_onnx(net, tmp_path / "net.onnx")} == {"data": 0, "x": 0}


def test_random_inputs_are_of_the_kind_that_the_layer_reads():
    embed = layer("e", "Embed", "x", "e", "embed_param { input_dim: 7 num_output: 3 }")
    net = net_of('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 60 } } } ' + embed)
    values = random_inputs(net, 0)["x"]
    assert set(values.tolist()) == set(range(7))
    net = net_of(RECURRENT + layer("r", "LSTM", "x cont", "y", "recurrent_param { num_output: 5 }"))
    cont = random_inputs(net, 0)["cont"]
    assert not cont[0].any() and set(cont.reshape(-1).tolist()) <= {0, 1}
    pool = layer("p", "ROIPooling", "x rois", "p", "roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 0.5 }")
    both = 'top: "x" top: "rois" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 9 } shape { dim: 50 dim: 5 } }'
    net = net_of(f'layer {{ name: "in" type: "Input" {both} }} ' + pool + layer("q", "ReLU", "rois", "q"))
    image, x1, y1, x2, y2 = random_inputs(net, 0)["rois"].T
    assert set(image.tolist()) == {0, 1} and (x1 <= x2).all() and (y1 <= y2).all()
    assert 8 < x2.max() < 18 and 8 < y2.max() < 16 and min(x1.min(), y1.min()) >= 0
    data = random_inputs(net, 0)["x"]
    assert data.dtype == np.float32 and abs(data.mean()) < 0.3 and 0.8 < data.std() < 1.2
