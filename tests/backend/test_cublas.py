"""Check that products of cuBLAS stay on our stream, whatever a user does with CuPy in between."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available, get_device


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_a_users_product_does_not_move_ours_to_another_stream():
    """Let ours read values written after a pause of the compute stream; the user's runs on CuPy's default stream."""
    import cupy

    device, ones = get_device("cuda"), np.ones((64, 64), np.float32)
    with device.active():
        a, b, c = (cupy.zeros((64, 64), cupy.float32) for _ in range(3))
        cuda.gemm(False, False, 64, 64, 64, 1.0, a, b, 0.0, c)  # the thread's handle is made
    device.synchronize()
    x = cupy.ones((64, 64), cupy.float32)
    cupy.cuda.Device().synchronize()
    for _ in range(2):
        assert float((x @ x).sum()) == 64**3  # on the default stream
        with device.active():
            a.fill(0)
            device.pause(0.05)
            a.fill(1)
            b.fill(1)
            cuda.gemm(False, False, 64, 64, 64, 1.0, a, b, 0.0, c)
        device.synchronize()
        np.testing.assert_array_equal(cupy.asnumpy(c), ones * 64)
