"""Input and DummyData: shapes, what is filled when and with which distribution, and exact resuming."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.layers.base import Lives, Needs, Runs
from pycaffe_lms.ops import load_ops

from .cases import Case
from .harness import LayerBench

SHAPE = "shape { dim: 2 dim: 3 }"
HOST_CASES: list[Case] = [
    Case("Input", f"input_param {{ {SHAPE} }}", ()),
    Case("DummyData", f"dummy_data_param {{ {SHAPE} }}", ()),
    Case("DummyData", "dummy_data_param { num: 2 channels: 3 height: 1 height: 4 width: 5 }", (), n_top=2),
]


def drawing(filler, shape="dim: 2 dim: 3", **more):
    return Case("DummyData", f"dummy_data_param {{ shape {{ {shape} }} data_filler {{ {filler} }} }}", (), **more)


CASES: list[Case] = [
    drawing("type: 'gaussian'", n_top=2),
    drawing("type: 'uniform' min: -2 max: 9", "dim: 7 dim: 9 dim: 11"),
    drawing("type: 'gaussian' mean: 4 std: 0.5 sparse: 2", "dim: 8 dim: 3"),
    drawing("type: 'gaussian' sparse: 0"),
    drawing("type: 'xavier'"),
    drawing("type: 'msra' variance_norm: AVERAGE"),
    drawing("type: 'positive_unitball'", "dim: 3 dim: 300"),
    drawing("type: 'positive_unitball'", "dim: 0 dim: 3"),
    drawing("type: 'gaussian'", ""),  # one number
    Case("DummyData", f"dummy_data_param {{ {SHAPE} data_filler {{ }} data_filler {{ type: 'msra' }} }}", (), n_top=2),
]
TWO = "data_filler { value: 7 } data_filler { type: 'uniform' }"


def input_layer(text, n_top=1):
    return LayerBench("Input", f"input_param {{ {text} }}", (), n_top=n_top)


def dummy(text, n_top=1, **more):
    return LayerBench("DummyData", f"dummy_data_param {{ {text} }}", (), n_top=n_top, **more)


def test_input_shapes():
    assert input_layer("", 2).top_shapes == [(0,), (0,)]
    assert input_layer(SHAPE, 2).top_shapes == [(2, 3), (2, 3)]
    assert input_layer(SHAPE + " shape { dim: 5 }", 2).top_shapes == [(2, 3), (5,)]
    assert input_layer("shape {}").top_shapes == [()]


def test_input_declarations():
    layer = input_layer(SHAPE).layer
    assert layer.declares.is_net_input and layer.declares.runs_on is Runs.NOWHERE
    assert layer.forward_needs() == layer.backward_needs([], []) == Needs()


@pytest.mark.parametrize("text, message", [(SHAPE * 2, "2 shapes for 3 tops"), ("shape { dim: -1 }", "negative dim")])
def test_input_refused(text, message):
    with pytest.raises(LayerParamError, match=f'layer "l".*{message}'):
        input_layer(text, 3)


def test_dummy_shapes():
    assert dummy(SHAPE, 2).top_shapes == [(2, 3), (2, 3)]
    assert dummy(SHAPE + " shape {}", 2).top_shapes == [(2, 3), ()]
    legacy = dummy("num: 2 num: 9 channels: 3 height: 4 width: 5", 2)
    assert legacy.top_shapes == [(2, 3, 4, 5), (9, 3, 4, 5)]


def test_random_tops_are_drawn_on_the_device_and_need_nothing():
    layer = dummy(SHAPE + TWO, 2).layer
    assert layer.declares.runs_on is Runs.DEVICE and dummy(SHAPE).layer.declares.runs_on is Runs.HOST
    assert layer.forward_needs() == layer.remat_needs() == layer.backward_needs([], []) == Needs()
    assert [(s.lives, s.nbytes) for s in layer.scratches.values()] == [(Lives.STEP_SCALAR, 24)]


@pytest.mark.parametrize("case", HOST_CASES + CASES, ids=str)
def test_every_case_runs(case):
    assert len(case.bench().forward([])) == case.n_top


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_constant_tops_are_filled_once_others_anew(dtype):
    bench = dummy(SHAPE + TWO, 2, dtype=dtype)
    assert [bench.layer.rewrites(i) for i in range(2)] == [False, True]
    constant = np.full((2, 3), np.nan, dtype)
    bench.layer.fill_once(0, constant)
    assert (constant == 7).all()
    first, second = bench.forward([]), bench.forward([])
    assert np.isnan(first[0]).all(), "forward leaves a constant top alone: a user's writes stay"
    assert first[1].dtype == dtype and not np.array_equal(first[1], second[1])
    assert ((first[1] >= 0) & (first[1] <= 1)).all()
    zeros = np.ones((2, 3), dtype)
    dummy(SHAPE, dtype=dtype).layer.fill_once(0, zeros)
    assert not zeros.any()


@pytest.mark.parametrize("filler", ["bilinear", "constant"])
def test_what_is_not_random_is_filled_once(filler):
    bench = dummy(f"shape {{ dim: 2 dim: 3 dim: 4 dim: 4 }} data_filler {{ type: '{filler}' value: 3 }}")
    top = np.full((2, 3, 4, 4), np.nan)
    bench.layer.fill_once(0, top)
    row = np.array([0.25, 0.75, 0.75, 0.25]) if filler == "bilinear" else np.full(4, np.sqrt(3))
    np.testing.assert_allclose(top, np.broadcast_to(np.outer(row, row), top.shape), rtol=1e-6)
    assert not bench.layer.rewrites(0) and bench.layer.state() == {} and not bench.layer.scratches


def test_draws_depend_on_seed_number_and_top_alone():
    bench = dummy(SHAPE + "data_filler { type: 'gaussian' }", 2)
    bench.layer.seed = 5
    draws = [bench.forward([]) for _ in range(3)]
    assert len({float(v) for tops in draws for t in tops for v in t.flat}) == 36
    resumed = dummy(SHAPE + "data_filler { type: 'gaussian' }", 2)
    resumed.layer.set_state({"seed": 5, "draws": 2})
    for got, want in zip(resumed.forward([]), draws[2], strict=True):
        assert np.array_equal(got, want)
    assert resumed.layer.state() == bench.layer.state() == {"seed": 5, "draws": 3}
    assert bench.layer.after({"seed": 5, "draws": 3}, 4) == {"seed": 5, "draws": 7}
    other = dummy(SHAPE + "data_filler { value: 1 } data_filler { type: 'gaussian' }", 2)
    other.layer.set_state({"seed": 5, "draws": 0})
    assert np.array_equal(other.forward([])[1], draws[0][1]), "what the other top is makes no difference"


def test_a_top_is_what_the_operation_draws_with_its_key():
    bench = dummy(SHAPE + "data_filler { type: 'gaussian' mean: 2 std: 3 } data_filler { type: 'uniform' max: 9 }", 2)
    bench.layer.set_state({"seed": 2**40 + 1, "draws": 12})
    gaussian, uniform = bench.forward([])
    expected, ops = np.empty((2, 2, 3)), load_ops("cpu")
    ops.random_gaussian(expected[0], np.array([2**40 + 1, 12, 0], np.uint64), 2.0, 3.0)
    ops.random_uniform(expected[1], np.array([2**40 + 1, 12, 2 << 40], np.uint64), 0.0, 9.0)
    assert np.array_equal(gaussian, expected[0]) and np.array_equal(uniform, expected[1])


def large(filler):
    bench = dummy(f"shape {{ dim: 100 dim: 20 dim: 50 }} data_filler {{ {filler} }}")
    bench.layer.seed = 9
    return bench.forward([])[0]


@pytest.mark.parametrize(
    "filler, low, high",
    [
        ("type: 'uniform' min: -2 max: 6", -2, 6),
        ("type: 'xavier'", -np.sqrt(3 / 1000), np.sqrt(3 / 1000)),
        ("type: 'xavier' variance_norm: FAN_OUT", -np.sqrt(3 / 5000), np.sqrt(3 / 5000)),
    ],
)
def test_uniform_fillers(filler, low, high):
    values = large(filler)
    span = high - low
    assert low - 1e-6 * span <= values.min() < low + 1e-3 * span and high - 1e-3 * span < values.max() <= high + 1e-6
    assert abs(values.mean() - (low + high) / 2) < 4 * span / np.sqrt(12 * values.size)
    assert values.std() == pytest.approx(span / np.sqrt(12), rel=0.01)


@pytest.mark.parametrize(
    "filler, mean, std",
    [
        ("type: 'gaussian' mean: 3 std: 0.5", 3, 0.5),
        ("type: 'msra'", 0, np.sqrt(2 / 1000)),
        ("type: 'msra' variance_norm: AVERAGE", 0, np.sqrt(2 / 3000)),
    ],
)
def test_gaussian_fillers(filler, mean, std):
    values = large(filler)
    assert abs(values.mean() - mean) < 4 * std / np.sqrt(values.size)
    assert values.std() == pytest.approx(std, rel=0.01)
    assert (abs(values - mean) > 2 * std).mean() == pytest.approx(0.0455, abs=0.003)


def test_a_sparse_gaussian_keeps_a_share_of_the_elements():
    values = large("type: 'gaussian' mean: 3 std: 0.5 sparse: 30")
    kept = values[values != 0]
    assert abs(kept.size / values.size - 0.3) < 4 * np.sqrt(0.3 * 0.7 / values.size)
    assert abs(kept.mean() - 3) < 4 * 0.5 / np.sqrt(kept.size) and kept.std() == pytest.approx(0.5, rel=0.02)
    assert not large("type: 'gaussian' sparse: 0").any()
    assert (large("type: 'gaussian' sparse: 100") != 0).all()


def test_a_positive_unitball():
    values = large("type: 'positive_unitball'").reshape(100, -1)
    assert (values > 0).all()
    np.testing.assert_allclose(values.sum(axis=1), 1, rtol=1e-5)
    assert values.std() == pytest.approx(2 / 1000 / np.sqrt(12), rel=0.01)  # of uniform values over a sum of some 500


def test_dummy_of_nothing():
    bench = dummy("shape { dim: 0 dim: 3 } " + TWO, 2)
    bench.layer.fill_once(0, np.empty((0, 3)))
    assert [t.shape for t in bench.forward([])] == [(0, 3)] * 2


@pytest.mark.parametrize(
    "text, message",
    [
        (SHAPE + "num: 1", "shape and num/channels/height/width are both set"),
        (SHAPE * 2, "2 shape for 3 tops"),
        (SHAPE + TWO, "2 data_filler for 3 tops"),
        ("num: 1 channels: 1 height: 1", "0 width for 3 tops"),
        ("shape { dim: -2 }", "negative dim"),
        (SHAPE + "data_filler { type: 'gaussian' std: 0 }", 'blob "t0": a gaussian filler needs std > 0'),
        (SHAPE + "data_filler { type: 'what' }", 'no filler type "what"'),
    ],
)
def test_dummy_refused(text, message):
    with pytest.raises(LayerParamError, match=f'layer "l".*{message}'):
        dummy(text, 3)
