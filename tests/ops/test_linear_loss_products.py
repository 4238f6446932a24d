"""The products that LinearSoftmaxWithLoss queues on a GPU, done by NumPy, and its rows, by NumPy or by the kernels that
the host's compiler has compiled: places, sums, chunks, bfloat16."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.layers.loss import linear_softmax_loss as layers
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cpu.conv.inner_product import inner_product_backward_bias
from pycaffe_lms.ops.cpu.widened import round_into, widened_copy
from pycaffe_lms.ops.cuda.conv import inner_product
from pycaffe_lms.ops.cuda.loss import linear_softmax
from pycaffe_lms.ops.records import LinearGradients, LinearLoss, LinearLossInputs, LossRows
from tests.layers.harness import HostArrays
from tests.layers.test_linear_softmax_loss import CASES

from .emulated import COMPILER, Kernels
from .test_attention_products import Theirs, product
from .test_bfloat16 import half


def _gemm(ta, tb, m, n, k, alpha, a, b, beta, c):
    product(ta, tb, m, n, k, alpha, a, 0, b, 0, beta, c, 0, 1)


def _add_bias(y, b, relu, grid):
    y.reshape(-1)[: grid.outer * grid.channels].reshape(grid.outer, -1)[...] += b


def _bias_gradient(dy, db, grid, accumulate):
    used = dy.reshape(-1)[: grid.outer * grid.channels]
    inner_product_backward_bias(used, db, grid.outer, grid.channels, accumulate)


def _kernels(source, name, dtype, threads, first, *args, block, grid):
    """What the three kernels do."""
    written, label, *args = args if name == "row_slopes" else (None, *args)
    assert dtype == (first if written is None else written).dtype
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
            slopes = (
                0 if ignored else (np.exp(s - lse[row]) - (np.arange(classes) == k)) * dloss.reshape(-1)[0] / norm[0]
            )
            written[row * classes : (row + 1) * classes] = half(slopes) if written.dtype == BFLOAT16 else slopes


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


# -- bfloat16 ----------------------------------------------------------------------------------------------------------
POSITIONS, CLASSES, WIDTH = 7, 5, 6


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The kernels of each type of slopes; what has no slopes is of float32."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    found = {}
    for dtype in (np.dtype(np.float32), BFLOAT16):
        names = "row_slopes" if dtype == BFLOAT16 else "row_losses row_slopes total"
        found[dtype] = Kernels(tmp_path_factory.mktemp("kernels"), dtype, {names: linear_softmax._ROWS})
    return found


def _wide_gemm(ta, tb, m, n, k, alpha, a, b, beta, c):
    """What cuBLAS does: products of bfloat16 have sums, and perhaps results, in float32."""
    assert a.dtype == b.dtype == BFLOAT16
    out = widened_copy(c.reshape(-1)[: m * n]) if c.dtype == BFLOAT16 else c
    _gemm(ta, tb, m, n, k, alpha, widened_copy(a), widened_copy(b), beta, out)
    if c.dtype == BFLOAT16:
        round_into(out, c.reshape(-1)[: m * n])


def _wide_bias_gradient(dy, db, grid, accumulate):
    _bias_gradient(widened_copy(dy) if dy.dtype == BFLOAT16 else dy, db, grid, accumulate)


@pytest.mark.parametrize("rows", [3, POSITIONS])
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_bfloat16_against_loops_in_double(device, transpose, rows, kernels, monkeypatch):
    """Of values that are bfloat16 already: the loss and its rows as exact as in float32, gradients rounded once, or,
    on a GPU, those of slopes that were rounded."""
    monkeypatch.setattr(cuda, "gemm", _wide_gemm)
    monkeypatch.setattr(inner_product.bias_relu, "forward", _add_bias)
    monkeypatch.setattr(inner_product, "conv_bias_gradient", _wide_bias_gradient)

    def launch(source, name, dtype, threads, *args, block, grid):
        kernels[np.dtype(dtype)].run(name, grid, block, *args)

    monkeypatch.setattr(linear_softmax, "launch", launch)
    rng, ops = np.random.default_rng(6), load_ops(device).linear_softmax_loss
    x, w = (half(rng.standard_normal(size)) for size in ((POSITIONS, WIDTH), (CLASSES, WIDTH)))
    b, labels = rng.standard_normal(CLASSES).astype(np.float32), np.array([3, 0, 2, 4, 2, 1, 2], np.float32)
    shape = LinearLoss(POSITIONS, CLASSES, WIDTH, transpose, rows, True, 2, -1.0)
    inputs = LinearLossInputs(x, labels, np.ascontiguousarray(w.T) if transpose else w, b)
    scores = np.full(rows * CLASSES + (rows * CLASSES + 1) // 2, np.nan, np.float32)
    saved, loss = LossRows(np.empty(POSITIONS, np.float32), np.empty(1)), np.empty((), np.float32)
    ops.forward(inputs, loss, saved, scores, np.empty(POSITIONS, np.float32), shape)
    start = rng.standard_normal(w.shape).astype(np.float32)
    dw, db = np.ascontiguousarray(start.T) if transpose else start.copy(), np.empty(CLASSES, np.float32)
    gradients = LinearGradients(half(np.zeros(x.shape)), dw, db, add_weight=True)
    ops.backward(inputs, np.array(0.5, np.float32), gradients, saved, scores, shape)

    total, dx, d_w, d_b = 0.0, np.zeros(x.shape), start.astype(np.float64), np.zeros(CLASSES)
    values, weights = widened_copy(x).astype(np.float64), widened_copy(w).astype(np.float64)
    for i, label in enumerate(labels.astype(int)):
        p = np.exp([math.fsum(values[i] * row) + bias for row, bias in zip(weights, b, strict=True)])
        assert saved.lse[i] == pytest.approx(math.log(math.fsum(p)), abs=1e-6)
        if label == 2:
            continue
        p /= math.fsum(p)
        total -= math.log(p[label])
        p = 0.5 * (p - (np.arange(CLASSES) == label)) / 4
        dx[i], d_w, d_b = p @ weights, d_w + np.outer(p, values[i]), d_b + p
    assert loss == pytest.approx(total / 4, rel=1e-6)
    rounded = 2.0**-8 if device == "cuda" else 1e-6
    for found, expected, error in (
        (widened_copy(gradients.x), dx, 2.0**-8),
        (dw.T if transpose else dw, d_w, rounded),
        (db, d_b, rounded),
    ):
        assert np.linalg.norm(found - expected) <= error * np.linalg.norm(expected)
    assert not widened_copy(gradients.x)[labels == 2].any()
