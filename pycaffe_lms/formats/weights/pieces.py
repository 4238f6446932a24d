"""Write binary protos in pieces: large arrays go to the file from where they are.

Building and serializing a whole message would hold its values in memory three times, and block all other threads
meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ...arrays import HostArray
from ...errors import CaffeError
from ...proto.caffe_pb2 import BlobProto
from ..atomic import atomic_file
from ..rawfile import check_size

Piece: TypeAlias = "bytes | HostArray"  # of a file: bytes, or numbers that it has in C order


def blob_pieces(arr: HostArray, diff: HostArray | None = None) -> list[Piece]:
    """Return the pieces of a BlobProto as `array_to_blobproto` makes it; values are not copied, whatever their strides.

    Raises: ValueError where diff has another shape.
    """
    arr = np.asarray(arr)
    double = arr.dtype == np.float64
    if diff is not None and np.shape(diff) != arr.shape:
        raise ValueError(f"diff of shape {np.shape(diff)} for data of shape {arr.shape}")
    shape = BlobProto()
    if arr.ndim:
        shape.shape.dim.extend(arr.shape)
    names = ("double_data", "double_diff") if double else ("data", "diff")
    values = [piece for name, a in zip(names, (arr, diff), strict=True) if a is not None for piece in _packed(name, a)]
    about: list[Piece] = [shape.SerializeToString()]
    return about + values if double else values + about  # in the order of the fields' numbers


def _packed(field: str, values: HostArray) -> list[Piece]:
    """Return a repeated field of a BlobProto in wire format: a tag, the length and the numbers; nothing for none."""
    payload = np.asarray(values, dtype="<f8" if field.startswith("double") else "<f4")
    return framed(BlobProto.DESCRIPTOR.fields_by_name[field].number, [payload]) if payload.size else []


def framed(number: int, pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces as field `number` of a message, preceded by its tag and length."""
    return [_varint(number << 3 | 2) + _varint(sum(map(_size, pieces))), *pieces]


def as_bytes(piece: Piece) -> bytes | memoryview:
    """Return the bytes of a piece; for numbers that are not in C order, of a copy."""
    if isinstance(piece, bytes):
        return piece
    return np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data


def write_pieces(
    path: str | os.PathLike[str], pieces: Sequence[Piece], error: type[CaffeError], *, digest_as: int | None = None
) -> bytes:
    """Write a binary proto, whole or not at all, and return the SHA-256 of the pieces.

    digest_as: append the digest as the field of this number.
    Raises: `error` where the file cannot be written, or is over protobuf's 2 GiB - 1.
    """
    check_size(sum(map(_size, pieces)), path, error)
    with atomic_file(path, error=error) as part:
        for piece in pieces:
            part.write(as_bytes(piece))
        digest = part.sha256()
        if digest_as is not None:
            part.write(b"".join(map(as_bytes, framed(digest_as, [digest]))))
    return digest


def _size(piece: Piece) -> int:
    """Return the number of bytes that a piece takes in the file."""
    return piece.nbytes if isinstance(piece, np.ndarray) else len(piece)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
