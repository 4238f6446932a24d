"""DeephiResize against OpenCV and against loops, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

TYPE = "DeephiResize"
FIELDS = "deephi_resize_param {{ {} }}"
CASES: list[Case] = [
    Case(TYPE, FIELDS.format("scale_h: 2 scale_w: 2 resize_type: NEAREST"), ((2, 3, 4, 5),)),
    Case(TYPE, FIELDS.format("scale_h: 2 scale_w: 1.5"), ((1, 2, 5, 4),)),
    Case(TYPE, FIELDS.format("new_height: 3 new_width: 4"), ((2, 2, 7, 9),)),
    Case(TYPE, FIELDS.format("new_height: 3 new_width: 11 resize_type: NEAREST"), ((1, 2, 7, 4),)),
    Case(TYPE, FIELDS.format("new_height: 4 new_width: 1"), ((1, 3, 1, 6),)),
    Case(TYPE, FIELDS.format("new_height: 9 new_width: 8"), ((0, 3, 3, 3),)),
]


def _loop(plane, out, nearest):
    """Each output by itself, from positions as exact fractions."""
    y = np.zeros(out)
    for place in np.ndindex(*out):
        ends = []
        for o, size, n in zip(place, plane.shape, out, strict=True):
            at = o * size / n if nearest else min(max((o + 0.5) * size / n - 0.5, 0), size - 1)
            low = int(np.floor(at + 1e-9))
            ends.append([(low, 1.0)] if nearest else [(low, 1 - (at - low)), (min(low + 1, size - 1), at - low)])
        y[place] = sum(plane[r, c] * v * w for r, v in ends[0] for c, w in ends[1])
    return y


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES[:5], ids=str)
def test_is_the_loop(case, dtype, tolerance):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(2))
    x = x.astype(dtype)
    (y,) = bench.forward([x])
    nearest = "NEAREST" in case.text
    for n, c in np.ndindex(*y.shape[:2]):
        np.testing.assert_allclose(y[n, c], _loop(x[n, c], y.shape[2:], nearest), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES[:5], ids=str)
def test_is_opencv(case):
    cv2 = pytest.importorskip("cv2")
    bench, (x,) = case.bench(np.float32), case.make_bottoms(np.random.default_rng(3))
    x = x.astype(np.float32)
    (y,) = bench.forward([x])
    way = cv2.INTER_NEAREST if "NEAREST" in case.text else cv2.INTER_LINEAR
    for n, c in np.ndindex(*y.shape[:2]):
        theirs = cv2.resize(x[n, c], y.shape[:1:-1], interpolation=way)
        np.testing.assert_allclose(y[n, c], theirs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("case", CASES[:5], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(5)))


@pytest.mark.parametrize(
    "fields, shape, error",
    [
        ("", (1, 1, 2, 2), LayerParamError),
        ("new_height: 2", (1, 1, 2, 2), LayerParamError),
        ("scale_w: 2", (1, 1, 2, 2), LayerParamError),
        ("scale_w: 2 scale_h: -1", (1, 1, 2, 2), LayerParamError),
        ("scale_w: 2 scale_h: 0.1", (1, 1, 2, 2), ShapeError),
        ("scale_w: 2 scale_h: 2", (1, 2, 2), ShapeError),
    ],
)
def test_refused(fields, shape, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(TYPE, FIELDS.format(fields), (shape,))
