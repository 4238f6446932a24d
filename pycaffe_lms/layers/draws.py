"""Random numbers of a layer that are a function of a seed and a count of forwards, on every device and in any parts."""

from __future__ import annotations

from .base import Layer

LANES = 4  # random numbers that one block of the generator gives: a part of a layer begins with a whole block


class RandomLayer(Layer):
    """A layer whose dial "key" is (seed, forwards before, block of the first element). `seed` is set by the net."""

    seed = 0
    draws = 0  # forwards so far
    drawn_by: RandomLayer | None = None  # of a part: the layer that it is a part of, which counts
    first_block = 0  # of a part

    @property
    def random(self) -> bool:
        """Whether it draws at all. After `setup`."""
        return True

    def draw(self) -> dict[str, tuple[int, int, int]]:
        """The key of the next forward. The parts of a layer, of which the first counts, share a forward."""
        owner = self.drawn_by or self
        if not self.first_block:
            owner.draws += 1
        return {"key": (owner.seed, owner.draws - 1, self.first_block)}

    def state(self) -> dict[str, int]:
        owner = self.drawn_by or self
        return {"seed": owner.seed, "draws": owner.draws} if self.random else {}

    def set_state(self, state: dict[str, int]) -> None:
        owner = self.drawn_by or self
        if self.random:
            owner.seed, owner.draws = state["seed"], state["draws"]
