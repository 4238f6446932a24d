"""What a layer declares and is handed: counts of bottoms and tops, the arrays of a pass, its role in a fused chain."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class Count:
    """How many bottoms or tops: `least` to `most` (None: no upper end)."""

    least: int
    most: int | None

    def __contains__(self, n: int) -> bool:
        return self.least <= n and (self.most is None or n <= self.most)

    def __str__(self) -> str:
        if self.most is None:
            return f"at least {self.least}"
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"


def exactly(n: int) -> Count:
    return Count(n, n)


def at_least(n: int) -> Count:
    return Count(n, None)


def between(least: int, most: int) -> Count:
    return Count(least, most)


@dataclass
class Pass:
    """What forward and backward are handed. Arrays are C-contiguous and live where the layer runs.

    forward: `bottom`, `top` (uninitialised memory: write every element), `param`, `scratch`. Of a layer with
    `stretches`: None for what lies in its place already; among its `bottom_diff`, too.
    backward: `bottom`/`top` data (None where `backward_needs` did not ask for it), `top_diff` (None: all zeros),
    `bottom_diff` (None: not wanted; else write every element), `param`, `param_diff` (None: not wanted),
    `accumulate[i]`: add to param_diff[i] instead of overwriting it. In place, top_diff[i] may be bottom_diff[i].
    `bottom_adds[i]`: add to bottom_diff[i], which only a layer that says so in `adds_to` is asked for.
    `beside()`: within, work may run beside what follows until the pass ends; once per pass.
    """

    ops: Any
    bottom: list = field(default_factory=list)
    top: list = field(default_factory=list)
    param: list = field(default_factory=list)
    scratch: dict = field(default_factory=dict)
    bottom_diff: list = field(default_factory=list)
    top_diff: list = field(default_factory=list)
    param_diff: list = field(default_factory=list)
    accumulate: list = field(default_factory=list)
    bottom_adds: list = field(default_factory=list)
    beside: Callable[[], AbstractContextManager] = nullcontext


class Role(Enum):
    """The part that a layer can play in a chain that runs as one, see `net/passes/fusion.py`.

    CONVOLVE: a convolution of one bottom. NORMALISE: per channel, over all else (BatchNorm). AFFINE: a learned
    factor, and shift, per channel (Scale). ADD: the plain sum of two bottoms (Eltwise). RECTIFY: max(x, 0) (ReLU)."""

    CONVOLVE = "convolve"
    NORMALISE = "normalise"
    AFFINE = "affine"
    ADD = "add"
    RECTIFY = "rectify"
