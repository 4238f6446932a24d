"""Nets that other people trained with Caffe years ago: known scores, other programs' outputs, and training goes on."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.formats.prototxt.parser import parse_solver, read_net
from pycaffe_lms.proto.caffe_pb2 import SolverState
from pycaffe_lms.pycaffe.classes import TRAIN, PycaffeNet, layer_type_list
from pycaffe_lms.solvers import SGDSolver
from tests.shared_data import needs_shared

from .files import CIFAR, DATA, LENET, MEAN, WEIGHTS, cifar, cifar_mean, count_right, deploy, mnist_test

pytestmark = [needs_shared, pytest.mark.shared]


# -- scores ----------------------------------------------------------------------------------------------------------
def test_lenet_reads_9905_of_10000_digits():
    images, labels = mnist_test()
    net = deploy(LENET / "lenet.prototxt", LENET / "lenet_iter_10000.caffemodel", (500, 1, 28, 28))
    assert count_right(net, images * np.float32(1 / 256), labels) == 9905


@pytest.mark.parametrize(("iteration", "right"), [(4000, 678), (5000, 744)])
def test_cifar_quick_knows_so_many_of_the_first_1000_pictures(iteration, right):
    images, labels = cifar("test_first1000")
    net = deploy(
        CIFAR / "cifar10_quick.prototxt", CIFAR / f"cifar10_quick_iter_{iteration}.caffemodel", (200, 3, 32, 32)
    )
    assert count_right(net, images - cifar_mean(), labels) == right


# -- outputs of another program ----------------------------------------------------------------------------------------
GOLDEN = [
    ("lenet/lenet.prototxt", "lenet/lenet_iter_10000.caffemodel", "lenet_everpeace_10000"),
    ("cifar10_quick/cifar10_quick.prototxt", "cifar10_quick/cifar10_quick_iter_5000.caffemodel", "cifar10_quick_5000"),
    ("squeezenet_v1.0/deploy.prototxt", "squeezenet_v1.0/squeezenet_v1.0_decompressed.caffemodel", "squeezenet_cat"),
    ("mtcnn_det1/det1.prototxt", "mtcnn_det1/det1.caffemodel", "mtcnn_det1"),
]


@pytest.mark.parametrize(("prototxt", "weights", "golden"), GOLDEN, ids=[g[2] for g in GOLDEN])
def test_outputs_agree_with_an_independent_program(prototxt, weights, golden):
    missing = {layer.type for layer in read_net(WEIGHTS / prototxt).message.layer} - set(layer_type_list())
    if missing:
        pytest.skip(f"there is no layer type {', '.join(sorted(missing))} yet")
    with np.load(DATA / "golden" / f"{golden}.npz") as file:
        expected = dict(file)
    source = expected.pop("input")
    net = deploy(WEIGHTS / prototxt, WEIGHTS / weights, source.shape)
    names = {name.replace("-", "_"): name for name in net.blobs}  # as the other program spells them
    expected = {names[name]: values for name, values in expected.items()}
    out = net.forward(blobs=list(expected), **{net.inputs[0]: source})
    for name, theirs in expected.items():
        assert out[name].shape == theirs.shape
        np.testing.assert_allclose(out[name], theirs, rtol=1e-4, atol=1e-4 * np.abs(theirs).max())
        assert np.abs(theirs).max() > 0.1


# -- training goes on --------------------------------------------------------------------------------------------------
TRAINED_FOR = 300  # records in the training database: three batches


@pytest.fixture
def solver(tmp_path):
    """The solver file of the second stage (lr 0.0001) and its V1 net, on databases made from the published records."""
    text = (CIFAR / "cifar10_quick_train_test.prototxt").read_text()
    for part, records, count in (("train", "train_first8000", TRAINED_FOR), ("test", "test_first1000", 1000)):
        path = tmp_path / f"{part}_lmdb"
        pairs = zip(*(values[:count] for values in cifar(records)), strict=True)
        write_lmdb(path, ((b"%05d" % i, encode_datum(x, int(y))) for i, (x, y) in enumerate(pairs)))
        old = f'"examples/cifar10/cifar10_{part}_leveldb"'
        assert old in text
        text = text.replace(old, f'"{path}" backend: LMDB')
    net = tmp_path / "train_test.prototxt"
    net.write_text(text.replace("examples/cifar10/mean.binaryproto", str(MEAN)))
    lines = (CIFAR / "cifar10_quick_solver_lr1.prototxt").read_text()
    for old, new in (
        ("examples/cifar10/cifar10_quick_train_test.prototxt", str(net)),
        ("examples/cifar10/cifar10_quick", str(tmp_path / "out")),
        ("test_iter: 100", "test_iter: 10"),
        ("test_interval: 500", "test_interval: 500 test_initialization: false"),
    ):
        assert old in lines
        lines = lines.replace(old, new, 1)
    parsed = parse_solver(lines, "cifar10_quick_solver_lr1.prototxt")
    solver = SGDSolver(parsed.message, file=parsed.filename, lines=parsed.lines, device=get_device("cpu"))
    yield solver
    solver.close()


def _gradients(weights, batch):
    """Gradients of the first 100 training records, from the deploy net with a loss: without database and solver."""
    message = read_net(CIFAR / "cifar10_quick.prototxt").message
    message.layer[0].input_param.shape[0].dim[0] = 100
    del message.layer[-1]  # Softmax
    label = message.layer.add(name="label", type="Input", top=["label"])
    label.input_param.shape.add(dim=[100])
    message.layer.add(name="loss", type="SoftmaxWithLoss", bottom=["ip2", "label"], top=["loss"])
    net = PycaffeNet(message, TRAIN)
    net.copy_from(weights)
    images, labels = (values[100 * batch : 100 * (batch + 1)] for values in cifar("train_first8000"))
    loss = float(net.forward(data=images - cifar_mean(), label=labels)["loss"])
    net.backward()
    return loss, {(name, i): b.diff.copy() for name, blobs in net.params.items() for i, b in enumerate(blobs)}


def test_resuming_takes_weights_history_and_iteration_and_goes_on(solver):
    state = CIFAR / "cifar10_quick_iter_4000.solverstate"
    solver.restore(str(state))
    assert solver.iter == 4000 and solver.lr == pytest.approx(1e-4)
    theirs = SolverState.FromString(state.read_bytes())
    shapes = [(b.num, b.channels, b.height, b.width) for b in theirs.history]
    assert shapes[0] == (32, 3, 5, 5) and shapes[1] == (1, 1, 1, 32) and shapes[8] == (1, 1, 10, 64)
    momentum = [np.array(b.data, np.float32) for b in theirs.history]
    ours = [b.read_data().copy() for b in solver.history_blobs()]
    assert [b.shape for b in ours][:2] == [(32, 3, 5, 5), (32,)]
    for a, b in zip(ours, momentum, strict=True):
        np.testing.assert_array_equal(a.reshape(-1), b)
    weights = [p.data.copy() for p in solver.net.learnable_params]
    loss, gradients = _gradients(CIFAR / "cifar10_quick_iter_4000.caffemodel", 0)

    solver.step(1)
    assert solver.net.loss() == pytest.approx(loss, rel=1e-5) and 0.2 < loss < 1.5
    rates = [1e-4, 2e-4] * 5  # blobs_lr: 1 and 2
    for h, w, g, rate, after, new in zip(
        ours, weights, gradients.values(), rates, solver.history_blobs(), solver.net.learnable_params, strict=True
    ):
        step = 0.9 * h + rate * (g + 0.004 * w)
        scale = float(np.abs(step).max())
        np.testing.assert_allclose(after.read_data(), step, rtol=1e-4, atol=1e-5 * scale)
        np.testing.assert_allclose(new.data, w - step, rtol=1e-5, atol=1e-5 * scale)
    solver.step(1)
    assert solver.iter == 4002


def test_the_test_net_of_a_resumed_solver_has_the_known_score(solver):
    """Through database, mean file and the TEST phase of the published prototxt."""
    solver.restore(str(CIFAR / "cifar10_quick_iter_4000.solverstate"))
    scores = dict(solver.test(0))
    assert scores["accuracy"] == pytest.approx(0.678, abs=1e-6)
    assert 0.8 < scores["loss"] < 1.1
