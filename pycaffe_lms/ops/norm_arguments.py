"""What operations of batch normalisation are handed together. All arrays have one element for each channel."""

from __future__ import annotations

from typing import NamedTuple

from ..arrays import AnyArray

Planes = tuple[int, int, int]
"""(n, c, s): how an array is seen, with c channels; NCHW has s = H * W, channels-last n = N * H * W and s = 1."""


class Moments(NamedTuple):
    """The mean of each channel, and inv_std = 1 / sqrt(variance + eps)."""

    mean: AnyArray
    inv_std: AnyArray


class RunningSums(NamedTuple):
    """BatchNorm's parameters: running sums of means and variances, and of the weights that they have, (1)."""

    mean: AnyArray
    var: AnyArray
    factor: AnyArray


class Affine(NamedTuple):
    """The learned scale and bias of each channel; None: there is none."""

    scale: AnyArray | None
    bias: AnyArray | None


class AffineGradients(NamedTuple):
    """Where the gradients of scale and bias go (None: not wanted), and whether they are added to what is there."""

    scale: AnyArray | None
    bias: AnyArray | None
    add_scale: bool = False
    add_bias: bool = False
