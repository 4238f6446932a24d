"""Random numbers of a layer that are a function of a seed and a count of forwards, on every device and in any parts."""

from __future__ import annotations

from collections.abc import Sequence

from ..proto.caffe_pb2 import LayerParameter
from .base import BuildContext, Layer

LANES = 4  # random numbers that one block of the generator gives: a part of a layer begins with a whole block


class RandomLayer(Layer):
    """A layer whose step scalar "key" is (seed, forwards before, block of the first element)."""

    whole: RandomLayer | None = None  # of a part: the layer that it is a part of, which counts
    first_block = 0  # of a part

    def __init__(self, param: LayerParameter, context: BuildContext):
        super().__init__(param, context)
        self.seed, self.draws = context.seed, 0  # draws: forwards so far

    @property
    def random(self) -> bool:
        """Whether it draws random numbers at all. After `setup`."""
        return True

    def next_key(self) -> dict[str, Sequence[int]]:
        """Return the key of the next forward. The parts of a layer, of which the first counts, share a forward."""
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
