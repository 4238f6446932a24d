"""Update parameters: one pass over a parameter, its gradient and its histories, for one parameter or for many.

See `update_rules.py` for the formulas, `update_table.py` for the table of many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...arrays import HostArray
from ..update_rules import DECOUPLED, UpdateNumbers
from ..update_table import make_table
from .compiled import kernel
from .threads import ELEMENTS, parallel

__all__ = ["solver_update", "solver_update_all", "solver_update_all_plan"]


def solver_update(
    rule: str,
    param: HostArray,
    diff: HostArray,
    histories: Sequence[HostArray],
    numbers: HostArray,
    lr_mult: float,
    decay_mult: float,
) -> None:
    """Update a parameter by `rule`, a name of `update_rules.HISTORIES`; diff becomes the step that is subtracted.

    `numbers` is an `UpdateNumbers` as a float64 array of the device; its rate and decay are multiplied by lr_mult and
    decay_mult.
    """
    n = UpdateNumbers(*map(float, numbers))
    given = (n.rate * lr_mult, n.decay * decay_mult, n.scale, n.keep, 1 - n.keep, n.keep2, 1 - n.keep2, n.delta)
    if rule in DECOUPLED:
        given = (*given, n.pull * lr_mult)
    scalars = tuple(map(param.dtype.type, given))
    arrays = [a.reshape(-1) for a in (param, diff, *histories)]
    parallel(_KERNELS[rule], param.size, *arrays, bool(n.l1), scalars, grain=ELEMENTS)


@kernel
def _gradient(w: float, g: float, l1: bool, decay: float, scale: float) -> float:
    g = scale * g
    if decay != 0:
        g += decay * (np.sign(w) if l1 else w)
    return g


@kernel
def _sgd(first: int, last: int, w: HostArray, d: HostArray, h: HostArray, l1: bool, scalars: tuple[float, ...]) -> None:
    rate, decay, scale, keep, _, _, _, _ = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] = keep * h[i] + rate * g
        d[i] = h[i]
        w[i] -= d[i]


@kernel
def _nesterov(
    first: int, last: int, w: HostArray, d: HostArray, h: HostArray, l1: bool, scalars: tuple[float, ...]
) -> None:
    rate, decay, scale, keep, _, _, _, _ = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        old = h[i]
        h[i] = keep * old + rate * g
        d[i] = h[i] + keep * (h[i] - old)
        w[i] -= d[i]


@kernel
def _adagrad(
    first: int, last: int, w: HostArray, d: HostArray, h: HostArray, l1: bool, scalars: tuple[float, ...]
) -> None:
    rate, decay, scale, _, _, _, _, delta = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] += g * g
        d[i] = rate * (g / (np.sqrt(h[i]) + delta))
        w[i] -= d[i]


@kernel
def _rmsprop(
    first: int, last: int, w: HostArray, d: HostArray, h: HostArray, l1: bool, scalars: tuple[float, ...]
) -> None:
    rate, decay, scale, keep, less, _, _, delta = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] = keep * h[i] + less * (g * g)
        d[i] = rate * (g / (np.sqrt(h[i]) + delta))
        w[i] -= d[i]


@kernel
def _adadelta(
    first: int, last: int, w: HostArray, d: HostArray, h: HostArray, h2: HostArray, l1: bool, scalars: tuple[float, ...]
) -> None:
    rate, decay, scale, keep, less, _, _, delta = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] = keep * h[i] + less * (g * g)
        v = g * np.sqrt((h2[i] + delta) / (h[i] + delta))
        h2[i] = keep * h2[i] + less * (v * v)
        d[i] = rate * v
        w[i] -= d[i]


@kernel
def _adam(
    first: int, last: int, w: HostArray, d: HostArray, h: HostArray, h2: HostArray, l1: bool, scalars: tuple[float, ...]
) -> None:
    rate, decay, scale, keep, less, keep2, less2, delta = scalars
    for i in range(first, last):
        g = _gradient(w[i], d[i], l1, decay, scale)
        h[i] = keep * h[i] + less * g
        h2[i] = keep2 * h2[i] + less2 * (g * g)
        d[i] = rate * (h[i] / (np.sqrt(h2[i]) + delta))
        w[i] -= d[i]


@kernel
def _adamw(
    first: int, last: int, w: HostArray, d: HostArray, h: HostArray, h2: HostArray, l1: bool, scalars: tuple[float, ...]
) -> None:
    rate, decay, scale, keep, less, keep2, less2, delta, pull = scalars
    for i in range(first, last):
        g = scale * d[i]
        h[i] = keep * h[i] + less * g
        h2[i] = keep2 * h2[i] + less2 * (g * g)
        d[i] = rate * (h[i] / (np.sqrt(h2[i]) + delta))
        if decay != 0:
            d[i] += pull * decay * (np.sign(w[i]) if l1 else w[i])
        w[i] -= d[i]


@kernel
def _lion(
    first: int, last: int, w: HostArray, d: HostArray, h: HostArray, l1: bool, scalars: tuple[float, ...]
) -> None:
    rate, decay, scale, keep, less, keep2, less2, _, pull = scalars
    for i in range(first, last):
        g = scale * d[i]
        c = keep * h[i] + less * g
        h[i] = keep2 * h[i] + less2 * g
        d[i] = rate * np.sign(c)
        if decay != 0:
            d[i] += pull * decay * (np.sign(w[i]) if l1 else w[i])
        w[i] -= d[i]


_KERNELS = {
    "sgd": _sgd,
    "nesterov": _nesterov,
    "adagrad": _adagrad,
    "rmsprop": _rmsprop,
    "adadelta": _adadelta,
    "adam": _adam,
    "adamw": _adamw,
    "lion": _lion,
}


@dataclass(frozen=True)
class UpdatePlan:
    """Hold the table (int64) for a device's kernel, and the arrays and multipliers, which are used here instead."""

    table: HostArray
    arrays: tuple[tuple[HostArray, HostArray, tuple[HostArray, ...]], ...]
    mults: tuple[tuple[float, float, bool], ...]


def solver_update_all_plan(
    params: Sequence[HostArray],
    diffs: Sequence[HostArray],
    histories: Sequence[Sequence[HostArray]],
    lr_mults: Sequence[float],
    decay_mults: Sequence[float],
    has_gradient: Sequence[bool],
) -> UpdatePlan:
    """Plan updates of these arrays, valid while they stay where they are.

    Args:
        histories: one list, or two, of one array per parameter.
        has_gradient: per parameter; False where the gradient is zero, whatever the array holds.
    """
    addresses = [[a.ctypes.data for a in arrays] for arrays in (params, diffs, *histories)]
    table = make_table(addresses, [p.size for p in params], lr_mults, decay_mults, has_gradient)
    arrays = tuple(zip(params, diffs, zip(*histories, strict=True), strict=True))
    return UpdatePlan(table, arrays, tuple(zip(lr_mults, decay_mults, has_gradient, strict=True)))


def solver_update_all(rule: str, plan: UpdatePlan, table: HostArray, numbers: HostArray) -> None:
    """Update each parameter of the plan as `solver_update` does.

    `numbers` (an `UpdateNumbers`, float64) and `table` (the plan's) are arrays of the device.
    """
    for (param, diff, histories), (lr_mult, decay_mult, has_gradient) in zip(plan.arrays, plan.mults, strict=True):
        if not has_gradient:
            diff.fill(0)
        solver_update(rule, param, diff, histories, numbers, lr_mult, decay_mult)
