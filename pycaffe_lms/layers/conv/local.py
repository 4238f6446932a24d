"""LocallyConnected: a convolution whose weights differ from place to place."""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.records import LocalWindows
from ..base import Declaration, Layer, Needs, Pass, Reads, Shapes, count
from ..registry import register_layer
from ..spatial import check_images


@register_layer("LocallyConnected")
class LocallyConnectedLayer(Layer):
    """y[n, m, p] = the sum over k of x's window at p * W[0, m, k, p], plus b: as a Convolution, but each place p has
    weights of its own.

    locally_connected_param: num_output M, kernel_size, stride (default 1), pad (default 0), bias_term, weight_filler,
    bias_filler. Bottom 0: (N, C, H, W). Top 0: (N, M, oh, ow), oh = (H + 2 pad - kernel_size) / stride + 1, rounded
    down, ow likewise. Parameters: W (M, 1, K, oh * ow), K = C * kernel_size^2; b (1, 1, M, oh * ow) unless bias_term is
    false. So the maps keep their size from then on.
    Backward reads the bottom for W's gradient, W for the bottom's.
    Raises: LayerParamError for num_output, kernel_size or stride 0; ShapeError for other than 4 axes, maps smaller than
    a window, or of another size than the weights.
    Source: a fork's locally_connected_layer.cpp (behaviour).
    """

    declares = Declaration(backward_reads=Reads.BOTTOM_DATA, splits_over_batch=True, split_backward=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.locally_connected_param
        for field in ("num_output", "kernel_size", "stride"):
            if not getattr(p, field):
                raise self.error(f"{field} is 0", fix=f"add locally_connected_param {{ {field}: ... }} of at least 1")
        self.windows = LocalWindows(p.kernel_size, p.stride, p.pad)
        self.maps = self._checked(bottom_shapes)[1:]
        places = count(self._out(bottom_shapes))
        self.add_param((p.num_output, 1, self.maps[0] * p.kernel_size**2, places), p.weight_filler)
        if p.bias_term:
            self.add_param((1, 1, p.num_output, places), p.bias_filler)

    def _checked(self, bottom_shapes: Shapes) -> tuple[int, ...]:
        check_images(self, bottom_shapes, "a locally connected layer")
        shape = tuple(bottom_shapes[0])
        if min(shape[2:]) + 2 * self.windows.pad < self.windows.size:
            raise self.shape_error(
                f"has shape {shape}, smaller than kernel_size {self.windows.size}",
                bottom=0,
                fix="make kernel_size smaller, or pad larger",
            )
        return shape

    def _out(self, bottom_shapes: Shapes) -> tuple[int, ...]:
        w = self.windows
        return tuple((size + 2 * w.pad - w.size) // w.stride + 1 for size in bottom_shapes[0][2:])

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        shape = self._checked(bottom_shapes)
        if shape[1:] != self.maps:
            raise self.shape_error(
                f"has maps of {shape[1:]}, but the weights are for {self.maps}", bottom=0, fix="build the net anew"
            )
        return [(shape[0], self.param.locally_connected_param.num_output, *self._out(bottom_shapes))]

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs(
            bottoms=frozenset({0} if param_propagate[0] else ()), params=frozenset({0} if propagate_down[0] else ())
        )

    def flops(self, bottom_shapes: Shapes, top_shapes: Shapes) -> int:
        return 2 * count(top_shapes[0]) * self.maps[0] * self.windows.size**2

    def forward(self, io: Pass) -> None:
        bias = io.param[1] if len(io.param) > 1 else None
        io.ops.local.forward(io.bottom[0], io.param[0], bias, io.top[0], self.windows)

    def backward(self, io: Pass) -> None:
        dy, dx, dw = io.top_diff[0], io.bottom_diff[0], io.param_diff[0]
        if dw is not None:
            io.ops.local.backward_weight(io.bottom[0], dy, dw, self.windows, io.accumulate[0])
        if len(io.param_diff) > 1 and io.param_diff[1] is not None:
            # the sum over items: b is a row of M * places numbers
            io.ops.inner_product.backward_bias(dy, io.param_diff[1], len(dy), count(dy.shape, 1), io.accumulate[1])
        if dx is not None:
            io.ops.local.backward_input(dy, io.param[0], dx, self.windows)
