"""Read real nets, weights and solver states of every generation."""

import numpy as np
import pytest

from pycaffe_lms.errors import PrototxtError, SnapshotError, WeightsError
from pycaffe_lms.formats.atomic import atomic_write
from pycaffe_lms.formats.prototxt.parser import read_net, read_solver
from pycaffe_lms.formats.rawfile import serialize
from pycaffe_lms.formats.weights.blobproto import blobproto_to_array
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.formats.weights.solverstate import read_solverstate, write_solverstate
from pycaffe_lms.proto.caffe_pb2 import BlobProto, NetParameter, SolverParameter
from tests.shared_data import SHARED, needs_shared

h5py = pytest.importorskip("h5py")
pytestmark = [needs_shared, pytest.mark.shared]

MATERIAL, WEIGHTS = SHARED / "material", SHARED / "data" / "weights"
NETS = [
    # file, layers after the upgrade, (index, line, name, type) of some
    (
        MATERIAL / "legacy/imagenet_train_v0.prototxt",
        24,
        [(0, 2, "data", "Data"), (1, 15, "conv1", "Convolution"), (23, 325, "loss", "SoftmaxWithLoss")],
    ),
    (WEIGHTS / "lenet/lenet.prototxt", 9, [(0, 2, "input", "Input"), (1, 7, "conv1", "Convolution")]),
    (WEIGHTS / "lenet/lenet_train_test.prototxt", 11, [(1, 17, "mnist", "Data"), (10, 141, "loss", "SoftmaxWithLoss")]),
    (WEIGHTS / "cifar10_quick/cifar10_quick_train_test.prototxt", 15, [(1, 16, "cifar", "Data")]),
    (WEIGHTS / "squeezenet_v1.0/deploy.prototxt", 66, [(0, 2, "input", "Input"), (65, 611, "pool_final", "Pooling")]),
    (WEIGHTS / "mtcnn_det1/det1.prototxt", 11, [(10, 172, "prob1", "Softmax")]),
    (MATERIAL / "bvlc_googlenet/train_val.prototxt", 166, [(165, 2421, "loss3/top-5", "Accuracy")]),
    (MATERIAL / "mobilenet/mobilenet_deploy.prototxt", 112, [(0, 8, "input", "Input"), (111, 1991, "prob", "Softmax")]),
    (MATERIAL / "resnet50_yihui/resnet_50.prototxt", 232, [(231, 3013, "accuracy/top5", "Accuracy")]),
    (MATERIAL / "siamese/mnist_siamese_train_test.prototxt", 20, [(19, 339, "loss", "ContrastiveLoss")]),
]


@pytest.mark.parametrize(("path", "count", "some"), NETS, ids=lambda v: v.parent.name if hasattr(v, "parent") else "")
def test_nets(path, count, some):
    parsed = read_net(path)
    layers = parsed.message.layer
    assert len(layers) == len(parsed.lines.origins) == count
    assert None not in [parsed.lines.layer(k) for k in range(count)]
    assert not parsed.message.layers and not parsed.message.input
    for index, line, name, kind in some:
        assert (parsed.lines.layer(index), layers[index].name, layers[index].type) == (line, name, kind)


def test_v0_and_v1_of_the_same_net_agree(caplog):
    """The two files differ in their data source, in `version` (a field of no release) and in what padding hides."""
    old = read_net(MATERIAL / "legacy/imagenet_train_v0.prototxt").message
    new = read_net(MATERIAL / "legacy/imagenet_train_v1.prototxt").message
    assert "v1.prototxt:1: version (a field of no release of Caffe) has no effect here" in caplog.text
    assert [layer.name for layer in old.layer] == [layer.name for layer in new.layer]
    for ours, theirs in zip(old.layer[1:], new.layer[1:], strict=True):
        assert (ours.name, ours.type, ours.convolution_param.pad) == (
            theirs.name,
            theirs.type,
            theirs.convolution_param.pad,
        )
        assert ours.param == theirs.param
    assert old.layer[0].transform_param == new.layer[0].transform_param
    assert list(old.layer[5].convolution_param.pad) == [2]


def test_texts_of_forks(caplog):
    """What has no effect here is dropped with its place; fields of their layers are read."""
    parsed = read_net(MATERIAL / "resnet50_nvidia/train_val.prototxt")
    said = [r.getMessage().removeprefix(f"{MATERIAL}/resnet50_nvidia/train_val.prototxt:") for r in caplog.records]
    assert [text.split(" has no effect here")[0] for text in said] == [
        "2: eltwise_mem_sharing (NVIDIA Caffe)",
        "14: cache (NVIDIA Caffe)",
        "15: shuffle (NVIDIA Caffe, Intel Caffe)",
    ]
    norm = parsed.message.layer[3]
    assert (norm.name, norm.batch_norm_param.scale_bias, parsed.lines.layer(3)) == ("conv1/bn", True, 62)


@pytest.mark.parametrize(
    ("file", "line", "layer", "read"),
    [
        ("resnext50_soeaver/deploy_resnext50-32x4d.prototxt", 45, "pool1", "pooling_param.ceil_mode == False"),
        ("faster_rcnn_intel/deploy.prototxt", 469, "roi_pool5", "roi_pooling_param.pooled_h == 7"),
        ("c3d/c3d_ucf101_deploy.prototxt", 12, "conv1a", "convolution_param.kernel_shape.dim == [3, 3, 3]"),
        ("slim320/slim-320.prototxt", 416, "233", "permute_param.order == [0, 2, 3, 1]"),
    ],
)
def test_fields_of_forks_are_read(file, line, layer, read, caplog):
    parsed = read_net(MATERIAL / file)
    index = [known.name for known in parsed.message.layer].index(layer)
    assert parsed.lines.layer(index) == line and not caplog.records
    path, _, expected = read.partition(" == ")
    value = parsed.message.layer[index]
    for part in path.split("."):
        value = getattr(value, part)
    assert str(value) == expected


def test_solvers():
    for path in WEIGHTS.glob("*/*_solver*.prototxt"):
        parsed = read_solver(path)
        assert parsed.message.solver_mode in (SolverParameter.CPU, SolverParameter.GPU)
        assert path.read_text(encoding="utf-8").split("\n")[parsed.lines.field("net") - 1].startswith("net:")


WEIGHT_FILES = [
    ("lenet/lenet_iter_10000.caffemodel", "ip1", "InnerProduct", [(1, 1, 500, 800), (1, 1, 1, 500)], (500, 800)),
    ("cifar10_quick/cifar10_quick_iter_5000.caffemodel", "conv1", "Convolution", [(32, 3, 5, 5), (1, 1, 1, 32)], None),
    ("mtcnn_det1/det1.caffemodel", "PReLU1", "PReLU", [(10,)], (10,)),
    ("squeezenet_v1.0/squeezenet_v1.0_decompressed.caffemodel", "conv1", "Convolution", [(96, 3, 7, 7), (96,)], None),
]


@pytest.mark.parametrize(("file", "name", "kind", "shapes", "target"), WEIGHT_FILES)
def test_weights(file, name, kind, shapes, target):
    layers = {layer.name: layer for layer in read_weights(WEIGHTS / file)}
    assert layers[name].type == kind and [blob.shape for blob in layers[name].blobs] == shapes
    assert layers[name].blobs[0].fits(target or shapes[0])
    for layer in layers.values():
        assert all(np.isfinite(blob.data).all() and blob.data.dtype == np.float32 for blob in layer.blobs)


def test_a_file_of_caffe_is_written_again_byte_for_byte(tmp_path):
    path = WEIGHTS / "mtcnn_det1/det1.caffemodel"
    net = NetParameter.FromString(path.read_bytes())
    atomic_write(tmp_path / "again", serialize(net, tmp_path / "again", WeightsError))
    assert NetParameter.FromString((tmp_path / "again").read_bytes()) == net


@pytest.mark.parametrize("part", [0.1, 0.5, 0.999])
def test_truncated_weights(tmp_path, part):
    content = (WEIGHTS / "lenet/lenet_iter_10000.caffemodel").read_bytes()
    (tmp_path / "cut").write_bytes(content[: int(len(content) * part)])
    with pytest.raises(WeightsError, match="damaged or cut short"):
        read_weights(tmp_path / "cut")


def test_files_in_the_wrong_place():
    with pytest.raises(WeightsError, match="not a caffemodel"):
        read_weights(WEIGHTS / "lenet/lenet_iter_10000.solverstate")
    with pytest.raises(WeightsError, match="this is a text file"):
        read_weights(WEIGHTS / "lenet/lenet.prototxt")
    with pytest.raises(WeightsError, match="no group /data"):
        read_weights(SHARED / "data/hdf5/sample_data.h5")
    with pytest.raises(SnapshotError, match="not a solver state"):
        read_solverstate(WEIGHTS / "lenet/lenet_iter_10000.caffemodel")
    with pytest.raises(PrototxtError, match="not a text file"):
        read_net(WEIGHTS / "lenet/lenet_iter_10000.caffemodel")


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_solver_states(tmp_path, suffix):
    state = read_solverstate(WEIGHTS / "cifar10_quick/cifar10_quick_iter_4000.solverstate")
    assert (state.iter, state.learned_net) == (4000, "examples/cifar10/cifar10_quick_iter_4000.caffemodel")
    assert len(state.history) == 10 and state.history[0].shape == (32, 3, 5, 5) and state.resume == {}
    write_solverstate(tmp_path / f"again{suffix}", state)
    again = read_solverstate(tmp_path / f"again{suffix}")
    assert all((a == b).all() for a, b in zip(state.history, again.history, strict=True))


def test_a_mean_file():
    mean = BlobProto.FromString((SHARED / "data/hdf5/sample_mean.binaryproto").read_bytes())
    assert np.isfinite(blobproto_to_array(mean)).all()
    with h5py.File(SHARED / "data/hdf5/sample_data.h5") as file:
        assert "data" in file
