"""Copy many buffers in one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import HostArray
from ..copy_table import make_table

__all__ = ["copy_all", "copy_all_plan"]


@dataclass(frozen=True)
class CopyPlan:
    """Hold the table (int64) for a device's kernel, and the arrays, which are used here instead."""

    table: HostArray
    pairs: tuple[tuple[HostArray, HostArray], ...]


def copy_all_plan(sources: Sequence[HostArray], targets: Sequence[HostArray]) -> CopyPlan:
    """Plan copies of each source to its target: arrays of bytes of the device, pairwise of one size."""
    addresses = ([a.ctypes.data for a in arrays] for arrays in (sources, targets))
    return CopyPlan(make_table(*addresses, [a.size for a in sources]), tuple(zip(sources, targets, strict=True)))


def copy_all(plan: CopyPlan, table: HostArray) -> None:
    """Copy all that the plan lists. `table` is the plan's, as an array of the device."""
    for source, target in plan.pairs:
        np.copyto(target, source)
