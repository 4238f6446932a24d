"""Copies what a snapshot of a solver holds, writes it, and restores a solver from it.

Beyond Caffe's fields, the state holds positions of data layers, states of random layers and values that recurrent
layers carry, so that a resumed run equals an uninterrupted one. Of several ranks the root writes and all read: every
rank continues at the positions of the root's layers, with its own seeds; carried values are restored on the root alone.
Source of the rest: BVLC/caffe, solver.cpp and sgd_solver.cpp.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...blob import Blob
from ...errors import SnapshotError, WeightsError
from ...formats.atomic import file_sha256
from ...formats.weights.caffemodel import write_weights
from ...formats.weights.hdf5_weights import write_hdf5_weights
from ...formats.weights.solverstate import Best, SolverSnapshot, read_solverstate, write_solverstate
from ...memory.synced import SyncedMemory
from ...net import weights
from ...proto.caffe_pb2 import NetParameter
from ..rules import RULES, Rule
from ..update.slots import hand_on
from .files import Files, existing
from .staging import Staging

if TYPE_CHECKING:
    from ...layers.base import Layer
    from ...net.net import Net
    from ..base import Ranks, Solver

_log = logging.getLogger(__name__)
_PLATEAU = ("solver", "plateau", "state")  # among carried values, whose owners are nets
Hdf5Arrays = list[tuple[str, list["np.ndarray | None"]]]


@dataclass(frozen=True, eq=False)
class Copied:
    """Hold what the two files of a snapshot will contain. Arrays are valid once `staging.wait` has returned."""

    files: Files
    hdf5: bool
    net: NetParameter  # without parameters
    binary: list[weights.Arrays]  # of a binary file
    data: Hdf5Arrays  # of an HDF5 file
    diff: Hdf5Arrays | None
    solver: SolverSnapshot  # without the model's digest
    staging: Staging
    ranks: Ranks | None  # which averaged the gradients that the values come of


def memories(solver: Solver) -> Iterator[SyncedMemory]:
    """Yield all buffers whose values a snapshot holds."""
    for node in solver.net.graph.nodes:
        for blob in node.layer.blobs:
            yield blob.data_memory
            if solver.param.snapshot_diff and blob.diff_memory is not None:
                yield blob.diff_memory
    yield from (blob.data_memory for blob in solver.history_blobs() if isinstance(blob, Blob))
    for _, net in _nets(solver):
        yield from net.recurrent_states.memories()


def copy(solver: Solver, files: Files, staging: Staging, best: Best | None = None) -> Copied:
    """Copy the state of a solver between two iterations. On a GPU the host does not wait for the copies."""
    net, hdf5, diff = solver.net, solver.snapshots.names.hdf5, solver.param.snapshot_diff
    staging.begin()
    binary = [] if hdf5 else weights.layer_arrays(net, write_diff=diff, read=staging.blob)
    data = weights.hdf5_arrays(net, read=staging.blob) if hdf5 else []
    diffs = weights.hdf5_arrays(net, "diff", read=staging.blob) if hdf5 and diff else None
    history = (
        [staging.blob(b) if isinstance(b, Blob) else np.zeros(b, net.dtype) for b in solver.history_blobs()]
        if solver.updates.divided is None
        else solver.updates.divided.whole(solver.iter)
    )
    resume: dict[tuple[str, str, str], int] = {}
    kept: dict[tuple[str, str, str], np.ndarray] = {}
    for name, each in _nets(solver):
        for node in each.graph.nodes:
            for key, value in node.layer.state().items():
                resume[name, node.name, key] = value
        kept |= {(name, *key): values for key, values in each.recurrent_states.read(staging.memory).items()}
    if solver.plateau is not None:
        kept[_PLATEAU] = np.array(solver.plateau.state, np.float64)
    staging.end()
    saved = SolverSnapshot(
        solver.iter, files.model, solver.current_step, history, resume, kept, solver.rule.type, best=best
    )
    return Copied(files, hdf5, weights.bare_proto(net), binary, data, diffs, saved, staging, solver.ranks)


def write(copied: Copied) -> None:
    """Write the model, then the state that names it, each whole or not at all. Any thread may call it.

    Raises LostRank where the values may come of gradients that were not summed over all ranks."""
    copied.staging.wait()
    if copied.ranks is not None:
        copied.ranks.check()  # after a sum that was aborted, a GPU still runs what is queued, the copies too
    if copied.hdf5:
        digest = write_hdf5_weights(copied.files.model, copied.data, copied.diff)
    else:
        digest = write_weights(copied.files.model, copied.net, copied.binary)
    write_solverstate(copied.files.state, replace(copied.solver, model_sha256=digest))


def restore_latest(solver: Solver) -> str | None:
    """Restore a solver from its newest snapshot that is whole; return its state file, None where there is no snapshot.

    One that is damaged, or lacks its model, is skipped with a warning. Raises SnapshotError where all are."""
    prefix = solver.snapshots.names.prefix
    found = [path for _, path in existing(prefix)]
    first = None
    for path in found:
        try:
            restore(solver, path)
            return path
        except (SnapshotError, WeightsError) as error:
            first = first or error
            _log.warning("%s cannot be resumed from, the snapshot before it is tried: %s", path, error)
    if first is not None:
        raise SnapshotError(
            f"none of the {len(found)} snapshots of {prefix} can be resumed from; the newest: {first.message}",
            where=first.where,
            fix="begin anew: without -resume, or under another snapshot_prefix",
        )
    _log.info("There is no snapshot of %s: training begins anew", prefix)
    return None


def restore(solver: Solver, path: str) -> None:
    """Restore a solver from a snapshot. Raises SnapshotError where it does not fit this solver."""
    _log.info("Resuming from %s", path)
    saved = read_solverstate(path)
    blobs = solver.history_blobs()
    shapes = [b.shape if isinstance(b, Blob) else b for b in blobs]
    _check_history(saved, solver.rule, solver.net.learnable_params, shapes, path)
    positions = _positions(solver, saved, path)
    if saved.learned_net:
        weights.copy_from(solver.net, _find_model(saved, path), must_match=True)
    solver.iter, solver.current_step, solver.snapshots.best = saved.iter, saved.current_step, saved.best
    if solver.plateau is not None and _PLATEAU in saved.carried:
        solver.plateau.state = saved.carried[_PLATEAU].tolist()
    _log.info("%s: restoring history", type(solver).__name__)
    for blob, values in zip(blobs, saved.history, strict=True):
        if isinstance(blob, Blob):
            blob.data = values.reshape(blob.shape)
            hand_on(blob)
    if solver.updates.divided is not None:
        solver.updates.divided.spread(saved.history)
    for index in solver.virtual.each() if solver.virtual is not None else (0,):
        for layer, state in positions:
            keeps = not (solver.is_root and index == 0) and not layer.seed_of_root
            own = {key: value for key, value in layer.state().items() if key == "seed"} if keeps else {}
            layer.set_state(state | own)
    if solver.virtual is not None:
        solver.virtual.begin_anew()
    for name, net in _nets(solver) if solver.is_root else ():
        net.recurrent_states.write(_carried(name, net, saved))


def _check_history(
    saved: SolverSnapshot, rule: Rule, params: Sequence[Blob], shapes: Sequence[tuple[int, ...]], path: str
) -> None:
    """Raise SnapshotError where the histories of a file do not fit a solver, naming file and parameter.

    Caffe's files do not say which type of solver wrote them, so that numbers and signs must tell; ours do.
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


def _positions(solver: Solver, saved: SolverSnapshot, path: str) -> list[tuple[Layer, dict[str, int]]]:
    """Return the state of each layer that has one. Raises SnapshotError where the file's is not of the layer's form."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    for (name, layer, key), value in saved.resume.items():
        found.setdefault((name, layer), {})[key] = value
    positions, unknown = [], []
    for name, net in _nets(solver):
        for node in net.graph.nodes:
            keys, state = node.layer.state().keys(), found.get((name, node.name))
            if keys and state is None:
                unknown.append(f"{node.name} ({name})")
            elif keys and state is not None:
                if state.keys() | {"records"} & keys != keys or min(state.values()) < 0:
                    raise SnapshotError(
                        f"{state} does not say where the layer stood: it keeps {', '.join(keys)}, none negative",
                        fix="resume with the net that wrote the snapshot",
                    ).at(file=path, layer=node.name, type=node.layer.param.type)
                positions.append((node.layer, state))
        anew = net.recurrent_states.shapes().keys() - _carried(name, net, saved).keys()
        unknown += [f"{layer} ({name})" for layer in sorted({layer for layer, _ in anew})]
    if unknown:
        _log.warning("%s does not say where these layers stood, they start anew: %s", path, ", ".join(unknown))
    return positions


def _carried(name: str, net: Net, saved: SolverSnapshot) -> dict[tuple[str, str], np.ndarray]:
    """Return the values that a net's layers carry, by (layer, key), without those of another batch size."""
    found = {(layer, key): values for (owner, layer, key), values in saved.carried.items() if owner == name}
    return {
        key: found[key]
        for key, shape in net.recurrent_states.shapes().items()
        if key in found and found[key].shape == shape
    }


def _nets(solver: Solver) -> Iterator[tuple[str, Net]]:
    """Yield the nets by the names that they have in a state file."""
    yield "train", solver.net
    for i, net in enumerate(solver.test_nets):
        yield f"test{i}", net


def _find_model(saved: SolverSnapshot, state_path: str) -> str:
    """Return the path of the model: the name in the state (relative to the working directory), or a file of this name
    beside the state file.

    Where the state holds the model's SHA-256, it must match. Raises SnapshotError where neither file's does."""
    name = saved.learned_net
    found = [str(p) for p in (Path(name), Path(state_path).parent / Path(name).name) if p.exists()]
    if not found or not saved.model_sha256:
        return found[0] if found else name
    for path in found:
        if file_sha256(path) == saved.model_sha256:
            return path
    raise SnapshotError(
        f"the model {found[0]} is not the one that was written with this state: its SHA-256 differs",
        fix="resume from an older snapshot (-resume latest finds it), or train on from changed weights with -weights",
    ).at(file=state_path)
