"""ArgMax against sorting in plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench


def _text(more):
    return f"argmax_param {{ {more} }}"


CASES: list[Case] = [
    Case("ArgMax", "", ((3, 4, 2, 2),)),
    Case("ArgMax", _text("top_k: 3"), ((3, 7),)),
    Case("ArgMax", _text("top_k: 3 out_max_val: true"), ((3, 5, 2, 1),)),
    Case("ArgMax", _text("top_k: 5 out_max_val: true"), ((4, 1000),)),
    Case("ArgMax", _text("top_k: 3"), ((4, 300),), integer_bottoms=((0, 3),)),  # many ties
    Case("ArgMax", _text("axis: 1"), ((2, 5, 3),)),
    Case("ArgMax", _text("axis: -1 top_k: 2"), ((2, 3, 50),), integer_bottoms=((0, 4),)),
    Case("ArgMax", _text("axis: 0 top_k: 2 out_max_val: true"), ((4, 3),)),
    Case("ArgMax", _text("axis: 1 top_k: 6"), ((2, 6, 3),), integer_bottoms=((0, 2),)),
    Case("ArgMax", "", ((5,),)),
    Case("ArgMax", _text("top_k: 2"), ((0, 3),)),
    Case("ArgMax", _text("axis: 1"), ((0, 3, 2),)),
    Case("ArgMax", _text("axis: 1"), ((2, 3, 0),)),
]


def best_of(values, k):
    """Return [(value, index)] of the k best, in descending order of (value, index)."""
    return sorted(((v, i) for i, v in enumerate(values)), reverse=True)[:k]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward(case, dtype):
    bench = case.bench(dtype)
    x = case.make_bottoms(np.random.default_rng(1))[0].astype(dtype)
    (y,) = bench.forward([x])
    options = bench.layer.param.argmax_param
    k, values = options.top_k, options.out_max_val
    if options.HasField("axis"):
        shape = list(x.shape)
        shape[options.axis] = k
        assert y.shape == tuple(shape)
        if x.size:
            y, wanted = np.moveaxis(y, options.axis, -1), np.moveaxis(x, options.axis, -1)
            for place in np.ndindex(wanted.shape[:-1]):
                assert y[place].tolist() == [best[0 if values else 1] for best in best_of(wanted[place].tolist(), k)]
        return
    assert y.shape == (x.shape[0], 2 if values else 1, k, *(1,) * (x.ndim - 3))
    for item, row in enumerate(x):
        best = best_of(row.reshape(-1).tolist(), k)
        assert y[item, 0].reshape(-1).tolist() == [i for _, i in best]
        if values:
            assert y[item, 1].reshape(-1).tolist() == [v for v, _ in best]


@pytest.mark.parametrize("k, wanted", [(1, [3]), (2, [3, 1]), (4, [3, 1, 2, 0])])
def test_of_equal_values_the_larger_index_comes_first(k, wanted):
    bench = LayerBench("ArgMax", _text(f"top_k: {k}"), ((1, 4),))
    assert bench.forward([[[1, 5, 2, 5]]])[0].reshape(-1).tolist() == wanted


@pytest.mark.parametrize("k, wanted", [(1, [2]), (4, [2, 0, 3, 1])])
def test_a_nan_is_the_largest(k, wanted):
    bench = LayerBench("ArgMax", _text(f"top_k: {k}"), ((1, 4),))
    assert bench.forward([[[np.nan, 1, np.nan, np.inf]]])[0].reshape(-1).tolist() == wanted


def test_needs():
    layer = CASES[0].bench().layer
    assert layer.declares.no_backward is None and layer.backward_needs([False], []) == Needs()


@pytest.mark.parametrize(
    "text, shape, error, message",
    [
        (_text("axis: 2"), (2, 3), LayerParamError, "axis 2 is out of range"),
        (_text("top_k: 0"), (2, 3), LayerParamError, "top_k is 0, but there are 3"),
        (_text("top_k: 4"), (2, 3), LayerParamError, "top_k is 4, but there are 3"),
        (_text("axis: 0 top_k: 3"), (2, 3), LayerParamError, "top_k is 3, but there are 2"),
        ("", (2, 0), LayerParamError, "top_k is 1, but there are 0"),
        ("", (), ShapeError, 'blob "b0": has no axes'),
    ],
)
def test_refused(text, shape, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("ArgMax", text, (shape,))
