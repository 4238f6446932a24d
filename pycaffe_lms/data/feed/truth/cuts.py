"""Cut pictures with boxes to the size of a net's input: flip, resize, enlarge around an object, put in a place.

Source: zhaoweicai/mscnn, image_gt_data_layer.cpp, zhaoweicai/cascade-rcnn, detection_data_layer.cpp (behaviour).
"""

from __future__ import annotations

from typing import Any

import numpy as np

Boxes = list[np.ndarray]  # (n, 4) each


def to_whole(values: Any) -> Any:
    """Round to the nearest whole number, halves up, as C does for numbers above 0."""
    return np.floor(np.asarray(values) + 0.5).astype(np.int64)


def flipped(image: np.ndarray, boxes: Boxes) -> tuple[np.ndarray, Boxes]:
    """Return a picture (H, W, 3) with left and right exchanged."""
    width = image.shape[1]
    return image[:, ::-1], [np.column_stack([width - b[:, 2], b[:, 1], width - b[:, 0], b[:, 3]]) for b in boxes]


def stretched(image: np.ndarray, size: tuple[int, int], boxes: Boxes) -> tuple[np.ndarray, Boxes]:
    """Return a picture of (height, width)."""
    import cv2

    if size == image.shape[:2]:
        return image, boxes
    factor = np.array(size[::-1]) / image.shape[1::-1]
    image = cv2.resize(np.ascontiguousarray(image), size[::-1], interpolation=cv2.INTER_LINEAR)
    return image, [b * np.tile(factor, 2) for b in boxes]


def zoomed(
    image: np.ndarray, factor: np.ndarray, centre: np.ndarray, boxes: Boxes
) -> tuple[np.ndarray, np.ndarray, Boxes]:
    """Return a picture that is `factor` (of x, y) times as large, the place of `centre` in it, and boxes.

    Of one that grows much only what lies around the centre remains.
    """
    import cv2

    if not (factor != 1).any():
        return image, centre, boxes
    if (factor > 1.5).any():  # before it gets too large
        size = np.minimum(to_whole(1.2 * np.array(image.shape[1::-1]) / factor), image.shape[1::-1])
        low = np.maximum(to_whole(centre - size / 2), 0)
        low -= np.maximum(low + size - image.shape[1::-1], 0)
        image = image[low[1] : low[1] + size[1], low[0] : low[0] + size[0]]
        centre, boxes = centre - low, [b - np.tile(low, 2) for b in boxes]
    wide, high = to_whole(np.array(image.shape[1::-1]) * factor).tolist()
    image = cv2.resize(np.ascontiguousarray(image), (wide, high), interpolation=cv2.INTER_LINEAR)
    return image, centre * factor, [b * np.tile(factor, 2) for b in boxes]


def placed(
    image: np.ndarray, centre: np.ndarray, size: tuple[int, int], noise: np.ndarray, boxes: Boxes
) -> tuple[np.ndarray, tuple[int, int], Boxes]:
    """Return the part of a picture that a net of (height, width) sees, (3, h, w), its top and left there, and boxes.

    Where the picture is larger, the part lies around the centre, else the picture in the middle; both are moved by
    `noise` (x, y).
    """
    there, here, sides = [0, 0], [0, 0], [0, 0]
    for axis, (have, want) in enumerate(zip(image.shape[1::-1], size[::-1], strict=True)):
        if have < want:
            there[axis] = int(np.clip(to_whole((want - have) / 2) + noise[axis], 0, want - have))
        elif have > want:
            middle = to_whole(centre[axis]) + noise[axis]
            here[axis] = int(np.clip(middle - to_whole(want / 2), 0, have - want))
        sides[axis] = min(have, want)
    part = image[here[1] : here[1] + sides[1], here[0] : here[0] + sides[0]]
    boxes = [b + np.tile(np.subtract(there, here), 2) for b in boxes]
    return part.transpose(2, 0, 1), (there[1], there[0]), boxes
