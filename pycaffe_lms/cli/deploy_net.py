"""Share between the export commands: a net for use, with all of its weights."""

from __future__ import annotations

import argparse

from ..data.sets.zoo import find_model
from ..errors import DataError, UsageError, WeightsError
from ..formats.weights.caffemodel import read_weights
from ..log import only_warnings
from ..net import weights
from ..net.net import Net
from . import devices, flags


def check_named(args: argparse.Namespace) -> None:
    """Find the model, in place. Raises UsageError where -weights names no file, or the model is none."""
    if not _files(args):
        raise UsageError("-weights names no file", fix="give the .caffemodel to export")
    args.model = find_model(args.model, "deploy")


def net_with_weights(args: argparse.Namespace) -> Net:
    """Return the net of phase TEST. Raises WeightsError for layers whose parameters no file has; DataError for a net
    with layers of data."""
    devices.check_weights(args.weights)
    with only_warnings():
        try:
            net = Net(args.model, 1, level=args.level, stages=flags.stages(args), forward_only=True)
        except DataError as error:  # a data layer could not be exported anyway
            fix = "give the deploy prototxt, whose inputs are Input layers"
            raise DataError(error.message, where=error.where, fix=fix) from error
        for path in _files(args):
            weights.copy_from(net, path, must_match=True)
    _check_complete(net, _files(args))
    return net


def _files(args: argparse.Namespace) -> list[str]:
    return [path.strip() for path in args.weights.split(",") if path.strip()]


def _check_complete(net: Net, files: list[str]) -> None:
    """Raise WeightsError for layers whose parameters no file has: they would be exported as fillers made them."""
    found = {layer.name for path in files for layer in read_weights(path) if layer.blobs}
    known: set[int] = set()  # parameters that other layers have loaded
    missing = []
    for node in net.graph.nodes:
        owners = {net.graph.params[p].owner for p in node.params}
        if node.name in found or node.message.blobs:
            known |= owners
        elif owners - known:
            missing.append(node.name)
    if missing:
        raise WeightsError(
            f"there are no weights for {'layer' if len(missing) == 1 else 'layers'} {', '.join(missing)}",
            fix="give the weights of this net; layers are found by their names",
        ).at(file=", ".join(files))
