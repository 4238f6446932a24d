"""Embed and BatchReindex: rows of a table, chosen by a blob of indices."""

from __future__ import annotations

from .base import Layer, Needs, count, exactly
from .registry import register_layer


@register_layer("Embed")
class EmbedLayer(Layer):
    """y[..., :] = W[int(x)] + b: each index becomes a row of W.

    Bottom 0: indices 0..input_dim-1, any shape, no gradient. Top 0: y, x's axes, then num_output.
    Parameters: W (input_dim, num_output); b (num_output) unless bias_term is false.
    Indices are cut to integers. The row of one that is out of range is NaN, and no row of W learns from it.
    Backward reads the indices for W's gradient, nothing for b's.
    Raises: LayerParamError for num_output or input_dim 0.
    Source: BVLC/caffe, src/caffe/layers/embed_layer.cpp.
    """

    bottoms = tops = exactly(1)
    no_backward = None

    def setup(self, bottom_shapes):
        embed = self.param.embed_param
        self.n, self.k, self.bias = embed.num_output, embed.input_dim, embed.bias_term
        for name, value in (("num_output", self.n), ("input_dim", self.k)):
            if value < 1:
                raise self.error(f"{name} is 0", fix=f"add embed_param {{ {name}: ... }} of at least 1")
        self.add_param((self.k, self.n), embed.weight_filler)
        if self.bias:
            self.add_param((self.n,), embed.bias_filler)

    def infer_shapes(self, bottom_shapes):
        return [(*bottom_shapes[0], self.n)]

    def declare(self, bottom_shapes, top_shapes, ops):
        self.m = count(bottom_shapes[0])

    def backward_needs(self, propagate_down, param_propagate):
        return Needs(bottoms=frozenset({0}) if param_propagate[0] else frozenset())

    def forward(self, io):
        bias = io.param[1] if self.bias else None
        io.ops.embed_forward(io.bottom[0], io.param[0], bias, io.top[0], self.m, self.n, self.k)

    def backward(self, io):
        dy = io.top_diff[0]
        if io.param_diff[0] is not None:
            args = (io.bottom[0], dy, io.param_diff[0], io.accumulate[0])
            io.ops.embed_backward(*args, self.m, self.n, self.k)
        if self.bias and io.param_diff[1] is not None:
            io.ops.inner_product_backward_bias(dy, io.param_diff[1], self.m, self.n, io.accumulate[1])


@register_layer("BatchReindex")
class BatchReindexLayer(Layer):
    """y[i] = x[int(index[i])]: items of a batch chosen, repeated or left out.

    Bottom 0: x, one axis or more. Bottom 1: indices 0..N-1, one axis, no gradient. Top 0: y, as long as the indices,
    then x's other axes. An item whose index is out of range is NaN, and passes no gradient on.
    Backward reads the indices; the gradients of an item that was taken more than once add up.
    Raises: ShapeError where x has no axes, or the indices have not just one.
    Source: BVLC/caffe, src/caffe/layers/batch_reindex_layer.cpp (there an index out of range ends the program).
    """

    bottoms, tops = exactly(2), exactly(1)
    no_backward = not_forced = frozenset({1})

    def infer_shapes(self, bottom_shapes):
        x, index = (tuple(s) for s in bottom_shapes)
        if not x:
            raise self.shape_error("has no axes", bottom=0, fix="give a bottom of shape (N, ...)")
        if len(index) != 1:
            raise self.shape_error(f"has shape {index}: indices have one axis", bottom=1, fix="flatten the indices")
        self.size = index[0], count(x, 1), x[0]
        return [(*index, *x[1:])]

    def backward_needs(self, propagate_down, param_propagate):
        return Needs(bottoms=frozenset({1}) if propagate_down[0] else frozenset())

    def forward(self, io):
        io.ops.embed_forward(io.bottom[1], io.bottom[0], None, io.top[0], *self.size)

    def backward(self, io):
        if io.bottom_diff[0] is not None:
            io.ops.embed_backward(io.bottom[1], io.top_diff[0], io.bottom_diff[0], False, *self.size)
