"""Sigmoids in float32 far from 0: as near to the function in float64 as float32 allows, and their gradients too."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available

from .harness import CudaArrays, HostArrays, LayerBench

X = np.linspace(-100, 100, 20001, dtype=np.float32)
EXACT = X.astype(np.float64)
TRUE = 1 / (1 + np.exp(-EXACT))  # in float64; 1 - TRUE is 1 / (1 + e^x), without a difference
OTHER = 1 / (1 + np.exp(EXACT))
ROUNDINGS = 6 * 2.0**-23


@pytest.fixture(
    params=[
        "cpu",
        pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]),
    ]
)
def device(request):
    return HostArrays() if request.param == "cpu" else CudaArrays()


def _least(device):
    """Return the distance of the smallest numbers: kernels on a GPU treat those below 2^-126 as 0."""
    return 2.0 ** (-149 if device.name == "cpu" else -126)


def _assert_rounded(device, found, expected, scale=None, factor=1):
    """Assert that |found - expected| is a few units in the last place of `scale` (default: of `expected`)."""
    assert np.isfinite(found).all()
    bound = ROUNDINGS * np.abs(expected if scale is None else scale) + 4 * factor * _least(device)
    error = np.abs(np.asarray(found, np.float64).ravel() - expected)
    worst = int((error - bound).argmax())
    assert error[worst] <= bound[worst], (X[worst], found.ravel()[worst], expected[worst])


def test_sigmoid(device):
    bench = LayerBench("Sigmoid", "", (X.shape,), dtype=np.float32, device=device)
    (y,) = bench.forward([X])
    _assert_rounded(device, y, TRUE)
    ((dx,), _) = bench.backward([np.ones_like(X)])
    _assert_rounded(device, dx, y.astype(np.float64) * (1 - y.astype(np.float64)))  # of the top's value, as in Caffe
    low = X < 0
    _assert_rounded(device, dx[low], (TRUE * OTHER)[low])
    np.testing.assert_allclose(dx, TRUE * OTHER, rtol=0, atol=2.0**-23)  # above 0 it is as exact as 1 - y is


@pytest.mark.parametrize("beta", [0.5, 1, 2])
def test_swish(device, beta):
    bench = LayerBench("Swish", f"swish_param {{ beta: {beta} }}", (X.shape,), dtype=np.float32, device=device)
    u = beta * EXACT
    s, other = 1 / (1 + np.exp(-u)), 1 / (1 + np.exp(u))
    (y,) = bench.forward([X])
    _assert_rounded(device, y, EXACT * s, factor=100)
    ((dx,), _) = bench.backward([np.ones_like(X)])
    # the slope is a sum that is 0 near u = -1.28: exact to the roundings of its parts
    _assert_rounded(device, dx, s * (1 + u * other), scale=s * (1 + np.abs(u) * other), factor=200)


def test_the_slope_of_swish_is_1_however_large_the_input(device):
    bench = LayerBench("Swish", "", ((3,),), dtype=np.float32, device=device)
    bench.forward([np.array([1e4, 1e30, 3e38])])
    ((dx,), _) = bench.backward([np.ones(3)])
    assert dx.tolist() == [1, 1, 1]


@pytest.mark.parametrize("gate", ["i", "f", "o"])
def test_gates_of_one_lstm_step(device, gate):
    """Choose c_prev so that c or h is the gate's value, where the other two gates and g = tanh(100) are 1."""
    n = len(X)
    bench = LayerBench("LSTMUnit", "", ((1, n, 1), (1, n, 4), (1, n)), n_top=2, dtype=np.float32, device=device)
    gates = np.full((1, n, 4), 100, np.float32)
    gates[..., "ifo".index(gate)] = X
    if gate == "f":
        gates[..., 0] = -200  # its sigmoid is 0 in float32
    c_prev = np.full((1, n, 1), {"i": 0, "f": 1, "o": 49}[gate], np.float32)
    c, h = bench.forward([c_prev, gates, np.ones((1, n))])
    _assert_rounded(device, h if gate == "o" else c, TRUE)
    grads = [np.zeros_like(c), np.ones_like(h)] if gate == "o" else [np.ones_like(c), np.zeros_like(h)]
    (_, dx, _), _ = bench.backward(grads)
    low = X < 0
    _assert_rounded(device, dx[0, :, "ifo".index(gate)][low], (TRUE * OTHER)[low])


def test_the_input_gate_of_an_lstm(device):
    """Run one time step of one unit whose gates are 1, except i: h = tanh(sigmoid(x))."""
    n = len(X)
    bench = LayerBench(
        "LSTM", "recurrent_param { num_output: 1 }", ((1, n, 1), (1, n)), dtype=np.float32, device=device
    )
    bench.params = [
        np.array([[1], [0], [0], [0]], np.float32),
        np.array([0, 100, 100, 100], np.float32),
        np.zeros((4, 1), np.float32),
    ]
    (h,) = bench.forward([X.reshape(1, n, 1), np.zeros((1, n))])
    _assert_rounded(device, h, np.tanh(TRUE))
    (dx, _), _ = bench.backward([np.ones_like(h)])
    low = X < 0
    _assert_rounded(device, dx.ravel()[low], (TRUE * OTHER * (1 - np.tanh(TRUE) ** 2))[low])


def test_the_gradient_of_cross_entropy_for_targets_of_0(device):
    text = "loss_param { normalization: NONE }"
    bench = LayerBench("SigmoidCrossEntropyLoss", text, ((len(X), 1),) * 2, dtype=np.float32, device=device)
    bench.forward([X.reshape(-1, 1), np.zeros((len(X), 1))])
    (dx, _), _ = bench.backward([np.ones(())])
    _assert_rounded(device, dx, TRUE)
