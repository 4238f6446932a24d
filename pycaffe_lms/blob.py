"""Blob: a shape over two SyncedMemory, data and diff. What layers' names stand for, and what users read and write."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .errors import ShapeError
from .memory.states import Ask
from .memory.synced import SyncedMemory
from .ops.channel_order import memory_shape

MAX_AXES = 32


def host_view(memory: SyncedMemory, shape, dtype, channels_last: bool) -> np.ndarray:
    """The host copy as an array of axes (N, C, ...), however it is stored. Only after a host ask."""
    if not channels_last or len(shape) < 4:
        return memory.host_array(shape, dtype)
    return np.moveaxis(memory.host_array(memory_shape(shape, True), dtype), -1, 1)


def checked_shape(dims: Sequence, blob: str, named: Mapping | None = None) -> tuple[int, ...]:
    """The shape that reshape(*dims) or add_blob(*dims) means; one list in place of numbers will do, as NumPy has it.

    Raises ShapeError for anything else, keywords included."""
    dims = dims[0] if len(dims) == 1 and np.iterable(dims[0]) else dims
    try:
        shape = tuple(operator.index(d) for d in dims)
    except TypeError:
        shape = None
    if named or shape is None or len(shape) > MAX_AXES or any(d < 0 for d in shape) or math.prod(shape) >= 2**31:
        given = ", ".join([*map(repr, dims), *(f"{k}={v!r}" for k, v in (named or {}).items())])
        raise ShapeError(
            f"({given}) is no blob shape",
            fix="give 0 to 32 whole numbers, none negative, for less than 2^31 elements: reshape(2, 3)",
        ).at(blob=blob)
    return shape


class Blob:
    """name: what errors call it. `memories`: (data, diff). on_reshape(shape): asked when the user changes the shape.

    channels_last: whether they are stored as (N, H, W, C); arrays have the axes (N, C, H, W) in any case.

    `data` and `diff` are NumPy views on the host; taking one tells the state machine that the host may be written, as
    pycaffe does. A view stays valid as long as the blob; it is current until the net runs again.
    Source of the behaviour: BVLC/caffe, blob.{hpp,cpp}, python/caffe/_caffe.cpp.
    """

    def __init__(self, name: str, shape, dtype, memories: tuple[SyncedMemory, SyncedMemory | None],
                 on_reshape: Callable | None = None, channels_last: bool = False):  # fmt: skip
        self.name = name
        self._shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.data_memory, self.diff_memory = memories
        self._on_reshape = on_reshape
        self.data_last = self.diff_last = channels_last

    def take_over(self, other: Blob) -> None:
        """Show what another blob shows."""
        self._shape, self.data_memory, self.diff_memory = other._shape, other.data_memory, other.diff_memory
        self.data_last, self.diff_last = other.data_last, other.diff_last

    # -- shape ----------------------------------------------------------------------------------------------------
    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def count(self) -> int:
        return math.prod(self._shape)

    def _legacy(self, axis: int) -> int:
        if len(self._shape) > 4:
            raise ShapeError(f"num, channels, height and width need at most 4 axes, not {len(self._shape)}").at(
                blob=self.name
            )
        return self._shape[axis] if axis < len(self._shape) else 1

    num = property(lambda self: self._legacy(0))
    channels = property(lambda self: self._legacy(1))
    height = property(lambda self: self._legacy(2))
    width = property(lambda self: self._legacy(3))

    def reshape(self, *dims: int, **named) -> None:
        """Change the shape, reshape(2, 3); without arguments to a scalar. The net follows at its next forward or
        reshape(). Raises ShapeError for what is no shape, or for a parameter's number of elements."""
        shape = checked_shape(dims, self.name, named)
        if self._on_reshape is not None:
            self._on_reshape(self, shape)
        elif math.prod(shape) != self.count:
            raise ShapeError(
                f"{shape} does not hold this parameter's {self.count} elements",
                fix="keep the number of elements; for another size change the layer and build the net anew",
            ).at(blob=self.name)
        self._shape = shape

    # -- values on the host ---------------------------------------------------------------------------------------
    def _data(self, ask: Ask) -> np.ndarray:
        self.data_memory.ask(ask)
        return host_view(self.data_memory, self._shape, self.dtype, self.data_last)

    def _diff(self, ask: Ask) -> np.ndarray:
        self.diff_memory.ask(ask)
        return host_view(self.diff_memory, self._shape, self.dtype, self.diff_last)

    @property
    def data(self) -> np.ndarray:
        """The values, shape `self.shape`, writable."""
        return self._data(Ask.WRITE_CPU)

    @data.setter
    def data(self, values) -> None:
        self._data(Ask.OVERWRITE_CPU)[...] = values

    @property
    def diff(self) -> np.ndarray:
        """The gradients, shape `self.shape`, writable; zeros if nobody computed them."""
        return self._diff(Ask.WRITE_CPU)

    @diff.setter
    def diff(self, values) -> None:
        self._diff(Ask.OVERWRITE_CPU)[...] = values

    def read_data(self) -> np.ndarray:
        """The values, read-only: the device copy stays current too."""
        view = self._data(Ask.READ_CPU)
        view.flags.writeable = False
        return view

    def read_diff(self) -> np.ndarray:
        """The gradients, read-only."""
        view = self._diff(Ask.READ_CPU)
        view.flags.writeable = False
        return view

    def __repr__(self) -> str:
        dims = " ".join(str(d) for d in self._shape)
        return f"<Blob {self.name!r} {dims} ({self.count}) {self.dtype} {self.data_memory.state.value}>".replace(
            "  ", " "
        )
