"""Interp."""

from __future__ import annotations

from ...ops.records import StretchedWindow
from ..base import AnyArray, Declaration, Layer, Needs, Ops, Pass, Reads, Shapes, between
from ..registry import register_layer
from ..spatial import check_images

_SIZES, _FACTORS = ("height", "width"), ("zoom_factor", "shrink_factor")


@register_layer("Interp")
class InterpLayer(Layer):
    """y = x stretched bilinearly so that corners fall on corners: row o of y lies at row o * (h - 1) / (oh - 1) of x.

    Bottom 0: (N, C, H, W); interp_param.pad_beg and pad_end (0 or less) first cut rows and columns off both its ends,
    which leaves h, w. Top 0: (N, C, oh, ow), whose size comes from exactly one of: a second bottom of 4 axes (its last
    two; it gets a gradient of zeros), height and width, or shrink_factor and zoom_factor (either or both), as
    (h - 1) / shrink_factor + 1 rounded down, and then (h - 1) * zoom_factor + 1. Backward reads nothing.
    Raises: LayerParamError for absent, contradicting or impossible fields; ShapeError for other than 4 axes, or a
    bottom that the cut leaves empty.
    Source: DeepLab's Caffe (gpapan/caffe), src/caffe/layers/interp_layer.cpp (there positions are rounded to float32,
    and a second bottom goes with one item only).
    """

    declares = Declaration(
        bottoms=between(1, 2),
        ignores_force_backward=frozenset({1}),
        splits_over_batch=True,
        backward_reads=Reads.NONE,
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.interp_param
        sizes, factors = ([f for f in fields if p.HasField(f)] for fields in (_SIZES, _FACTORS))
        given = sizes + factors
        if len(bottom_shapes) == 2 and given:
            raise self.error(
                f"has a second bottom, which gives the size, and {' and '.join(given)}",
                fix="remove the bottom or the fields",
            )
        if len(bottom_shapes) == 1 and not given:
            raise self.error(
                "has no size", fix="add interp_param { height: ... width: ... }, a zoom_factor, or a second bottom"
            )
        if sizes and factors:
            raise self.error(
                f"has both {' and '.join(sizes)} and {' and '.join(factors)}", fix="give a size or factors, not both"
            )
        if len(sizes) == 1:
            raise self.error(f"has {sizes[0]} alone", fix="give height and width")
        for field in given:
            if getattr(p, field) < 1:
                raise self.error(f"{field} is {getattr(p, field)}", fix=f"give a {field} of at least 1")
        for field in ("pad_beg", "pad_end"):
            if getattr(p, field) > 0:
                raise self.error(f"{field} is {getattr(p, field)}, but padding only cuts", fix="give 0 or less")

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        check_images(self, bottom_shapes, "interpolation")
        p, shape = self.param.interp_param, tuple(bottom_shapes[0])
        self.full, self.start = shape[2:], -p.pad_beg
        self.size = tuple(n + p.pad_beg + p.pad_end for n in self.full)
        if min(self.size) < 1:
            raise self.shape_error(
                f"has spatial size {self.full}, of which pad_beg {p.pad_beg} and pad_end {p.pad_end} leave nothing",
                bottom=0,
                fix="cut off less, or give a larger bottom",
            )
        if len(bottom_shapes) == 2:
            self.out = tuple(bottom_shapes[1][2:])
        elif p.HasField("height"):
            self.out = (p.height, p.width)
        else:
            self.out = tuple((n - 1) // p.shrink_factor * p.zoom_factor + 1 for n in self.size)
        if min(self.out) < 1:
            raise self.shape_error(f"asks for a size of {self.out}", bottom=1, fix="give a bottom that is not empty")
        return [(*shape[:2], *self.out)]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        planes = bottom_shapes[0][0] * bottom_shapes[0][1]
        self.stretch = StretchedWindow(planes, self.full, self.start, self.size, self.out)

    def forward_needs(self) -> Needs:
        return Needs(bottoms=frozenset({0}))

    def forward(self, io: Pass) -> None:
        io.ops.interp.forward(io.bottom[0], io.top[0], self.stretch)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.interp.backward(dy, dx, self.stretch)
