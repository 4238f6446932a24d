"""The kernels by which a GPU joins the statistics of several ranks, run on the host: their values are the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda.norm import norm_statistics
from pycaffe_lms.ops.records import BatchNorm, Grid, Moments, RunningSums

from .emulated import COMPILER, Kernels

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture(params=[np.float32, np.float64], ids=["f32", "f64"])
def dtype(request, tmp_path, monkeypatch):
    kernels = Kernels(tmp_path, request.param, {"sync_statistics divide": norm_statistics.SYNC})
    monkeypatch.setattr(
        norm_statistics, "launch", lambda source, name, dtype, threads, *args: kernels.run(name, 2, 3, *args)
    )
    return request.param


@pytest.mark.parametrize("sizes", [(8, 8), (2, 0, 5), (1,), (0, 0)], ids=str)
def test_statistics_of_all_ranks(dtype, sizes):
    rng, c = np.random.default_rng(1), 7
    slots = [[*rng.normal(size=c), *rng.uniform(0, 2, size=c), m] if m else [0.0] * (2 * c + 1) for m in sizes]
    gathered = np.array(slots, dtype).reshape(-1)
    found = []
    for operation in (load_ops("cpu").sync_norm_statistics, norm_statistics.sync_norm_statistics):
        moments = Moments(np.full(c, np.nan, dtype), np.full(c, np.nan, dtype))
        items, running = np.full(1, np.nan, dtype), RunningSums(*(np.ones(n, dtype) for n in (c, c, 1)))
        operation(gathered, moments, items, running, BatchNorm(Grid(4, c, 2), 0.25, 0.5))
        found.append([*moments, items, *running])
    assert found[1][2] == sum(sizes)
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=4 * np.finfo(dtype).eps, atol=0)


def test_sums_are_divided(dtype):
    sums = np.arange(9, dtype=dtype)
    norm_statistics.divide_by(sums, np.full(1, 4, dtype))
    assert np.array_equal(sums, np.arange(9) / 4)
