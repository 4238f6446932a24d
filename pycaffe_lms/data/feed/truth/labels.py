"""Say which object each position of a detector of boxes of one size belongs to: MS-CNN, Cascade R-CNN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .cuts import to_whole


@dataclass(frozen=True)
class BoxField:
    """Describe boxes of width x height at positions `stride` pixels apart."""

    width: float
    height: float
    stride: float


@dataclass(frozen=True)
class LabelRule:
    """Say when a box belongs to an object, and when it does not count.

    threshold: it belongs to the object that it overlaps most if by more than this. outside: boxes that lie so much in
    regions of no interest do not count; with `pixels` only those that belong to no object. least: an object that no box
    overlaps enough gets the position of its centre if its best overlap is this. pixels: boxes count both ends in.
    margin: boxes that leave the picture by more of their half size do not count. within: nor do those of which less
    lies in the picture.
    """

    threshold: float
    outside: float = 0.4
    least: float = 0.2
    pixels: bool = False
    margin: float | None = None
    within: float | None = None


def positions(size: tuple[int, int], field: BoxField) -> tuple[int, ...]:
    """Return how many rows and columns a detector has for pictures of (height, width)."""
    return tuple(int(to_whole(side / field.stride)) for side in size)


def write_labels(
    fields: Sequence[BoxField],
    rule: LabelRule,
    objects: tuple[np.ndarray, np.ndarray, np.ndarray],
    regions: np.ndarray,
    window: tuple[int, ...],
    labels: Sequence[np.ndarray],
) -> None:
    """Write the labels (6, h, w) of a picture for every field, which are 0 before.

    objects: classes (G,), which of them are ignored (G,), boxes (G, 4). regions: of no interest, (M, 4). window: top,
    left, height, width of the picture in what the net sees.
    """
    classes, ignored, boxes = objects
    end = int(rule.pixels)
    truth = np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2] + end], axis=1)
    matched, best = np.zeros(len(boxes), bool), [(0.0, 0)] * len(boxes)
    for number, (field, label) in enumerate(zip(fields, labels, strict=True)):
        anchors, counts = _anchors(field, label.shape[1:], window)
        area = (field.width + end) * (field.height + end)
        counts &= _inside(anchors, rule, window, area)
        dull = _common(anchors, regions, end).sum(axis=0) / area >= rule.outside
        if not rule.pixels:
            counts &= ~dull
        label[5][~counts] = 1
        if len(boxes):
            common = _common(anchors, boxes, end)
            union = np.maximum(truth[:, 2:].prod(axis=1), 0)[:, None, None] + area - common
            ious = np.where(counts, common / union, 0)
            most, own = ious.max(axis=0), ious.argmax(axis=0)
            for k, highest in enumerate(ious.max(axis=(1, 2))):
                best[k] = max(best[k], (float(highest), -number))
            label[5][counts] = most[counts]
            taken = most > rule.threshold
            owners = own[taken]
            label[0][taken] = np.where(ignored[owners], 0, classes[owners])
            label[1:5, taken] = truth[owners].T
            matched[owners] = True
            dull &= ~taken
        if rule.pixels:
            label[5][counts & dull] = 1
    for k in np.flatnonzero(~matched & ~ignored).tolist():
        overlap, number = best[k]
        if overlap < rule.least:
            continue
        label, stride = labels[-number], fields[-number].stride
        h, w = (int(np.clip(truth[k, 1 - a] // stride, 0, label.shape[1 + a] - 1)) for a in (0, 1))
        if label[0, h, w] <= 0:
            label[0, h, w], label[1:5, h, w] = classes[k], truth[k]
            if rule.pixels:
                label[5, h, w] = overlap


def _anchors(field: BoxField, size: tuple[int, ...], window: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the boxes (H, W, 4) of all positions, and which positions lie in the window, (H, W)."""
    rows, columns = (np.arange(n) for n in size)
    first_row, first_column, many_rows, many_columns = (int(to_whole(v / field.stride)) for v in window)
    inside = ((rows >= first_row) & (rows < first_row + many_rows))[:, None]
    inside = inside & (columns >= first_column) & (columns < first_column + many_columns)
    x, y = np.meshgrid((columns + 0.5) * field.stride, (rows + 0.5) * field.stride)
    w, h = field.width / 2, field.height / 2
    return np.stack([x - w, y - h, x + w, y + h], axis=-1), inside


def _inside(anchors: np.ndarray, rule: LabelRule, window: tuple[int, ...], area: float) -> np.ndarray:
    """Return which boxes lie enough in the window, (H, W)."""
    top, left, height, width = window
    corner, far = np.array([left, top]), np.array([left + width, top + height])
    if rule.margin is not None:
        room = rule.margin * (anchors[..., 2:] - anchors[..., :2]) / 2
        inside = (anchors[..., :2] >= corner - room) & (anchors[..., 2:] < far + room)
        return np.asarray(inside.all(axis=-1))
    if rule.within is not None:
        common = _common(anchors, np.array([[*corner, *far]], np.float64), int(rule.pixels))[0]
        return np.asarray(common / area >= rule.within)
    return np.ones(anchors.shape[:2], bool)


def _common(boxes: np.ndarray, others: np.ndarray, end: int) -> np.ndarray:
    """Return (G, H, W): the areas that boxes (H, W, 4) have in common with others (G, 4). end: 1: both ends count."""
    low = np.maximum(boxes[..., :2], others[:, None, None, :2])
    high = np.minimum(boxes[..., 2:], others[:, None, None, 2:])
    meets = (high >= low).all(axis=-1)
    return np.where(meets, (high - low + end).prod(axis=-1), 0)
