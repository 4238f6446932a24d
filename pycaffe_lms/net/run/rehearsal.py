"""Runs a program's steps on arrays without memory, so that a device hears which kernels it needs before the first run.

Only steps of layers that do nothing but queue operations (`Declaration.cuda_graph_safe`) are rehearsed, and none that
exchange arrays with other ranks: an exchange would happen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...arrays import AnyArray, DType
from ...backend.device import Device
from ...layers.base import Shape
from ..build.graph import Graph
from ..program.programs import AnyStep, HostedStep
from ..program.steps import LayerStep, node_of
from .executor import Executor

_log = logging.getLogger(__name__)


class Imagined(np.ndarray):
    """Stand in for a device's array: with a shape, a type and an address, all elements being one."""

    address = 0

    def __array_finalize__(self, source: Any) -> None:
        self.address = getattr(source, "address", 0)

    @property
    def data(self) -> Any:  # type: ignore[override]
        """Return the address, as CuPy's arrays do."""
        return SimpleNamespace(ptr=self.address)

    def fill(self, value: Any) -> None:
        """Do nothing."""

    def view(self, dtype: Any) -> Imagined:  # type: ignore[override]
        """Return the same bytes as another type."""
        dtype = np.dtype(dtype)
        return imagined((*self.shape[:-1], self.shape[-1] * self.itemsize // dtype.itemsize), dtype, self.address)


def imagined(shape: Shape, dtype: DType, address: int) -> Imagined:
    """Return an array of this shape and type that takes no memory; parts of it have its address, too."""
    one = np.lib.stride_tricks.as_strided(np.zeros(1, dtype), shape, (0,) * len(shape))
    array = np.ndarray.view(one, Imagined)
    array.address = address
    return array


class Rehearsal(Executor):
    """Run steps on imagined arrays."""

    def __init__(self, graph: Graph, device: Device, dtype: DType):
        super().__init__(graph, {}, device, dtype)

    def rehearse(self, steps: Iterable[AnyStep]) -> None:
        """Run what can be rehearsed. A layer that cannot is told of in the log; it runs as well without."""
        for step in steps:
            if isinstance(step, HostedStep) or step.step.host or step.look or step.zero:
                continue
            node = node_of(self.graph, step)
            if node.waiting is not None or not node.layer.declares.cuda_graph_safe or node.layer.exchanges:
                continue
            try:
                self.run(step)
            except Exception as error:  # an operation that asks more of an array than `Imagined` has
                _log.info("%s: its kernels are compiled when it runs: %s", step.step.name, error)

    def run(self, step: LayerStep) -> None:
        node = node_of(self.graph, step)
        make = self._forward_pass if step.forward else self._backward_pass
        self._run_pass(node, step, make(node, step, False))

    def array(self, buffer: int, shape: Shape, dtype: DType, on_host: bool, start: int = 0) -> AnyArray:
        return imagined(shape, dtype, (buffer + 1 << 44) + start * np.dtype(dtype).itemsize)  # apart from other buffers
