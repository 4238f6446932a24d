"""Define pycaffe's vector classes: Python lists that check the type of their items.

A slice has the class of the whole, and other items raise TypeError. `BlobVec` holds blobs, and `add_blob` makes one.
Source of the behaviour: BVLC/caffe, python/caffe/_caffe.cpp (boost::python vector_indexing_suite).
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeVar, overload

import numpy as np

from .backend import get_device
from .blob import Blob, checked_shape
from .errors import UsageError
from .memory.synced import SyncedMemory

V = TypeVar("V")
S = TypeVar("S", bound="Vec[Any]")


class Vec(list[V]):
    """Hold items of one kind. Raises TypeError for another kind."""

    _kind: type | tuple[type, ...] = object
    _name = "anything"  # the kind, in errors
    _held_as: type | None = None  # None: items are held as they are

    def __init__(self, items: Iterable[V] = ()):
        super().__init__(map(self._checked, items))

    @classmethod
    def _checked(cls, item: Any) -> Any:
        """Return the item as the vector holds it. Raises TypeError for another kind."""
        if not isinstance(item, cls._kind):
            raise TypeError(f"{cls.__name__} holds {cls._name}, not {item!r} ({type(item)})")
        return item if cls._held_as is None else cls._held_as(item)

    @overload
    def __getitem__(self, index: SupportsIndex) -> V: ...

    @overload
    def __getitem__(self: S, index: slice) -> S: ...

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return type(self)(found) if isinstance(index, slice) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, map(self._checked, value) if isinstance(index, slice) else self._checked(value))

    def append(self, item: Any) -> None:
        super().append(self._checked(item))

    def extend(self, items: Iterable[Any]) -> None:
        super().extend(map(self._checked, items))

    def insert(self, index: SupportsIndex, item: Any) -> None:
        super().insert(index, self._checked(item))


class IntVec(Vec[int]):
    """Hold whole numbers."""

    _kind, _name = numbers.Integral, "whole numbers"
    _held_as = int


class DtypeVec(Vec[float]):
    """Hold real numbers."""

    _kind, _name = numbers.Real, "numbers"
    _held_as = float


class BoolVec(Vec[bool]):
    """Hold truth values."""

    _kind, _name = (bool, np.bool_), "True and False"
    _held_as = bool


class StringVec(Vec[str]):
    """Hold strings."""

    _kind, _name = str, "strings"


class LayerVec(Vec[V]):
    """Hold the layers of a net."""


class NetVec(Vec[V]):
    """Hold nets."""


class RawBlobVec(Vec[V]):
    """Hold blobs that the net owns: the bottoms and tops that a Python layer gets."""

    @classmethod
    def _checked(cls, item: Any) -> Any:
        if not hasattr(type(item), "diff"):  # of the class: to read the blob's would copy its values to the host
            raise TypeError(f"{cls.__name__} holds blobs, not {type(item).__name__}: write to blob.data[...]")
        return item


class BlobVec(RawBlobVec[Blob]):
    """Hold blobs: all of a net, or the parameters of a layer."""

    def add_blob(self, *shape: int) -> None:
        """Append a new blob of zeros of this shape, on the host. Raises ShapeError."""
        name, device = f"blob {len(self)}", get_device("cpu")
        dims = checked_shape(shape, name)
        nbytes = 4 * math.prod(dims)
        data, diff = (SyncedMemory(nbytes, f"{name}.{which}", device) for which in ("data", "diff"))
        self.append(Blob(name, dims, np.float32, (data, diff)))


class NetBlobVec(BlobVec):
    """Hold the blobs of a net, which alone decides what they are."""

    def add_blob(self, *shape: int) -> None:
        """Raise UsageError: a layer asks for parameters when it is set up."""
        raise UsageError(
            "a net that is built takes no further blobs",
            fix="call self.blobs.add_blob in the layer's setup, or make the vector anew: _caffe.BlobVec()",
        )

    @overload  # type: ignore[override]  # a slice is no vector of the net
    def __getitem__(self, index: SupportsIndex) -> Blob: ...

    @overload
    def __getitem__(self, index: slice) -> BlobVec: ...

    def __getitem__(self, index: Any) -> Any:
        return BlobVec(list.__getitem__(self, index)) if isinstance(index, slice) else super().__getitem__(index)
