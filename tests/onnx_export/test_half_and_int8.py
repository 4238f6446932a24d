"""Models in float16 and int8: types, what stays in float32, how far values are from the net's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from pycaffe_lms.errors import ExportError, MissingDependency, UsageError
from pycaffe_lms.onnx_export import export_int8, export_onnx
from tests.layers.all_cases import as_params

from .harness import Exported, fill_params, net_of, run_net
from .test_every_case import FIRST, _net
from .test_graphs import BATCHED, DATA, conv, layer, values

NET = (
    DATA
    + conv("c", "data", "c")
    + layer("bn", "BatchNorm", "c", "c")
    + layer("s", "Scale", "c", "c", "scale_param { bias_term: true }")
    + layer("r", "ReLU", "c", "c")
    + conv("d", "c", "d")
    + layer("prob", "Softmax", "d", "prob")
    + layer("best", "ArgMax", "d", "best", "argmax_param { axis: 1 }")
)


def half(net, tmp_path, **options) -> Exported:
    return Exported(net, tmp_path, math="fp16", **options)


def test_types(tmp_path):
    """float32 goes in and comes out; every weight is float16; one Cast at each border, none between."""
    net = net_of(NET)
    fill_params(net)
    exported = half(net, tmp_path)
    assert {t.type.tensor_type.elem_type for t in (*exported.model.graph.input, *exported.model.graph.output)} == {1}
    assert {a.dtype.name for a in exported.constants.values()} == {"float16"}
    assert exported.ops == [
        "Cast",
        "Conv",
        "Mul",
        "Add",
        "Mul",
        "Add",
        "Relu",
        "Conv",
        "Cast",
        "Softmax",
        "ArgMax",
        "Cast",
    ]
    assert exported.outputs == net.outputs
    feed = values(net)
    theirs, ours = exported.run(**feed), run_net(net, feed)
    np.testing.assert_allclose(theirs["prob"], ours["prob"], atol=2e-2)
    assert theirs["prob"].dtype == np.float32 and np.abs(theirs["prob"] - ours["prob"]).max() > 0


def test_an_output_in_the_middle_is_float32(tmp_path):
    net = net_of(DATA + conv("c", "data", "c"))
    exported = half(net, tmp_path)
    assert exported.ops == ["Cast", "Conv", "Cast"] and exported.outputs == ["c"]
    assert exported.run(**values(net))["c"].dtype == np.float32


def test_moved_inputs_stay_as_they_are(tmp_path):
    """An index above 2048 has no float16 of its own: Reshape passes it on in float32, to Embed."""
    text = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } } '
    text += layer("r", "Reshape", "x", "r", "reshape_param { shape { dim: 2 } }")
    text += layer("e", "Embed", "r", "e", "embed_param { input_dim: 4000 num_output: 1 bias_term: false }")
    net = net_of(text)
    net.params["e"][0].data = np.arange(4000).reshape(4000, 1)
    assert half(net, tmp_path).run(x=np.float32([[3001, 2049]]))["e"].reshape(-1).tolist() == [3001, 2049]


def test_small_variances_survive(tmp_path):
    """1e-8 is 0 in float16, but the factor 1 / sqrt(1e-8 + 1e-10) is not infinite."""
    net = net_of(DATA + layer("bn", "BatchNorm", "data", "y", "batch_norm_param { eps: 1e-10 }"))
    for blob, numbers in zip(net.params["bn"], ([0, 0, 0], [1e-8] * 3, [1]), strict=True):
        blob.data = numbers
    feed = {"data": np.full((2, 3, 6, 5), 1e-3, np.float32)}
    found = half(net, tmp_path).run(**feed)["y"]
    np.testing.assert_allclose(found, 1e-3 / np.sqrt(1e-8 + 1e-10), rtol=2e-3)


def test_large_parameters_are_refused(tmp_path):
    net = net_of(DATA + conv("c", "data", "c"))
    net.params["c"][1].data = 1e5
    with pytest.raises(ExportError, match="has parameters above 65504, the largest number of float16"):
        export_onnx(net, tmp_path / "net.onnx", math="fp16")


def test_any_batch(tmp_path):
    net = net_of(DATA + BATCHED["flat"])
    exported = half(net, tmp_path, dynamic_batch=True)
    assert exported.run(data=np.zeros((5, 3, 6, 5), np.float32))["s"].shape == (5, 120)


@pytest.mark.parametrize("case", as_params(list(FIRST.values())))
def test_a_case_of_each_type(case, tmp_path):
    net = _net(case)
    feed = {
        f"b{i}": np.asarray(b, np.float32) for i, b in enumerate(case.make_bottoms(np.random.default_rng(case.seed)))
    }
    theirs, ours = half(net, tmp_path).run(**feed), run_net(net, feed)
    for name, expected in ours.items():
        assert theirs[name].shape == expected.shape and theirs[name].dtype == np.float32
        np.testing.assert_allclose(theirs[name], expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max(initial=1e-3))


def test_an_unknown_kind_of_numbers(tmp_path):
    with pytest.raises(UsageError, match="math 'fp8' is not one of fp32, fp16"):
        export_onnx(net_of(DATA), tmp_path / "net.onnx", math="fp8")


# -- int8 -------------------------------------------------------------------------------------------------------------
def samples(net, n: int = 4):
    return [values(net, seed) for seed in range(n)]


def test_int8(tmp_path):
    net = net_of(NET)
    fill_params(net, low=-1)
    for blob, numbers in zip(net.params["bn"], ([0.1] * 4, [1] * 4, [1]), strict=True):
        blob.data = numbers
    path = tmp_path / "net.onnx"
    assert export_int8(net, path, samples(net)) == [str(path)]
    exported = Exported.__new__(Exported)
    exported.open(path, np.float32)
    assert exported.ops.count("QuantizeLinear") >= 2 and "DequantizeLinear" in exported.ops
    int8 = [a for a in exported.constants.values() if a.dtype == np.int8 and a.ndim == 4]
    assert len(int8) == 2 and {i.name for i in exported.model.graph.input} == {"data"}
    feed = values(net, 2)
    theirs, ours = exported.run(**feed), run_net(net, feed)
    assert 0 < np.abs(theirs["prob"] - ours["prob"]).max() < 0.1
    assert (theirs["best"] == ours["best"]).mean() > 0.9


def test_layers_of_boxes_are_not_quantized(tmp_path):
    net = net_of(DATA + conv("c", "data", "c") + layer("l", "LRN", "c", "l") + layer("m", "MVN", "l", "l_2"))
    fill_params(net)
    export_int8(net, tmp_path / "net.onnx", samples(net))
    exported = Exported.__new__(Exported)
    exported.open(tmp_path / "net.onnx", np.float32)
    graph = exported.model.graph
    by_quantized = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    assert not [
        n.name for n in graph.node if n.op_type in ("Sub", "Div", "Sqrt") and set(n.input) & by_quantized - {"l"}
    ]
    ours, theirs = run_net(net, values(net)), exported.run(**values(net))
    assert np.abs(theirs["l_2"] - ours["l_2"]).max() < 0.2  # weights of 7 bits


def test_int8_refuses(tmp_path, monkeypatch):
    net = net_of(NET)
    with pytest.raises(UsageError, match="there is no sample"):
        export_int8(net, tmp_path / "net.onnx", [])
    with pytest.raises(UsageError, match="int8 needs opset 13, not 12"):
        export_int8(net, tmp_path / "net.onnx", samples(net), opset=12)
    monkeypatch.setitem(sys.modules, "onnxruntime.quantization.shape_inference", None)
    with pytest.raises(MissingDependency, match="pip install onnx onnxruntime"):
        export_int8(net, tmp_path / "net.onnx", samples(net))
    assert not list(tmp_path.iterdir())
