"""The published prototxts: what feeds each of them, at its full size and at a size that a test can run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.leveldb_writer import write_leveldb
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.data.database.open import open_database
from pycaffe_lms.data.transform.mean import save_mean
from pycaffe_lms.formats.prototxt.parser import read_net
from pycaffe_lms.proto.caffe_pb2 import DataParameter, NetParameter

from .files import MATERIAL

h5py = pytest.importorskip("h5py")
pytest.importorskip("plyvel")

TRAIN, TEST = 0, 1
VOCABULARY = 8801


@dataclass(frozen=True)
class Material:
    """A file. record, classes: what its databases hold. shape: of its first input when it runs, None: as it is."""

    record: tuple[int, int, int] | None = None
    classes: int = 1000
    shape: tuple[int, ...] | None = None
    stages: tuple[str, ...] = ()  # of the TEST phase
    tested: bool = False  # whether the TEST phase runs too (layers of its own, and not too many parameters)
    batch: int = 2  # of data layers, when it runs; of HDF5Data: time steps


PICTURES = (3, 256, 256)
FILES = {
    "autoencoder/mnist_autoencoder": Material((1, 28, 28), 10, stages=("test-on-test",), tested=True),
    "bvlc_alexnet/train_val": Material(PICTURES),
    "bvlc_googlenet/train_val": Material(PICTURES, tested=True),
    "c3d/c3d_ucf101_deploy": Material(),
    "faster_rcnn_intel/deploy": Material(shape=(1, 3, 160, 192)),
    "legacy/imagenet_train_v0": Material(PICTURES),
    "legacy/imagenet_train_v1": Material(PICTURES),
    "lstm_lm/lstm_language_model": Material(stages=("test-on-val",), batch=3, tested=True),
    "mobilenet/mobilenet_deploy": Material(),
    "resnet50_nvidia/train_val": Material(PICTURES, tested=True),
    "resnet50_yihui/resnet_50": Material(PICTURES, batch=1, tested=True),
    "resnext50_soeaver/deploy_resnext50-32x4d": Material(),
    "siamese/mnist_siamese_train_test": Material((2, 28, 28), 2, tested=True),
    "slim320/slim-320": Material(),
    "squeezenet_v1.1/train_val": Material(PICTURES, tested=True),
    "vgg16_intel/train_val": Material(PICTURES, batch=1),
}
ONE_PHASE = {"legacy/imagenet_train_v0", "legacy/imagenet_train_v1"}  # written before there were phases


def path_of(name: str):
    return MATERIAL / f"{name}.prototxt"


def is_deploy(net: NetParameter) -> bool:
    return not any("Loss" in layer.type for layer in net.layer)


def full_size(name: str):
    """The net as it is, its data layers replaced by Input layers of the same shapes: nothing is read, nothing made."""
    parsed, about = read_net(path_of(name)), FILES[name]
    for layer in parsed.message.layer:
        if layer.type == "Data":
            crop = layer.transform_param.crop_size
            channels, height, width = about.record
            size = (crop, crop) if crop else (height, width)
            shapes = [(layer.data_param.batch_size, channels, *size), (layer.data_param.batch_size,)]
        elif layer.type == "HDF5Data":
            shapes = [(layer.hdf5_data_param.batch_size, 100)] * 3
        else:
            continue
        layer.type = "Input"
        for field in ("data_param", "hdf5_data_param", "transform_param"):
            layer.ClearField(field)
        for shape in shapes[: len(layer.top)]:
            layer.input_param.shape.add(dim=shape)
    return parsed


def with_data(name: str, folder):
    """The net with real databases, mean files and lists in `folder`, and small batches; nothing else is changed."""
    parsed, about = read_net(path_of(name)), FILES[name]
    for layer in parsed.message.layer:
        if layer.type == "Data":
            param = layer.data_param
            param.source = _database(folder, about, param.backend)
            param.batch_size, param.prefetch = about.batch, 1
            if layer.transform_param.mean_file:
                layer.transform_param.mean_file = _mean_file(folder, about.record)
        elif layer.type == "HDF5Data":
            layer.hdf5_data_param.source = _sentences(folder)
            layer.hdf5_data_param.batch_size = about.batch
        elif layer.type == "Input" and about.shape:
            layer.input_param.shape[0].dim[:] = about.shape
    return parsed


def _records(about: Material):
    rng = np.random.default_rng(1)
    for k in range(3):
        picture = rng.integers(0, 256, about.record, np.uint8)
        yield b"%08d" % k, encode_datum(picture, int(rng.integers(about.classes)))


def _database(folder, about: Material, backend: int) -> str:
    path = folder / DataParameter.DB.Name(backend).lower()
    if not path.exists():
        if backend == DataParameter.LMDB:
            write_lmdb(path, _records(about))
        else:
            write_leveldb(path, _records(about))
    source = open_database(str(path), backend)
    assert len(source) == 3
    source.close()
    return str(path)


def _mean_file(folder, record) -> str:
    path = folder / "mean.binaryproto"
    save_mean(path, np.full(record, 110.5, np.float32))
    return str(path)


def _sentences(folder) -> str:
    """Rows of 4 streams: whether a sentence goes on, its words, and the words to be told (-1: none)."""
    rng = np.random.default_rng(2)
    words = rng.integers(0, VOCABULARY, (7, 4))
    with h5py.File(folder / "chunk.h5", "w") as file:
        file["cont_sentence"] = (np.arange(7)[:, None] % 5 > 0).astype(np.float32) + np.zeros((1, 4), np.float32)
        file["input_sentence"] = words.astype(np.float32)
        file["target_sentence"] = np.where(rng.random((7, 4)) < 0.2, -1, words).astype(np.float32)
    listed = folder / "chunks.txt"
    listed.write_text(f"{folder / 'chunk.h5'}\n")
    return str(listed)


def fill_parameters(net, types=()) -> None:
    """Values for parameters without fillers: weights as He et al., normalisation by mean 0 and variance 1.

    types: of the layers that get them, all where there are none."""
    rng = np.random.default_rng(3)
    for node in net.graph.nodes:
        blobs = net.params.get(node.name, ()) if not types or node.layer.param.type in types else ()
        if node.layer.param.type == "BatchNorm":
            for blob, value in zip(blobs, (0, 1, 1, 1, 0), strict=False):
                blob.data[...] = value
            continue
        for blob in blobs:
            fan_in = int(np.prod(blob.shape[1:]))
            if len(blob.shape) > 1:
                blob.data[...] = rng.standard_normal(blob.shape, np.float32) * np.float32((2 / fan_in) ** 0.5)
            elif node.layer.param.type == "Scale":
                blob.data[...] = 1
