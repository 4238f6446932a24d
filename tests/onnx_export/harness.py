"""Exports nets and runs them elsewhere: in onnxruntime, or (for float64) in ONNX's reference implementation."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from google.protobuf import text_format
from onnx.reference import ReferenceEvaluator

from pycaffe_lms.net.net import Net
from pycaffe_lms.onnx_export import export_onnx
from pycaffe_lms.proto import caffe_pb2

TEST = 1


def net_of(text: str, dtype=np.float32, seed: int = 3) -> Net:
    """A TEST net from prototxt text."""
    return Net(text_format.Parse(text, caffe_pb2.NetParameter()), TEST, dtype=dtype, seed=seed)


def one_layer(type: str, text: str, shapes, n_top: int = 1, dtype=np.float32) -> Net:
    """Input layers b0.. of these shapes and a layer "l" (`text` is the inside of `layer { }`) with tops t0.. ."""
    message = caffe_pb2.NetParameter(name="one")
    layer = text_format.Parse(text, caffe_pb2.LayerParameter(type=type))
    layer.name = layer.name or "l"
    layer.ClearField("phase")
    layer.ClearField("bottom")
    layer.ClearField("top")
    layer.bottom.extend(f"b{i}" for i in range(len(shapes)))
    layer.top.extend(f"t{i}" for i in range(n_top))
    for i, shape in enumerate(shapes):
        message.layer.add(name=f"in{i}", type="Input", top=[f"b{i}"]).input_param.shape.add(dim=shape)
    message.layer.append(layer)
    return Net(message, TEST, dtype=dtype, seed=3)


def fill_params(net: Net, seed: int = 5, low: float = 0.25) -> None:
    """Fill parameters with values of many sizes, none near zero where it divides."""
    rng = np.random.default_rng(seed)
    for blob in net.learnable_params:
        blob.data = rng.uniform(low, 1.25, size=blob.shape)


def fill_like_trained(net: Net, seed: int = 4) -> None:
    """Fill parameters so that values of a deep net stay in range: weights by fan-in, statistics of normal values."""
    rng = np.random.default_rng(seed)
    for node in net.graph.nodes:
        for i, blob in enumerate(node.layer.blobs):
            statistics = node.layer.param.type == "BatchNorm" and i < 3
            if len(blob.shape) > 1:
                values = rng.standard_normal(blob.shape, dtype=np.float32)
                blob.data = values * np.float32(np.sqrt(2 / np.prod(blob.shape[1:])))
            elif statistics or (node.layer.param.type == "Scale" and i == 0):
                blob.data = 1 if i == 2 else rng.uniform(0.8, 1.2, size=blob.shape) if i == 1 or not statistics else 0.1
            else:
                blob.data = rng.normal(size=blob.shape) * 0.1


class Exported:
    """Hold a net's exported model, checked, and a session that runs it."""

    def __init__(self, net: Net, folder: Path, **options):
        path = folder / "net.onnx"
        export_onnx(net, path, **options)
        self.open(path, net.dtype)

    def open(self, path: Path, dtype) -> None:
        """Check and load the model of that file."""
        self.model = onnx.load(path)
        onnx.checker.check_model(str(path), full_check=True)
        self.outputs = [o.name for o in self.model.graph.output]
        if dtype == np.float64:  # which onnxruntime has few operators for
            self._session = ReferenceEvaluator(self.model)
            return
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    @property
    def ops(self) -> list[str]:
        return [node.op_type for node in self.model.graph.node]

    @property
    def constants(self) -> dict[str, np.ndarray]:
        return {t.name: onnx.numpy_helper.to_array(t) for t in self.model.graph.initializer}

    def shape(self, name: str) -> list:
        """Sizes of an input or output as declared: numbers, names, or "" for unknown ones."""
        (info,) = [i for i in (*self.model.graph.input, *self.model.graph.output) if i.name == name]
        return [d.dim_param if not d.HasField("dim_value") else d.dim_value for d in info.type.tensor_type.shape.dim]

    def run(self, **inputs) -> dict[str, np.ndarray]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, inside the reference implementation
            return dict(zip(self.outputs, self._session.run(None, inputs), strict=True))


def run_net(net: Net, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of the net itself."""
    for name, values in inputs.items():
        net.blobs[name].data = values
    net.forward_range()
    return {name: net.blobs[name].data.copy() for name in net.outputs}


def agree(net: Net, exported: Exported, inputs: dict[str, np.ndarray], tolerance: float = 2e-5) -> None:
    """Check that both give outputs of the same names, shapes, types and, to rounding, values."""
    inputs = {name: np.asarray(values, net.dtype) for name, values in inputs.items()}
    theirs = exported.run(**inputs)
    ours = run_net(net, inputs)
    assert set(ours) <= set(theirs)
    for name, expected in ours.items():
        found = theirs[name]
        assert found.shape == expected.shape and found.dtype == net.dtype, name
        scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=1e-3))
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * scale, err_msg=name)
