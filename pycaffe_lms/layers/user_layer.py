"""What a layer written in Python by the user sees: its base class, and bottoms, tops and parameters as host blobs.

Source of the surface: BVLC/caffe, python/caffe/_caffe.cpp, include/caffe/layers/python_layer.hpp.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .. import vectors
from ..arrays import HostArray
from ..blob import checked_shape
from ..errors import ShapeError
from ..proto.caffe_pb2 import LayerParameter
from ..vectors import BoolVec, RawBlobVec


class HostBlob:
    """A blob in the hands of a Python layer: `data` and `diff` are NumPy arrays of `shape`, on the host.

    While the layer runs they are the net's own memory (`bind`); a bottom's data is read-only, because what a layer
    wrote there would be lost for layers that run on the device. Else they are the layer's own zeros, or the parameter
    itself. `reshape` of a top gives it new zeros, if the number of elements changes.
    """

    def __init__(self, name: str, dtype: DTypeLike, shape: Sequence[int] = ()):
        self.name = name
        self.dtype = np.dtype(dtype)
        self.parameter: Any = None  # the net's Blob, once there is one
        self._shape = checked_shape(shape, name)
        self._data: HostArray | None = None
        self._diff: HostArray | None = None

    def bind(self, data: HostArray | None = None, diff: HostArray | None = None) -> None:
        """Show these arrays (None: nothing of the net's)."""
        self._data, self._diff = data, diff

    def set_shape(self, shape: Sequence[int]) -> None:
        """The shape that the net has for it."""
        if self._shape != tuple(shape):
            self._shape = tuple(shape)
            self.bind()

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of elements along the axes; () for a scalar."""
        return self._shape

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self._shape)

    @property
    def num(self) -> int:
        """The first axis of at most four; 1 if there is none. Raises ShapeError for more than four."""
        return self._legacy(0)

    @property
    def channels(self) -> int:
        """The second axis, as `num`."""
        return self._legacy(1)

    @property
    def height(self) -> int:
        """The third axis, as `num`."""
        return self._legacy(2)

    @property
    def width(self) -> int:
        """The fourth axis, as `num`."""
        return self._legacy(3)

    def _legacy(self, axis: int) -> int:
        if len(self._shape) > 4:
            raise ShapeError(f"num, channels, height and width need at most 4 axes, not {len(self._shape)}").at(
                blob=self.name
            )
        return self._shape[axis] if axis < len(self._shape) else 1

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
        """The values, of `shape`; read-only for a bottom in forward and backward, and for a top in backward."""
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
        """The gradients, of `shape`, writable."""
        if self._diff is None and self.parameter is not None:
            return cast(HostArray, self.parameter.diff)
        if self._diff is None:
            self._diff = np.zeros(self._shape, self.dtype)
        return self._diff

    @diff.setter
    def diff(self, values: ArrayLike) -> None:
        self.diff[...] = values

    def early_diff(self) -> HostArray | None:
        """Return gradients that were read or written although none were bound."""
        return self._diff

    def __repr__(self) -> str:
        return f"<Blob {self.name!r} {' '.join(map(str, self._shape))} ({self.count}) {self.dtype}>"


class BlobVec(vectors.BlobVec):
    """The parameters of a Python layer."""

    dtype = np.dtype(np.float32)

    def add_blob(self, *shape: int) -> None:
        """One more parameter, of zeros; `self.blobs[0].data[...] = values` in `setup` gives it other first values."""
        self.append(HostBlob(f"param {len(self)}", self.dtype, shape))


class UserLayer:
    """`caffe.Layer`: base class of layers written in Python, for prototxt layers of `type: "Python"`.

    Methods to write: `setup(bottom, top)` (once), `reshape(bottom, top)` (before every forward: call
    `top[0].reshape(...)`), `forward(bottom, top)` and `backward(top, propagate_down, bottom)`. There are `param_str`,
    `phase` (0 TRAIN, 1 TEST), and `blobs` (`self.blobs.add_blob(3, 4)` in `setup` makes a parameter). Gradients of
    parameters are added to `self.blobs[i].diff`.
    """

    type = "Python"
    blobs: BlobVec
    param_str: str
    phase: int

    def __new__(cls, *args: object, **kwargs: object) -> Any:
        made: Any = super().__new__(cls)
        made.blobs = BlobVec()
        made.param_str, made.phase = "", 0
        return made

    def __init__(self, layer_param: LayerParameter | None = None):
        self.layer_param = layer_param

    def setup(self, bottom: RawBlobVec[HostBlob], top: RawBlobVec[HostBlob]) -> None:
        """Called once, when the net is built: read `param_str`, check the blobs, add parameters."""

    def reshape(self, bottom: RawBlobVec[HostBlob], top: RawBlobVec[HostBlob]) -> None:
        """Called when the net is built and before every forward: give each top its shape, `top[0].reshape(2, 3)`."""
        raise NotImplementedError(f"{type(self).__name__} has no reshape(self, bottom, top)")

    def forward(self, bottom: RawBlobVec[HostBlob], top: RawBlobVec[HostBlob]) -> None:
        """Read `bottom[i].data`, write `top[i].data[...]`."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(self, bottom, top)")

    def backward(self, top: RawBlobVec[HostBlob], propagate_down: BoolVec, bottom: RawBlobVec[HostBlob]) -> None:
        """Read `top[i].diff`, write `bottom[i].diff[...]` where propagate_down[i], add to `self.blobs[i].diff`."""
        raise NotImplementedError(f"{type(self).__name__} has no backward(self, top, propagate_down, bottom)")
