"""Read weights files of every generation (HDF5 is recognised by content, safetensors by name), and write binary ones.

A field of a fork whose number means something else in our schema does not prevent reading the weights.
Source: BVLC/caffe 9b89154, src/caffe/net.cpp (CopyTrainedLayersFrom), src/caffe/util/io.cpp (behaviour).
See also: hdf5_weights.py, safetensors_file.py; blobproto.py for the shape rules.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from google.protobuf.message import Message

from ...arrays import HostArray
from ...errors import PrototxtError, WeightsError
from ...proto.caffe_pb2 import C3DWeights, LayerParameter, NetParameter, NetWeights
from ..prototxt.upgrade import upgrade_net
from ..prototxt.upgraded import as_text
from ..rawfile import is_hdf5, not_a, parse_message, read_bytes
from .blobproto import LayerWeights, StoredBlob, load_blob, load_c3d_blob
from .hdf5_weights import read_hdf5_weights
from .pieces import Piece, blob_pieces, framed, write_pieces
from .safetensors_file import Tensors, is_safetensors
from .transformer_names import read_named

_WHAT = "a caffemodel"
_LAYER = NetParameter.DESCRIPTOR.fields_by_name["layer"].number
_BLOBS = LayerParameter.DESCRIPTOR.fields_by_name["blobs"].number
Blob: TypeAlias = "tuple[HostArray, HostArray | None]"  # data, diff


def read_weights(path: str | os.PathLike[str]) -> list[LayerWeights]:
    """Read the weights of every layer of a file, in the file's order; layers without weights have no blobs.

    Names may repeat (Caffe loads the first). Old generations are upgraded.
    Raises: WeightsError for a file that is missing, damaged, of another kind or over 2 GiB - 1 (binary), and for
    blobs whose values do not fill their shape; MissingDependency for HDF5 without h5py.
    """
    return list(each_layer(path))


def each_layer(path: str | os.PathLike[str]) -> Iterable[LayerWeights]:
    """Do as `read_weights`, but read a safetensors file a layer at a time."""
    if is_safetensors(path):
        return read_named(Tensors(path), os.fspath(path))
    return read_hdf5_weights(path) if is_hdf5(path) else _read_binary(path)


def _read_binary(path: str | os.PathLike[str]) -> list[LayerWeights]:
    file = os.fspath(path)
    try:
        net = parse_message(NetParameter(), path, _WHAT, WeightsError)
    except WeightsError:
        # Perhaps a fork's field whose number means something else here: names and blobs have the same numbers in all.
        weights = parse_message(NetWeights(), path, _WHAT, WeightsError)
        if not weights.layer:
            found = _c3d(path, file)
            if found is None:
                raise
            return found
        return [_layer_weights(layer, file) for layer in weights.layer]
    if not net.layer and not net.layers:
        raise not_a(_WHAT, path, read_bytes(path, WeightsError), WeightsError)
    if any(len(blob.diff) and not len(blob.data) for layer in net.layers for blob in layer.blobs):
        found = _c3d(path, file)  # C3D numbers fields otherwise: its values look like gradients
        if found is not None:
            return found
    try:
        net = upgrade_net(net).message
    except PrototxtError as error:
        raise WeightsError(error.message, where=error.where, fix=error.fix).at(file=file) from None
    return [_layer_weights(layer, file) for layer in net.layer]


def write_weights(path: str | os.PathLike[str], net: NetParameter, blobs: Iterable[Sequence[Blob]]) -> bytes:
    """Write a net with its weights as a binary file, whole or not at all, and return the file's SHA-256.

    Values go to the file from where they are, without a copy of all of them.

    Args:
        net: without blobs.
        blobs: for each layer of `net`, its blobs.
    Raises: WeightsError where the file cannot be written or would be over 2 GiB - 1.
    """
    bare = copy.deepcopy(net)
    del bare.layer[:]
    pieces: list[Piece] = [bare.SerializeToString()]
    for layer, stored in zip(net.layer, blobs, strict=True):
        before, after = _around(layer, "blobs")
        inside = [piece for data, diff in stored for piece in framed(_BLOBS, blob_pieces(data, diff))]
        pieces += framed(_LAYER, [before, *inside, after])
    return write_pieces(path, pieces, WeightsError)


def _around(message: Message, field: str) -> tuple[bytes, bytes]:
    """Serialize the fields of a message whose numbers are below that of `field`, and those above."""
    number = message.DESCRIPTOR.fields_by_name[field].number
    parts = []
    for side in (int.__lt__, int.__gt__):
        part = copy.deepcopy(message)
        for other, _ in message.ListFields():
            if not side(other.number, number):
                part.ClearField(other.name)
        parts.append(part.SerializeToString())
    return parts[0], parts[1]


def _c3d(path: str | os.PathLike[str], file: str) -> list[LayerWeights] | None:
    """Read a file of C3D 1.0; return None for any other. Layer types are C3D's own, and are left out."""
    try:
        weights = parse_message(C3DWeights(), path, _WHAT, WeightsError)
    except WeightsError:
        return None
    blobs = [blob for layer in weights.layers for blob in layer.blobs]
    if not blobs or not all(blob.HasField("width") and len(blob.data) for blob in blobs):
        return None
    return [_layer_weights(layer, file, load_c3d_blob) for layer in weights.layers]


def _layer_weights(layer: Any, file: str, load: Callable[[Any], StoredBlob] = load_blob) -> LayerWeights:
    name, kind = as_text(layer.name), as_text(getattr(layer, "type", ""))
    blobs = []
    for index, proto in enumerate(layer.blobs):
        try:
            blobs.append(load(proto))
        except WeightsError as error:
            raise error.at(file=file, layer=name, type=kind or None, blob=str(index)) from None
    return LayerWeights(name, kind, tuple(blobs))
