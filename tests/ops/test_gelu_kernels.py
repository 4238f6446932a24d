"""GELU of bfloat16 values on a GPU, with the kernels compiled for the host."""

from __future__ import annotations

import math

import numpy as np
import pytest

from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.ops.cuda.activation import gated
from pycaffe_lms.ops.cuda.elementwise import SPAN, THREADS

from .emulated import COMPILER, Kernels
from .test_bfloat16 import half

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


def test_gelu_is_that_of_the_normal_distribution(tmp_path):
    """All values of bfloat16 from -12 to 12, against Phi and its density in float64."""
    sources = {
        f"gelu_{name}": gated._gelu("gelu", name == "backward").replace(f" {name}(", f" gelu_{name}(")
        for name in ("forward", "backward")
    }
    kernels = Kernels(tmp_path, BFLOAT16, sources)
    x = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)
    x = x[np.abs(x) <= 12]  # which is false of NaN; results are no subnormal numbers, which a GPU has not
    given, y, slope, blocks = half(x), half(x), half(x), -(-x.size // SPAN)
    kernels.run("gelu_forward", blocks, THREADS, given, y, 0, x.size)
    kernels.run("gelu_backward", blocks, THREADS, given, half(np.ones_like(x)), slope, 0, x.size)
    wide = x.astype(float)
    phi = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in wide])
    exact = wide * phi
    assert np.abs(y.astype(int) - half(exact).astype(int))[np.abs(exact) > 1e-37].max() <= 1  # the next number
    exact = phi + wide * np.exp(-0.5 * wide**2) / math.sqrt(2 * math.pi)
    got = (slope.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(got, exact, rtol=2**-8, atol=2e-6)  # two terms nearly cancel somewhere
