"""Real public weights in the zoo's own prototxts: every layer takes its own, and the score is the known one."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.formats.weights.caffemodel import read_weights
from tests.real.files import CIFAR, DATA, LENET, WEIGHTS, cifar, cifar_mean, count_right, deploy, mnist_test
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


def test_squeezenet_takes_the_decompressed_weights_as_its_readme_says(tmp_path, monkeypatch):
    """The README's lines, run; then this net scores a picture as another program scores it with the file's own net."""
    source = WEIGHTS / "squeezenet_v1.0"
    code = (MODELS / "squeezenet-1.0/README.md").read_text().split("```python\n")[1].split("```")[0]
    (tmp_path / "theirs.prototxt").symlink_to(source / "deploy.prototxt")
    (tmp_path / "models").symlink_to(MODELS)
    file = "squeezenet_v1.0_decompressed.caffemodel"
    (tmp_path / file).symlink_to(source / file)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    net = zoo("squeezenet-1.0", tmp_path / "squeezenet_v1.0_renamed.caffemodel", (1, 3, 227, 227))
    with np.load(DATA / "golden" / "squeezenet_cat.npz") as golden:
        found = net.forward(blobs=["pool10"], data=golden["input"])["pool10"]
        np.testing.assert_allclose(found, golden["pool_final"], rtol=1e-4, atol=1e-3)
        assert np.ptp(golden["pool_final"]) > 5
