"""DropPath: the definition item by item, the share that is kept, and the same draws in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import TEST, Needs
from pycaffe_lms.ops.cpu.activation.dropout import philox

from .cases import Case
from .harness import LayerBench, check_gradient

CASES: list[Case] = [
    Case("DropPath", "", ((6, 3, 5),)),
    Case("DropPath", "drop_path_param { dropout_ratio: 0.5 }", ((9, 7),), in_place=True),
    Case("DropPath", "drop_path_param { dropout_ratio: 0.5 }", ((5,),)),
    Case("DropPath", "drop_path_param { dropout_ratio: 0 }", ((3, 2),)),
    Case("DropPath", "", ((3, 5),), phase=TEST),
    Case("DropPath", "", ((3, 5),), phase=TEST, in_place=True),
    Case("DropPath", "", ((0, 5),)),
]


def plain(x, ratio, seed, draw):
    """The definition: an item has the first word of a block of the generator."""
    y = np.zeros_like(x)
    for n, item in enumerate(x):
        words = philox([np.array([c], np.uint64) for c in (n, 0, draw & 0xFFFFFFFF, draw >> 32)], seed)
        if int(words[0][0]) >= ratio * 2**32:
            y[n] = item / (1 - ratio)
    return y


@pytest.mark.parametrize("case", [c for c in CASES if c.phase != TEST], ids=str)
def test_forward_is_the_definition(case):
    bench, (x,) = case.bench(), case.make_bottoms(np.random.default_rng(1))
    bench.layer.set_state({"seed": 2**50 + 9, "draws": 2**32 + 3})
    (y,) = bench.forward([x])
    np.testing.assert_allclose(y, plain(x, bench.layer.ratio, 2**50 + 9, 2**32 + 3), rtol=1e-14)
    assert bench.layer.state() == {"seed": 2**50 + 9, "draws": 2**32 + 4}


@pytest.mark.parametrize("case", [c for c in CASES if c.shapes[0][0]], ids=str)
def test_gradient(case):
    def refill(bench):
        bench.layer.set_state({"seed": 77, "draws": 5})

    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)), refill=refill)


def test_the_share_and_the_scale():
    bench = LayerBench("DropPath", "drop_path_param { dropout_ratio: 0.3 }", ((20_000, 3),), dtype=np.float32)
    (y,) = bench.forward([np.ones((20_000, 3))])
    assert (y == y[:, :1]).all() and abs((y == 0).mean() - 0.3) < 0.015
    assert np.unique(y)[1:] == pytest.approx([1 / 0.7])
    assert bench.layer.backward_needs([True], []) == Needs()


def test_test_phase_copies():
    bench, x = LayerBench("DropPath", "", ((6, 1),), phase=TEST), np.arange(6.0)[:, None]
    assert np.array_equal(bench.forward([x])[0], x) and np.array_equal(bench.backward([x])[0][0], x)


@pytest.mark.parametrize("ratio", [1, -0.1])
def test_bad_ratio(ratio):
    with pytest.raises(LayerParamError, match='layer "l".*dropout_ratio is'):
        LayerBench("DropPath", f"drop_path_param {{ dropout_ratio: {ratio} }}", ((2, 1),))


def test_items_are_needed():
    with pytest.raises(ShapeError, match='layer "l".*no axes'):
        LayerBench("DropPath", "", ((),))
