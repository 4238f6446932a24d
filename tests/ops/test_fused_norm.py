"""Fused normalisation against the operations that it is made of, in both memory layouts, on the CPU and on a GPU."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda.channel_walk import threads_across
from pycaffe_lms.ops.records import (
    Affine,
    AffineGradients,
    BatchNorm,
    FusedNormGradients,
    Grid,
    Moments,
    Rectified,
    RunningSums,
)
from pycaffe_lms.ops.sum_parts import fused_norm_work, norm_parts

from ..layers import harness

SHAPES = [
    *((2, 3, 49), (3, 64, 4), (2, 130, 5), (3, 1, 3136), (4, 2, 1028), (1, 3, 2500)),  # planes: NCHW
    *((9, 1, 1), (300, 3, 1), (37, 64, 1), (150, 130, 1), (1, 8, 1), (5, 2500, 1)),  # rows: channels-last
]
GPU = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]
plain = load_ops("cpu")


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=GPU)])
def place(request):
    return harness.HostArrays() if request.param == "cpu" else harness.CudaArrays()


def normal(*shape, seed=1, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def near(found, expected, relative=1e-12, dtype=None):
    expected = np.asarray(expected, dtype)
    scale = np.abs(expected).max(initial=1e-300)
    np.testing.assert_allclose(found, expected, rtol=relative, atol=relative * scale)


class Values:
    """The inputs of one layer, and its results by single operations."""

    def __init__(self, shape, *, gamma=True, beta=True, residual=False, relu=True, use_global=False, dtype=np.float64):
        self.size = n, c, s = Grid(*shape)
        self.use_global, self.relu, self.rule = use_global, relu, BatchNorm(self.size, 1e-5, 0.9, use_global)
        self.x = 3 * normal(n, c, s, dtype=dtype) + 7 * normal(c, 1, seed=2, dtype=dtype)
        self.dy = normal(n, c, s, seed=3, dtype=dtype)
        self.r = normal(n, c, s, seed=4, dtype=dtype) if residual else None
        self.gamma = normal(c, seed=5, dtype=dtype) if gamma else None
        self.beta = normal(c, seed=6, dtype=dtype) if beta else None
        self.running = [normal(c, seed=7, dtype=dtype), normal(c, seed=8, dtype=dtype) ** 2, np.ones(1, dtype) * 0.7]

    def compose(self):
        """y, dr, dx, dgamma, dbeta, mean, inv_std and the running sums, in float64."""
        x, dy, gamma, beta, r = (
            None if a is None else a.astype(np.float64) for a in (self.x, self.dy, self.gamma, self.beta, self.r)
        )
        c = self.size[1]
        mean, inv_std, running = np.empty(c), np.empty(c), [a.astype(np.float64) for a in self.running]
        xhat, work = np.empty_like(x), np.empty(0)
        head = x, xhat, Moments(mean, inv_std), RunningSums(*running)
        if self.use_global:
            plain.batch_norm_global.forward(*head, self.rule)
        else:
            plain.batch_norm_train.forward(*head, work, self.rule)
        y = xhat.copy()
        if gamma is not None or beta is not None:
            plain.scale.forward(xhat, Affine(gamma, beta), y, self.size)
        if r is not None:
            plain.eltwise_sum.forward([y.copy(), r], [1.0, 1.0], y)
        before, g = y.copy(), dy
        if self.relu:
            plain.relu.forward(before, y, 0.0)
            g = np.empty_like(dy)
            plain.relu.backward(y, dy, g, 0.0)
        dgamma, dbeta, dx, dxhat = np.empty(c), np.empty(c), np.empty_like(x), g
        plain.scale.backward(xhat, None, g, None, AffineGradients(dgamma, dbeta), work, self.size)
        if gamma is not None:
            dxhat = np.empty_like(g)
            plain.scale.backward(None, gamma, g, dxhat, AffineGradients(None, None), work, self.size)
        if self.use_global:
            plain.batch_norm_global.backward(dxhat, dx, inv_std, self.size)
        else:
            plain.batch_norm.backward(xhat, dxhat, dx, inv_std, work, self.size)
        return {
            "y": y,
            "dr": g,
            "dx": dx,
            "dgamma": dgamma,
            "dbeta": dbeta,
            "mean": mean,
            "inv_std": inv_std,
            "running": running,
            "before": before,
        }


class Fused:
    """The same through the fused operations of one device. `shift` puts arrays that many elements off alignment."""

    def __init__(self, place, values, shift=0):
        self.place, self.v, self.shift = place, values, shift
        dtype, (n, c, s) = values.x.dtype, values.size
        self.x, self.gamma, self.beta = self.put(values.x), self.put(values.gamma), self.put(values.beta)
        self.work = place.put(np.full(fused_norm_work(n, c, s), np.nan, dtype))
        self.mean, self.inv_std = (place.put(np.full(c, np.nan, dtype)) for _ in range(2))
        self.running = [place.put(a) for a in values.running]
        self.moments, self.sums = Moments(self.mean, self.inv_std), RunningSums(*self.running)

    def put(self, array):
        if array is None:
            return None
        flat = np.concatenate([np.zeros(self.shift, array.dtype), array.reshape(-1)])
        return self.place.put(flat)[self.shift :].reshape(array.shape)

    def statistics(self):
        v, ops = self.v, self.place.ops
        if v.use_global:
            ops.batch_norm_running(self.moments, self.sums, v.rule)
        else:
            ops.batch_norm_statistics(self.x, self.moments, self.sums, self.work, v.rule)

    def forward(self, in_place=None):
        """in_place: "r" or "x", which y is."""
        self.statistics()
        r, x = self.put(self.v.r), self.put(self.v.x)
        self.y = {"r": r, "x": x, None: self.put(np.full_like(self.v.x, np.nan))}[in_place]
        affine = Affine(self.gamma, self.beta)
        self.place.ops.fused_norm.forward(x, r, self.y, self.moments, affine, self.v.relu, self.v.size)
        return self.place.get(self.y)

    def backward(self, wanted=("dr", "dx", "dgamma", "dbeta"), *, start=None, alias=None, read_y=True):
        """The wanted gradients; `start`: what dgamma and dbeta hold already and are added to; `alias`: dx or dr that
        is dy; without `read_y` the activation is not shown."""
        v, c = self.v, self.v.size[1]
        dy = self.put(v.dy)
        out = {k: self.put(np.full_like(v.x, np.nan)) for k in ("dr", "dx")}
        for k in ("dgamma", "dbeta"):
            out[k] = self.place.put(np.full(c, np.nan if start is None else start, v.x.dtype))
        out = {k: (dy if k == alias else a) if k in wanted else None for k, a in out.items()}
        add = start is not None
        self.place.ops.fused_norm.backward(
            self.x,
            dy,
            FusedNormGradients(out["dx"], out["dr"], AffineGradients(out["dgamma"], out["dbeta"], add, add)),
            Rectified(self.y if read_y else None) if v.relu else None,
            self.moments,
            Affine(self.gamma, self.beta),
            self.work,
            v.rule,
        )
        return {k: self.place.get(a) for k, a in out.items() if a is not None}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("use_global", [False, True], ids=["batch", "global"])
def test_equals_the_single_operations(place, shape, use_global):
    for gamma, beta, residual, relu in product([True, False], repeat=4):
        v = Values(shape, gamma=gamma, beta=beta, residual=residual, relu=relu, use_global=use_global)
        expected, fused = v.compose(), Fused(place, v)
        near(fused.forward(), expected["y"])
        near(place.get(fused.mean), expected["mean"])
        near(place.get(fused.inv_std), expected["inv_std"])
        for found, moved in zip(fused.running, expected["running"], strict=True):
            near(place.get(found), moved)
        for k, found in fused.backward(read_y=residual or not gamma).items():
            near(found, expected[k], 1e-11 if k == "dx" else 1e-12)


@pytest.mark.parametrize("shape", [(2, 3, 49), (37, 12, 1)], ids=str)
def test_any_gradient_may_be_unwanted_or_added_to(place, shape):
    names = ("dr", "dx", "dgamma", "dbeta")
    for use_global, read_y, alias in product([False, True], [True, False], [None, "dr", "dx"]):
        v = Values(shape, use_global=use_global)
        expected, fused = v.compose(), Fused(place, v)
        fused.forward()
        for chosen in product([False, True], repeat=4):
            wanted = [k for k, yes in zip(names, chosen, strict=True) if yes]
            for start in (None, 2.5):
                for k, found in fused.backward(wanted, start=start, alias=alias, read_y=read_y).items():
                    near(found, expected[k] + (start or 0 if k in ("dgamma", "dbeta") else 0), 1e-11)


@pytest.mark.parametrize("shape", [(2, 3, 49), (37, 12, 1)], ids=str)
@pytest.mark.parametrize("alias", ["dr", "dx"])
def test_without_relu_gradients_may_lie_in_that_of_the_top(place, shape, alias):
    v = Values(shape, residual=True, relu=False)
    expected, fused = v.compose(), Fused(place, v)
    near(fused.forward(in_place="r"), expected["y"])
    for k, found in fused.backward(alias=alias, read_y=False).items():
        near(found, expected[k], 1e-11)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("shape", [(3, 8, 196), (2, 130, 49), (600, 64, 1), (800, 3, 1)], ids=str)
def test_the_sign_computed_anew_is_the_one_that_forward_saw(place, shape, dtype):
    v = Values(shape, dtype=dtype)
    v.beta[...] = 0  # and every channel's mean is the kink
    v.x[...] = np.round(v.x)
    fused = Fused(place, v)
    fused.forward()
    seen, anew = fused.backward(), fused.backward(read_y=False)
    for k in seen:
        np.testing.assert_array_equal(anew[k], seen[k])


@pytest.mark.parametrize("shape", [(3, 8, 196), (2, 3, 49), (600, 64, 1), (37, 12, 1)], ids=str)
@pytest.mark.parametrize("residual", [True, False], ids=["sum", "no sum"])
def test_the_result_may_lie_where_an_input_lay(place, shape, residual):
    v = Values(shape, residual=residual)
    expected = v.compose()["y"]
    for where in ("x", "r") if residual else ("x",):
        near(Fused(place, v).forward(in_place=where), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("shape", [(3, 8, 196), (600, 64, 1)], ids=str)
def test_results_know_nothing_of_addresses(place, shape, dtype):
    v = Values(shape, residual=True, dtype=dtype)
    one, other = Fused(place, v), Fused(place, v, shift=1)
    np.testing.assert_array_equal(one.forward(), other.forward(in_place="r"))
    ours, theirs = one.backward(), other.backward(alias="dr")
    for k in ours:
        np.testing.assert_array_equal(ours[k], theirs[k])


@pytest.mark.parametrize("shape", [(2, 2, 4), (8, 2, 1)], ids=str)
def test_what_is_no_number_passes_as_through_the_relu_layer(place, shape):
    v = Values(shape, residual=True)
    v.r.reshape(-1)[:4] = np.nan, np.inf, -np.inf, -1e300
    v.dy.reshape(-1)[3] = np.inf
    expected, fused = v.compose(), Fused(place, v)
    np.testing.assert_array_equal(np.isnan(fused.forward()), np.isnan(expected["y"]))
    np.testing.assert_array_equal(fused.backward(["dr"])["dr"], expected["dr"])
    assert np.isnan(expected["y"]).sum() == 2
    assert np.isnan(expected["dr"]).sum() == 1


@pytest.mark.parametrize("shape", [(2, 2, 4), (8, 2, 1)], ids=str)
def test_a_channel_with_what_is_no_number_spoils_no_other(place, shape):
    v = Values(shape, dtype=np.float32)
    v.x[0, 0, 0], v.dy[0, 0, 0] = np.inf, 1e38
    fused = Fused(place, v)
    y, gradients = fused.forward().reshape(shape), fused.backward(read_y=False)
    assert np.isnan(y[:, 0]).any()
    assert np.isfinite(y[:, 1]).all()
    assert np.isfinite(gradients["dx"].reshape(shape)[:, 1]).all()


@pytest.mark.parametrize("shape", [(0, 3, 1), (0, 3, 49), (2, 3, 0)], ids=str)
def test_of_nothing_statistics_and_sums_are_zero(place, shape):
    fused = Fused(place, Values(shape))
    fused.forward()
    assert not place.get(fused.mean).any()
    assert not place.get(fused.inv_std).any()
    for found, before in zip(fused.running, fused.v.running, strict=True):
        np.testing.assert_array_equal(place.get(found), before)
    for start in (None, 2.5):
        found = fused.backward(start=start)
        assert (found["dgamma"] == (start or 0)).all()
        assert (found["dbeta"] == (start or 0)).all()


@pytest.mark.parametrize("shape", [(4, 3, 5), (20, 3, 1)], ids=str)
@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
def test_gradient_by_differences(place, shape, residual):
    v = Values(shape, residual=residual)
    assert np.abs(v.compose()["before"]).min() > 1e-3  # no kink within a step

    def loss():
        return float((Fused(place, v).forward() * v.dy).sum())

    fused = Fused(place, v)
    fused.forward()
    found = fused.backward()
    for k, array in (("dx", v.x), ("dr", v.r), ("dgamma", v.gamma), ("dbeta", v.beta)):
        if array is None:
            continue
        flat, slopes = array.reshape(-1), []
        for i in range(flat.size):
            middle, ends = flat[i], []
            for step in (1e-5, -1e-5):
                flat[i] = middle + step
                ends.append(loss())
            flat[i] = middle
            slopes.append((ends[0] - ends[1]) / 2e-5)
        np.testing.assert_allclose(found[k].reshape(-1), slopes, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("shape", [(2, 3, 196), (700, 3, 1), (400, 64, 1)], ids=str)
def test_statistics_far_from_zero_keep_their_digits(place, shape):
    v = Values(shape, dtype=np.float32)
    v.x[...] = (normal(*shape) + 1000).astype(np.float32)
    v.x.reshape(-1)[:8] = 0  # a first value is no guide to the mean
    fused = Fused(place, v)
    fused.statistics()
    exact = v.x.astype(np.float64)
    near(place.get(fused.mean), exact.mean((0, 2)), 1e-6)
    near(place.get(fused.inv_std), 1 / np.sqrt(exact.var((0, 2)) + v.rule.eps), 1e-5)


@pytest.mark.pure
def test_parts_fill_a_gpu_and_hold_every_value():
    for n, c, s in [*SHAPES, (802816, 64, 1), (256, 64, 3136), (12544, 2048, 1), (256, 2048, 49), (0, 3, 1)]:
        parts = norm_parts(n, c, s)
        assert fused_norm_work(n, c, s) == 2 * c * (parts + 1)
        if n * c * s > 1 << 24:
            assert 1000 <= parts * (c if s > 1 else -(-c // 128)) <= 2200


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize(
    "shape",
    [
        *((8, 64, 3136), (16, 512, 49), (2, 2048, 196), (3, 5, 100_003), (7, 1, 65_537)),
        *((25_088, 64, 1), (3136, 256, 1), (784, 2048, 1), (3001, 130, 1), (70_001, 3, 1), (3, 1001, 1)),
    ],
    ids=str,
)
@pytest.mark.parametrize("residual", [False, True], ids=["plain", "residual"])
def test_gpu_equals_cpu_on_many_blocks(shape, dtype, residual):
    v = Values(shape, residual=residual, dtype=dtype)
    expected = v.compose()
    v.dy[np.abs(expected["before"]) < 1e-4] = 0  # there a rounding decides the sign
    results = []
    for place in (harness.HostArrays(), harness.CudaArrays()):
        fused = Fused(place, v)
        results.append({"y": fused.forward(), **fused.backward(read_y=residual), "mean": place.get(fused.mean)})
    tolerance = 3e-5 if dtype is np.float32 else 1e-11
    for k, cpu in results[0].items():
        near(results[1][k], cpu, tolerance)


def test_few_threads_are_idle_where_channels_are_not_a_power_of_two():
    found = {packs: threads_across(packs) for packs in (1, 4, 8, 24, 36, 48, 64, 96, 144, 240)}
    assert found == {1: 1, 4: 4, 8: 8, 24: 8, 36: 8, 48: 16, 64: 32, 96: 32, 144: 32, 240: 32}
