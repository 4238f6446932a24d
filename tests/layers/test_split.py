"""Split and Silence."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError
from pycaffe_lms.layers.base import InPlace, Needs

from .cases import Case
from .harness import LayerBench, check_gradient

CASES: list[Case] = [
    Case("Split", "", ((2, 3),), n_top=1),
    Case("Split", "", ((2, 3),), n_top=2),
    Case("Split", "", ((2, 3, 4),), n_top=5),
    Case("Split", "", ((0, 3),), n_top=2),
    Case("Silence", "", ((2, 3), (4,)), n_top=0),
    Case("Silence", "", ((0, 3),), n_top=0),
]


@pytest.mark.parametrize("case", CASES[:3], ids=str)
def test_gradient_of_split(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(1)))


@pytest.mark.parametrize("given", [(True, True, True), (True, False, True), (False, False, True)])
def test_split_adds_the_gradients_there_are_in_their_order(given):
    bench = LayerBench("Split", "", ((1,),), n_top=3, dtype=np.float32)
    assert [t.tolist() for t in bench.forward([[5.0]])] == [[5]] * 3
    values = [1e8, 1.0, -1e8]
    (dx,), _ = bench.backward([[v] if g else None for v, g in zip(values, given, strict=True)])
    total = np.float32(0)
    for v, g in zip(values, given, strict=True):
        total += np.float32(v if g else 0)
    assert dx.tolist() == [total]


def test_split_shares_data_only():
    layer = LayerBench("Split", "", ((2, 3),), n_top=2).layer
    assert layer.shares_data() == {0: 0, 1: 0} and layer.shares() == {}
    assert layer.declares.in_place is InPlace.REFUSED
    assert layer.forward_needs() == layer.backward_needs([True], []) == Needs()


@pytest.mark.parametrize("case", CASES[4:], ids=str)
def test_silence_writes_zeros(case):
    bench = case.bench()
    assert bench.forward(case.make_bottoms(np.random.default_rng(1))) == []
    diffs, _ = bench.backward([])
    assert [d.shape for d in diffs] == list(case.shapes) and not any(d.any() for d in diffs)


def test_silence_propagate_down_false():
    bench = LayerBench("Silence", "", ((2,), (3,)), n_top=0, propagate_down=(False, True))
    bench.forward([np.ones(2), np.ones(3)])
    diffs, _ = bench.backward([])
    assert diffs[0] is None and diffs[1].tolist() == [0, 0, 0]


def test_counts():
    with pytest.raises(BlobCountError, match='layer "l".*takes at least 1 top'):
        LayerBench("Split", "", ((2,),), n_top=0)
    with pytest.raises(BlobCountError, match='layer "l".*takes 0 top'):
        LayerBench("Silence", "", ((2,),), n_top=1)
