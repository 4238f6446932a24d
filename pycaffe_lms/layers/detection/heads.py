"""Predictions of several maps, each a bottom of its own, joined as PriorBox and SSD's Concat order them."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ...arrays import HostArray
from ..base import Layer, Shape, Shapes, count

_T = TypeVar("_T")


class Heads:
    """Bottoms of DetectionOutput: the scores of M maps, the locations of M maps, default boxes.

    Plain: scores (N, P_m * C), locations (N, P_m * L * 4), as flattened after Permute; default boxes (1, 2, P * 4) of
    all maps, or M bottoms of them.
    no_permute: as convolutions write them, for R boxes at each place of a map: scores (N, C, R, H * W), locations (N, R
    * L * 4, H, W). Boxes are then numbered by map, kind, row, column: `order` says where PriorBox has them.
    Source: foss-for-synopsys-dwc-arc-processors/synopsys-caffe, src/caffe/layers/detection_output_layer.cpp.
    """

    def __init__(self, layer: Layer, maps: int, locations: int, classes: int, unturned: bool) -> None:
        self.layer, self.maps, self.locations, self.classes, self.unturned = layer, maps, locations, classes, unturned
        self.order: HostArray | None = None

    def read(self, bottom_shapes: Shapes) -> list[Shape]:
        """Return the shapes of locations, scores and default boxes, joined. Raises ShapeError."""
        scores, locations, defaults = self._parted([tuple(shape) for shape in bottom_shapes])
        for m, shape in enumerate(scores + locations):
            self.layer.check_axes(shape, 4 if self.unturned else 2, bottom=m)
            if shape[0] != scores[0][0]:
                raise self.layer.shape_error(
                    f"has {shape[0]} images, but bottom 0 has {scores[0][0]}", bottom=m, fix="give all one batch"
                )
        for m, shape in enumerate(defaults):
            if len(shape) < 3 or shape[1] != 2:
                raise self.layer.shape_error(
                    f"has shape {shape}", bottom=2 * self.maps + m, fix="give default boxes (1, 2, P * 4), of PriorBox"
                )
        if self.unturned:
            self.order = self._order(scores, locations)
        sizes = (sum(count(shape, 1) for shape in shapes) for shapes in (locations, scores))
        boxes = sum(count(shape, 2) for shape in defaults)
        return [*((scores[0][0], size) for size in sizes), (1, 2, boxes)]

    def joined(self, bottoms: list[HostArray]) -> list[HostArray]:
        """Return locations (N, P * L * 4), scores (N, P * C) and default boxes (1, 2, P * 4), in one order."""
        (scores, locations, defaults), n = self._parted(bottoms), self.locations * 4
        priors = np.concatenate([one.reshape(1, 2, -1) for one in defaults], axis=2)
        if self.order is not None:
            priors = priors.reshape(2, -1, 4)[:, self.order].reshape(1, 2, -1)
            scores = [one.reshape(*one.shape[:2], count(one.shape, 2)).transpose(0, 2, 1) for one in scores]
            locations = [
                one.reshape(len(one), one.shape[1] // n, n, count(one.shape, 2)).transpose(0, 1, 3, 2)
                for one in locations
            ]
        parts = ([one.reshape(len(one), count(one.shape, 1)) for one in part] for part in (locations, scores))
        return [*(np.concatenate(part, axis=1) for part in parts), priors]

    def _parted(self, values: list[_T]) -> tuple[list[_T], list[_T], list[_T]]:
        """Cut what belongs to bottoms into that of scores, of locations and of default boxes."""
        return values[: self.maps], values[self.maps : 2 * self.maps], values[2 * self.maps :]

    def _order(self, scores: list[Shape], locations: list[Shape]) -> HostArray:
        """Return for each box, by map, kind, row and column, its number by map, row, column and kind."""
        order, first = [], 0
        for m, (score, place) in enumerate(zip(scores, locations, strict=True)):
            kinds, cells = place[1] // 4 // self.locations, count(place, 2)
            expected = (place[0], self.classes, kinds, cells)
            if place[1] % (4 * self.locations) or score != expected:
                raise self.layer.shape_error(
                    f"has shape {score}, but bottom {self.maps + m}, locations {place}, asks for {expected}",
                    bottom=m,
                    fix="check num_classes and share_location, and the layers that make the bottoms",
                )
            order.append(first + np.arange(kinds * cells).reshape(cells, kinds).T.ravel())
            first += kinds * cells
        return np.concatenate(order)


def heads_of(layer: Layer, locations: int, classes: int) -> Heads | None:
    """Return how a DetectionOutput layer's bottoms are joined; None: it has one of each.

    There are maps where there are at least nbottom bottoms. Raises LayerParamError for a number that fits neither.
    """
    p, given = layer.param.detection_output_param, len(layer.param.bottom)
    if given < p.nbottom:
        if given > 5:
            raise layer.error(f"takes 3 to 5 bottoms, but {given} given", fix="check nbottom")
        return None
    allowed = sorted({2 * p.nbottom + 1} | (set() if p.no_permute else {3 * p.nbottom}))
    if p.nbottom < 1 or given not in allowed:
        words = " or ".join(map(str, allowed))
        raise layer.error(
            f"has {given} bottoms, but with nbottom {p.nbottom} it takes {words}: scores of each map, locations of "
            "each map, and default boxes",
            fix="check nbottom and the bottoms",
        )
    return Heads(layer, p.nbottom, locations, classes, p.no_permute)
