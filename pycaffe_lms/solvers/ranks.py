"""What a training loop knows of the other ranks, where several train together. Pure."""

from __future__ import annotations

from typing import Protocol


class Ranks(Protocol):
    """Made and set by `parallel`; every rank asks once per iteration."""

    def agree(self, wish: bool) -> bool:
        """Whether all ranks stop after this iteration: some iterations ago one of them wished to. Raises LostRank
        where another rank is gone."""

    def check(self) -> None:
        """Raises LostRank where what the device has done may rest on gradients that were not summed over all ranks.
        From any thread."""
