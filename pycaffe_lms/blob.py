"""Define Blob, which users read and write: a shape, and two buffers (`SyncedMemory`) for data and diff."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .arrays import AnyArray
from .backend.device import Span
from .errors import ArrayError, ShapeError, UsageError
from .memory.exported_views import check_side, lend_device
from .memory.states import Ask, State
from .memory.synced import SyncedMemory
from .ops.axes import memory_shape
from .uncopied import Uncopied

MAX_AXES = 32
MOST_AXIS = 2**31 - 1  # as in Caffe, and the limit of kernel libraries
MOST_ELEMENTS = 2**48  # more than any machine can store, and few enough that numbers of bytes stay exact


def host_view(memory: SyncedMemory, shape: Sequence[int], dtype: DTypeLike, channels_last: bool) -> np.ndarray:
    """Return the host copy as an exported view with the axes (N, C, ...). Call it after a host ask only."""
    view: np.ndarray = _logical(memory.host_view, shape, dtype, channels_last)
    return view


def stored_view(raw: np.ndarray, shape: Sequence[int], dtype: DTypeLike, channels_last: bool) -> np.ndarray:
    """Return bytes that were copied from a blob's memory as an array with the axes (N, C, ...)."""
    values = raw[: math.prod(shape) * np.dtype(dtype).itemsize].view(dtype)
    view: np.ndarray = _logical(lambda stored, _: values.reshape(stored), shape, dtype, channels_last)
    return view


def _logical(
    array_of: Callable[[Sequence[int], DTypeLike], AnyArray],
    shape: Sequence[int],
    dtype: DTypeLike,
    channels_last: bool,
) -> AnyArray:
    """Return `array_of(shape as stored, dtype)` with the axes (N, C, ...)."""
    if not channels_last or len(shape) < 4:
        return array_of(shape, dtype)
    stored = array_of(memory_shape(tuple(shape), True), dtype)
    last = stored.ndim - 1
    return stored.transpose(0, last, *range(1, last))


def checked_shape(dims: Sequence[Any], blob: str, named: Mapping[str, object] | None = None) -> tuple[int, ...]:
    """Return the shape that reshape(*dims) or add_blob(*dims) means; as in NumPy, `dims` may be one list.

    Raises ShapeError for anything else, keyword arguments (`named`) included.
    """
    if len(dims) == 1 and np.iterable(dims[0]):
        dims = tuple(dims[0])
    try:
        shape = tuple(operator.index(d) for d in dims)
    except TypeError:
        shape = None
    if (
        named
        or shape is None
        or len(shape) > MAX_AXES
        or any(not 0 <= d <= MOST_AXIS for d in shape)
        or math.prod(shape) > MOST_ELEMENTS
    ):
        given = ", ".join([*map(repr, dims), *(f"{k}={v!r}" for k, v in (named or {}).items())])
        raise ShapeError(
            f"({given}) is no blob shape",
            fix="give 0 to 32 whole numbers from 0 to 2^31 - 1, of at most 2^48 elements together: reshape(2, 3)",
        ).at(blob=blob)
    return shape


class Shaped:
    """What blobs of nets and of Python layers share: a name, and a shape with pycaffe's names for its axes."""

    name: str
    _shape: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of elements along each axis; () for a scalar."""
        return self._shape

    @property
    def count(self) -> int:
        """Return the number of elements."""
        return math.prod(self._shape)

    def _legacy(self, axis: int) -> int:
        if len(self._shape) > 4:
            raise ShapeError(f"num, channels, height and width need at most 4 axes, not {len(self._shape)}").at(
                blob=self.name
            )
        return self._shape[axis] if axis < len(self._shape) else 1

    @property
    def num(self) -> int:
        """Return the first of at most four axes; 1 if there is none. Raises ShapeError for more than four."""
        return self._legacy(0)

    @property
    def channels(self) -> int:
        """Return the second axis, as `num`."""
        return self._legacy(1)

    @property
    def height(self) -> int:
        """Return the third axis, as `num`."""
        return self._legacy(2)

    @property
    def width(self) -> int:
        """Return the fourth axis, as `num`."""
        return self._legacy(3)


class Blob(Shaped, Uncopied):
    """Show the values (`data`) and gradients (`diff`) of a net under a name, with a shape.

    **Host.** `data` and `diff` are NumPy views of the net's own host memory: the net uses what is written there. A view
    stays valid as long as it exists, even after the net is gone. It is updated whenever a forward, backward or step
    ends (on a GPU that costs a copy each time), and the next one uses what was written to it. If Large Model Support,
    or a chain of fused layers, did not keep the value, the view is filled with NaN and the log names `net.keep`;
    arithmetic with these NaN makes NumPy warn, or raise under `np.errstate(invalid="raise")`, and a request for a new
    view raises DiscardedRead. A view belongs to the shape that the blob had: after a reshape (and
    after a partial forward or backward that ends between layers that work in place on the blob) take a new one; the old
    one keeps its values.

    **Device.** `gpu_data` and `gpu_diff` are CuPy arrays of the net's own device memory, without a copy; other
    libraries take them, or the blob itself for its data, through `__dlpack__` or `__cuda_array_interface__`. Work
    queued before is done when the array is returned, and the net waits for the user's work before it runs. As long as
    the array exists it is current after each run, and two things are refused: `data` of that blob (`read_data()`
    copies), and a run that would move the blob's memory (Large Model Support). For blobs stored channels-last (images
    on a GPU, and the weights of convolutions) both are strided views: their `reshape` and `ravel` copy, `flat` does
    not.

    Source of the behaviour: BVLC/caffe, blob.{hpp,cpp}, python/caffe/_caffe.cpp.

    Args:
        name: what errors call it.
        memories: (data, diff); diff is None for a value without a gradient.
        on_reshape(blob, shape): called when the user changes the shape; None: the number of elements is fixed.
        on_read(blob, which): called before the user gets "data" or "diff".
        channels_last: the memory has the axes (N, H, W, C); arrays have the axes (N, C, H, W) in any case.
    """

    instead_of_copying = "copy its values: blob.data.copy()"

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        dtype: DTypeLike,
        memories: tuple[SyncedMemory, SyncedMemory | None],
        on_reshape: Callable[[Blob, tuple[int, ...]], None] | None = None,
        channels_last: bool = False,
        on_read: Callable[[Blob, str], None] | None = None,
    ):
        self.name = name
        self._shape = tuple(shape)
        self.dtype = np.dtype(dtype)
        self.data_memory, self.diff_memory = memories
        self._on_reshape, self._on_read = on_reshape, on_read
        self.data_last = self.diff_last = channels_last

    def take_over(self, other: Blob) -> None:
        """Take the shape and the memory of another blob."""
        self._shape, self.data_memory, self.diff_memory = other._shape, other.data_memory, other.diff_memory
        self.data_last, self.diff_last = other.data_last, other.diff_last

    # -- shape ----------------------------------------------------------------------------------------------------
    def reshape(self, *dims: int, **named: object) -> None:
        """Change the shape, reshape(2, 3); without arguments to a scalar.

        The net follows at its next forward or reshape(). Raises ShapeError if the arguments are no shape, if a
        parameter's number of elements would change, and for any other shape of a parameter stored channels-last.
        """
        shape = checked_shape(dims, self.name, named)
        if self._on_reshape is not None:
            self._on_reshape(self, shape)
        elif shape != self._shape and self.data_last:
            raise ShapeError(
                f"{shape} is no view of this parameter of shape {self._shape}, which is stored channels-last",
                fix="reshape values in place of the blob: blob.data[...] = values.reshape(blob.shape)",
            ).at(blob=self.name)
        elif math.prod(shape) != self.count:
            raise ShapeError(
                f"{shape} does not hold this parameter's {self.count} elements",
                fix="keep the number of elements; for another size change the layer and build the net anew",
            ).at(blob=self.name)
        self._shape = shape

    # -- values on the host ---------------------------------------------------------------------------------------
    def _host(self, memory: SyncedMemory, ask: Ask, last: bool) -> np.ndarray:
        if memory.touched_outside:
            if ask is not Ask.READ_CPU:
                check_side(memory, host=True)
            if memory.state is State.SYNCED:
                memory.ask(Ask.WRITE_GPU)  # a user may have written to an exported GPU array
        memory.ask(ask)
        return host_view(memory, self._shape, self.dtype, last)

    def _note_read(self, which: str) -> None:
        if self._on_read is not None:
            self._on_read(self, which)

    def _data(self, ask: Ask) -> np.ndarray:
        self._note_read("data")
        return self._host(self.data_memory, ask, self.data_last)

    def _diff(self, ask: Ask) -> np.ndarray:
        assert self.diff_memory is not None
        self._note_read("diff")
        return self._host(self.diff_memory, ask, self.diff_last)

    @property
    def data(self) -> np.ndarray:
        """Return the values, shape `self.shape`, writable. An assignment writes values in place.

        Raises:
            DiscardedRead: the value was not kept.
            UsageError: a GPU array of it exists.
            ArrayError: (a ValueError) assigned values do not fit.
        """
        return self._data(Ask.WRITE_CPU)

    @data.setter
    def data(self, values: ArrayLike) -> None:
        self._data(Ask.OVERWRITE_CPU)[...] = self._fitting(values)

    @property
    def diff(self) -> np.ndarray:
        """Return the gradients, shape `self.shape`, writable; zeros if none is computed. Raises what `data` raises."""
        return self._diff(Ask.WRITE_CPU)

    @diff.setter
    def diff(self, values: ArrayLike) -> None:
        self._diff(Ask.OVERWRITE_CPU)[...] = self._fitting(values)

    def _fitting(self, values: ArrayLike) -> np.ndarray:
        """Return the values as an array that can be assigned to the blob's. Raises ArrayError otherwise."""
        array = np.asarray(values)
        if array.dtype.kind in "cSUmM":
            raise ArrayError(f"values of type {array.dtype} are no real numbers").at(blob=self.name)
        if array.shape in ((), self._shape):
            return array
        while array.ndim > len(self._shape) and array.shape[0] == 1:  # as NumPy's assignment does
            array = array[0]
        try:
            return np.broadcast_to(array, self._shape)
        except ValueError:
            raise ArrayError(
                f"values of shape {np.shape(values)} do not fit the blob's shape {self._shape}",
                fix="reshape the values, or the blob: blob.reshape(*values.shape)",
            ).at(blob=self.name) from None

    def read_data(self) -> np.ndarray:
        """Return the values as they are now, read-only: the device copy stays current too. Raises DiscardedRead."""
        view = self._data(Ask.READ_CPU)
        view.flags.writeable = False
        return view

    def read_diff(self) -> np.ndarray:
        """Return the gradients as they are now, read-only. Raises DiscardedRead."""
        view = self._diff(Ask.READ_CPU)
        view.flags.writeable = False
        return view

    # -- values on the device -------------------------------------------------------------------------------------
    def _device(self, memory: SyncedMemory, last: bool) -> AnyArray:
        check_side(memory, host=False)
        if memory.device.is_host:
            memory.device.lend(Span(None, 0, 0), (), self.dtype, None)  # raises
        memory.ask(Ask.WRITE_GPU)
        return _logical(lambda shape, dtype: lend_device(memory, shape, dtype), self._shape, self.dtype, last)

    @property
    def gpu_data(self) -> Any:
        """Return the values as a CuPy array of `self.shape` on the net's GPU, writable.

        Raises:
            DeviceError: the net is not on a GPU.
            UsageError: a NumPy view of it exists.
            DiscardedRead: the value was not kept.
        """
        self._note_read("data")
        return self._device(self.data_memory, self.data_last)

    @property
    def gpu_diff(self) -> Any:
        """Return the gradients as a CuPy array on the net's GPU. Raises what `gpu_data` raises."""
        assert self.diff_memory is not None
        self._note_read("diff")
        return self._device(self.diff_memory, self.diff_last)

    # -- values in other libraries --------------------------------------------------------------------------------
    def _exchanged(self) -> Any:
        device = self.data_memory.device
        return self.data if device.is_host or device.simulated else self.gpu_data

    def __dlpack__(self, **how: Any) -> Any:
        """Return the values for another library, without a copy: `torch.from_dlpack(blob)`, `np.from_dlpack(blob)`.

        They are those of `gpu_data` on a GPU, else of `data` (on the simulated device, too), with the same rules and
        errors. how: what the library asks for (stream, max_version, dl_device, copy), as the array API standard says.
        """
        return self._exchanged().__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return where `__dlpack__` has the values: (1, 0) on the host, (2, number) on a CUDA GPU."""
        kind, index = self._exchanged().__dlpack_device__()
        return int(kind), int(index)

    def _pointer(self, array: AnyArray, memory: SyncedMemory | None, name: str) -> int:
        assert memory is not None
        if memory.managed or not array.flags.c_contiguous:
            why = "a solver's iteration moves or drops the value" if memory.managed else "it is stored channels-last"
            raise UsageError(
                f"a bare address is of no use here: {why}",
                fix=f"use blob.{name}, which knows its strides and owner",
            ).at(blob=self.name)
        address: int = array.data.ptr
        return address

    @property
    def _gpu_data_ptr(self) -> int:
        """Return the address of the values on the GPU, for libraries that take nothing else.

        It is valid until the net runs or is gone: read it again before each use. Raises: as `gpu_data`; UsageError if
        the memory moves or is strided.
        """
        return self._pointer(self.gpu_data, self.data_memory, "gpu_data")

    @property
    def _gpu_diff_ptr(self) -> int:
        """Return the address of the gradients on the GPU; see `_gpu_data_ptr`."""
        return self._pointer(self.gpu_diff, self.diff_memory, "gpu_diff")

    def __repr__(self) -> str:
        dims = " ".join(str(d) for d in self._shape)
        return f"<Blob {self.name!r} {dims} ({self.count}) {self.dtype} {self.data_memory.state.value}>".replace(
            "  ", " "
        )
