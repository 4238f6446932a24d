"""EvalDetection against a loop over plain numbers, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import DataError, LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench
from .test_yolo_output import _overlap, _sigmoid

BIASES = " ".join(f"biases: {v}" for v in (1.3, 1.7, 3.2, 2.0))


def _text(more=""):
    return f"eval_detection_param {{ num_class: 3 num_object: 2 {BIASES} {more} }}"


def _truth(rng, shapes):
    rows = np.full((shapes[1][2], 8), -1.0)
    for i in range(len(rows) - 2):
        low = rng.uniform(0, 0.6, size=2)
        rows[i] = [i % max(1, shapes[0][0]), rng.integers(1, 4), 0, *low, *(low + rng.uniform(0.2, 0.5, size=2)), 0]
    return [rng.normal(size=shapes[0]), rows.reshape(shapes[1]), *(np.zeros(s) for s in shapes[2:])]


MAP, ROWS = (2, 16, 4, 5), (1, 1, 12, 8)
HOST_CASES = [
    Case("EvalDetection", _text("threshold: 0.2 nms: 0.3 side: 17"), (MAP, ROWS, (2, 3, 8, 8)), maker=_truth),
    Case("EvalDetection", _text("threshold: 0.1 score_type: OBJ sqrt: false"), (MAP, ROWS), maker=_truth),
    Case(
        "EvalDetection", _text("threshold: 0.1 nms: 0.5 score_type: PROB constriant: false"), (MAP, ROWS), maker=_truth
    ),
]


def loop(layer, x, rows):
    """Return the top, in float64."""
    p, tops = layer.options, []
    for n in range(len(x)):
        found, height, width = [], *x.shape[2:]
        for h, w, a in np.ndindex(height, width, 2):
            v = x[n, a * 8 : a * 8 + 8, h, w]
            sides = [math.exp(v[2 + k]) * layer.anchors[a][k] / (width, height)[k] for k in (0, 1)]
            box = [(w + _sigmoid(v[0])) / width, (h + _sigmoid(v[1])) / height, *sides]
            chance = [math.exp(s) for s in v[5:]]
            best, score = max(chance) / sum(chance), _sigmoid(v[4])
            found.append(((score, best, score * best)[p.score_type], chance.index(max(chance)), box))
        kept = []
        for each in sorted(found, key=lambda f: -f[0]):
            if p.nms < 0 or all(_overlap(each[2], k[2]) < p.nms for k in kept):
                kept.append(each)
        objects = [
            (r[1] - 1, [(r[3] + r[5]) / 2, (r[4] + r[6]) / 2, r[5] - r[3], r[6] - r[4]]) for r in rows if r[0] == n
        ]
        top, taken = [sum(c == label for c, _ in objects) for label in range(3)], set()
        for label in range(3):
            for score, _, box in (k for k in kept if k[1] == label and k[0] >= 0.005):
                common = {i: _overlap(box, o[1]) for i, o in enumerate(objects) if o[0] == label}
                most = max(common, key=common.get, default=None)
                if most is None:
                    top += [label, score, 0, 1]
                elif common[most] < p.threshold:
                    top += [label, score, 0, 0]
                else:
                    top += [label, score, most not in taken, most in taken]
                    taken.add(most)
        tops.append(top + [0] * (3 + height * width * 2 * 4 - len(top)))
    return np.array(tops, np.float64)


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", HOST_CASES, ids=str)
def test_it_is_the_loop(case, dtype, tolerance):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(2))
    expected = loop(bench.layer, bottoms[0], bottoms[1].reshape(-1, 8))
    (top,) = bench.forward(bottoms)
    np.testing.assert_allclose(top, expected, rtol=tolerance, atol=tolerance)
    rows = expected[:, 3:].reshape(-1, 4)
    assert rows[:, 2].any() and rows[:, 3].any() and (rows[rows[:, 1] > 0, 2:] == 0).all(axis=1).any()


def test_the_defaults():
    p = LayerBench("EvalDetection", _text(), (MAP, ROWS)).layer.options
    assert (p.threshold, p.nms, p.score_type) == (0.5, -1, p.MULTIPLY)


@pytest.mark.parametrize(
    "text, shapes, error, message",
    [
        ("eval_detection_param { num_class: 3 }", (MAP, ROWS), LayerParamError, "0 biases for 2 anchors"),
        (_text(), ((2, 15, 4, 5), ROWS), ShapeError, '"b0".*16 channels'),
        (_text(), (MAP, (2, 15)), ShapeError, '"b1"'),
    ],
)
def test_refused(text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench("EvalDetection", text, shapes)


@pytest.mark.parametrize("label", [0, 4])
def test_an_object_of_no_class(label):
    x, rows = _truth(np.random.default_rng(1), (MAP, ROWS))
    rows[0, 0, 1, 1] = label
    with pytest.raises(DataError, match=f'layer "l".*"b1": image 1 has an object of class {label}'):
        LayerBench("EvalDetection", _text(), (MAP, ROWS)).forward([x, rows])
