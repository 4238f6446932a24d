"""A rehearsal notes the kernels that passes launch, without arrays. No GPU: kernels are noted in place of launched."""

from __future__ import annotations

import functools
import inspect
import logging
import threading

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, get_device
from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.backend.cpu import CpuDevice
from pycaffe_lms.backend.cuda import rehearsal
from pycaffe_lms.net.run.rehearsal import Imagined, Rehearsal, imagined
from pycaffe_lms.ops import Ops, load_ops
from pycaffe_lms.ops.cuda import basic
from tests.ops.test_cuda_launches import shown

from .nets import make_net

NET = """
layer { name: "x" type: "Input" top: "x" top: "label" input_param {
  shape { dim: 4 dim: 16 dim: 6 dim: 6 } shape { dim: 4 } } }
layer { name: "bn" type: "BatchNorm" bottom: "x" top: "bn" }
layer { name: "scale" type: "Scale" bottom: "bn" top: "scale" scale_param { bias_term: true } }
layer { name: "relu" type: "ReLU" bottom: "scale" top: "relu" }
layer { name: "lrn" type: "LRN" bottom: "relu" top: "lrn" }
layer { name: "pool" type: "Pooling" bottom: "lrn" top: "pool" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "mean" type: "Pooling" bottom: "lrn" top: "mean" pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: "both" type: "Concat" bottom: "pool" bottom: "mean" top: "both" }
layer { name: "drop" type: "Dropout" bottom: "both" top: "drop" }
layer { name: "ip" type: "InnerProduct" bottom: "drop" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "gate" type: "Sigmoid" bottom: "ip" top: "gate" }
layer { name: "sum" type: "Eltwise" bottom: "ip" bottom: "gate" top: "sum" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "sum" bottom: "label" top: "loss" }
layer { name: "top" type: "Accuracy" bottom: "sum" bottom: "label" top: "top" }
"""


def _ops(of):
    """Return operations: of(the CPU's, the GPU's) for each that needs no plan of the GPU's."""
    ours, theirs = load_ops("cpu"), load_ops("cuda").functions()

    def chosen(name, function):
        first = next(iter(inspect.signature(function).parameters), "")
        return function if name.endswith("_plan") or first in ("plan", "host") else of(function, theirs[name])

    return Ops("cpu", {n: chosen(n, f) for n, f in ours.functions().items()}, ours.workspace_limit)


def _is_imagined(argument):
    inside = isinstance(argument, (list, tuple)) and any(map(_is_imagined, argument))
    return inside or isinstance(argument, Imagined)


def _both(ours, theirs):
    @functools.wraps(ours)
    def run(*args, **kwargs):
        if _is_imagined(args):
            theirs(*args, **kwargs)
        else:
            theirs(*shown(args), **{k: shown(v) for k, v in kwargs.items()})
            ours(*args, **kwargs)

    return run


@pytest.fixture
def net():
    device = CpuDevice()
    device.ops = _ops(_both)
    net = make_net(NET, device=device)
    net.blobs["x"].data[...] = np.random.default_rng(1).normal(size=(4, 16, 6, 6))
    return net


def test_what_is_noted_is_what_passes_launch(net, caplog):
    caplog.set_level(logging.INFO)
    with rehearsal.rehearsing() as launched:
        net.forward()
        net.backward()
    forwards, backwards = (net.memory.steps(key) for key in net.memory.programs.bound)
    with rehearsal.rehearsing() as noted:
        Rehearsal(net.run_graph, net.device, net.dtype).rehearse([*forwards, *backwards])
    assert noted.keys() == launched.keys() and len(noted) > 20
    assert "its kernels are compiled when it runs" not in caplog.text


class _Ranks:
    """Stand for two ranks with equal batches, and count what this one gives to the other."""

    size, rank, can_capture, calls = 2, 0, True, 0

    def all_gather(self, parts):
        self.calls += 1
        parts[1][...] = parts[0]

    def sum(self, arrays):
        self.calls += 1
        for a in arrays:
            a *= 2


def test_a_rehearsal_exchanges_nothing_with_other_ranks(caplog):
    """Arrays without memory would go through NCCL; and the other ranks might not rehearse."""
    caplog.set_level(logging.INFO)
    synchronized = NET.replace('top: "bn" }', 'top: "bn" batch_norm_param { sync: true } }')
    net, ranks = make_net(synchronized, device=CpuDevice(), solver_count=2), _Ranks()
    (node,) = net.run_graph.exchanging
    node.layer.join(ranks)
    net.blobs["x"].data[...] = np.random.default_rng(1).normal(size=(4, 16, 6, 6))
    net.forward()
    net.backward()
    assert ranks.calls == 1  # nobody wants the gradient of "x"
    with rehearsal.rehearsing():
        for key in net.memory.programs.bound:
            Rehearsal(net.run_graph, net.device, net.dtype).rehearse(net.memory.steps(key))
    assert ranks.calls == 1 and "bn" not in "".join(m for m in caplog.messages if "compiled when it runs" in m)


def test_an_operation_that_cannot_be_rehearsed_is_told_of(net, caplog):
    caplog.set_level(logging.INFO)
    with rehearsal.rehearsing():
        net.forward()
    (key,) = net.memory.programs.bound

    def fail(*args, **kwargs):
        raise TypeError("no such attribute")

    net.device.ops.bind("inner_product_forward", fail)
    with rehearsal.rehearsing() as noted:
        Rehearsal(net.run_graph, net.device, net.dtype).rehearse(net.memory.steps(key))
    said = [line for line in caplog.messages if "compiled when it runs" in line]
    assert len(said) == 1 and "ip" in said[0] and "no such attribute" in said[0] and noted


def test_other_threads_launch_as_always(monkeypatch):
    launched = []
    monkeypatch.setattr(cuda, "kernel", lambda *key: lambda *args, **more: launched.append(key))

    def launch():
        cuda.launch("source", "name", np.float32, 1)

    with rehearsal.rehearsing() as noted:
        launch()
        thread = threading.Thread(target=launch)
        thread.start()
        thread.join()
    launch()
    assert [*noted] == [("source", "name", "float32")] and launched == [("source", "name", "float32")] * 2


@pytest.mark.parametrize("shape", [(2, 3, 4), (), (0, 5), (1 << 20, 1 << 20)])
def test_imagined_arrays_have_all_that_operations_ask_for(shape):
    array = imagined(shape, np.float32, 512)
    assert (array.shape, array.dtype, array.nbytes) == (shape, np.float32, int(np.prod(shape)) * 4)
    assert array.data.ptr == 512 and array.reshape(-1).shape == (array.size,)
    array.fill(3)
    if len(shape) > 1:
        assert array.view(BFLOAT16).shape == (*shape[:-1], 2 * shape[-1])
        assert (
            array[1:, 0].shape == (max(0, shape[0] - 1), *shape[2:])
            and array[1:].reshape(-1).view(np.uint8).data.ptr == 512
        )


@pytest.mark.gpu
def test_the_first_run_compiles_nothing_more(monkeypatch):
    if not cuda.available():
        pytest.skip("no GPU")
    compiled, launched, compile_kernels, kernel = set(), set(), cuda.compile_kernels, cuda.kernel

    def ahead(noted):
        compiled.update(noted)
        compile_kernels(noted)

    def named(*key):
        launched.add(key)
        return kernel(*key)

    device = get_device("cuda")
    conv = 'layer { name: "conv" type: "Convolution" bottom: "x" top: "x2" convolution_param { num_output: 16 '
    conv += "kernel_size: 3 pad: 1 } }"
    first, bn = NET.split('layer { name: "bn"')
    net = make_net(first + conv + 'layer { name: "bn"' + bn.replace('bottom: "x"', 'bottom: "x2"'), device=device)
    monkeypatch.setattr(basic, "compile_kernels", ahead)
    monkeypatch.setattr(cuda, "kernel", named)
    net.forward()
    net.backward()
    assert launched <= compiled and len(launched) > 20
