"""The solver's update against its formula in float64."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.ops.cpu.update import sgd_update


@pytest.mark.parametrize("dtype, tolerance", [(np.float32, 1e-6), (np.float64, 1e-14)], ids=["f32", "f64"])
@pytest.mark.parametrize("l1", [False, True], ids=["L2", "L1"])
@pytest.mark.parametrize("momentum, decay, grad_scale", [(0.9, 5e-4, 1.0), (0, 0, 1.0), (0.5, 0.01, 0.25)])
@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (70_001,)], ids=str)
def test_sgd_is_the_formula(dtype, tolerance, l1, momentum, decay, grad_scale, shape):
    rng = np.random.default_rng(1)
    param, diff, history = (np.asarray(rng.normal(size=shape), dtype) for _ in range(3))
    if shape == (3, 4):
        param[0] = 0  # the sign of zero is zero
    w, g, h = (a.astype(np.float64) for a in (param, diff, history))
    for _ in range(3):
        g = grad_scale * g + decay * (np.sign(w) if l1 else w)
        h = momentum * h + 0.1 * g
        w, g = w - h, h
        sgd_update(param, diff, history, 0.1, momentum, decay, l1, grad_scale)
    for got, want in ((param, w), (diff, g), (history, h)):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
