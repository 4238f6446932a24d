"""Describe shapes of convolutions and poolings by plain numbers that plans and operations of every device share.

Covers the frozen descriptions of one convolution or pooling, and the arithmetic of sizes; not arrays, and not where the
numbers come from (`layers/conv/convolution.py`, `layers/pooling/pooling.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .records import Grid

Ints = tuple[int, ...]


def conv_output_size(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Return the outputs along one axis; 0 if the (dilated) kernel does not fit into the padded input."""
    room = size + 2 * pad - (dilation * (kernel - 1) + 1)
    return room // stride + 1 if room >= 0 else 0


def pool_output_size(size: int, kernel: int, stride: int, pad: int, ceil: bool) -> int:
    """Return the outputs along one axis, before windows that start in the far padding are cut; 0 if no window fits."""
    room = size + 2 * pad - kernel  # if negative, rounding up may still leave one window, larger than the input
    steps = -(-room // stride) if ceil else room // stride
    return max(steps + 1, 0)


@dataclass(frozen=True, slots=True)
class ConvGeometry:
    """Describe one cross-correlation: x (batch, channels, *in_spatial) -> y (batch, out_channels, *out_spatial).

    Weights are (out_channels, channels / group, *kernel). A transposed convolution is described by the convolution that
    it transposes. `channels_last`: x, y and weights lie in memory with their second axis moved to the end.
    """

    batch: int
    channels: int
    out_channels: int
    group: int
    in_spatial: Ints
    out_spatial: Ints
    kernel: Ints
    stride: Ints
    pad: Ints
    dilation: Ints
    channels_last: bool = False

    @property
    def axes(self) -> int:
        """Return the number of spatial axes."""
        return len(self.kernel)

    @property
    def in_size(self) -> int:
        """Return the positions of one input plane."""
        return prod(self.in_spatial)

    @property
    def out_size(self) -> int:
        """Return the positions of one output plane."""
        return prod(self.out_spatial)

    @property
    def group_channels(self) -> int:
        """Return the input channels of a group."""
        return self.channels // self.group

    @property
    def group_outputs(self) -> int:
        """Return the output channels of a group."""
        return self.out_channels // self.group

    @property
    def rows(self) -> int:
        """Return the rows of one group's column matrix: the products that one output sums."""
        return self.group_channels * prod(self.kernel)

    @property
    def grid(self) -> Grid:
        """Return how work per channel sees y."""
        if self.channels_last:
            return Grid(self.batch * self.out_size, self.out_channels, 1)
        return Grid(self.batch, self.out_channels, self.out_size)

    @property
    def pointwise(self) -> bool:
        """Return whether the input is its own column matrix (1x1 kernel, stride 1, no padding)."""
        return self.taps_one and all(s == 1 for s in self.stride)

    @property
    def taps_one(self) -> bool:
        """Return whether every output sees one position, inside the input (1x1 kernel, no padding)."""
        return all(k == 1 for k in self.kernel) and not any(self.pad)

    @property
    def depthwise(self) -> bool:
        """Return whether each output sees one channel and the direct kernels can do it, by shapes alone."""
        single = 1 < self.group == self.channels and self.group_outputs <= 16
        if not (single and 1 <= self.axes <= 3):
            return False
        if self.axes == 1:
            return True
        reach = self.dilation[-2] * (self.kernel[-2] - 1) + 1  # rows, which a GPU's thread holds in registers
        return reach <= 64 and self.stride[-2] <= 32

    def with_axes(self, axes: int) -> ConvGeometry:
        """Return the same convolution with at least `axes` spatial axes: axes of size 1 are put in front."""
        more = max(0, axes - self.axes)
        ones, zeros = (1,) * more, (0,) * more
        return replace(
            self,
            in_spatial=ones + self.in_spatial,
            out_spatial=ones + self.out_spatial,
            kernel=ones + self.kernel,
            stride=ones + self.stride,
            pad=zeros + self.pad,
            dilation=ones + self.dilation,
        )


@dataclass(frozen=True, slots=True)
class PoolGeometry:
    """Describe a pooling of `planes` (items x channels) planes; every tuple has a value per spatial axis.

    inside: averages are those of the places inside the input; else padding counts, see `divisors`.
    """

    planes: int
    in_spatial: Ints
    out_spatial: Ints
    kernel: Ints
    stride: Ints
    pad: Ints
    inside: bool = False

    def divisors(self, axis: int) -> list[int]:
        """Return the divisors of an average's sums, one per output along `axis`.

        A divisor is the size of the window, clipped to size + pad at its far end only: near padding counts in full;
        with `inside` clipped to the input. It is 1 for an empty window, whose sum is 0.
        """
        size, kernel, stride, pad = self.in_spatial[axis], self.kernel[axis], self.stride[axis], self.pad[axis]
        starts = (o * stride - pad for o in range(self.out_spatial[axis]))
        if self.inside:
            return [max(1, min(start + kernel, size) - max(start, 0)) for start in starts]
        return [max(1, min(start + kernel, size + pad) - start) for start in starts]

    def simpler(self, keep_planes: bool) -> PoolGeometry:
        """Return the same pooling over as few axes as possible, but at least 2.

        Neighbouring axes that one window covers become one, axes of size 1 are dropped, and outer axes that are not
        pooled count as planes; with `keep_planes` they stay axes, so that an index inside a plane keeps its meaning.
        """
        planes, axes = self.planes, []
        for axis in zip(self.in_spatial, self.out_spatial, self.kernel, self.stride, self.pad, strict=True):
            size, outputs, kernel, stride, pad = axis
            if (kernel, stride, pad) == (1, 1, 0) and (size == 1 or not (axes or keep_planes)):
                planes *= size
            elif axes and _covered(axis) and _covered(axes[-1]):
                size *= axes[-1][0]
                axes[-1] = (size, 1, size, 1, 0)
            else:
                axes.append(axis)
        axes = [(1, 1, 1, 1, 0)] * (2 - len(axes)) + axes
        return PoolGeometry(planes, *zip(*axes, strict=True), inside=self.inside)


def _covered(axis: Ints) -> bool:
    """Return whether an axis (size, outputs, kernel, stride, pad) is one window without padding."""
    size, outputs, kernel, _, pad = axis
    return outputs == 1 and kernel == size and pad == 0


def tap_range(size: int, outputs: int, stride: int, offset: int) -> tuple[int, int]:
    """Return [first, last): the outputs o whose input position o * stride + offset lies inside [0, size)."""
    first = max(0, -(offset // stride))  # the least o with o * stride + offset >= 0
    last = min(outputs, (size - 1 - offset) // stride + 1)
    return first, max(first, last)


C_TYPES = {np.dtype(np.uint8): "unsigned char", np.dtype(np.uint16): "unsigned short", np.dtype(np.int32): "int"}


def place_dtype(geometry: PoolGeometry) -> np.dtype[Any]:
    """Return the smallest type that holds every place of a window, and one number for no place."""
    return integer_dtype(prod(geometry.kernel))


def integer_dtype(values: int) -> np.dtype[Any]:
    """Return the smallest of uint8, uint16 and int32 for the numbers 0 .. values - 1 and one more for none."""
    return np.dtype(np.uint8 if values < 1 << 8 else np.uint16 if values < 1 << 16 else np.int32)


def nowhere(dtype: DTypeLike) -> int:
    """Return the number for no place in an array of type `dtype`: what -1 becomes when it is stored."""
    info = np.iinfo(dtype)
    return int(info.max) if info.min == 0 else -1
