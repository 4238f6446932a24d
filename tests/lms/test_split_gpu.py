"""Nets in parts on a real GPU: the numbers of the whole net, and with Large Model Support the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning

from .nets import train
from .split_nets import SPLIT, solver

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]


@pytest.fixture
def device():
    device = get_device("cuda")
    device.set_budget(None)
    yield device
    device.synchronize()
    device.set_budget(None)


@pytest.mark.parametrize("last", [False, True], ids=["nchw", "nhwc"])
@pytest.mark.parametrize("parts", [2, 3, 7])
@pytest.mark.parametrize("net", SPLIT)
def test_in_parts_a_net_trains_to_the_same_numbers(net, parts, last, device):
    tuning = Tuning(channels_last=last)
    losses, values = train(solver(net, get_device("cpu"), dtype="float64"), 3)
    s = solver(net, device, LMSConfig(split=parts), "float64", tuning)
    ours = train(s, 3)
    np.testing.assert_allclose(ours[0], losses, rtol=1e-9)
    for a, b in zip(ours[1], values, strict=True):
        a, b = np.frombuffer(a), np.frombuffer(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-9 * np.abs(b).max())
    s.runtime.close()


@pytest.mark.parametrize("net", SPLIT)
def test_large_model_support_changes_no_bit(net, device):
    """Six iterations: the later ones are replayed from a recording."""
    expected = train(solver(net, device, LMSConfig(split=3), tuning=Tuning(graph=True)), 6)
    for lms in (
        LMSConfig(threshold_kb=1, split=3),
        LMSConfig(threshold_kb=1, split=3, ahead=0, sync=3),
        LMSConfig(auto=True, threshold_kb=1, split=3),
    ):
        s = solver(net, device, lms, tuning=Tuning(graph=True))
        assert train(s, 6) == expected, lms
        s.runtime.close()
