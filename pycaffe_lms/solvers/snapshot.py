"""Snapshots of a solver: file names, model and state out, state in.

Beyond Caffe's fields, the state keeps where data layers and random layers stood, so that a resumed run equals an
uninterrupted one. Source of the rest: BVLC/caffe, solver.cpp and sgd_solver.cpp.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..blob import Blob
from ..errors import SnapshotError
from ..formats.hdf5_weights import write_hdf5_weights
from ..formats.solverstate import SolverSnapshot, read_solverstate, write_solverstate
from ..net import weights

if TYPE_CHECKING:
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


def write(solver: Solver) -> str:
    """Write <prefix>_iter_<N>.caffemodel and .solverstate (or their .h5 forms); returns the state's path."""
    base = f"{prefix(solver)}_iter_{solver.iter}"
    hdf5 = solver.param.snapshot_format == HDF5
    Path(base).parent.mkdir(parents=True, exist_ok=True)
    model = base + (".caffemodel.h5" if hdf5 else ".caffemodel")
    state = base + (".solverstate.h5" if hdf5 else ".solverstate")
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
    resume = {}
    for name, net in _nets(solver):
        for node in net.graph.nodes:
            for key, value in node.layer.state().items():
                resume[name, node.name, key] = value
    write_solverstate(state, SolverSnapshot(solver.iter, model, solver.current_step, history, resume))
    return state


def restore(solver: Solver, path: str) -> None:
    """Take a solver back to a snapshot. Raises SnapshotError when it does not fit this solver."""
    _log.info("Resuming from %s", path)
    saved = read_solverstate(path)
    blobs = solver.history_blobs()
    if len(saved.history) != len(blobs):
        raise SnapshotError(
            f"the snapshot has {len(saved.history)} history blobs, this solver needs {len(blobs)}",
            fix="resume with the solver type and net that wrote it",
        ).at(file=path)
    if saved.learned_net:
        weights.copy_from(solver.net, _find_model(saved.learned_net, path))
    solver.iter, solver.current_step = saved.iter, saved.current_step
    _log.info("%s: restoring history", type(solver).__name__)
    for blob, values in zip(blobs, saved.history, strict=True):
        shape = blob.shape if isinstance(blob, Blob) else blob
        if values.size != int(np.prod(shape)):
            raise SnapshotError(
                f"a history blob has shape {values.shape}, this solver's has {tuple(shape)}",
                fix="resume with the net that wrote the snapshot",
            ).at(file=path)
        if isinstance(blob, Blob):
            blob.data = values.reshape(shape)
    _restore_positions(solver, saved)


def _restore_positions(solver: Solver, saved: SolverSnapshot) -> None:
    for name, net in _nets(solver):
        for node in net.graph.nodes:
            state = {key: v for (n, layer, key), v in saved.resume.items() if (n, layer) == (name, node.name)}
            if state:
                node.layer.set_state(state)


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
