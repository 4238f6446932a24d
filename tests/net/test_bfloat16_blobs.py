"""Blobs that are stored as bfloat16: users read and write them as float32."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DeviceError, DiscardedRead, UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning
from tests.ops.test_bfloat16 import half

from .nets import CPU, conv, inputs, ip, layer, loss, make_net, relu

TEXT = (
    inputs(data=(4, 3, 8, 8), label=(4,))
    + conv("a", "data", 4)
    + relu("r", "a")
    + layer("p", "Pooling", "a", text="pooling_param { pool: AVE kernel_size: 2 stride: 2 }")
    + conv("b", "p", 6)
    + ip("scores", "b", 5)
    + loss("scores")
)
PLACES = {
    "cpu": lambda **lms: {"device": get_device("cpu")},
    "sim": lambda **lms: {"device": SimDevice(64 << 20, order="random", seed=2), "lms": LMSConfig(**lms)},
    "lms": lambda **lms: {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=1, **lms)},
}


def net_of(place="cpu", last=False, text=TEXT, **lms):
    tuning = Tuning(fuse=False, masks=False, half=True, channels_last=last)
    net = make_net(f"force_backward: true {text}", CPU, tuning=tuning, **PLACES[place](**lms))
    rng = np.random.default_rng(1)
    net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape)
    net.blobs["label"].data[...] = rng.integers(0, 5, 4)
    return net


def as_float(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.fixture(params=PLACES)
def place(request):
    return request.param


@pytest.mark.parametrize("last", [False, True])
def test_data_and_diff_are_float32_of_values_that_16_bits_hold(place, last):
    net = net_of(place, last)
    net.forward()
    net.backward()
    assert {v.name for v in net.graph.values if v.half} == {"a", "p", "b"}
    for name, blob in net.blobs.items():
        for array in (blob.data, blob.diff, blob.read_data()):
            assert array.dtype == np.float32 and array.shape == blob.shape
            assert name not in ("a", "p", "b") or np.array_equal(as_float(half(array)), array)
    x = net.blobs["a"].data
    means = as_float(half(x.reshape(4, 4, 4, 2, 4, 2).mean((3, 5), dtype=np.float64)))
    np.testing.assert_array_equal(net.blobs["p"].data, means)


def test_what_is_written_is_what_the_net_uses(place):
    net = net_of(place)
    net.forward()
    view = net.blobs["p"].data
    view[...] = 0
    net.blobs["p"].data[0, 0] = 1.5
    net.forward(start="b")
    x = net.blobs["p"].data
    assert x is not view and x.sum() == 1.5 * 16
    net.blobs["b"].diff[...] = 0.3
    assert net.blobs["b"].diff[0, 0, 0, 0] == np.float32(0.3)
    net.backward(start="b")
    assert net.blobs["b"].diff[0, 0, 0, 0] == as_float(half([0.3]))[0]
    np.testing.assert_allclose(
        net.params["b"][1].diff, 4 * 16 * as_float(half([0.3]))[0], rtol=1e-5
    )  # the bias adds up what is stored


def test_a_view_that_is_held_shows_the_newest_values(place):
    net = net_of(place)
    net.forward()
    view = net.blobs["b"].data
    before = view.copy()
    net.blobs["data"].data[...] *= 2
    net.forward()
    assert not np.array_equal(view, before)
    np.testing.assert_array_equal(view, net.blobs["b"].data)


def test_parts_of_the_batch(place):
    whole, parts = net_of(place), net_of(place, split=2)
    for net in (whole, parts):
        net.forward()
        net.backward()
    if place != "cpu":
        assert len(parts.run_graph.nodes) > len(whole.run_graph.nodes)
    for name in whole.blobs:
        np.testing.assert_allclose(parts.blobs[name].data, whole.blobs[name].data, rtol=2**-7, atol=1e-6)


def test_there_is_no_gpu_array():
    net = net_of("sim")
    net.forward()
    with pytest.raises(UsageError, match='"a.data" is stored as bfloat16') as caught:
        net.blobs["a"].gpu_data  # noqa: B018
    assert "-math tf32" in caught.value.fix
    with pytest.raises(DeviceError):
        net_of("cpu").blobs["a"].gpu_data  # noqa: B018


def test_a_dropped_value_says_so():
    from tests.lms.test_bfloat16 import make_solver

    solver = make_solver("chain", SimDevice(64 << 20), LMSConfig(threshold_kb=1))
    held = solver.net.blobs["conv1"]
    solver.step(1)
    with pytest.raises(DiscardedRead) as caught:
        held.data  # noqa: B018
    assert 'net.keep("conv1")' in caught.value.fix
    solver.net.keep("conv1")
    solver.step(1)
    kept = solver.net.blobs["conv1"].data
    np.testing.assert_array_equal(as_float(half(kept)), kept)
    assert np.abs(kept).max() > 0


def test_a_reshaped_net_follows(place):
    net = net_of(place)
    net.forward()
    net.blobs["data"].reshape(2, 3, 8, 8)
    net.blobs["label"].reshape(2)
    net.blobs["data"].data = 1
    net.forward()
    assert net.blobs["a"].data.shape == (2, 4, 8, 8) and net.blobs["a"].data.any()
