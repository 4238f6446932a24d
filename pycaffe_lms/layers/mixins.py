"""Two kinds of layers that passes over the graph ask for: those that draw random numbers, those that save bits.

`net/passes/regions.py` cuts the batch of a `RandomLayer` where a block of random numbers begins; `net/passes/masks.py`
chooses which `Masked` layers save bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..ops.bit_masks import bit_words
from ..proto.caffe_pb2 import LayerParameter
from .base import BuildContext, Layer, Lives, Needs, Shape, count

LANES = 4  # random numbers in one block of the generator; each part of a layer begins with a whole block


class RandomLayer(Layer):
    """A layer whose random numbers are a function of a seed and of the number of forwards before.

    They are the same on every device and for any micro-batches. Operations get them from the step scalar "key": (seed,
    forwards before, block of the first element).
    """

    whole: RandomLayer | None = None  # of a part: the layer that it is a part of, which counts the forwards
    first_block = 0  # of a part

    def __init__(self, param: LayerParameter, context: BuildContext):
        super().__init__(param, context)
        self.seed, self.draws = context.seed, 0  # draws: forwards so far

    @property
    def random(self) -> bool:
        """Return whether the layer draws random numbers at all. After `setup`."""
        return True

    def draws_per_item(self, top_shape: Shape) -> int:
        """Return how many random numbers an item of the batch takes. Default: one for each value of top 0."""
        return count(top_shape, 1)

    def next_key(self) -> dict[str, Sequence[int]]:
        """Return the key of the next forward, which all parts of a layer share: the first part counts it."""
        owner = self.whole or self
        if not self.first_block:
            owner.draws += 1
        return {"key": (owner.seed, owner.draws - 1, self.first_block)}

    def state(self) -> dict[str, int]:
        owner = self.whole or self
        return {"seed": owner.seed, "draws": owner.draws} if self.random else {}

    def set_state(self, state: dict[str, int]) -> None:
        owner = self.whole or self
        if self.random:
            owner.seed, owner.draws = state["seed"], state["draws"]

    def after(self, state: dict[str, int], forwards: int) -> dict[str, int]:
        counts = any(s.lives is Lives.STEP_SCALAR for s in self.scratches.values())
        return state | ({"draws": state["draws"] + forwards} if counts else {})


class Masked(Layer):
    """A mixin for layers whose backward can read one or more bits per element in place of a value.

    The net sets `context.saves_bits` before `declare`, where the bits save more memory or time than they cost: then
    forward saves them, backward reads them, and `backward_needs` asks for less. Results are bit-identical.
    """

    mask_planes = 1  # bits per element

    @property
    def quicker_with_bits(self) -> bool:
        """Return whether a GPU is faster with the bits. After `declare`."""
        return False

    def mask_words(self, top_shape: Shape) -> int:
        """Return the number of uint32 words that hold the bits."""
        return self.mask_planes * bit_words(count(top_shape))

    def backward_needs(self, propagate_down: Sequence[bool], param_propagate: Sequence[bool]) -> Needs:
        return Needs() if self.context.saves_bits else super().backward_needs(propagate_down, param_propagate)

    def declare_bits(self, top_shape: Shape) -> None:
        """Ask for the scratch "bits" if the layer saves bits. A subclass calls it in `declare`."""
        if self.context.saves_bits:
            self.scratch("bits", (self.mask_words(top_shape),), dtype="uint32", lives=Lives.SAVED)
