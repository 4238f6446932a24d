"""InnerProduct against the definition, its gradients, its checks."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient


def _case(fields, shape):
    return Case("InnerProduct", f"inner_product_param {{ {fields} }}", (shape,))


CASES: list[Case] = [
    _case("num_output: 4", (3, 2, 2, 3)),
    _case("num_output: 4 transpose: true", (3, 2, 2, 3)),
    _case("num_output: 3 bias_term: false", (5, 4)),
    _case("num_output: 3 axis: 2", (2, 3, 4)),
    _case("num_output: 3 axis: -1 transpose: true", (2, 3, 4)),
    _case("num_output: 3 axis: 0", (2, 3)),
    _case("num_output: 40", (70, 3)),
    _case("num_output: 3", (0, 4)),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_the_definition(case, dtype):
    bench, (x,) = case.bench(dtype), case.make_bottoms(np.random.default_rng(3))
    (y,) = bench.forward([x])
    w = np.array(bench.params[0], np.float64)
    w = w.T if bench.layer.transpose else w
    axis = bench.layer.axis
    expected = np.einsum("mk,nk->mn", x.reshape(int(np.prod(x.shape[:axis])), bench.layer.k), w)
    if len(bench.params) > 1:
        expected = expected + bench.params[1]
    np.testing.assert_allclose(y, expected.reshape(*x.shape[:axis], -1 if x.size else len(w)), atol=1e-5)


@pytest.mark.parametrize("case", [c for c in CASES if 0 not in c.shapes[0]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(4)))


def test_weight_shapes_follow_transpose():
    assert [p.shape for p in CASES[0].bench().params] == [(4, 12), (4,)]
    assert [p.shape for p in CASES[1].bench().params] == [(12, 4), (4,)]


@pytest.mark.parametrize("transpose", ["true", "false"])
def test_gradients_accumulate_on_request(transpose):
    bench = LayerBench("InnerProduct", f"inner_product_param {{ num_output: 3 transpose: {transpose} }}", ((4, 5),))
    rng = np.random.default_rng(5)
    bench.forward([rng.normal(size=(4, 5))])
    dy, start = rng.normal(size=(4, 3)), [rng.normal(size=p.shape) for p in bench.params]
    fresh = bench.backward([dy])[1]
    added = bench.backward([dy], accumulate=[True, True], param_diffs=start)[1]
    for i in range(2):
        np.testing.assert_allclose(added[i], start[i] + fresh[i])


def _loops(dy, w):
    """The bottom's gradient, dy (m, n) times w (n, k), one product after another."""
    dx = np.zeros((len(dy), w.shape[1]))
    for i, j in np.ndindex(dx.shape):
        for o in range(len(w)):
            dx[i, j] += dy[i, o] * w[o, j]
    return dx


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 2e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_bottom_s_gradient_is_written_or_added(case, dtype, tolerance):
    bench, rng = case.bench(dtype), np.random.default_rng(8)
    assert bench.layer.accumulates_into == {0}
    bench.forward(case.make_bottoms(rng))
    dy, start = (rng.normal(size=shape).astype(dtype) for shape in (bench.top_shapes[0], case.shapes[0]))
    w = bench.params[0].astype(np.float64)
    expected = _loops(dy.reshape(-1, bench.layer.n).astype(np.float64), w.T if bench.layer.transpose else w)
    expected = expected.reshape(start.shape)
    written, added = (bench.backward([dy], add_to=add_to)[0][0] for add_to in ({}, {0: start}))
    room = tolerance * max(1, np.abs(expected).max(initial=0))
    np.testing.assert_allclose(written, expected, rtol=0, atol=8 * room)
    np.testing.assert_allclose(added, start.astype(np.float64) + expected, rtol=0, atol=8 * room)


def test_zero_batch_clears_gradients():
    bench = CASES[-1].bench()
    bench.forward([np.zeros((0, 4))])
    assert [not g.any() for g in bench.backward([np.zeros((0, 3))])[1]] == [True, True]


@pytest.mark.parametrize("params", [(True, False), (False, True), (False, False)])
@pytest.mark.parametrize("down", [(True,), (False,)])
def test_backward_reads_only_what_it_declares(down, params):
    text = "inner_product_param { num_output: 3 }"
    bench = LayerBench("InnerProduct", text, ((4, 5),), propagate_down=down, param_propagate=params)
    needs = bench.layer.backward_needs(down, params)
    assert needs.bottoms == ({0} if params[0] else set()) and needs.params == ({0} if down[0] else set())
    if any(down + params):
        check_gradient(bench, [np.random.default_rng(6).normal(size=(4, 5))])


def test_a_long_float32_bias_sum_stays_exact():
    bench = LayerBench("InnerProduct", "inner_product_param { num_output: 2 }", ((100_000, 1),), dtype=np.float32)
    bench.forward([np.zeros((100_000, 1))])
    dy = np.full((100_000, 2), 0.1, np.float32)
    np.testing.assert_allclose(bench.backward([dy])[1][1], dy.astype(np.float64).sum(axis=0), rtol=1e-6)


def test_errors_name_the_layer_and_a_fix():
    with pytest.raises(LayerParamError, match=r'layer "fc" \(InnerProduct\).*num_output is 0'):
        LayerBench("InnerProduct", 'name: "fc"', ((2, 3),))
    with pytest.raises(LayerParamError, match="axis 2 is out of range"):
        LayerBench("InnerProduct", "inner_product_param { num_output: 1 axis: 2 }", ((2, 3),))
    bench = LayerBench("InnerProduct", "inner_product_param { num_output: 1 }", ((2, 3),))
    bench.reshape([(7, 3)])
    assert bench.top_shapes == [(7, 1)]
    with pytest.raises(ShapeError, match="set up for 3"):
        bench.reshape([(2, 4)])
