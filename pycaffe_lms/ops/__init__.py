"""Heavy arithmetic, one signature per operation, one implementation per device.

`ops/cpu/<family>/<name>.py` and `ops/cuda/<family>/<name>.py` export the same functions with the same parameters (a
test compares them). Shapes and rules of the arguments stand in the docstrings of `cpu/` alone; those of `cuda/` repeat
their first lines. `Ops` groups them by name: layers call `io.ops.max_pool.forward(...)`. An operation writes its
results into arrays it is given and returns nothing, so that it can be queued. A function whose name ends in `_plan` is
host code that returns a plan object (or an answer) at once; such an object's `workspace_bytes` says how much device
workspace the operation will be handed.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

_ROOMS = {
    "": "basic half copy_all random update recurrent",
    "activation": "bits dropout gated pointwise prelu relu",
    "conv": "attention columns conv correlation depthwise embed inner_product local matmul",
    "detection": "box_codes nms",
    "loss": "accuracy center ctc ctc_decoder euclidean linear_softmax log_loss margin sigmoid_loss smooth_l1 softmax "
    "triplet",
    "norm": "batch_norm bn fused_norm layer_norm lrn mvn normalize scale",
    "pooling": "affine_sample pooling pooling_last pooling_nd roi roi_align stochastic_pool upsample warp",
    "shape": "argmax axpy concat crop eltwise filter interp pixels reduction resize reverse rotary rows tile transpose",
}
FAMILIES = tuple(f"{room}.{name}".lstrip(".") for room, names in _ROOMS.items() for name in names.split())

# Bytes of workspace that one operation may ask for where it can do with less. A constant of the device, because sums
# may depend on it: with and without Large Model Support a layer must compute the same bits.
WORKSPACE_LIMIT = {"cpu": 64 << 20, "cuda": 512 << 20}

_PASS = re.compile(r"(.+?)_((?:forward|backward).*)")
_MEMBER = re.compile(r"(.+?)_((?:forward|backward|plan).*)")


class NotBuilt(Exception):
    """Say, the first time that `conv_ahead_plan` asks, that a plan takes algorithms that are still to be built."""


class Operation(SimpleNamespace):
    """The functions of one operation: `forward`, `backward` (or several of each), and `plan` where it has one."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...


class Ops:
    """Every operation of one device: `ops.relu.forward(x, y, slope)`, `ops.fill(x, 0)`.

    The functions `relu_forward` and `relu_backward` of a family become `ops.relu`, with `conv_plan` beside
    `conv_forward` in `ops.conv`, and `eltwise_sum` as `ops.eltwise_sum.forward`; all others keep their names.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __init__(self, device: str, functions: Mapping[str, Callable[..., Any]], workspace_limit: int):
        self.device = device
        self.workspace_limit = workspace_limit
        self._functions: dict[str, Callable[..., Any]] = {}
        self._grouped = _groups(tuple(functions))
        for name, function in functions.items():
            self.bind(name, function)

    def bind(self, name: str, function: Callable[..., Any]) -> None:
        """Make this the function of that name from now on."""
        self._functions[name] = function
        group, member = _group_and_member(name)
        if group not in self._grouped:
            group, member = name, "forward"
        if group in self._grouped:
            setattr(self.__dict__.setdefault(group, Operation()), member, function)
        else:
            setattr(self, name, function)

    def wrapped(self, device: str, workspace_limit: int, wrap: Callable[[Callable[..., Any]], Any]) -> Ops:
        """Return these operations for another device: `wrap` of each, but for the `_plan` functions."""
        functions = {n: f if n.endswith("_plan") else wrap(f) for n, f in self._functions.items()}
        return Ops(device, functions, workspace_limit)

    def use_libraries(self) -> Ops:
        """Plan convolutions of the CPU for oneDNN from now on, where it is installed. Return the operations."""
        conv = importlib.import_module(f"pycaffe_lms.ops.{self.device}.conv.conv")
        self.bind("conv_plan", conv.library_conv_plan)
        return self

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return name -> function, of every operation."""
        return dict(self._functions)

    def signatures(self) -> dict[str, tuple[str, ...]]:
        """Return name -> parameter names, for comparing devices."""
        return {n: tuple(inspect.signature(f).parameters) for n, f in self._functions.items()}


@cache  # every device of a process has the same names
def _groups(names: tuple[str, ...]) -> frozenset[str]:
    """Return the names of operations that have passes."""
    return frozenset(found[1] for name in names if (found := _PASS.fullmatch(name)))


@cache
def _group_and_member(name: str) -> tuple[str, str]:
    """Return "relu", "forward" of "relu_forward"; a name without a pass or plan is its own group's "forward"."""
    found = _MEMBER.fullmatch(name)
    return (found[1], found[2]) if found else (name, "forward")


def load_ops(device: str) -> Ops:
    """Return the operations of "cpu" or "cuda"."""
    widened = importlib.import_module("pycaffe_lms.ops.cpu.widened").widened if device == "cpu" else None
    functions = {}
    for family in FAMILIES:
        module = importlib.import_module(f"pycaffe_lms.ops.{device}.{family}")
        for name in module.__all__:
            function = getattr(module, name)
            if widened and family != "half" and not name.endswith("_plan"):
                function = widened(function)  # takes bfloat16 arrays too
            functions[name] = function
    return Ops(device, functions, WORKSPACE_LIMIT[device])


def ops_of(device: Any) -> Ops:
    """Return the operations of a device, loaded at the first call and kept as `device.ops`."""
    if device.ops is None:
        device.ops = device.adopt(load_ops(device.operations))
    return cast(Ops, device.ops)
