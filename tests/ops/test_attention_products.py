"""Products and kernels that attention and MatMul queue on a GPU, run on the host."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from pycaffe_lms.backend import cuda
from pycaffe_lms.layers.conv import attention as layers
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda.activation import dropout
from pycaffe_lms.ops.cuda.conv import attention
from pycaffe_lms.ops.cuda.elementwise import SPAN, THREADS
from tests.layers.harness import HostArrays
from tests.layers.test_attention import CASES
from tests.layers.test_matmul import CASES as PRODUCTS

from .emulated import COMPILER, Kernels

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


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


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The kernels of rows, and DropPath's, compiled for the host. Each has one name here."""
    dropping = attention._ROWS_DROPPING
    for name in ("weights", "slopes"):
        dropping = dropping.replace(f" {name}(", f" dropping_{name}(")
    sources = {
        "weights slopes": attention._ROWS,
        "dropping_weights dropping_slopes": dropping,
        "keep attend": attention._NEXT,
        "drop_path": dropout._PATH,
    }
    return Kernels(tmp_path_factory.mktemp("kernels"), np.float64, sources)


class Theirs(HostArrays):
    """The CUDA operations on arrays of the host."""

    def __init__(self):
        super().__init__()
        self.ops = load_ops("cuda")


@pytest.mark.parametrize("case", [*(c for c in CASES if c.shapes[0][1] < 20), *PRODUCTS], ids=str)
def test_products_are_those_of_the_cpu(case, kernels, monkeypatch):
    def launch(source, name, dtype, threads, *args, block=256, grid=0):
        dropping = "dropping_" if source is attention._ROWS_DROPPING else ""
        kernels.run(dropping + name, grid or -(-threads // block), block, *args)

    monkeypatch.setattr(cuda, "gemm_batched", product)
    monkeypatch.setattr(attention, "launch", launch)
    monkeypatch.setattr(layers, "_BLOCK_BYTES", 3 * 8 * 8)
    found = []
    for device in (HostArrays(), Theirs()):
        bench, rng = case.bench(device=device), np.random.default_rng(1)
        (y,) = bench.forward(case.make_bottoms(rng))
        slopes = bench.backward([rng.normal(size=y.shape)])[0] if any(bench.propagate_down) else []
        kept = [bench.scratch[name] for name in ("keys", "values") if name in bench.scratch]
        found.append([y, *slopes, *kept])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("shape", [(7, 5), (3, 2050), (9,), (4, 2, 4)], ids=str)
def test_drop_path_is_that_of_the_cpu(shape, kernels, monkeypatch):
    def launch(source, name, arrays, *scalars):
        whole, n = 0, arrays[-1].size
        kernels.run(name, -(-n // SPAN), THREADS, *arrays, *scalars, whole, n)

    monkeypatch.setattr(dropout, "run", launch)
    key, x = np.array([2**40 + 3, 2**33 + 1, 2**32 + 5], np.uint64), np.random.default_rng(1).normal(size=shape)
    ours, theirs = np.empty(shape), np.empty(shape)
    load_ops("cpu").drop_path.forward(x, ours, 0.4, key, 1 / 0.6)
    load_ops("cuda").drop_path.forward(x, theirs, 0.4, key, 1 / 0.6)
    np.testing.assert_array_equal(theirs, ours)
    assert 0 < (ours == 0).mean() < 1
