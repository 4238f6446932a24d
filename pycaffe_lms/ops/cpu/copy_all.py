"""Copies of many buffers in one operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import HostArray
from ..copy_table import make_table

__all__ = ["copy_all", "copy_all_plan"]


@dataclass(frozen=True)
class CopyPlan:
    """`table` (int64) goes to where the device's kernel reads it; here the arrays are used."""

    table: HostArray
    pairs: tuple[tuple[HostArray, HostArray], ...]


def copy_all_plan(sources: Sequence[HostArray], targets: Sequence[HostArray]) -> CopyPlan:
    """Return a plan of copying each source to its target: arrays of bytes of the device, pairwise of one size."""
    addresses = ([a.ctypes.data for a in arrays] for arrays in (sources, targets))
    return CopyPlan(make_table(*addresses, [a.size for a in sources]), tuple(zip(sources, targets, strict=True)))


def copy_all(plan: CopyPlan, table: HostArray) -> None:
    """Copy all that the plan says. `table` (the plan's) is an array of the device."""
    for source, target in plan.pairs:
        np.copyto(target, source)
