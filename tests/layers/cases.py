"""Describe ways to run a layer, one line each, so that one list runs in every type and on every device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .harness import LayerBench


@dataclass(frozen=True)
class Case:
    """A layer (`type`, the inside of `layer { }`) and the shapes of its bottoms.

    `integer_bottoms`: pairs (index, high) of bottoms that hold labels drawn from range(high); the others are normal.
    `maker(rng, shapes)` makes the bottoms where they are something else (regions, masks).
    """

    type: str
    text: str
    shapes: tuple
    n_top: int = 1
    phase: int = 0
    in_place: bool = False
    integer_bottoms: tuple = ()
    seed: int = 0
    maker: Callable | None = None

    def __str__(self) -> str:
        return " ".join(f"{self.type} {self.text} {self.shapes}".split())

    def bench(self, dtype=np.float64, device=None) -> LayerBench:
        return LayerBench(
            self.type,
            self.text,
            self.shapes,
            n_top=self.n_top,
            dtype=dtype,
            phase=self.phase,
            in_place=self.in_place,
            device=device,
        )

    def make_bottoms(self, rng) -> list:
        if self.maker is not None:
            return self.maker(rng, self.shapes)
        labels = dict(self.integer_bottoms)
        return [
            rng.integers(labels[i], size=shape).astype(np.float64) if i in labels else rng.normal(size=shape)
            for i, shape in enumerate(self.shapes)
        ]
