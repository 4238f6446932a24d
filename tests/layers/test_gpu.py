"""Every layer case on the CPU and on a GPU: same values forward, same gradients, in float64 and float32."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available

from .all_cases import as_params, device_cases
from .harness import CudaArrays, HostArrays

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]


@pytest.fixture(scope="module")
def gpu():
    cuda.set_math("fp32")
    yield CudaArrays()
    cuda.set_math("tf32")


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", as_params(device_cases()))
def test_cpu_and_gpu_agree(case, dtype, gpu):
    tolerance = 1e-9 if dtype is np.float64 else 2e-4
    results = []
    for device in (HostArrays(), gpu):
        rng = np.random.default_rng(case.seed)
        bench = case.bench(dtype, device)
        bench.params = [np.abs(p) + 0.25 for p in bench.params]  # a running variance is positive
        bottoms = case.make_bottoms(rng)
        tops = bench.forward(bottoms)
        params = [np.array(p) for p in bench.params]
        result = [*tops, *params]
        if any(bench.propagate_down) or any(bench.param_propagate):
            diffs = [rng.normal(size=t.shape) for t in tops]
            bottom_diffs, param_diffs = bench.backward(diffs)
            result += [g for g in (*bottom_diffs, *param_diffs) if g is not None]
        results.append(result)
    for i, (ours, theirs) in enumerate(zip(*results, strict=True)):
        scale = max(1.0, float(np.abs(ours).max()) if ours.size else 1.0)
        np.testing.assert_allclose(theirs, ours, rtol=tolerance, atol=tolerance * scale, err_msg=f"array {i}")
