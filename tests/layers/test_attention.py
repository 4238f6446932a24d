"""Attention against ONNX's reference implementation, its gradients, and what it keeps."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import TEST, Needs
from pycaffe_lms.layers.conv import attention
from pycaffe_lms.ops.cpu.activation.dropout import philox

from .cases import Case
from .harness import LayerBench, check_gradient
from .onnx_reference import onnx_operator


def _attention(fields, queries, keys, heads=1, kv_heads=0, dim=4, items=2):
    wide, narrow = heads * dim, (kv_heads or heads) * dim
    text = f"attention_param {{ heads: {heads} kv_heads: {kv_heads} {fields} }}"
    return Case("Attention", text, ((items, queries, wide), (items, keys, narrow), (items, keys, narrow)))


def _packed(fields, positions, heads=1, kv_heads=0, dim=4, items=2):
    text = f"attention_param {{ heads: {heads} kv_heads: {kv_heads} {fields} }}"
    return Case("Attention", text, ((items, positions, (heads + 2 * (kv_heads or heads)) * dim),))


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
    _packed("", 5),
    _packed("causal: true window: 2", 6, heads=4, kv_heads=2, dim=2),
    _packed("", 3, items=0),
    _attention("dropout_ratio: 0.3", 5, 3, heads=2),
    _attention("causal: true window: 3 dropout_ratio: 0.5", 5, 5, heads=4, kv_heads=2, dim=2, items=4),
    _packed("causal: true dropout_ratio: 0.25", 7, heads=2, dim=2),
    _attention("dropout_ratio: 0.5", 3, 300, heads=2, items=0),
]
PLAIN = [c for c in CASES if "dropout" not in c.text]


def _next(fields, heads=1, kv_heads=0, dim=4, items=2, packed=False):
    """One query of each item, at its position; the cache is empty."""
    wide, narrow = heads * dim, (kv_heads or heads) * dim
    sizes = [wide + 2 * narrow] if packed else [wide, narrow, narrow]
    text = f"attention_param {{ heads: {heads} kv_heads: {kv_heads} causal: true {fields} }}"
    shapes = (*((items, 1, size) for size in sizes), (items, 1))
    return Case("Attention", text, shapes, phase=TEST, integer_bottoms=((len(sizes), 5),))


NEXT = [
    _next("cache: 5", heads=2),
    _next("cache: 5 window: 2", heads=4, kv_heads=2, dim=2),
    _next("cache: 300", heads=2, dim=3, packed=True),
    _next("cache: 4", items=0),
    _next("cache: 3", heads=2),  # positions may be outside
]
CASES += NEXT
DROPPING = [c for c in CASES if "dropout" in c.text and c.shapes[0][0]]
SMALL = [c for c in CASES if c not in NEXT and 0 < np.prod(c.shapes[0]) < 200 and c.shapes[-1][1] < 10]


def parts(shape, bottoms):
    """Queries, keys and values."""
    if len(bottoms) == 3:
        return bottoms
    return np.split(bottoms[0], [shape.heads * shape.dim, (shape.heads + shape.kv_heads) * shape.dim], axis=2)


def reference(case, bench, bottoms):
    """ONNX's Attention. Its window is a mask."""
    shape = bench.layer.shape
    mask = None
    if shape.window:
        at = np.arange(shape.queries)[:, None] - np.arange(shape.keys)
        mask = at < shape.window
    attributes = {"q_num_heads": shape.heads, "kv_num_heads": shape.kv_heads, "scale": shape.scale}
    inputs = [*parts(shape, bottoms), *([mask] if mask is not None else [])]
    return onnx_operator("Attention", inputs, 1, is_causal=int(shape.causal), **attributes)[0]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 2e-7)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in PLAIN if c.shapes[0][0]], ids=str)
def test_is_onnx_s_operator(case, dtype, tolerance):
    """Its factor is a number of single precision."""
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    bottoms = [b.astype(dtype) for b in bottoms]
    (y,) = bench.forward(bottoms)
    np.testing.assert_allclose(y, reference(case, bench, bottoms), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    def refill(bench):
        if bench.layer.random:
            bench.layer.set_state({"seed": 77, "draws": 5})

    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)), refill=refill)


@pytest.mark.parametrize("case", [c for c in CASES if c.shapes[0][0] and c not in NEXT], ids=str)
def test_blocks_of_queries_give_the_same(case, monkeypatch):
    """Three queries at a time, of which the last may be fewer."""
    whole, bottoms = case.bench(), case.make_bottoms(np.random.default_rng(3))
    monkeypatch.setattr(attention, "_BLOCK_BYTES", 3 * whole.layer.heads * case.shapes[-1][1] * 8)
    parts = case.bench()
    assert whole.layer.shape.rows == case.shapes[0][1] and parts.layer.shape.rows == min(3, case.shapes[0][1])
    dy = np.random.default_rng(4).normal(size=whole.top_shapes[0])
    found = [[*bench.forward(bottoms), *bench.backward([dy])[0]] for bench in (whole, parts)]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-13)


def by_loops(case, shape, bottoms, seed, draw):
    """The definition, a weight at a time; which of them are dropped by the generator's words."""
    q, k, v = (np.asarray(x).reshape(*x.shape[:2], -1, shape.dim) for x in parts(shape, bottoms))
    y = np.zeros(q.shape)
    for n, h, i in np.ndindex(shape.items, shape.heads, shape.queries):
        kv = h // (shape.heads // shape.kv_heads)
        seen = [
            j for j in range(shape.keys) if not shape.causal or (j <= i and (not shape.window or j > i - shape.window))
        ]
        weights = np.exp([shape.scale * q[n, i, h] @ k[n, j, kv] for j in seen])
        for j, weight in zip(seen, weights / weights.sum(), strict=True):
            at = ((n * shape.heads + h) * shape.queries + i) * shape.keys + j
            words = philox([np.array([c], np.uint64) for c in (at // 4, 0, draw & 0xFFFFFFFF, draw >> 32)], seed)
            if int(words[at % 4][0]) >= shape.dropout * 2**32:
                y[n, i, h] += weight / (1 - shape.dropout) * v[n, j, kv]
    return y.reshape(*y.shape[:2], -1)


@pytest.mark.parametrize("case", DROPPING, ids=str)
def test_dropout_is_the_definition(case):
    bench, bottoms = case.bench(), case.make_bottoms(np.random.default_rng(1))
    bench.layer.set_state({"seed": 2**40 + 7, "draws": 2**32 + 3})
    (y,) = bench.forward(bottoms)
    expected = by_loops(case, bench.layer.shape, bottoms, 2**40 + 7, 2**32 + 3)
    np.testing.assert_allclose(y, expected, rtol=1e-12, atol=1e-14)
    assert bench.layer.state() == {"seed": 2**40 + 7, "draws": 2**32 + 4}
    assert not np.allclose(bench.forward(bottoms)[0], y)


@pytest.mark.parametrize("case", DROPPING, ids=str)
def test_nothing_is_dropped_in_a_test(case):
    still, bottoms = replace(case, phase=TEST), case.make_bottoms(np.random.default_rng(1))
    bench = still.bench()
    np.testing.assert_allclose(bench.forward(bottoms)[0], reference(still, bench, bottoms), rtol=2e-7, atol=2e-7)
    assert bench.layer.state() == {} and "key" not in bench.layer.scratches


def test_the_share_of_weights_that_is_dropped():
    """Weights are equal here, and values one: a sum of 400 of them says how many stayed."""
    text = "attention_param { heads: 2 dropout_ratio: 0.2 }"
    bench = LayerBench("Attention", text, ((2, 50, 2), (2, 400, 2), (2, 400, 2)), dtype=np.float32)
    (y,) = bench.forward([np.zeros((2, 50, 2)), np.ones((2, 400, 2)), np.ones((2, 400, 2))])
    assert abs(y.mean() - 1) < 0.01 and y.std() == pytest.approx((0.2 / 0.8 / 400) ** 0.5, rel=0.2)


@pytest.mark.parametrize("case", NEXT[:3], ids=str)
@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)], ids=["f32", "f64"])
def test_position_by_position_it_is_the_attention_of_all(case, dtype, tolerance):
    """Two items, the second of which begins two positions later, and each begins anew."""
    bench, rng, n = case.bench(dtype), np.random.default_rng(8), 5
    shapes = [(2, n, shape[2]) for shape in case.shapes[:-1]]
    text = re.sub(r"cache: \d+", "", case.text)
    expected = LayerBench("Attention", text, tuple(shapes), dtype=dtype)
    bottoms = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    (y,) = expected.forward(bottoms)
    for step in range(n + 2):
        places = [step % n, max(0, step - 2)]
        now = [np.stack([b[i, p : p + 1] for i, p in enumerate(places)]) for b in bottoms]
        (found,) = bench.forward([*now, np.array(places, dtype)[:, None]])
        right = np.stack([y[i, p : p + 1] for i, p in enumerate(places)])
        np.testing.assert_allclose(found, right, rtol=tolerance, atol=tolerance)


def test_a_position_outside_of_the_cache():
    bench = LayerBench(
        "Attention", "attention_param { causal: true cache: 2 }", ((3, 1, 2),) * 3 + ((3, 1),), phase=TEST
    )
    (y,) = bench.forward([*np.ones((3, 3, 1, 2)), np.array([[2.0], [1], [-1]])])
    assert np.isnan(y[[0, 2]]).all() and np.isfinite(y[1]).all()


def test_a_cache_has_a_position_for_each_query():
    for shapes in (((1, 1, 6),) * 3 + ((1,),), ((1, 2, 6),) * 3 + ((1, 1),)):
        with pytest.raises(ShapeError, match='layer "l".*one query and its position'):
            LayerBench("Attention", "attention_param { causal: true cache: 2 }", shapes, phase=TEST)


def test_three_bottoms_or_one():
    with pytest.raises(BlobCountError, match="takes 1 or 3 bottom blob"):
        LayerBench("Attention", "", ((1, 2, 6), (1, 2, 6)))
    with pytest.raises(BlobCountError, match="takes 2 or 4 bottom blob"):
        LayerBench("Attention", "attention_param { causal: true cache: 2 }", ((1, 1, 6),) * 3, phase=TEST)


def test_a_packed_bottom_is_three():
    packed, three = CASES[10], _attention("causal: true window: 2", 6, 6, heads=4, kv_heads=2, dim=2)
    one, other = packed.bench(), three.bench()
    bottoms, dy = packed.make_bottoms(np.random.default_rng(5)), np.random.default_rng(6).normal(size=(2, 6, 8))
    np.testing.assert_array_equal(one.forward(bottoms)[0], other.forward(parts(one.layer.shape, bottoms))[0])
    (dx,), _ = one.backward([dy])
    np.testing.assert_array_equal(dx, np.concatenate(other.backward([dy])[0], axis=2))


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
        ("", ((6,),) * 3, ShapeError, "not 3 axes"),
        ("attention_param { dropout_ratio: 1 }", ((1, 2, 6),) * 3, LayerParamError, "dropout_ratio is 1"),
        (
            "attention_param { heads: 2 kv_heads: 1 }",
            ((1, 2, 6),),
            ShapeError,
            "6 values per position, not a multiple of 4",
        ),
        ("", ((2, 6),), ShapeError, "not 3 axes"),
        ("attention_param { causal: true cache: 2 }", ((1, 1, 6),) * 3 + ((1, 1),), LayerParamError, "cache is for"),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Attention", text, shapes)
