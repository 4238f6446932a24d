"""Models that are refused, and damaged files: one error that says all, never anything else."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from pycaffe_lms.errors import CaffeError, OnnxError, UsageError
from pycaffe_lms.onnx_import import import_onnx

from .harness import model_of


def refused(model, folder, kind=OnnxError, **options) -> str:
    path = folder / "model.onnx"
    path.write_bytes(model) if isinstance(model, bytes) else onnx.save(model, path)
    with pytest.raises(kind) as caught:
        import_onnx(path, folder / "a.prototxt", folder / "a.caffemodel", **options)
    assert not (folder / "a.prototxt").exists() and not (folder / "a.caffemodel").exists()
    text = str(caught.value)
    assert "fix:" in text
    return text


def test_all_that_has_no_layer_is_named(tmp_path):
    nodes = [("Sin", "x", "a", {}), ("Erf", "a", "b", {}), ("Relu", "x", "c", {}), ("Cos", "c", "d", {}),
             ("Sum", "b d", "y", {})]  # fmt: skip
    text = refused(model_of(nodes, {"x": (2, 3)}), tmp_path)
    assert "2 operators" in text and str(tmp_path / "model.onnx") in text
    assert 'layer "n0" (Sin): no layer does what Sin does' in text and 'layer "n3" (Cos)' in text
    assert "Erf" not in text and "Relu" not in text  # the first follows from Sin, the second is fine


@pytest.mark.parametrize(
    "op, inputs, attributes, constants, said",
    [
        ("MaxPool", "x", {"kernel_shape": [2, 2], "dilations": [2, 2]}, {}, "dilations"),
        ("Slice", "x a b c d", {}, {"a": [6], "b": [0], "c": [2], "d": [-2]}, "step of -2"),
        ("Pad", "x a", {"mode": "reflect"}, {"a": [0, 0, 1, 1, 0, 0, 1, 1]}, "it pads with other values than 0"),
        ("Erf", "x", {}, {}, "GELU"),
        ("Gather", "x a", {"axis": 2}, {"a": [0, 3]}, "one after the other"),
        ("Cast", "x", {"to": 7}, {}, "integers"),
        ("LRN", "x", {"size": 4}, {}, "size 4"),
        ("Div", "x a", {}, {"a": np.float32(0)}, "divides by zero"),
        ("Conv", "x x", {}, {}, "constant weight"),
    ],
)
def test_settings_without_a_layer(tmp_path, op, inputs, attributes, constants, said):
    constants = {name: np.asarray(v) for name, v in constants.items()}
    model = model_of([(op, inputs, "y", attributes)], {"x": (1, 2, 8, 8)}, constants)
    model.graph.output[0].type.tensor_type.elem_type = 7 if op == "Cast" else 1
    text = refused(model, tmp_path)
    assert said in text and 'layer "n0"' in text and op in text


def test_files_that_are_no_models(tmp_path):
    assert "is not a model" in refused(b"", tmp_path)
    refused(b"\x00\xff" * 40, tmp_path)
    with pytest.raises(OnnxError, match="no such file"):
        import_onnx(tmp_path / "none.onnx", tmp_path / "a", tmp_path / "b")


def test_graphs_that_are_wrong(tmp_path):
    good = model_of([("Relu", "x", "a", {}), ("Exp", "a", "y", {})], {"x": (2, 3)})
    cyclic = onnx.ModelProto()
    cyclic.CopyFrom(good)
    cyclic.graph.node[0].input[0] = "y"
    assert "sorted" in refused(cyclic, tmp_path)
    old = onnx.ModelProto()
    old.CopyFrom(good)
    old.opset_import[0].version = 6
    assert "opset 6" in refused(old, tmp_path)
    foreign = model_of([("Relu", "x", "y", {})], {"x": (2, 3)})
    foreign.graph.node[0].domain = "com.others"
    foreign.opset_import.append(helper.make_opsetid("com.others", 1))
    assert "com.others.Relu" in refused(foreign, tmp_path)
    mismatched = model_of([("Reshape", "x s", "y", {})], {"x": (2, 3)}, {"s": np.array([3, 2])})
    mismatched.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([4, 2]), "s"))
    refused(mismatched, tmp_path, CaffeError)


def test_missing_files_of_weights(tmp_path):
    model = model_of([("MatMul", "x w", "y", {})], {"x": (2, 3)}, {"w": np.ones((3, 4), np.float32)})
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="lost.data")
    assert "lost.data" in refused(model, tmp_path)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"z": (1, 3)}, "no input 'z'"),
        ({"x": (1, 4)}, "does not fit"),
        ({"x": (1, 3, 3)}, "does not fit"),
        ({}, r"-shape x=1,3"),
    ],
)
def test_shapes_that_do_not_fit(tmp_path, given, said):
    model = model_of([("Relu", "x", "y", {})], {"x": ("N", 3)})
    assert said in refused(model, tmp_path, UsageError, shapes=given)


def test_what_would_not_fit_in_memory_is_not_folded(tmp_path):
    big = np.array([1 << 20, 1 << 20], np.int64)
    nodes = [("ConstantOfShape", "s", "c", {}), ("ReduceSum", "c", "r", {"keepdims": 0}), ("Add", "x r", "y", {})]
    refused(model_of(nodes, {"x": (2, 3)}, {"s": big}), tmp_path)


def test_damaged_files(tmp_path):
    """Cut files, and files with flipped bytes: an import, or an error of this package."""
    w = {"w": np.ones((2, 3, 3, 3), np.float32), "s": np.array([1, -1])}
    nodes = [("Conv", "x w", "c", {"pads": [1, 1, 1, 1]}), ("Relu", "c", "r", {}), ("Reshape", "r s", "y", {})]
    whole = model_of(nodes, {"x": (1, 3, 5, 5)}, w).SerializeToString()
    rng, path, errors = np.random.default_rng(4), tmp_path / "bad.onnx", 0
    for i in range(150):
        data = bytearray(whole)
        if i % 3 == 0:
            data = data[: rng.integers(1, len(data))]
        for at in rng.integers(0, len(data), 1 + i % 5):
            data[at] = rng.integers(0, 256)
        path.write_bytes(data)
        try:
            import_onnx(path, tmp_path / "a.prototxt", tmp_path / "a.caffemodel")
        except CaffeError:
            errors += 1
    assert errors > 50
