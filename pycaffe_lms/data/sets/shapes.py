"""Draw a small data set for detection: circles, squares and triangles on a plain ground, with their boxes.

Every picture depends on the seed and its number alone. Boxes are exact: the first and last rows and columns of pixels
of a shape. See also: datasets.py, whose table names it; annoset.py, for sets of files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...errors import DataError
from ...formats.atomic import atomic_write
from ...proto.caffe_pb2 import AnnotatedDatum
from ..database.whole_folder import Record
from ..transform.boxes import coverages
from ..transform.transformer import batch_rng
from .conversion import Progress, make_database, told

SHAPES = ("circle", "square", "triangle")
"""Names of the classes 1, 2 and 3; 0 is the background."""
SIDE = 96
"""Height and width of a picture in pixels."""
_RECORDS = {"train": 2000, "test": 400}
_STREAM = 1 << 36  # of random numbers, apart from those of data layers and conversion.py
_LEAST, _MOST = 16, 48  # pixels of a shape's side
_HIDDEN = 0.1  # most share of a shape that a later one may cover


def draw_shapes(number: int, seed: int = 0) -> tuple[np.ndarray, list[tuple[int, int, int, int, int]]]:
    """Draw picture `number`: uint8 (3, SIDE, SIDE), blue, green, red, and its 1 to 5 shapes, those of a class together.

    Returns: of each shape its class and xmin, ymin, xmax, ymax: its first column and row, and those after its last.
    """
    rng = batch_rng(seed, number, _STREAM)
    ground = rng.integers(40, 216, 3)
    picture = ground[:, None, None] + rng.integers(-12, 13, (3, SIDE, SIDE))
    shapes: list[tuple[int, int, int, int, int]] = []
    for _ in range(int(rng.integers(1, 6))):
        side = int(rng.integers(_LEAST, _MOST + 1))
        left, top = (int(v) for v in rng.integers(0, SIDE - side + 1, 2))
        kind = int(rng.integers(1, len(SHAPES) + 1))
        shift = rng.integers(60, 129, 3)
        box = (kind, left, top, left + side, top + side)
        if any(max(coverages(_box(one), _box(box)), coverages(_box(box), _box(one))) > _HIDDEN for one in shapes):
            continue
        colour = (ground + np.where(ground < 128, shift, -shift))[:, None] + rng.integers(-6, 7, (3, side * side))
        mask = _mask(kind, side)
        picture[:, top : top + side, left : left + side][:, mask] = colour.reshape(3, side, side)[:, mask]
        shapes.append(box)
    return np.clip(picture, 0, 255).astype(np.uint8), sorted(shapes, key=lambda shape: shape[0])


def _box(shape: tuple[int, ...]) -> np.ndarray:
    return np.array(shape[1:], np.float32)


def _mask(kind: int, side: int) -> np.ndarray:
    """Return which pixels of a square of this side belong to a shape; it touches all four edges."""
    rows, columns = np.indices((side, side)) + 0.5
    if SHAPES[kind - 1] == "circle":
        return np.asarray((rows - side / 2) ** 2 + (columns - side / 2) ** 2 <= (side / 2) ** 2)
    if SHAPES[kind - 1] == "square":
        return np.ones((side, side), bool)
    return np.asarray(abs(columns - side / 2) <= (rows + 0.5) / 2)


def make_shapes(
    out_dir: str | os.PathLike[str],
    *,
    backend: str = "lmdb",
    progress: Progress | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write `shapes_train_lmdb`, `shapes_test_lmdb` (keys %08d, raw records of AnnotatedData) and `labelmap.prototxt`.

    Return {"train": path, "test": path, "label map": path}.
    backend: lmdb or leveldb, and the ending of the names.
    Raises: DataError as `make_database`; an existing label map is replaced.
    """
    paths, first = {}, 0
    for part, count in _RECORDS.items():
        paths[part] = Path(out_dir, f"shapes_{part}_{backend}")
        records = told(_records(first, count), count, progress)
        make_database(paths[part], records, backend=backend, overwrite=overwrite)
        first += count
    paths["label map"] = Path(out_dir, "labelmap.prototxt")
    names = ("none_of_the_above", *SHAPES)
    items = (f'item {{ name: "{n}" label: {k} display_name: "{n}" }}\n' for k, n in enumerate(names))
    atomic_write(paths["label map"], "".join(items).encode(), error=DataError)
    return paths


def _records(first: int, count: int) -> Iterator[Record]:
    for number in range(count):
        picture, shapes = draw_shapes(first + number)
        record = AnnotatedDatum(type=AnnotatedDatum.BBOX)
        record.datum.channels, record.datum.height, record.datum.width = picture.shape
        record.datum.data, record.datum.label, record.datum.encoded = picture.tobytes(), -1, False
        for kind, *edges in shapes:
            if not record.annotation_group or record.annotation_group[-1].group_label != kind:
                record.annotation_group.add(group_label=kind)
            group = record.annotation_group[-1].annotation
            one = group.add(instance_id=len(group))
            for edge, pixel in zip(("xmin", "ymin", "xmax", "ymax"), edges, strict=True):
                setattr(one.bbox, edge, pixel / SIDE)
            one.bbox.difficult = False
        yield b"%08d" % number, record.SerializeToString()
