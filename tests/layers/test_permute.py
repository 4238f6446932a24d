"""Permute, ShuffleChannel and Reorg against index arithmetic, and merged axes against NumPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs, Runs
from pycaffe_lms.ops.axes import inverse, merge_axes

from .cases import Case
from .harness import LayerBench, check_gradient


def _permute(order, shape):
    return Case("Permute", "permute_param { " + " ".join(f"order: {o}" for o in order) + " }", (shape,))


def _shuffle(group, shape):
    return Case("ShuffleChannel", f"shuffle_channel_param {{ group: {group} }}", (shape,))


PERMUTE = [
    _permute((0, 2, 3, 1), (2, 3, 4, 5)),
    _permute((0, 3, 1, 2), (2, 4, 5, 3)),
    _permute((0, 2, 3, 1), (2, 40, 7, 9)),  # tiles
    _permute((0, 3, 1, 2), (3, 6, 6, 65)),
    _permute((0, 3, 2, 1), (2, 33, 3, 10)),
    _permute((3, 1, 2, 0), (9, 2, 3, 35)),
    _permute((1, 0), (37, 70)),
    _permute((4, 3, 2, 1, 0), (2, 3, 2, 3, 4)),
    _permute((2, 0, 4, 1, 3), (8, 3, 2, 2, 9)),
    _permute((0, 2, 1, 3), (2, 3, 4, 5)),
    _permute((2,), (2, 3, 4)),  # the others follow
    _permute((1, 0), (1, 5)),  # nothing moves in memory
    _permute((0, 1), (3, 4)),
    _permute((), (3, 4)),
    _permute((), ()),
    _permute((0, 2, 3, 1), (0, 3, 4, 5)),
]
SHUFFLE = [
    _shuffle(2, (2, 6, 3, 2)),
    _shuffle(3, (2, 6, 3, 2)),
    _shuffle(1, (2, 4, 3)),
    _shuffle(4, (2, 4, 3)),
    _shuffle(2, (3, 8)),
    _shuffle(8, (3, 128)),  # tiles
    _shuffle(2, (0, 4, 2, 2)),
]
REORG = [
    Case("Reorg", "reorg_param { stride: 2 }", ((2, 8, 4, 6),)),
    Case("Reorg", "reorg_param { stride: 2 reverse: true }", ((2, 8, 3, 5),)),
    Case("Reorg", "reorg_param { stride: 3 }", ((1, 9, 3, 6),)),
    Case("Reorg", "reorg_param { stride: 1 }", ((1, 2, 3, 5),)),
    Case("Reorg", "reorg_param { stride: 2 }", ((0, 8, 4, 6),)),
]
CASES: list[Case] = PERMUTE + SHUFFLE + REORG


def source_of(layer, shape, top_shape, at):
    """Return where element `at` (a tuple) of the top comes from."""
    if layer.type == "Permute":
        order = list(layer.param.permute_param.order)
        order += [axis for axis in range(len(shape)) if axis not in order]
        place = [0] * len(shape)
        for i, axis in enumerate(order):
            place[axis] = at[i]
        return np.ravel_multi_index(place, shape)
    if layer.type == "ShuffleChannel":
        group = layer.group
        channel = at[1] % group * (shape[1] // group) + at[1] // group
        return np.ravel_multi_index((at[0], channel, *at[2:]), shape)
    s, reverse = layer.stride, layer.param.reorg_param.reverse
    _, c, h, w = shape
    flat = int(np.ravel_multi_index(at, top_shape))
    per_image = c * h * w
    image, flat = divmod(flat, per_image)
    for k, j, i in itertools.product(range(c), range(h), range(w)):  # darknet's loops
        small = i + w * (j + h * k)
        off, c2 = divmod(k, c // (s * s))
        large = i * s + off % s + w * s * (j * s + off // s + h * s * c2)
        if flat == (large if reverse else small):
            return image * per_image + (small if reverse else large)
    raise AssertionError("no source")


@pytest.mark.parametrize("case", [c for c in CASES if np.prod(c.shapes[0]) < 400], ids=str)
def test_forward_is_the_index_arithmetic(case):
    bench, (x,) = case.bench(np.float32), case.make_bottoms(np.random.default_rng(1))
    (y,) = bench.forward([x])
    assert y.size == np.size(x)
    flat = np.asarray(x, np.float32).reshape(-1)
    expected = [flat[source_of(bench.layer, case.shapes[0], y.shape, at)] for at in np.ndindex(y.shape)]
    assert y.reshape(-1).tolist() == expected


@pytest.mark.parametrize("case", CASES, ids=str)
def test_backward_takes_the_gradient_back(case):
    bench, (x,) = case.bench(), case.make_bottoms(np.random.default_rng(1))
    assert bench.layer.backward_needs([True], []) == Needs()
    (y,) = bench.forward([x])
    (dx,), _ = bench.backward([y])  # what moved x to y moves y to x
    np.testing.assert_array_equal(dx, x)


@pytest.mark.parametrize("case", [c for c in CASES if 0 < np.prod(c.shapes[0]) < 300 and c.shapes[0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


def test_the_large_cases_are_numpys_transposition():
    for case in PERMUTE:
        bench, (x,) = case.bench(), case.make_bottoms(np.random.default_rng(3))
        np.testing.assert_array_equal(bench.forward([x])[0], np.transpose(x, bench.layer.axes))


@pytest.mark.parametrize("axes", range(6))
def test_merged_axes_are_the_same_transposition(axes):
    rng = np.random.default_rng(axes)
    for _ in range(60):
        shape = tuple(int(d) for d in rng.integers(0 if axes > 3 else 1, 5, size=axes))
        order = tuple(int(a) for a in rng.permutation(axes))
        view, moved = merge_axes(shape, order)
        x = np.arange(int(np.prod(shape)))
        expected = x.reshape(shape).transpose(order).ravel()
        np.testing.assert_array_equal(x.reshape(view).transpose(moved).ravel(), expected)
        assert all(b != a + 1 for a, b in itertools.pairwise(moved)), "no two axes stay neighbours"
        assert tuple(moved[i] for i in inverse(moved)) == tuple(range(len(moved)))
    assert merge_axes((2, 3, 4, 5), (0, 2, 3, 1)) == ((2, 3, 20), (0, 2, 1))


def test_an_order_that_changes_nothing_shares_the_memory():
    layer = LayerBench("Permute", "permute_param { order: 0 order: 1 }", ((2, 3, 4),)).layer
    assert layer.declares.runs_on is Runs.NOWHERE and layer.shares() == {0: 0} and layer.forward_needs() == Needs()
    layer = LayerBench("Permute", "permute_param { order: 1 }", ((2, 3, 4),)).layer
    assert layer.declares.runs_on is Runs.DEVICE and layer.shares() == {}


def test_reshape_and_propagate_down():
    bench = LayerBench("Permute", "permute_param { order: 1 }", ((2, 3),), propagate_down=(False,))
    bench.reshape([(4, 5)])
    assert bench.forward([np.zeros((4, 5))])[0].shape == (5, 4)
    assert bench.backward([np.zeros((5, 4))])[0] == [None]
    with pytest.raises(ShapeError, match="has 3 axes, but the layer was set up for 2"):
        bench.reshape([(4, 5, 6)])


@pytest.mark.parametrize(
    "case, error, message",
    [
        (_permute((0, 3), (2, 3, 4)), LayerParamError, "order 3 is out of range"),
        (_permute((1, 1), (2, 3, 4)), LayerParamError, "names axis 1 twice"),
        (_shuffle(0, (2, 4)), LayerParamError, "group is 0"),
        (_shuffle(3, (2, 4)), ShapeError, "4 channels, which cannot be split into 3"),
        (_shuffle(1, (4,)), ShapeError, "fewer than 2 axes"),
        (Case("Reorg", "", ((1, 4, 2, 2),)), LayerParamError, "stride is not given"),
        (Case("Reorg", "reorg_param { stride: 2 }", ((1, 3, 2, 2),)), ShapeError, "a multiple of 4"),
        (Case("Reorg", "reorg_param { stride: 2 }", ((1, 4, 3, 2),)), ShapeError, "multiples of 2"),
    ],
    ids=str,
)
def test_refused(case, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        case.bench()
