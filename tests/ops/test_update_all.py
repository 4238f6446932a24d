"""The update of all parameters at once equals one update each, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.update_rules import HISTORIES, UpdateNumbers
from pycaffe_lms.ops.update_table import CHUNK, ROW, make_table, table_words

from . import updates

SIZES = [(3, 4), (CHUNK,), (0,), (), (2 * CHUNK + 5,), (7,)]
LR_MULTS, DECAY_MULTS = [1.0, 2.0, 1.0, 0.1, 0.3, 0.0], [1.0, 0.0, 1.0, 2.0, 0.5, 1.0]
REACHED = [True, True, True, False, True, False]


def arrays(rule, dtype):
    """Parameters, gradients, histories, second histories if any."""
    return list(zip(*(updates.start(rule, shape, dtype, seed) for seed, shape in enumerate(SIZES)), strict=True))


def check(ops, rule, dtype, l1, put, get):
    """Both ways on the device of `ops`: every array, to the bit. Returns the arrays."""
    numbers = put(np.array(UpdateNumbers(0.1, 0.25, 0.01, float(l1), 0.9, 0.99, 1e-3, 0.75)))
    start = arrays(rule, dtype)
    apart, together = ([[put(a) for a in kind] for kind in start] for _ in range(2))
    for p, d, h, lr, decay, reached in zip(
        apart[0], apart[1], zip(*apart[2:], strict=True), LR_MULTS, DECAY_MULTS, REACHED, strict=True
    ):
        if not reached:
            ops.fill(d, 0.0)
        ops.solver_update(rule, p, d, h, numbers, lr, decay)
    plan = ops.solver_update_all_plan(together[0], together[1], together[2:], LR_MULTS, DECAY_MULTS, REACHED)
    ops.solver_update_all(rule, plan, put(plan.table), numbers)
    changed = 0
    for one, all_, before in zip(sum(apart, []), sum(together, []), sum(map(list, start), []), strict=True):
        np.testing.assert_array_equal(get(all_), get(one))
        changed += not np.array_equal(get(all_), before)
    assert changed > 10
    return [get(a) for a in sum(together, [])]


@pytest.mark.parametrize("l1", [False, True], ids=["L2", "L1"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("rule", HISTORIES)
def test_on_the_cpu(rule, dtype, l1):
    check(load_ops("cpu"), rule, dtype, l1, np.array, np.asarray)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("l1", [False, True], ids=["L2", "L1"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("rule", HISTORIES)
def test_on_a_gpu(rule, dtype, l1):
    """And its values are those of the CPU, within rounding."""
    cupy = cuda.require()
    got = check(load_ops("cuda"), rule, dtype, l1, cupy.asarray, cupy.asnumpy)
    expected = check(load_ops("cpu"), rule, dtype, l1, np.array, np.asarray)
    tolerance = 1e-5 if dtype is np.float32 else 1e-13
    for ours, theirs in zip(expected, got, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("slots", [1, 2])
def test_the_table_covers_every_element_once(slots):
    sizes = [int(np.prod(s)) for s in SIZES]
    addresses = [[100 * k + i for i in range(6)] for k in range(2 + slots)]
    table = make_table(addresses, sizes, LR_MULTS, DECAY_MULTS, REACHED)
    assert table.dtype == np.int64 and table.size == table_words(sizes)
    rows, blocks = table[: ROW * 6].reshape(6, ROW), table[ROW * 6 :]
    assert rows[:, :4].tolist() == [[i, 100 + i, 200 + i, n] for i, n in enumerate(sizes)]
    assert rows[:, 4].view(np.float64).tolist() == LR_MULTS and rows[:, 5].view(np.float64).tolist() == DECAY_MULTS
    assert rows[:, 6].tolist() == REACHED
    assert rows[:, 7].tolist() == ([300 + i for i in range(6)] if slots == 2 else [0] * 6)
    covered = [(int(b) >> 32, e) for b in blocks for e in range(int(b & 0xFFFFFFFF) * CHUNK, sizes[b >> 32])[:CHUNK]]
    assert sorted(covered) == [(i, e) for i, n in enumerate(sizes) for e in range(n)]


@pytest.mark.parametrize("rule", HISTORIES)
def test_nothing_to_update(rule):
    histories = [[] for _ in range(HISTORIES[rule])]
    plan = load_ops("cpu").solver_update_all_plan([], [], histories, [], [], [])
    assert plan.table.size == 0
    load_ops("cpu").solver_update_all(rule, plan, plan.table, np.zeros(len(UpdateNumbers._fields)))
