"""Files that DetectionOutput writes for the scoring programs of VOC, COCO and ILSVRC."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
from google.protobuf import text_format

from ...arrays import HostArray
from ...errors import DataError, LayerParamError, Where
from ...proto import caffe_pb2
from ..base import Layer
from .boxes import to_pixels

FORMATS = ("VOC", "COCO", "ILSVRC")
_log = logging.getLogger(__name__)


def saved_detections(layer: Layer, p: caffe_pb2.SaveOutputParameter) -> SavedDetections | None:
    """Return where a layer saves, None where it does not: in a net that will not run, or without all three of
    output_directory, label_map_file and name_size_file. Files that are not there are no error, since many published
    deploy nets name those of their authors; a warning tells."""
    if not p.output_directory or not layer.context.reads_ahead:
        return None
    for field in ("label_map_file", "name_size_file"):
        path = getattr(p, field)
        if not path or not Path(path).exists():
            why = f"{field} {path} is not there" if path else f"{field} is not given"
            _log.warning(
                'layer "%s" (%s): nothing is saved in %s: %s', layer.name, layer.param.type, p.output_directory, why
            )
            return None
    return SavedDetections(p, layer.param.detection_output_param.background_label_id)


def sizes_of(path: str) -> list[tuple[str, int, int]]:
    """Return (name, height, width) of every picture in a file with three words each. Raises DataError."""
    try:
        words = Path(path).read_text(encoding="utf-8").split()
        lines = zip(words[::3], words[1::3], words[2::3], strict=True)
        found = [(name, int(height), int(width)) for name, height, width in lines]
    except (OSError, UnicodeDecodeError) as failure:
        raise DataError(f"cannot be read: {failure}", where=Where(file=path), fix="correct name_size_file") from None
    except ValueError as failure:
        raise DataError(
            f"is no list of names and sizes: {failure}",
            where=Where(file=path),
            fix='write "name height width" per line',
        ) from None
    if not found:
        raise DataError("names no picture", where=Where(file=path), fix='write "name height width" per line')
    return found


class SavedDetections:
    """Collects what is found in pictures and writes it after num_test_image of them, and again after as many.

    The pictures come in the order of name_size_file, of which each line is a name, a height and a width. Files in
    output_directory, which is made if it is missing; coordinates are whole pixels, but of COCO hundredths:
    VOC: {output_name_prefix}{class}.txt for every class: picture, score, xmin, ymin, xmax, ymax per line.
    ILSVRC: {output_name_prefix}.txt: picture, class's number, score, xmin, ymin, xmax, ymax per line.
    COCO: {output_name_prefix}.json: a list of {image_id, category_id, bbox: [x, y, width, height], score}.
    Args:
        p: the layer's save_output_param.
        background: the number of the class that gets no file.
    Raises: LayerParamError for another output_format; DataError for files that cannot be read.
    """

    def __init__(self, p: caffe_pb2.SaveOutputParameter, background: int):
        self._folder, self._prefix, self._format = Path(p.output_directory), p.output_name_prefix, p.output_format
        if p.output_format not in FORMATS:
            raise LayerParamError(f'output_format is "{p.output_format}"', fix=f"use one of {', '.join(FORMATS)}")
        self._map, self._names = p.label_map_file, _names(p.label_map_file)
        self._background = background
        pictures = sizes_of(p.name_size_file)
        self._pictures = pictures[: p.num_test_image] if p.num_test_image else pictures
        if p.num_test_image > len(pictures):
            raise LayerParamError(
                f"num_test_image is {p.num_test_image}, but {p.name_size_file} has {len(pictures)} pictures",
                fix="give a smaller num_test_image, or a longer file",
            )
        self._resize = p.resize_param if p.HasField("resize_param") else None
        self._found: list[tuple[str, int, float, HostArray]] = []  # picture, class, score, box
        self._position = 0  # pictures since files were written

    def add(self, rows: HostArray, images: int) -> None:
        """Take what was found in the next `images` pictures: rows (K, 7) as in DetectionOutput's top."""
        for image in range(images):
            name, height, width = self._pictures[self._position]
            own = rows[rows[:, 0] == image]
            boxes = to_pixels(own[:, 3:], height, width, self._resize)
            for row, box in zip(own, boxes, strict=True):
                label = int(row[1])
                if label not in self._names:
                    raise DataError(
                        f"has no class {label}", where=Where(file=self._map), fix="name every class, from 0 on"
                    )
                self._found.append((name, label, float(row[2]), box))
            self._position += 1
            if self._position == len(self._pictures):
                self._write()
                self._found, self._position = [], 0

    def _write(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for name, text in self._texts().items():
                (self._folder / name).write_text(text, encoding="utf-8")
        except OSError as failure:
            raise DataError(
                f"cannot be written: {failure}", where=Where(file=str(self._folder)), fix="change output_directory"
            ) from None

    def _texts(self) -> dict[str, str]:
        """Return the files' texts by their names."""
        if self._format == "COCO":
            return {f"{self._prefix}.json": json.dumps([self._coco(*one) for one in self._found], indent=1) + "\n"}
        if self._format == "ILSVRC":
            lines = [f"{name} {label} {_plain(score, box)}" for name, label, score, box in self._found]
            return {f"{self._prefix}.txt": "".join(lines)}
        texts = {label: "" for label in sorted(self._names) if label != self._background}
        for name, label, score, box in self._found:
            texts[label] += f"{name} {_plain(score, box)}"
        return {f"{self._prefix}{self._names[label]}.txt": text for label, text in texts.items()}

    def _coco(self, picture: str, label: int, score: float, box: HostArray) -> dict[str, object]:
        name = self._names[label]
        return {
            "image_id": int(picture) if picture.isdecimal() else picture,
            "category_id": int(name) if name.isdecimal() else name,
            "bbox": _hundredths(box),
            "score": round(score, 9),
        }


def _names(path: str) -> dict[int, str]:
    """Return the classes' names by number from a LabelMap as text. Raises DataError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        items = text_format.Parse(text, caffe_pb2.LabelMap()).item
    except (OSError, UnicodeDecodeError, text_format.ParseError) as failure:
        raise DataError(
            f"cannot be read: {failure}",
            where=Where(file=path),
            fix='correct label_map_file; it has item { name: "..." label: 1 } for every class',
        ) from None
    return {item.label: item.name for item in items}


def _hundredths(box: HostArray) -> list[float]:
    """Return x, y, width and height, rounded to hundredths of a pixel."""
    x, y, right, bottom = (float(v) for v in box)
    return [float(np.floor(v * 100 + 0.5)) / 100 for v in (x, y, right - x, bottom - y)]


def _plain(score: float, box: HostArray) -> str:
    x, y, width, height = (int(v) for v in _hundredths(box))
    return f"{score:g} {x} {y} {x + width} {y + height}\n"
