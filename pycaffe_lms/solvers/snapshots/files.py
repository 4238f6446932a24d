"""The files of a solver's snapshots: their names, whether they can be written, which are there, which go."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...errors import SnapshotError
from ...formats.atomic import remove, try_write
from ...formats.hdf5_file import load_h5py

if TYPE_CHECKING:
    from ..base import Solver

_log = logging.getLogger(__name__)
HDF5 = 0
# between the prefix and the iteration
BEST = "_best"  # of the snapshot with the best score
NAN = "_nan"  # of the state after a loss that is NaN or infinite
_ENDINGS = (".caffemodel", ".solverstate")


class Files(NamedTuple):
    """The two files of a snapshot."""

    model: str
    state: str


def prefix(solver: Solver) -> str:
    """snapshot_prefix, or one derived from the solver file: its path without extension; in a folder: its stem there.

    Raises SnapshotError if there is neither."""
    given, file = solver.param.snapshot_prefix, solver.file
    if not given:
        if file is None:
            raise SnapshotError("snapshot_prefix is not set", fix="set snapshot_prefix in the solver")
        return os.path.splitext(file)[0]
    if file is not None and Path(given).is_dir():
        return str(Path(given) / Path(file).stem)
    return given


def names(solver: Solver, iteration: int, kind: str = "") -> Files:
    """<prefix>_iter_<N>.caffemodel and .solverstate, or their .h5 forms. kind: "", BEST or NAN."""
    ending = ".h5" if solver.param.snapshot_format == HDF5 else ""
    return Files(*(f"{prefix(solver)}{kind}_iter_{iteration}{e}{ending}" for e in _ENDINGS))


def check(solver: Solver, kind: str = "") -> None:
    """Find out before training that a snapshot could not be written: a file whose name is as long as the longest is
    written, renamed and removed there; folders that are missing are made. Raises SnapshotError, MissingDependency."""
    base = prefix(solver)
    if solver.param.snapshot_format == HDF5:
        load_h5py()
    longest = Path(names(solver, max(solver.iter, solver.param.max_iter), kind).state)
    try:
        try_write(longest)
    except (OSError, ValueError) as error:  # ValueError: a NUL in it
        above = next(p for p in Path(os.path.abspath(longest)).parents if os.path.lexists(p))
        reason = getattr(error, "strerror", None) or error
        found = f"{above} is no folder" if not above.is_dir() else f"{reason} ({longest.name} in {above})"
        raise SnapshotError(
            f'cannot write to snapshot prefix "{base}": {found}',
            fix="check that the folder exists, is writable and has room, or change snapshot_prefix",
        ) from error


def make_folder(files: Files) -> None:
    """The folder of a snapshot, where it is missing. Raises SnapshotError."""
    folder = Path(files.model).parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapshotError(
            f"the folder cannot be made: {error.strerror}", fix="check that snapshot_prefix names a place to write to"
        ).at(file=str(folder)) from error


def existing(base: str) -> list[tuple[int, str]]:
    """(iteration, state file) of every snapshot whose names begin with `base`, the newest first; of one iteration the
    binary one first."""
    folder, name = os.path.split(base)
    found = []
    try:
        there = os.listdir(folder or ".")
    except (FileNotFoundError, NotADirectoryError):
        return []
    for file in there:
        for ending in (".solverstate", ".solverstate.h5"):
            number = file.removeprefix(f"{name}_iter_").removesuffix(ending)
            if file == f"{name}_iter_{number}{ending}" and number.isascii() and number.isdigit() and len(number) < 11:
                found.append((int(number), os.path.join(folder, file)))
    return sorted(found, key=lambda one: (-one[0], len(one[1])))


def keep_newest(base: str, most: int, upto: int | None) -> None:
    """Remove all but the `most` newest snapshots of `base`; of iterations above `upto` none. The state goes first: it
    names a model that is there. What cannot be removed is a warning: training goes on."""
    found = [one for one in existing(base) if upto is None or one[0] <= upto]
    kept = sorted({iteration for iteration, _ in found})[-most:]
    for iteration, state in found:
        if iteration not in kept:
            stem, _, ending = state.rpartition(".solverstate")
            try:
                remove(state)
                remove(f"{stem}.caffemodel{ending}")
            except OSError as error:
                _log.warning("%s: an old snapshot cannot be removed: %s", state, error.strerror or error)
