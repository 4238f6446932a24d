"""The products and rows that LinearSoftmaxWithLoss queues on a GPU, done by NumPy on the host: places, sums, chunks."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.layers.loss import linear_softmax_loss as layers
from pycaffe_lms.ops.cpu.conv.inner_product import inner_product_backward_bias
from pycaffe_lms.ops.cuda.conv import inner_product
from pycaffe_lms.ops.cuda.loss import linear_softmax
from tests.layers.harness import HostArrays
from tests.layers.test_linear_softmax_loss import CASES

from .test_attention_products import Theirs, product


def _gemm(ta, tb, m, n, k, alpha, a, b, beta, c):
    product(ta, tb, m, n, k, alpha, a, 0, b, 0, beta, c, 0, 1)


def _add_bias(y, b, relu, grid):
    y.reshape(-1)[: grid.outer * grid.channels].reshape(grid.outer, -1)[...] += b


def _bias_gradient(dy, db, grid, accumulate):
    used = dy.reshape(-1)[: grid.outer * grid.channels]
    inner_product_backward_bias(used, db, grid.outer, grid.channels, accumulate)


def _kernels(source, name, dtype, threads, first, label, *args, block, grid):
    """What the three kernels do."""
    if name == "total":
        loss, norm, normalizer, has_ignore, ignore, positions = args
        counted = sum(not has_ignore or int(k) != ignore for k in label)
        norm[0] = max(1, normalizer if normalizer >= 0 else counted)
        loss[...] = first[:positions].sum() / norm[0]
        return
    *more, has_ignore, ignore, classes = args
    for row in range(grid):
        s, k = first[row * classes : (row + 1) * classes], int(label[row])
        ignored = has_ignore and k == ignore
        if name == "row_losses":
            lse, losses = more
            lse[row] = np.log(np.exp(s).sum())
            losses[row] = 0 if ignored else lse[row] - s[k]
        else:
            lse, dloss, norm = more
            slopes = np.exp(s - lse[row]) - (np.arange(classes) == k)
            s[:] = 0 if ignored else slopes * dloss.reshape(-1)[0] / norm[0]


@pytest.mark.parametrize("rows", [2, 100])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_what_the_cpu_computes(case, rows, monkeypatch):
    monkeypatch.setattr(cuda, "gemm", _gemm)
    monkeypatch.setattr(inner_product.bias_relu, "forward", _add_bias)
    monkeypatch.setattr(inner_product, "conv_bias_gradient", _bias_gradient)
    monkeypatch.setattr(linear_softmax, "launch", _kernels)
    classes = int(case.text.split("num_output: ")[1].split()[0])
    monkeypatch.setattr(layers, "_CHUNK_BYTES", rows * classes * 8)
    found = []
    for device in (HostArrays(), Theirs()):
        bench, rng = case.bench(device=device), np.random.default_rng(1)
        (loss,) = bench.forward(case.make_bottoms(rng))
        (dx, _), params = bench.backward([np.array(0.5)])
        found.append([loss, dx, *params])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(theirs, ours, rtol=1e-11, atol=1e-12)
