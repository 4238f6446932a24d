"""Stochastic pooling: what is chosen and how often, the mean in TEST, gradients, the same choice everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.layers.base import TEST, TRAIN
from pycaffe_lms.lms.config import LMSConfig
from tests.lms import nets

from .cases import Case
from .harness import LayerBench, check_gradient

SHAPES = [
    ("kernel_size: 2 stride: 2", (3, 2, 5, 4)),
    ("kernel_size: 3 stride: 2", (2, 3, 6, 5)),
    ("kernel_size: 2 stride: 4", (1, 2, 4, 5)),  # windows that lie outside
    ("kernel_size: 3", (2, 2, 5)),
    ("kernel_shape { dim: 1 dim: 2 dim: 2 } stride: 2", (1, 2, 3, 4, 3)),
    ("kernel_size: 2", (1, 1, 3, 2, 3, 3)),
    ("global_pooling: true", (2, 2, 3, 4)),
    ("kernel_size: 2", (0, 3, 4, 4)),
]


def positive(rng, shapes):
    return [rng.uniform(0.25, 2, size=shape) for shape in shapes]


CASES: list[Case] = [
    Case("Pooling", f"pooling_param {{ pool: STOCHASTIC {fields} }}", (shape,), phase=phase, maker=positive)
    for phase in (TRAIN, TEST)
    for fields, shape in SHAPES
]


def windows(bench, shape):
    """Yield every place of a plane's output with its window as slices."""
    layer = bench.layer
    for place in np.ndindex(*bench.top_shapes[0][2:]):
        kernel = layer.kernel or shape[2:]
        yield place, tuple(slice(o * s, o * s + k) for o, s, k in zip(place, layer.stride, kernel, strict=True))


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CASES if c.phase == TRAIN], ids=str)
def test_train_chooses_an_element_of_each_window_and_gives_it_the_gradient(case, dtype):
    bench = case.bench(dtype)
    x = np.random.default_rng(1).permutation(int(np.prod(case.shapes[0]))).reshape(case.shapes[0]) + 1.0
    (y,) = bench.forward([x])
    dy = np.random.default_rng(2).normal(size=y.shape).astype(dtype)
    (dx,), _ = bench.backward([dy])
    expected = np.zeros(x.shape)
    for n, c in np.ndindex(*x.shape[:2]):
        for place, window in windows(bench, x.shape):
            inside, value = x[(n, c, *window)], y[(n, c, *place)]
            if inside.size:
                assert value in inside
                expected[n, c][window][inside == value] += dy[(n, c, *place)]
            else:
                assert value == 0
    np.testing.assert_allclose(dx, expected, rtol=1e-5, atol=1e-6)


def test_the_share_of_each_element_is_its_value():
    bench = LayerBench("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }", ((64, 64, 2, 2),))
    x = np.tile(np.array([[0.0, 1.0], [2.0, 5.0]]), (64, 64, 1, 1))
    counts = [np.sum(bench.forward([x])[0] == value) / 4096 for value in (0, 1, 2, 5)]
    np.testing.assert_allclose(counts, [0, 1 / 8, 2 / 8, 5 / 8], atol=0.03)


def test_every_forward_chooses_anew_and_a_resumed_layer_goes_on():
    case, rng = CASES[0], np.random.default_rng(3)
    x = np.abs(rng.normal(size=case.shapes[0]))
    bench, other = case.bench(), case.bench()
    bench.layer.seed = 11
    first, second = bench.forward([x])[0], bench.forward([x])[0]
    assert (first != second).any() and bench.layer.state() == {"seed": 11, "draws": 2}
    other.layer.set_state({"seed": 11, "draws": 1})
    np.testing.assert_array_equal(other.forward([x])[0], second)
    other.layer.set_state({"seed": 12, "draws": 1})
    assert (other.forward([x])[0] != second).any()
    plain = LayerBench("Pooling", "pooling_param { kernel_size: 2 }", ((1, 1, 3, 3),)).layer
    assert plain.state() == {}


def test_the_choice_does_not_depend_on_how_planes_are_cut():
    """Expect half a batch to choose as the whole batch does: a random number depends on the output's index alone."""
    fields = "pooling_param { pool: STOCHASTIC kernel_size: 3 }"
    x = np.abs(np.random.default_rng(4).normal(size=(2, 5, 300, 300))).astype(np.float32)  # more than one chunk
    whole = LayerBench("Pooling", fields, (x.shape,), dtype=np.float32).forward([x])[0]
    half = LayerBench("Pooling", fields, (x[:1].shape,), dtype=np.float32).forward([x[:1]])[0]
    np.testing.assert_array_equal(whole[:1], half)


def test_nothing_but_zeros_and_nan():
    bench = LayerBench("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 stride: 2 }", ((1, 1, 2, 4),))
    (y,) = bench.forward([np.array([[[[0, 0, 1, np.nan], [0, 0, 1, 4]]]])])
    np.testing.assert_array_equal(y[0, 0, 0], [0, 4])  # no running sum reaches NaN: the last element
    (dx,), _ = bench.backward([np.ones(y.shape)])
    np.testing.assert_array_equal(dx[0, 0], [[1, 0, 0, 0], [0, 0, 0, 1]])


@pytest.mark.parametrize("needs_backward", [True, False])
@pytest.mark.parametrize("case", [c for c in CASES if c.phase == TEST], ids=str)
def test_test_phase_is_the_mean_weighted_by_the_values(case, needs_backward):
    bench = LayerBench("Pooling", case.text, case.shapes, phase=TEST, needs_backward=needs_backward)
    x = np.abs(np.random.default_rng(5).normal(size=case.shapes[0]))
    (y,) = bench.forward([x])
    for n, c in np.ndindex(*x.shape[:2]):
        for place, window in windows(bench, x.shape):
            inside = x[(n, c, *window)]
            mean = np.square(inside).sum() / inside.sum() if inside.size else 0
            np.testing.assert_allclose(y[(n, c, *place)], mean)
    assert bench.layer.state()["draws"] == 0


@pytest.mark.parametrize("case", [c for c in CASES if c.phase == TEST and c.shapes[0][0]], ids=str)
def test_gradient_in_test_phase(case):
    check_gradient(case.bench(), [np.random.default_rng(6).uniform(0.5, 2, size=case.shapes[0])])


def test_a_window_of_zeros_has_no_mean_and_no_gradient():
    text = "pooling_param { pool: STOCHASTIC kernel_size: 2 }"
    bench = LayerBench("Pooling", text, ((1, 1, 2, 2),), phase=TEST)
    assert not bench.forward([np.zeros((1, 1, 2, 2))])[0].any()
    assert not bench.backward([np.ones((1, 1, 1, 1))])[0][0].any()


def test_what_backward_reads():
    for case in CASES:
        needs = case.bench().layer.backward_needs([True], [])
        test = {0} if case.phase == TEST else set()
        assert needs.bottoms == test and needs.tops == test and not needs.params


def test_a_second_top_and_padding_are_refused():
    text = "pooling_param { pool: STOCHASTIC kernel_size: 2 }"
    with pytest.raises(LayerParamError, match="second top"):
        LayerBench("Pooling", text, ((1, 1, 4, 4),), n_top=2)
    with pytest.raises(LayerParamError, match="takes no pad"):
        LayerBench("Pooling", text.replace("2 }", "2 pad: 1 }"), ((1, 1, 4, 4),))


NET = (
    nets._DATA
    + nets.conv("conv1", "data", 6)
    + 'layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }\n'
    + nets._pool("pool1", "conv1", "STOCHASTIC", 3)
    + nets.conv("conv2", "pool1", 8)
    + nets.head("conv2")
)


@pytest.mark.parametrize("seed", range(4))
def test_large_model_support_changes_no_bit(seed, monkeypatch):
    monkeypatch.setitem(nets.NETS, "stochastic", NET)
    resident = nets.train(nets.make_solver("stochastic"), 3)
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=1, ahead=(0, 32)[seed % 2])
    assert nets.train(nets.make_solver("stochastic", device, lms), 3) == resident
    assert device.bytes_in > 0 and len(set(resident[0])) == 3
