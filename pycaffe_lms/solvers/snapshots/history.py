"""Checks that the histories of a snapshot fit a solver: its type, their number, their shapes, their signs.

Caffe's files do not say which type of solver wrote them, so that numbers and signs must tell; ours do.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...blob import Blob
from ...errors import SnapshotError
from ...formats.weights.solverstate import SolverSnapshot
from ..rules import RULES, Rule


def check_history(
    saved: SolverSnapshot, rule: Rule, params: Sequence[Blob], shapes: Sequence[tuple[int, ...]], path: str
) -> None:
    """Raise SnapshotError, which names the file and the parameter, where histories do not fit.

    rule, params: of the solver. shapes: of its own histories, slot by slot. path: of the file.
    """
    weights_only = "begin anew with the weights alone (-weights, or weights: in the solver)"
    if saved.type and saved.type != rule.type:
        theirs = saved.type[:40]  # whatever a file says
        raise SnapshotError(
            f'the snapshot is of a solver of type "{theirs}", this one is of type "{rule.type}"',
            fix=f'resume with type: "{theirs}", or {weights_only}' if theirs in RULES else weights_only,
        ).at(file=path)
    if len(saved.history) != len(shapes):
        raise SnapshotError(
            f"the snapshot has {len(saved.history)} history blobs, this solver needs {len(shapes)}: "
            f"{rule.slots} for each of {len(params)} parameters{_others(rule, len(saved.history), len(params))}",
            fix=f"resume with the solver type and net that wrote it, or {weights_only}",
        ).at(file=path)
    for k, (values, shape) in enumerate(zip(saved.history, shapes, strict=True)):
        name = params[k % len(params)].name
        if _without_ones(values.shape) != _without_ones(shape):
            raise SnapshotError(
                f"a history blob has shape {values.shape}, this solver's has {tuple(shape)}",
                fix="resume with the net that wrote the snapshot",
            ).at(file=path, blob=name)
        if k // len(params) in rule.squares and (values < 0).any():
            raise SnapshotError(
                f"history {k} has negative values, and {rule.type} keeps squares there: this is the snapshot of "
                "another type of solver",
                fix=f"resume with the solver type that wrote it, or {weights_only}",
            ).at(file=path, blob=name)


def _others(rule: Rule, found: int, params: int) -> str:
    """Return words on the types that have as many histories as were found."""
    names = [r.type for r in RULES.values() if r.slots != rule.slots and r.slots * params == found]
    return f"; as many are kept by {', '.join(names)}" if names else ""


def _without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without leading ones: old files pad shapes to four axes."""
    first = int(np.argmax([*(n != 1 for n in shape), True]))
    return tuple(shape[first:])
