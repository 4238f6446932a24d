"""Net surgery: filters edited by hand, and a classifier's matrix products cast into convolutions over any size."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as caffe
from tests.real.files import LENET, mnist_test
from tests.shared_data import needs_shared

CONV = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 12 dim: 12 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 5 weight_filler { type: "gaussian" std: 0.01 } } }
"""
# LeNet with its two matrix products as convolutions: 4 x 4, the size of pool2, and 1 x 1.
FULL_CONV = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 44 dim: 56 } } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
  convolution_param { num_output: 20 kernel_size: 5 } }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "conv2" type: "Convolution" bottom: "pool1" top: "conv2"
  convolution_param { num_output: 50 kernel_size: 5 } }
layer { name: "pool2" type: "Pooling" bottom: "conv2" top: "pool2" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "ip1-conv" type: "Convolution" bottom: "pool2" top: "ip1"
  convolution_param { num_output: 500 kernel_size: 4 } }
layer { name: "relu1" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2-conv" type: "Convolution" bottom: "ip1" top: "ip2"
  convolution_param { num_output: 10 kernel_size: 1 } }
layer { name: "prob" type: "Softmax" bottom: "ip2" top: "prob" }
"""


def write(folder, text):
    path = folder / "net.prototxt"
    path.write_text(text)
    return str(path)


def test_filters_edited_by_hand(tmp_path):
    net = caffe.Net(write(tmp_path, CONV), caffe.TEST)
    image = np.random.default_rng(0).normal(size=(12, 12)).astype(np.float32)
    net.blobs["data"].data[...] = image
    net.forward()
    first = net.blobs["conv"].data.copy()
    # Biases are only added.
    net.params["conv"][1].data[0] = 1.0
    net.forward()
    np.testing.assert_allclose(net.blobs["conv"].data[0, 0] - first[0, 0], 1, rtol=1e-5)
    np.testing.assert_array_equal(net.blobs["conv"].data[0, 1:], first[0, 1:])
    # A mean filter, and horizontal and vertical edges.
    net.params["conv"][0].data[0] = 1 / 25
    net.params["conv"][0].data[1:] = 0
    net.params["conv"][0].data[1:, 0, 1:4, 1:4] = [[-1, -2, -1], [0, 0, 0], [1, 2, 1]]
    net.params["conv"][0].data[2, 0] = net.params["conv"][0].data[1, 0].T
    net.params["conv"][1].data[...] = 0
    net.forward()
    found = net.blobs["conv"].data[0]
    for y, x in ((0, 0), (3, 5), (7, 7)):
        window = image[y : y + 5, x : x + 5].astype(float)
        assert found[0, y, x] == pytest.approx(window.mean(), abs=1e-5)
        smooth_x = window[:, 1:4] @ [1, 2, 1]
        smooth_y = window[1:4].T @ [1, 2, 1]
        assert found[1, y, x] == pytest.approx(smooth_x[3] - smooth_x[1], abs=1e-4)
        assert found[2, y, x] == pytest.approx(smooth_y[3] - smooth_y[1], abs=1e-4)


@needs_shared
@pytest.mark.shared
def test_a_classifier_becomes_a_detector(tmp_path):
    weights = str(LENET / "lenet_iter_10000.caffemodel")
    net = caffe.Net(str(LENET / "lenet.prototxt"), caffe.TEST, weights=weights)
    params = ["ip1", "ip2"]
    fc_params = {pr: (net.params[pr][0].data, net.params[pr][1].data) for pr in params}
    assert fc_params["ip1"][0].shape == (500, 800)

    full_conv = caffe.Net(write(tmp_path, FULL_CONV), caffe.TEST, weights=weights)
    np.testing.assert_array_equal(full_conv.params["conv2"][0].data, net.params["conv2"][0].data)
    params_full_conv = ["ip1-conv", "ip2-conv"]
    conv_params = {pr: (full_conv.params[pr][0].data, full_conv.params[pr][1].data) for pr in params_full_conv}
    assert conv_params["ip1-conv"][0].shape == (500, 50, 4, 4)
    assert not conv_params["ip1-conv"][0].any()  # the file has no such layer

    for pr, pr_conv in zip(params, params_full_conv, strict=True):
        conv_params[pr_conv][0].flat = fc_params[pr][0].flat  # unrolls the arrays
        conv_params[pr_conv][1][...] = fc_params[pr][1]
    full_conv.save(str(tmp_path / "full_conv.caffemodel"))

    # Four digits in one picture.
    digits, labels = mnist_test()
    picture = np.zeros((44, 56), np.float32)
    places = {(0, 0): 0, (0, 28): 1, (16, 0): 2, (16, 28): 3}
    for (y, x), k in places.items():
        picture[y : y + 28, x : x + 28] = np.maximum(picture[y : y + 28, x : x + 28], digits[k, 0] / 256)
    saved = caffe.Net(write(tmp_path, FULL_CONV), caffe.TEST, weights=str(tmp_path / "full_conv.caffemodel"))
    saved.blobs["data"].data[...] = picture
    heat = saved.forward()["prob"]
    assert heat.shape == (1, 10, 5, 8)

    # The same by sliding the classifier over the picture, 4 pixels at a time.
    windows = [picture[4 * i : 4 * i + 28, 4 * j : 4 * j + 28] for i in range(5) for j in range(8)]
    scores = net.forward_all(data=np.array(windows)[:, None])["prob"]
    np.testing.assert_allclose(heat[0].reshape(10, 40).T, scores, rtol=1e-3, atol=1e-6)
    assert heat[0, :, 0, 0].argmax() == labels[0] and heat[0, :, 0, 7].argmax() == labels[1]
    assert heat.max() > 0.99 and len(set(heat[0].argmax(0).ravel())) > 2
