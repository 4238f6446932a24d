"""The kernel of the gradient of normalised rows, run on the host: written or added, its values are the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.cuda.norm import rows
from pycaffe_lms.ops.cuda.norm.layer_norm import layer_norm_backward
from pycaffe_lms.ops.records import AffineGradients, RowMoments, RowNorm, RowNormGradients

from .emulated import COMPILER, Kernels
from .test_cuda_launches import shown

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("centred", [False, True], ids=["RMSNorm", "LayerNorm"])
@pytest.mark.parametrize("size", [(9, 40), (3, 33), (2, 1203), (2, 2052)], ids=str)
def test_a_bottom_s_gradient(size, centred, accumulate, tmp_path, monkeypatch):
    rng, launched = np.random.default_rng(3), []

    def launch(source, name, dtype, threads, *args, block, grid):
        launched.append(name)
        Kernels(tmp_path, dtype, {name: source}).run(name, grid, block, *args)

    monkeypatch.setattr(rows, "launch", launch)
    x, dy, start = (rng.normal(size=size).astype(np.float32) for _ in range(3))
    scale, mean, inv_std = (rng.uniform(0.5, 2, n).astype(np.float32) for n in (size[1], size[0], size[0]))
    moments, found = RowMoments(mean if centred else None, inv_std), []
    for operation, of in ((load_ops("cpu").functions()["layer_norm_backward"], np.array), (layer_norm_backward, shown)):
        dx = start.copy() if accumulate else np.full_like(start, np.nan)
        given = [of(a) for a in (x, scale, dy)]
        gradients = RowNormGradients(dx.view(type(given[0])), AffineGradients(None, None), accumulate)
        operation(*given, gradients, moments, None, RowNorm(*size, 1e-5))
        found.append(dx)
    assert launched == ["backward"]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-5)
