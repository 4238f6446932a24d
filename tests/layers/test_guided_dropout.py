"""GuidedDropout: the definition in plain loops, the generator's own draws, and the same draws in both directions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import TEST, Needs
from pycaffe_lms.ops.cpu.activation.dropout import philox

from .cases import Case
from .harness import LayerBench, check_gradient

DRAWN = 'guided_dropout_param { type: "stochastic" sigmoid_scaler: 2.5 }'
ABOVE = "guided_dropout_param { guidance_threshold: 0.25 }"
CASES: list[Case] = [
    Case("GuidedDropout", DRAWN, ((4, 8), (4, 8))),
    Case("GuidedDropout", DRAWN, ((5, 3, 2, 4), (5, 3, 1, 1))),
    Case("GuidedDropout", DRAWN, ((2, 7), (2, 7)), in_place=True),
    Case("GuidedDropout", DRAWN, ((3, 5), (3, 5)), phase=TEST),
    Case("GuidedDropout", "", ((3, 6), (3, 6, 1, 1))),
    Case("GuidedDropout", ABOVE, ((3, 4, 2), (3, 4)), phase=TEST),
    Case("GuidedDropout", ABOVE, ((3, 300), (3, 300)), phase=TEST, in_place=True),
    Case("GuidedDropout", DRAWN, ((0, 5), (0, 5))),
]


def plain(x, guidance, draw=None, scaler=1.0, threshold=0.0):
    """The definition. draw(i): the random number in [0, 1) of channel i, counted through all items."""
    y, channels = np.zeros_like(x), x.shape[1]
    for n in range(len(x)):
        total, kept = 0.0, []
        for c in range(channels):
            g = float(guidance.reshape(len(x), -1)[n, c])
            chance = 1 / (1 + math.exp(-g * scaler)) if draw else float(g > threshold)
            kept.append(draw(n * channels + c) < chance if draw else chance)
            total += chance
        for c in range(channels):
            if kept[c]:
                y[n, c] = x[n, c] * channels / total
    return y


def generators(seed, forward):
    def draw(i):
        words = philox([np.array([c], np.uint64) for c in (i // 4, 0, forward & 0xFFFFFFFF, forward >> 32)], seed)
        return int(words[i % 4][0]) / 2**32

    return draw


@pytest.mark.parametrize("case", [c for c in CASES if c.shapes[0][0]], ids=str)
def test_forward_is_the_definition(case):
    bench, (x, guidance) = case.bench(), case.make_bottoms(np.random.default_rng(1))
    state = {"seed": 2**50 + 9, "draws": 2**32 + 3}
    bench.layer.set_state(state)
    (y,) = bench.forward([x, guidance])
    if case.text == DRAWN and case.phase == TEST:
        np.testing.assert_array_equal(y, x)
    elif case.text == DRAWN:
        np.testing.assert_allclose(y, plain(x, guidance, generators(*state.values()), 2.5), rtol=1e-13)
        assert bench.layer.state() == {"seed": 2**50 + 9, "draws": 2**32 + 4} and 0 < (y == 0).mean() < 1
    else:
        np.testing.assert_allclose(y, plain(x, guidance, threshold=0.25 if case.text == ABOVE else 0), rtol=1e-13)
        assert bench.layer.state() == {} and 0 < (y == 0).mean() < 1


@pytest.mark.parametrize("case", [c for c in CASES if 0 < np.prod(c.shapes[0]) < 500], ids=str)
def test_gradient(case):
    bench = case.bench()
    assert bench.propagate_down == (True, False)
    check_gradient(
        bench,
        case.make_bottoms(np.random.default_rng(2)),
        refill=lambda bench: bench.layer.set_state({"seed": 77, "draws": 5}),
    )


def test_the_share_kept_is_the_probability():
    """Two thousand items: each channel is kept with its own probability, and the sum keeps its expectation."""
    guidance = np.tile([-8.0, -1.0, 0.0, 1.0, 8.0], (2000, 1))
    bench = LayerBench("GuidedDropout", 'guided_dropout_param { type: "stochastic" }', ((2000, 5),) * 2)
    (y,) = bench.forward([np.ones((2000, 5)), guidance])
    chance = 1 / (1 + np.exp(-guidance[0]))
    np.testing.assert_allclose((y > 0).mean(axis=0), chance, atol=0.04)
    assert np.unique(y[y > 0]) == pytest.approx([5 / chance.sum()])


def test_an_item_without_channels_has_zeros():
    """Guidance below any threshold, so low that its logistic function is 0, or NaN."""
    x, guidance = np.ones((3, 4)), np.array([[-1e4] * 4, [np.nan, 9, 9, 9], [-1.0] * 4])
    bench = LayerBench("GuidedDropout", 'guided_dropout_param { type: "stochastic" }', (x.shape,) * 2)
    np.testing.assert_array_equal(bench.forward([x, guidance])[0][:2], 0)
    bench = LayerBench("GuidedDropout", "", (x.shape,) * 2)
    np.testing.assert_allclose(bench.forward([x, guidance])[0], [[0] * 4, [0, 4 / 3, 4 / 3, 4 / 3], [0] * 4])


def test_backward_reads_the_guidance_alone():
    layer = LayerBench("GuidedDropout", DRAWN, ((2, 3), (2, 3))).layer
    assert layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({1}))
    layer = LayerBench("GuidedDropout", DRAWN, ((2, 3), (2, 3)), phase=TEST).layer
    assert layer.backward_needs([True, False], []) == Needs() and layer.forward_needs().bottoms == {0}


def test_refused():
    with pytest.raises(LayerParamError, match='layer "l".*has type "random"'):
        LayerBench("GuidedDropout", 'guided_dropout_param { type: "random" }', ((2, 3), (2, 3)))
    for shape in ((2, 4), (2, 3, 2, 1), (3, 3), (6,)):
        with pytest.raises(ShapeError, match='blob "b1".*\n.*one number per channel'):
            LayerBench("GuidedDropout", "", ((2, 3), shape))
