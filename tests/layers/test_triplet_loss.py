"""TripletLoss against its formula, numbers of PyTorch, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

TYPE = "TripletLoss"
WIDE = "triplet_loss_param { margin: 40 } loss_weight: 0.5"
CASES: list[Case] = [
    Case(TYPE, "", ((4, 3),) * 3),
    Case(TYPE, WIDE, ((5, 3, 2, 1),) * 3 + ((5,),)),
    Case(TYPE, "triplet_loss_param { margin: 0.25 }", ((70, 130),) * 3 + ((70, 1),)),
    Case(TYPE, "", ((0, 3),) * 3),
]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_is_the_formula(case, dtype, tolerance):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    bottoms = [b.astype(dtype) for b in bottoms]
    margin, items = bench.layer.param.triplet_loss_param.margin, len(bottoms[0])
    weights = bottoms[3].reshape(-1) if len(bottoms) == 4 else np.ones(items)
    loss, wanted = 0.0, [np.zeros(b.shape) for b in bottoms[:3]]
    for i in range(items):
        a, p, n = (b[i].astype(np.float64) for b in bottoms[:3])
        gap = margin + ((a - p) ** 2).sum() - ((a - n) ** 2).sum()
        if gap > 0:
            loss += weights[i] * gap / 2 / items
            for gradient, value in zip(wanted, (n - p, p - a, a - n), strict=True):
                gradient[i] = 3 * weights[i] / items * value
    assert float(bench.forward(bottoms)[0]) == pytest.approx(loss, rel=tolerance)
    found, _ = bench.backward([np.array(3.0)])
    for gradient, value in zip(found, wanted, strict=False):
        np.testing.assert_allclose(gradient, value, rtol=10 * tolerance, atol=10 * tolerance)


TORCH_LOSS = 0.3164564754668853
TORCH_DA = [[-0.08099961356797997, -0.35001298462668284], [0.0, 0.0], [-0.07346985042706083, 0.23270487315539035]]
TORCH_DP = [[0.2804903282692988, 0.11581570773825918], [-0.0, -0.0], [-0.31561534703287464, -0.2089156299918257]]
TORCH_DN = [[-0.19949071470131885, 0.23419727688842368], [0.0, 0.0], [0.3890851974599355, -0.023789243163564656]]


def test_numbers_of_pytorch():
    """torch 2.15: relu(1 + (a - p).square().sum(1) - (a - n).square().sum(1)).mean() / 2 and its gradient."""
    a, p, n = (np.sin(k + np.arange(6) * 0.7).reshape(3, 2) for k in (0, 1, 2.5))
    bench = LayerBench(TYPE, "", ((3, 2),) * 3)
    assert float(bench.forward([a, p, n])[0]) == pytest.approx(TORCH_LOSS, rel=1e-12)
    (da, dp, dn), _ = bench.backward([np.array(1.0)])
    for gradient, value in ((da, TORCH_DA), (dp, TORCH_DP), (dn, TORCH_DN)):
        np.testing.assert_allclose(gradient, value, rtol=1e-10, atol=1e-15)


@pytest.mark.parametrize("case", CASES[:2], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(5)), only_bottoms=(0, 1, 2))


@pytest.mark.parametrize(
    "shapes, error",
    [
        (((4, 3),) * 2, BlobCountError),
        (((4, 3),) * 5, BlobCountError),
        (((4, 3), (4, 3), (4, 2)), ShapeError),
        (((4, 3), (3, 3), (4, 3)), ShapeError),
        (((4, 3),) * 3 + ((3,),), ShapeError),
        (((4, 3),) * 3 + ((4, 2),), ShapeError),
    ],
)
def test_refused(shapes, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(TYPE, "", shapes)
