"""Exported views: after every run a NumPy view or GPU array that users keep has the current values, NaN, or raises."""

from __future__ import annotations

import gc
import logging
from dataclasses import dataclass

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DeviceError, DiscardedRead, UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning

from ..solvers.helpers import make
from .nets import conv, inputs, ip, layer, loss, make_net, make_solver, relu
from .open_sim import OpenSim

# y = 2 x + 1, z = y^2: every value is known
TEXT = (
    "force_backward: true\n"
    + inputs(x=(2, 300))
    + layer("y", "Power", "x", text="power_param { scale: 2 shift: 1 }")
    + layer("z", "Power", "y", text="power_param { power: 2 }")
)
CHAIN = (
    inputs(x=(4, 3, 6, 6), label=(4,))
    + conv("c", "x", 4)
    + layer("bn", "BatchNorm", "c", "c2")
    + layer("sc", "Scale", "c2", "c3", "scale_param { bias_term: true }")
    + relu("r", "c3", "c4")
    + ip("fc", "c4", 3)
    + loss("fc")
)


@dataclass
class On:
    """A place that is this device."""

    given: object
    lms: LMSConfig | None = None

    def device(self):
        return self.given


def feed(net):
    rng = np.random.default_rng(0)
    net.blobs["x"].data[...] = rng.normal(size=(4, 3, 6, 6))
    net.blobs["label"].data[...] = [0, 1, 2, 0]


# -- NumPy views -----------------------------------------------------------------------------------------------------
def test_a_held_view_is_written_and_renewed(place):
    net = make_net(TEXT, place)
    x, y, z = (net.blobs[n].data for n in "xyz")
    part = z[1, 5:7]  # of a view of a view: NumPy itself forgets what is between
    for k in range(1, 4):
        x[...] = k  # through the view that was taken before the first run
        net.forward_range()
        assert (y == 2 * k + 1).all() and (z == (2 * k + 1) ** 2).all() and (part == (2 * k + 1) ** 2).all()
    y[...] = 5
    net.forward_range(2)
    assert (part == 25).all()
    assert np.shares_memory(part, net.blobs["z"].data)


def test_gradients_too(place):
    net = make_net(TEXT, place)
    dz, dx = net.blobs["z"].diff, net.blobs["x"].diff
    for k in (1, 2):
        net.blobs["x"].data[...] = k
        net.forward_range()
        dz[...] = k
        net.backward_range()
        np.testing.assert_allclose(dx, k * 2 * (2 * k + 1) * 2)


def test_views_outlive_the_net(place):
    net = make_net(TEXT, place)
    x = net.blobs["x"].data
    x[...] = 1
    out = net.forward()["z"]
    del net
    gc.collect()
    assert (out == 9).all() and (x == 1).all()
    x[...] = 4
    assert x.sum() == 4 * 600


def test_what_nobody_holds_costs_nothing():
    device = SimDevice(64 << 20)
    net = make_net(TEXT, device=device)
    net.blobs["x"].data[...] = 1
    for _ in range(3):
        net.forward_range()
    moved = device.bytes_in, device.bytes_out
    assert moved == (2400, 0)  # x, once
    view = net.blobs["z"].data
    del view
    net.forward_range()
    assert (device.bytes_in, device.bytes_out) == (2400, 2400)


@pytest.mark.parametrize("graph", [False, True])
def test_a_held_parameter_follows_a_solver(graph):
    """Replayed runs too; and what is written to it between two iterations counts."""
    text = inputs(x=(2, 3), label=(2,)) + ip("fc", "x", 3) + loss("fc")

    def train(hold: bool):
        device = SimDevice(64 << 20)
        solver = make_solver(text, On(device))
        rng, seen = np.random.default_rng(3), []
        x, w = solver.net.blobs["x"], solver.net.params["fc"][0]
        held = (x.data, w.data) if hold else None
        for _ in range(6):
            for target in held or (x.data, w.data):
                target += rng.normal(size=target.shape).astype(np.float32)
            del target
            solver.step(1)
            seen.append((held[1] if hold else w.data).tobytes())
        return seen, device.launches

    plain, held = train(False), train(True)
    assert plain == held and plain[1] > 0


def test_a_dropped_value_is_nan_in_a_held_view(caplog):
    text = inputs(x=(4, 300), label=(4,)) + ip("a", "x", 300) + relu("r", "a", "b") + ip("fc", "b", 3) + loss("fc")
    solver = make_solver(text, On(SimDevice(64 << 20), LMSConfig(threshold_kb=1, ahead=1)))
    net = solver.net
    net.blobs["x"].data[...] = 1
    net.forward()
    view, diff = net.blobs["b"].data, net.blobs["b"].diff
    expected = view.copy()
    assert expected.any()
    with caplog.at_level(logging.WARNING):
        solver.step(1)
    assert np.isnan(view).all() and np.isnan(diff).all()
    assert 'A NumPy view of "b.data" is held' in caplog.text and 'net.keep("b")' in caplog.text
    with pytest.raises(DiscardedRead, match="net.keep"):
        _ = net.blobs["b"].data
    net.forward()
    assert not np.isnan(view).any() and (view >= 0).all()
    net.keep("b")
    solver.step(1)
    assert not np.isnan(net.blobs["b"].data).any()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_arithmetic_with_a_dropped_value_is_reported(device, dtype):
    """By NumPy, at the line that computes: a warning, or an error where the user wants one. Other NaN are silent."""
    solver = make(CHAIN, lambda: {"device": get_device(device)}, dtype=dtype)
    net = solver.net
    feed(net)
    net.forward_range()
    view = net.blobs["c3"].data
    assert type(view) is np.ndarray and view.dtype == dtype
    solver.step(1)
    usual = np.full_like(view, np.nan)
    uses = (
        np.sum,
        np.mean,
        lambda a: a * 2,
        lambda a: 1 - a[0, 1],
        lambda a: a.copy() + a,
    )
    for use in uses:
        with np.errstate(invalid="raise"):
            assert np.isnan(use(usual)).all()
            with pytest.raises(FloatingPointError, match="invalid value"):
                use(view)
        with pytest.warns(RuntimeWarning, match="invalid value"):
            assert np.isnan(use(view)).all()
    with np.errstate(all="raise"):  # looking is no use
        assert np.isnan(view).all() and "nan" in repr(view) and np.isnan(view[0].tolist()).all()
    net.forward_range()
    with np.errstate(invalid="raise"):
        assert np.isfinite(view.sum())


@pytest.mark.parametrize("device", ["cpu", "sim"])
def test_values_inside_a_chain_that_ran_as_one_are_not_stale(device, caplog):
    """A solver's iteration does not make them: reading says so, a held view is NaN, a forward by hand makes them."""
    solver = make_solver(CHAIN, On(get_device(device)))
    net = solver.net
    assert [g.members for g in net.graph.groups] == [(3, 4, 5)]
    feed(net)
    net.forward()
    view = net.blobs["c3"].data
    solver.step(1)
    assert np.isnan(view).all() and "net.keep" in caplog.text
    for name in ("c2", "c3"):
        with pytest.raises(DiscardedRead, match=f'net.keep."{name}"'):
            _ = net.blobs[name].data
        with pytest.raises(DiscardedRead):
            net.blobs[name].read_diff()
    assert (net.blobs["c4"].data >= 0).all() and net.blobs["c4"].data.any()
    net.forward()
    np.testing.assert_array_equal(np.maximum(net.blobs["c3"].data, 0), net.blobs["c4"].data)
    assert not np.isnan(view).any()


def test_a_view_of_an_older_shape_keeps_its_values(place):
    net = make_net(TEXT, place)
    net.blobs["x"].data[...] = 1
    old = net.forward()["z"]
    net.blobs["x"].reshape(3, 300)
    net.blobs["x"].data[...] = 2
    new = net.forward()["z"]
    assert old.shape == (2, 300) and (old == 9).all()
    assert new.shape == (3, 300) and (new == 25).all()


def test_channels_last(place):
    text = inputs(x=(2, 3, 4, 5)) + conv("c", "x", 4)
    net, other = (make_net(text, place, tuning=Tuning(channels_last=last)) for last in (True, False))
    assert net.blobs["c"].data_last and not other.blobs["c"].data_last
    views = [(n.blobs["x"].data, n.blobs["c"].data) for n in (net, other)]
    for k in (1, 2):
        for (x, _), n in zip(views, (net, other), strict=True):
            x[...] = np.arange(120).reshape(2, 3, 4, 5) * k
            n.forward_range()
        np.testing.assert_allclose(views[0][1], views[1][1], rtol=1e-5, atol=1e-5)
        assert views[0][1].shape == (2, 4, 4, 5) and not views[0][1].flags.c_contiguous


# -- GPU arrays ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("order", ["latest", "earliest", "random"])
def test_gpu_arrays_are_the_nets_memory(order):
    device = OpenSim(64 << 20, order=order, seed=3)
    net = make_net(TEXT, device=device)
    x = net.blobs["x"].gpu_data
    x[...] = 3
    net.forward_range()
    z = net.blobs["z"].gpu_data
    assert (z == 49).all()
    for k in (4, 5):
        x[...] = k
        waits = device.waits
        net.forward_range()
        assert device.waits >= waits + 2  # for the holder before, for the net after
        assert (z == (2 * k + 1) ** 2).all()
    assert device.bytes_in == 0
    dz = net.blobs["z"].gpu_diff
    dz[...] = 1
    net.backward_range()
    np.testing.assert_allclose(net.blobs["x"].diff, 4 * 11)
    del x, z, dz
    waits = device.waits
    net.forward_range()
    net.forward_range()
    assert device.waits <= waits + 1


def test_one_side_at_a_time():
    net = make_net(TEXT, device=OpenSim(64 << 20))
    blob = net.blobs["x"]
    host = blob.data
    with pytest.raises(UsageError, match='NumPy view of "x.data" is still held'):
        _ = blob.gpu_data
    host[...] = 2
    del host
    array = blob.gpu_data
    assert (array == 2).all()
    array[...] = 3
    for use in (lambda: blob.data, lambda: setattr(blob, "data", 1)):
        with pytest.raises(UsageError, match='GPU array of "x.data" is still held'):
            use()
    assert (blob.read_data() == 3).all()
    array[...] = 4
    assert (blob.read_data() == 4).all()
    array[...] = 5
    part = array[0, :2]
    del array
    with pytest.raises(UsageError, match="still held"):
        _ = blob.data
    part[...] = 6
    del part
    assert blob.data[0].tolist() == [6, 6] + [5] * 298 and (blob.data[1] == 5).all()


def test_what_a_holder_wrote_last_counts():
    """Written, looked at, written again and let go: the net reads the second."""
    net = make_net(TEXT, device=OpenSim(64 << 20))
    array = net.blobs["x"].gpu_data
    array[...] = 1
    look = net.blobs["x"].read_data()
    array[...] = 2
    del array
    net.forward_range()
    assert (net.blobs["z"].data == 25).all() and (look == 2).all()
    del look
    array = net.blobs["x"].gpu_data
    net.blobs["x"].read_data()
    array[...] = 3
    del array
    assert (net.blobs["x"].data == 3).all()


def test_what_a_layer_on_the_host_makes():
    """Its top is not on the device until somebody wants it there: whoever holds it does."""
    python = 'python_param { module: "tests.layers.user_layers" layer: "Tenfold" }'
    device = OpenSim(64 << 20)
    net = make_net(inputs(x=(2, 3)) + layer("p", "Python", "x", text=python), device=device)
    net.blobs["x"].data[...] = 1
    net.forward_range()
    array = net.blobs["p"].gpu_data
    for k in (2, 3):
        net.blobs["x"].data[...] = k
        net.forward_range()
        assert (array == 10 * k).all()


def test_large_model_support_moves_no_memory_that_is_held():
    net = make_net(TEXT, device=OpenSim(64 << 20), lms=LMSConfig(threshold_kb=1))
    net.blobs["x"].data[...] = 1
    net.forward_range()
    array = net.blobs["y"].gpu_data
    assert (array == 3).all()
    with pytest.raises(UsageError, match='GPU array of "y.data" is still held, but Large Model Support'):
        net.forward_range()
    array[...] = 7
    del array
    net.forward_range(2)
    assert (net.blobs["z"].data == 49).all()


def test_strides_of_channels_last():
    net = make_net(
        inputs(x=(2, 3, 4, 5)) + conv("c", "x", 4), device=OpenSim(64 << 20), tuning=Tuning(channels_last=True)
    )
    net.blobs["x"].data[...] = np.arange(120).reshape(2, 3, 4, 5)
    net.forward_range()
    array = net.blobs["c"].gpu_data
    assert array.shape == (2, 4, 4, 5) and array.strides == (4 * 80, 4, 4 * 20, 4 * 4)
    values = array.copy()
    with pytest.raises(UsageError, match="channels-last"):
        _ = net.blobs["c"]._gpu_data_ptr
    del array
    np.testing.assert_array_equal(net.blobs["c"].data, values)


def test_where_there_are_no_gpu_arrays():
    for device, words in ((get_device("cpu"), "runs on the CPU"), (SimDevice(1 << 20), "hands out no arrays")):
        blob = make_net(TEXT, device=device).blobs["x"]
        blob.data[...] = 3
        for name in ("gpu_data", "gpu_diff", "_gpu_data_ptr", "_gpu_diff_ptr"):
            with pytest.raises(DeviceError, match=words):
                getattr(blob, name)
        assert (blob.data == 3).all()


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_on_a_gpu(tmp_path):
    import cupy

    path = tmp_path / "net.prototxt"
    path.write_text(TEXT)
    caffe.set_mode_gpu()
    try:
        net = caffe.Net(str(path), caffe.TEST)
    finally:
        caffe.set_mode_cpu()
    x = net.blobs["x"].gpu_data
    assert isinstance(x, cupy.ndarray) and x.shape == (2, 300)
    z = cupy.from_dlpack(net.blobs["z"].gpu_data)
    for k in (3, 4):
        x[...] = k
        net.forward_range()
        assert (cupy.asnumpy(z) == (2 * k + 1) ** 2).all()
    assert x.__dlpack_device__() == (2, get_device("cuda").index)
    interface = x.__cuda_array_interface__
    assert interface["shape"] == (2, 300) and not interface["data"][1]
    with pytest.raises(UsageError, match="still held"):
        _ = net.blobs["z"].data
    pointer = x.data.ptr
    del x, z
    assert net.blobs["x"]._gpu_data_ptr == pointer
    assert (net.blobs["z"].data == 81).all()
    view = net.blobs["z"].data
    net.blobs["x"].data[...] = 1
    net.forward_range()
    assert (view == 9).all()
