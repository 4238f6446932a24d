"""Correlation."""

from __future__ import annotations

from ...ops.records import Displacements
from ...proto import caffe_pb2
from ..base import Declaration, Layer, Pass, Reads, Shapes, exactly
from ..registry import register_layer
from ..spatial import check_images


@register_layer("Correlation")
class CorrelationLayer(Layer):
    """Compare a with b at places around: y = the mean of a * b over channels and a window, for each displacement.

    correlation_param: pad (zeros around both maps, default 0), kernel_size k (of the window, odd), max_displacement m,
    stride_1 s (of outputs, default 1), stride_2 t (of displacements, default 1). There are (2 r + 1)^2 displacements,
    r = m / t rounded down; number (i + r) * (2 r + 1) + j + r is t i down and t j to the right. Output (p, q) compares
    the windows around (p s + m + (k - 1) / 2, q s + m + (k - 1) / 2) of the padded a, and that displaced, of b.
    With correlation_type: SUBTRACT the mean is of |a - b|. do_abs changes nothing, as in the fork.
    Bottoms 0 and 1: a and b, (N, C, H, W). Top 0: (N, (2 r + 1)^2, oh, ow), oh = (H + 2 pad - 2 m - k + 1) / s rounded
    up, ow likewise.
    Backward reads both bottoms; in SUBTRACT the slope where a = b is 0.
    Raises: LayerParamError for fields that are absent or impossible; ShapeError for bottoms of different shapes, or on
    which no window fits.
    Source: lmb-freiburg/flownet2, src/caffe/layers/correlation_layer.cu (whose gradient of SUBTRACT compares a with b
    at one place instead of two).
    """

    declares = Declaration(bottoms=exactly(2), backward_reads=Reads.BOTTOM_DATA, splits_over_batch=True)

    def setup(self, bottom_shapes: Shapes) -> None:
        p = self.param.correlation_param
        for field in ("kernel_size", "max_displacement"):
            if not p.HasField(field):
                raise self.error(f"has no {field}", fix=f"add correlation_param {{ {field}: ... }}")
        if p.kernel_size % 2 == 0:
            raise self.error(f"kernel_size is {p.kernel_size}, not an odd number", fix="use 1, 3, ...")
        for field in ("stride_1", "stride_2"):
            if getattr(p, field) < 1:
                raise self.error(f"{field} is 0", fix="use 1 or more")
        differ = p.correlation_type == caffe_pb2.CorrelationParameter.SUBTRACT
        across = 2 * (p.max_displacement // p.stride_2) + 1
        ways = p.pad, p.kernel_size, p.max_displacement, p.stride_1, p.stride_2, across, differ
        self.ways = Displacements(*ways)

    def infer_shapes(self, bottom_shapes: Shapes) -> Shapes:
        check_images(self, bottom_shapes, "correlation")
        self.check_same(bottom_shapes)
        n, _, *size = bottom_shapes[0]
        ways = self.ways
        out = [-(-(s + 2 * ways.pad - 2 * ways.reach - ways.window + 1) // ways.step) for s in size]
        if min(out) < 1:
            raise self.shape_error(
                f"has shape {tuple(bottom_shapes[0])}, too small for max_displacement {ways.reach} and kernel_size "
                f"{ways.window}",
                bottom=0,
                fix="raise pad or lower max_displacement",
            )
        return [(n, ways.across**2, *out)]

    def forward(self, io: Pass) -> None:
        io.ops.correlation.forward(*io.bottom, io.top[0], self.ways)

    def backward(self, io: Pass) -> None:
        for second, dx in enumerate(io.bottom_diff):
            if dx is not None and io.top_diff[0] is not None:
                io.ops.correlation.backward(*io.bottom, io.top_diff[0], dx, bool(second), self.ways)
            elif dx is not None:
                io.ops.fill(dx, 0)
