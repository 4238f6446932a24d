"""Deconvolution against plain loops, its gradients and checks, and that it is the transpose of Convolution."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs

from .cases import Case
from .harness import LayerBench, check_gradient


def _case(fields, *shapes):
    return Case("Deconvolution", f"convolution_param {{ {fields} }}", shapes, n_top=len(shapes))


CASES: list[Case] = [
    _case("num_output: 4 kernel_size: 3 stride: 2", (2, 3, 3, 2)),
    _case("num_output: 6 kernel_size: 3 pad: 1 group: 2", (2, 4, 4, 3)),
    _case("num_output: 3 kernel_size: 4 stride: 2 pad: 1 group: 3 bias_term: false", (2, 3, 3, 4)),
    _case("num_output: 2 kernel_size: 3 pad: 2 dilation: 2", (1, 3, 4, 3)),
    _case("num_output: 2 kernel_h: 3 kernel_w: 1 stride_h: 2 stride_w: 3 pad_h: 1", (1, 2, 4, 3)),
    _case("num_output: 4 kernel_size: 1", (3, 3, 2, 3)),
    _case("num_output: 4 kernel_size: 1 stride: 3", (2, 3, 2, 2)),  # pixels that nothing is added to
    _case("num_output: 3 kernel_size: 3 pad: 1", (2, 2, 4, 3), (2, 2, 4, 3)),
    _case("num_output: 3 kernel_size: 3 pad: 1 stride: 2", (2, 2, 5)),
    _case("num_output: 2 kernel_size: 3 kernel_size: 2 kernel_size: 1 pad: 1 pad: 0 pad: 0 stride: 2", (1, 2, 2, 2, 3)),
    _case("num_output: 2 kernel_size: 3 group: 2 pad: 1 dilation: 2 stride: 2", (2, 4, 5)),
    _case(
        "num_output: 4 group: 2 kernel_shape { dim: 2 dim: 3 dim: 1 } stride_shape { dim: 1 dim: 2 dim: 3 } "
        "pad_shape { dim: 1 dim: 0 dim: 0 } dilation: 2 dilation: 1 dilation: 1",
        (2, 4, 3, 2, 3),
    ),
    _case(
        "num_output: 4 group: 2 kernel_size: 2 kernel_size: 3 kernel_size: 1 kernel_size: 2 stride: 1 stride: 2 "
        "stride: 1 stride: 1 pad: 1 pad: 0 pad: 0 pad: 1 dilation: 1 dilation: 1 dilation: 1 dilation: 2",
        (2, 2, 3, 2, 2, 3),
    ),
    _case("num_output: 3", (4, 5)),
    _case("num_output: 2 kernel_size: 2 axis: 2", (2, 2, 3, 3, 2)),
    _case("num_output: 2 kernel_size: 2 axis: -2", (2, 3, 3)),
    _case("num_output: 2 kernel_size: 3", (0, 2, 4, 4)),
]


def reference(x, w, b, layer):
    """Compute the definition: every input adds its kernel to the outputs."""
    items = x.reshape(-1, *x.shape[layer.axis :])
    sizes = zip(items.shape[2:], layer.stride, layer.kernel, layer.dilation, layer.pad, strict=True)
    out = [s * (n - 1) + d * (k - 1) + 1 - 2 * p for n, s, k, d, p in sizes]
    y = np.zeros((len(items), layer.num_output, *out))
    outputs, channels = w.shape[1], w.shape[0] // layer.group
    for n, c, *place in np.ndindex(*items.shape):
        for o, *tap in np.ndindex(*w.shape[1:]):
            steps = zip(place, layer.stride, layer.pad, tap, layer.dilation, strict=True)
            at = [i * s - p + t * d for i, s, p, t, d in steps]
            if all(0 <= i < size for i, size in zip(at, out, strict=True)):
                y[(n, c // channels * outputs + o, *at)] += w[(c, o, *tap)] * items[(n, c, *place)]
    if b is not None:
        y += b.reshape(-1, *(1,) * len(out))
    return y.reshape(*x.shape[: layer.axis], *y.shape[1:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_definition(case, dtype):
    bench, bottoms = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    w, b = (*bench.params, None)[:2]
    for x, y in zip(bottoms, bench.forward(bottoms), strict=True):
        expected = reference(x, w, b, bench.layer)
        assert y.shape == expected.shape
        np.testing.assert_allclose(y, expected, atol=1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)))


def test_it_is_the_transpose_of_convolution():
    """<conv(x), y> = <x, deconv(y)> with one set of weights."""
    fields = "kernel_size: 3 stride: 2 pad: 1 group: 2 bias_term: false"
    forth = LayerBench("Convolution", f"convolution_param {{ num_output: 6 {fields} }}", ((2, 4, 7, 5),))
    back = LayerBench("Deconvolution", f"convolution_param {{ num_output: 4 {fields} }}", ((2, 6, 4, 3),))
    assert forth.layer.params[0].shape == back.layer.params[0].shape == (6, 2, 3, 3)
    back.params = [forth.params[0]]
    x, y = np.random.default_rng(5).normal(size=(2, 4, 7, 5)), np.random.default_rng(6).normal(size=(2, 6, 4, 3))
    assert (forth.forward([x])[0] * y).sum() == pytest.approx((x * back.forward([y])[0]).sum())


def test_recorded_shapes():
    layer = CASES[1].bench().layer
    assert [p.shape for p in layer.params] == [(4, 3, 3, 3), (6,)]
    bench = LayerBench("Deconvolution", "convolution_param { num_output: 4 kernel_size: 3 stride: 2 }", ((2, 3, 6, 4),))
    assert bench.top_shapes == [(2, 4, 13, 9)]


def test_bilinear_upsampling_keeps_a_constant():
    """The usual use: factor 2, kernel 4, stride 2, pad 1, one bilinear kernel per channel; borders fade."""
    text = "convolution_param { num_output: 1 kernel_size: 4 stride: 2 pad: 1 bias_term: false }"
    bench = LayerBench("Deconvolution", text, ((1, 1, 4, 4),))
    tent = np.array([0.25, 0.75, 0.75, 0.25])
    bench.params = [np.outer(tent, tent).reshape(1, 1, 4, 4)]
    y = bench.forward([np.ones((1, 1, 4, 4))])[0]
    assert y.shape == (1, 1, 8, 8)
    np.testing.assert_allclose(y[0, 0, 1:-1, 1:-1], 1)


def test_zero_batch_clears_gradients_or_leaves_them():
    bench = CASES[-1].bench()
    bench.forward([np.zeros((0, 2, 4, 4))])
    top = np.zeros((0, 2, 6, 6))
    bottom, params = bench.backward([top])
    assert bottom[0].shape == (0, 2, 4, 4) and not params[0].any() and not params[1].any()
    start = [np.ones(p.shape) for p in bench.params]
    assert bench.backward([top], accumulate=[True, True], param_diffs=start)[1][0].min() == 1


def test_gradients_accumulate_on_request_and_over_bottoms():
    bench, rng = CASES[7].bench(), np.random.default_rng(5)
    tops = [rng.normal(size=t.shape) for t in bench.forward(CASES[7].make_bottoms(rng))]
    both = bench.backward(tops)[1]
    first, second = bench.backward([tops[0], None]), bench.backward([None, tops[1]])
    start = [rng.normal(size=p.shape) for p in bench.params]
    added = bench.backward(tops, accumulate=[True, True], param_diffs=start)[1]
    for i in range(2):
        np.testing.assert_allclose(both[i], first[1][i] + second[1][i])
        np.testing.assert_allclose(added[i], start[i] + both[i])
    assert not first[0][1].any() and not second[0][0].any()


@pytest.mark.parametrize(
    "down, params", list(itertools.product([(True,), (False,)], itertools.product([True, False], repeat=2)))
)
def test_backward_reads_only_what_it_declares(down, params):
    text = "convolution_param { num_output: 3 kernel_size: 3 pad: 1 }"
    bench = LayerBench("Deconvolution", text, ((2, 2, 4, 4),), propagate_down=down, param_propagate=params)
    needs = Needs(bottoms=frozenset({0} if params[0] else ()), params=frozenset({0} if down[0] else ()))
    assert bench.layer.backward_needs(down, params) == needs
    if any(down + params):
        check_gradient(bench, [np.random.default_rng(6).normal(size=(2, 2, 4, 4))])


@pytest.mark.parametrize(
    "fields, words",
    [
        ("num_output: 2", "has no kernel size"),
        ("kernel_size: 3", "num_output is 0"),
        ("num_output: 2 kernel_size: 3 stride: 0", "stride is 0"),
        ("num_output: 3 kernel_size: 3 group: 2", "cannot be split"),
        ("num_output: 2 kernel_size: 3 axis: 4", "axis 4 is out of range"),
    ],
)
def test_impossible_parameters_name_the_layer(fields, words):
    with pytest.raises(LayerParamError) as caught:
        LayerBench("Deconvolution", f'name: "up" convolution_param {{ {fields} }}', ((1, 6, 5, 5),))
    assert words in str(caught.value) and 'layer "up" (Deconvolution)' in str(caught.value) and caught.value.fix


def test_impossible_shapes_are_errors():
    text = "convolution_param { num_output: 2 kernel_size: 3 }"
    with pytest.raises(ShapeError, match="turn into"):
        LayerBench("Deconvolution", "convolution_param { num_output: 2 kernel_size: 1 pad: 3 }", ((1, 2, 5, 5),))
    with pytest.raises(ShapeError, match="first bottom"):
        LayerBench("Deconvolution", text, ((1, 2, 5, 5), (1, 2, 5, 6)), n_top=2)
    with pytest.raises(BlobCountError):
        LayerBench("Deconvolution", text, ((1, 2, 5, 5), (1, 2, 5, 5)), n_top=1)
    bench = LayerBench("Deconvolution", text, ((1, 2, 5, 5),))
    bench.reshape([(3, 2, 7, 4)])
    assert bench.top_shapes == [(3, 2, 9, 6)]
    with pytest.raises(ShapeError, match="set up for (4 axes|2 channels)"):
        bench.reshape([(1, 3, 5, 5)])
