"""Real public weights in the zoo's own prototxts: every layer takes its own, and the score is the known one."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.formats.caffemodel import read_weights
from tests.real.files import CIFAR, LENET, cifar, cifar_mean, count_right, deploy, mnist_test
from tests.shared_data import needs_shared

from .nets import MODELS

pytestmark = [needs_shared, pytest.mark.shared]


def zoo(folder: str, weights, shape):
    net = deploy(MODELS / folder / "deploy.prototxt", weights, shape)
    assert {layer.name for layer in read_weights(weights) if layer.blobs} == set(net.params)
    return net


def test_lenet():
    images, labels = mnist_test()
    net = zoo("lenet", LENET / "lenet_iter_10000.caffemodel", (500, 1, 28, 28))
    assert count_right(net, images * np.float32(1 / 256), labels) == 9905


def test_cifar10_quick():
    images, labels = cifar("test_first1000")
    net = zoo("cifar10_quick", CIFAR / "cifar10_quick_iter_5000.caffemodel", (200, 3, 32, 32))
    assert count_right(net, images - cifar_mean(), labels) == 744
