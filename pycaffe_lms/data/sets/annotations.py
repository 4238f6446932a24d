"""Read the objects of a picture from the files of data sets: PASCAL VOC's XML, COCO's JSON, plain text.

Source: weiliu89/caffe (SSD), src/caffe/util/io.cpp (behaviour).
See also: annoset.py, which writes them to a database.
"""

from __future__ import annotations

import json
import logging
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError, Where
from ...formats.prototxt.parser import read_text
from ...formats.rawfile import open_text, read_bytes
from ...proto.caffe_pb2 import AnnotatedDatum, LabelMap
from ..database.annotated import FARTHEST

_log = logging.getLogger(__name__)
_EDGES = ("xmin", "ymin", "xmax", "ymax")


class Found(NamedTuple):
    """Hold an object as its file has it: class, box in pixels, whether it is difficult."""

    label: int
    box: tuple[float, ...]
    difficult: bool = False


class Annotated(NamedTuple):
    """Hold what a file says about a picture: its objects, and its height and width; None where it has no size."""

    objects: list[Found]
    size: tuple[int, int] | None = None


def read_label_map(path: str | os.PathLike[str], *, check: bool = False) -> dict[str, int]:
    """Read the number of each name from a text file of a LabelMap; of a name that is there twice the last one counts.

    check: names that are there twice are an error.
    Raises: PrototxtError for a file that is none; DataError for an item without a name or label.
    """
    found: dict[str, int] = {}
    for number, item in enumerate(read_text(path, LabelMap).item, 1):
        if not (item.HasField("name") and item.HasField("label")):
            missing = "label" if item.HasField("name") else "name"
            raise DataError(
                f"item {number} has no {missing}",
                where=Where(file=os.fspath(path)),
                fix='write item { name: "cat" label: 1 display_name: "cat" }',
            )
        if check and item.name in found:
            raise DataError(
                f'the name "{item.name}" is there twice',
                where=Where(file=os.fspath(path)),
                fix="remove one of them, or leave out -check_label",
            )
        found[item.name] = item.label
    return found


def add_objects(
    record: AnnotatedDatum, path: str, label_type: str, labels: Mapping[str, int], shape: tuple[int, ...]
) -> None:
    """Read the objects of a picture from the file `path`, and put them in its record, those of a class together.

    Boxes become fractions of the size that the file gives, else of the picture's. A box that is not within the picture,
    or that ends before it begins, is stored as it is, with a warning.

    Args:
        label_type: a name of READERS.
        labels: number of each name.
        shape: (channels, height, width) of the picture as it was read.
    Raises: DataError, naming the file, where it is damaged or names another class.
    """
    objects, size = READERS[label_type](path, labels)
    height, width = size or shape[1:]
    where = Where(file=path)
    if min(height, width) <= 0:
        raise DataError(f"a height of {height} and a width of {width}", where=where, fix="correct the file")
    if (height, width) != tuple(shape[1:]):
        _log.warning("%s: height %d and width %d, but the picture has %d and %d", where, height, width, *shape[1:])
    groups: dict[int, Any] = {group.group_label: group for group in record.annotation_group}
    for number, (label, box, difficult) in enumerate(objects, 1):
        if max(map(abs, box)) > FARTHEST * min(height, width):
            raise DataError(
                f"the box of object {number}, {' '.join(f'{edge:g}' for edge in box)}, is far from the picture",
                where=where,
                fix="correct the file: boxes are in pixels",
            )
        if min(box) < 0 or max(box[0], box[2]) > width or max(box[1], box[3]) > height:
            _log.warning("%s: the box of object %d is not within the picture", where, number)
        if box[0] > box[2] or box[1] > box[3]:
            _log.warning("%s: the box of object %d ends before it begins", where, number)
        if label not in groups:
            groups[label] = record.annotation_group.add(group_label=label)
        added = groups[label].annotation.add(instance_id=len(groups[label].annotation))
        for edge, value, side in zip(_EDGES, box, (width, height, width, height), strict=True):
            setattr(added.bbox, edge, np.float32(value) / np.float32(side))
        added.bbox.difficult = difficult


def read_xml(path: str, labels: Mapping[str, int]) -> Annotated:
    """Read a file of PASCAL VOC or ILSVRC: <annotation> with <size> and an <object> for each object."""
    try:
        root = ElementTree.fromstring(read_bytes(path, DataError))
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # the latter two: its encoding
        raise DataError(f"no XML: {error}", where=Where(file=path), fix="correct the file; save it as UTF-8") from None
    if root.tag != "annotation":
        raise DataError(
            f"begins with <{root.tag}>, not with <annotation>",
            where=Where(file=path),
            fix="give a file of PASCAL VOC, or another -label_type",
        )
    height, width = (root.findtext(f"size/{side}") for side in ("height", "width"))
    size = None if height is None or width is None else _size(path, "size", height, width)
    objects = []
    for number, one in enumerate(root.findall("object"), 1):
        what = f"object {number}"
        name, box = one.findtext("name"), one.find("bndbox")
        if name is None or box is None:
            raise _incomplete(path, what, "name" if name is None else "bndbox")
        edges = [box.findtext(edge) for edge in _EDGES]
        if None in edges:
            raise _incomplete(path, what, _EDGES[edges.index(None)])
        label = _label(path, what, name.strip(), labels)
        difficult = (one.findtext("difficult") or "").strip() == "1"
        objects.append(Found(label, tuple(_number(path, what, edge) for edge in edges), difficult))
    return Annotated(objects, size)


def read_json(path: str, labels: Mapping[str, int]) -> Annotated:
    """Read a file of one picture of COCO: {"image": {"height", "width"}, "annotation": [{"category_id", "bbox": [x, y,
    width, height], "iscrowd"}, ...]}."""
    try:
        content = json.loads(read_bytes(path, DataError))
    except (ValueError, RecursionError) as error:
        raise DataError(f"no JSON: {error}", where=Where(file=path), fix="correct the file") from None
    given = content.get("annotation") if isinstance(content, dict) else None
    if not isinstance(given, list):
        raise DataError(
            'has no list "annotation"',
            where=Where(file=path),
            fix="write a file for each picture, as the script create_list.py of SSD's fork does",
        )
    image = content.get("image")
    image = image if isinstance(image, dict) else {}
    sized = {"height", "width"} <= set(image)
    size = _size(path, "image", image["height"], image["width"]) if sized else None
    objects = []
    for number, one in enumerate(given, 1):
        what = f"object {number}"
        missing = [key for key in ("category_id", "bbox") if not isinstance(one, dict) or key not in one]
        if missing:
            raise _incomplete(path, what, missing[0])
        values = one["bbox"]
        if not isinstance(values, list) or len(values) != 4:
            raise _incomplete(path, what, "bbox of x, y, width and height")
        x, y, wide, tall = (np.float32(_number(path, what, value)) for value in values)
        box = tuple(map(float, (x, y, x + wide, y + tall)))
        label = _label(path, what, str(one["category_id"]), labels)
        objects.append(Found(label, box, bool(one.get("iscrowd", 0))))
    return Annotated(objects, size)


def read_lines(path: str, labels: Mapping[str, int]) -> Annotated:
    """Read a text file of lines `label xmin ymin xmax ymax`, the label a number and the box in pixels."""
    objects = []
    with open_text(path, "the file of objects") as file:
        for number, line in enumerate(file, 1):
            words = line.split()
            if not words:
                continue
            try:
                objects.append(Found(int(words[0]), tuple(map(float, words[1:]))))
            except ValueError:
                words = []
            if len(words) != 5 or not -(2**31) <= objects[-1].label < 2**31 or not np.isfinite(objects[-1].box).all():
                raise DataError(
                    f"{line.rstrip()!r} is not a label and four numbers",
                    where=Where(file=path, line=number),
                    fix="write `label xmin ymin xmax ymax`",
                )
    return Annotated(objects)


READERS: dict[str, Callable[[str, Mapping[str, int]], Annotated]] = {
    "xml": read_xml,
    "json": read_json,
    "txt": read_lines,
}
"""Name of a kind of file -> the function that reads one."""


def _size(path: str, what: str, height: Any, width: Any) -> tuple[int, int]:
    return int(_number(path, what, height)), int(_number(path, what, width))


def _number(path: str, what: str, value: Any) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = np.nan
    if not np.isfinite(found):
        raise DataError(f"{what}: {value!r} is not a number", where=Where(file=path), fix="correct the file")
    return found


def _label(path: str, what: str, name: str, labels: Mapping[str, int]) -> int:
    if name not in labels:
        raise DataError(
            f'{what}: the label map has no "{name}"',
            where=Where(file=path),
            fix=f'add item {{ name: "{name}" label: .. }} to the file of -label_map_file',
        )
    return labels[name]


def _incomplete(path: str, what: str, missing: str) -> DataError:
    return DataError(f"{what} has no {missing}", where=Where(file=path), fix="correct the file")
