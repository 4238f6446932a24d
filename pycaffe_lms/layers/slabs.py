"""A layer for one slab of its tops: rows of axis 2, made from the slabs of its bottoms that they depend on.

`slab_of` returns the layer itself on smaller blobs where each bottom of the slab is one whole value. Else it returns a
`SlabLayer`, which gathers the rows that the layer reads, with the halo of neighbouring slabs and with zeros for
padding, runs the layer on them, and adds the gradients of these rows to those of the slabs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

from ..arrays import AnyArray
from ..backend.bfloat16 import BFLOAT16
from ..ops.axes import around_axis, memory_shape
from ..proto.caffe_pb2 import LayerParameter
from .base import Gradients, InPlace, Layer, Lives, Needs, Ops, Pass, Rows, Shape, Shapes, at_least
from .micro_batch import join_along
from .mixins import RandomLayer

AXIS = 2  # along which blobs are cut
Span = tuple[int, int]  # rows [first, end)


@dataclass(frozen=True)
class SlabPiece:
    """Name a value that holds rows of a bottom. adds: a later slab of the layer writes its gradient first."""

    value: int
    rows: Span
    adds: bool = False
    alone: bool = True  # no other slab of the layer reads it


def needed(pieces: Sequence[tuple[int, Span]], rows: Span) -> list[tuple[int, Span]]:
    """Return, of (value, its rows), those that hold any of these rows; the first one where none does."""
    return [(v, at) for v, at in pieces if at[0] < rows[1] and rows[0] < at[1]] or list(pieces[:1])


def join_of(layer: Layer, names: Sequence[str], top: str) -> Layer:
    """Return the layer that joins slabs `names` of a layer's top `top`."""
    return join_along(layer, f"{layer.name} [join]", names, top, AXIS)


def slab_of(
    layer: Layer,
    number: int,
    slabs: int,
    own: Span,
    total: int,
    bottoms: Sequence[Sequence[SlabPiece]],
    names: Sequence[str],
) -> Layer:
    """Return slab `number` (from 0) of a layer. After the layer's `setup` and `infer_shapes`.

    Args:
        own: rows of its tops.
        total: rows of the layer's bottoms.
        bottoms: per bottom, the pieces that it reads.
        names: of all pieces in order.
    """
    rows = layer.rows_for(*own, total)
    assert rows is not None, "the layer can run in slabs"
    spans = spans_of(layer, rows, own, len(bottoms))
    part = copy(layer)
    part.scratches, part.name = {}, f"{layer.name} [slab {number + 1}/{slabs}]"
    part.take_rows(*own, total)
    if isinstance(part, RandomLayer) and isinstance(layer, RandomLayer):
        part.whole = layer
    if rows.top == own and all(map(_is_direct, bottoms, spans)):
        return part
    return SlabLayer(part, rows.top, own, spans, bottoms, names)


def spans_of(layer: Layer, rows: Rows, own: Span, bottoms: int) -> list[Span]:
    """Return the rows of each bottom that belong to a slab. own: rows of its tops."""
    read = layer.forward_needs().bottoms
    return [rows.bottom if i in read or not read else own for i in range(bottoms)]


def _is_direct(pieces: Sequence[SlabPiece], rows: Span) -> bool:
    """Return whether a slab's rows of a bottom are one whole value that no other slab reads."""
    return len(pieces) == 1 and pieces[0].rows == rows and pieces[0].alone


class SlabLayer(Layer):
    """Runs a layer on rows that it gathers from several values, see the module.

    Not a layer type of its own. Bottoms: the pieces of the layer's bottoms, in order. Tops: slabs of the layer's tops.
    Parameters, needs and operations: the layer's.
    """

    def __init__(
        self,
        layer: Layer,
        made: Span,
        own: Span,
        spans: Sequence[Span],
        bottoms: Sequence[Sequence[SlabPiece]],
        names: Sequence[str],
    ) -> None:
        param = LayerParameter()
        param.CopyFrom(layer.param)
        del param.bottom[:]
        param.bottom.extend(names)
        super().__init__(param, layer.context)
        self.layer, self.wide, self.own, self.spans, self.bottoms = layer, made, own, spans, bottoms
        self.name, self.type, self.params = layer.name, layer.type, layer.params  # type: ignore[misc]
        self.declares = replace(layer.declares, bottoms=at_least(1), same_count=False, in_place=InPlace.SEPARATE)
        starts = [0]
        for pieces in bottoms:
            starts.append(starts[-1] + len(pieces))
        self.of = [range(first, end) for first, end in zip(starts, starts[1:], strict=False)]
        self.direct = list(map(_is_direct, bottoms, spans))
        self.cropped = made != own

    def update_context(self, **decisions: object) -> None:
        super().update_context(**decisions)
        self.layer.update_context(**decisions)

    # -- declarations ----------------------------------------------------------------------------------------------
    def _windows(self, shapes: Shapes) -> list[Shape]:
        """Return the shapes of the layer's bottoms."""
        return [_with_rows(shapes[ids[0]], end - first) for ids, (first, end) in zip(self.of, self.spans, strict=True)]

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        self.made = self.layer.infer_shapes(self._windows(bottom_shapes))
        return [_with_rows(shape, self.own[1] - self.own[0]) for shape in self.made]

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        layer, windows, last = self.layer, self._windows(bottom_shapes), self.context.channels_last
        layer.scratches.clear()
        layer.declare(windows, self.made, ops)
        self.scratches.update(layer.scratches)
        self._accumulates_into = frozenset()
        dtype = BFLOAT16 if self.context.half else self.dtype
        params = Gradients.PARAMS if layer.declares.split_backward else Gradients.ALL
        forward = layer.forward_needs().bottoms
        backward = layer.backward_needs([True] * len(windows), [True] * len(self.params)).bottoms
        for i, window in enumerate(windows):
            shape = memory_shape(window, last)
            if not self.direct[i]:
                ahead, back, of = i in forward, i in backward, Gradients.BOTTOMS
                if ahead or back:
                    self.scratch(
                        f"window{i}",
                        shape,
                        dtype=dtype,
                        lives=Lives.CALL,
                        forward=ahead,
                        backward=back,
                        gradients=params,
                    )
                self.scratch(f"window_diff{i}", shape, dtype=dtype, lives=Lives.CALL, forward=False, gradients=of)
        for j, made in enumerate(self.made if self.cropped else ()):
            shape = memory_shape(made, last)
            self.scratch(f"wide{j}", shape, dtype=dtype, lives=Lives.CALL, backward=False)
            self.scratch(f"wide_diff{j}", shape, dtype=dtype, lives=Lives.CALL, forward=False)
        self.sizes = [_sizes(bottom_shapes[ids[0]], last) for ids in self.of]
        self.top_sizes = [_sizes(shape, last) for shape in top_shapes]

    def _pieces_of(self, bottoms: frozenset[int]) -> frozenset[int]:
        return frozenset(k for i in bottoms for k in self.of[i])

    def _of_pieces(self, needs: Needs) -> Needs:
        return replace(needs, bottoms=self._pieces_of(needs.bottoms))

    def forward_needs(self) -> Needs:
        needs = self.layer.forward_needs()
        return self._of_pieces(replace(needs, bottoms=needs.bottoms & frozenset(range(len(self.of)))))

    def forward_updates(self) -> frozenset[int]:
        return self.layer.forward_updates()

    def remat_needs(self) -> Needs | None:
        needs = self.layer.remat_needs()
        return None if needs is None else self._of_pieces(needs)

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        wanted = [any(propagate_down[k] for k in ids) for ids in self.of]
        return self._of_pieces(self.layer.backward_needs(wanted, param_propagate))

    def in_place_reuse(self, forward: bool) -> Sequence[tuple[str, int, int]]:
        return ()

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        return self.layer.flops(self._windows(bottom_shapes), self.made)

    def effort(self, forward: bool, again: bool) -> tuple[float, float]:
        return self.layer.effort(forward, again)

    # -- passes -----------------------------------------------------------------------------------------------------
    def forward(self, io: Pass) -> None:
        self._run(io, self.layer.forward)

    def rematerialize(self, io: Pass) -> None:
        self._run(io, self.layer.rematerialize)

    def _run(self, io: Pass, run: Callable[[Pass], None]) -> None:
        tops = [io.scratch[f"wide{j}"] for j in range(len(io.top))] if self.cropped else io.top
        run(replace(io, bottom=self._gathered(io), top=tops))
        if self.cropped:
            for wide, top, sizes in zip(tops, io.top, self.top_sizes, strict=True):
                _move(io.ops.copy_columns, wide, self.wide, top, self.own, self.own, sizes)

    def backward(self, io: Pass) -> None:
        layer, top_diffs = self.layer, list(io.top_diff)
        if self.cropped:
            for j, dy in enumerate(io.top_diff):
                if dy is not None:
                    top_diffs[j] = wide = io.scratch[f"wide_diff{j}"]
                    io.ops.fill(wide, 0)
                    _move(io.ops.copy_columns, dy, self.own, wide, self.wide, self.own, self.top_sizes[j])
        diffs = [self._window_diff(io, i) for i in range(len(self.of))]
        layer.backward(replace(io, bottom=self._gathered(io), top_diff=top_diffs, bottom_diff=diffs, bottom_adds=[]))
        for i, diff in enumerate(diffs):
            if diff is not None and not self.direct[i]:
                self._scatter(io, i, diff)

    def _gathered(self, io: Pass) -> list[AnyArray | None]:
        """Return the arrays of the layer's bottoms, where the pass reads them."""
        found: list[AnyArray | None] = []
        for i, ids in enumerate(self.of):
            if self.direct[i] or io.bottom[ids[0]] is None:
                found.append(io.bottom[ids[0]])
                continue
            window, rows = io.scratch[f"window{i}"], self.spans[i]
            pieces = self.bottoms[i]
            if rows[0] < pieces[0].rows[0] or rows[1] > pieces[-1].rows[1]:
                io.ops.fill(window, 0)
            for piece, k in zip(pieces, ids, strict=True):
                both = _both(piece.rows, rows)
                _move(io.ops.copy_columns, io.bottom[k], piece.rows, window, rows, both, self.sizes[i])
            found.append(window)
        return found

    def _window_diff(self, io: Pass, i: int) -> AnyArray | None:
        """Return the array for the gradient of the layer's bottom i; None: it is not wanted."""
        ids = self.of[i]
        if all(io.bottom_diff[k] is None for k in ids):
            return None
        return io.bottom_diff[ids[0]] if self.direct[i] else io.scratch[f"window_diff{i}"]

    def _scatter(self, io: Pass, i: int, diff: AnyArray) -> None:
        """Write the gradient of the rows that bottom i's slab read to those of the pieces, or add it."""
        for piece, k in zip(self.bottoms[i], self.of[i], strict=True):
            target, both = io.bottom_diff[k], _both(piece.rows, self.spans[i])
            if target is None:
                continue
            adds = bool(io.bottom_adds) and io.bottom_adds[k]
            if not adds and both != piece.rows:
                io.ops.fill(target, 0)
            move = io.ops.add_columns if adds else io.ops.copy_columns
            _move(move, diff, self.spans[i], target, piece.rows, both, self.sizes[i])


def _with_rows(shape: Shape, rows: int) -> Shape:
    return (*shape[:AXIS], rows, *shape[AXIS + 1 :])


def _both(a: Span, b: Span) -> Span:
    """Return the rows of both; an empty span where there are none."""
    first, end = max(a[0], b[0]), min(a[1], b[1])
    return first, max(first, end)


def _sizes(shape: Shape, channels_last: bool) -> tuple[int, int]:
    """Return the numbers of elements in memory before an axis of rows, and of one row."""
    grid = around_axis(shape, AXIS, channels_last)
    return grid.outer, grid.inner


def _move(
    move: Callable[..., None], x: AnyArray, of_x: Span, y: AnyArray, of_y: Span, rows: Span, sizes: tuple[int, int]
) -> None:
    """Copy or add some rows of x to y; of_x and of_y are the rows that these arrays hold."""
    outer, row = sizes
    if rows[1] > rows[0]:
        places = [n * row for first, end in (of_x, of_y) for n in (end - first, rows[0] - first)]
        move(x, y, outer, (rows[1] - rows[0]) * row, *places)
