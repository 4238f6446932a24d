"""Classification: a picture through a Transformer into a published net, its label, and what lies inside.

The golden numbers come from another program's forward pass on inputs that it prepared itself.
"""

from __future__ import annotations

import cv2
import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.proto import caffe_pb2
from tests.real.files import CIFAR, DATA, LENET, MATERIAL, MEAN, WEIGHTS, cifar, mnist_test
from tests.shared_data import needs_shared

pytestmark = [needs_shared, pytest.mark.shared]
IMAGES = DATA / "images"
SQUEEZENET = (
    str(WEIGHTS / "squeezenet_v1.0" / "deploy.prototxt"),
    str(WEIGHTS / "squeezenet_v1.0" / "squeezenet_v1.0_decompressed.caffemodel"),
)
IMAGENET = {"mean": np.array([104, 117, 123]), "raw_scale": 255, "channel_swap": (2, 1, 0)}


def golden(name):
    with np.load(DATA / "golden" / f"{name}.npz") as file:
        return dict(file)


def labels():
    return [line.split(" ", 1)[1] for line in (DATA / "imagenet" / "synset2012.txt").read_text().splitlines()]


def imagenet_transformer(net):
    transformer = caffe.io.Transformer({"data": net.blobs["data"].data.shape})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_mean("data", np.array([104, 117, 123]))
    transformer.set_raw_scale("data", 255)
    transformer.set_channel_swap("data", (2, 1, 0))
    return transformer


def test_a_picture_prepared_alike_gives_the_golden_scores():
    """OpenCV resized the picture to 256 x 256 in bytes and took the middle; from there on the Transformer does it."""
    expected = golden("squeezenet_cat")
    net = caffe.Net(SQUEEZENET[0], caffe.TEST, weights=SQUEEZENET[1])
    bgr = cv2.resize(cv2.imread(str(IMAGES / "cat.jpg")), (256, 256))[14:241, 14:241]
    transformed = imagenet_transformer(net).preprocess("data", bgr[..., ::-1] / 255)
    np.testing.assert_allclose(transformed, expected["input"][0], atol=1e-4)
    net.blobs["data"].data[...] = transformed
    output = net.forward()
    scores = output["pool_final"][0].ravel()
    np.testing.assert_allclose(scores, expected["pool_final"].ravel(), rtol=1e-4, atol=1e-3)
    assert labels()[scores.argmax()] == "kit fox, Vulpes macrotis"  # so says that small net of a red cat
    assert "tabby, tabby cat" in [labels()[i] for i in scores.argsort()[::-1][:5]]


def test_from_the_file_to_the_label():
    """Classifier does it all; its resize keeps fractions of levels, so scores differ a little from the golden ones."""
    net = caffe.Classifier(*SQUEEZENET, image_dims=(256, 256), **IMAGENET)
    image = caffe.io.load_image(IMAGES / "cat.jpg")
    scores = net.predict([image], oversample=False).ravel()
    theirs = golden("squeezenet_cat")["pool_final"].ravel()
    assert scores.argsort()[::-1][:3].tolist() == theirs.argsort()[::-1][:3].tolist()
    np.testing.assert_allclose(scores, theirs, atol=0.15)
    ten = net.predict([image, image])
    assert ten.shape == (2, 1000) and np.array_equal(ten[0], ten[1])
    assert labels()[ten[0].argmax()] == "kit fox, Vulpes macrotis"


def test_looking_inside():
    net = caffe.Net(SQUEEZENET[0], caffe.TEST, weights=SQUEEZENET[1])
    transformer = imagenet_transformer(net)
    image = caffe.io.load_image(IMAGES / "cat.jpg")
    net.blobs["data"].reshape(2, 3, 227, 227)  # another batch size
    net.blobs["data"].data[...] = transformer.preprocess("data", image)
    net.forward()
    small = caffe.io.resize_image(image, (227, 227))
    np.testing.assert_allclose(transformer.deprocess("data", net.blobs["data"].data[1]), small, atol=1e-5)
    shapes = {name: blob.data.shape for name, blob in net.blobs.items()}
    assert shapes["conv1"] == (2, 96, 111, 111) and shapes["pool_final"] == (2, 1000, 1, 1)
    weights, biases = net.params["conv1"]
    assert weights.data.shape == (96, 3, 7, 7) and biases.data.shape == (96,)
    # One activation by hand: filter 5 at the picture's corner.
    corner = net.blobs["data"].data[0, :, :7, :7]
    by_hand = max(0.0, float((weights.data[5] * corner).sum() + biases.data[5]))
    assert net.blobs["conv1"].data[0, 5, 0, 0] == pytest.approx(by_hand, rel=1e-4, abs=1e-3)
    assert (net.blobs["conv1"].data >= 0).all()  # the ReLU is in place


def test_digits():
    images, truth = mnist_test()
    expected = golden("lenet_everpeace_10000")
    net = caffe.Classifier(
        str(LENET / "lenet.prototxt"), str(LENET / "lenet_iter_10000.caffemodel"), input_scale=1 / 256
    )
    out = net.predict(images[:64].transpose(0, 2, 3, 1), oversample=False)
    np.testing.assert_allclose(out, expected["prob"], rtol=1e-4, atol=1e-6)
    assert out.argmax(1).tolist() == truth[:64].tolist()


def test_small_pictures_with_a_mean_file():
    images, truth = cifar("test_first1000")
    expected = golden("cifar10_quick_5000")
    proto = caffe_pb2.BlobProto.FromString(MEAN.read_bytes())
    mean = caffe.io.blobproto_to_array(proto)[0]
    assert mean.shape == (3, 32, 32)
    weights = str(CIFAR / "cifar10_quick_iter_5000.caffemodel")
    net = caffe.Classifier(str(CIFAR / "cifar10_quick.prototxt"), weights, mean=mean, raw_scale=255)
    out = net.predict(images[:32].transpose(0, 2, 3, 1) / 255, oversample=False)
    np.testing.assert_allclose(out, expected["prob"], rtol=1e-3, atol=1e-5)
    assert (out.argmax(1) == truth[:32]).sum() == (expected["prob"].argmax(1) == truth[:32]).sum() == 29


@pytest.mark.parametrize(
    ("model", "file", "mean", "scale", "swap"),
    [
        (WEIGHTS / "mtcnn_det1" / "det1", DATA / "golden" / "mtcnn_det1.npz", 127.5, 1 / 128, (0, 1, 2)),
        (MATERIAL / "slim320" / "slim-320", MATERIAL / "slim320" / "golden_opencv.npz", 127.0, 1 / 128, (2, 1, 0)),
    ],
    ids=["mtcnn_det1", "slim320"],
)
def test_face_detectors_in_any_size(model, file, mean, scale, swap):
    """The golden input as a picture, as its owner would have it, and back through the Transformer."""
    with np.load(file) as arrays:
        expected = dict(arrays)
    source = expected.pop("input")
    net = caffe.Net(f"{model}.prototxt", caffe.TEST, weights=f"{model}.caffemodel")
    name = net.inputs[0]
    net.blobs[name].reshape(*source.shape)
    transformer = caffe.io.Transformer({name: net.blobs[name].data.shape})
    transformer.set_transpose(name, (2, 0, 1))
    transformer.set_channel_swap(name, swap)
    transformer.set_mean(name, np.full(3, mean))
    transformer.set_input_scale(name, scale)
    picture = transformer.deprocess(name, source)
    assert picture.shape == (*source.shape[2:], 3)
    np.testing.assert_allclose(picture[3, 5, list(swap)], source[0, :, 3, 5] / scale + mean, rtol=1e-5)
    net.blobs[name].data[0] = transformer.preprocess(name, picture)
    blobs = {blob.replace("-", "_"): blob for blob in net.blobs}
    out = net.forward(blobs=[blobs[key] for key in expected])
    for key, theirs in expected.items():
        np.testing.assert_allclose(out[blobs[key]], theirs, rtol=1e-4, atol=1e-4)
