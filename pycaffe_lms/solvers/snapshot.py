"""Snapshots of a solver: file names, model and state out, state in.

Beyond Caffe's fields, the state keeps where data layers and random layers stood and what recurrent layers carry, so
that a resumed run equals an uninterrupted one. Where several ranks train together the root writes and all read: every
rank goes on where the root's layers stood, with its own seeds; what recurrent layers carry is the root's alone.
Source of the rest: BVLC/caffe, solver.cpp and sgd_solver.cpp.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..errors import SnapshotError
from ..formats.atomic import try_write
from ..formats.hdf5_file import load_h5py
from ..formats.hdf5_weights import write_hdf5_weights
from ..formats.solverstate import SolverSnapshot, read_solverstate, write_solverstate
from ..net import carried, weights
from .history import check_history
from .slots import hand_on

if TYPE_CHECKING:
    from ..layers.base import Layer
    from ..net.net import Net
    from .base import Solver

_log = logging.getLogger(__name__)
HDF5 = 0


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


def check(solver: Solver) -> None:
    """Find out before training that a snapshot could not be written: a file whose name is as long as the longest is
    written, renamed and removed there; folders that are missing are made. Raises SnapshotError, MissingDependency."""
    base = prefix(solver)
    if solver.param.snapshot_format == HDF5:
        load_h5py()
    longest = Path(names(solver, max(solver.iter, solver.param.max_iter))[1])
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


def names(solver: Solver, iteration: int) -> tuple[str, str]:
    """The files of a snapshot: the model and the state."""
    base, ending = f"{prefix(solver)}_iter_{iteration}", ".h5" if solver.param.snapshot_format == HDF5 else ""
    return f"{base}.caffemodel{ending}", f"{base}.solverstate{ending}"


def write(solver: Solver) -> tuple[str, str]:
    """Write <prefix>_iter_<N>.caffemodel and .solverstate (or their .h5 forms); returns both paths."""
    hdf5 = solver.param.snapshot_format == HDF5
    model, state = names(solver, solver.iter)
    try:
        Path(model).parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SnapshotError(
            f"the folder cannot be made: {error.strerror}", fix="check that snapshot_prefix names a place to write to"
        ).at(file=str(Path(model).parent)) from error
    kind = "HDF5" if hdf5 else "binary proto"
    _log.info("Snapshotting to %s file %s", kind, model)
    diff = solver.param.snapshot_diff
    if hdf5:
        net = solver.net
        write_hdf5_weights(model, weights.hdf5_arrays(net), weights.hdf5_arrays(net, "diff") if diff else None)
    else:
        weights.save(solver.net, model, write_diff=diff)
    _log.info("Snapshotting solver state to %s file %s", kind, state)
    history = [b.read_data() if isinstance(b, Blob) else np.zeros(b, solver.net.dtype) for b in solver.history_blobs()]
    resume: dict[tuple[str, str, str], int] = {}
    kept: dict[tuple[str, str, str], np.ndarray] = {}
    for name, net in _nets(solver):
        for node in net.graph.nodes:
            for key, value in node.layer.state().items():
                resume[name, node.name, key] = value
        kept |= {(name, *key): values for key, values in carried.read(net).items()}
    saved = SolverSnapshot(solver.iter, model, solver.current_step, history, resume, kept, solver.rule.type)
    write_solverstate(state, saved)
    return model, state


def restore(solver: Solver, path: str) -> None:
    """Take a solver back to a snapshot. Raises SnapshotError when it does not fit this solver."""
    _log.info("Resuming from %s", path)
    saved = read_solverstate(path)
    blobs = solver.history_blobs()
    check_history(solver, saved, [b.shape if isinstance(b, Blob) else b for b in blobs], path)
    positions = _positions(solver, saved, path)
    if saved.learned_net:
        weights.copy_from(solver.net, _find_model(saved.learned_net, path))
    solver.iter, solver.current_step = saved.iter, saved.current_step
    _log.info("%s: restoring history", type(solver).__name__)
    for blob, values in zip(blobs, saved.history, strict=True):
        if isinstance(blob, Blob):
            blob.data = values.reshape(blob.shape)
            hand_on(blob)
    for layer, state in positions:
        layer.set_state(state if solver.is_root else _of_this_rank(layer, state))
    for name, net in _nets(solver) if solver.is_root else ():
        carried.write(net, _carried(name, net, saved))


def _positions(solver: Solver, saved: SolverSnapshot, path: str) -> list[tuple[Layer, dict[str, int]]]:
    """Where the file says that each layer stood. Raises SnapshotError where that is not what the layer keeps."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for (name, layer, key), value in saved.resume.items():
        found.setdefault((name, layer), {})[key] = value
    positions, unknown = [], []
    for name, net in _nets(solver):
        for node in net.graph.nodes:
            keys, state = node.layer.state().keys(), found.get((name, node.name))
            if keys and state is None:
                unknown.append(f"{node.name} ({name})")
            elif keys:
                if state.keys() != keys or min(state.values()) < 0:
                    raise SnapshotError(
                        f"{state} does not say where the layer stood: it keeps {', '.join(keys)}, none negative",
                        fix="resume with the net that wrote the snapshot",
                    ).at(file=path, layer=node.name, type=node.layer.param.type)
                positions.append((node.layer, state))
        anew = carried.shapes(net).keys() - _carried(name, net, saved).keys()
        unknown += [f"{layer} ({name})" for layer in sorted({layer for layer, _ in anew})]
    if unknown:
        _log.warning("%s does not say where these layers stood, they start anew: %s", path, ", ".join(unknown))
    return positions


def _of_this_rank(layer: Layer, state: dict[str, int]) -> dict[str, int]:
    """The root wrote the file: positions are every rank's, seeds are not."""
    return state | {key: value for key, value in layer.state().items() if key == "seed"}


def _carried(name: str, net: Net, saved: SolverSnapshot) -> dict[tuple[str, str], np.ndarray]:
    """What the file has of the values that a net's layers carry; not those of another batch size."""
    found = {(layer, key): values for (owner, layer, key), values in saved.carried.items() if owner == name}
    return {key: found[key] for key, shape in carried.shapes(net).items() if key in found and found[key].shape == shape}


def _nets(solver: Solver):
    yield "train", solver.net
    for i, net in enumerate(solver.test_nets):
        yield f"test{i}", net


def _find_model(name: str, state_path: str) -> str:
    """The model as named (relative to the working directory), or beside the state file."""
    beside = Path(state_path).parent / Path(name).name
    if not Path(name).exists() and beside.exists():
        return str(beside)
    return name
