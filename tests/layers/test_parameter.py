"""Parameter: its top is its blob, and gradients add up."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

CASES: list[Case] = [
    Case("Parameter", "parameter_param { shape { dim: 2 dim: 3 } }", ()),
    Case("Parameter", "", ()),
    Case("Parameter", "parameter_param { shape { dim: 0 dim: 3 } }", ()),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case, shape", list(zip(CASES, [(2, 3), (), (0, 3)], strict=True)), ids=str)
def test_forward_and_backward(case, shape, dtype):
    bench = case.bench(dtype)
    assert bench.layer.params[0].shape == shape and bench.layer.params[0].filler.value == 0
    (y,) = bench.forward([])
    assert y.shape == shape and np.array_equal(y, bench.params[0])
    dy, before = np.full(shape, 2, dtype), np.full(shape, 5, dtype)
    for add in (False, True):
        _, (dp,) = bench.backward([dy], accumulate=[add], param_diffs=[before])
        assert np.array_equal(dp, dy + add * before)


def test_gradient():
    check_gradient(CASES[0].bench(), [])


def test_a_parameter_that_does_not_learn():
    bench = LayerBench("Parameter", CASES[0].text, (), param_propagate=(False,))
    (y,) = bench.forward([])
    assert bench.backward([y])[1] == [None]
    assert bench.layer.backward_needs([], [True]) == Needs()


def test_refused():
    with pytest.raises(LayerParamError, match='layer "l".*dim of -1'):
        LayerBench("Parameter", "parameter_param { shape { dim: -1 } }", ())
    with pytest.raises(BlobCountError, match='layer "l".*takes 0 bottom'):
        LayerBench("Parameter", "", ((2,),))
