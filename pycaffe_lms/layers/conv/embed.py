"""Embed and BatchReindex: a blob of indices chooses rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...arrays import AnyArray, HostArray
from ...errors import CaffeError, DataError
from ..base import Declaration, Layer, Needs, Ops, Pass, Shapes, count, exactly
from ..registry import register_layer


class _Lookup(Layer):
    """What Embed and BatchReindex share: they choose rows by index.

    An index out of range is an error on the CPU. On a GPU forward does not wait for values: the row becomes NaN, gives
    no gradient, and the net warns once.
    """

    declares = Declaration(reports_device_errors=True)
    found: HostArray | None = None  # (whether an index was out of range, its position, its value)
    rows = 0  # of the table
    fix_of_index: str

    def look_up(
        self, io: Pass, index: int, table: AnyArray, bias: AnyArray, rows: int, columns: int, indices: int
    ) -> None:
        """Write the top: a row of `table` for every index, plus bias (None: no bias).

        Args:
            index: the bottom that holds the indices.
            rows, columns: the shape of `table`.
            indices: the number of indices.
        """
        if self.found is None:
            self.found = io.ops.outside_plan()
        self.rows, self._bottom = rows, self.param.bottom[index]
        io.ops.find_outside(io.bottom[index], self.found, indices, rows)
        if io.ops.device == "cpu" and (error := self.device_error()) is not None:
            raise error
        io.ops.embed.forward(io.bottom[index], table, bias, io.top[0], indices, columns, rows)

    def device_error(self) -> CaffeError | None:
        if self.found is None or not self.found[0]:
            return None
        self.found[0] = 0
        _, position, value = self.found.tolist()
        there = f"in 0..{self.rows - 1}" if self.rows else "possible: there are no rows"
        return self.error(
            f"index {value:.9g} at position {position:.0f} is not {there}",
            kind=DataError,
            blob=self._bottom,
            fix=self.fix_of_index,
        )


@register_layer("Embed")
class EmbedLayer(_Lookup):
    """y[..., :] = W[int(x)] + b: each index becomes a row of W.

    Bottom 0: indices 0..input_dim-1, any shape, no gradient. Top 0: y, x's axes, then num_output.
    Parameters: W (input_dim, num_output); b (num_output) unless bias_term is false.
    Indices are truncated to integers. An index out of range is an error on the CPU; on a GPU its row is NaN, adds
    nothing to W's gradient, and one warning names the layer.
    Backward reads the indices for W's gradient, nothing for b's.
    Raises: LayerParamError for num_output or input_dim 0.
    Source: BVLC/caffe, src/caffe/layers/embed_layer.cpp.
    """

    fix_of_index = "correct the data, or give input_dim the number of different indices"
    declares = replace(
        _Lookup.declares, bottoms=exactly(1), tops=exactly(1), no_backward=None, full_precision=frozenset({0})
    )

    def setup(self, bottom_shapes: Shapes) -> None:
        embed = self.param.embed_param
        self.n, self.k, self.bias = embed.num_output, embed.input_dim, embed.bias_term
        for name, value in (("num_output", self.n), ("input_dim", self.k)):
            if value < 1:
                raise self.error(f"{name} is 0", fix=f"add embed_param {{ {name}: ... }} of at least 1")
        self.add_param((self.k, self.n), embed.weight_filler)
        if self.bias:
            self.add_param((self.n,), embed.bias_filler)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        return [(*bottom_shapes[0], self.n)]

    def takes_half(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> bool:
        return bool(ops.product_half_plan(self.dtype))

    def declare(self, bottom_shapes: Shapes, top_shapes: Shapes, ops: Ops) -> None:
        self.m = count(bottom_shapes[0])

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({0}) if param_propagate[0] else frozenset())

    def forward(self, io: Pass) -> None:
        bias = io.param[1] if self.bias else None
        self.look_up(io, 0, io.param[0], bias, self.k, self.n, self.m)

    def backward(self, io: Pass) -> None:
        dy = io.top_diff[0]
        if io.param_diff[0] is not None:
            args = (io.bottom[0], dy, io.param_diff[0], io.accumulate[0])
            io.ops.embed.backward(*args, self.m, self.n, self.k)
        if self.bias and io.param_diff[1] is not None:
            io.ops.inner_product.backward_bias(dy, io.param_diff[1], self.m, self.n, io.accumulate[1])


@register_layer("BatchReindex")
class BatchReindexLayer(_Lookup):
    """y[i] = x[int(index[i])]: chooses, repeats or leaves out items of a batch.

    Bottom 0: x (N, ...). Bottom 1: indices 0..N-1, shape (M), no gradient. Top 0: y (M, ...).
    An index out of range is an error on the CPU; on a GPU its item is NaN and passes on no gradient, and one warning
    names the layer.
    Backward reads the indices; gradients of an item that was chosen more than once are added up.
    Raises: ShapeError if x has no axes, or the indices have not exactly one.
    Source: BVLC/caffe, src/caffe/layers/batch_reindex_layer.cpp (there an index out of range ends the program).
    """

    fix_of_index = "correct the data"
    declares = replace(
        _Lookup.declares,
        bottoms=exactly(2),
        tops=exactly(1),
        no_backward=frozenset({1}),
        ignores_force_backward=frozenset({1}),
    )

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        x, index = (tuple(s) for s in bottom_shapes)
        self.check_axes(x, 1)
        if len(index) != 1:
            raise self.shape_error(f"has shape {index}: indices have one axis", bottom=1, fix="flatten the indices")
        self.size = index[0], count(x, 1), x[0]
        return [(*index, *x[1:])]

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(bottoms=frozenset({1}) if propagate_down[0] else frozenset())

    def forward(self, io: Pass) -> None:
        indices, columns, items = self.size
        self.look_up(io, 1, io.bottom[0], None, items, columns, indices)

    def gradient(self, io: Pass, dy: AnyArray, dx: AnyArray) -> None:
        io.ops.embed.backward(io.bottom[1], dy, dx, False, *self.size)
