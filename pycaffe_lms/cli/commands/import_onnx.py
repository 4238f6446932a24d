"""`pycaffe-lms import_onnx`: an ONNX model as a net that can be trained here."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import OnnxError, UsageError, Where, human_bytes
from ...log import only_warnings
from ...net import weights
from ...net.net import Net
from ...onnx_export import check_onnx
from ...onnx_export.check import TOLERANCES, require_onnxruntime
from ...onnx_import import import_onnx
from ...onnx_import.read import require_onnx
from .. import flags
from ..views.differences import show_differences
from ..views.shapes import parse_shape

_ABOUT = """Write an ONNX model as a deploy prototxt and a .caffemodel, to train it here.

Operators become layers of the same values, to rounding: see docs/import_onnx.md, which tells how to export from
PyTorch. A model with operators that no layer expresses is refused, and all of them are named. Needs the package onnx.

-check runs the model in onnxruntime and the net beside it on random inputs, and prints how far each output is from the
model's. It exits with 1 if one of them is further off than -tolerance."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("import_onnx", _ABOUT, common="o shape check tolerance")
    p.add_argument("model", metavar="MODEL.onnx", help="the model; its files of weights must lie beside it")
    p.add_argument(
        "--o",
        "--output",
        dest="output",
        default="",
        metavar="FILE.prototxt",
        help="the net to write, and beside it its weights as FILE.caffemodel (default: MODEL.prototxt, in the current "
        "folder)",
    )
    p.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="INPUT=N,C,H,W",
        help="shape of an input whose sizes are not numbers in the model; once per input",
    )
    p.add_argument(
        "--check",
        action="store_true",
        help="run onnxruntime beside the net on random inputs, and print the largest difference of each output",
    )
    p.add_argument(
        "--tolerance",
        type=float,
        metavar="SHARE",
        help="the largest difference that -check allows, divided by the largest number of the output (default: "
        f"{TOLERANCES['fp32']:g})",
    )
    return p


def run(args: argparse.Namespace) -> int:
    """Write both files and print what they are."""
    if args.tolerance is not None and not args.tolerance >= 0:
        raise UsageError(f"-tolerance {args.tolerance:g} is no share", fix=f"such as {TOLERANCES['fp32']:g}")
    if args.tolerance is not None and not args.check:
        raise UsageError("-tolerance has no effect without -check", fix="add -check")
    prototxt = Path(args.output or f"{Path(args.model).stem}.prototxt")
    caffemodel = prototxt.with_suffix(".caffemodel")
    shapes = dict(parse_shape(text) for text in args.shape)
    require_onnx()
    if args.check:
        require_onnxruntime()
    flags.check_place(str(prototxt), "-o")
    if caffemodel == prototxt:
        raise UsageError(f"-o {prototxt} is the name of the weights", fix="give the name of the prototxt")
    import_onnx(args.model, prototxt, caffemodel, shapes=shapes)
    with only_warnings():
        net = Net(str(prototxt), 1, forward_only=True)
        weights.copy_from(net, str(caffemodel), must_match=True)
    layers = sum(node.message.type not in ("Input", "Split", "Silence") for node in net.graph.nodes)
    nbytes = sum(p.data.nbytes for p in net.learnable_params)
    print(f"{prototxt}: net {net.name!r}, {layers} layers, {human_bytes(nbytes)} of parameters")
    print(f"{caffemodel}: its weights")
    if args.check:
        _check(net, args)
    net.close()
    return 0


def _check(net: Net, args: argparse.Namespace) -> None:
    """Print how far each output is from the model's. Raises OnnxError where that is too far."""
    tolerance = TOLERANCES["fp32"] if args.tolerance is None else args.tolerance
    found = check_onnx(net, args.model)
    show_differences(found)
    far = [d.output for d in found if not d.relative <= tolerance]
    if far:
        raise OnnxError(
            f"{', '.join(far)}: the net is further from the model than -tolerance {tolerance:g}",
            where=Where(file=args.model),
            fix="do not use this net; if you expect such a difference, give a larger -tolerance",
        )
