"""Copies of many buffers in one operation: every byte of each, and none beside it."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.copy_table import CHUNK, ROW, make_table, table_words

SIZES = [1, 15, 16, 17, 0, CHUNK, CHUNK + 1, 3 * CHUNK - 5]
SHIFTS = [0, 16, 1, 0, 0, 0, 3, 32]  # of the target, in bytes; those of odd ones are not aligned


def check(ops, put, get):
    """Copy from odd and even places to such, and compare the whole memory around."""
    random = np.random.default_rng(0)
    contents = [random.integers(0, 256, n + 64, np.uint8) for n in SIZES]
    sources, around = [put(c) for c in contents], [put(np.full(n + 64, 7, np.uint8)) for n in SIZES]
    plan = ops.copy_all_plan(
        [s[:n] for s, n in zip(sources, SIZES, strict=True)],
        [a[shift : shift + n] for a, n, shift in zip(around, SIZES, SHIFTS, strict=True)],
    )
    ops.copy_all(plan, put(plan.table))
    for content, found, n, shift in zip(contents, around, SIZES, SHIFTS, strict=True):
        expected = np.full(n + 64, 7, np.uint8)
        expected[shift : shift + n] = content[:n]
        np.testing.assert_array_equal(get(found), expected)


def test_on_the_cpu():
    check(load_ops("cpu"), np.array, np.asarray)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_on_a_gpu():
    cupy = cuda.require()
    check(load_ops("cuda"), cupy.asarray, cupy.asnumpy)


def test_every_block_has_its_part():
    table = make_table([10 * i for i in range(len(SIZES))], range(len(SIZES)), SIZES)
    assert len(table) == table_words(SIZES)
    parts = [(word >> 32, word & 0xFFFFFFFF) for word in table[ROW * len(SIZES) :].tolist()]
    assert parts == [(row, part) for row, n in enumerate(SIZES) for part in range(-(-n // CHUNK))]
