"""The solver's update of all parameters in one operation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..update_table import make_table
from .update import sgd_update

__all__ = ["sgd_update_all", "sgd_update_all_plan"]


@dataclass(frozen=True)
class UpdatePlan:
    """`table` (int64) goes to where the device's kernel reads it; here the rest is used."""

    table: np.ndarray
    arrays: tuple
    scalars: tuple


def sgd_update_all_plan(params, diffs, histories, lr_mults, decays, has_gradient):
    """A plan for these arrays, as long as they stay where they are. has_gradient: False where the gradient is zero,
    whatever the array holds."""
    addresses = [[a.ctypes.data for a in arrays] for arrays in (params, diffs, histories)]
    table = make_table(addresses, [p.size for p in params], lr_mults, decays, has_gradient)
    arrays = tuple(zip(params, diffs, histories, strict=True))
    return UpdatePlan(table, arrays, tuple(zip(lr_mults, decays, has_gradient, strict=True)))


def sgd_update_all(plan, table, numbers, momentum, l1):
    """`sgd_update` of each parameter, with the rate numbers[0] * its lr_mult, its decay and the scale numbers[1].
    `numbers` (float64) and `table` (the plan's) are arrays of the device."""
    rate, scale = float(numbers[0]), float(numbers[1])
    for (param, diff, history), (lr_mult, decay, has_gradient) in zip(plan.arrays, plan.scalars, strict=True):
        if not has_gradient:
            diff.fill(0)
        sgd_update(param, diff, history, rate * lr_mult, momentum, decay, l1, scale)
