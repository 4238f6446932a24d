"""`pycaffe-lms export_onnx`: a trained net as an ONNX model."""

from __future__ import annotations

import argparse

from ...data.sets.zoo import find_model
from ...errors import DataError, UsageError, WeightsError, human_bytes
from ...formats.weights.caffemodel import read_weights
from ...log import only_warnings
from ...net import weights
from ...net.net import Net
from ...onnx_export import export_onnx
from ...onnx_export.model import require
from ...onnx_export.sketch import DEFAULT_OPSET, OPSETS
from .. import devices, flags

_ABOUT = """Write a deploy net with its weights as an ONNX model, which other programs run.

Blobs keep their names, and values agree to rounding: see docs/onnx.md, which lists every type of layer. A net with
layers that have no faithful counterpart is refused, and all of them are named. Needs the package onnx."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("export_onnx", _ABOUT)
    flags.add_word(p, "model", "deploy prototxt of the net, or a model of the zoo")
    p.add_argument(
        "--weights", required=True, metavar="FILES", help="comma list of .caffemodel (.h5) files with its weights"
    )
    p.add_argument("--o", "--output", dest="output", required=True, metavar="FILE.onnx", help="the model to write")
    p.add_argument(
        "--opset",
        type=int,
        default=DEFAULT_OPSET,
        metavar="N",
        help=f"version of ONNX's operators, {OPSETS[0]} to {OPSETS[-1]} (default: %(default)s)",
    )
    p.add_argument(
        "--dynamic_batch",
        action="store_true",
        help="let the first axis of the input have any size, not only that of the prototxt",
    )
    flags.add_state(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Write the model and print what it is."""
    files = [path.strip() for path in args.weights.split(",") if path.strip()]
    if not files:
        raise UsageError("-weights names no file", fix="give the .caffemodel to export")
    args.model = find_model(args.model, "deploy")
    require()
    flags.check_place(args.output, "-o")
    devices.check_weights(args.weights)
    with only_warnings():
        try:
            net = Net(args.model, 1, level=args.level, stages=flags.stages(args), forward_only=True)
        except DataError as error:  # a data layer could not be exported anyway
            fix = "give the deploy prototxt, whose inputs are Input layers"
            raise DataError(error.message, where=error.where, fix=fix) from error
        for path in files:
            weights.copy_from(net, path, must_match=True)
    _check_complete(net, files)
    written = export_onnx(net, args.output, opset=args.opset, dynamic_batch=args.dynamic_batch)
    nbytes = sum(p.data.nbytes for p in net.learnable_params)
    net.close()
    print(f"{written[0]}: net {net.name!r}, opset {args.opset}, {human_bytes(nbytes)} of parameters")
    for name in written[1:]:
        print(f"{name}: its weights, which must stay beside it")
    return 0


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
