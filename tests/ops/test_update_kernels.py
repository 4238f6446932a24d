"""The update kernels for GPUs, run on the host: their values are the CPU's, and both kinds give the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda import elementwise, update
from pycaffe_lms.ops.update_rules import HISTORIES, UpdateNumbers
from pycaffe_lms.ops.update_table import CHUNK, ROW, make_table

from . import updates
from .emulated import COMPILER, Kernels

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")

SIZES = [(CHUNK + 5,), (), (13,), (0,)]
LR_MULTS, DECAY_MULTS, REACHED = [2.0, 1.0, 0.3, 1.0], [0.5, 0.0, 1.0, 1.0], [True, True, False, True]
NUMBERS = {
    "L2": UpdateNumbers(0.1, 0.25, 0.01, 0.0, 0.9, 0.99, 1e-3),
    "L1": UpdateNumbers(0.1, 0.3, 0.01, 1.0, 0.7, 0.9, 1e-2),
}


@pytest.fixture(scope="module", params=[np.float32, np.float64], ids=["f32", "f64"])
def kernels(request, tmp_path_factory):
    sources = {f"{rule}_update": s for rule, s in update.SOURCES.items()}
    sources |= {f"{rule}_update_all": s for rule, s in update.ALL_SOURCES.items()}
    return request.param, Kernels(tmp_path_factory.mktemp("kernels"), request.param, sources)


def placed(array, at):
    """A copy that begins `at` elements behind a multiple of 16 bytes."""
    memory = np.zeros(array.size + at + 16, array.dtype)
    at += -memory.ctypes.data % 16 // array.itemsize
    memory[at : at + array.size] = array.reshape(-1)
    return memory[at : at + array.size]


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("rule", HISTORIES)
def test_one_and_all(rule, numbers, at, kernels, monkeypatch):
    dtype, host = kernels
    n = NUMBERS[numbers]
    start = list(zip(*(updates.start(rule, shape, dtype, seed) for seed, shape in enumerate(SIZES)), strict=True))
    one, all_, cpu = ([[placed(a, at) for a in kind] for kind in start] for _ in range(3))

    def launch(source, name, dtype, threads, *args, block, grid):
        assert source == update.SOURCES[rule]
        host.run(name, grid, block, *args)

    monkeypatch.setattr(elementwise, "launch", launch)
    monkeypatch.setattr(elementwise, "aligned", lambda *arrays: int(at == 0))
    for ops, arrays in ((load_ops("cpu"), cpu), (load_ops("cuda"), one)):
        for k, (lr, decay, reached) in enumerate(zip(LR_MULTS, DECAY_MULTS, REACHED, strict=True)):
            p, d, *h = (kind[k] for kind in arrays)
            if not reached:
                d.fill(0)
            ops.solver_update(rule, p, d, h, np.array(n), lr, decay)
    addresses = [[a.ctypes.data for a in kind] for kind in all_]
    table = make_table(addresses, [a.size for a in all_[0]], LR_MULTS, DECAY_MULTS, REACHED)
    blocks = table.size - ROW * len(SIZES)
    host.run(f"{rule}_update_all", blocks, update.THREADS, table, np.array(n), len(SIZES))
    tolerance = 2e-6 if dtype is np.float32 else 1e-14
    for ours, theirs, expected, before in zip(*(sum(map(list, x), []) for x in (one, all_, cpu, start)), strict=True):
        assert ours.tobytes() == theirs.tobytes()
        np.testing.assert_allclose(ours, expected, rtol=tolerance, atol=tolerance)
        assert not ours.size or not np.array_equal(ours, before.reshape(-1))
