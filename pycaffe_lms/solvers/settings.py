"""What a SolverParameter may say, checked before anything is built. Pure.

Covers: numbers out of range, settings that contradict the solver type, settings that nothing reads.
See also: `nets.py` (which nets), `snapshot.py` (where snapshots go).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

from ..errors import SolverError, Where
from ..formats.prototxt.parser import Lines
from .lr_policy import USES, check_policy
from .rules import OF_TYPES, Rule

_log = logging.getLogger(__name__)
_REAL = ("base_lr", "gamma", "power", "momentum", "weight_decay", "delta", "rms_decay", "momentum2")
_COUNTS = ("display", "max_iter", "snapshot", "test_interval", "device_id")


def check_file(param, rule: Rule, file: str | None, lines: Lines) -> None:
    """`check`, with file and line in the error; then a warning for every setting that has no effect."""
    try:
        check(param, rule)
    except SolverError as error:
        error.at(file=file, line=lines.field(error.field) if error.field else None)
        raise
    for field, who in unread(param, rule):
        _log.warning(
            "%s: %s has no effect: %s does not read it",
            Where(file=file or "solver", line=lines.field(field)),
            field,
            who,
        )


def check(param, rule: Rule) -> None:
    """Raise SolverError (whose `field` is the one to blame) for settings that cannot be trained with."""
    for name in _REAL:
        if not math.isfinite(getattr(param, name)):
            raise SolverError(f"{name} {getattr(param, name)} is not finite", field=name, fix="give a number")
    if math.isnan(param.clip_gradients):
        raise SolverError("clip_gradients nan is no limit", field="clip_gradients", fix="give a number, or delete it")
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
    check_policy(param)
    rule.check(param)


def unread(param, rule: Rule) -> Iterator[tuple[str, str]]:
    """(field, who does not read it) of settings that are written and have no effect, though they would elsewhere."""
    for name in OF_TYPES:
        if param.HasField(name) and getattr(param, name) and not rule.uses(name):
            yield name, f'a solver of type "{rule.type}"'
    for name in ("gamma", "power", "stepsize"):
        if param.HasField(name) and name not in USES[param.lr_policy]:
            yield name, f'lr_policy "{param.lr_policy}"'
    if param.stepvalue and "stepvalue" not in USES[param.lr_policy]:
        yield "stepvalue", f'lr_policy "{param.lr_policy}"'
