"""Every operator and attribute that is imported, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.onnx_import.convert import CONVERTERS

from .harness import agrees, model_of

RNG = np.random.default_rng(7)


def f32(*shape, low=-1.0, high=1.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


X4, X5, X3, X2 = (2, 4, 7, 9), (1, 2, 5, 6, 7), (2, 3, 8), (3, 6)
ints = lambda *values: np.array(values, np.int64)  # noqa: E731

# (operator, attributes, shape of x, constants in order, options)
CASES = [
    ("Conv", {}, X4, [f32(6, 4, 3, 3), f32(6)]),
    ("Conv", {"pads": [1, 2, 1, 2], "strides": [2, 3], "dilations": [2, 1]}, X4, [f32(6, 4, 3, 3)]),
    ("Conv", {"pads": [0, 1, 1, 2], "group": 2}, X4, [f32(6, 2, 3, 3), f32(6)]),
    ("Conv", {"pads": [2, 0, 0, 1], "strides": [2, 2]}, X4, [f32(6, 4, 3, 3), f32(6)]),
    ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}, X4, [f32(2, 4, 3, 4)]),
    ("Conv", {"auto_pad": "SAME_LOWER", "strides": [2, 2]}, X4, [f32(2, 4, 3, 4)]),
    ("Conv", {"auto_pad": "VALID"}, X4, [f32(2, 4, 3, 4)]),
    ("Conv", {"group": 4, "pads": [1, 1, 1, 1]}, X4, [f32(8, 1, 3, 3)]),
    ("Conv", {"pads": [1, 0, 2, 1, 0, 2]}, X5, [f32(3, 2, 3, 1, 4), f32(3)]),
    ("Conv", {"pads": [1, 1]}, X3, [f32(5, 3, 3), f32(5)]),
    ("ConvTranspose", {}, X4, [f32(4, 5, 3, 3), f32(5)]),
    ("ConvTranspose", {"strides": [2, 3], "pads": [1, 1, 1, 1], "group": 2}, X4, [f32(4, 3, 3, 3)]),
    ("ConvTranspose", {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}, X4, [f32(4, 3, 3, 3)]),
    ("ConvTranspose", {"strides": [2, 2], "pads": [0, 1, 1, 0], "dilations": [2, 1]}, X4, [f32(4, 3, 3, 3)]),
    ("ConvTranspose", {"strides": [2, 2], "output_shape": [14, 18]}, X4, [f32(4, 3, 3, 3)]),
    ("Gemm", {"transB": 1}, X2, [f32(5, 6), f32(5)]),
    ("Gemm", {"alpha": 0.5, "beta": 2.0}, X2, [f32(6, 5), f32(5)]),
    ("Gemm", {"transA": 1, "alpha": 3.0}, X2, [f32(3, 4), f32(6, 1)]),
    ("MatMul", {}, X3, [f32(8, 5)]),
    ("MatMul", {}, X3, [f32(2, 8, 5)]),
    ("MatMul", {}, X3, [f32(8)]),
    ("Gather", {"axis": 2}, X4, [ints(-2)]),
    ("Gather", {"axis": 1}, X4, [np.array(1)]),
    ("Gather", {"axis": 3}, X4, [ints(2, 3, 4)]),
    *((op, {}, X4, []) for op in ("Sigmoid", "Tanh", "Abs", "Softplus", "Exp", "Relu", "Neg", "HardSwish")),
    ("LeakyRelu", {"alpha": 0.2}, X4, []),
    ("LeakyRelu", {}, X4, []),
    ("Elu", {"alpha": 0.5}, X4, []),
    ("PRelu", {}, X4, [f32(4, 1, 1)]),
    ("PRelu", {}, X4, [f32(1)]),
    ("Clip", {}, X4, [np.float32(0), np.float32(6)]),
    ("Clip", {}, X4, [np.float32(-0.5), np.float32(0.7)]),
    ("Clip", {}, X4, [np.float32(0)]),
    ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, X4, []),
    ("HardSigmoid", {}, X4, []),
    ("Identity", {}, X4, []),
    ("Cast", {"to": 1}, X4, []),
    ("Dropout", {}, X4, []),
    ("Softmax", {}, X4, []),
    ("Softmax", {"axis": 1}, X4, []),
    ("LogSoftmax", {"axis": 1}, X4, []),
    ("MaxPool", {"kernel_shape": [3, 2]}, X4, []),
    ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, X4, []),
    ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, (1, 3, 8, 10), []),
    ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [0, 0, 1, 1]}, X4, []),
    ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}, X4, []),
    ("MaxPool", {"kernel_shape": [3, 1, 2], "strides": [2, 1, 2], "pads": [1, 0, 0, 1, 0, 0]}, X5, []),
    ("MaxPool", {"kernel_shape": [3], "strides": [2]}, X3, []),
    ("AveragePool", {"kernel_shape": [3, 2]}, X4, []),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}, X4, []),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}, X4, []),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1], "count_include_pad": 1}, X4, []),
    ("AveragePool", {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "strides": [2, 2]}, X4, []),
    ("AveragePool", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, (1, 3, 8, 10), []),
    ("AveragePool", {"kernel_shape": [2, 2, 2], "pads": [1, 1, 1, 1, 1, 1]}, X5, []),
    *((op, {}, X4, []) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    ("ReduceMean", {"axes": [2, 3]}, X4, []),
    ("ReduceMean", {"axes": [-1, -2], "keepdims": 0}, X4, []),
    ("ReduceMean", {"axes": [1]}, X4, []),
    ("ReduceMean", {}, X4, []),
    ("ReduceMax", {"axes": [2, 3], "keepdims": 0}, X4, []),
    ("ReduceL1", {"axes": [0, 2]}, X4, []),
    ("ReduceSumSquare", {"axes": [3], "keepdims": 0}, X4, []),
    ("ReduceSum", {"keepdims": 0}, X4, [ints(1, 3)]),
    ("LRN", {"size": 3, "alpha": 0.3, "beta": 0.6, "bias": 2.0}, X4, []),
    *((op, {}, X4, [f32(4, 1, 1)]) for op in ("Add", "Sub", "Mul", "Div")),
    *((op, {}, X4, [np.float32(1.7)]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    *((op, {}, X4, [f32(2, 4, 7, 9)]) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean")),
    ("Mul", {}, X4, [f32(1, 4, 1, 9)]),
    ("Add", {}, (2, 1, 7, 1), [f32(1, 4, 1, 9)]),
    ("Add", {}, X2, [f32(2, 3, 6)]),
    ("Flatten", {}, X4, []),
    ("Flatten", {"axis": 2}, X4, []),
    ("Flatten", {"axis": 0}, X4, []),
    ("Reshape", {}, X4, [ints(0, -1, 3)]),
    ("Reshape", {}, X4, [ints(8, 63)]),
    ("Squeeze", {}, (2, 1, 5, 1), [ints(1, -1)]),
    ("Unsqueeze", {}, X3, [ints(0, 2)]),
    ("Transpose", {"perm": [0, 2, 3, 1]}, X4, []),
    ("Transpose", {}, X3, []),
    ("Slice", {}, X4, [ints(1), ints(-1), ints(3)]),
    ("Slice", {}, X4, [ints(-3, 0), ints(9223372036854775807, 2), ints(2, 1), ints(1, 1)]),
    ("Slice", {}, X4, [ints(-1), ints(-9223372036854775808), ints(1), ints(-1)]),
    ("Slice", {}, X4, [ints(1, 0), ints(9, 9), ints(3, 2), ints(2, 3)]),
    ("Slice", {}, (2, 3, 7, 8), [ints(0, 1, 2), ints(3, 7, 8), ints(1, 2, 3), ints(2, 3, 2)]),
    ("Expand", {}, (2, 1, 3), [ints(2, 4, 3)]),
    ("Tile", {}, X3, [ints(1, 2, 3)]),
    ("DepthToSpace", {"blocksize": 2}, (2, 8, 3, 2), []),
    ("DepthToSpace", {"blocksize": 2, "mode": "CRD"}, (2, 8, 3, 2), []),
    ("SpaceToDepth", {"blocksize": 2}, (2, 3, 4, 6), []),
    ("Pad", {}, X4, [ints(0, 0, 0, 0, 0, 0, 0, 0)]),
    ("Pad", {}, X4, [ints(0, 1, 2, 0, 0, 0, 1, 3)]),
    ("BatchNormalization", {"epsilon": 1e-3}, X4, [f32(4), f32(4), f32(4), f32(4, low=0.5)]),
    ("BatchNormalization", {}, X5, [f32(2), f32(2), f32(2), f32(2, low=0.5)]),
    ("InstanceNormalization", {"epsilon": 1e-3}, X4, [f32(4), f32(4)]),
    ("LayerNormalization", {"axis": -1, "epsilon": 1e-4}, X3, [f32(8), f32(8)]),
    ("LayerNormalization", {"axis": 1}, X3, [f32(3, 8)]),
    ("CastLike", {}, X4, [np.float32(1)]),
]
POSITIVE = [("Log", {}, X4, []), ("Sqrt", {}, X4, []), ("Reciprocal", {}, X4, []), ("Pow", {}, X4, [np.float32(1.5)])]
NEWER = [
    (20, "Gelu", {}, X4, []),
    (20, "Gelu", {"approximate": "tanh"}, X4, []),
    (21, "GroupNormalization", {"num_groups": 2}, X4, [f32(4), f32(4)]),
    (23, "RMSNormalization", {"axis": -1}, X3, [f32(8)]),
    (18, "ReduceMean", {}, X4, [ints(2, 3)]),
    (18, "ReduceMean", {"noop_with_empty_axes": 1}, X4, []),
]
OLDER = [
    (11, "Softmax", {"axis": 2}, X4, []),
    (10, "Slice", {}, X4, [ints(1), ints(-1), ints(3)]),
    (9, "Slice", {"starts": [1], "ends": [3], "axes": [2]}, X4, []),
    (9, "Clip", {"min": -1.0, "max": 0.5}, X4, []),
    (11, "Squeeze", {"axes": [1]}, (2, 1, 5), []),
    (9, "Upsample", {"mode": "nearest"}, X4, [np.array([1, 1, 2, 2], np.float32)]),
    (9, "Upsample", {"mode": "linear"}, X4, [np.array([1, 1, 2, 3], np.float32)]),
    (7, "Dropout", {"ratio": 0.3}, X4, []),
]
BOTH = [(17, *case) for case in (*CASES, *POSITIVE)] + OLDER + NEWER


def ids(cases):
    return [f"{i}-{case[1]}" for i, case in enumerate(cases)]


@pytest.mark.parametrize("opset, op, attributes, shape, constants", BOTH, ids=ids(BOTH))
def test_operator(tmp_path, opset, op, attributes, shape, constants):
    names = {f"c{i}": values for i, values in enumerate(constants)}
    model = model_of([(op, " ".join(["x", *names]), "y", attributes)], {"x": shape}, names, opset)
    low = 0.2 if op in {case[0] for case in POSITIVE} else -2.0
    agrees(model, tmp_path, low=low)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("place", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("size", [(14, 18), (3, 4), (7, 20)], ids=str)
def test_resize(tmp_path, mode, place, size):
    attributes = {"mode": mode, "coordinate_transformation_mode": place}
    sizes = np.array([2, 4, *size], np.int64)
    agrees(model_of([("Resize", "x - - s", "y", attributes)], {"x": X4}, {"s": sizes}, 18), tmp_path, tolerance=2e-5)


def test_every_operator_has_a_case():
    elsewhere = {"Concat", "Split", "Erf", "Resize", "Swish", "Attention", "RotaryEmbedding"}
    assert set(CONVERTERS) == {case[1] for case in BOTH} | elsewhere


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "MatMul"])
@pytest.mark.parametrize("b", [(2, 4, 6, 6), (2, 4, 1, 1), (1, 4, 1, 6), (6,), (4, 1, 1)], ids=str)
def test_of_two_inputs(tmp_path, op, b):
    if op == "MatMul" and len(b) > 1:
        b = (*b[:-2], 6, 5)
    agrees(model_of([("Relu", "a", "r", {}), ("Exp", "b", "e", {}), (op, "r e", "y", {})], {"a": (2, 4, 6, 6), "b": b}),
           tmp_path, tolerance=1e-5)  # fmt: skip


def test_concat_and_split(tmp_path):
    nodes = [
        ("Split", "x s", "a b c", {"axis": 1}),
        ("Concat", "c k a", "y", {"axis": 1}),
    ]
    constants = {"s": ints(1, 2, 3), "k": f32(2, 1, 5)}
    found = agrees(model_of(nodes, {"x": (2, 6, 5)}, constants), tmp_path)
    assert "Silence" in found.types  # b, which nobody reads, is no output
