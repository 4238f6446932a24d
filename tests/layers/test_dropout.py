"""Dropout: the generator's published numbers, the share that is kept, and the same draws in both directions."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.layers.base import TEST, TRAIN, Lives, Needs
from pycaffe_lms.ops.cpu.activation.dropout import philox, threshold

from .cases import Case
from .harness import LayerBench, check_gradient

CASES: list[Case] = [
    Case("Dropout", "", ((2, 3, 4, 5),)),
    Case("Dropout", "", ((2, 3, 4, 5),), in_place=True),
    Case("Dropout", "dropout_param { dropout_ratio: 0.3 }", ((7, 9),)),  # not a multiple of four
    Case("Dropout", "dropout_param { dropout_ratio: 0 }", ((5,),)),
    Case("Dropout", "", ((3, 5),), phase=TEST),
    Case("Dropout", "", ((3, 5),), phase=TEST, in_place=True),
    Case("Dropout", "dropout_param { dropout_ratio: 0.25 scale_train: false }", ((3, 7),)),
    Case("Dropout", "dropout_param { dropout_ratio: 0.25 scale_train: false }", ((3, 7),), phase=TEST),
    Case("Dropout", "dropout_param { dropout_ratio: 0.25 scale_train: false }", ((3, 7),), phase=TEST, in_place=True),
    Case("Dropout", "dropout_param { dropout_ratio: 0.25 sample_weights_test: true }", ((3, 7),), phase=TEST),
    Case("Dropout", "", ((0, 5),)),
    Case("Dropout", "", ((0, 5),), phase=TEST),
]


def hexes(counter, key):
    words = philox([np.array([c], np.uint64) for c in counter], key)
    return " ".join(f"{int(w[0]):08x}" for w in words)


def test_philox_known_answers():
    ones = 0xFFFFFFFF
    assert hexes([0] * 4, 0) == "6627e8d5 e169c58d bc57ac4c 9b00dbd8"
    assert hexes([ones] * 4, ones << 32 | ones) == "408f276d 41c83b0e a20bc7c6 6d5451fd"
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344]
    assert hexes(pi, 0x299F31D0 << 32 | 0xA4093822) == "d16cfe09 94fdcceb 5001e420 24126ea1"


def plain(x, ratio, seed, draw, scaled=True):
    """Compute the definition, one element at a time."""
    y = []
    for i, v in enumerate(x.ravel().tolist()):
        block = [np.array([c], np.uint64) for c in (i // 4, 0, draw & 0xFFFFFFFF, draw >> 32)]
        bits = int(philox(block, seed)[i % 4][0])
        y.append((v / (1 - ratio) if scaled else v) if bits >= ratio * 2**32 else 0.0)
    return np.array(y).reshape(x.shape)


@pytest.mark.parametrize("case", [c for c in CASES if c.phase == TRAIN or "sample" in c.text], ids=str)
@pytest.mark.parametrize("seed, draws", [(0, 0), (2**63 - 1, 2**32 + 3)])
def test_forward_is_the_definition(case, seed, draws):
    bench, (x,) = case.bench(), case.make_bottoms(np.random.default_rng(1))
    bench.layer.seed, bench.layer.draws = seed, draws
    (y,) = bench.forward([x])
    np.testing.assert_allclose(y, plain(x, bench.layer.ratio, seed, draws, "false" not in case.text), rtol=1e-14)
    assert bench.layer.draws == draws + 1


def test_nothing_is_kept_between_the_passes_but_the_three_words_of_the_key():
    bench = LayerBench("Dropout", "", ((64, 100),))
    (key,) = bench.layer.scratches.values()
    assert (key.lives, key.nbytes) == (Lives.STEP_SCALAR, 24)
    assert bench.layer.backward_needs([True], []) == Needs()


@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_gradient(case):
    def refill(bench):
        bench.layer.set_state({"seed": 77, "draws": 5})

    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)), refill=refill)


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_the_share_and_the_scale(ratio):
    bench = LayerBench("Dropout", f"dropout_param {{ dropout_ratio: {ratio} }}", ((300, 1000),), dtype=np.float32)
    (y,) = bench.forward([np.ones((300, 1000))])
    assert abs((y == 0).mean() - ratio) < 0.003
    assert np.unique(y)[1:] == pytest.approx([1 / (1 - ratio)])
    assert abs(np.corrcoef(y[:, 1:].ravel(), y[:, :-1].ravel())[0, 1]) < 0.01


def test_every_forward_chooses_anew_and_backward_repeats_the_last_choice():
    bench = LayerBench("Dropout", "", ((100_000,),))
    ones = np.ones(100_000)
    (first,), (second,) = bench.forward([ones]), bench.forward([ones])
    assert 0.4 < (first != second).mean() < 0.6
    (dx,), _ = bench.backward([ones])
    assert np.array_equal(dx, second)


def test_state_resumes_exactly():
    bench, other = (LayerBench("Dropout", "", ((50,),)) for _ in range(2))
    bench.layer.seed = 123456789012345
    for _ in range(3):
        bench.forward([np.ones(50)])
    other.layer.set_state(bench.layer.state())
    assert np.array_equal(bench.forward([np.ones(50)])[0], other.forward([np.ones(50)])[0])


def test_test_phase_copies():
    bench = LayerBench("Dropout", "", ((6,),), phase=TEST)
    x = np.arange(6.0)
    assert np.array_equal(bench.forward([x])[0], x) and bench.layer.state()["draws"] == 0
    assert np.array_equal(bench.backward([x])[0][0], x)


def test_test_phase_scales_where_training_does_not():
    text = "dropout_param { dropout_ratio: 0.25 scale_train: false }"
    bench, x = LayerBench("Dropout", text, ((6,),), phase=TEST), np.arange(6.0)
    assert np.array_equal(bench.forward([x])[0], 0.75 * x)
    assert np.array_equal(bench.backward([x])[0][0], 0.75 * x)


@pytest.mark.parametrize("ratio", [1, -0.1, 1.5])
def test_bad_ratio(ratio):
    with pytest.raises(LayerParamError, match='layer "l".*dropout_ratio is'):
        LayerBench("Dropout", f"dropout_param {{ dropout_ratio: {ratio} }}", ((2,),))


def test_boundary_and_needs():
    assert threshold(0.5) == 2**31 and threshold(0) == 0 and threshold(2**-33) == 1
    assert LayerBench("Dropout", "", ((2,),)).layer.backward_needs([True], []) == Needs()
