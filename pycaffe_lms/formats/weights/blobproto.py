"""Convert arrays to BlobProto messages and back.

Covers: both notations of shapes, float and double values, NVIDIA's raw values in three precisions, diffs.
Source: BVLC/caffe 9b89154, src/caffe/blob.cpp (FromProto, ToProto, ShapeEquals; behaviour); NVIDIA/caffe caffe-0.17,
the same file (raw values).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...arrays import HostArray
from ...errors import WeightsError
from ...proto.caffe_pb2 import BlobProto, C3DBlob
from ..rawfile import DAMAGED
from .pieces import as_bytes, blob_pieces

MAX_AXES = 32
MOST_VALUES = 1 << 48  # of a blob without elements; its other axes may still be absurd
_LEGACY = ("num", "channels", "height", "width")
# raw_data_type -> (type in the file, type of the array)
_RAW: dict[int, tuple[np.dtype[Any], DTypeLike]] = {
    BlobProto.DOUBLE: (np.dtype("<f8"), np.float64),
    BlobProto.FLOAT: (np.dtype("<f4"), np.float32),
    BlobProto.FLOAT16: (np.dtype("<f2"), np.float32),
}


@dataclass(frozen=True, eq=False)
class StoredBlob:
    """Hold a blob as a file has it: `data` (float32 or float64) in the file's shape, `diff` or None.

    legacy: the shape was given as the four old sizes (C3D: five), which also fit blobs of fewer axes.
    """

    data: HostArray
    diff: HostArray | None = None
    legacy: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    def fits(self, shape: Sequence[int]) -> bool:
        """Return whether a blob of `shape` may take these values.

        Old sizes match shapes of fewer axes aligned at the right, missing axes counting as 1: (1, 1, N, K) fits
        (N, K). Otherwise the shapes must be the same.
        """
        missing = len(self.shape) - len(shape) if self.legacy else 0
        return missing >= 0 and (*(1,) * missing, *shape) == self.shape


@dataclass(frozen=True, eq=False)
class LayerWeights:
    """Hold the blobs that a weights file has for one layer; None for one that it omits. type: "" in HDF5 files."""

    name: str
    type: str
    blobs: tuple[StoredBlob | None, ...]


def is_legacy(proto: BlobProto) -> bool:
    """Return whether any of num, channels, height and width is set, so that they are the shape."""
    return any(proto.HasField(name) for name in _LEGACY)


def blobproto_shape(proto: BlobProto) -> tuple[int, ...]:
    """Return the shape of a BlobProto. Raises: WeightsError for a negative or absurd size, or more than 32 axes."""
    shape = tuple(getattr(proto, n) for n in _LEGACY) if is_legacy(proto) else tuple(proto.shape.dim)
    if len(shape) > MAX_AXES:
        raise WeightsError(f"a blob of {len(shape)} axes; {MAX_AXES} is the most", fix=DAMAGED)
    if any(size < 0 for size in shape):
        raise WeightsError(f"a blob of shape {shape}: a size cannot be negative", fix=DAMAGED)
    if 0 in shape and prod(max(size, 1) for size in shape) > MOST_VALUES:  # no array has it, though it holds nothing
        raise WeightsError(f"a blob of shape {shape} is larger than any memory", fix=DAMAGED)
    return shape


def load_blob(proto: BlobProto) -> StoredBlob:
    """Return all of a BlobProto. Raises: WeightsError where the number of values is not what the shape says."""
    shape = blobproto_shape(proto)
    data = _values(proto, shape, "data")
    has_diff = proto.double_diff or proto.diff or proto.raw_diff
    return StoredBlob(data, _values(proto, shape, "diff") if has_diff else None, is_legacy(proto))


def load_c3d_blob(proto: C3DBlob) -> StoredBlob:
    """Return all of a blob of C3D 1.0. Raises: WeightsError where the number of values is not what the shape says."""
    shape = tuple(getattr(proto, name) for name in ("num", "channels", "length", "height", "width"))
    if any(size < 0 for size in shape):
        raise WeightsError(f"a blob of shape {shape}: a size cannot be negative", fix=DAMAGED)
    return StoredBlob(_values(proto, shape, "data"), _values(proto, shape, "diff") if proto.diff else None, True)


def blobproto_to_array(proto: BlobProto, dtype: DTypeLike | None = np.float32, *, what: str = "data") -> HostArray:
    """Return the values of a BlobProto, in its shape, as `dtype` (None: float64 for double values, else float32).

    what: "data", or "diff" for the gradients.
    Raises: WeightsError where the number of values is not what the shape says.
    """
    data = _values(proto, blobproto_shape(proto), what)
    # A double beyond float32 becomes infinite, as it does in C++.
    with np.errstate(over="ignore"):
        return data if dtype is None else data.astype(dtype, copy=False)


def array_to_blobproto(arr: HostArray, diff: HostArray | None = None, *, into: BlobProto | None = None) -> BlobProto:
    """Return a BlobProto of `arr`: float64 as double values, anything else as float32; never with the old sizes.

    An array without axes has no `shape` field, as in Caffe.
    into: an empty message to fill, such as `layer.blobs.add()`, which saves a copy of a large blob.
    Raises: ValueError where diff has another shape.
    """
    proto = BlobProto() if into is None else into
    proto.MergeFromString(b"".join(map(as_bytes, blob_pieces(arr, diff))))
    return proto


def _values(proto: BlobProto | C3DBlob, shape: tuple[int, ...], what: str) -> HostArray:
    """Return the values of `data` or `diff`: the double ones, else the float ones, else the raw ones."""
    double, raw = f"double_{what}", f"raw_{what}"
    if isinstance(proto, C3DBlob):
        return _numbers(getattr(proto, what), shape, np.float32, what)
    if getattr(proto, raw) and not getattr(proto, double) and not getattr(proto, what):
        return _raw(proto, raw, shape)
    field = double if len(getattr(proto, double)) else what
    return _numbers(getattr(proto, field), shape, np.float64 if field == double else np.float32, field)


def _numbers(values: Any, shape: tuple[int, ...], dtype: DTypeLike, field: str) -> HostArray:
    if len(values) != prod(shape):
        raise _wrong_count(shape, len(values), field)
    # Newer protobuf hands its numbers over as an array; iterating is the fastest way for the others.
    whole = hasattr(values, "__array__")
    flat = np.array(values, dtype=dtype) if whole else np.fromiter(values, dtype=dtype, count=len(values))
    return flat.reshape(shape)


def _raw(proto: BlobProto, field: str, shape: tuple[int, ...]) -> HostArray:
    """Return values that the file has as bytes in little-endian order; half precision becomes float32."""
    kind = getattr(proto, f"{field}_type")
    if not proto.HasField(f"{field}_type") or kind not in _RAW:
        name = BlobProto.RawType.Name(kind) if proto.HasField(f"{field}_type") else "not there"
        raise WeightsError(
            f"`{field}` of which `{field}_type` is {name}; DOUBLE, FLOAT and FLOAT16 can be read",
            fix="write the file again with store_blobs_in_old_format: true",
        )
    stored, dtype = _RAW[kind]
    content = getattr(proto, field)
    if len(content) % stored.itemsize or len(content) // stored.itemsize != prod(shape):
        raise _wrong_count(shape, len(content) / stored.itemsize, field)
    return np.frombuffer(content, stored).astype(dtype).reshape(shape)


def _wrong_count(shape: tuple[int, ...], found: float, field: str) -> WeightsError:
    needs = f"a blob of shape {shape} needs {prod(shape)} values"
    return WeightsError(f"{needs}, the file has {found:.12g} in `{field}`", fix=DAMAGED)
