"""Names the files of a solver's snapshots, checks that they can be written, finds and removes them."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...errors import SnapshotError
from ...formats.atomic import try_write
from ...formats.hdf5_file import load_h5py
from ...proto.caffe_pb2 import SolverParameter

_log = logging.getLogger(__name__)
# Kinds of snapshots, as parts of a file's name between the prefix and the iteration; that of a usual one is "".
BEST = "_best"  # with the best score
NAN = "_nan"  # of the state after a loss that is NaN or infinite
_ENDINGS = (".caffemodel", ".solverstate")


class Files(NamedTuple):
    """Name the two files of a snapshot."""

    model: str
    state: str

    def make_folder(self) -> None:
        """Make the folder of the files where it is missing. Raises SnapshotError."""
        folder = Path(self.model).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SnapshotError(
                f"the folder cannot be made: {error.strerror}",
                fix="check that snapshot_prefix names a place to write to",
            ).at(file=str(folder)) from error


@dataclass(frozen=True)
class SnapshotNames:
    """Say where a solver's snapshots go. param: its settings. file: the path of the solver file, if any."""

    param: SolverParameter
    file: str | None

    @property
    def prefix(self) -> str:
        """Return snapshot_prefix; where it is a folder, the solver file's stem in it; where it is empty, the solver
        file's path without extension. Raises SnapshotError if neither is known."""
        given: str = self.param.snapshot_prefix
        if not given:
            if self.file is None:
                raise SnapshotError("snapshot_prefix is not set", fix="set snapshot_prefix in the solver")
            return os.path.splitext(self.file)[0]
        if self.file is not None and Path(given).is_dir():
            return str(Path(given) / Path(self.file).stem)
        return given

    @property
    def hdf5(self) -> bool:
        """Return whether the files are HDF5."""
        return self.param.snapshot_format == SolverParameter.HDF5

    def of(self, iteration: int, kind: str = "") -> Files:
        """Return <prefix>_iter_<N>.caffemodel and .solverstate, or their .h5 forms. kind: "", BEST or NAN."""
        ending = ".h5" if self.hdf5 else ""
        model, state = (f"{self.prefix}{kind}_iter_{iteration}{e}{ending}" for e in _ENDINGS)
        return Files(model, state)

    def check(self, iteration: int, kind: str = "") -> None:
        """Check before training that a snapshot of this iteration could be written, by writing, renaming and removing a
        file with the longer of its names; missing folders are made. Raises SnapshotError, MissingDependency."""
        if self.hdf5:
            load_h5py()
        longest = Path(self.of(iteration, kind).state)
        try:
            try_write(longest)
        except (OSError, ValueError) as error:  # ValueError: a NUL in it
            above = next(p for p in Path(os.path.abspath(longest)).parents if os.path.lexists(p))
            reason = getattr(error, "strerror", None) or error
            found = f"{above} is not a folder" if not above.is_dir() else f"{reason} ({longest.name} in {above})"
            raise SnapshotError(
                f'cannot write to snapshot prefix "{self.prefix}": {found}',
                fix="check that the folder exists, is writable and has room, or change snapshot_prefix",
            ) from error


def existing(base: str) -> list[tuple[int, str]]:
    """Return (iteration, state file) of every snapshot whose names begin with `base`, the newest first; of one
    iteration the binary one first."""
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
    """Remove all but the `most` newest snapshots of `base`, and none of iterations above `upto`.

    The state is removed before the model, so that every state names a model that exists. A file that cannot be removed
    is a warning: training goes on."""
    found = [one for one in existing(base) if upto is None or one[0] <= upto]
    kept = sorted({iteration for iteration, _ in found})[-most:]
    for iteration, state in found:
        if iteration not in kept:
            stem, _, ending = state.rpartition(".solverstate")
            try:
                Path(state).unlink(missing_ok=True)
                Path(f"{stem}.caffemodel{ending}").unlink(missing_ok=True)
            except OSError as error:
                _log.warning("%s: an old snapshot cannot be removed: %s", state, error.strerror or error)
