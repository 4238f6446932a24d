"""Real nets with their weights and data, as arrays and databases."""

from __future__ import annotations

import gzip

import numpy as np

from pycaffe_lms.formats.prototxt.parser import read_net
from pycaffe_lms.proto.caffe_pb2 import BlobProto
from pycaffe_lms.pycaffe.classes import TEST, PycaffeNet
from tests.shared_data import SHARED

DATA, MATERIAL = SHARED / "data", SHARED / "material"
WEIGHTS = DATA / "weights"
LENET = WEIGHTS / "lenet"
CIFAR = WEIGHTS / "cifar10_quick"
MEAN = DATA / "cifar10" / "mean_of_50000_train.binaryproto"


def deploy(prototxt, weights, shape=None) -> PycaffeNet:
    """A TEST net with weights, its input reshaped."""
    parsed = read_net(prototxt)
    net = PycaffeNet(parsed.message, TEST, lines=parsed.lines, file=str(prototxt))
    if shape is not None:
        net.blobs[net.inputs[0]].reshape(*shape)
        net.reshape()
    net.copy_from(weights)
    return net


def mnist_test() -> tuple[np.ndarray, np.ndarray]:
    """(10000, 1, 28, 28) bytes and their labels, straight from the idx files."""
    return mnist("t10k")


def mnist(part: str) -> tuple[np.ndarray, np.ndarray]:
    """(N, 1, 28, 28) bytes and their labels of "train" or "t10k", straight from the idx files."""
    images, labels = (
        gzip.decompress((DATA / "mnist" / f"{part}-{name}-ubyte.gz").read_bytes())
        for name in ("images-idx3", "labels-idx1")
    )
    return np.frombuffer(images, np.uint8, offset=16).reshape(-1, 1, 28, 28), np.frombuffer(labels, np.uint8, offset=8)


def cifar(part: str) -> tuple[np.ndarray, np.ndarray]:
    """(N, 3, 32, 32) bytes and their labels, straight from the records."""
    raw = gzip.decompress((DATA / "cifar10" / f"{part}.bin.gz").read_bytes())
    records = np.frombuffer(raw, np.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]


def cifar_mean() -> np.ndarray:
    return np.array(BlobProto.FromString(MEAN.read_bytes()).data, np.float32).reshape(3, 32, 32)


def count_right(net: PycaffeNet, images: np.ndarray, labels: np.ndarray) -> int:
    """How many labels have the largest output."""
    (source,), (output,) = net.inputs, net.outputs
    batch, right = net.blobs[source].shape[0], 0
    assert len(images) % batch == 0
    for i in range(0, len(images), batch):
        out = net.forward(**{source: images[i : i + batch]})[output]
        right += int((out.argmax(axis=1) == labels[i : i + batch]).sum())
    return right
