"""pycaffe's vector classes: Python lists that know what they hold.

They slice to their own kind and refuse what does not belong. `BlobVec` holds blobs, and `add_blob` makes one.
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
S = TypeVar("S", bound="Vec")


class Vec(list[V]):
    """A list of one kind of things. Raises TypeError for another kind."""

    def __init__(self, items: Iterable[V] = ()):
        super().__init__(map(self._checked, items))

    @classmethod
    def _checked(cls, item: Any) -> V:
        """The item as it is kept; TypeError where it does not belong."""
        return item

    @classmethod
    def _refuse(cls, item: Any, kind: str) -> TypeError:
        return TypeError(f"{cls.__name__} holds {kind}, not {item!r} ({type(item)})")

    @overload
    def __getitem__(self, index: SupportsIndex) -> V: ...

    @overload
    def __getitem__(self: S, index: slice) -> S: ...

    def __getitem__(self, index):
        found = super().__getitem__(index)
        return type(self)(found) if isinstance(index, slice) else found

    def __setitem__(self, index, value) -> None:
        super().__setitem__(index, map(self._checked, value) if isinstance(index, slice) else self._checked(value))

    def append(self, item: Any) -> None:
        super().append(self._checked(item))

    def extend(self, items: Iterable) -> None:
        super().extend(map(self._checked, items))

    def insert(self, index: SupportsIndex, item: Any) -> None:
        super().insert(index, self._checked(item))


class IntVec(Vec[int]):
    """Whole numbers."""

    @classmethod
    def _checked(cls, item):
        if not isinstance(item, numbers.Integral):
            raise cls._refuse(item, "whole numbers")
        return int(item)


class DtypeVec(Vec[float]):
    """Real numbers."""

    @classmethod
    def _checked(cls, item):
        if not isinstance(item, numbers.Real):
            raise cls._refuse(item, "numbers")
        return float(item)


class BoolVec(Vec[bool]):
    """Truth values."""

    @classmethod
    def _checked(cls, item):
        if not isinstance(item, (bool, np.bool_)):
            raise cls._refuse(item, "True and False")
        return bool(item)


class StringVec(Vec[str]):
    """Strings."""

    @classmethod
    def _checked(cls, item):
        if not isinstance(item, str):
            raise cls._refuse(item, "strings")
        return item


class LayerVec(Vec[V]):
    """Layers of a net."""


class NetVec(Vec[V]):
    """Nets."""


class RawBlobVec(Vec[V]):
    """Blobs that somebody else owns: the bottoms and tops that a Python layer gets."""

    @classmethod
    def _checked(cls, item):
        if not hasattr(type(item), "diff"):  # to ask the blob itself would bring its values here
            raise TypeError(f"{cls.__name__} holds blobs, not {type(item).__name__}: write to blob.data[...]")
        return item


class BlobVec(RawBlobVec[Blob]):
    """Blobs: all of a net, or the parameters of a layer."""

    def add_blob(self, *shape: int) -> None:
        """Append a new blob of zeros of this shape, on the host. Raises ShapeError."""
        name, device = f"blob {len(self)}", get_device("cpu")
        dims = checked_shape(shape, name)
        nbytes = 4 * math.prod(dims)
        data, diff = (SyncedMemory(nbytes, f"{name}.{which}", device) for which in ("data", "diff"))
        self.append(Blob(name, dims, np.float32, (data, diff)))


class NetBlobVec(BlobVec):
    """Blobs of a net: what they are is the net's to say."""

    def add_blob(self, *shape: int) -> None:
        """Refused: a layer asks for parameters when it is set up. Raises UsageError."""
        raise UsageError(
            "a net that is built takes no further blobs",
            fix="call self.blobs.add_blob in the layer's setup, or make the vector anew: _caffe.BlobVec()",
        )

    @overload
    def __getitem__(self, index: SupportsIndex) -> Blob: ...

    @overload
    def __getitem__(self, index: slice) -> BlobVec: ...

    def __getitem__(self, index):
        return BlobVec(list.__getitem__(self, index)) if isinstance(index, slice) else super().__getitem__(index)
