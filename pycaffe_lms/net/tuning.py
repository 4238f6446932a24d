"""Defines `Tuning`, the options that let a net be rearranged for speed and memory."""

from __future__ import annotations

from dataclasses import dataclass

from ..backend.device import Device
from ..options import option, switch


@dataclass(frozen=True, slots=True)
class Tuning:
    """Choose how a net may be rearranged.

    `pack`, `graph`, `masks` and `split_backward` leave results the same to the bit; `channels_last` and `fuse` change
    them to rounding, `half` to the rounding of bfloat16.

    Args:
        channels_last: store images as (N, H, W, C) where layers are faster so; None: on a GPU only.
        fuse: run chains of layers (BatchNorm, Scale, a sum, ReLU) as one in a solver's iterations.
        pack: without LMS, let buffers with short live ranges (gradients of blobs) share device memory in an iteration;
            their values are lost afterwards unless kept. With LMS, gradients of parameters are lost after their update
            where one rank trains, unless the solver has snapshot_diff or debug_info. With `fuse` and either `pack` or
            LMS, bottoms of a Concat may be buffer views into its top, and tops of a Slice into its bottom.
        graph: record an iteration or a pass, with the copies of LMS, as a CUDA graph and replay it, if the device can.
        masks: with LMS, let ReLU and similar layers keep a bit mask where no other layer's backward reads their values.
        half: store hidden activations and their gradients as bfloat16 where layers can; products take bfloat16 and
            accumulate in float32. Nets of float64 ignore it.
        split_backward: split the backward of layers that can, in a solver's iterations: gradients of
            parameters in one step, of bottoms in another. None: with LMS only, for large layers, if an
            iteration is predicted to be faster or does not fit otherwise.
    """

    channels_last: bool | None = option(
        None,
        flag="layout",
        choices=("auto", "nchw", "nhwc"),
        default="auto",
        parse=lambda text, flag: None if text == "auto" else text == "nhwc",
        help="order of images in memory: nhwc where layers are faster with it, nchw, or auto: nhwc on a GPU",
    )
    fuse: bool = switch(
        True,
        flag="fuse",
        help="run chains of layers such as BatchNorm, Scale, sum, ReLU as one, which reads and writes memory once, and "
        "let 1x1 convolutions, InnerProducts and norms of rows add their gradient to another layer's for the same blob",
    )
    pack: bool = switch(
        False,
        flag="pack",
        help="without LMS: let gradients of blobs use the same device memory in turn; with LMS: drop a parameter's "
        "gradient after its update, unless the solver has snapshot_diff or debug_info or trains with other ranks",
    )
    masks: bool = switch(
        True,
        flag="masks",
        help="with LMS: keep one bit per element for the backward of ReLU and similar layers if no other layer's "
        "backward reads the values; results are the same",
    )
    graph: bool = option(
        True,
        flag="graph",
        choices=("on", "off", "sums"),
        default="on",
        parse=lambda text, flag: text != "off",
        help="on a GPU: record an iteration, with its copies and, on several GPUs, its sums of gradients, as a CUDA "
        "graph and replay it; results are the same. sums is an older word for on",
    )
    half: bool = option(
        False,
        flag="math bf16",
        help="hidden activations and their gradients are stored in 16 bits, parameters and their updates in float32",
    )
    split_backward: bool | None = None

    def wants_channels_last(self, device: Device) -> bool:
        """Return whether a net on this device stores images channels-last."""
        return device.name == "cuda" if self.channels_last is None else self.channels_last
