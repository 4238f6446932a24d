"""Gives parameters and constant tops their first values, from fillers, from the layers or from the prototxt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np

from ..arrays import HostArray
from ..backend.device import Device
from ..errors import CaffeError, OutOfHostMemory, human_bytes
from ..filler import check, fill
from ..memory.states import Ask, State
from ..memory.synced import SyncedMemory
from ..ops import ops_of
from ..random import CaffeRandom
from . import weights
from .build.graph import Graph, Param

_PIECE, _BLOCK = 1 << 23, 1 << 12  # values that a device draws at a time: at most, and a divisor


class FirstValues:
    """Fill a net.

    Args:
        file: the prototxt, for errors.
        device: that of the net.
    """

    def __init__(self, graph: Graph, file: str | None, dtype: np.dtype, random: CaffeRandom, device: Device):
        self._graph, self._file, self._dtype, self._random = graph, file, dtype, random
        self._device = device

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
        if self._device.operations == "cuda":
            self._random.draw_many = partial(draw_on, self._device)
        for param in self._graph.params:
            with self._placed(param):
                values = param.values
                if values is None:
                    values = fill(param.filler, param.shape, self._dtype, self._random)
            if param.owner == param.index:  # a sharer draws too, as in Caffe, but keeps the owner's values
                self._graph.nodes[param.node].layer.blobs[param.position].data = values
        for node in self._graph.nodes:
            weights.load_presets(self._graph, node, self._file)

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


def draw_on(device: Device, values: HostArray, key: HostArray, mean: float, std: float) -> None:
    """Draw what `random_gaussian` of the CPU draws, to the bit, on a device, piece after piece.

    values: float32, on the host. Raises OutOfDeviceMemory.
    """
    flat, ops = values.reshape(-1), ops_of(device)
    size = max(_BLOCK, min(flat.size, _PIECE, (device.capacity() - device.in_use()) // 8) // _BLOCK * _BLOCK)
    span, place = device.take(4 * size), device.take(key.nbytes)
    with device.active():
        for first in range(0, flat.size, size):
            part = flat[first : first + size]
            words = key + np.array([0, 0, first // 4], np.uint64)  # four values of a block
            device.copy_up(place, words.view(np.uint8))
            ops.random_gaussian(
                device.array(span, part.shape, np.float32), device.array(place, key.shape, np.uint64), mean, std
            )
            device.wait_host(device.copy_down(part.view(np.uint8), span))
    device.give(span)
    device.give(place)
