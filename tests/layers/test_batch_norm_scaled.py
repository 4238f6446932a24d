"""BatchNorm with a scale and a bias (NVIDIA's dialect) against BatchNorm followed by Scale."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, WeightsError
from pycaffe_lms.formats.prototxt.parser import parse_net, read_net
from pycaffe_lms.layers.base import TEST, TRAIN, Needs
from pycaffe_lms.net.build.source import load_source
from pycaffe_lms.net.build.wiring import wire
from pycaffe_lms.net.weights import bare_proto
from pycaffe_lms.pycaffe.classes import PycaffeNet
from tests.shared_data import SHARED, needs_shared

from .cases import Case
from .harness import LayerBench, check_gradient


def _text(more=""):
    return f"batch_norm_param {{ scale_bias: true {more} }}"


GLOBAL = _text("use_global_stats: true")
CASES: list[Case] = [
    Case("BatchNorm", _text(), ((4, 3, 2, 5),)),
    Case("BatchNorm", _text("eps: 0.1 moving_average_fraction: 0.5"), ((3, 2, 4),)),
    Case("BatchNorm", _text(), ((6, 5),)),
    Case("BatchNorm", _text(), ((9,),)),
    Case("BatchNorm", _text(), ((4, 3, 2, 2),), phase=TEST),
    Case("BatchNorm", GLOBAL, ((4, 3, 2),), phase=TRAIN),
    Case("BatchNorm", _text(), ((2, 40, 70, 70),)),  # more than one part per channel
    Case("BatchNorm", _text("stats_batch_size: 2"), ((4, 3, 2, 2),)),
    Case("BatchNorm", _text(), ((0, 3, 2, 2),)),
    Case("BatchNorm", GLOBAL, ((0, 3, 2, 2),)),
]
SMALL = [c for c in CASES if 0 < np.prod(c.shapes[0]) < 1000]


def _start(case, dtype=np.float64, **changes):
    """Return a bench as after some training, with a scale of 0, where y does not determine the normalised value."""
    bench, rng = case.bench(dtype, **changes), np.random.default_rng(11)
    c = bench.layer.channels
    values = rng.normal(size=c), rng.uniform(0.5, 2, size=c), [2.5], rng.normal(size=c), rng.normal(size=c)
    bench.params = [np.array(v, dtype) for v in values]
    bench.params[3][0] = 0
    return bench


def _two_layers(case, params, x, dy, dtype):
    """Return (y, dx, dscale, dbias, statistics) of BatchNorm, then Scale."""
    axis = "axis: 0 num_axes: 0" if x.ndim == 1 else ""
    norm = LayerBench("BatchNorm", case.text.replace("scale_bias: true", ""), (x.shape,), dtype=dtype, phase=case.phase)
    scale = LayerBench("Scale", f"scale_param {{ bias_term: true {axis} }}", (x.shape,), dtype=dtype)
    norm.params = params[:3]
    scale.params = [p.reshape(s.shape) for p, s in zip(params[3:], scale.layer.params, strict=True)]
    (middle,) = norm.forward([x])
    (y,) = scale.forward([middle])
    (dmiddle,), (dscale, dbias) = scale.backward([dy])
    (dx,), _ = norm.backward([dmiddle])
    return y, dx, dscale.reshape(-1), dbias.reshape(-1), norm.params


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-5), (np.float64, 1e-11)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_two_layers_in_one(case, dtype, tolerance):
    bench, rng = _start(case, dtype), np.random.default_rng(1)
    params = [p.copy() for p in bench.params]
    x = (3 * case.make_bottoms(rng)[0] + 5).astype(dtype)
    dy = rng.normal(size=x.shape).astype(dtype)
    y, dx, dscale, dbias, statistics = _two_layers(case, params, x, dy, dtype)
    (got,) = bench.forward([x])
    np.testing.assert_allclose(got, y, rtol=tolerance, atol=tolerance)
    for a, b in zip(bench.params[:3], statistics, strict=True):
        assert np.array_equal(a, b)
    (got_dx,), diffs = bench.backward([dy])
    np.testing.assert_allclose(got_dx, dx, rtol=tolerance, atol=tolerance)
    size = max(1.0, np.sqrt(x.size))
    for a, b in zip(diffs[3:], (dscale, dbias), strict=True):
        np.testing.assert_allclose(a, b, rtol=10 * tolerance, atol=size * tolerance)
    assert diffs[:3] == [None] * 3
    start = [np.full(p.shape, 2, dtype) for p in params]
    bench.params = params
    bench.forward([x])
    _, added = bench.backward([dy], accumulate=[True] * 5, param_diffs=start)
    for a, b in zip(added[3:], diffs[3:], strict=True):
        np.testing.assert_allclose(a, b + 2, rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("case", SMALL, ids=str)
def test_gradient(case):
    check_gradient(_start(case), case.make_bottoms(np.random.default_rng(2)), tol=1e-5)


def test_far_from_zero_the_gradient_of_the_scale_keeps_its_digits():
    x = (1000 + np.random.default_rng(4).normal(size=(16, 1, 50, 50))).astype(np.float32)
    bench = LayerBench("BatchNorm", _text(), (x.shape,), dtype=np.float32)
    (y,) = bench.forward([x])
    _, diffs = bench.backward([y])
    wide, exact = y.astype(np.float64), x.astype(np.float64)
    wanted = (wide * (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5)).sum()
    assert diffs[3][0] == pytest.approx(wanted, rel=1e-3) and diffs[4][0] == pytest.approx(wide.sum(), abs=0.5)


def test_needs():
    layer = LayerBench("BatchNorm", _text(), ((4, 3),)).layer
    bottom, scale = frozenset({0}), frozenset({3})
    learns, frozen = [False] * 3 + [True] * 2, [False] * 5
    assert layer.backward_needs([True], learns) == Needs(bottoms=bottom, params=scale)
    assert layer.backward_needs([True], frozen) == Needs(bottoms=bottom, params=scale)
    assert layer.backward_needs([False], learns) == Needs(bottoms=bottom)
    assert layer.backward_needs([False], [False] * 4 + [True]) == Needs()
    assert layer.forward_needs() == Needs(bottoms=bottom, params=frozenset({3, 4}))
    assert layer.forward_updates() == {0, 1, 2}
    layer = LayerBench("BatchNorm", GLOBAL, ((4, 3),)).layer
    assert layer.backward_needs([True], frozen) == Needs(params=scale)
    assert layer.forward_needs().params == {0, 1, 2, 3, 4} and layer.forward_updates() == frozenset()


@pytest.mark.parametrize("wanted", [3, 4])
@pytest.mark.parametrize("text", [_text(), GLOBAL], ids=["batch", "global"])
def test_one_parameter_alone(text, wanted):
    x, dy = np.random.default_rng(5).normal(size=(2, 4, 3, 2))
    case = Case("BatchNorm", text, (x.shape,))
    everything, alone = _start(case), _start(case)
    alone.propagate_down, alone.param_propagate = (False,), tuple(i == wanted for i in range(5))
    results = []
    for bench in (everything, alone):
        bench.forward([x])
        results.append(bench.backward([dy])[1])
    assert [d is None for d in results[1]] == [i != wanted for i in range(5)]
    assert np.array_equal(results[0][wanted], results[1][wanted])


def test_parameters():
    layer = LayerBench("BatchNorm", _text(), ((4, 3),)).layer
    assert [(p.shape, p.lr_mult, p.filler.value) for p in layer.params] == [
        ((3,), 0, 0),
        ((3,), 0, 0),
        ((1,), 0, 0),
        ((3,), 1, 1),
        ((3,), 1, 0),
    ]
    text = "batch_norm_param { scale_filler { value: 0.5 } bias_filler { value: 2 } }"
    assert [p.filler.value for p in LayerBench("BatchNorm", text, ((4, 3),)).layer.params[3:]] == [0.5, 2]
    only_one = LayerBench("BatchNorm", "batch_norm_param { bias_filler { value: 2 } }", ((4, 3),)).layer
    assert [p.filler.value for p in only_one.params[3:]] == [1, 2]
    frozen = "param { lr_mult: 0 } " * 3
    layer = LayerBench("BatchNorm", frozen + "param { lr_mult: 2 } param {} " + _text(), ((4, 3),)).layer
    assert [spec.lr_mult for spec in layer.param.param] == [0, 0, 0, 2, 1]
    with pytest.raises(LayerParamError, match='layer "l".*scale_bias: false and bias_filler'):
        LayerBench("BatchNorm", "batch_norm_param { scale_bias: false bias_filler { } }", ((4, 3),))


def _net(fields):
    text = f"""
    layer {{ name: "in" type: "Input" top: "x" input_param {{ shape {{ dim: 2 dim: 3 dim: 4 dim: 4 }} }} }}
    layer {{ name: "bn" type: "BatchNorm" bottom: "x" top: "y" batch_norm_param {{ {fields} }} }}
    """
    parsed = parse_net(text, "net.prototxt")
    return PycaffeNet(parsed.message, TEST, lines=parsed.lines, file="net.prototxt")


def test_weights_go_to_nets_of_as_many_parameters(tmp_path):
    rng = np.random.default_rng(6)
    plain, scaled, other = _net(""), _net("scale_bias: true"), _net("scale_bias: true")
    for blob in scaled.params["bn"]:
        blob.data[...] = rng.uniform(1, 2, size=blob.data.shape)
    plain.save(str(tmp_path / "plain.caffemodel"))
    scaled.save(str(tmp_path / "scaled.caffemodel"))
    other.copy_from(str(tmp_path / "scaled.caffemodel"))
    for a, b in zip(scaled.params["bn"], other.params["bn"], strict=True):
        assert np.array_equal(a.data, b.data)
    with pytest.raises(WeightsError, match='(?s)"bn".*holds 3 parameter blobs.*the net has 5'):
        other.copy_from(str(tmp_path / "plain.caffemodel"))
    with pytest.raises(WeightsError, match='(?s)"bn".*holds 5 parameter blobs.*the net has 3'):
        plain.copy_from(str(tmp_path / "scaled.caffemodel"))


def test_a_written_net_keeps_the_rates():
    net = _net("scale_bias: true")
    assert [p.lr_mult for p in bare_proto(net).layer[1].param] == [0, 0, 0, 1, 1]


@needs_shared
@pytest.mark.shared
def test_the_published_net_learns_a_scale_and_a_bias_of_every_normalisation():
    path = SHARED / "material" / "resnet50_nvidia" / "train_val.prototxt"
    parsed = read_net(path)
    for layer in parsed.message.layer:
        if layer.type == "Data":  # the pictures themselves are not here
            layer.type = "Input"
            layer.ClearField("data_param")
            for dims in ([2, 3, 224, 224], [2]):
                layer.input_param.shape.add(dim=dims)
    source = load_source(parsed.message, phase=TRAIN, lines=parsed.lines, file=str(path))
    graph = wire(source.message, source.lines, file=str(path), dtype="float32")
    norms = [node for node in graph.nodes if node.layer.type == "BatchNorm"]
    assert len(norms) == 53
    for node in norms:
        rates = [graph.params[p].lr_mult for p in node.params]
        assert rates == [0, 0, 0, 1, 1]
