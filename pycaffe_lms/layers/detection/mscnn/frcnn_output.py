"""FrcnnOutput: objects that are found in regions, as Cascade R-CNN and MS-CNN end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ....arrays import HostArray
from ....errors import DataError
from ...base import Shapes, between, count, exactly
from ...registry import register_layer
from ..boxes import suppress
from ..detection_output import best_first
from ..proposal import CountedRowsLayer
from .measures import means_and_deviations


@register_layer("FrcnnOutput")
class FrcnnOutputLayer(CountedRowsLayer):
    """The objects that are found in the regions of one picture, with their boxes and classes (Cascade R-CNN).

    Bottom 0: probabilities of K classes, background first, (R, K). Bottom 1: how regions are moved, (R, 4 K): for each
    class x and y in sizes of the region, logarithms of the ratios of width and height; without
    bbox_reg_param.cls_aware (R, 8): of background, then of all objects. Bottom 2: regions (0, x1, y1, x2, y2), and
    anything else behind them, (R, 5) or (R, 6). Bottom 3: height and width of the picture, (1, 2). All may end in axes
    of 1. Boxes are of pixels, both ends counted in.
    Top 0: (S, 7, 1, 1), rows of (image, x1, y1, x2, y2, class, probability). The first is (0, -1, ..., -1), of no
    object. Then, class by class, best first, those of probability conf_thr or more, moved and cut to the picture, that
    overlap no better one that remains by more than iou_thr; of all classes the max_det_num best ones (0: all). Of equal
    probabilities the first is better (in the fork that is undefined). S is known after forward only; where it changes,
    the net takes memory anew.
    bbox_reg_param: what moves are multiplied by (bbox_std), and what is added (bbox_mean).
    Runs on the host. No bottom gets a gradient, even where a layer that learns makes it.
    Raises: LayerParamError for another nms_type, or impossible means or deviations; ShapeError for bottoms that do not
    belong together; DataError for a region of another picture than the first.
    Source: zhaoweicai/cascade-rcnn, src/caffe/layers/frcnn_output_layer.cpp.
    """

    declares = replace(CountedRowsLayer.declares, bottoms=exactly(4), tops=between(1, 1))

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.options = self.param.frcnn_output_param
        self.mean, self.std = means_and_deviations(self, self.param.bbox_reg_param)
        self.aware = self.param.bbox_reg_param.cls_aware
        if p.nms_type != "IOU":
            raise self.error(f'nms_type "{p.nms_type}" is not supported', fix='write nms_type: "IOU"')

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shapes = [tuple(shape) for shape in bottom_shapes]
        numbers = [count(shape, 1) if shape else 0 for shape in shapes]
        rows, classes = shapes[0][0] if shapes[0] else 0, numbers[0]
        wanted = ({classes}, {4 * classes if self.aware else 8}, {5, 6}, {2})
        for i, (shape, allowed) in enumerate(zip(shapes, wanted, strict=True)):
            if not shape or numbers[i] not in allowed or shape[0] != (1 if i == 3 else rows) or classes < 2:
                raise self.shape_error(
                    f"has shape {shape}",
                    bottom=i,
                    fix=f"give (R, K), (R, {4 * classes if self.aware else 8}), (R, 5) and (1, 2), K at least 2",
                )
        return [(1 if self.counted is None else self.counted, 7, 1, 1)]

    def rows(self, bottoms: Sequence[HostArray]) -> list[HostArray]:
        p = self.options
        chances, moves, regions = (b.reshape(len(b), count(b.shape, 1)) for b in bottoms[:3])
        if regions[:, 0].any():
            raise self.error(
                f"a region is of image {regions[regions[:, 0] != 0, 0][0]:g}, but there is one picture",
                kind=DataError,
                blob=self.param.bottom[2],
                fix="give the data layer batch_size: 1",
            )
        boxes = self._moved(moves, regions[:, 1:5], bottoms[3].reshape(2)[::-1])
        found = [np.array([[0, -1, -1, -1, -1, -1, -1]], self.dtype)]
        for k in range(1, chances.shape[1]):
            best = best_first(chances[:, k], np.flatnonzero(chances[:, k] >= p.conf_thr), -1)
            mine = boxes[best, k if self.aware else 1]
            kept = suppress(mine, p.iou_thr, pixels=True)
            head = np.zeros((len(kept), 1), self.dtype)
            found.append(np.concatenate([head, mine[kept], head + k, chances[best[kept], k, None]], axis=1))
        rows = np.concatenate(found)
        if p.max_det_num and len(rows) > 1 + p.max_det_num:
            good = np.sort(best_first(rows[:, 6], np.arange(1, len(rows)), p.max_det_num))
            rows = np.concatenate([rows[:1], rows[good]])
        return [rows]

    def _moved(self, moves: HostArray, regions: HostArray, size: HostArray) -> HostArray:
        """Return boxes (R, K, 4) of moves (R, 4 K), cut to a picture of this width and height."""
        moves = moves.reshape(len(moves), moves.shape[1] // 4, 4) * self.std + self.mean
        sides = (regions[:, 2:] - regions[:, :2] + 1)[:, None]
        centre = moves[..., :2] * sides + ((regions[:, :2] + regions[:, 2:]) / 2)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            sides = sides * np.exp(moves[..., 2:])
            low = centre - (sides - 1) / 2
            return np.concatenate([np.maximum(low, 0), np.minimum(low + sides - 1, size)], axis=-1).astype(self.dtype)
