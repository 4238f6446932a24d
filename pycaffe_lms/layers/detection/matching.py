"""Which default boxes match which ground-truth boxes, and which others are examples of the background, as in SSD.

Source: weiliu89/caffe (SSD), src/caffe/util/bbox_util.cpp (MatchBBox, MineHardExamples: definitions).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...arrays import HostArray
from ...proto import caffe_pb2
from .boxes import areas, overlaps, suppress

__all__ = ["Truth", "match", "mine", "truth_of"]

_Param = caffe_pb2.MultiBoxLossParameter
_LEAST = 1e-6  # a smaller overlap is none
_SMALLEST = 1e-5  # a smaller area is no box


@dataclass(frozen=True)
class Truth:
    """The ground-truth boxes of one image: labels (G,), of whole numbers, boxes (G, 4), difficult (G,) of bool."""

    labels: HostArray
    boxes: HostArray
    difficult: HostArray

    def __len__(self) -> int:
        return len(self.labels)


def truth_of(rows: HostArray, images: int, use_difficult: bool = True) -> list[Truth]:
    """Return the ground-truth boxes of every image from rows (image, label, instance, xmin, ymin, xmax, ymax,
    difficult).

    Rows of image -1 fill a batch without objects.
    """
    rows = rows.reshape(-1, 8)
    if not use_difficult:
        rows = rows[rows[:, 7] == 0]
    image = rows[:, 0].astype(np.int64)
    own = (rows[image == n] for n in range(images))
    return [Truth(each[:, 1].astype(np.int64), each[:, 3:7], each[:, 7] != 0) for each in own]


def match(boxes: HostArray, truth: HostArray, p: caffe_pb2.MultiBoxLossParameter) -> tuple[HostArray, HostArray]:
    """Return for each of the boxes (P, 4) its match among the ground-truth boxes (G, 4), and their overlap: (P,) each.

    -1: none, then the overlap is the largest with any; -2: ignored. First every ground-truth box gets the box that
    overlaps it most, best pairs first; with PER_PREDICTION the boxes left get the ground-truth box that they overlap
    most, if by overlap_threshold at least.
    """
    found = np.full(len(boxes), -1, np.int64)
    largest = np.zeros(len(boxes), boxes.dtype)
    if not len(truth):
        return found, largest
    if p.ignore_cross_boundary_bbox:
        found[((boxes < 0) | (boxes > 1)).any(axis=1)] = -2
    near = np.flatnonzero(found == -1)
    common = overlaps(boxes[near], truth)
    largest[near] = np.where(common > _LEAST, common, 0).max(axis=1)
    near, common = near[largest[near] > 0], common[largest[near] > 0]
    free = common.copy()
    for _ in range(len(truth)):  # pairs, the best first
        best = int(free.argmax()) if free.size else 0
        if not free.size or free.flat[best] <= _LEAST:
            break
        row, column = divmod(best, len(truth))
        found[near[row]], largest[near[row]] = column, common[row, column]
        free[row], free[:, column] = 0, 0
    if p.match_type == _Param.PER_PREDICTION:
        best = common.argmax(axis=1)
        rest = (found[near] == -1) & (largest[near] >= p.overlap_threshold)
        found[near[rest]] = best[rest]
    return found, largest


def mine(
    p: caffe_pb2.MultiBoxLossParameter,
    found: HostArray,
    overlap: HostArray,
    loss: HostArray,
    boxes: HostArray,
    objects: HostArray,
) -> HostArray:
    """Return which boxes (P,) of an image are chosen as examples, given matches and overlaps as `match` returns them.

    MAX_NEGATIVE: of the boxes without a match that overlap a ground-truth box by less than neg_overlap, those with the
    largest losses (P,), at most neg_pos_ratio for each match; chosen are negatives only. HARD_EXAMPLE: of all boxes the
    sample_size ones with the largest losses. With nms_param, boxes (P, 4) that overlap one of larger loss are left out
    before. objects: (P,) of bool, which boxes can be chosen.
    """
    if p.mining_type == _Param.MAX_NEGATIVE:
        eligible = np.flatnonzero((found == -1) & (overlap < p.neg_overlap) & objects)
        most = min(int((found > -1).sum() * p.neg_pos_ratio), len(eligible))
    else:
        eligible = np.flatnonzero(objects)
        most = p.sample_size
    eligible = eligible[np.argsort(-loss[eligible], kind="stable")]
    if p.HasField("nms_param") and p.nms_param.nms_threshold > 0:
        limit = p.nms_param.top_k if p.nms_param.HasField("top_k") else len(eligible)
        eligible = eligible[:limit]
        eligible = eligible[areas(boxes[eligible]) >= _SMALLEST]
        eligible = eligible[suppress(boxes[eligible], p.nms_param.nms_threshold)]
    chosen = np.zeros(len(found), bool)
    chosen[eligible[:most]] = True
    return chosen
