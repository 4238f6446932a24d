"""Read the labels of the best path of sequences of scores, and compare them with what they should be."""

from __future__ import annotations

import numpy as np

from ....arrays import HostArray
from ...records import LabelRows
from ..compiled import kernel
from ..threads import parallel

__all__ = ["best_classes", "best_path", "exact_share", "label_accuracy", "line_accuracy", "write_labels"]


def best_classes(x: HostArray, best: HostArray, top: HostArray | None) -> None:
    """Write the first class of the highest score of each row of x (rows, classes) to best (int32), the score to top."""
    rows = x.reshape(best.size, x.size // max(1, best.size))
    chosen = rows.argmax(axis=1) if best.size else np.zeros(0, np.intp)
    best.reshape(-1)[...] = chosen
    if top is not None:
        top.reshape(-1)[...] = rows[np.arange(len(rows)), chosen]


def best_path(
    best: HostArray,
    top: HostArray | None,
    marks: HostArray | None,
    found: HostArray,
    score: HostArray | None,
    rows: LabelRows,
    blank: int,
    merge: bool,
) -> None:
    """Write the labels on a path to found (items, 1 + steps), int32: their number first; the rest is free.

    best, top and marks (T of the net) lie as `rows` says. A sequence ends before the first mark after step 0 that is 0;
    marks None: none ends early. Blanks are left out, and with `merge` classes equal to the one before. score (items)
    receives minus the sum of `top`.
    """
    for i in range(rows.items):
        places = i * rows.item + rows.step * np.arange(rows.steps)
        if marks is not None:
            ended = np.flatnonzero(marks.reshape(-1)[places[1:]] == 0)
            places = places[: ended[0] + 1] if ended.size else places
        path = best.reshape(-1)[places]
        kept = path != blank
        if merge:
            kept[1:] &= path[1:] != path[:-1]
        labels = path[kept]
        found[i, 0] = labels.size
        found[i, 1 : 1 + labels.size] = labels
        if score is not None and top is not None:
            score.reshape(-1)[i] = -top.reshape(-1)[places].sum(dtype=np.float64)


def write_labels(found: HostArray, y: HostArray, rows: LabelRows) -> None:
    """Write the labels of `found`, of best_path, to y, which lies as `rows` says, and -1 behind them."""
    y.reshape(-1)[...] = -1
    for i in range(rows.items):
        n = found[i, 0]
        y.reshape(-1)[i * rows.item + rows.step * np.arange(n)] = found[i, 1 : 1 + n]


def label_accuracy(
    found: HostArray, labels: HostArray, work: HostArray, distance: HostArray, accuracy: HostArray, rows: LabelRows
) -> None:
    """Compute accuracy = 1 - mean of edit distance / length of the longer sequence, 0 where both are empty.

    Labels lie as `rows` says, are rounded, and end before the first negative one. distance: that share of each item, in
    float64. work (items, 1 + steps of rows), int32: of the GPU.
    """
    parallel(_distances, rows.items, found, labels.reshape(-1), distance, *rows)
    accuracy.fill(1 - distance.sum() / max(1, rows.items))


@kernel
def _distances(
    first: int,
    last: int,
    found: HostArray,
    labels: HostArray,
    distance: HostArray,
    _: int,
    steps: int,
    step: int,
    item: int,
) -> None:
    line = np.empty(steps + 1, np.int64)
    for i in range(first, last):
        n = 0
        while n < steps and not labels[n * step + i * item] < 0:
            n += 1
        for b in range(n + 1):
            line[b] = b
        for a in range(found[i, 0]):
            corner, line[0] = line[0], a + 1
            for b in range(n):
                same = found[i, 1 + a] == np.int64(labels[b * step + i * item] + 0.5)
                corner, line[b + 1] = line[b + 1], min(line[b + 1] + 1, line[b] + 1, corner + (0 if same else 1))
        longer = max(n, found[i, 0])
        distance[i] = line[n] / longer if longer else 0.0


def line_accuracy(
    found: HostArray,
    labels: HostArray,
    given: HostArray,
    work: HostArray,
    distance: HostArray,
    accuracy: HostArray,
    rows: LabelRows,
    blank: int,
) -> None:
    """Compute accuracy[0] as `label_accuracy` does, of labels without `blank`, and accuracy[1], the share of items
    whose labels are those found; an item with none of either kind counts as wrong.

    given (items, steps of rows) receives the labels without blanks, then -1. distance, work: see `label_accuracy`.
    """
    given.fill(-1)
    for i in range(rows.items):
        line = labels.reshape(-1)[i * rows.item + rows.step * np.arange(rows.steps)]
        ended = np.flatnonzero(line < 0)
        whole = (line[: ended[0]] if ended.size else line) + line.dtype.type(0.5)
        kept = whole.astype(np.int64)
        kept = kept[kept != blank]
        given[i, : kept.size] = kept
    label_accuracy(found, given, work, distance, accuracy.reshape(-1)[:1], LabelRows(*given.shape, 1, given.shape[1]))
    nothing = (found[:, 0] == 0) & ~(given >= 0).any(axis=1)
    accuracy.reshape(-1)[1] = ((distance == 0) & ~nothing).sum() / max(1, rows.items)


def exact_share(
    found: HostArray, labels: HostArray, distance: HostArray, accuracy: HostArray, rows: LabelRows, blank: int
) -> None:
    """Compute accuracy = the share of items whose labels, without `blank`, are those that were found.

    Labels lie as `rows` says and must be whole numbers to be equal. distance: 1 of a wrong item, else 0, in float64.
    """
    for i in range(rows.items):
        given = labels.reshape(-1)[i * rows.item + rows.step * np.arange(rows.steps)]
        distance[i] = not np.array_equal(given[given != blank].astype(np.float64), found[i, 1 : 1 + found[i, 0]])
    accuracy.fill(1 - distance.sum() / max(1, rows.items))
