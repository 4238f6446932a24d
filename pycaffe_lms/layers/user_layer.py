"""The interface for layers that users write in Python: their base class, and blobs with arrays on the host.

Source of the interface: BVLC/caffe, python/caffe/_caffe.cpp, include/caffe/layers/python_layer.hpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .. import vectors
from ..arrays import HostArray
from ..blob import Shaped, checked_shape
from ..proto.caffe_pb2 import LayerParameter, Phase
from ..vectors import BoolVec, RawBlobVec


class HostBlob(Shaped):
    """A blob of a Python layer: `data` and `diff` are NumPy arrays of `shape`, on the host.

    While the layer runs they are the net's memory (`bind`). A bottom's data is then read-only, because layers that run
    on the device would not see what was written there. At other times they are zeros, or the net's parameter. If
    `reshape` changes the number of elements, the arrays are new zeros.
    """

    def __init__(self, name: str, dtype: DTypeLike, shape: Sequence[int] = ()):
        self.name = name
        self.dtype = np.dtype(dtype)
        self.parameter: Any = None  # the net's Blob, once the net has memory
        self._shape = checked_shape(shape, name)
        self._data: HostArray | None = None
        self._diff: HostArray | None = None

    def bind(self, data: HostArray | None = None, diff: HostArray | None = None) -> None:
        """Use these arrays of the net as `data` and `diff` (None: not the net's)."""
        self._data, self._diff = data, diff

    def set_shape(self, shape: Sequence[int]) -> None:
        """Take over the net's shape; if it is new, the arrays are no longer the net's."""
        if self._shape != tuple(shape):
            self._shape = tuple(shape)
            self.bind()

    def reshape(self, *dims: int, **named: int) -> None:
        """Change the shape; `reshape(2, 3)` and `reshape(*array.shape)` as in pycaffe. Raises ShapeError."""
        shape = checked_shape(dims, self.name, named)
        same = math.prod(shape) == self.count
        self._shape = shape
        if not same:
            self.bind()
        else:
            self._data, self._diff = (None if a is None else a.reshape(shape) for a in (self._data, self._diff))

    @property
    def data(self) -> HostArray:
        """Return the values, of `shape`: read-only for a bottom in forward and backward, and for a top in backward."""
        if self._data is None and self.parameter is not None:
            return cast(HostArray, self.parameter.data)
        if self._data is None:
            self._data = np.zeros(self._shape, self.dtype)
        return self._data

    @data.setter
    def data(self, values: ArrayLike) -> None:
        self.data[...] = values

    @property
    def diff(self) -> HostArray:
        """Return the gradients, of `shape`, writable."""
        if self._diff is None and self.parameter is not None:
            return cast(HostArray, self.parameter.diff)
        if self._diff is None:
            self._diff = np.zeros(self._shape, self.dtype)
        return self._diff

    @diff.setter
    def diff(self, values: ArrayLike) -> None:
        self.diff[...] = values

    def early_diff(self) -> HostArray | None:
        """Return the blob's own gradients, which user code read or wrote while the net had bound none; or None."""
        return self._diff

    def __repr__(self) -> str:
        return f"<Blob {self.name!r} {' '.join(map(str, self._shape))} ({self.count}) {self.dtype}>"


class BlobVec(vectors.BlobVec):
    """The parameters of a Python layer."""

    dtype = np.dtype(np.float32)

    def add_blob(self, *shape: int) -> None:
        """Add a parameter of zeros; `self.blobs[0].data[...] = values` in `setup` gives it other first values."""
        self.append(HostBlob(f"param {len(self)}", self.dtype, shape))


class UserPhase(int):
    """A phase as users' layers see it: a number, 0 or 1, whose `str` is TRAIN or TEST, as in Fast R-CNN's Caffe."""

    def __str__(self) -> str:
        return Phase.Name(Phase.ValueType(self))


class UserLayer:
    """`caffe.Layer`: base class of layers written in Python, for prototxt layers of `type: "Python"`.

    A subclass defines `setup(bottom, top)`, which runs once; `reshape(bottom, top)`, which runs before every forward
    and calls `top[0].reshape(...)`; `forward(bottom, top)`; and `backward(top, propagate_down, bottom)`. It can read
    `param_str` (also by its older name `param_str_`) and `phase` (0 TRAIN, 1 TEST; its `str` is the name).
    `self.blobs.add_blob(3, 4)` in `setup` makes a parameter, whose gradient backward adds to `self.blobs[i].diff`.
    """

    type = "Python"
    blobs: BlobVec
    param_str: str
    phase: UserPhase

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        made: Any = super().__new__(cls)
        made.blobs = BlobVec()
        made.param_str, made.phase = "", UserPhase()
        return made

    @property
    def param_str_(self) -> str:
        """Return `param_str`; what Caffe called it when py-faster-rcnn was written."""
        return self.param_str

    def __init__(self, layer_param: LayerParameter | None = None):
        self.layer_param = layer_param

    def setup(self, bottom: RawBlobVec[HostBlob], top: RawBlobVec[HostBlob]) -> None:
        """Read `param_str`, check the blobs, add parameters. Called once, when the net is built."""

    def reshape(self, bottom: RawBlobVec[HostBlob], top: RawBlobVec[HostBlob]) -> None:
        """Give each top its shape, `top[0].reshape(2, 3)`. Called when the net is built and before every forward."""
        raise NotImplementedError(f"{type(self).__name__} has no reshape(self, bottom, top)")

    def forward(self, bottom: RawBlobVec[HostBlob], top: RawBlobVec[HostBlob]) -> None:
        """Read `bottom[i].data`, write `top[i].data[...]`."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, bottom, top)")

    def backward(self, top: RawBlobVec[HostBlob], propagate_down: BoolVec, bottom: RawBlobVec[HostBlob]) -> None:
        """Read `top[i].diff`, write `bottom[i].diff[...]` if propagate_down[i], add to `self.blobs[i].diff`."""
        raise NotImplementedError(f"{type(self).__name__} has no backward(self, top, propagate_down, bottom)")
