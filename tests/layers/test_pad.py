"""Pad against numpy.pad, and its gradient."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

FIELDS = "pad_param {{ paddings: [{}] }}"
CASES: list[Case] = [
    Case("Pad", FIELDS.format("0, 0, 0, 0, 1, 2, 0, 3"), ((2, 3, 4, 5),)),
    Case("Pad", FIELDS.format("1, 0, 2, 1"), ((3, 4),)),
    Case("Pad", FIELDS.format("0, 0, 1, 1, 0, 0"), ((2, 3, 4),)),
    Case("Pad", FIELDS.format("0, 0, 1, 1"), ((0, 4),)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_is_that_of_numpy(case):
    bench, (x,) = case.bench(), case.make_bottoms(np.random.default_rng(1))
    paddings = np.reshape(bench.layer.param.pad_param.paddings, (-1, 2)).tolist()
    np.testing.assert_array_equal(bench.forward([x])[0], np.pad(x, paddings))


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(5)))


def test_refused():
    with pytest.raises(LayerParamError, match="has 2 paddings for 2 axes"):
        LayerBench("Pad", FIELDS.format("1, 1"), ((2, 3),))
    with pytest.raises(LayerParamError, match="constant_values is 2"):
        LayerBench("Pad", "pad_param { paddings: [0, 0] constant_values: 2 }", ((2,),))
    bench = CASES[1].bench()
    with pytest.raises(ShapeError, match="has 3 axes, paddings are for 2"):
        bench.layer.infer_shapes([(1, 2, 3)])
