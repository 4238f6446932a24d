"""Nets with the weights that people trained with Caffe: the same class and the same probabilities elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.real.files import CIFAR, DATA, LENET, WEIGHTS, deploy, mnist_test
from tests.shared_data import SHARED, needs_shared

from .harness import Exported, run_net

pytestmark = [needs_shared, pytest.mark.shared]

SLIM = SHARED / "material" / "slim320"
NETS = {
    "squeezenet_cat": (WEIGHTS / "squeezenet_v1.0", "deploy.prototxt", "squeezenet_v1.0_decompressed.caffemodel"),
    "cifar10_quick_5000": (CIFAR, "cifar10_quick.prototxt", "cifar10_quick_iter_5000.caffemodel"),
    "mtcnn_det1": (WEIGHTS / "mtcnn_det1", "det1.prototxt", "det1.caffemodel"),
}


@pytest.mark.parametrize("golden", NETS)
def test_outputs_are_the_net_s_and_those_of_another_program(golden, tmp_path):
    """The input is a real picture, the expected outputs are of an independent importer of Caffe's files."""
    folder, prototxt, weights = NETS[golden]
    with np.load(DATA / "golden" / f"{golden}.npz") as file:
        golden_arrays = dict(file)
    source = golden_arrays["input"]
    net = deploy(folder / prototxt, folder / weights, source.shape)
    exported = Exported(net, tmp_path)
    theirs = exported.run(**{net.inputs[0]: source})
    ours = run_net(net, {net.inputs[0]: source})
    for name, expected in ours.items():
        assert theirs[name].argmax() == expected.argmax()
        np.testing.assert_allclose(theirs[name], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
        third = golden_arrays[name.replace("-", "_")]
        np.testing.assert_allclose(theirs[name], third, rtol=1e-3, atol=1e-4 * np.abs(third).max())


def test_squeezenet_gives_the_cat_the_same_probabilities(tmp_path):
    folder, prototxt, weights = NETS["squeezenet_cat"]
    with np.load(DATA / "golden" / "squeezenet_cat.npz") as file:
        source, third = file["input"], file["pool_final"]
    net = deploy(folder / prototxt, folder / weights, source.shape)
    theirs, ours = Exported(net, tmp_path).run(data=source), run_net(net, {"data": source})
    prob, expected = (
        np.exp(s - s.max()) / np.exp(s - s.max()).sum() for s in (theirs["pool_final"], ours["pool_final"])
    )
    np.testing.assert_allclose(prob, expected, atol=1e-5)
    five = np.argsort(third.reshape(-1))[:-6:-1]
    np.testing.assert_array_equal(np.argsort(prob.reshape(-1))[:-6:-1], five)
    assert {281, 282, 285} & set(five.tolist())  # tabby, tiger cat, Egyptian cat


def test_lenet_reads_the_same_digits(tmp_path):
    """For any batch: 1,000 digits at once, with the file made for the prototxt's 64."""
    images, labels = (values[:1000] for values in mnist_test())
    net = deploy(LENET / "lenet.prototxt", LENET / "lenet_iter_10000.caffemodel", (64, 1, 28, 28))
    exported = Exported(net, tmp_path, dynamic_batch=True)
    pixels = images * np.float32(1 / 256)
    prob = exported.run(data=pixels)["prob"]
    net.blobs["data"].reshape(1000, 1, 28, 28)
    np.testing.assert_allclose(prob, run_net(net, {"data": pixels})["prob"], atol=1e-5)
    assert (prob.argmax(axis=1) == labels).mean() > 0.98


def test_a_detector_with_permuted_and_dilated_layers(tmp_path):
    net = deploy(SLIM / "slim-320.prototxt", SLIM / "slim-320.caffemodel")
    with np.load(SLIM / "golden_opencv.npz") as file:
        source, third = file["input"], {name: file[name] for name in ("boxes", "scores")}
    exported = Exported(net, tmp_path)
    theirs, ours = exported.run(**{net.inputs[0]: source}), run_net(net, {net.inputs[0]: source})
    for name, expected in ours.items():
        np.testing.assert_allclose(theirs[name], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    for name, expected in third.items():
        np.testing.assert_allclose(theirs[name], expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
