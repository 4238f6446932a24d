"""L1Loss against its formula, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

TYPE = "L1Loss"
CASES: list[Case] = [
    Case(TYPE, "", ((4, 3), (4, 3))),
    Case(TYPE, "loss_weight: 0.25", ((2, 3, 2), (2, 6))),
    Case(TYPE, "", ((300, 70), (300, 70))),
    Case(TYPE, "", ((0, 3), (0, 3))),
]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-13)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_is_the_formula(case, dtype, tolerance):
    bench, (a, b) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    a, b = a.astype(dtype), b.astype(dtype)
    items = max(1, len(a))
    loss = np.abs(a.reshape(-1) - b.reshape(-1)).sum(dtype=np.float64) / items
    assert float(bench.forward([a, b])[0]) == pytest.approx(loss, rel=tolerance)
    (da, db), _ = bench.backward([np.array(2.0)])
    sign = np.sign(a.reshape(-1) - b.reshape(-1)) * (2 / items)
    np.testing.assert_allclose(da.reshape(-1), sign, rtol=tolerance)
    np.testing.assert_allclose(db.reshape(-1), -sign, rtol=tolerance)


def test_equal_and_distant_values():
    bench = LayerBench(TYPE, "", ((1, 4), (1, 4)), dtype=np.float32)
    (loss,) = bench.forward([[[2, 1e30, -3, 1e-30]], [[2, 0, 0, 0]]])
    assert float(loss) == np.float32(1e30)
    assert bench.backward([np.array(1.0)])[0][0].tolist() == [[0, 1, -1, 1]]


def test_gradient():
    a = np.random.default_rng(5).normal(size=(4, 3))
    check_gradient(CASES[0].bench(), [a, a + np.where(np.arange(12).reshape(4, 3) % 3, 0.5, -0.5)])


@pytest.mark.parametrize(
    ("shapes", "error"), [(((2, 3), (2, 4)), ShapeError), (((2, 3),) * 3, BlobCountError), (((2, 3),), BlobCountError)]
)
def test_refused(shapes, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(TYPE, "", shapes)
