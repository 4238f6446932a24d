"""Decode boxes of SSD on the CPU: what predictions mean relative to default boxes, in steps that a GPU repeats."""

from __future__ import annotations

import math

from ....arrays import HostArray
from ...exponential import LARGEST, LEAST, LN2_HIGH, LN2_LOW, PER_LN2, TERMS
from ..compiled import kernel
from ..threads import ELEMENTS, parallel

__all__ = ["decode_boxes"]


def decode_boxes(predicted: HostArray, priors: HostArray, boxes: HostArray, code: int, scaled: bool) -> None:
    """Write the boxes that predictions mean.

    Args:
        predicted: (N, P * L * 4), L boxes for each of P default boxes.
        priors: default boxes and their variances, (1, 2, P * 4), each box xmin, ymin, xmax, ymax.
        boxes: (N, P, L, 4).
        code: the number of a CodeType: 1 CORNER, 2 CENTER_SIZE, 3 CORNER_SIZE.
        scaled: multiply predictions by the variances.
    """
    images, p, each, _ = boxes.shape
    if boxes.size:
        rows = predicted.reshape(images * p * each, 4), priors[0].reshape(2, p, 4), boxes.reshape(images * p * each, 4)
        parallel(_decode, len(rows[0]), *rows, each, code, bool(scaled), boxes.dtype.type(2), grain=ELEMENTS // 16)


@kernel
def _decode(
    first: int,
    last: int,
    predicted: HostArray,
    priors: HostArray,
    boxes: HostArray,
    each: int,
    code: int,
    scaled: bool,
    two: float,
) -> None:
    for i in range(first, last):
        p = i // each % priors.shape[1]
        x1, y1, x2, y2 = priors[0, p]
        a, b, c, d = predicted[i]
        if scaled:
            v = priors[1, p]
            a, b, c, d = v[0] * a, v[1] * b, v[2] * c, v[3] * d
        box = boxes[i]
        if code == 1:
            box[0], box[1], box[2], box[3] = x1 + a, y1 + b, x2 + c, y2 + d
            continue
        width, height = x2 - x1, y2 - y1
        if code == 3:
            box[0], box[1], box[2], box[3] = x1 + a * width, y1 + b * height, x2 + c * width, y2 + d * height
            continue
        x, y = a * width + (x1 + x2) / two, b * height + (y1 + y2) / two
        box[2], box[3] = _exp(c), _exp(d)  # rounded to the type of boxes
        half_width, half_height = box[2] * width / two, box[3] * height / two
        box[0], box[1], box[2], box[3] = x - half_width, y - half_height, x + half_width, y + half_height


@kernel
def _exp(value: float) -> float:
    """Return e^value in float64, see `ops/exponential.py`."""
    x = float(value)
    if x > LARGEST:
        return math.inf
    if x < LEAST:
        return 0.0
    if x != x:
        return x
    k = math.floor(x * PER_LN2 + 0.5)
    r = x - k * LN2_HIGH - k * LN2_LOW
    total = TERMS[0]
    for term in TERMS[1:]:
        total = total * r + term
    return math.ldexp(total, k)
