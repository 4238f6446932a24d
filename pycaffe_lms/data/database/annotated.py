"""Read AnnotatedDatum records, one picture with the boxes of its objects each, and write them.

The format is that of SSD's fork of Caffe (weiliu89/caffe, branch ssd), byte for byte.
See also: datum.py for the picture inside; ../sets/annoset.py, which writes such databases.
"""

from __future__ import annotations

import numpy as np
from google.protobuf.message import DecodeError

from ...errors import DataError
from ...proto.caffe_pb2 import AnnotatedDatum
from ..transform.boxes import Objects
from .datum import record_place

FARTHEST = 1e4
"""Sides of the picture that a box may lie outside; what is farther is damaged."""


def parse_annotated(record: bytes, *, source: str, key: bytes | str | None = None) -> AnnotatedDatum:
    """Parse a record. Raises: DataError, naming `source` and `key`, where it is no AnnotatedDatum with a picture."""
    annotated = AnnotatedDatum()
    try:
        annotated.ParseFromString(record)
    except DecodeError:
        annotated.Clear()
    if not annotated.HasField("datum"):
        raise DataError(
            f"these {len(record)} bytes are not an AnnotatedDatum",
            where=record_place(source, key),
            fix="write the database with convert_annoset; one of convert_imageset is read by a Data layer",
        )
    return annotated


def objects_of(annotated: AnnotatedDatum, *, source: str, key: bytes | str | None = None) -> Objects:
    """Return the objects of a record, in its order.

    Raises: DataError, naming `source` and `key`, for a box with a value that is no fraction of a picture's side.
    """
    boxes, tags = [], []
    for group in annotated.annotation_group:
        for one in group.annotation:
            box = one.bbox
            boxes.append((box.xmin, box.ymin, box.xmax, box.ymax))
            tags.append((group.group_label, one.instance_id, box.difficult))
    found = Objects(np.array(boxes, np.float32).reshape(-1, 4), np.array(tags, np.int64).reshape(-1, 3))
    right = (abs(found.boxes) <= FARTHEST).all(1)  # false for NaN
    if not right.all():
        wrong = int(np.flatnonzero(~right)[0])
        raise DataError(
            f"the box of object {wrong + 1} is {tuple(map(float, found.boxes[wrong]))}, in fractions of the picture",
            where=record_place(source, key),
            fix="correct its annotation and write the database again",
        )
    return found
