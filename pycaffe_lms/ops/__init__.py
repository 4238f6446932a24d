"""Heavy arithmetic, one signature per operation, one implementation per device.

`ops/cpu/<family>/<name>.py` and `ops/cuda/<family>/<name>.py` stand beside each other and export the same functions
with the same parameters (a test compares them). An operation writes its results into arrays it is given and returns
nothing, so that it can be queued; a function whose name ends in `_plan` is host code, returns a plan object (or an
answer) at once, and such an object's `workspace_bytes` says how much device workspace the operation will be handed.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

FAMILIES = (
    "basic",
    "half",
    "copy_all",
    "update",
    "recurrent",
    *(f"activation.{n}" for n in ("bits", "dropout", "pointwise", "prelu", "relu")),
    *(f"conv.{n}" for n in ("columns", "conv", "depthwise", "embed", "inner_product")),
    *(f"loss.{n}" for n in ("accuracy", "euclidean", "log_loss", "margin", "sigmoid_loss", "smooth_l1", "softmax")),
    *(f"norm.{n}" for n in ("batch_norm", "bn", "fused_norm", "lrn", "mvn", "normalize", "scale")),
    *(f"pooling.{n}" for n in ("pooling", "pooling_last", "pooling_nd", "roi", "stochastic_pool", "upsample")),
    *(f"shape.{n}" for n in ("argmax", "axpy", "concat", "crop", "eltwise", "filter", "interp", "reduction", "tile")),
    "shape.transpose",
)

# Bytes of workspace that one operation may ask for where it can do with less. A constant of the device, because sums
# may depend on it: with and without Large Model Support a layer must compute the same bits.
WORKSPACE_LIMIT = {"cpu": 64 << 20, "cuda": 512 << 20}


class Ops:
    """Every operation of one device as an attribute: `ops.relu_forward(x, y, slope)`."""

    def __init__(self, device: str):
        self.device = device
        self.workspace_limit = WORKSPACE_LIMIT[device]
        self._functions: dict = {}
        widened = importlib.import_module("pycaffe_lms.ops.cpu.widened").widened if device == "cpu" else None
        for family in FAMILIES:
            module = importlib.import_module(f"pycaffe_lms.ops.{device}.{family}")
            for name in module.__all__:
                function = getattr(module, name)
                if widened and family != "half" and not name.endswith("_plan"):
                    function = widened(function)  # takes bfloat16 arrays too
                self._functions[name] = function
                setattr(self, name, function)

    def use_libraries(self) -> Ops:
        """From now on convolutions of the CPU are planned for oneDNN, where it is installed. Returns the operations."""
        conv = importlib.import_module(f"pycaffe_lms.ops.{self.device}.conv.conv")
        self.conv_plan = conv.library_conv_plan
        return self

    def functions(self) -> dict:
        """Name -> function, of every operation."""
        return dict(self._functions)

    def signatures(self) -> dict[str, tuple[str, ...]]:
        """Name -> parameter names, for comparing devices."""
        return {n: tuple(inspect.signature(f).parameters) for n, f in self._functions.items()}


def load_ops(device: str) -> Ops:
    """The operations of "cpu" or "cuda"."""
    return Ops(device)


def ops_of(device: Any) -> Ops:
    """The operations of a device, loaded at the first call and kept as `device.ops`."""
    if device.ops is None:
        device.ops = device.adopt(load_ops(device.operations))
    return device.ops
