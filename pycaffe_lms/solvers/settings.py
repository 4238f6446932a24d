"""Checks a SolverParameter before anything is built. Pure.

`check_file` is called once, `check` again before every `step`, since users may change settings in between. `nets.py`
checks the nets that a solver names, `files.py` where its snapshots go.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

from ..errors import SolverError, UsageError, Where
from ..formats.prototxt.parser import Lines
from ..lms.config import LMSConfig
from ..proto.caffe_pb2 import SolverParameter
from . import local_rates
from .lr_policy import USES, check_policy
from .rules import OF_TYPES, Rule

AP_VERSIONS = ("11point", "MaxIntegral", "Integral")
_log = logging.getLogger(__name__)
_REAL = (
    *("base_lr", "gamma", "power", "momentum", "weight_decay", "delta", "rms_decay", "momentum2"),
    *("rampup_lr", "warmup_start_lr", "min_lr", "larc_eta", "local_gw_ratio"),
    *("max_momentum", "momentum_power", "max_weight_decay", "weight_decay_power"),
)
_COUNTS = ("display", "max_iter", "snapshot", "test_interval", "device_id", "rampup_interval", "warmup_iter", "min_lr")


def check_file(param: SolverParameter, rule: Rule, file: str | None, lines: Lines) -> None:
    """Run `check`, adding file and line to its error; then warn of every setting that has no effect."""
    try:
        check(param, rule)
    except SolverError as error:
        error.at(file=file, line=lines.field(error.field) if error.field else None)
        raise
    for field, reader in _unread(param, rule):
        _log.warning(
            "%s: %s has no effect: %s does not read it",
            Where(file=file or "solver", line=lines.field(field)),
            field,
            reader,
        )


def check(param: SolverParameter, rule: Rule) -> None:
    """Raise SolverError, whose `field` names the wrong setting, for settings that cannot be trained with."""
    for name in _REAL:
        if not math.isfinite(getattr(param, name)):
            raise SolverError(f"{name} {getattr(param, name)} is not finite", field=name, fix="give a number")
    if math.isnan(param.clip_gradients):
        raise SolverError(
            "clip_gradients nan is not a limit", field="clip_gradients", fix="give a number, or delete it"
        )
    for name in _COUNTS:
        if getattr(param, name) < 0:
            raise SolverError(f"{name} {getattr(param, name)} is negative", field=name, fix="use 0 or more")
    if any(n < 0 for n in param.test_iter):
        raise SolverError(f"test_iter {min(param.test_iter)} is negative", field="test_iter", fix="use 1 or more")
    for name in ("average_loss", "iter_size"):
        if getattr(param, name) < 1:
            raise SolverError(f"{name} {getattr(param, name)} is not positive", field=name, fix="use 1 or more")
    if param.regularization_type not in ("L1", "L2"):
        raise SolverError(
            f'regularization_type "{param.regularization_type}" is unknown',
            field="regularization_type",
            fix='use "L1" or "L2"',
        )
    for name, known in (("eval_type", ("classification", "detection")), ("ap_version", AP_VERSIONS)):
        value = getattr(param, name)
        if value not in known:
            names = ", ".join(f'"{each}"' for each in known)
            raise SolverError(f'{name} "{value}" is unknown', field=name, fix=f"use one of {names}")
    check_policy(param)
    rule.check(param)
    local_rates.check(param, rule.type)
    if param.momentum_policy != "fixed" and (rule.squares or not rule.uses("momentum")):
        raise SolverError(
            f'momentum_policy "{param.momentum_policy}" needs type "SGD" or "Nesterov"',
            field="momentum_policy",
            fix="delete momentum_policy, or choose one of these types",
        )


def check_sharded(param: SolverParameter, lms: LMSConfig | None, file: str | None, lines: Lines) -> None:
    """Raise an error for settings that need whole histories or gradients, which -shard_history divides among ranks."""
    if param.snapshot_diff:
        raise SolverError(
            "snapshot_diff needs gradients, of which -shard_history leaves each rank a share",
            field="snapshot_diff",
            fix="train without one of them",
        ).at(file=file, line=lines.field("snapshot_diff"))
    if lms is not None and lms.blocks != 0:
        raise UsageError(
            "-shard_history cannot divide histories of layers in blocks of outputs (-lms_split_outputs)",
            fix="train without one of them",
        )


def _unread(param: SolverParameter, rule: Rule) -> Iterator[tuple[str, str]]:
    """Yield (field, what does not read it) for settings that are given, but that this type or policy ignores."""
    for name in OF_TYPES:
        if param.HasField(name) and getattr(param, name) and not rule.uses(name):
            yield name, f'a solver of type "{rule.type}"'
    for name, switch in local_rates.NEEDS.items():
        if param.HasField(name) and not getattr(param, switch):
            yield name, f"a solver without {switch}"
    for name in ("gamma", "power", "stepsize"):
        if param.HasField(name) and name not in USES[param.lr_policy]:
            yield name, f'lr_policy "{param.lr_policy}"'
    for name in ("ap_version", "show_per_class_result"):
        if param.HasField(name) and param.eval_type != "detection":
            yield name, f'eval_type "{param.eval_type}"'
    for name in ("stepvalue", "stagelr", "stageiter", "plateau_winsize"):
        if getattr(param, name) and name not in USES[param.lr_policy]:
            yield name, f'lr_policy "{param.lr_policy}"'
