"""BatchNorm against its formulas, its running sums step by step, and its gradients."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError
from pycaffe_lms.layers.base import TEST, TRAIN, Needs

from .cases import Case
from .harness import LayerBench, check_gradient

GLOBAL, BATCH = "batch_norm_param { use_global_stats: true }", "batch_norm_param { use_global_stats: false }"

CASES: list[Case] = [
    Case("BatchNorm", "", ((4, 3, 2, 5),)),
    Case("BatchNorm", "", ((4, 3, 2, 5),), in_place=True),
    Case("BatchNorm", "batch_norm_param { eps: 0.1 moving_average_fraction: 0.5 }", ((3, 2, 4),)),
    Case("BatchNorm", "", ((6, 5),)),
    Case("BatchNorm", "", ((9,),)),
    Case("BatchNorm", BATCH, ((4, 3, 2),), phase=TEST),
    Case("BatchNorm", GLOBAL, ((4, 3, 2),), phase=TRAIN),
    Case("BatchNorm", "", ((4, 3, 2, 2),), phase=TEST),
    Case("BatchNorm", "", ((4, 3, 2, 2),), phase=TEST, in_place=True),
    Case("BatchNorm", "", ((2, 40, 70, 70),)),  # more than one part per channel
    Case("BatchNorm", "batch_norm_param { stats_batch_size: 2 }", ((6, 3, 2, 2),)),
    Case("BatchNorm", "batch_norm_param { stats_batch_size: 3 }", ((6, 4, 3),), in_place=True),
    Case("BatchNorm", "batch_norm_param { stats_batch_size: 3 }", ((6, 3, 2, 2),), phase=TEST),
    Case("BatchNorm", "batch_norm_param { add_eps_before_sqrt: false eps: 0.125 }", ((4, 3, 2, 2),), phase=TEST),
    Case("BatchNorm", "batch_norm_param { use_global_stats: true add_eps_before_sqrt: false eps: 0.5 }", ((6, 5),)),
    Case("BatchNorm", "", ((0, 3, 2, 2),)),
    Case("BatchNorm", GLOBAL, ((0, 3, 2, 2),)),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 1000]


def start(bench, factor=1.0):
    """Write running sums as after some training, and return them in float64."""
    rng, c = np.random.default_rng(11), bench.layer.channels
    bench.params = [
        rng.normal(size=c).astype(bench.dtype),
        rng.uniform(0.5, 2, size=c).astype(bench.dtype),
        np.array([factor], bench.dtype),
    ]
    return [p.astype(np.float64) for p in bench.params]


def reference(x, layer, mean, var, factor):
    """Return (y, mean, var, factor) by the formulas, channel by channel, one group of items after the other."""
    parts = []
    for part in np.split(x, layer.groups):
        y, mean, var, factor = _one_group(part, layer, mean, var, factor)
        parts.append(y)
    return np.concatenate(parts), mean, var, factor


def _one_group(x, layer, mean, var, factor):
    shape = x.shape
    x = np.asarray(x, np.float64).reshape(shape[0], layer.channels, -1)
    y = np.zeros_like(x)
    for c in range(layer.channels):
        if layer.use_global:
            m, v = (mean[c] / factor[0], var[c] / factor[0]) if factor[0] else (0.0, 0.0)
        else:
            m, v, n = x[:, c].mean(), x[:, c].var(), x[:, c].size
            mean[c] = layer.fraction * mean[c] + m
            var[c] = layer.fraction * var[c] + v * (n / (n - 1) if n > 1 else 1)
        outside = "add_eps_before_sqrt: false" in str(layer.param)
        y[:, c] = (x[:, c] - m) / (np.sqrt(v) + layer.eps if outside else np.sqrt(v + layer.eps))
    if not layer.use_global:
        factor = layer.fraction * factor + 1
    return y.reshape(shape), mean, var, factor


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-5), (np.float64, 1e-11)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_forward_is_the_formula(case, dtype, tolerance):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(1))
    x = (3 * x + 5).astype(dtype)
    before = start(bench, factor=2.5)
    (y,) = bench.forward([x])
    expected, *running = reference(x, bench.layer, *before)
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    for got, want in zip(bench.params, running, strict=True):
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    bench = case.bench()
    start(bench)
    check_gradient(bench, case.make_bottoms(np.random.default_rng(2)), tol=1e-5)


def test_running_sums_of_the_first_two_passes():
    bench = LayerBench("BatchNorm", "", ((4, 2, 3),))
    bench.params = [np.zeros(2), np.zeros(2), np.zeros(1)]
    x = np.random.default_rng(3).normal(size=(4, 2, 3))
    bench.forward([x])
    mean, var = x.mean(axis=(0, 2)), x.var(axis=(0, 2)) * 12 / 11
    for got, want in zip(bench.params, (mean, var, [1]), strict=True):
        assert got == pytest.approx(want)
    bench.forward([x])
    for got, want in zip(bench.params, (mean, var, [1]), strict=True):
        assert got == pytest.approx(1.999 * np.asarray(want))


def test_an_untrained_net_divides_by_the_root_of_eps():
    bench = LayerBench("BatchNorm", GLOBAL, ((1, 2),))
    bench.params = [np.zeros(2), np.zeros(2), np.zeros(1)]
    assert bench.forward([[[1.0, -2.0]]])[0].ravel() == pytest.approx([316.2278, -632.4555])


def test_float32_keeps_its_digits_far_from_zero():
    bench = LayerBench("BatchNorm", "", ((16, 1, 50, 50),), dtype=np.float32)
    x = (1000 + np.random.default_rng(4).normal(size=(16, 1, 50, 50))).astype(np.float32)
    (y,) = bench.forward([x])
    exact = x.astype(np.float64)
    np.testing.assert_allclose(y, (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5), atol=1e-4)


def test_one_value_per_channel():
    bench = LayerBench("BatchNorm", "", ((1, 2),))
    bench.params = [np.zeros(2), np.zeros(2), np.zeros(1)]
    assert bench.forward([[[3.0, -1.0]]])[0].tolist() == [[0, 0]]
    assert [p.tolist() for p in bench.params] == [[3, -1], [0, 0], [1]]


def test_an_empty_batch_moves_nothing():
    bench = LayerBench("BatchNorm", "", ((0, 3, 2),))
    before = start(bench)
    (y,) = bench.forward([np.zeros((0, 3, 2))])
    assert y.shape == (0, 3, 2)
    assert all(np.array_equal(a, b) for a, b in zip(bench.params, before, strict=True))
    assert bench.backward([np.zeros((0, 3, 2))])[0][0].shape == (0, 3, 2)


def test_force_backward_gives_zero_parameter_gradients():
    bench = LayerBench("BatchNorm", "", ((4, 3),), param_propagate=(True, True, True))
    bench.forward([np.random.default_rng(5).normal(size=(4, 3))])
    _, diffs = bench.backward([np.ones((4, 3))])
    assert not any(d.any() for d in diffs)


def test_without_backward_only_small_scratch():
    bench = LayerBench("BatchNorm", "", ((4, 3, 5, 5),), needs_backward=False)
    bench.forward([np.zeros((4, 3, 5, 5))])
    assert sum(s.nbytes for s in bench.layer.scratches.values()) < 200


def test_backward_needs():
    layer = LayerBench("BatchNorm", "", ((4, 3),)).layer
    assert layer.backward_needs([True], [False] * 3) == Needs(tops=frozenset({0}))
    assert layer.backward_needs([False], [False] * 3) == Needs()
    assert layer.forward_updates() == {0, 1, 2} and layer.forward_needs().params == frozenset()
    layer = LayerBench("BatchNorm", "", ((4, 3),), phase=TEST).layer
    assert layer.backward_needs([True], [False] * 3) == Needs()
    assert layer.forward_updates() == frozenset() and layer.forward_needs().params == {0, 1, 2}


def test_parameters_are_not_learned(caplog):
    layer = LayerBench("BatchNorm", "param { lr_mult: 0 } param { lr_mult: 0 } param { lr_mult: 0 }", ((4, 3),)).layer
    assert [(p.shape, p.lr_mult, p.filler.value) for p in layer.params] == [((3,), 0, 0), ((3,), 0, 0), ((1,), 0, 0)]
    LayerBench("BatchNorm", "param { lr_mult: 0 }", ((4, 3),))
    assert not caplog.records
    for i, text in enumerate(("param {}", "param { lr_mult: 0 } param { lr_mult: 1 }")):
        layer = LayerBench("BatchNorm", text, ((4, 3),)).layer
        assert not any(spec.lr_mult for spec in layer.param.param)
        assert f"lr_mult 1 of param {i} is taken as 0" in caplog.records[i].getMessage()


def test_eps_outside_of_the_root_needs_global_statistics():
    with pytest.raises(LayerParamError, match='layer "l".*only global statistics(.|\n)*use_global_stats: true'):
        LayerBench("BatchNorm", "batch_norm_param { add_eps_before_sqrt: false }", ((4, 3),))


def test_shapes_refused():
    with pytest.raises(ShapeError, match='layer "l".*blob "b0": has no axes'):
        LayerBench("BatchNorm", "", ((),))
    bench = LayerBench("BatchNorm", "", ((4, 3),))
    bench.reshape([(2, 3, 7)])
    with pytest.raises(ShapeError, match="set up for 3 channels"):
        bench.reshape([(4, 5)])
    with pytest.raises(ShapeError, match="4 items, no multiple of stats_batch_size 3"):
        LayerBench("BatchNorm", "batch_norm_param { stats_batch_size: 3 }", ((4, 3),))
    with pytest.raises(LayerParamError, match="sync and stats_batch_size are both set"):
        LayerBench("BatchNorm", "batch_norm_param { stats_batch_size: 2 sync: true }", ((4, 3),))


def test_groups_follow_the_batch_and_are_the_layer_run_once_for_each():
    whole, parts = (
        LayerBench("BatchNorm", text, ((2, 3, 5),)) for text in ("batch_norm_param { stats_batch_size: 2 }", "")
    )
    whole.reshape([(6, 3, 5)])
    x = np.random.default_rng(4).normal(size=(6, 3, 5))
    (y,) = whole.forward([x])
    for k in range(3):
        (expected,) = parts.forward([x[2 * k : 2 * k + 2]])
        np.testing.assert_array_equal(y[2 * k : 2 * k + 2], expected)
    for got, want in zip(whole.params, parts.params, strict=True):
        np.testing.assert_array_equal(got, want)
