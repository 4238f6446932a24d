"""SegAccuracy: counts against loops, ties, ignored labels, counts over batches, resuming, errors."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import DataError, ShapeError

from .cases import Case
from .harness import LayerBench

SHAPES = ((2, 4, 3, 5), (2, 1, 3, 5))


def maker(rng, shapes):
    return [rng.standard_normal(shapes[0]), rng.integers(0, 3, shapes[1]).astype(float)]


HOST_CASES: list[Case] = [
    Case("SegAccuracy", "", SHAPES, maker=maker),
    Case("SegAccuracy", "seg_accuracy_param { ignore_label: 2 ignore_label: 255 }", SHAPES, maker=maker),
]


def by_loops(batches, classes, ignored=()):
    """Return the three numbers as loops over the pixels of all batches count them."""
    counts = [[0] * classes for _ in range(classes)]
    for scores, labels in batches:
        for n, h, w in np.ndindex(labels.shape[0], *labels.shape[2:]):
            label, best = int(labels[n, 0, h, w]), 0
            for c in range(classes):
                best = c if scores[n, c, h, w] >= scores[n, best, h, w] else best
            if label not in ignored:
                counts[label][best] += 1
    total = sum(map(sum, counts))
    right = [counts[c][c] for c in range(classes)]
    recalls = [right[c] / sum(counts[c]) for c in range(classes) if sum(counts[c])]
    shares = []
    for c in range(classes):
        union = sum(counts[c]) + sum(row[c] for row in counts) - right[c]
        shares.append(right[c] / union if union else 1.0)
    return [sum(right) / total, sum(recalls) / len(recalls), sum(shares) / classes]


def batch(seed, high=3):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 3, SHAPES[0]).astype(float), rng.integers(0, high, SHAPES[1]).astype(float)]  # with ties


@pytest.mark.parametrize("ignored", [(), (1,), (0, 2)])
def test_equals_loops_over_pixels(ignored):
    text = "".join(f"ignore_label: {label} " for label in ignored)
    bench = LayerBench("SegAccuracy", f"seg_accuracy_param {{ {text} }}", SHAPES)
    for seed in range(3):
        (top,) = bench.forward(batch(seed))
        assert top.shape == (1, 1, 1, 3)
        np.testing.assert_allclose(top.ravel(), by_loops([batch(seed)], 4, ignored), rtol=1e-6)


def test_all_batches_count_without_reset_and_after_resuming():
    first, second = (LayerBench("SegAccuracy", "seg_accuracy_param { reset: false }", SHAPES) for _ in range(2))
    assert first.layer.state() == {}
    for seed in range(3):
        first.forward(batch(seed))
    second.layer.set_state(first.layer.state())
    wanted = by_loops([batch(seed) for seed in range(4)], 4)
    for bench in (first, second):
        (top,) = bench.forward(batch(3))
        np.testing.assert_allclose(top.ravel(), wanted, rtol=1e-6)
    assert second.layer.state() == first.layer.state() and sum(first.layer.state().values()) == 4 * 30


def test_no_pixel_counts():
    bench = LayerBench("SegAccuracy", "seg_accuracy_param { ignore_label: 255 }", SHAPES)
    (top,) = bench.forward([batch(0)[0], np.full(SHAPES[1], 255.0)])
    assert top.ravel().tolist() == [0, 0, 1]


def test_wrong_labels_and_shapes():
    bench = LayerBench("SegAccuracy", "", SHAPES)
    with pytest.raises(DataError, match="a label is 255, but there are 4 classes") as caught:
        bench.forward([batch(0)[0], np.full(SHAPES[1], 255.0)])
    assert "ignore_label: 255" in caught.value.fix
    for shapes in ((SHAPES[0], (2, 1, 3, 4)), (SHAPES[0], (2, 3, 5)), ((2, 4), (2, 1))):
        with pytest.raises(ShapeError):
            LayerBench("SegAccuracy", "", shapes)
