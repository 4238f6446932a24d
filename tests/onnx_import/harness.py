"""Makes ONNX models by hand, imports them, and compares the net with onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from pycaffe_lms.net import weights
from pycaffe_lms.net.net import Net
from pycaffe_lms.onnx_import import import_onnx

TEST = 1


def model_of(nodes, inputs, constants=None, opset=17, outputs=("y",)) -> onnx.ModelProto:
    """A model of (op, inputs, outputs, attributes), "-" for an input left out; inputs: name -> shape."""
    graph = helper.make_graph(
        [
            helper.make_node(op, [n.strip("-") for n in ins.split()], outs.split(), name=f"n{i}", **attributes)
            for i, (op, ins, outs, attributes) in enumerate(nodes)
        ],
        "hand made",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = {o.name: o for o in onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output}
    for output in model.graph.output:
        output.CopyFrom(inferred[output.name])
        output.type.tensor_type.shape.SetInParent()
    return model


class Imported:
    """Hold the files that a model became, and the net of both."""

    def __init__(self, model: onnx.ModelProto | Path, folder: Path, **options):
        if isinstance(model, Path):
            path = model
        else:
            path = folder / "model.onnx"
            onnx.save(model, path)
        self.path, self.prototxt, self.weights = path, folder / "in.prototxt", folder / "in.caffemodel"
        import_onnx(path, self.prototxt, self.weights, **options)
        self.net = Net(self.prototxt, TEST, seed=3)
        weights.copy_from(self.net, self.weights, must_match=True)

    @property
    def types(self) -> list[str]:
        return [node.message.type for node in self.net.graph.nodes if node.message.type not in ("Input", "Split")]

    def run(self, **inputs) -> dict[str, np.ndarray]:
        for name, values in inputs.items():
            self.net.blobs[name].data = values
        self.net.forward_range()
        return {name: self.net.blobs[name].data.copy() for name in self.net.outputs}


def runtime(path, inputs) -> dict[str, np.ndarray]:
    """Outputs by onnxruntime, unoptimised."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, inputs), strict=True))


def agrees(model, folder: Path, low=-2.0, high=2.0, tolerance=3e-6, **options) -> Imported:
    """Import a model, and compare all of its outputs with onnxruntime's on random inputs."""
    imported = Imported(model, folder, **options)
    rng = np.random.default_rng(11)
    inputs = {
        name: rng.uniform(low, high, imported.net.blobs[name].shape).astype(np.float32) for name in imported.net.inputs
    }
    expected, found = runtime(imported.path, inputs), imported.run(**inputs)
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert found[name].shape == values.shape
        scale = max(1.0, float(np.abs(values).max(initial=0)))
        np.testing.assert_allclose(found[name], values, rtol=tolerance, atol=tolerance * scale, err_msg=name)
        assert np.ptp(values) > 0 or values.size == 1, "values that cannot tell anything"
    return imported
