"""Attention and RotaryEmbedding of opset 23, in every form that a layer expresses, against onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from pycaffe_lms.errors import OnnxError
from pycaffe_lms.onnx_export import export_onnx
from tests.onnx_export.harness import net_of, run_net
from tests.onnx_export.test_graphs import layer

from .harness import Imported, agrees, model_of, runtime

TOKENS = {"q": (2, 5, 24), "k": (2, 7, 12), "v": (2, 7, 12)}
HEADS = {"q": (2, 4, 5, 6), "k": (2, 2, 7, 6), "v": (2, 2, 7, 6)}
GROUPS = {"q_num_heads": 4, "kv_num_heads": 2}
SELF = {name: (2, 6, 8) for name in "qkv"}
ALONE = {"q_num_heads": 2, "kv_num_heads": 2}
BEHIND = np.arange(6)[:, None] - np.arange(6)


def _attention(inputs, attributes, mask=None):
    constants = {} if mask is None else {"m": mask}
    return model_of([("Attention", "q k v" + " m" * bool(constants), "y", attributes)], inputs, constants, 23)


def _fields(imported):
    (found,) = (node.message.attention_param for node in imported.net.graph.nodes if node.message.type == "Attention")
    return str(found).split()


@pytest.mark.parametrize(
    "inputs, attributes, mask, fields",
    [
        (TOKENS, GROUPS, None, "heads: 4 kv_heads: 2"),
        (HEADS, {}, None, "heads: 4 kv_heads: 2"),
        (TOKENS, {**GROUPS, "is_causal": 1, "scale": 0.25}, None, "heads: 4 kv_heads: 2 scale: 0.25 causal: true"),
        (SELF, {**ALONE, "scale": 0.5}, None, "heads: 2"),  # which is 1 / sqrt(4)
        (SELF, ALONE, BEHIND > -9, "heads: 2"),
        (SELF, ALONE, BEHIND >= 0, "heads: 2 causal: true"),
        (SELF, ALONE, np.where(BEHIND < 0, np.float32(-np.inf), np.float32(0)), "heads: 2 causal: true"),
        (SELF, {**ALONE, "is_causal": 1}, BEHIND < 3, "heads: 2 causal: true window: 3"),
        (SELF, ALONE, np.tile((BEHIND >= 0) & (BEHIND < 2), (2, 2, 1, 1)), "heads: 2 causal: true window: 2"),
    ],
)
def test_attention(tmp_path, inputs, attributes, mask, fields):
    assert sorted(_fields(agrees(_attention(inputs, attributes, mask), tmp_path))) == sorted(fields.split())


@pytest.mark.parametrize(
    "inputs, attributes, mask, message",
    [
        ({**TOKENS, "v": (2, 7, 8)}, GROUPS, None, "6 of keys and 4 of values"),
        (SELF, {**ALONE, "softcap": 2.0}, None, "caps scores"),
        (SELF, ALONE, BEHIND <= 0, "neither causal"),
        (SELF, ALONE, BEHIND > 0, "neither causal"),  # the first query sees none
        (SELF, ALONE, BEHIND.astype(np.float32), "adds numbers"),
        (SELF, ALONE, np.stack([BEHIND > -9, BEHIND > 0])[:, None], "differs between items"),
    ],
)
def test_attention_that_no_layer_expresses(tmp_path, inputs, attributes, mask, message):
    with pytest.raises(OnnxError, match=message):
        Imported(_attention(inputs, attributes, mask), tmp_path)


def test_keys_of_earlier_runs(tmp_path):
    nodes = [("Attention", "q k v - pk pv", "y nk nv", ALONE)]
    past = {name: (2, 2, 3, 4) for name in ("pk", "pv")}
    with pytest.raises(OnnxError, match="earlier runs"):
        Imported(model_of(nodes, SELF | past, opset=23), tmp_path)


def _tables(positions, pairs, turned, base, dtype=np.float32):
    angles = np.arange(positions, dtype=dtype)[:, None] * np.asarray(base, dtype) ** (
        -2 * np.arange(pairs, dtype=dtype) / turned
    )
    return {"c": np.cos(angles).astype(np.float32), "s": np.sin(angles).astype(np.float32)}


@pytest.mark.parametrize(
    "shape, attributes, turned, base, positions, fields",
    [
        ((2, 5, 24), {"num_heads": 3}, 8, 10000.0, np.tile(np.arange(5), (2, 1)), "heads: 3"),
        ((2, 3, 5, 8), {}, 8, 500000.0, np.tile(np.arange(5), (2, 1)), "heads: 3 base: 500000"),
        ((2, 3, 5, 8), {"rotary_embedding_dim": 4, "interleaved": 1}, 4, 123.5, np.array([[7, 0, 1, 2, 9]] * 2),
         "heads: 3 rotary_dim: 4 interleaved: true base: 123.5"),
        ((2, 5, 6), {"num_heads": 3}, 2, 10000.0, np.array([[0, 1, 2, 3, 4]] * 2), "heads: 3"),
        ((1, 5, 24), {"num_heads": 3}, 8, 1000000.0, None, "heads: 3 base: 1e+06"),
    ],
)  # fmt: skip
def test_rotary_embedding(tmp_path, shape, attributes, turned, base, positions, fields):
    tables = _tables(5 if positions is None else 12, turned // 2, turned, base)
    if positions is None:
        tables = {name: table[None] for name, table in tables.items()}
    else:
        tables["p"] = positions
    nodes = [("RotaryEmbedding", " ".join(["x", *tables]), "y", attributes)]
    imported = agrees(model_of(nodes, {"x": shape}, tables, 23), tmp_path)
    (found,) = (n.message for n in imported.net.graph.nodes if n.message.type == "RotaryEmbedding")
    assert sorted(str(found.rotary_embedding_param).split()) == sorted(fields.split())
    assert len(found.bottom) == (2 if positions is not None and positions[0, 0] == 7 else 1)


@pytest.mark.parametrize("base", [10000.0, 500000.0, 1e6, 8.0e5])
def test_the_base_of_a_long_table_in_float32(tmp_path, base):
    """Angles of thousands are rounded in float32, as PyTorch makes them; the base is found all the same."""
    tables = _tables(4096, 32, 64, base) | {"p": np.array([[0, 1, 2]])}
    imported = Imported(model_of([("RotaryEmbedding", "x c s p", "y", {})], {"x": (1, 2, 3, 64)}, tables, 23), tmp_path)
    (found,) = (n.message for n in imported.net.graph.nodes if n.message.type == "RotaryEmbedding")
    assert found.rotary_embedding_param.base == base


def test_positions_that_are_an_input(tmp_path):
    tables = _tables(9, 4, 8, 10000.0)
    nodes = [("RotaryEmbedding", "x c s p", "y", {})]
    model = model_of(nodes, {"x": (2, 3, 4, 8), "p": (2, 4)}, tables, 23)
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.INT64
    imported = Imported(model, tmp_path)
    rng = np.random.default_rng(0)
    x, p = rng.normal(size=(2, 3, 4, 8)).astype(np.float32), rng.integers(0, 9, (2, 4))
    expected = runtime(imported.path, {"x": x, "p": p})["y"]
    np.testing.assert_allclose(imported.run(x=x, p=p)["y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "change", [lambda c, s: (c, -s), lambda c, s: (c, s * 0 + s[:1]), lambda c, s: (c[::-1], s[::-1])]
)
def test_other_angles_are_refused(tmp_path, change):
    tables = _tables(5, 4, 8, 10000.0)
    c, s = change(tables["c"], tables["s"])
    nodes = [("RotaryEmbedding", "x c s p", "y", {})]
    with pytest.raises(OnnxError, match="its angles are not those"):
        Imported(model_of(nodes, {"x": (1, 3, 5, 8)}, {"c": c, "s": s, "p": np.arange(5)[None]}, 23), tmp_path)


def test_there_and_back(tmp_path):
    """A block of a transformer of ours: written as ONNX, and read again, it gives the same numbers."""
    text = layer("in", "Input", "", "x", "input_param { shape { dim: [2, 6, 16] } }")
    text += layer("q", "RotaryEmbedding", "x", "q", "rotary_embedding_param { heads: 4 base: 500 }")
    text += layer("k", "InnerProduct", "x", "k", "inner_product_param { num_output: 16 axis: 2 bias_term: false }")
    text += layer("a", "Attention", "q k x", "a", "attention_param { heads: 4 causal: true window: 4 }")
    net = net_of(text)
    net.params["k"][0].data = np.random.default_rng(0).normal(size=(16, 16))
    x = np.random.default_rng(1).normal(size=(2, 6, 16)).astype(np.float32)
    export_onnx(net, tmp_path / "net.onnx", opset=23)
    imported = Imported(tmp_path / "net.onnx", tmp_path)
    assert imported.types == ["RotaryEmbedding", "InnerProduct", "Attention"]
    np.testing.assert_allclose(imported.run(x=x)["a"], run_net(net, {"x": x})["a"], rtol=1e-5, atol=1e-6)
