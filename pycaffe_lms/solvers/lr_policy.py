"""Computes rate, momentum and decay of an iteration by the solver's policies. Pure: the caller keeps the counter.

Source: sgd_solver.cpp of BVLC/caffe, of NVIDIA/caffe (rampup, min_lr, momentum_policy, weight_decay_policy) and of
intel/caffe (warmup, multifixed, plateau): formulas.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
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
    "multifixed": ("stagelr", "stageiter"),
    "cosine": ("max_iter",),
    "plateau": ("gamma", "plateau_winsize"),
}
MOMENTUM_POLICIES, DECAY_POLICIES = ("fixed", "poly", "opt"), ("fixed", "poly")


@dataclass(frozen=True)
class Rate:
    """Hold `rate`, base_lr times the policy's factor, and the counter of "step" and "multistep" afterwards."""

    rate: float
    current_step: int


class Plateau:
    """Count the steps of "plateau": one more after plateau_winsize iterations without a new lowest mean loss.

    average: losses of a mean.
    """

    def __init__(self, windows: Sequence[int], average: int):
        self._windows = tuple(windows)
        self._lowest, self._since = math.inf, 0
        self._losses: deque[float] = deque(maxlen=max(1, average))

    def add(self, loss: float) -> None:
        """Take the loss of an iteration into the mean."""
        self._losses.append(loss)

    def step(self, iteration: int, current_step: int) -> int:
        """Return the steps so far at an iteration whose loss was added."""
        mean = sum(self._losses) / len(self._losses) if self._losses else math.inf
        if mean < self._lowest:
            self._lowest, self._since = mean, iteration
        if current_step < len(self._windows) and iteration >= self._since + self._windows[current_step]:
            self._since = iteration
            return current_step + 1
        return current_step

    @property
    def state(self) -> list[float]:
        """Return what a resumed run needs: lowest mean, iteration of the last event, the last losses."""
        return [self._lowest, float(self._since), *self._losses]

    @state.setter
    def state(self, values: list[float]) -> None:
        self._lowest, self._since = values[0], int(values[1])
        self._losses.clear()
        self._losses.extend(values[2:])


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
    if policy == "multifixed" and not (param.stagelr and len(param.stagelr) == len(param.stageiter)):
        raise SolverError(
            f"{len(param.stagelr)} stagelr for {len(param.stageiter)} stageiter",
            field="stagelr",
            fix="give one stagelr per stageiter",
        )
    if policy == "plateau" and not (param.plateau_winsize and min(param.plateau_winsize) > 0):
        raise SolverError(
            f"plateau_winsize is {list(param.plateau_winsize)}",
            field="plateau_winsize",
            fix="give one number of iterations above 0 for each step",
        )
    if policy in ("poly", "cosine") and param.min_lr > param.base_lr:
        raise SolverError(
            f"min_lr {param.min_lr:g} is above base_lr {param.base_lr:g}", field="min_lr", fix="make it smaller"
        )
    for name, known in (("momentum_policy", MOMENTUM_POLICIES), ("weight_decay_policy", DECAY_POLICIES)):
        value = getattr(param, name)
        if value not in known:
            raise SolverError(f'{name} "{value}" is unknown', field=name, fix="use one of " + ", ".join(known))
        if value == "poly" and param.max_iter <= 0:
            raise SolverError("max_iter is not positive", field="max_iter", fix=f'{name} "poly" needs max_iter > 0')


def learning_rate(param: SolverParameter, iteration: int, current_step: int = 0) -> Rate:
    """Return the rate after `iteration` updates. The counter of "multistep" advances by at most one per call."""
    base = param.base_lr
    if iteration < param.rampup_interval:
        share = iteration / param.rampup_interval
        found = Rate(param.rampup_lr + (base - param.rampup_lr) * share * share, current_step)
    elif iteration < param.warmup_iter:
        share = iteration / param.warmup_iter
        found = Rate(share * base + (1 - share) * param.warmup_start_lr, current_step)
    else:
        found = _of_policy(param, iteration, current_step)
    return Rate(max(found.rate, param.min_lr), found.current_step) if param.min_lr else found


def momentum(param: SolverParameter, iteration: int, rate: float) -> float:
    """Return the momentum of the update after `iteration` others. rate: the policy's of that update."""
    if param.momentum_policy == "poly":
        share = iteration / param.max_iter
        return param.momentum + (param.max_momentum - param.momentum) * _power(share, param.momentum_power)
    if param.momentum_policy == "opt":
        best = (1 - 0.5 * math.sqrt(rate)) ** 2
        return min(best, param.max_momentum) if param.HasField("max_momentum") else best
    return param.momentum


def weight_decay(param: SolverParameter, iteration: int) -> float:
    """Return the weight decay of the update after `iteration` others."""
    if param.weight_decay_policy == "poly":
        more = param.max_weight_decay - param.weight_decay
        return param.weight_decay + more * _power(iteration / param.max_iter, param.weight_decay_power)
    return param.weight_decay


def _of_policy(param: SolverParameter, iteration: int, current_step: int) -> Rate:
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
    if policy == "plateau":  # `Plateau` counts the steps
        return Rate(base * _power(gamma, current_step), current_step)
    if policy == "poly":
        left = 1 - iteration / param.max_iter
        if left < 0 and param.power % 1:
            raise SolverError(
                f'iteration {iteration} is past max_iter {param.max_iter}: lr_policy "poly" has no rate there',
                fix="raise max_iter",
            )
        return Rate((base - param.min_lr) * _power(left, param.power) + param.min_lr, current_step)
    if policy == "sigmoid":
        return Rate(base / (1 + _power(math.e, -gamma * (iteration - param.stepsize))), current_step)
    if policy == "cosine":  # from base_lr where the warm-up ends to min_lr at max_iter, and no rise behind it
        first = max(param.warmup_iter, param.rampup_interval)
        share = min(1.0, (iteration - first) / max(1, param.max_iter - first))
        return Rate(param.min_lr + (base - param.min_lr) * 0.5 * (1 + math.cos(math.pi * share)), current_step)
    if policy == "multifixed":
        reached = (rate for rate, last in zip(param.stagelr, param.stageiter, strict=True) if iteration <= last)
        return Rate(next(reached, param.stagelr[-1]), current_step)
    raise AssertionError("check_policy lets no other policy through")


def _power(base: float, exponent: float) -> float:
    """Return base ** exponent; infinity, as in C, where Python raises an error."""
    try:
        power: float = base**exponent
        return power
    except (OverflowError, ZeroDivisionError):
        return math.inf
