"""Input and DummyData: shapes, what is filled when, and exact resuming."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.layers.base import Needs, Runs

from .cases import Case
from .harness import LayerBench

SHAPE = "shape { dim: 2 dim: 3 }"
HOST_CASES: list[Case] = [
    Case("Input", f"input_param {{ {SHAPE} }}", ()),
    Case("DummyData", f"dummy_data_param {{ {SHAPE} }}", ()),
    Case("DummyData", "dummy_data_param { num: 2 channels: 3 height: 1 height: 4 width: 5 }", (), n_top=2),
    Case("DummyData", f'dummy_data_param {{ {SHAPE} data_filler {{ type: "gaussian" }} }}', (), n_top=2),
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
    assert dummy(SHAPE).layer.declares.runs_on is Runs.HOST


@pytest.mark.parametrize("case", HOST_CASES, ids=str)
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


def test_draws_depend_on_seed_number_and_top_alone():
    bench = dummy(SHAPE + "data_filler { type: 'gaussian' }", 2)
    bench.layer.seed = 5
    draws = [bench.forward([]) for _ in range(3)]
    assert len({float(t[0, 0]) for tops in draws for t in tops}) == 6
    resumed = dummy(SHAPE + "data_filler { type: 'gaussian' }", 2)
    resumed.layer.set_state({"seed": 5, "draws": 2})
    for got, want in zip(resumed.forward([]), draws[2], strict=True):
        assert np.array_equal(got, want)
    assert resumed.layer.state() == bench.layer.state() == {"seed": 5, "draws": 3}


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
