"""The CPU's threads: every part once, errors, calls inside calls; and bits that know no number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from pycaffe_lms.ops.cpu import threads
from pycaffe_lms.ops.cpu.conv import blas, conv
from pycaffe_lms.ops.cpu.norm import batch_norm
from pycaffe_lms.ops.geometry import ConvGeometry
from pycaffe_lms.ops.records import BatchNorm, Grid, Moments, RunningSums


@pytest.fixture(params=[1, 2, 5])
def workers(request, monkeypatch):
    with ThreadPoolExecutor(request.param) as pool:
        monkeypatch.setattr(threads, "_pool", lambda pid: (request.param, pool))
        yield request.param


@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
def test_every_element_is_in_one_part(workers, n):
    seen = np.zeros(n, int)

    def count(first, last):
        seen[first:last] += 1

    threads.parallel(count, n)
    assert (seen == 1).all()


def test_grain_keeps_small_work_on_one_thread(workers):
    parts = []
    threads.parallel(lambda first, last: parts.append((first, last)), 100, grain=51)
    assert parts == [(0, 100)]


def test_an_error_in_any_part_is_raised(workers):
    def fail_at_the_end(first, last):
        if last == 100:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        threads.parallel(fail_at_the_end, 100)


def test_a_part_may_itself_be_spread(workers):
    seen = np.zeros((8, 50), int)

    def inner(first, last, row):
        seen[row, first:last] += 1

    def outer(first, last):
        for row in range(first, last):
            threads.parallel(inner, 50, row)

    threads.parallel(outer, 8)
    assert (seen == 1).all()


def test_thread_count_follows_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert threads.thread_count() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    assert threads.thread_count() >= 1


def test_blas_gets_its_number_of_threads_back():
    found = blas._openblas()
    if found is None:
        pytest.skip("NumPy has no OpenBLAS of its own here")
    before, inside = found[0](), []
    blas.spread(lambda first, last: inside.append(found[0]()), 4)
    assert set(inside) == {1} and found[0]() == before


def _results():
    rng = np.random.default_rng(1)
    g = ConvGeometry(5, 16, 24, 2, (20, 20), (20, 20), (3, 3), (1, 1), (1, 1), (1, 1))
    plan = conv.conv_plan(g, np.float32, 1 << 20)
    x, dy = (rng.standard_normal((5, c, 20, 20), dtype=np.float32) for c in (16, 24))
    w, work = rng.standard_normal((24, 8, 3, 3), dtype=np.float32), np.empty(plan.workspace_bytes, np.uint8)
    y, dx, dw, db = np.empty_like(dy), np.empty_like(x), np.empty_like(w), np.empty(24, np.float32)
    conv.conv_forward(plan, x, w, None, y, work)
    conv.conv_backward_data(plan, dy, w, dx, work)
    conv.conv_backward_filter(plan, x, dy, dw, work, False)
    conv.conv_bias_gradient(dy, db, plan.geometry.grid, False)
    z, stats = np.empty_like(x), [np.zeros(16, np.float32) for _ in range(4)]
    running = RunningSums(*stats[2:], np.zeros(1, np.float32))
    norm = BatchNorm(Grid(5, 16, 400), 1e-5, 0.9)
    batch_norm.batch_norm_train_forward(x, z, Moments(*stats[:2]), running, None, norm)
    return [y, dx, dw, db, z, *stats]


def test_bits_do_not_depend_on_the_number_of_threads(workers, monkeypatch):
    found = _results()
    monkeypatch.setattr(threads, "_pool", lambda pid: (1, None))
    for a, b in zip(found, _results(), strict=True):
        np.testing.assert_array_equal(a, b)
