"""What CUDA operations hand their kernels, without a GPU: as many arguments as a kernel takes, of the right kinds."""

from __future__ import annotations

import functools
import inspect
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.backend.cpu import CpuDevice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.ops import Ops, load_ops
from tests.layers.all_cases import device_cases
from tests.layers.harness import HostArrays
from tests.lms import split_nets
from tests.lms.slab_nets import SLAB_NETS

from .emulated import COMPILER
from .test_bfloat16 import CASES as OPERATIONS

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
KINDS = {int: "long long", float: "double"}  # what CuPy passes a kernel for a number


class Shown(np.ndarray):
    """A view of a host array that has an address as a CuPy array does."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


def replaced(argument, by):
    """An argument with by(array) in place of each of its arrays."""
    if isinstance(argument, np.ndarray):
        return by(argument)
    if isinstance(argument, (list, tuple)):
        inside = [replaced(a, by) for a in argument]
        return argument._make(inside) if hasattr(argument, "_make") else type(argument)(inside)
    return argument


def shown(argument):
    return replaced(argument, lambda array: array.view(Shown))


@functools.cache
def parameters(source: str, name: str, dtype: str) -> list[str]:
    """Return the kinds of a kernel's parameters: "*" for a pointer, else the type."""
    text = cuda.prelude(dtype) + source
    done = subprocess.run(
        [COMPILER, "-E", "-P", "-x", "c++", "-"], input=text, capture_output=True, text=True, check=True
    )
    (inside,) = re.findall(rf"__global__\s+void\s+(?:__launch_bounds__\s*\(.*?\)\s*)?{name}\s*\(([^)]*)\)", done.stdout)
    return ["*" if "*" in p else re.sub(r"\bconst\b|\w+$", "", p.strip()).strip() for p in inside.split(",")]


class BothDevices(HostArrays):
    """The CPU, where each operation queues the kernels of a GPU too, as far as the Python before a launch goes."""

    def __init__(self):
        super().__init__()
        self.launched = []
        theirs = load_ops("cuda").functions()
        functions = {n: self._both(n, f, theirs[n]) for n, f in self.ops.functions().items()}
        self.ops = Ops("cpu", functions, self.ops.workspace_limit)

    def _both(self, name, ours, theirs):
        first = next(iter(inspect.signature(ours).parameters), "")
        if name.endswith("_plan") or first in ("plan", "host"):  # a plan of the CPU's, a copy from the host
            return ours

        @functools.wraps(ours)
        def run(*args, **kwargs):
            theirs(*shown(args), **{k: shown(v) for k, v in kwargs.items()})
            ours(*args, **kwargs)

        return run

    def launch(self, source, name, dtype, threads, *args, block=cuda.BLOCK, grid=None, shared=0):
        if threads > 0 or grid:
            kinds = ["*" if isinstance(a, np.ndarray) else KINDS[type(a)] for a in args]
            assert kinds == parameters(source, name, np.dtype(dtype).name), name
            self.launched.append(name)


@pytest.fixture(scope="module")
def device():
    both = BothDevices()
    with pytest.MonkeyPatch.context() as patch:
        for module in [m for n, m in sys.modules.items() if n.startswith("pycaffe_lms.ops.cuda.")]:
            if getattr(module, "launch", None) is cuda.launch:
                patch.setattr(module, "launch", both.launch)
        patch.setattr(cuda, "launch", both.launch)
        for product in ("gemm", "gemm_batched"):
            patch.setattr(cuda, product, lambda *args: None)
        yield both


def by_type():
    types: dict[str, list] = {}
    for _, case in device_cases():
        types.setdefault(case.type, []).append(case)
    return types


@pytest.mark.parametrize("type", sorted(by_type()))
def test_kernels_get_what_they_take(device, type):
    for case in by_type()[type]:
        rng = np.random.default_rng(case.seed)
        bench = case.bench(np.float32, device)
        bench.params = [np.abs(p) + 0.25 for p in bench.params]  # a running variance is positive
        tops = bench.forward(case.make_bottoms(rng))
        if any(bench.propagate_down) or any(bench.param_propagate):
            bench.backward([rng.normal(size=t.shape) for t in tops])


@pytest.mark.parametrize("net", sorted(SLAB_NETS))
def test_kernels_of_layers_in_slabs_get_what_they_take(device, net):
    """Windows with halos, BatchNorm in two passes, the pieces of Dropout: arrays that no layer's case makes."""
    cpu = CpuDevice()
    cpu.ops = device.ops
    split_nets.NETS[net] = SLAB_NETS[net]
    before = len(device.launched)
    split_nets.solver(net, cpu, LMSConfig(split_slabs=4)).step(1)
    launched = {name.rstrip("_124") for name in device.launched[before:]}  # without the elements of a unit
    assert {"add_columns", "copy_columns"} <= launched


def widened(array):
    """Zeros of float32 in place of an array of bfloat16, whose header a C++ compiler lacks."""
    return np.zeros(array.shape, np.float32) if array.dtype == BFLOAT16 else array


@pytest.mark.parametrize("name", sorted({case[0] for case in OPERATIONS}))
def test_kernels_that_fused_layers_use_get_what_they_take(device, name):
    for _, *args in (case for case in OPERATIONS if case[0] == name):
        device.ops.functions()[name](*replaced(args, widened))


def test_a_missing_argument_is_found(device):
    from pycaffe_lms.ops.cuda.shape.argmax import _SOURCE

    x = np.zeros(3, np.float32).view(Shown)
    with pytest.raises(AssertionError, match="places"):
        device.launch(_SOURCE, "places", "float32", 3, x, x, 1, 0, 1, 3, 1)
    with pytest.raises(KeyError):
        device.launch(_SOURCE, "places", "float32", 3, x, x, 1, False, 1, 1, 3, 1)
