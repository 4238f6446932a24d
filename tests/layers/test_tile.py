"""Tile against np.tile."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient

# a case, and its repetitions as np.tile takes them
WANTED = [
    (Case("Tile", "tile_param { tiles: 3 }", ((2, 3, 4),)), (1, 3, 1)),
    (Case("Tile", "tile_param { tiles: 2 axis: 0 }", ((2, 3),)), (2, 1)),
    (Case("Tile", "tile_param { tiles: 4 axis: -1 }", ((2, 3),)), (1, 4)),
    (Case("Tile", "tile_param { tiles: 1 }", ((2, 3, 4),)), (1, 1, 1)),
    (Case("Tile", "tile_param { tiles: 5 }", ((0, 3, 2),)), (1, 5, 1)),
    (Case("Tile", "tile_param { tiles: 5 }", ((2, 0, 2),)), (1, 5, 1)),
    (Case("Tile", "tile_param { tiles: 300 }", ((3, 2, 2),)), (1, 300, 1)),  # several parts
    (Case("Tile", "tile_param { tiles: 65 axis: 0 }", ((7,),)), (65,)),
    (Case("Tile", "tile_param { tiles: 70 }", ((64, 16, 80),)), (1, 70, 1)),  # enough elements: one part
]
CASES: list[Case] = [case for case, _ in WANTED]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case, reps", WANTED, ids=str)
def test_forward_and_backward(case, reps, dtype):
    bench, rng = case.bench(dtype), np.random.default_rng(1)
    x = case.make_bottoms(rng)[0].astype(dtype)
    (y,) = bench.forward([x])
    assert np.array_equal(y, np.tile(x, reps))
    dy = rng.normal(size=y.shape).astype(dtype)
    axis = next((i for i, r in enumerate(reps) if r > 1), 0)
    blocks = np.array_split(dy.astype(np.float64), max(reps), axis)
    (dx,), _ = bench.backward([dy])
    np.testing.assert_allclose(dx, sum(blocks), rtol=1e-5 if dtype is np.float32 else 1e-12, atol=1e-5)


@pytest.mark.parametrize("case", CASES[:4], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_parts_are_for_many_tiles_of_few_elements():
    parts = [case.bench().layer.parts for case in CASES]
    assert parts == [1, 1, 1, 1, 1, 1, math.ceil(300 / 64), 2, 1]


def test_blocks_repeat_not_elements():
    bench = LayerBench("Tile", "tile_param { tiles: 2 axis: 0 }", ((2,),))
    assert bench.forward([[1, 2]])[0].tolist() == [1, 2, 1, 2]
    assert bench.backward([[1, 2, 10, 20]])[0][0].tolist() == [11, 22]


def test_needs_and_propagate_down():
    bench = LayerBench("Tile", "tile_param { tiles: 2 }", ((1, 2),), propagate_down=(False,))
    bench.forward([[[1, 2]]])
    assert bench.backward([np.ones((1, 4))])[0] == [None]
    assert bench.layer.backward_needs([True], []) == Needs()


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "tiles is 0"),
        ("tile_param { tiles: -1 }", "tiles is -1"),
        ("tile_param { tiles: 2 axis: 2 }", "axis 2 is out of range"),
    ],
)
def test_refused(text, message):
    with pytest.raises(LayerParamError, match=f'layer "l".*{message}'):
        LayerBench("Tile", text, ((2, 3),))
