"""Accuracy against plain loops: ties, NaN, ignored labels, classes."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench


def _case(text, scores, labels, high, n_top=1):
    return Case("Accuracy", text, (scores, labels), n_top=n_top, integer_bottoms=((1, high),))


CASES: list[Case] = [
    _case("", (20, 5), (20,), 5),
    _case("", (20, 5), (20, 1, 1, 1), 5, 2),
    _case("accuracy_param { top_k: 3 }", (20, 5), (20,), 5, 2),
    _case("accuracy_param { ignore_label: 2 }", (4, 3, 5, 2), (4, 5, 2), 3, 2),
    _case("accuracy_param { axis: -1 top_k: 2 }", (4, 5, 3), (4, 5), 3, 2),
    _case("accuracy_param { top_k: 5 }", (30, 100), (30,), 100, 2),  # a warp for each row
    _case("accuracy_param { ignore_label: 1 }", (0, 4), (0,), 4, 2),
]


def reference(scores, label, layer):
    outer, c, inner = layer.grid
    scores, label = scores.reshape(outer, c, inner), label.reshape(outer, inner)
    hits, seen = [0] * c, [0] * c
    for o, i in np.ndindex(outer, inner):
        k = int(label[o, i])
        if layer.has_ignore and k == layer.ignore:
            continue
        seen[k] += 1
        hits[k] += sum(scores[o, j, i] >= scores[o, k, i] for j in range(c)) - 1 < layer.top_k
    return sum(hits) / max(1, sum(seen)), [h / max(1, s) for h, s in zip(hits, seen, strict=True)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_counts(case, dtype):
    bench, (x, label) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    x = np.round(x, 1)  # ties
    accuracy, *per_class = bench.forward([x, label])
    total, classes = reference(x, label, bench.layer)
    assert accuracy.shape == () and float(accuracy) == pytest.approx(total, rel=1e-6)
    if per_class:
        assert per_class[0] == pytest.approx(classes, rel=1e-6)


def one(scores, label, text="", n_top=1):
    bench = LayerBench("Accuracy", text, (np.shape(scores), np.shape(label)), n_top=n_top)
    return bench.forward([scores, label])


def test_a_tie_is_a_miss_and_nan_a_hit():
    assert one([[1.0, 1.0, 0.0]], [0])[0] == 0
    assert one([[1.0, 1.0, 0.0]], [0], "accuracy_param { top_k: 2 }")[0] == 1
    assert one([[np.nan, 1.0, 0.0]], [0])[0] == 1
    assert one([[np.nan, 1.0, 0.0]], [1])[0] == 1


def test_nothing_counted_is_zero():
    accuracy, classes = one([[1.0, 0.0]], [1], "accuracy_param { ignore_label: 1 }", 2)
    assert accuracy == 0 and classes.tolist() == [0, 0]


@pytest.mark.parametrize("bad", [2, -1, np.nan, np.inf])
def test_a_label_out_of_range_gives_nan(bad):
    accuracy, classes = one([[1.0, 0.0], [1.0, 0.0]], [0, bad], n_top=2)
    assert np.isnan(accuracy) and classes.tolist() == [1, 0]


def test_an_ignored_label_may_be_out_of_range():
    assert one([[1.0, 0.0], [1.0, 0.0]], [0, 255], "accuracy_param { ignore_label: 255 }")[0] == 1


def test_declarations():
    layer = LayerBench("Accuracy", "", ((2, 3), (2,))).layer
    assert layer.declares.no_backward is None and not layer.declares.is_loss


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("accuracy_param { top_k: 4 }", ((2, 3), (2,)), LayerParamError, "top_k is 4, but there are 3 classes"),
        ("accuracy_param { axis: 2 }", ((2, 3), (2,)), LayerParamError, "axis 2 is out of range"),
        ("", ((2, 3), (3,)), ShapeError, "3 labels, but .* 2 positions"),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("Accuracy", text, shapes)
