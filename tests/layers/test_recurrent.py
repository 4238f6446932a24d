"""RNN and LSTM against loops over single numbers; gradients; states from one forward to the next."""

from __future__ import annotations

import logging
from math import exp, tanh

import numpy as np
import pytest

from pycaffe_lms.errors import BlobCountError, LayerParamError, ShapeError
from pycaffe_lms.ops.cpu import recurrent

from .cases import Case
from .harness import LayerBench, check_gradient

D, INPUTS, STATIC = 3, 4, 2
CONT = np.array([[1, 0, 1], [1, 1, 0], [0, 1, 1], [1, 1, 1]], float)
STATES = {"RNN": 1, "LSTM": 2}


def _text(kind, expose=False, dim=D):
    return f"recurrent_param {{ num_output: {dim} expose_hidden: {str(expose).lower()} }}"


def _shapes(kind, steps=4, items=3, static=False, expose=False, inputs=(INPUTS,)):
    shapes = [(steps, items, *inputs), (steps, items)] + [(items, STATIC)] * static
    return (*shapes, *[(1, items, D)] * (STATES[kind] * expose))


def _bench(kind, steps=4, items=3, static=False, expose=False, **more):
    n_top = 1 + STATES[kind] * expose
    return LayerBench(kind, _text(kind, expose), _shapes(kind, steps, items, static, expose), n_top=n_top, **more)


def _bottoms(bench, seed=0, cont=CONT):
    rng = np.random.default_rng(seed)
    bottoms = [rng.normal(size=s) for s in bench.bottom_shapes]
    steps, items = bench.bottom_shapes[1]
    bottoms[1] = np.resize(cont, (4, 3))[:steps, :items] if items <= 3 else rng.integers(2, size=(steps, items)) * 1.0
    return bottoms


def _small(rng, shapes):
    """Return inputs that do not saturate wide layers."""
    return [rng.normal(size=shapes[0]) * 0.1, rng.integers(2, size=shapes[1]) * 1.0]


def _cases():
    for kind in STATES:
        for steps, items, static, expose in (
            (4, 3, False, False),
            (1, 5, True, False),
            (3, 2, True, True),
            (5, 4, False, True),
            (2, 0, True, False),
        ):
            shapes, n_top = _shapes(kind, steps, items, static, expose), 1 + STATES[kind] * expose
            yield Case(kind, _text(kind, expose), shapes, n_top=n_top, integer_bottoms=((1, 2),), seed=steps)
        yield Case(kind, _text(kind, dim=5), ((3, 150, 2, 5), (3, 150)), maker=_small)
        yield Case(kind, _text(kind), _shapes(kind), phase=1, integer_bottoms=((1, 2),))


CASES = list(_cases())


# -- the formulas, one number after another ----------------------------------------------------------------------------
def _sigmoid(x):
    return 1 / (1 + exp(-x))


def _unit(gates, c_prev, cont, d, dim):
    i, f, o, g = (gates[j * dim + d] for j in range(4))
    c = cont * _sigmoid(f) * c_prev + _sigmoid(i) * tanh(g)
    return c, _sigmoid(o) * tanh(c)


def _sums(weight, values):
    return [sum(w * v for w, v in zip(row, values, strict=True)) for row in weight]


def _expected(kind, bottoms, params, static, states):
    """Return (outputs, last states) of a layer whose first states are `states` (N, D) each."""
    x, cont, params = bottoms[0], bottoms[1], list(params)
    w_x, b = params[:2]
    w_s = params[2] if static else None
    w_h = params[2 + static]
    steps, items = cont.shape
    states, out = [s.copy() for s in states], np.zeros((steps, items, D))
    for n in range(items):
        for t in range(steps):
            k = cont[t, n]
            sums = [
                p + q + r for p, q, r in zip(_sums(w_x, x[t, n].ravel()), _sums(w_h, k * states[0][n]), b, strict=True)
            ]
            if static:
                sums = [p + q for p, q in zip(sums, _sums(w_s, bottoms[2][n].ravel()), strict=True)]
            if kind == "LSTM":
                for d in range(D):
                    states[1][n, d], states[0][n, d] = _unit(sums, states[1][n, d], k, d, D)
                out[t, n] = states[0][n]
            else:
                states[0][n] = [tanh(s) for s in sums]
                out[t, n] = [tanh(s + b) for s, b in zip(_sums(params[-2], states[0][n]), params[-1], strict=True)]
    return out, states


@pytest.mark.parametrize("needs_backward", [True, False], ids=["learns", "forward only"])
@pytest.mark.parametrize("expose", [False, True], ids=["carried", "exposed"])
@pytest.mark.parametrize("static", [False, True], ids=["", "static"])
@pytest.mark.parametrize(("steps", "items"), [(4, 3), (1, 3), (3, 1), (1, 1)])
@pytest.mark.parametrize("kind", STATES)
def test_forward(kind, steps, items, static, expose, needs_backward):
    """The second of two forwards begins with the last states of the first, or with given ones."""
    bench = _bench(kind, steps, items, static, expose, needs_backward=needs_backward, phase=int(not needs_backward))
    states = [np.zeros((items, D))] * STATES[kind]
    for seed in range(2):
        bottoms = _bottoms(bench, seed, cont=CONT if seed == 0 else 1 - CONT / 2)
        if expose:
            states = [b.reshape(items, D) for b in bottoms[2 + static :]]
        tops = bench.forward(bottoms)
        out, states = _expected(kind, bottoms, bench.params, static, states)
        np.testing.assert_allclose(tops[0], out, rtol=1e-12)
        for top, state in zip(tops[1:], states, strict=expose):
            np.testing.assert_allclose(top[0], state, rtol=1e-12)


@pytest.mark.parametrize("kind", STATES)
def test_steps_one_by_one_are_the_steps_at_once(kind):
    """And where cont is 0 the states before have no effect."""
    whole, single = _bench(kind), _bench(kind, steps=1)
    bottoms = _bottoms(whole)
    expected = whole.forward(bottoms)[0]
    found = [single.forward([bottoms[0][t : t + 1], CONT[t : t + 1]])[0][0] for t in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    again = single.forward([bottoms[0][:1], np.zeros((1, 3))])[0][0]
    np.testing.assert_allclose(again, expected[0], rtol=1e-12)


# -- gradients ---------------------------------------------------------------------------------------------------------
def _start_again(bench):
    """Set the states before the first forward: not zero, so that their part in gradients is seen."""
    rng = np.random.default_rng(5)
    for name in bench.layer.states:
        if name in bench.scratch:
            bench.scratch[name][...] = rng.normal(size=bench.scratch[name].shape)


def _ignoring_last_states(bench):
    """Gradients of exposed last states are ignored, so the checker must not see these tops."""
    forward = bench.forward
    bench.forward = lambda bottoms: forward(bottoms)[:1]
    backward = bench.backward
    bench.backward = lambda diffs: backward([diffs[0], *[np.ones(s) for s in bench.top_shapes[1:]]])


@pytest.mark.parametrize("static", [False, True], ids=["", "static"])
@pytest.mark.parametrize(("steps", "items"), [(4, 3), (1, 2)])
@pytest.mark.parametrize("kind", STATES)
def test_gradients(kind, steps, items, static):
    for cont in (CONT, 0 * CONT, 1 - CONT / 2):
        bench = _bench(kind, steps, items, static)
        check_gradient(bench, _bottoms(bench, cont=cont), refill=_start_again)


@pytest.mark.parametrize("static", [False, True], ids=["", "static"])
@pytest.mark.parametrize("kind", STATES)
def test_gradients_with_exposed_states(kind, static):
    """None flows into the first states, nor out of the last ones."""
    bench = _bench(kind, static=static, expose=True)
    _ignoring_last_states(bench)
    bottoms = _bottoms(bench)
    check_gradient(bench, bottoms, only_bottoms=[0, 2] if static else [0])
    bench.forward(bottoms)
    down, _ = bench.backward([np.ones(bench.top_shapes[0])])
    assert down[1] is None and all((d == 0).all() for d in down[2 + static :])


@pytest.mark.parametrize("kind", STATES)
def test_gradients_of_parameters_of_exposed_layers(kind):
    bench = _bench(kind, expose=True, propagate_down=(False,) * (2 + STATES[kind]))
    _ignoring_last_states(bench)
    check_gradient(bench, _bottoms(bench))


@pytest.mark.parametrize("kind", STATES)
def test_gradients_of_exposed_states_alone_are_none(kind):
    bench = _bench(kind, static=True, expose=True)
    bench.forward(_bottoms(bench))
    old = [np.full(p.shape, 2.0) for p in bench.params]
    top_diffs = [None, *[np.ones(s) for s in bench.top_shapes[1:]]]
    add = [i % 2 == 0 for i in range(len(old))]
    down, diffs = bench.backward(top_diffs, accumulate=add, param_diffs=old)
    assert all((d == 0).all() for d in down if d is not None)
    assert all((d == 2 * a).all() for d, a in zip(diffs, add, strict=True))


@pytest.mark.parametrize("kind", STATES)
def test_each_gradient_alone_is_that_of_all(kind):
    """With only the data that `backward_needs` names for it."""
    full = _bench(kind, static=True)
    bottoms = _bottoms(full)
    full.forward(bottoms)
    top_diff = [np.random.default_rng(3).normal(size=full.top_shapes[0])]
    down, diffs = full.backward(top_diff)
    n = len(diffs)
    for one in [*range(n), -1, -2]:
        learns = tuple(i == one for i in range(n))
        bench = _bench(kind, static=True, propagate_down=(one == -1, False, one == -2), param_propagate=learns)
        bench.forward(bottoms)
        alone_down, alone = bench.backward(top_diff)
        pairs = [*zip(alone_down, down, strict=True), *zip(alone, diffs, strict=True)]
        assert sum(a is not None for a, _ in pairs) == 1
        assert all((a == b).all() for a, b in pairs if a is not None)


@pytest.mark.parametrize("kind", STATES)
def test_parameter_gradients_add_up(kind):
    bench = _bench(kind, static=True)
    bench.forward(_bottoms(bench))
    top_diff = [np.ones(bench.top_shapes[0])]
    _, once = bench.backward(top_diff)
    _, twice = bench.backward(top_diff, accumulate=[True] * len(once), param_diffs=once)
    for a, b in zip(once, twice, strict=True):
        np.testing.assert_allclose(b, 2 * a, rtol=1e-12)


@pytest.mark.parametrize("case", [c for c in CASES if c.shapes[0][1] > 3], ids=str)
def test_work_in_pieces_is_the_same_work(case, monkeypatch):
    """The CPU takes a few rows at a time; all cases here are small enough for one piece."""
    results = []
    for piece in (recurrent._PIECE, 16):
        monkeypatch.setattr(recurrent, "_PIECE", piece)
        bench = case.bench()
        tops = bench.forward(case.make_bottoms(np.random.default_rng(1)))
        down, diffs = bench.backward([np.cos(np.arange(t.size)).reshape(t.shape) for t in tops])
        results.append([a.tobytes() for a in (*tops, *down, *diffs) if a is not None])
    assert results[0] == results[1]


@pytest.mark.parametrize("expose", [False, True])
@pytest.mark.parametrize("kind", STATES)
def test_no_items(kind, expose):
    bench = _bench(kind, items=0, static=True, expose=expose)
    assert [t.shape for t in bench.forward(_bottoms(bench))] == list(bench.top_shapes)
    down, diffs = bench.backward([np.zeros(s) for s in bench.top_shapes])
    assert down[0].shape == (4, 0, INPUTS) and all((d == 0).all() for d in diffs)


# -- what is asked for, and refused ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "static", "shapes"),
    [
        ("RNN", False, [(3, 4), (3,), (3, 3), (3, 3), (3,)]),
        ("RNN", True, [(3, 4), (3,), (3, 2), (3, 3), (3, 3), (3,)]),
        ("LSTM", False, [(12, 4), (12,), (12, 3)]),
        ("LSTM", True, [(12, 4), (12,), (12, 2), (12, 3)]),
    ],
)
def test_parameters(kind, static, shapes):
    text = 'recurrent_param { num_output: 3 weight_filler { type: "xavier" } bias_filler { value: 2 } }'
    params = LayerBench(kind, text, _shapes(kind, static=static)).layer.params
    assert [p.shape for p in params] == shapes
    assert all((p.filler.type == "xavier") == (len(p.shape) == 2) and p.lr_mult == 1 for p in params)


@pytest.mark.parametrize("kind", STATES)
def test_steps_and_items_may_change(kind):
    """The parameters depend on neither."""
    bench = _bench(kind)
    bench.reshape(_shapes(kind, steps=2, items=2))
    bottoms = _bottoms(bench)
    out, _ = _expected(kind, bottoms, bench.params, False, [np.zeros((2, D))] * STATES[kind])
    np.testing.assert_allclose(bench.forward(bottoms)[0], out, rtol=1e-12)


@pytest.mark.parametrize(
    ("bottom", "shape", "text"),
    [
        (0, (4, 3), r"\(4, 3\), not \(T, N, ...\)"),
        (0, (0, 3, 4), "no time step"),
        (1, (3, 4), r"asks for \(4, 3\)"),
        (1, (4, 3, 1), r"asks for \(4, 3\)"),
        (2, (3,), r"\(3,\), not \(N, ...\)"),
        (2, (2, 2), "has 2 items, but bottom 0 has 3"),
        (3, (3, 3), r"asks for \(1, 3, 3\)"),
    ],
)
def test_wrong_shapes(bottom, shape, text):
    shapes = list(_shapes("LSTM", static=True, expose=True))
    shapes[bottom] = shape
    with pytest.raises(ShapeError, match=text) as caught:
        LayerBench("LSTM", _text("LSTM", True), tuple(shapes), n_top=3)
    assert caught.value.where.layer == "l" and caught.value.where.blob == f"b{bottom}"


@pytest.mark.parametrize("bottom", [0, 2])
def test_another_number_of_values_after_set_up(bottom):
    shapes = list(_shapes("RNN", static=True))
    bench = LayerBench("RNN", _text("RNN"), tuple(shapes))
    for shape, text in (((*shapes[bottom], 5), "set up for"), ((4,), "with at least one value per item")):
        shapes[bottom] = shape
        with pytest.raises(ShapeError, match=text):
            bench.reshape(shapes)


def test_no_num_output():
    with pytest.raises(LayerParamError, match="num_output is 0"):
        LayerBench("LSTM", "", _shapes("LSTM"))


@pytest.mark.parametrize(
    ("kind", "expose", "n", "n_top"),
    [
        ("RNN", False, 1, 1),
        ("RNN", False, 4, 1),
        ("RNN", True, 2, 2),
        ("RNN", True, 5, 2),
        ("RNN", True, 3, 1),
        ("LSTM", False, 4, 1),
        ("LSTM", True, 3, 3),
        ("LSTM", True, 6, 3),
        ("LSTM", True, 4, 2),
        ("LSTM", False, 2, 2),
    ],
)
def test_wrong_counts(kind, expose, n, n_top):
    with pytest.raises(BlobCountError):
        LayerBench(kind, _text(kind, expose), ((4, 3, 4),) * n, n_top=n_top)


def test_debug_info_is_said_to_show_nothing(caplog):
    caplog.set_level(logging.WARNING, "pycaffe_lms")
    LayerBench("RNN", "recurrent_param { num_output: 3 debug_info: true }", _shapes("RNN"))
    assert "debug_info shows nothing" in caplog.text


# -- Lstm: LSTM's numbers with the parameters in another order ---------------------------------------------------------
def _lstm_text(more=""):
    return f'lstm_param {{ num_output: {D} weight_filler {{ type: "gaussian" std: 0.3 }} {more} }}'


CASES += [
    Case("Lstm", _lstm_text("bias_filler { value: 0.5 }"), ((4, 3, INPUTS),)),
    Case("Lstm", _lstm_text("clipping_threshold: 0.05"), ((5, 2, INPUTS),)),
    Case("Lstm", _lstm_text("batch_size: 3"), ((4, 3, 2, 2), (4, 3)), integer_bottoms=((1, 2),)),
    Case("Lstm", f"lstm_param {{ num_output: {D} }}", ((1, 5, INPUTS),), phase=1),
]


def _both(shapes, more=""):
    """Return benches of Lstm and LSTM with the same parameters, LSTM with a bottom of marks."""
    ours, plain = LayerBench("Lstm", _lstm_text(more), shapes), _bench("LSTM", *shapes[0][:2])
    rng = np.random.default_rng(4)
    for array, other in zip(ours.params, (0, 2, 1), strict=True):
        array[...] = plain.params[other][...] = rng.normal(size=array.shape)
    return ours, plain


@pytest.mark.parametrize("marked", [False, True])
def test_lstm_of_forks_is_lstm(marked):
    """Two forwards: without marks the second begins anew, with them it goes on."""
    shapes = ((4, 3, INPUTS), (4, 3))
    ours, plain = _both(shapes if marked else shapes[:1])
    for seed in range(2):
        x, _ = _bottoms(plain, seed)
        cont = CONT if marked else (np.arange(4) > 0)[:, None] * np.ones((4, 3))
        (expected,) = plain.forward([x, cont])
        (found,) = ours.forward([x, cont][: 1 + marked])
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        top_diff = [np.cos(expected)]
        (down, diffs), (plain_down, plain_diffs) = ours.backward(top_diff), plain.backward(top_diff)
        np.testing.assert_allclose(down[0], plain_down[0], rtol=1e-11)
        for diff, other in zip(diffs, (0, 2, 1), strict=True):
            np.testing.assert_allclose(diff, plain_diffs[other], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("marked", [False, True])
def test_gradients_of_lstm_of_forks(marked):
    ours, plain = _both(((4, 3, INPUTS), (4, 3))[: 1 + marked])
    check_gradient(ours, _bottoms(plain)[: 1 + marked], refill=_start_again if marked else None)


def test_gradients_of_gates_are_cut():
    """Of the last step from the formula, before it goes on to the step before."""
    limit = 0.02
    ours, plain = _both(((2, 3, INPUTS),), f"clipping_threshold: {limit}")
    x, _ = _bottoms(plain)
    cont = np.array([[0.0] * 3, [1.0] * 3])
    ours.forward([x])
    plain.forward([x, cont])
    top_diff = [np.stack([np.zeros((3, D)), np.ones((3, D))])]
    ours.backward(top_diff)
    plain.backward(top_diff)
    free, found = plain.scratch["dgates"], ours.scratch["dgates"]
    assert (np.abs(free[1]) > limit).any()
    np.testing.assert_allclose(found[1], np.clip(free[1], -np.float32(limit), np.float32(limit)), rtol=1e-12)
    assert np.abs(found).max() <= np.float32(limit)
    gates, w_h = ours.scratch["gates"], ours.params[1]
    output_gate = slice(2 * D, 3 * D)
    o, c = gates[0][:, output_gate], gates[0][:, :D] * gates[0][:, 3 * D :]
    expected = (found[1] @ w_h) * np.tanh(c) * o * (1 - o)
    np.testing.assert_allclose(found[0][:, output_gate], np.clip(expected, -limit, limit), rtol=1e-6)


@pytest.mark.parametrize(
    "more, shapes, error",
    [
        ("num_output: 0", ((4, 3, 2),), LayerParamError),
        ("num_output: 2 batch_size: 4", ((4, 3, 2),), LayerParamError),
        ("num_output: 2", ((12, 2),), ShapeError),
        ("num_output: 2", ((4, 3, 2), (3, 4)), ShapeError),
        ("num_output: 2", ((4, 3, 2), (4, 3), (4, 3)), BlobCountError),
    ],
)
def test_lstm_of_forks_refused(more, shapes, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench("Lstm", f"lstm_param {{ {more} }}", shapes)
