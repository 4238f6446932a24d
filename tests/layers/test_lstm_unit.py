"""LSTMUnit against its formula for single numbers, its gradients, and against LSTM."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import ShapeError
from pycaffe_lms.ops.cpu import recurrent

from .cases import Case
from .harness import LayerBench, check_gradient
from .test_recurrent import CONT, D, _bench, _bottoms, _unit

UNIT = ((1, 5, 3), (1, 5, 12), (1, 5))
NONE = ((1, 0, 3), (1, 0, 12), (1, 0))
LARGE = ((1, 70, 40), (1, 70, 160), (1, 70))
CASES = [Case("LSTMUnit", "", shapes, n_top=2, integer_bottoms=((2, 2),)) for shapes in (UNIT, NONE, LARGE)]
FLUSH = {"kept": np.ones((1, 5)), "forgotten": np.zeros((1, 5)), "mixed": np.array([[1, 0, 1, 0, 0.5]])}


def _unit_bottoms(cont):
    rng = np.random.default_rng(2)
    return [rng.normal(size=UNIT[0]), rng.normal(size=UNIT[1]), cont]


@pytest.mark.parametrize("cont", FLUSH.values(), ids=FLUSH)
def test_unit(cont):
    bench = LayerBench("LSTMUnit", "", UNIT, n_top=2)
    bottoms = _unit_bottoms(cont)
    c, h = bench.forward(bottoms)
    for n in range(5):
        for d in range(3):
            expected = _unit(bottoms[1][0, n], bottoms[0][0, n, d], cont[0, n], d, 3)
            assert (c[0, n, d], h[0, n, d]) == pytest.approx(expected, rel=1e-12)
    check_gradient(bench, bottoms)


@pytest.mark.parametrize("missing", [0, 1])
def test_unit_with_a_gradient_for_one_top(missing):
    bench = LayerBench("LSTMUnit", "", UNIT, n_top=2)
    bench.forward(_unit_bottoms(FLUSH["mixed"]))
    given = [np.ones(UNIT[0]), np.ones(UNIT[0])]
    given[missing] = np.zeros(UNIT[0])
    expected, _ = bench.backward(given)
    given[missing] = None
    found, _ = bench.backward(given)
    assert all((a == b).all() for a, b in zip(found[:2], expected[:2], strict=True))


@pytest.mark.parametrize("only", [0, 1])
def test_unit_with_one_gradient_wanted(only):
    benches = [LayerBench("LSTMUnit", "", UNIT, n_top=2, propagate_down=p) for p in ((1, 1, 0), (only == 0, only, 0))]
    results = []
    for bench in benches:
        bench.forward(_unit_bottoms(FLUSH["mixed"]))
        results.append(bench.backward([np.ones(UNIT[0])] * 2)[0][only])
    assert (results[0] == results[1]).all()


@pytest.mark.parametrize(
    ("bottom", "shape"), [(0, (5, 3)), (0, (2, 5, 3)), (1, (1, 5, 9)), (2, (5,)), (2, (1, 4))], ids=str
)
def test_unit_refuses(bottom, shape):
    shapes = list(UNIT)
    shapes[bottom] = shape
    with pytest.raises(ShapeError) as caught:
        LayerBench("LSTMUnit", "", tuple(shapes), n_top=2)
    assert caught.value.where.blob in {f"b{bottom}", "b1"}


def test_units_in_a_row_are_an_lstm():
    lstm = _bench("LSTM")
    bottoms = _bottoms(lstm)
    expected = lstm.forward(bottoms)[0]
    w_x, b, w_h = lstm.params
    h = c = np.zeros((1, 3, D))
    unit = LayerBench("LSTMUnit", "", ((1, 3, D), (1, 3, 4 * D), (1, 3)), n_top=2)
    for t in range(4):
        gates = bottoms[0][t] @ w_x.T + b + (CONT[t][:, None] * h[0]) @ w_h.T
        c, h = unit.forward([c, gates[None], CONT[t : t + 1]])
        np.testing.assert_allclose(h[0], expected[t], rtol=1e-12)


def test_work_in_pieces_is_the_same_work(monkeypatch):
    results = []
    for piece in (recurrent._PIECE, 16):
        monkeypatch.setattr(recurrent, "_PIECE", piece)
        bench = LayerBench("LSTMUnit", "", UNIT, n_top=2)
        tops = bench.forward(_unit_bottoms(FLUSH["mixed"]))
        results.append([*tops, *bench.backward([np.cos(t) for t in tops])[0][:2]])
    assert all((a == b).all() for a, b in zip(*results, strict=True))
