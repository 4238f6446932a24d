"""Layers whose backward can read one bit per element in place of a value."""

from __future__ import annotations

from ..ops.bit_masks import bit_words
from .base import Lives, Shape, count


class Masked:
    """A mixin of Layer. The net sets `masked` before `declare`, where the bits spare more than they take, memory or
    time: then forward saves them, backward reads them, and `backward_needs` asks for less. Results are the same to the
    bit."""

    masked = False
    mask_planes = 1  # bits per element
    quicker_with_bits = False  # whether they cost a GPU less time than they save. Known after `declare`

    def mask_words(self, top_shape: Shape) -> int:
        """uint32 words of the bits."""
        return self.mask_planes * bit_words(count(top_shape))

    def declare_bits(self, top_shape: Shape) -> None:
        """Ask for the scratch "bits", if they are wanted. To be called by `declare`."""
        if self.masked:
            self.scratch("bits", (self.mask_words(top_shape),), dtype="uint32", lives=Lives.SAVED)
