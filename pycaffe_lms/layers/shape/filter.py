"""Filter: the rows that a selector chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...arrays import HostArray
from ...errors import BlobCountError
from ..base import Declaration, Layer, Ops, Pass, Reads, Shapes, ShapesChanged, at_least
from ..registry import register_layer


@register_layer("Filter")
class FilterLayer(Layer):
    """Top i has those rows (items along axis 0) of bottom i for which the last bottom, the selector, is not 0.

    Bottoms: any shapes with the same N, and last the selector: (N), or (N, 1, ..., 1). Tops, one for each other bottom:
    (number of selected rows, 0 or more; rest of the bottom's shape), all N rows before the first forward.
    The selected rows are counted on the host before every forward, and copied on the net's device. Rows that are not
    selected get a gradient of 0; the selector gets none. Backward reads no data.
    Raises: BlobCountError unless there is one top per bottom but the last; ShapeError for other N or another selector.
    Source: BVLC/caffe, src/caffe/layers/filter_layer.cpp (whose backward crashes where nothing is selected).
    """

    declares = Declaration(bottoms=at_least(2), tops=at_least(1), backward_reads=Reads.NONE)
    counted: int | None = None  # rows that were selected last
    _among: int | None = None  # of so many; None: of any number

    def setup(self, bottom_shapes: Shapes) -> None:
        last = len(bottom_shapes) - 1
        if len(self.param.top) != last:
            raise self.error(
                f"has {len(self.param.top)} tops for {last} bottom(s) beside the selector",
                kind=BlobCountError,
                fix="give one `top:` for each bottom but the last, which is the selector",
            )
        one = frozenset({last})
        self.declares = replace(self.declares, dynamic_shape_bottoms=one, no_backward=one, ignores_force_backward=one)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        *rows, selector = (tuple(s) for s in bottom_shapes)
        last = len(rows)
        if not selector or any(d != 1 for d in selector[1:]):
            raise self.shape_error(
                f"the selector has shape {selector}", bottom=last, fix="a selector has one number per row: (N)"
            )
        for i, shape in enumerate(rows):
            if not shape or shape[0] != selector[0]:
                raise self.shape_error(
                    f"has shape {shape}, but the selector has {selector[0]} rows",
                    bottom=i,
                    fix="give every bottom as many rows as the selector",
                )
        self._shown: int = selector[0]
        if self.counted is not None and self._among in (None, selector[0]):
            self._shown = self.counted
        return [(self._shown, *shape[1:]) for shape in rows]

    def read_dynamic_shapes(self, values: Sequence[HostArray]) -> None:
        self._among, self.counted = values[0].shape[0], int(np.count_nonzero(values[0]))
        if self.counted != self._shown:
            raise ShapesChanged

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.scratch("positions", (bottom_shapes[-1][0],), dtype=np.int32, lives=self.saved_if_needed)

    def forward(self, io: Pass) -> None:
        positions = io.scratch["positions"]
        io.ops.filter_positions(io.bottom[-1], positions)
        for x, y in zip(io.bottom[:-1], io.top, strict=True):
            io.ops.filter.forward(x, positions, y)

    def backward(self, io: Pass) -> None:
        for dy, dx in zip(io.top_diff, io.bottom_diff[:-1], strict=True):
            if dx is None:
                continue
            if dy is None:
                io.ops.fill(dx, 0.0)
            else:
                io.ops.filter.backward(dy, io.scratch["positions"], dx)
