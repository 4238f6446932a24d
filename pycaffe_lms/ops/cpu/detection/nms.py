"""Non-maximum suppression of many classes and images at once on the CPU, and the best boxes of every image."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ..compiled import kernel
from ..threads import parallel

__all__ = ["batched_nms", "detection_rows"]


def batched_nms(
    scores: HostArray,
    boxes: HostArray,
    kept: HostArray,
    numbers: HostArray,
    least: float,
    threshold: float,
    eta: float,
    skipped: int,
) -> None:
    """For every image and class choose among P boxes: those with a score above `least`, of these the K best, of these
    the ones that overlap no better one that is kept by more than `threshold`.

    Args:
        scores: (N, P * C).
        boxes: (N, P, L, 4): for all classes (L = 1), or for each (L = C).
        kept: int32, (N, C, K): the numbers of the kept boxes, best first, of equal scores the first box first. What
            follows them has no meaning.
        numbers: int32, (N, C): how many are kept.
        threshold: for intersection divided by union.
        eta: below 1: a threshold above 0.5 is multiplied by it after every box that is kept.
        skipped: a class of which no box is kept; -1: none.
    """
    images, classes, most = kept.shape
    by_box = scores.reshape(images, boxes.shape[1], classes)
    number = boxes.dtype.type
    limit, factor, end = number(threshold), number(eta), number(0)

    def choose(first: int, last: int) -> None:
        for i in range(first, last):
            image, label = divmod(i, classes)
            if label == skipped:
                numbers[image, label] = 0
                continue
            own = by_box[image, :, label]
            chosen = np.flatnonzero(own > least)
            best = chosen[np.argsort(-own[chosen], kind="stable")[:most]]
            corners = boxes[image, best, label if boxes.shape[2] > 1 else 0]
            found = np.empty(len(best), np.int64)
            n = greedy(corners, areas(corners), limit, factor, end, found)
            kept[image, label, :n] = best[found[:n]]
            numbers[image, label] = n

    parallel(choose, images * classes)


def detection_rows(
    scores: HostArray, boxes: HostArray, kept: HostArray, numbers: HostArray, rows: HostArray, found: HostArray
) -> None:
    """Write the M best kept boxes of every image, by class, then as `kept` has them.

    Args:
        scores, boxes, kept, numbers: see `batched_nms`.
        rows: (N, M, 7): image, class, score, xmin, ymin, xmax, ymax. Among equal scores the first class is best, then
            the first kept box. What follows the rows of an image has no meaning.
        found: int32, (N): how many rows an image has.
    """
    images, classes, _ = kept.shape
    by_box = scores.reshape(images, boxes.shape[1], classes)
    for image in range(images):
        labels = np.repeat(np.arange(classes), numbers[image])
        chosen = np.concatenate([kept[image, c, : numbers[image, c]] for c in range(classes)])
        values = by_box[image, chosen, labels]
        if len(chosen) > rows.shape[1]:
            best = np.sort(np.argsort(-values, kind="stable")[: rows.shape[1]])
            labels, chosen, values = labels[best], chosen[best], values[best]
        own = rows[image, : len(chosen)]
        own[:, 0], own[:, 1], own[:, 2] = image, labels, values
        own[:, 3:] = boxes[image, chosen, labels if boxes.shape[2] > 1 else 0]
        found[image] = len(chosen)


def areas(boxes: HostArray, pixels: bool = False) -> HostArray:
    """Return the areas of boxes (..., 4): shape (...). Those that end before they begin have 0.

    pixels: count both ends in, as for boxes of whole pixels.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # boxes of a net that is not trained can be infinite
        sides = boxes[..., 2:] - boxes[..., :2]
        return np.asarray(np.where((sides >= 0).all(axis=-1), (sides + int(pixels)).prod(axis=-1), boxes.dtype.type(0)))


_TOGETHER = 64  # boxes that one is compared with at a time, in vector instructions


@kernel
def greedy(boxes: HostArray, area: HostArray, threshold: float, eta: float, end: float, kept: HostArray) -> int:
    """Write the positions of the boxes that remain to `kept`, at most as many as it takes, and return their number.

    boxes: (M, 4), best first. area: (M). end: what is added to a side, 0 or 1.
    """
    n, zero = 0, threshold - threshold
    held = np.zeros((5, len(kept)), boxes.dtype)  # corners and areas of those that remain, side by side
    left, top, right, bottom, size = held[0], held[1], held[2], held[3], held[4]
    for i in range(len(boxes)):
        if n == len(kept):
            break
        x1, y1, x2, y2 = boxes[i]
        own, hits = area[i], 0
        for first in range(0, n, _TOGETHER):
            for k in range(first, min(first + _TOGETHER, n)):
                wide = (x2 if x2 < right[k] else right[k]) - (x1 if x1 > left[k] else left[k])
                high = (y2 if y2 < bottom[k] else bottom[k]) - (y1 if y1 > top[k] else top[k])
                common = (wide + end) * (high + end)
                meets = ((wide > zero) & (high > zero)) | ((end > zero) & (wide >= zero) & (high >= zero))
                fine = common / (own + size[k] - common) <= threshold
                hits += meets & (not fine)
            if hits:
                break
        if not hits:
            left[n], top[n], right[n], bottom[n], size[n] = x1, y1, x2, y2, own
            kept[n] = i
            n += 1
            if eta < 1 and threshold > 0.5:
                threshold *= eta
    return n
