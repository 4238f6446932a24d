"""Read and write solver states, what a snapshot keeps beside the weights, as binary proto or HDF5.

Beside Caffe's fields there are ours, with which a resumed run continues with the batches of an unbroken one.
Source: BVLC/caffe 9b89154, src/caffe/solvers/sgd_solver.cpp (behaviour).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote

import numpy as np

from ...arrays import HostArray
from ...errors import SnapshotError, WeightsError, Where
from ...proto.caffe_pb2 import BestScore, BlobProto, CarriedState, SolverState, SourceState
from ..atomic import file_sha256
from ..hdf5_file import (
    load_h5py,
    members,
    open_hdf5,
    read_array,
    read_int,
    read_string,
    write_hdf5,
    write_int,
    write_string,
)
from ..prototxt.upgraded import as_text
from ..rawfile import DAMAGED, is_hdf5, not_a, parse_message, read_bytes
from .blobproto import array_to_blobproto, blobproto_to_array
from .pieces import Piece, blob_pieces, framed, write_pieces

if TYPE_CHECKING:
    import h5py

_WHAT = "a solver state"
_RESUME, _CARRIED, _TYPE = "pycaffe_lms_resume", "pycaffe_lms_carried", "pycaffe_lms_type"
_MODEL, _BEST = "pycaffe_lms_model_sha256", "pycaffe_lms_best"
_TRAILER = b"\npycaffe-lms: sha256 of what precedes this line: "  # in HDF5 files; binary ones have a field
_DIGEST = 32
_FIELDS = SolverState.DESCRIPTOR.fields_by_name
_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)


class Best(NamedTuple):
    """Hold the best mean of one output of a test net so far: which output, its value, at which iteration."""

    output: str
    value: float
    iteration: int


@dataclass(frozen=True, eq=False)
class SolverSnapshot:
    """Hold the state of a solver between two iterations. The last five are empty in files that Caffe wrote.

    Attributes:
        learned_net: the model file written with it, "" for none.
        history: all first states in the order of the learnable blobs, then all second ones.
        resume: (net, layer, key) -> a count, such as batches delivered.
        carried: (net, layer, key) -> values that a layer keeps from forward to forward.
        type: of the solver, such as "Adam".
        model_sha256: of the model file.
        best: the best score so far.
    """

    iter: int
    learned_net: str = ""
    current_step: int = 0
    history: list[HostArray] = field(default_factory=list)
    resume: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    carried: Mapping[tuple[str, str, str], HostArray] = field(default_factory=dict)
    type: str = ""
    model_sha256: bytes = b""
    best: Best | None = None


def read_solverstate(path: str | os.PathLike[str]) -> SolverSnapshot:
    """Read a solver state of either format, recognised by content.

    History blobs have the file's shape (four axes in old files).
    Raises: SnapshotError for a file that is missing, damaged (a file with its SHA-256: by a single bit) or of another
    kind; MissingDependency for HDF5 without h5py.
    """
    if is_hdf5(path):
        _check_trailer(path)
        snapshot = _read_hdf5(path)
    else:
        snapshot = _read_binary(path)
    if snapshot.iter < 0 or snapshot.current_step < 0:
        raise SnapshotError(
            f"iteration {snapshot.iter}, step {snapshot.current_step}: neither can be negative",
            where=Where(file=os.fspath(path)),
            fix=DAMAGED,
        )
    return snapshot


def write_solverstate(path: str | os.PathLike[str], snapshot: SolverSnapshot) -> None:
    """Write a solver state, whole or not at all; HDF5 where `path` ends in .h5, else binary.

    Raises: SnapshotError where the file cannot be written or a number is too large for it.
    """
    numbers = {"iter": (snapshot.iter, _INT32), "current_step": (snapshot.current_step, _INT32)}
    numbers |= {"/".join(key): (value, _INT64) for key, value in snapshot.resume.items()}
    for name, (value, allowed) in numbers.items():
        if value not in allowed:
            raise SnapshotError(f"{name} is {value}, more than the file can hold", where=Where(file=os.fspath(path)))
    if os.fspath(path).endswith(".h5"):
        write_hdf5(path, lambda file: _fill_hdf5(file, snapshot), SnapshotError, trailer=_TRAILER)
    else:
        write_pieces(path, _pieces(snapshot), SnapshotError, digest_as=_FIELDS["sha256"].number)


def _pieces(snapshot: SolverSnapshot) -> list[Piece]:
    """Return the pieces of the file without its digest, in the order of the fields' numbers."""
    begin = SolverState(iter=snapshot.iter)
    if snapshot.learned_net:
        begin.learned_net = snapshot.learned_net
    pieces: list[Piece] = [begin.SerializeToString()]
    for values in snapshot.history:
        pieces += framed(_FIELDS["history"].number, blob_pieces(values))
    end = SolverState(current_step=snapshot.current_step)
    for (net, layer, key), value in sorted(snapshot.resume.items()):
        end.resume.source.add(net=net, layer=layer, key=key, value=value)
    for (net, layer, key), values in sorted(snapshot.carried.items(), key=lambda item: item[0]):
        array_to_blobproto(values, into=end.resume.carried.add(net=net, layer=layer, key=key).values)
    if snapshot.type:
        end.resume.type = snapshot.type
    if snapshot.model_sha256:
        end.resume.model_sha256 = snapshot.model_sha256
    if snapshot.best:
        end.resume.best.CopyFrom(BestScore(**snapshot.best._asdict()))
    return [*pieces, end.SerializeToString()]


def _check_digest(path: str | os.PathLike[str], digest: bytes, after: int) -> None:
    """Raise SnapshotError unless `digest` is the SHA-256 of the file without its last `after` bytes."""
    if file_sha256(path, os.path.getsize(path) - after) != digest:
        raise SnapshotError(
            "its content is not what was written: the SHA-256 at its end differs",
            where=Where(file=os.fspath(path)),
            fix="resume from an older snapshot: -resume latest finds it",
        )


def _check_trailer(path: str | os.PathLike[str]) -> None:
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - len(_TRAILER) - _DIGEST))
        trailer, digest = file.read(len(_TRAILER)), file.read(_DIGEST)
    if trailer == _TRAILER:
        _check_digest(path, digest, len(_TRAILER) + _DIGEST)


def _read_binary(path: str | os.PathLike[str]) -> SolverSnapshot:
    state = parse_message(SolverState(), path, _WHAT, SnapshotError)
    if not state.HasField("iter"):
        raise not_a(_WHAT, path, read_bytes(path, SnapshotError), SnapshotError)
    if state.HasField("sha256"):
        _check_digest(path, state.sha256, sum(map(len, framed(_FIELDS["sha256"].number, [state.sha256]))))
    history = [_values(proto, path, f"history {index}") for index, proto in enumerate(state.history)]
    resume = {_key(s): s.value for s in state.resume.source}
    carried = {_key(s): _values(s.values, path, "/".join(_key(s))) for s in state.resume.carried}
    best = state.resume.best
    return SolverSnapshot(
        iter=state.iter,
        learned_net=as_text(state.learned_net),
        current_step=state.current_step,
        history=history,
        resume=resume,
        carried=carried,
        type=as_text(state.resume.type),
        model_sha256=state.resume.model_sha256,
        best=Best(as_text(best.output), best.value, best.iteration) if state.resume.HasField("best") else None,
    )


def _key(state: SourceState | CarriedState) -> tuple[str, str, str]:
    return as_text(state.net), as_text(state.layer), as_text(state.key)


def _values(proto: BlobProto, path: str | os.PathLike[str], name: str) -> HostArray:
    try:
        return blobproto_to_array(proto, dtype=None)
    except WeightsError as error:
        raise SnapshotError(error.message, where=Where(file=os.fspath(path), blob=name), fix=error.fix) from None


def _read_hdf5(path: str | os.PathLike[str]) -> SolverSnapshot:
    h5py = load_h5py()
    with open_hdf5(path, SnapshotError) as file:
        found = dict(members(file, SnapshotError))
        if "iter" not in found or not isinstance(found.get("history"), h5py.Group):
            raise SnapshotError(
                f"not a solver state: no `iter` or no `history` in it (found: {', '.join(found) or 'nothing'})"
            )
        history = dict(members(found["history"], SnapshotError))
        names = [str(index) for index in range(len(history))]
        if set(history) != set(names) or not all(isinstance(item, h5py.Dataset) for item in history.values()):
            raise SnapshotError(f"/history holds {', '.join(history)}, not datasets numbered from 0")
        resume, carried = {}, {}
        if isinstance(found.get(_RESUME), h5py.Group):
            for name, _ in members(found[_RESUME], SnapshotError):
                resume[_split(name)] = read_int(found[_RESUME], name, SnapshotError)
        if isinstance(found.get(_CARRIED), h5py.Group):
            for name, item in members(found[_CARRIED], SnapshotError):
                if not isinstance(item, h5py.Dataset):
                    raise SnapshotError(f"/{_CARRIED}/{name} is not a dataset")
                carried[_split(name)] = read_array(item, SnapshotError)
        return SolverSnapshot(
            iter=read_int(file, "iter", SnapshotError),
            learned_net=read_string(file, "learned_net", SnapshotError) if "learned_net" in found else "",
            current_step=read_int(file, "current_step", SnapshotError) if "current_step" in found else 0,
            history=[read_array(history[name], SnapshotError) for name in names],
            resume=resume,
            carried=carried,
            type=read_string(file, _TYPE, SnapshotError) if _TYPE in found else "",
            model_sha256=_hexadecimal(read_string(file, _MODEL, SnapshotError)) if _MODEL in found else b"",
            best=_read_best(found[_BEST]) if isinstance(found.get(_BEST), h5py.Group) else None,
        )


def _hexadecimal(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise SnapshotError(f"/{_MODEL} is {text[:80]!r}, not a SHA-256") from None


def _read_best(group: h5py.Group) -> Best:
    found = dict(members(group, SnapshotError))
    value = read_array(found["value"], SnapshotError) if "value" in found else np.empty(0)
    if value.size != 1:
        raise SnapshotError(f"/{_BEST}/value is not one number")
    return Best(
        read_string(group, "output", SnapshotError),
        float(value.reshape(())),
        read_int(group, "iteration", SnapshotError),
    )


def _fill_hdf5(file: h5py.File, snapshot: SolverSnapshot) -> None:
    write_int(file, "iter", snapshot.iter)
    write_string(file, "learned_net", snapshot.learned_net)
    write_int(file, "current_step", snapshot.current_step)
    if snapshot.type:
        write_string(file, _TYPE, snapshot.type)
    if snapshot.model_sha256:
        write_string(file, _MODEL, snapshot.model_sha256.hex())
    if snapshot.best:
        best = file.create_group(_BEST)
        write_string(best, "output", snapshot.best.output)
        best.create_dataset("value", data=np.array([snapshot.best.value], np.float64))
        write_int(best, "iteration", snapshot.best.iteration)
    history = file.create_group("history")
    for index, values in enumerate(snapshot.history):
        dtype = np.float64 if values.dtype == np.float64 else np.float32
        history.create_dataset(str(index), data=values.astype(dtype))
    if snapshot.resume:
        group = file.create_group(_RESUME)
        for key, value in sorted(snapshot.resume.items()):
            write_int(group, _join(key), value)
    if snapshot.carried:
        group = file.create_group(_CARRIED)
        for key, values in sorted(snapshot.carried.items(), key=lambda item: item[0]):
            group.create_dataset(_join(key), data=values)


def _join(key: tuple[str, str, str]) -> str:
    return ":".join(quote(part, safe=" ") for part in key)


def _split(name: str) -> tuple[str, str, str]:
    parts = tuple(map(unquote, name.split(":")))
    if len(parts) != 3:
        raise SnapshotError(f'"{name}" does not name a net, a layer and what it keeps')
    return parts
