"""Gives parameters and constant tops their first values, from fillers, from the layers or from the prototxt."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from ..errors import CaffeError, OutOfHostMemory, human_bytes
from ..filler import check, fill
from ..memory.states import Ask, State
from ..memory.synced import SyncedMemory
from ..random import MANY, CaffeRandom
from . import weights
from .build.graph import Graph, Param

_PLAIN = 1 << 24
"""Normal values for which Numba is not started: NumPy takes no longer on two cores."""


class FirstValues:
    """Fill a net.

    Args:
        file: the prototxt, for errors.
        compiled: the net will run Numba's kernels.
    """

    def __init__(self, graph: Graph, file: str | None, dtype: np.dtype, random: CaffeRandom, *, compiled: bool):
        self._graph, self._file, self._dtype, self._random = graph, file, dtype, random
        self._compiled = compiled

    def check(self) -> None:
        """Raise the errors of `fill_params` without filling, so that planning a net refuses what running it would."""
        for param in self._graph.params:
            with self._placed(param):
                if param.values is None:
                    check(param.filler, param.shape)
        for node in self._graph.nodes:
            weights.check_presets(self._graph, node, self._file)

    def fill_params(self) -> None:
        """Fill all parameters, in the order of the layers. Raises CaffeError."""
        compiled = self._compiled or "numba" in sys.modules
        self._random.plain = not compiled and self._many_normal() <= _PLAIN
        for param in self._graph.params:
            with self._placed(param):
                values = param.values
                if values is None:
                    values = fill(param.filler, param.shape, self._dtype, self._random)
            if param.owner == param.index:  # a sharer draws too, as in Caffe, but keeps the owner's values
                self._graph.nodes[param.node].layer.blobs[param.position].data = values
        for node in self._graph.nodes:
            weights.load_presets(self._graph, node, self._file)

    def _many_normal(self) -> int:
        """Return how many normal values fillers draw `MANY` or more at a time."""
        drawn = (p for p in self._graph.params if p.values is None and p.filler.type in ("gaussian", "msra"))
        return sum(size for p in drawn if (size := math.prod(p.shape)) >= MANY)

    def fill_constants(self, memories: Mapping[int, SyncedMemory]) -> None:
        """Fill the tops that no forward writes, where they have no value yet."""
        for node in self._graph.nodes:
            for j, t in enumerate(node.tops):
                if not node.layer.rewrites(j):
                    value = self._graph.values[t]
                    memory = memories[value.data]
                    if memory.state is State.UNINITIALIZED:
                        memory.ask(Ask.OVERWRITE_CPU)
                        node.layer.fill_once(j, memory.host_array(value.shape, self._dtype))

    @contextmanager
    def _placed(self, param: Param) -> Iterator[None]:
        """Complete errors raised inside with the layer's place; host memory that runs out is one of them."""
        node = self._graph.nodes[param.node]
        where = {"file": self._file, "line": node.line, "layer": node.name, "type": node.layer.param.type}
        try:
            yield
        except CaffeError as error:
            error.at(**where)
            raise
        except MemoryError:
            nbytes = math.prod(param.shape) * self._dtype.itemsize
            raise OutOfHostMemory(
                f"parameter {param.position} of shape {param.shape} needs {human_bytes(nbytes)}",
                needed=nbytes,
                free=0,
                fix="make the layer smaller",
            ).at(**where) from None
