"""The solver's update of all parameters in one operation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..update_table import make_table
from .update import solver_update

__all__ = ["solver_update_all", "solver_update_all_plan"]


@dataclass(frozen=True)
class UpdatePlan:
    """`table` (int64) goes to where the device's kernel reads it; here the rest is used."""

    table: np.ndarray
    arrays: tuple
    mults: tuple


def solver_update_all_plan(params, diffs, histories, lr_mults, decay_mults, has_gradient):
    """A plan for these arrays, as long as they stay where they are. histories: one list, or two, of an array for each
    parameter. has_gradient: False where the gradient is zero, whatever the array holds."""
    addresses = [[a.ctypes.data for a in arrays] for arrays in (params, diffs, *histories)]
    table = make_table(addresses, [p.size for p in params], lr_mults, decay_mults, has_gradient)
    arrays = tuple(zip(params, diffs, zip(*histories, strict=True), strict=True))
    return UpdatePlan(table, arrays, tuple(zip(lr_mults, decay_mults, has_gradient, strict=True)))


def solver_update_all(rule, plan, table, numbers):
    """`solver_update` of each parameter. `numbers` (float64, an `UpdateNumbers`) and `table` (the plan's) are arrays of
    the device."""
    for (param, diff, histories), (lr_mult, decay_mult, has_gradient) in zip(plan.arrays, plan.mults, strict=True):
        if not has_gradient:
            diff.fill(0)
        solver_update(rule, param, diff, histories, numbers, lr_mult, decay_mult)
