"""Loads weights of a net from files by layer name, writes them to messages and files, and shares them between nets.

`copy_from` loads, `save` writes, `share` aliases another net's parameters. File formats are in
`../formats/weights/`.
Source: BVLC/caffe, net.cpp, CopyTrainedLayersFrom, ShareTrainedLayersWith, ToProto (behaviour).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import CaffeError, UsageError, WeightsError
from ..formats.weights.blobproto import LayerWeights, load_blob
from ..formats.weights.caffemodel import each_layer, write_weights
from ..formats.weights.safetensors_file import is_safetensors, write_safetensors
from ..formats.weights.transformer_names import write_named
from ..memory.split_memory import SplitMemory
from ..memory.states import State
from ..memory.synced import SyncedMemory
from ..proto import caffe_pb2
from .passes import param_order

if TYPE_CHECKING:
    from ..blob import Blob
    from .build.graph import Graph, Node, Param
    from .net import Net

_log = logging.getLogger(__name__)
_NAMED = 10  # most layers that a warning names
_NAMED_OF_EACH = 3  # most layers of the file, and of the net, that an error names
Arrays = list[tuple[np.ndarray, "np.ndarray | None"]]
Read = Callable[["Blob", str], np.ndarray]


def copy_from(net: Net, path: str | os.PathLike[str], *, must_match: bool = False) -> None:
    """Load a .caffemodel (binary or HDF5) by layer name, or a .safetensors file of a public transformer.

    Layers that the file lacks keep their values, with a warning; layers that the net lacks are skipped and logged.

    Args:
        must_match: the file must have values for at least one layer of the net, if the net has parameters.

    Raises:
        WeightsError: shapes or the number of blobs differ, which names file and layer; or nothing matches a net that
            must match.
    """
    seen: set[str] = set()
    theirs: list[str] = []  # layers of the file that have parameters
    loaded: set[int] = set()
    by_name: dict[str, Node] = {}
    for node in net.graph.nodes:
        by_name.setdefault(node.name, node)
    for source in each_layer(path):
        theirs += [source.name] if source.blobs else []
        if source.name not in by_name:
            _log.info("Ignoring source layer %s", source.name)
            continue
        if source.name in seen:
            continue
        seen.add(source.name)
        loaded |= _load_layer(net.graph, by_name[source.name], source, file=os.fspath(path))
    if must_match and not loaded:
        _refuse_strangers(net, theirs, os.fspath(path))
    _warn_of_missing(net, loaded, os.fspath(path))


def _refuse_strangers(net: Net, theirs: Sequence[str], file: str) -> None:
    """Raise WeightsError if the net has parameters; `theirs`, layers of the file, match none of its layers."""
    ours = [node.name for node in net.graph.nodes if node.params]
    if not ours:
        return
    of_net = f"the net{f' {net.file}' if net.file else ''}"
    if not theirs:
        raise WeightsError("there are no weights in this file", fix=f"give weights for {of_net}").at(file=file)
    raise WeightsError(
        f"no layer of this file has the name of a layer with parameters of {of_net}, so nothing would be copied: "
        f"the file has {_first(theirs, _NAMED_OF_EACH)}; the net has {_first(ours, _NAMED_OF_EACH)}",
        fix="give weights that were trained with this net, or give the net's layers the names they have in the file",
    ).at(file=file)


def _first(names: Sequence[str], most: int) -> str:
    """Return the first names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _warn_of_missing(net: Net, loaded: set[int], file: str) -> None:
    """Warn of layers whose parameters the file lacks. loaded: indices of the parameters that it has."""
    learned = [node for node in net.graph.nodes if node.params]
    missing = [n.name for n in learned if not {net.graph.params[p].owner for p in n.params} <= loaded]
    if missing:
        listing = _first(missing, _NAMED)
        _log.warning(
            "%s has nothing for %d of %d layers with parameters, which keep their values: %s",
            file,
            len(missing),
            len(learned),
            listing,
        )


def _load_layer(graph: Graph, node: Node, source: LayerWeights, *, file: str) -> set[int]:
    """Load one layer and return the indices of the parameters set; a shared parameter counts under its owner's."""
    _refuse_misfits(graph, node, source, file=file)
    loaded: set[int] = set()
    for i, (blob, stored) in enumerate(zip(node.layer.blobs, source.blobs, strict=False)):
        if stored is None:
            continue
        blob.data = np.asarray(stored.data).reshape(blob.shape)
        if stored.diff is not None:
            blob.diff = np.asarray(stored.diff).reshape(blob.shape)
        loaded.add(graph.params[node.params[i]].owner)
    return loaded


def _refuse_misfits(graph: Graph, node: Node, source: LayerWeights, *, file: str) -> None:
    """Raise WeightsError if a layer's parameters differ in number or shape from the file's; the file may have none."""
    found, shapes = source.blobs, [graph.params[p].shape for p in node.params]
    if not found:
        return
    absent = [i for i in range(len(shapes)) if i >= len(found) or found[i] is None]
    # HDF5 files hold the values of shared parameters at their owner alone.
    lacking = [i for i in absent if graph.params[node.params[i]].owner == node.params[i]]
    if len(found) > len(shapes) or lacking:
        held = len(found) - (0 if len(found) > len(shapes) else found.count(None))
        raise WeightsError(
            f"the file holds {held} parameter blobs for this layer, the net has {len(shapes)}"
            + (f"; blob {lacking[0]} is missing" if lacking and lacking[0] < len(found) else ""),
            fix="rename the layer to keep its own values, or make it what the file was trained with",
        ).at(file=file, layer=node.name, type=node.layer.param.type)
    for i, (shape, stored) in enumerate(zip(shapes, found, strict=False)):
        if stored is not None and not stored.fits(shape):
            raise WeightsError(
                f"parameter {i} has shape {tuple(stored.shape)} in the file and {shape} in the net",
                fix="rename the layer to train it from scratch, or change its parameters to match the file",
            ).at(file=file, layer=node.name, type=node.layer.param.type)


def load_presets(graph: Graph, node: Node, file: str | None) -> None:
    """Load the parameter blobs that the prototxt itself holds (`blobs { }`)."""
    if node.layer.param.blobs:
        _load_layer(graph, node, _presets(node, file), file=file or "prototxt")


def check_presets(graph: Graph, node: Node, file: str | None) -> None:
    """Raise WeightsError if `load_presets` would. Needs no memory."""
    if node.layer.param.blobs:
        _refuse_misfits(graph, node, _presets(node, file), file=file or "prototxt")


def _presets(node: Node, file: str | None) -> LayerWeights:
    try:
        return LayerWeights(node.name, node.layer.param.type, tuple(load_blob(b) for b in node.layer.param.blobs))
    except CaffeError as error:
        raise error.at(file=file, line=node.line, layer=node.name, type=node.layer.param.type) from None


def read_now(blob: Blob, which: str) -> np.ndarray:
    """Return the values ("data") or gradients ("diff") of a blob; waits for the device."""
    return blob.read_data() if which == "data" else blob.read_diff()


def bare_proto(net: Net) -> caffe_pb2.NetParameter:
    """Return the net as Caffe writes it, without parameters: name and layers (Split layers and phases included)."""
    message = caffe_pb2.NetParameter(name=net.name)
    for node in net.graph.nodes:
        layer = message.layer.add()
        layer.CopyFrom(node.message)
        del layer.blobs[:]
        if node.layer.declares.is_loss and not layer.loss_weight:
            layer.loss_weight.extend([1.0] + [0.0] * (len(layer.top) - 1))
        requests = node.layer.params
        if any(r.lr_mult == 0 for r in requests):
            while len(layer.param) < len(requests):
                layer.param.add(lr_mult=requests[len(layer.param)].lr_mult)
    return message


def layer_arrays(net: Net, *, write_diff: bool = False, read: Read = read_now) -> list[Arrays]:
    """Return (data, diff or None) of every parameter of every layer, shared ones included."""
    return [
        [(read(blob, "data"), read(blob, "diff") if write_diff else None) for blob in node.layer.blobs]
        for node in net.graph.nodes
    ]


def save(net: Net, path: str | os.PathLike[str], *, write_diff: bool = False) -> None:
    """Write a .caffemodel atomically; a path that ends in .safetensors: as public transformers of its family come."""
    if is_safetensors(path):
        write_safetensors(path, write_named(hdf5_arrays(net), os.fspath(path)))
        return
    write_weights(path, bare_proto(net), layer_arrays(net, write_diff=write_diff))


def hdf5_arrays(net: Net, which: str = "data", read: Read = read_now) -> list[tuple[str, list[np.ndarray | None]]]:
    """Return (layer, arrays) of every layer as in HDF5 files; None for a shared parameter that it does not own."""
    layers = []
    for node in net.graph.nodes:
        arrays: list[np.ndarray | None] = []
        for blob, p in zip(node.layer.blobs, node.params, strict=True):
            written = which == "diff" or net.graph.params[p].owner == p
            arrays.append(read(blob, which) if written else None)
        layers.append((node.name, arrays))
    return layers


def share(net: Net, other: Net) -> None:
    """Use the other net's parameter data for layers of the same name.

    Raises:
        WeightsError: shapes or the number of parameters differ.
        UsageError: the nets are on different devices, or `other` is no net.
    """
    if not hasattr(other, "graph"):
        raise UsageError(f"{other!r} is no net to share parameters with", fix="give a caffe.Net, or solver.net")
    if net.device is not other.device and not (net.device.is_host and other.device.is_host):
        raise UsageError(
            f"one net is on {net.device.describe()}, the other on {other.device.describe()}: memory cannot be shared",
            fix="build both on one device, or copy the values: blob.data[...] = other.data",
        )
    theirs: dict[str, Node] = {}
    for node in other.graph.nodes:
        theirs.setdefault(node.name, node)
    pairs = [(node, theirs[node.name]) for node in net.graph.nodes if node.params and node.name in theirs]
    blocks = {
        node.index: len(other.arrangement.pieces(other.graph.params[source.params[0]]))
        for node, source in pairs
        if source.params
    }
    _refuse_others(net, other, pairs)
    other.sharers.add(net)
    if net.splitting.adopt(net.graph, blocks):
        net.rearrange()
    _adopt_orders(net, other, pairs)
    for node, source in pairs:
        for p, q in zip(node.params, source.params, strict=True):
            _share_one(net, other, net.graph.params[p], other.graph.params[q])
    for node in net.graph.nodes:
        for blob, p in zip(node.layer.blobs, node.params, strict=True):
            blob.data_memory = net.memory.memories[net.graph.params[p].data]


def _refuse_others(net: Net, other: Net, pairs: Sequence[tuple[Node, Node]]) -> None:
    """Raise WeightsError if a layer's parameters differ in number or shape from its counterpart's."""
    for node, source in pairs:
        if len(source.params) != len(node.params):
            raise WeightsError(
                f"cannot share parameters: {len(source.params)} blobs in the other net, {len(node.params)} in this"
            ).at(file=net.file, line=node.line, layer=node.name, type=node.layer.param.type)
        for i, (p, q) in enumerate(zip(node.params, source.params, strict=True)):
            mine, theirs = net.graph.params[p], other.graph.params[q]
            if mine.shape != theirs.shape:
                raise WeightsError(
                    f"cannot share parameter {i}: shapes {theirs.shape} and {mine.shape}",
                    fix="give the layer the same parameters in both nets, or another name",
                ).at(file=net.file, line=node.line, layer=node.name, type=node.layer.param.type)


def _adopt_orders(net: Net, other: Net, pairs: Sequence[tuple[Node, Node]]) -> None:
    """Store parameters in the memory order of the other net's; layers that need another order then work on copies.

    Gradients keep their values, and so do histories: see `../solvers/update/slots.py`. Raises UsageError if a layer
    cannot work on copies.
    """
    params, memories, wanted = net.graph.params, net.memory.store.memories, {}
    for node, source in pairs:
        for p, q in zip(node.params, source.params, strict=True):
            wanted[params[p].owner] = other.graph.params[q].channels_last
    changed = {owner: last for owner, last in wanted.items() if params[owner].channels_last != last}
    users = param_order.users_of(net.graph)
    for owner, last in changed.items():
        if last and not param_order.may_store_last(net.graph, users[owner]):
            node = net.graph.nodes[params[owner].node]
            raise UsageError(
                "the other net's parameter is stored channels-last, which a layer that uses this one cannot take",
                fix="copy the values: blob.data[...] = other.data",
            ).at(file=net.file, line=node.line, layer=node.name, type=node.layer.param.type)
    gradients = {}
    for owner, last in changed.items():
        diff = memories[params[owner].diff]
        if diff.state not in (State.UNINITIALIZED, State.DISCARDED):
            gradients[owner] = net.own_blobs.of_param(params[owner]).read_diff().copy()
        diff.give_back()
        memories[params[owner].diff] = SyncedMemory(diff.nbytes, diff.name, net.device)  # views keep the old one
        param_order.set_order(net.graph, users[owner], last)
    if changed:
        net.reshape()
    for owner, values in gradients.items():
        net.own_blobs.of_param(params[owner]).diff = values


def _share_one(net: Net, other: Net, mine: Param, theirs: Param) -> None:
    memory, own_blocks, their_blocks = (
        other.memory.memories[theirs.data],
        net.arrangement.pieces(mine),
        other.arrangement.pieces(theirs),
    )
    if len(own_blocks) != len(their_blocks):
        node = net.graph.nodes[mine.node]
        raise UsageError(
            f"the parameter lies in {len(their_blocks)} blocks of outputs in the other net, "
            "and this layer cannot be cut so",
            fix="build both nets with -lms_split_outputs off (split_outputs=0 of caffe.LMS)",
        ).at(file=net.file, line=node.line, layer=node.name, type=node.layer.param.type)
    for block, their_block in zip(own_blocks, their_blocks, strict=True):
        net.memory.store.share(block.data, other.memory.memories[their_block.data])
    if isinstance(memory, SplitMemory):
        net.memory.store.share_whole(mine.data, memory)
