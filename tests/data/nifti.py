"""Build NIfTI-1 files byte by byte from the format's description, independently of nibabel, which reads them."""

from __future__ import annotations

import struct

import numpy as np

TYPES = {"uint8": 2, "int16": 4, "int32": 8, "float32": 16, "complex64": 32, "float64": 64}


def nifti_bytes(values, *, slope=0.0, inter=0.0, rows=((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)), shape=None):
    """A single-file NIfTI-1 of `values`, indexed [x, y, z, ..]; rows: the voxel-to-world matrix (sform)."""
    values = np.asarray(values)
    shape = shape or values.shape
    head = bytearray(352)
    struct.pack_into("<i", head, 0, 348)
    struct.pack_into("<8h", head, 40, len(shape), *shape, *[1] * (7 - len(shape)))
    struct.pack_into("<hh", head, 70, TYPES[values.dtype.name], 8 * values.dtype.itemsize)
    struct.pack_into("<8f", head, 76, *[1.0] * 8)
    struct.pack_into("<3f", head, 108, 352.0, slope, inter)
    struct.pack_into("<hh", head, 252, 0, 1)
    struct.pack_into("<12f", head, 280, *[v for row in rows for v in row])
    head[344:348] = b"n+1\0"
    return bytes(head) + values.tobytes(order="F")  # x runs fastest
