"""The products that attention and MatMul queue on a GPU, done by NumPy on the host: places, strides, rows, sums."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from pycaffe_lms.backend import cuda
from pycaffe_lms.layers.conv import attention as layers
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda.conv import attention
from tests.layers.harness import HostArrays
from tests.layers.test_attention import CASES
from tests.layers.test_matmul import CASES as PRODUCTS


def matrices(x, stride, batch, rows, columns, leading):
    """A view of `batch` matrices in memory, which must lie inside the array."""
    flat = x.reshape(-1)
    assert (batch - 1) * stride + (rows - 1) * leading + columns <= flat.size and columns <= leading
    return as_strided(flat, (batch, rows, columns), tuple(s * flat.itemsize for s in (stride, leading, 1)))


def product(ta, tb, m, n, k, alpha, a, stride_a, b, stride_b, beta, c, stride_c, batch, leading=None):
    """What cuBLAS does."""
    leading = leading or (m if ta else k, k if tb else n, n)
    left = matrices(a, stride_a, batch, *((k, m) if ta else (m, k)), leading[0])
    right = matrices(b, stride_b, batch, *((n, k) if tb else (k, n)), leading[1])
    out = matrices(c, stride_c, batch, m, n, leading[2])
    left, right = (x.swapaxes(1, 2) if turned else x for x, turned in ((left, ta), (right, tb)))
    out[...] = alpha * (left @ right) + (beta * out if beta else 0)


def rows_of(source, name, dtype, threads, scores, *args, block, grid):
    """What the two kernels of attention do to every row."""
    *more, first, rows, begin, columns, causal, window, queries = args
    for row in range(grid):
        head, i = row // rows, first + row % rows
        c = begin + np.arange(columns)
        seen = (c <= i if causal else c >= 0) & (c > i - window if window else c >= 0)
        s = scores.reshape(-1)[row * columns : (row + 1) * columns]
        if name == "weights":
            (lse,) = more
            total = np.exp(s[seen]).sum()
            lse.reshape(-1)[head * queries + i] = np.log(total) if seen.any() else np.inf
            s[:] = np.where(seen, np.exp(np.where(seen, s, 0)), 0) / (total if seen.any() else 1)
        else:
            slopes, lse, scale = more
            d = slopes.reshape(-1)[row * columns : (row + 1) * columns]
            s[:] = np.where(seen, np.exp(np.where(seen, s, 0) - lse.reshape(-1)[head * queries + i]), 0)
            d[:] = s * (d - (s * d).sum()) * scale


class Theirs(HostArrays):
    """The CUDA operations on arrays of the host."""

    def __init__(self):
        super().__init__()
        self.ops = load_ops("cuda")


@pytest.mark.parametrize("case", [*CASES, *PRODUCTS], ids=str)
def test_products_are_those_of_the_cpu(case, monkeypatch):
    monkeypatch.setattr(cuda, "gemm_batched", product)
    monkeypatch.setattr(attention, "launch", rows_of)
    monkeypatch.setattr(layers, "_BLOCK_BYTES", 3 * 8 * 8)
    found = []
    for device in (HostArrays(), Theirs()):
        bench, rng = case.bench(device=device), np.random.default_rng(1)
        (y,) = bench.forward(case.make_bottoms(rng))
        found.append([y, *bench.backward([rng.normal(size=y.shape)])[0]])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-11, atol=1e-12)
