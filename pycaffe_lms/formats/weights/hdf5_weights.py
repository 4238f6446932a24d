"""Read and write weights as HDF5: `/data/<layer>/<i>`, and `/diff/<layer>/<i>` where diffs are kept.

Layer names with `/` become nested groups (BVLC Caffe cannot write those).
Source: BVLC/caffe 9b89154, src/caffe/net.cpp (ToHDF5, CopyTrainedLayersFromHDF5; behaviour).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...arrays import HostArray
from ...errors import WeightsError
from ..hdf5_file import load_h5py, members, open_hdf5, read_array, write_hdf5
from .blobproto import LayerWeights, StoredBlob

if TYPE_CHECKING:
    import h5py

Arrays: TypeAlias = "Iterable[tuple[str, Sequence[HostArray | None]]]"

_MOST_BLOBS = 1024
_DEEPEST = 64


def read_hdf5_weights(path: str | os.PathLike[str]) -> list[LayerWeights]:
    """Read the layers of an HDF5 weights file, in the file's (alphabetical) order; a blob the file omits is None.

    Raises: WeightsError for a file that is missing, damaged, without `/data`, or with anything but numbered
    datasets in its layers; MissingDependency without h5py.
    """
    h5py = load_h5py()
    with open_hdf5(path, WeightsError) as file:
        found = dict(members(file, WeightsError))
        if not isinstance(found.get("data"), h5py.Group):
            raise WeightsError(
                f"no group /data in it (found: {', '.join(found) or 'nothing'})",
                fix="this is not a weights file of Caffe; solver states and data sets are HDF5 files as well",
            )
        data = _read_layers(found["data"])
        diff = _read_layers(found["diff"]) if isinstance(found.get("diff"), h5py.Group) else {}
        return [LayerWeights(name, "", _pair(name, arrays, diff.get(name, {}))) for name, arrays in data.items()]


def write_hdf5_weights(path: str | os.PathLike[str], data: Arrays, diff: Arrays | None = None) -> bytes:
    """Write an HDF5 weights file, whole or not at all, and return its SHA-256.

    Args:
        data: (layer, arrays) for every layer, those without weights too; None for a blob that another layer owns.
        diff: the same for the diffs, those of shared blobs included.
    Raises: WeightsError for layer names that HDF5 cannot hold or tell apart; MissingDependency without h5py.
    """

    def fill(file: h5py.File) -> None:
        _write_layers(file.create_group("data"), data)
        if diff is not None:
            _write_layers(file.create_group("diff"), diff)

    try:
        return write_hdf5(path, fill, WeightsError)
    except WeightsError as error:
        error.at(file=os.fspath(path))
        raise


def _read_layers(top: h5py.Group) -> dict[str, dict[int, HostArray]]:
    h5py = load_h5py()
    layers: dict[str, dict[int, HostArray]] = {}
    seen: set[int] = set()

    def visit(group: Any, name: str, depth: int) -> None:
        address = h5py.h5o.get_info(group.id).addr
        if depth > _DEEPEST or address in seen:
            raise WeightsError(f"{group.name} contains itself, or lies more than {_DEEPEST} groups deep")
        seen.add(address)
        inside = members(group, WeightsError)
        groups = [(key, item) for key, item in inside if isinstance(item, h5py.Group)]
        datasets = [(key, item) for key, item in inside if isinstance(item, h5py.Dataset)]
        if datasets and not name:
            raise WeightsError(f"{group.name} holds datasets outside any layer ({datasets[0][0]})")
        if name and (datasets or not groups):
            layers[name] = {_number(key, group): read_array(item, WeightsError) for key, item in datasets}
        for key, item in groups:
            visit(item, f"{name}/{key}" if name else key, depth + 1)

    visit(top, "", 0)
    return layers


def _number(key: str, group: h5py.Group) -> int:
    if not (key.isascii() and key.isdigit() and len(key) <= 4 and int(key) < _MOST_BLOBS):
        raise WeightsError(f'unexpected dataset "{key}" in {group.name}: the blobs of a layer are numbered from 0')
    return int(key)


def _pair(name: str, data: dict[int, HostArray], diff: dict[int, HostArray]) -> tuple[StoredBlob | None, ...]:
    blobs: list[StoredBlob | None] = [None] * (max(data, default=-1) + 1)
    for index, values in data.items():
        change = diff.get(index)
        if change is not None and change.shape != values.shape:
            raise WeightsError(f"diff of shape {change.shape} for data of shape {values.shape}").at(
                layer=name, blob=str(index)
            )
        blobs[index] = StoredBlob(values, change)
    return tuple(blobs)


def _write_layers(top: h5py.Group, layers: Arrays) -> None:
    written: set[str] = set()
    for name, arrays in layers:
        try:
            if name in written or "\0" in name or any(part in ("", ".") for part in name.split("/")):
                raise ValueError("it is there already" if name in written else "it is no path")
            written.add(name)
            group = top.require_group(name)
            for index, values in enumerate(arrays):
                if values is not None:
                    double = np.asarray(values).dtype == np.float64
                    group.create_dataset(
                        str(index), data=np.asarray(values, dtype=np.float64 if double else np.float32)
                    )
        except (TypeError, ValueError) as failure:
            raise WeightsError(
                f'the layer name "{name}" cannot stand in an HDF5 file beside the others: {failure}',
                fix="rename the layer, or use snapshot_format: BINARYPROTO",
            ) from None
