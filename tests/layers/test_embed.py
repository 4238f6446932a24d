"""Embed and BatchReindex against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient


def _text(n, k, more=""):
    return f"embed_param {{ num_output: {n} input_dim: {k} {more} }}"


EMBED: list[Case] = [
    Case("Embed", _text(4, 5), ((3, 2),), integer_bottoms=((0, 5),)),
    Case("Embed", _text(3, 5, "bias_term: false"), ((7,),), integer_bottoms=((0, 5),)),
    Case("Embed", _text(300, 6), ((2, 30),), integer_bottoms=((0, 6),)),  # more columns than a block has threads
    Case("Embed", _text(1, 3), ((2, 400),), integer_bottoms=((0, 3),)),  # more places than a block looks at
    Case("Embed", _text(20, 40), ((1500,),), integer_bottoms=((0, 2),)),  # rows that nobody uses
    Case("Embed", _text(4, 5), ((0, 2),), integer_bottoms=((0, 5),)),
    Case("Embed", _text(2, 3), ((),), integer_bottoms=((0, 3),)),
]
REINDEX: list[Case] = [
    Case("BatchReindex", "", ((5, 3, 2), (4,)), integer_bottoms=((1, 5),)),
    Case("BatchReindex", "", ((3, 300), (600,)), integer_bottoms=((1, 3),)),
    Case("BatchReindex", "", ((4,), (9,)), integer_bottoms=((1, 2),)),
    Case("BatchReindex", "", ((5, 2), (0,)), integer_bottoms=((1, 5),)),
    Case("BatchReindex", "", ((0, 2), (0,)), integer_bottoms=((1, 5),)),
    Case("BatchReindex", "", ((5, 0), (3,)), integer_bottoms=((1, 5),)),
]
CASES = EMBED + REINDEX


def lookup(index, table):
    return np.array([table[int(i)] for i in index.reshape(-1)]).reshape(index.size, *table.shape[1:])


def gather(index, dy, table):
    dw = np.zeros(table.shape)
    for i, row in zip(index.reshape(-1), dy.reshape(index.size, *table.shape[1:]), strict=True):
        dw[int(i)] += row
    return dw


@pytest.mark.parametrize("dtype, tol", [(np.float32, 1e-4), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", EMBED, ids=str)
def test_embed(case, dtype, tol):
    bench, rng = case.bench(dtype), np.random.default_rng(1)
    (index,) = case.make_bottoms(rng)
    index = np.asarray(index)
    (y,) = bench.forward([index])
    w, bias = bench.params[0], bench.params[1] if len(bench.params) > 1 else 0
    assert y.shape == (*case.shapes[0], w.shape[1])
    np.testing.assert_array_equal(y.reshape(index.size, -1) if index.size else y.reshape(0, 4), lookup(index, w) + bias)
    dy = rng.normal(size=y.shape).astype(dtype)
    start = [rng.normal(size=p.shape).astype(dtype) for p in bench.params]
    for add in (False, True):
        diffs, (dw, *db) = bench.backward([dy], accumulate=[add] * len(start), param_diffs=start)
        assert diffs == [None]
        np.testing.assert_allclose(dw, gather(index, dy, w) + add * start[0], rtol=tol, atol=tol)
        for b in db:
            np.testing.assert_allclose(
                b, dy.reshape(-1, w.shape[1]).sum(axis=0, dtype=np.float64) + add * start[1], rtol=tol, atol=tol
            )


@pytest.mark.parametrize("dtype, tol", [(np.float32, 1e-4), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", REINDEX, ids=str)
def test_batch_reindex(case, dtype, tol):
    bench, rng = case.bench(dtype), np.random.default_rng(1)
    x, index = case.make_bottoms(rng)
    x = x.astype(dtype)
    (y,) = bench.forward([x, index])
    assert y.shape == (*case.shapes[1], *case.shapes[0][1:])
    np.testing.assert_array_equal(y, lookup(index, x) if y.size else y)
    dy = rng.normal(size=y.shape).astype(dtype)
    (dx, none), _ = bench.backward([dy])
    assert none is None
    np.testing.assert_allclose(dx, gather(index, dy, x), rtol=tol, atol=tol)


@pytest.mark.parametrize("case", [EMBED[0], EMBED[1], REINDEX[0], REINDEX[2]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_indices_are_cut_and_one_out_of_range_gives_nan_and_teaches_nothing():
    index = [-0.5, 1.9, -1, 3, np.nan, np.inf, -np.inf, 2]
    bench = LayerBench("Embed", _text(2, 3), ((8,),))
    (y,) = bench.forward([index])
    known = [0, 1, 7]
    assert np.array_equal(y[known], bench.params[0] + bench.params[1])
    assert np.isnan(np.delete(y, known, axis=0)).all()
    _, (dw, db) = bench.backward([np.arange(16.0).reshape(8, 2)])
    assert dw.tolist() == [[0, 1], [2, 3], [14, 15]] and db.tolist() == [56, 64]
    bench = LayerBench("BatchReindex", "", ((2, 1), (3,)))
    (y,) = bench.forward([[[5], [6]], [1, 2, 1]])
    assert y[[0, 2]].tolist() == [[6], [6]] and np.isnan(y[1]).all()
    assert bench.backward([[[1], [2], [4]]])[0][0].tolist() == [[0], [5]]


def test_large_indices_are_exact_in_float32():
    bench = LayerBench("Embed", _text(1, (1 << 24) + 1, "bias_term: false"), ((2,),), dtype=np.float32)
    bench.params[0][-1] = 42
    assert bench.forward([[1 << 24, 0]])[0][0] == 42


def test_needs():
    layer = EMBED[0].bench().layer
    assert layer.no_backward is None
    assert layer.backward_needs([False], [True, True]) == Needs(bottoms=frozenset({0}))
    assert layer.backward_needs([False], [False, True]) == Needs()
    layer = REINDEX[0].bench().layer
    assert layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({1}))
    assert layer.backward_needs([False, False], []) == Needs()


@pytest.mark.parametrize("wants", [(False, True), (True, False), (False, False)])
def test_parameters_that_do_not_learn(wants):
    bench = LayerBench("Embed", _text(2, 3), ((2,),), param_propagate=wants)
    (y,) = bench.forward([[0, 1]])
    assert [g is not None for g in bench.backward([y])[1]] == list(wants)


@pytest.mark.parametrize(
    "type_, text, shapes, error, message",
    [
        ("Embed", "embed_param { input_dim: 3 }", ((2,),), LayerParamError, "num_output is 0"),
        ("Embed", "embed_param { num_output: 3 }", ((2,),), LayerParamError, "input_dim is 0"),
        ("Embed", _text(2, 3), ((2,), (2,)), BlobCountError, "takes 1 bottom"),
        ("BatchReindex", "", ((2,),), BlobCountError, "takes 2 bottom"),
        ("BatchReindex", "", ((2, 3), (2, 1)), ShapeError, r'blob "b1": has shape \(2, 1\)'),
        ("BatchReindex", "", ((), (2,)), ShapeError, 'blob "b0": has no axes'),
    ],
)
def test_refused(type_, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type_, text, shapes)
