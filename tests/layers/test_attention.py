"""Attention against ONNX's reference implementation, its gradients, and what it keeps."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs
from pycaffe_lms.layers.conv import attention

from .cases import Case
from .harness import LayerBench, check_gradient
from .onnx_reference import onnx_operator


def _attention(fields, queries, keys, heads=1, kv_heads=0, dim=4, items=2):
    wide, narrow = heads * dim, (kv_heads or heads) * dim
    text = f"attention_param {{ heads: {heads} kv_heads: {kv_heads} {fields} }}"
    return Case("Attention", text, ((items, queries, wide), (items, keys, narrow), (items, keys, narrow)))


CASES: list[Case] = [
    _attention("", 5, 5),
    _attention("", 3, 6, heads=2, dim=3),
    _attention("causal: true", 5, 5, heads=2),
    _attention("causal: true scale: 0.3", 4, 4, heads=4, kv_heads=2, dim=2),
    _attention("causal: true window: 2", 6, 6, heads=3, kv_heads=1, dim=2),
    _attention("causal: true", 5, 3),
    _attention("", 3, 3, items=0),
    _attention("causal: true", 40, 40, heads=4, kv_heads=2, dim=8),
    _attention("", 3, 300, heads=2),  # rows longer than a block of threads
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 200 and c.shapes[1][1] < 10]


def reference(case, bench, bottoms):
    """ONNX's Attention. Its window is a mask."""
    shape = bench.layer.shape
    mask = None
    if shape.window:
        at = np.arange(shape.queries)[:, None] - np.arange(shape.keys)
        mask = at < shape.window
    attributes = {"q_num_heads": shape.heads, "kv_num_heads": shape.kv_heads, "scale": shape.scale}
    inputs = [*bottoms, *([mask] if mask is not None else [])]
    return onnx_operator("Attention", inputs, 1, is_causal=int(shape.causal), **attributes)[0]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 2e-7)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CASES if c.shapes[0][0]], ids=str)
def test_is_onnx_s_operator(case, dtype, tolerance):
    """Its factor is a number of single precision."""
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    bottoms = [b.astype(dtype) for b in bottoms]
    (y,) = bench.forward(bottoms)
    np.testing.assert_allclose(y, reference(case, bench, bottoms), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


@pytest.mark.parametrize("case", [c for c in CASES if c.shapes[0][0]], ids=str)
def test_blocks_of_queries_give_the_same(case, monkeypatch):
    """Three queries at a time, of which the last may be fewer."""
    whole, bottoms = case.bench(), case.make_bottoms(np.random.default_rng(3))
    monkeypatch.setattr(attention, "_BLOCK_BYTES", 3 * whole.layer.heads * case.shapes[1][1] * 8)
    parts = case.bench()
    assert whole.layer.shape.rows == case.shapes[0][1] and parts.layer.shape.rows == min(3, case.shapes[0][1])
    dy = np.random.default_rng(4).normal(size=case.shapes[0])
    found = [[*bench.forward(bottoms), *bench.backward([dy])[0]] for bench in (whole, parts)]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def test_large_scores_do_not_overflow():
    bench = LayerBench("Attention", "", ((1, 2, 1), (1, 2, 1), (1, 2, 1)), dtype=np.float32)
    (y,) = bench.forward([[[1e4], [-1e4]], [[1e4], [-1e4]], [[1.0], [2.0]]])
    assert y.reshape(-1).tolist() == [1, 2]
    gradients, _ = bench.backward([np.ones((1, 2, 1))])
    assert all(np.isfinite(g).all() for g in gradients) and gradients[2].reshape(-1).tolist() == [1, 1]


def test_a_query_that_sees_no_key_gets_zeros():
    text = "attention_param { causal: true window: 1 }"
    bench = LayerBench("Attention", text, ((1, 4, 2), (1, 2, 2), (1, 2, 2)))
    (y,) = bench.forward([np.ones((1, 4, 2)), np.ones((1, 2, 2)), np.array([[[1, 2], [3, 4.0]]])])
    assert y[0].tolist() == [[1, 2], [3, 4], [0, 0], [0, 0]]
    gradients, _ = bench.backward([np.ones((1, 4, 2))])
    assert gradients[2][0].tolist() == [[1, 1], [1, 1]] and not gradients[0].any()


def test_needs_and_memory():
    layer = LayerBench(
        "Attention", "attention_param { heads: 16 causal: true }", ((1, 4096, 64),) * 3, dtype="f4"
    ).layer
    assert layer.backward_needs([False, True, False], []) == Needs(bottoms=frozenset({0, 1, 2}))
    sizes = {name: s.nbytes for name, s in layer.scratches.items()}
    assert sizes == {"lse": 16 * 4096 * 4, "work": 64 << 20, "backward_work": 128 << 20}
    assert layer.shape.rows == 256 and layer.splits_over_batch
    assert layer.flops([], []) == 4 * 64 * sum(256 * 256 * (i + 1) for i in range(16))


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("attention_param { heads: 3 kv_heads: 2 }", ((1, 2, 6),) * 3, LayerParamError, "heads 3 is not a multiple"),
        ("attention_param { window: 2 }", ((1, 2, 6),) * 3, LayerParamError, "window has no meaning"),
        ("attention_param { heads: 4 }", ((1, 2, 6),) * 3, ShapeError, "6 values per position"),
        ("", ((1, 2, 6), (1, 3, 4), (1, 3, 6)), ShapeError, "need"),
        ("", ((2, 6),) * 3, ShapeError, "not 3 axes"),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Attention", text, shapes)
