"""Computes the learning rate of an iteration by the solver's policy. Pure: the caller keeps the multistep counter.

Source: BVLC/caffe, sgd_solver.cpp, GetLearningRate (formulas).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import SolverError
from ..proto.caffe_pb2 import SolverParameter

# policy -> the settings that it reads beside base_lr
USES: dict[str, tuple[str, ...]] = {
    "fixed": (),
    "step": ("gamma", "stepsize"),
    "exp": ("gamma",),
    "inv": ("gamma", "power"),
    "multistep": ("gamma", "stepvalue"),
    "poly": ("power", "max_iter"),
    "sigmoid": ("gamma", "stepsize"),
}


@dataclass(frozen=True)
class Rate:
    """Hold `rate`, base_lr times the policy's factor, and the counter of "step" and "multistep" afterwards."""

    rate: float
    current_step: int


def check_policy(param: SolverParameter) -> None:
    """Raise SolverError for an unknown policy, or settings of the policy that are out of range."""
    policy = param.lr_policy
    if policy not in USES:
        raise SolverError(
            f'lr_policy "{policy}" is unknown' if policy else "lr_policy is missing",
            field="lr_policy",
            fix="use one of " + ", ".join(USES),
        )
    for name, wrong, found, wanted in (
        ("gamma", param.gamma < 0, f"gamma {param.gamma:g} is negative", ">= 0"),
        ("stepsize", param.stepsize <= 0, f"stepsize {param.stepsize} is not positive", "> 0"),
        ("max_iter", param.max_iter <= 0, "max_iter is not positive", "> 0"),
    ):
        if wrong and name in USES[policy]:
            raise SolverError(found, field=name, fix=f'lr_policy "{policy}" needs {name} {wanted}')


def learning_rate(param: SolverParameter, iteration: int, current_step: int = 0) -> Rate:
    """Return the rate after `iteration` updates. The counter of "multistep" advances by at most one per call."""
    base, gamma, policy = param.base_lr, param.gamma, param.lr_policy
    if policy == "fixed":
        return Rate(base, current_step)
    if policy == "step":
        current_step = iteration // param.stepsize
        return Rate(base * _power(gamma, current_step), current_step)
    if policy == "exp":
        return Rate(base * _power(gamma, iteration), current_step)
    if policy == "inv":
        return Rate(base * _power(1 + gamma * iteration, -param.power), current_step)
    if policy == "multistep":
        if current_step < len(param.stepvalue) and iteration >= param.stepvalue[current_step]:
            current_step += 1
        return Rate(base * _power(gamma, current_step), current_step)
    if policy == "poly":
        left = 1 - iteration / param.max_iter
        if left < 0 and param.power % 1:
            raise SolverError(
                f'iteration {iteration} is past max_iter {param.max_iter}: lr_policy "poly" has no rate there',
                fix="raise max_iter",
            )
        return Rate(base * _power(left, param.power), current_step)
    if policy == "sigmoid":
        return Rate(base / (1 + _power(math.e, -gamma * (iteration - param.stepsize))), current_step)
    raise AssertionError("check_policy lets no other policy through")


def _power(base: float, exponent: float) -> float:
    """Return base ** exponent; infinity, as in C, where Python raises an error."""
    try:
        power: float = base**exponent
        return power
    except (OverflowError, ZeroDivisionError):
        return math.inf
