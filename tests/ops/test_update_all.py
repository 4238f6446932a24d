"""The update of all parameters at once equals one update each, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.update_table import CHUNK, ROW, make_table, table_words

SIZES = [(3, 4), (CHUNK,), (0,), (), (2 * CHUNK + 5,), (7,)]
LR_MULTS, DECAYS = [1.0, 2.0, 1.0, 0.1, 0.3, 0.0], [0.01, 0.0, 0.01, 0.02, 0.005, 0.01]
REACHED = [True, True, True, False, True, False]


def arrays(dtype):
    rng = np.random.default_rng(1)
    return [[np.asarray(rng.normal(size=s), dtype) for s in SIZES] for _ in range(3)]


def check(ops, dtype, l1, put, get):
    """Both ways on the device of `ops`: every array, to the bit."""
    apart, together = ([[put(a) for a in kind] for kind in arrays(dtype)] for _ in range(2))
    numbers = np.array([0.1, 0.25])
    for p, d, h, lr, decay, reached in zip(*apart, LR_MULTS, DECAYS, REACHED, strict=True):
        if not reached:
            ops.fill(d, 0.0)
        ops.sgd_update(p, d, h, 0.1 * lr, 0.9, decay, l1, 0.25)
    plan = ops.sgd_update_all_plan(*together, LR_MULTS, DECAYS, REACHED)
    ops.sgd_update_all(plan, put(plan.table), put(numbers), 0.9, l1)
    changed = 0
    for one, all_, start in zip(sum(apart, []), sum(together, []), sum(arrays(dtype), []), strict=True):
        np.testing.assert_array_equal(get(all_), get(one))
        changed += not np.array_equal(get(all_), start)
    assert changed > 10


@pytest.mark.parametrize("l1", [False, True], ids=["L2", "L1"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_on_the_cpu(dtype, l1):
    check(load_ops("cpu"), dtype, l1, np.array, np.asarray)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("l1", [False, True], ids=["L2", "L1"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_on_a_gpu(dtype, l1):
    cupy = cuda.require()
    check(load_ops("cuda"), dtype, l1, cupy.asarray, cupy.asnumpy)


def test_the_table_covers_every_element_once():
    sizes = [n for s in SIZES if (n := int(np.prod(s))) >= 0]
    table = make_table([[100 * k + i for i in range(6)] for k in range(3)], sizes, LR_MULTS, DECAYS, REACHED)
    assert table.dtype == np.int64 and table.size == table_words(sizes)
    rows, blocks = table[: ROW * 6].reshape(6, ROW), table[ROW * 6 :]
    assert rows[:, :4].tolist() == [[i, 100 + i, 200 + i, n] for i, n in enumerate(sizes)]
    assert rows[:, 4].view(np.float64).tolist() == LR_MULTS and rows[:, 5].view(np.float64).tolist() == DECAYS
    assert rows[:, 6].tolist() == REACHED
    covered = [(int(b) >> 32, e) for b in blocks for e in range(int(b & 0xFFFFFFFF) * CHUNK, sizes[b >> 32])[:CHUNK]]
    assert sorted(covered) == [(i, e) for i, n in enumerate(sizes) for e in range(n)]


def test_nothing_to_update():
    plan = load_ops("cpu").sgd_update_all_plan([], [], [], [], [], [])
    assert plan.table.size == 0
    load_ops("cpu").sgd_update_all(plan, plan.table, np.zeros(2), 0.9, False)
