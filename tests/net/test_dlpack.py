"""Blobs in other libraries without a copy, through DLPack: NumPy, PyTorch and CuPy see the net's own memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DiscardedRead, UsageError

from ..solvers.helpers import make
from .nets import inputs, ip, layer, loss, make_net, relu
from .open_sim import OpenSim

# z = (2 x + 1)^2: every value is known
TEXT = (
    "force_backward: true\n"
    + inputs(x=(2, 300))
    + layer("y", "Power", "x", text="power_param { scale: 2 shift: 1 }")
    + layer("z", "Power", "y", text="power_param { power: 2 }")
)
HOSTS = {"cpu": lambda: get_device("cpu"), "sim": lambda: SimDevice(64 << 20)}


@pytest.fixture(params=HOSTS)
def net(request):
    return make_net(TEXT, device=HOSTS[request.param]())


def test_numpy_takes_a_blob(net):
    """Its memory, both ways: runs write what it sees; where it may write, the next run reads that."""
    x, z = net.blobs["x"], net.blobs["z"]
    x.data[...] = 1
    seen = np.from_dlpack(z)
    assert seen.shape == (2, 300) and seen.dtype == np.float32 and np.shares_memory(seen, z.data)
    for k in (1, 2, 3):
        x.data[...] = k
        net.forward_range()
        assert (seen == (2 * k + 1) ** 2).all()
    taken = np.from_dlpack(x)
    if taken.flags.writeable:  # since NumPy 2.1
        taken[...] = 4
        net.forward_range()
        assert (seen == 81).all()


def test_where_it_is(net):
    assert net.blobs["x"].__dlpack_device__() == (1, 0)


def test_gradients_and_arrays(net):
    net.blobs["x"].data[...] = 1
    net.forward_range()
    net.blobs["z"].diff[...] = 1
    seen = np.from_dlpack(net.blobs["x"].diff)
    net.backward_range()
    np.testing.assert_allclose(seen, 4 * 3)


def test_it_outlives_the_net(net):
    net.blobs["x"].data[...] = 1
    net.forward_range()
    seen = np.from_dlpack(net.blobs["z"])
    del net
    gc.collect()
    assert (seen == 9).all()


def test_an_unused_capsule_holds_the_value_no_longer_than_it_lives():
    net = make_net(TEXT, device=OpenSim(64 << 20))
    blob = net.blobs["x"]
    capsule = blob.__dlpack__()
    with pytest.raises(UsageError, match="still held"):
        _ = blob.gpu_data
    del capsule
    assert blob.gpu_data.shape == (2, 300)


def test_the_errors_of_data():
    """A GPU array is held; the value was not kept."""
    net = make_net(TEXT, device=OpenSim(64 << 20))
    array = net.blobs["x"].gpu_data
    with pytest.raises(UsageError, match="still held"):
        np.from_dlpack(net.blobs["x"])
    del array
    text = inputs(x=(4, 300), label=(4,)) + ip("a", "x", 300) + relu("r", "a", "b") + ip("fc", "b", 3) + loss("fc")
    solver = make(text, lambda: {"device": SimDevice(64 << 20), "lms": caffe.LMS(1)})
    solver.step(1)
    with pytest.raises(DiscardedRead, match=r'net.keep\("b"\)'):
        np.from_dlpack(solver.net.blobs["b"])


def test_pytorch_takes_a_blob_on_the_host(net):
    torch = pytest.importorskip("torch")
    x, z = torch.from_dlpack(net.blobs["x"]), torch.from_dlpack(net.blobs["z"])
    assert z.shape == (2, 300) and z.dtype == torch.float32 and z.device.type == "cpu"
    for k in (1, 2):
        x.fill_(k)
        net.forward_range()
        assert (z == (2 * k + 1) ** 2).all()
    net.blobs["x"].data[...] = torch.full((2, 300), 3.0)
    net.forward_range()
    assert (z == 49).all()


# -- on a GPU --------------------------------------------------------------------------------------------------------
@pytest.fixture
def on_gpu(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(TEXT)
    caffe.set_mode_gpu()
    try:
        return caffe.Net(str(path), caffe.TEST)
    finally:
        caffe.set_mode_cpu()


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_pytorch_takes_a_blob_on_a_gpu(on_gpu):
    """Written on a stream of PyTorch's own, without a wait: the net waits for it, and PyTorch sees what it wrote."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("a PyTorch without CUDA")
    net = on_gpu
    x, z = torch.from_dlpack(net.blobs["x"]), torch.from_dlpack(net.blobs["z"])
    assert z.device.type == "cuda" and z.shape == (2, 300)
    assert x.data_ptr() == net.blobs["x"].gpu_data.data.ptr
    with torch.cuda.stream(torch.cuda.Stream()):
        for k in (1, 2, 3):
            large = torch.ones(4000, 4000, device="cuda")
            for _ in range(20):
                large = large @ large / 4000  # stays 1: the value arrives late
            x.copy_((k * large[0, :1]).expand(2, 300))
            net.forward_range()
            assert (z == (2 * k + 1) ** 2).all()
    with pytest.raises(UsageError, match="still held"):
        _ = net.blobs["z"].data
    del x, z
    assert (net.blobs["z"].data == 49).all()


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_cupy_takes_a_blob(on_gpu):
    import cupy

    net = on_gpu
    x, z = cupy.from_dlpack(net.blobs["x"]), cupy.from_dlpack(net.blobs["z"])
    assert net.blobs["x"].__dlpack_device__() == (2, get_device("cuda").index)
    assert x.data.ptr == net.blobs["x"].gpu_data.data.ptr
    with cupy.cuda.Stream(non_blocking=True):
        for k in (1, 2):
            x[...] = k
            net.forward_range()
            assert (cupy.asnumpy(z) == (2 * k + 1) ** 2).all()
