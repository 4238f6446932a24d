"""Run a net that ends in DetectionOutput on pictures: print the boxes of the objects that it finds, or draw them.

See also: cli/commands/detect.py, whose flags these are; layers/detection/detection_output.py.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...arrays import HostArray
from ...data.transform.preprocess import Transformer
from ...errors import DataError, UsageError, Where
from ...formats.atomic import atomic_write
from ...io import load_image
from ...layers.detection.boxes import to_pixels
from ...pycaffe.classes import Net

_log = logging.getLogger(__name__)
_COLOURS = ((0, 0, 255), (0, 200, 0), (255, 0, 0), (0, 200, 255), (255, 0, 255), (255, 200, 0))  # blue, green, red


def show_objects(
    net: Net,
    transformer: Transformer,
    model: str,
    pictures: Sequence[str],
    *,
    least: float,
    labels: Mapping[int, str],
    places: Mapping[str, Path],
) -> None:
    """Print a line for each object: picture, class, score, xmin, ymin, xmax, ymax (pixels), the best first.

    Args:
        transformer: makes pictures into the net's first input.
        model: what the net is called in errors.
        least: score that an object must have.
        labels: names of classes; others are class1, class2, ..
        places: {picture: file for it with its boxes}, see `places_of`.

    Raises: UsageError for a net without DetectionOutput, CaffeError for pictures and files.
    """
    top, name = _found(net, model), net.inputs[0]
    data = net.blobs[name]
    if data.shape[0] != 1:
        data.reshape(1, *data.shape[1:])
    start = time.perf_counter()
    for path in pictures:
        picture = load_image(path, data.shape[1] != 1)
        data.data = transformer.preprocess(name, picture)[None]
        net.forward()
        rows = np.array(net.blobs[top].data).reshape(-1, 7)
        rows = rows[(rows[:, 1] >= 0) & (rows[:, 2] >= least)]
        rows = rows[np.argsort(-rows[:, 2], kind="stable")]
        boxes = to_pixels(rows[:, 3:], picture.shape[0], picture.shape[1], None)
        said = [(labels.get(int(row[1]), f"class{int(row[1])}"), float(row[2])) for row in rows]
        for (label, score), box in zip(said, boxes, strict=True):
            print(path, label, f"{score:.4f}", *(f"{v:.1f}" for v in box))
        if path in places:
            atomic_write(places[path], _drawn(picture, boxes, rows[:, 1], said), error=DataError)
    _log.info("Processed %d pictures in %.3f s.", len(pictures), time.perf_counter() - start)


def places_of(pictures: Sequence[str], folder: str | None) -> dict[str, Path]:
    """Return where each picture with its boxes is written; makes the folder. None: nowhere. Raises UsageError and
    DataError."""
    if folder is None:
        return {}
    places = {path: Path(folder, f"{Path(path).stem}.png") for path in pictures}
    if len(set(places.values())) < len(places):
        raise UsageError("two pictures have one name, but -draw writes all into one folder", fix="give them apart")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as failure:
        fix = "give -draw a folder, or a name that is free"
        where = Where(file=folder)
        raise DataError(f"the folder cannot be made: {failure.strerror}", where=where, fix=fix) from None
    return places


def _found(net: Net, model: str) -> str:
    """Return the blob of detections. Raises UsageError for a net without one."""
    tops = [node.layer.param.top[0] for node in net.graph.nodes if node.layer.param.type == "DetectionOutput"]
    if not tops:
        raise UsageError(
            f"{model}: the net has no DetectionOutput layer, so it finds no boxes",
            fix="give the deploy net of an SSD; to score windows of pictures, give a .csv file of them, and OUTPUT",
        )
    return str(tops[-1])


def _drawn(picture: HostArray, boxes: HostArray, classes: HostArray, said: list[tuple[str, float]]) -> bytes:
    """Return the picture with its boxes, the best on top, as PNG."""
    import cv2

    image = np.ascontiguousarray((picture[..., ::-1] * 255).round().astype(np.uint8))
    if image.shape[2] == 1:
        image = np.repeat(image, 3, axis=2)
    for box, label, (name, score) in list(zip(boxes, classes, said, strict=True))[::-1]:
        colour = _COLOURS[int(label) % len(_COLOURS)]
        left, top, right, bottom = (int(round(float(v))) for v in box)
        cv2.rectangle(image, (left, top), (right, bottom), colour, 1)
        place = (left + 1, top + 9 if top < 9 else top - 2)
        cv2.putText(image, f"{name} {score:.2f}", place, cv2.FONT_HERSHEY_SIMPLEX, 0.3, colour, 1, cv2.LINE_AA)
    return bytes(cv2.imencode(".png", image)[1])
