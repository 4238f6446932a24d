"""How a net may be rearranged for speed and memory, as one frozen value. Numbers change to rounding only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """channels_last: keep images as (N, H, W, C) where layers are faster so; None: on a GPU. fuse: let a solver's
    iterations run chains of layers (BatchNorm, Scale, a sum, ReLU) as one. pack: without Large Model Support, let what
    an iteration needs only for a while (gradients of blobs) use the same device memory in turn; afterwards such a value
    is gone, unless it is kept. With both, and with fuse under Large Model Support, bottoms of a Concat may lie in its
    top and tops of a Slice in its bottom (results are the same to the bit). graph: on a device that can, record what an
    iteration or a pass queues, with the copies of Large Model Support, and repeat it without Python for each layer
    (results are the same to the bit). masks: with Large Model Support, let ReLU and its kin keep bits where no
    other layer's backward reads their values (results are the same to the bit). half: store hidden activations and
    their gradients as bfloat16, where layers can; products of such take bfloat16 and add up in float32. Numbers change
    to the rounding of bfloat16. Of nets of float64 nothing is stored so. separate: in a solver's iterations, let layers
    that may make the gradients of their parameters and those of their bottoms in two steps; None: with Large Model
    Support, those that are not small beside the largest, where an iteration is predicted to be faster so, or does not
    fit else (results are the same to the bit)."""

    channels_last: bool | None = None
    fuse: bool = True
    pack: bool = False
    graph: bool = True
    masks: bool = True
    half: bool = False
    separate: bool | None = None

    def wants_channels_last(self, device) -> bool:
        """Whether a net on this device keeps images channels-last."""
        return device.name == "cuda" if self.channels_last is None else self.channels_last
