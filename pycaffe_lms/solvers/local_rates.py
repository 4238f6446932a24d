"""Computes a rate for each parameter from the norms of its values and its gradient (LARC, LARS). Pure.

Source: NVIDIA/caffe and intel/caffe, sgd_solver.cpp, GetLocalRate (formulas). The gradient is that before weight decay:
NVIDIA's on a GPU, Intel's of type SGD.
"""

from __future__ import annotations

from ..errors import SolverError
from ..proto.caffe_pb2 import SolverParameter

LARC_POLICIES = ("scale", "clip")
NEEDS = {"larc_policy": "larc", "larc_eta": "larc", "local_gw_ratio": "local_lr_auto"}  # field -> what switches it on


def asked(param: SolverParameter) -> bool:
    """Return whether parameters have rates of their own."""
    return bool(param.larc or param.local_lr_auto)


def check(param: SolverParameter, type_name: str) -> None:
    """Raise SolverError for settings of local rates that do not fit together, or another solver type than SGD."""
    if not asked(param):
        return
    field = "larc" if param.larc else "local_lr_auto"
    if param.larc and param.local_lr_auto:
        raise SolverError("both larc and local_lr_auto", field="larc", fix="keep one of them")
    if type_name != "SGD":
        raise SolverError(f'{field} needs type "SGD", not "{type_name}"', field=field, fix=f"delete {field}")
    if param.larc and param.larc_policy not in LARC_POLICIES:
        raise SolverError(
            f'larc_policy "{param.larc_policy}" is unknown',
            field="larc_policy",
            fix="use one of " + ", ".join(LARC_POLICIES),
        )


def local_rate(
    param: SolverParameter, rate: float, momentum: float, lr_mult: float, weight: float, gradient: float
) -> float:
    """Return the rate of one parameter.

    Args:
        rate: of the policy, in the same iteration as `momentum`.
        lr_mult: 0 stops the parameter; any other value is not used, as in the forks.
        weight, gradient: L2 norms of the values, and of the gradient as it is used, without weight decay.
    """
    if not lr_mult > 0:
        return rate * lr_mult
    local = 1.0
    if weight > 0 and gradient > 0:
        if param.larc:
            local = (1 - momentum) * param.larc_eta * weight / gradient
        else:
            local = param.local_gw_ratio * weight / (gradient + param.weight_decay * weight)
    return min(rate, local) if param.larc and param.larc_policy == "clip" else rate * local
