"""MatMul against numpy.matmul and ONNX's reference implementation, its gradients, and the plans of its products."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import ShapeError
from pycaffe_lms.layers.base import Needs
from pycaffe_lms.ops.product_plan import product_plan

from .cases import Case
from .harness import LayerBench, check_gradient
from .onnx_reference import onnx_operator


def _product(a, b, turns=""):
    fields = "".join(f"transpose_{t}: true " for t in turns)
    return Case("MatMul", f"matmul_param {{ {fields}}}" if turns else "", (a, b))


CASES: list[Case] = [
    _product((2, 3), (3, 4)),
    _product((3, 2), (3, 4), "a"),
    _product((2, 3), (4, 3), "b"),
    _product((4, 3, 2), (4, 4, 3), "ab"),
    _product((2, 3, 4), (2, 4, 5)),
    _product((2, 3, 4, 2), (2, 3, 5, 2), "b"),
    _product((2, 3, 4), (4, 5)),  # one tall product
    _product((2, 4, 3), (4, 5), "a"),
    _product((2, 3, 4), (5, 4), "b"),
    _product((3, 4), (2, 4, 5)),
    _product((3, 4), (2, 5, 4), "b"),
    _product((2, 1, 3, 4), (1, 3, 4, 2)),
    _product((3, 1, 4, 3), (2, 5, 4), "ab"),
    _product((2, 1, 3, 2), (2, 4, 2, 3)),
    _product((2, 4, 3, 2), (2, 1, 2, 3)),
    _product((0, 3, 4), (0, 4, 5)),
    _product((4, 2, 70, 90), (4, 2, 90, 30)),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 100]


def turned(case, bottoms):
    return [
        np.swapaxes(x, -1, -2) if f"transpose_{t}: true" in case.text else x for t, x in zip("ab", bottoms, strict=True)
    ]


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-5), (np.float64, 1e-13)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_is_numpy_s_and_onnx_s(case, dtype, tolerance):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    bottoms = [b.astype(dtype) for b in bottoms]
    (y,) = bench.forward(bottoms)
    np.testing.assert_allclose(y, np.matmul(*turned(case, bottoms)), rtol=tolerance, atol=tolerance * 20)
    theirs = onnx_operator("MatMul", turned(case, bottoms), 1)[0]
    assert y.shape == theirs.shape
    np.testing.assert_allclose(y, theirs, rtol=tolerance, atol=tolerance * 20)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_needs_and_splitting():
    layer = LayerBench("MatMul", "", ((2, 3, 4), (2, 4, 5))).layer
    assert layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({1}))
    assert layer.backward_needs([False, True], []) == Needs(bottoms=frozenset({0}))
    assert layer.splits_over_batch
    assert not LayerBench("MatMul", "", ((2, 3, 4), (4, 5))).layer.splits_over_batch
    assert layer.flops([], layer.infer_shapes([(2, 3, 4), (2, 4, 5)])) == 2 * 2 * 3 * 4 * 5


def test_plans_are_few_products():
    def steps(*args):
        plan = product_plan(*args)
        return len(plan.starts), plan.batch, (plan.m, plan.n, plan.k)

    assert steps((8, 16, 3), (3, 4), (8, 16, 4), False, False) == (1, 1, (128, 4, 3))
    assert steps((8, 16, 3), (8, 16, 4), (3, 4), True, False) == (1, 1, (3, 4, 128))  # the gradient of the second
    assert steps((8, 2, 16, 3), (8, 2, 3, 4), (8, 2, 16, 4), False, False) == (1, 16, (16, 4, 3))
    assert steps((8, 4, 16, 3), (8, 1, 3, 5), (8, 4, 16, 5), False, False) == (1, 8, (64, 5, 3))
    summed = product_plan((2, 5, 3), (5, 3), (1, 3, 3), True, False)
    assert [adds for *_, adds in summed.starts] == [False, True]


@pytest.mark.parametrize(
    "a, b, message",
    [
        ((2, 3), (4, 5), "4 rows for the 3 columns"),
        ((2, 3, 4), (3, 4, 5), "do not fit those of bottom 0"),
        ((3,), (3, 4), "fewer than 2 axes"),
    ],
)
def test_refused(a, b, message):
    with pytest.raises(ShapeError, match=f'layer "l".*{message}'):
        LayerBench("MatMul", "", (a, b))
