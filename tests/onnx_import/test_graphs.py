"""Whole graphs: patterns of exporters, names, shapes, round trips, training."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format
from onnx import helper

import pycaffe_lms as caffe
from pycaffe_lms.data.sets.zoo import find_model
from pycaffe_lms.errors import UsageError
from pycaffe_lms.net.net import Net
from pycaffe_lms.onnx_export import check_onnx, export_onnx
from pycaffe_lms.proto import caffe_pb2

from ..onnx_export.harness import fill_like_trained
from .harness import TEST, Imported, agrees, model_of

RNG = np.random.default_rng(2)


def f32(*shape):
    return RNG.uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("kind", range(3))
def test_gelu_of_parts(tmp_path, kind):
    """PyTorch's decomposition, and the same product in other orders."""
    c = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5), "inverse": np.float32(0.5**0.5)}
    first = ("Div", "x root", "d", {}) if kind else ("Mul", "inverse x", "d", {})
    ends = [
        [("Mul", "x a", "m", {}), ("Mul", "m half", "y", {})],
        [("Mul", "half x", "h", {}), ("Mul", "h a", "y", {})],
        [("Mul", "a half", "m", {}), ("Mul", "m x", "y", {})],
    ]
    nodes = [first, ("Erf", "d", "e", {}), ("Add", "e one", "a", {}), *ends[kind]]
    assert agrees(model_of(nodes, {"x": (2, 30)}, c), tmp_path).types == ["GELU"]


@pytest.mark.parametrize(
    "op, attributes, types",
    [
        ("Conv", {"pads": [1, 0, 0, 0]}, ["Convolution", "Slice", "Slice", "Silence"]),
        ("AveragePool", {"kernel_shape": [5, 5]}, ["Pooling"]),
    ],
)
def test_pad_joins_what_reads_it(tmp_path, op, attributes, types):
    pads = np.array([0, 0, 1, 2, 0, 0, 1, 1] if op == "Conv" else [0, 0, 2, 2, 0, 0, 2, 2], np.int64)
    weights = " w" if op == "Conv" else ""
    nodes = [("Pad", "x p", "q", {}), (op, f"q{weights}", "y", attributes)]
    found = agrees(model_of(nodes, {"x": (1, 2, 8, 9)}, {"p": pads, "w": f32(3, 2, 3, 3)}), tmp_path)
    assert "Pooling" in found.types if op != "Conv" else found.types[0] == "Convolution"


def test_shape_subgraph_is_folded(tmp_path):
    nodes = [
        ("Shape", "x", "s", {}),
        ("Gather", "s zero", "n", {}),
        ("Unsqueeze", "n zeros", "n1", {}),
        ("Concat", "n1 rest", "to", {"axis": 0}),
        ("Reshape", "x to", "y", {}),
    ]
    constants = {"zero": np.array(0), "zeros": np.array([0]), "rest": np.array([-1, 2])}
    model = model_of(nodes, {"x": (3, 4, 5)}, constants)
    assert agrees(model, tmp_path).types == ["Reshape"]


def test_open_sizes_need_shapes(tmp_path):
    model = model_of([("Flatten", "x", "y", {})], {"x": ("N", 3, "H")})
    with pytest.raises(UsageError, match=r"x=\?,3,\?"):
        agrees(model, tmp_path)
    assert agrees(model, tmp_path, shapes={"x": (2, 3, 4)}).net.blobs["y"].shape == (2, 12)


def test_outputs_that_are_read_inputs_or_equal_keep_their_names(tmp_path):
    nodes = [("Relu", "x", "a", {}), ("Exp", "a", "y", {}), ("Identity", "x", "same", {}), ("Identity", "a", "b", {})]
    model = model_of(nodes, {"x": (2, 3)}, outputs=("a", "y", "same", "b"))
    assert set(agrees(model, tmp_path).net.outputs) == {"a", "y", "same", "b"}


def test_names_of_pytorch(tmp_path):
    """Nodes are named after modules: layers are too, and weights of one tensor are one parameter."""
    model = model_of(
        [
            ("Conv", "x w", "/layer1/conv1/Conv_output_0", {"pads": [1, 1, 1, 1]}),
            ("Relu", "/layer1/conv1/Conv_output_0", "/layer1/relu/Relu_output_0", {}),
            ("Conv", "/layer1/relu/Relu_output_0 w", "y", {"pads": [1, 1, 1, 1]}),
        ],
        {"x": (1, 3, 5, 5)},
        {"w": f32(3, 3, 3, 3)},
    )
    for node, name in zip(model.graph.node, ("/layer1/conv1/Conv", "/layer1/relu/Relu_1", "/conv2/Conv"), strict=True):
        node.name = name
    model.graph.name = "main_graph"  # what an exporter calls every graph
    found = agrees(model, tmp_path)
    assert found.net.name == next(tmp_path.glob("*.onnx")).stem
    assert [n.name for n in found.net.graph.nodes][1:] == ["layer1/conv1", "layer1/relu", "conv2"]
    assert list(found.net.blobs) == ["x", "layer1/conv1", "layer1/relu", "y"]
    shared = [layer.param[0].name for layer in caffe_pb2_of(found).layer if layer.type == "Convolution"]
    assert shared == ["w", "w"]


def caffe_pb2_of(imported: Imported) -> caffe_pb2.NetParameter:
    return text_format.Parse(imported.prototxt.read_text(), caffe_pb2.NetParameter())


LARGE = ("resnet-18", "squeezenet-1.1", "googlenet")


@pytest.mark.parametrize("name", ["lenet", *(pytest.param(n, marks=pytest.mark.thorough) for n in LARGE)])
def test_round_trip(tmp_path, name):
    """A net of the zoo, out and in again."""
    net = Net(find_model(name, "deploy"), TEST, seed=1)
    fill_like_trained(net)
    export_onnx(net, tmp_path / "out.onnx")
    back = Imported(tmp_path / "out.onnx", tmp_path)
    assert back.net.inputs == net.inputs and back.net.outputs == net.outputs
    rng = np.random.default_rng(3)
    for blob in net.inputs:
        net.blobs[blob].data = back.net.blobs[blob].data = rng.standard_normal(net.blobs[blob].shape)
    net.forward_range()
    back.net.forward_range()
    for blob in net.outputs:
        ours, theirs = net.blobs[blob].data, back.net.blobs[blob].data
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5 * np.abs(ours).max())


def small_cnn(tmp_path) -> Imported:
    c = {"w": f32(4, 3, 3, 3), "v": f32(4, 1, 3, 3), "fc": f32(5, 4), "fb": f32(5)}
    c |= {"s": f32(4), "b": f32(4), "m": f32(4), "var": np.abs(f32(4)) + 0.5, "k": f32(4, 1, 1)}
    nodes = [
        ("Conv", "x w", "c1", {"pads": [1, 1, 1, 1]}),
        ("BatchNormalization", "c1 s b m var", "bn", {}),
        ("HardSwish", "bn", "h", {}),
        ("Conv", "h v", "c2", {"pads": [0, 0, 1, 1], "strides": [2, 2], "group": 4}),
        ("GlobalAveragePool", "c2", "g", {}),
        ("Sigmoid", "g", "share", {}),
        ("Mul", "c2 share", "se", {}),
        ("Add", "se k", "sum", {}),
        ("GlobalAveragePool", "sum", "p", {}),
        ("Flatten", "p", "f", {}),
        ("Gemm", "f fc fb", "y", {"transB": 1}),
    ]
    return agrees(model_of(nodes, {"x": (4, 3, 8, 8)}, c), tmp_path, tolerance=1e-5)


def train(prototxt, weights, lms):
    message = text_format.Parse(prototxt.read_text(), caffe_pb2.NetParameter())
    message.layer.add(name="label", type="Input", top=["label"]).input_param.shape.add(dim=[4])
    message.layer.add(name="loss", type="SoftmaxWithLoss", bottom=["y", "label"], top=["loss"])
    solver_param = caffe_pb2.SolverParameter(base_lr=0.05, lr_policy="fixed", momentum=0.9, max_iter=4)
    solver_param.net_param.CopyFrom(message)
    solver_param.snapshot_after_train = False
    caffe.set_mode_sim()
    try:
        file = prototxt.with_name("solver.prototxt")
        file.write_text(str(solver_param))
        solver = caffe.SGDSolver(str(file), lms=lms)
        solver.net.copy_from(str(weights))
        rng, losses = np.random.default_rng(9), []
        solver.net.blobs["x"].data = rng.standard_normal((4, 3, 8, 8))
        solver.net.blobs["label"].data = rng.integers(0, 5, 4)
        for _ in range(4):
            solver.step(1)
            losses.append(float(solver.net.blobs["loss"].data))
        return losses, [b.data.copy() for bs in solver.net.params.values() for b in bs]
    finally:
        caffe.set_mode_cpu()


def test_an_imported_net_trains_the_same_under_lms(tmp_path):
    imported = small_cnn(tmp_path)
    losses, params = train(imported.prototxt, imported.weights, "off")
    assert losses[-1] < losses[0]
    under, others = train(imported.prototxt, imported.weights, 1)
    assert under == losses
    assert all(np.array_equal(a, b) for a, b in zip(params, others, strict=True))


def test_check_onnx_takes_the_net_and_the_model(tmp_path):
    imported = small_cnn(tmp_path)
    (found,) = check_onnx(imported.net, imported.path)
    assert found.output == "y" and found.relative < 1e-5
    imported.net.params["n0"][0].data = 0
    (found,) = check_onnx(imported.net, imported.path)
    assert found.relative > 1e-3


def test_rows_of_a_table(tmp_path):
    model = model_of([("Gather", "t x", "y", {})], {"x": (2, 3)}, {"t": f32(7, 4)})
    model.graph.input[0].type.tensor_type.elem_type = 7
    imported = Imported(model, tmp_path)
    assert imported.types == ["Embed"]
    (found,) = check_onnx(imported.net, imported.path)
    assert found.relative == 0


def test_swish_and_functions(tmp_path):
    """A function of the model itself is put in its place."""
    model = model_of([("Relu", "x", "y", {})], {"x": (2, 3)})
    body = [helper.make_node("Sigmoid", ["a"], ["s"]), helper.make_node("Mul", ["a", "s"], ["b"])]
    model.functions.append(helper.make_function("own", "SiLU", ["a"], ["b"], body, [helper.make_opsetid("", 17)]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node[0].op_type, model.graph.node[0].domain = "SiLU", "own"
    assert agrees(model, tmp_path).types == ["Sigmoid", "Eltwise"]
