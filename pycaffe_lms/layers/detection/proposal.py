"""Proposal: regions of pictures that may hold objects, from a region proposal network (Faster R-CNN).

CountedRowsLayer is the base of layers whose tops have as many rows as the values of their bottoms say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...arrays import HostArray
from ..base import Declaration, Layer, Pass, Reads, Runs, Shapes, ShapesChanged, between, count, exactly
from ..registry import register_layer
from .boxes import suppress
from .detection_output import best_first, for_images

_MOST = 64  # bottoms, and tops, of a layer


class CountedRowsLayer(Layer):
    """A layer that computes rows, whose number is known after forward only.

    Where it changes, the net takes memory anew. No bottom gets a gradient, even where a layer that learns makes it.
    """

    declares = Declaration(
        bottoms=between(1, _MOST),
        tops=between(1, _MOST),
        runs_on=Runs.HOST,
        no_backward=None,
        skips_backward=frozenset(range(_MOST)),
        ignores_force_backward=frozenset(range(_MOST)),
        backward_reads=Reads.NONE,
        full_precision=frozenset(range(_MOST)),
    )

    counted: int | None = None  # rows that the last forward found
    # values of the bottoms, and their rows, which wait for tops of their number
    _known: tuple[list[HostArray], Sequence[HostArray]] | None = None

    def rows(self, bottoms: Sequence[HostArray]) -> Sequence[HostArray]:
        """Return the rows of every top. The net has the bottoms' values; they are not changed."""
        raise NotImplementedError

    def forward(self, io: Pass) -> None:
        known, self._known = self._known, None
        if known is not None and all(map(np.array_equal, known[0], io.bottom)):
            found = known[1]
        else:
            found = self.rows(io.bottom)
        if len(found[0]) != len(io.top[0]):
            self.counted, self._known = len(found[0]), ([value.copy() for value in io.bottom], found)
            raise ShapesChanged
        for top, values in zip(io.top, found, strict=False):
            top[...] = values.reshape(top.shape)


@register_layer("Proposal")
class ProposalLayer(CountedRowsLayer):
    """The post_nms_topn best regions of each picture: anchors that are moved, cut to the picture, and do not overlap.

    With A anchors, one for each ratio and each scale: bottom 0: probabilities, (N, 2 A, H, W), the A of background
    first. Bottom 1: how anchors are moved, (N, 4 A, H, W): the centre in sizes of the anchor, and logarithms of the
    ratios of sizes, x before y. Bottom 2: a row for each picture, or one for all: height, width, scale, and the scale
    of widths if it is another one. Top 0: rows of (image, x1, y1, x2, y2), (R, 5). Top 1, if given: their
    probabilities, (R). R is known after forward only; it is N * post_nms_topn before the first one. Where it changes,
    the net takes memory anew.
    An anchor of ratio r and scale s, around the first position: w = round(sqrt(base_size^2 / r)) * s wide and round(w /
    s * r) * s high, around (base_size - 1) / 2; feat_stride further for each position. Sizes count both ends in. A
    region that is smaller than min_size * scale on a side has score 0. Of the pre_nms_topn best ones remain those that
    overlap no better one that remains by more than nms_thresh; of equal scores the first, by position and anchor, is
    better (in the fork that is undefined).
    Runs on the host. No bottom gets a gradient, even where a layer that learns makes it.
    Raises: LayerParamError without ratios or scales, or for one that is not above 0; ShapeError for bottoms that do not
    belong together.
    Source: openvinotoolkit/training_toolbox_caffe (as in PVANet), src/caffe/layers/proposal_layer.cpp.
    """

    declares = replace(CountedRowsLayer.declares, bottoms=exactly(3), tops=between(1, 2), full_precision=frozenset({2}))

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.proposal_param
        for name, values in (("ratio", p.ratio), ("scale", p.scale)):
            if not values or not all(value > 0 for value in values):
                raise self.error(
                    f"{name} is missing, or not above 0", fix="give anchors: proposal_param { ratio: 1 scale: 8 ... }"
                )
        for name in ("feat_stride", "base_size", "pre_nms_topn", "post_nms_topn"):
            if not 0 < getattr(p, name) < 1 << 31:
                raise self.error(f"{name} is {getattr(p, name)}", fix="give a number above 0")
        self.anchors = _anchors(p.base_size, np.array(p.ratio, self.dtype), np.array(p.scale, self.dtype))

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        scores, moves, pictures = map(tuple, bottom_shapes)
        anchors = len(self.anchors)
        for i, (shape, each) in enumerate(((scores, 2), (moves, 4))):
            if len(shape) != 4 or shape != (scores[0], each * anchors, *scores[2:]):
                raise self.shape_error(
                    f"has shape {shape}, but {anchors} anchors have {each * anchors} channels",
                    bottom=i,
                    fix="give as many ratios and scales as the layers before have anchors, and both bottoms one size",
                )
        if len(pictures) < 2 or pictures[0] not in (1, scores[0]) or count(pictures, 1) < 3:
            raise self.shape_error(f"has shape {pictures}", bottom=2, fix="give height, width, scale: shape (1, 3)")
        rows = scores[0] * self.options.post_nms_topn if self.counted is None else self.counted
        return [(rows, 5), (rows,)][: len(self.param.top)]

    def rows(self, bottoms: Sequence[HostArray]) -> list[HostArray]:
        scores, moves, pictures = bottoms
        info = np.broadcast_to(
            pictures.reshape(len(pictures), count(pictures.shape, 1)), (len(scores), count(pictures.shape, 1))
        )
        found = for_images(lambda n: self._of_image(n, scores[n], moves[n], info[n]), len(scores))
        rows = np.concatenate([np.empty((0, 6), self.dtype), *found])
        return [rows[:, :5], rows[:, 5]]

    def placed(self, height: int, width: int) -> HostArray:
        """Return the anchors of all positions of a map, (H, W, A, 4)."""
        shifts = np.stack(np.meshgrid(np.arange(width), np.arange(height)) * 2, axis=-1)
        return (shifts[:, :, None] * self.options.feat_stride + self.anchors).astype(self.dtype)

    def _of_image(self, image: int, scores: HostArray, moves: HostArray, info: HostArray) -> HostArray:
        """Return rows (image, x1, y1, x2, y2, score).

        Args:
            scores: (2 A, H, W).
            moves: (4 A, H, W).
            info: height, width, scale of the picture.
        """
        p, anchors = self.options, len(self.anchors)
        height, width = scores.shape[1:]
        boxes = _moved(self.placed(height, width), moves.reshape(anchors, 4, height, width).transpose(2, 3, 0, 1))
        boxes = np.clip(boxes, 0, np.tile(info[1::-1] - 1, 2)).reshape(-1, 4)
        least = p.min_size * np.array([info[2 if len(info) < 4 else 3], info[2]], self.dtype)
        large = (boxes[:, 2:] - boxes[:, :2] + 1 >= least).all(axis=1)
        values = np.where(large, scores[anchors:].transpose(1, 2, 0).reshape(-1), self.dtype.type(0))
        best = best_first(values, np.arange(len(values)), p.pre_nms_topn)
        kept = best[suppress(boxes[best], p.nms_thresh, pixels=True, most=p.post_nms_topn)]
        return np.concatenate([np.full((len(kept), 1), image, self.dtype), boxes[kept], values[kept, None]], axis=1)


def _anchors(base: int, ratios: HostArray, scales: HostArray) -> HostArray:
    """Return the anchors of one position, (ratios * scales, 4)."""
    wide = np.trunc(np.sqrt(base * base / ratios) + ratios.dtype.type(0.5))
    high = np.trunc(wide * ratios + ratios.dtype.type(0.5))
    half = (np.stack([wide, high], axis=1)[:, None] * scales[:, None] - 1).reshape(-1, 2) / 2
    return np.concatenate([(base - 1) / 2 - half, (base - 1) / 2 + half], axis=1).astype(ratios.dtype)


def _moved(boxes: HostArray, moves: HostArray) -> HostArray:
    """Return boxes (..., 4) of pixels, both ends counted in, moved by centre and logarithms of sizes (..., 4)."""
    size = boxes[..., 2:] - boxes[..., :2] + 1
    centre = moves[..., :2] * size + (boxes[..., :2] + size / 2)
    with np.errstate(over="ignore", invalid="ignore"):  # a box of infinite size is cut to the picture
        half = np.exp(moves[..., 2:]) * size / 2
        return np.concatenate([centre - half, centre + half], axis=-1)
