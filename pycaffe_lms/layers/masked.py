"""Layers whose backward can read one bit per element in place of a value."""

from __future__ import annotations

from ..ops.bit_masks import bit_words
from .base import Layer, Lives, Shape, count


class Masked(Layer):
    """A mixin. The net decides `context.saves_bits` before `declare`, where the bits save more memory or time than they
    cost: then forward saves them, backward reads them, and `backward_needs` asks for less. Results are the same to the
    bit."""

    mask_planes = 1  # bits per element

    @property
    def quicker_with_bits(self) -> bool:
        """Whether they cost a GPU less time than they save. After `declare`."""
        return False

    def mask_words(self, top_shape: Shape) -> int:
        """uint32 words of the bits."""
        return self.mask_planes * bit_words(count(top_shape))

    def declare_bits(self, top_shape: Shape) -> None:
        """Ask for the scratch "bits", if they are wanted. To be called by `declare`."""
        if self.context.saves_bits:
            self.scratch("bits", (self.mask_words(top_shape),), dtype="uint32", lives=Lives.SAVED)
