"""What a layer's forward or backward is handed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any


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
