"""`pycaffe-lms export_onnx`: a trained net as an ONNX model."""

from __future__ import annotations

import argparse
import itertools

from ...errors import ExportError, UsageError, Where, human_bytes
from ...net.net import Net
from ...onnx_export import check_onnx, export_onnx
from ...onnx_export.check import TOLERANCES, require_onnxruntime
from ...onnx_export.export import MATHS
from ...onnx_export.model import require
from ...onnx_export.quantize import FIRST_OPSET, export_int8, require_quantization
from ...onnx_export.sketch import DEFAULT_OPSET, OPSETS
from .. import flags, scoring
from ..deploy_net import check_named, net_with_weights
from ..views.differences import show_differences

_COMMON = "weights o opset dynamic_batch math int8 check check_on tolerance"
_ABOUT = """Write a deploy net with its weights as an ONNX model, which other programs run.

Blobs keep their names, and values agree to rounding: see docs/onnx.md, which lists every type of layer. A net with
layers that have no faithful counterpart is refused, and all of them are named. Needs the package onnx.

-check runs the model in onnxruntime and the net beside it, and prints how far each output is from the net's. It exits
with 1 if one of them is further off than -tolerance. A model in int8 is checked on its own pictures."""
_SAMPLES_CHECKED = 16  # of the list of -int8


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("export_onnx", _ABOUT, common=_COMMON)
    flags.add_word(p, "model", "deploy prototxt of the net, or a model of the zoo")
    p.add_argument(
        "--weights",
        required=True,
        metavar="FILES",
        help="comma list of .caffemodel (.h5) or .safetensors files with its weights",
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
    p.add_argument(
        "--math",
        choices=MATHS,
        default=MATHS[0],
        help="fp16: weights and arithmetic in float16; inputs, outputs and layers with large numbers stay float32 "
        "(default: %(default)s)",
    )
    p.add_argument(
        "--int8",
        default="",
        metavar="LIST",
        help="quantize to int8 (QDQ) with onnxruntime's tools: a text file with a picture, .npy or .npz on each line, "
        "about a hundred like those that the net will see",
    )
    p.add_argument(
        "--check",
        action="store_true",
        help="run onnxruntime beside the net on random inputs, and print the largest difference of each output",
    )
    p.add_argument(
        "--check_on",
        default="",
        metavar="FILES",
        help="check on these too: comma list of pictures, of .npy files (the first input, as the net sees it) and of "
        ".npz files (arrays named after inputs)",
    )
    p.add_argument(
        "--tolerance",
        type=float,
        metavar="SHARE",
        help="the largest difference that -check allows, divided by the largest number of the output (default: "
        f"{', '.join(f'{share:g} for {kind}' for kind, share in TOLERANCES.items())})",
    )
    scoring.add_pictures(p)
    flags.add_state(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Write the model and print what it is."""
    check_named(args)
    checked = _checked(args)
    require()
    if args.int8:
        require_quantization()
    if checked:
        require_onnxruntime()
    flags.check_place(args.output, "-o")
    net = net_with_weights(args)
    given = scoring.read_inputs(net, args.check_on, "-check_on", args)
    if args.int8:
        samples = scoring.read_list(net, args.int8, args)
        written = export_int8(net, args.output, samples.values(), opset=args.opset, dynamic_batch=args.dynamic_batch)
        given |= dict(itertools.islice(samples.items(), _SAMPLES_CHECKED))
    else:
        written = export_onnx(net, args.output, opset=args.opset, dynamic_batch=args.dynamic_batch, math=args.math)
    nbytes = sum(p.data.nbytes for p in net.learnable_params)
    print(f"{written[0]}: net {net.name!r}, opset {args.opset}, {human_bytes(nbytes)} of parameters")
    for name in written[1:]:
        print(f"{name}: its weights, which must stay beside it")
    if checked:
        _check(net, written[0], given, args)
    net.close()
    return 0


def _checked(args: argparse.Namespace) -> bool:
    """Return whether to check. Raises UsageError for flags that do not fit each other."""
    if args.tolerance is not None and not args.tolerance >= 0:
        raise UsageError(f"-tolerance {args.tolerance:g} is no share", fix=f"such as {TOLERANCES['fp32']:g}")
    if args.int8 and args.math != MATHS[0]:
        raise UsageError(f"-int8 and -math {args.math} exclude each other", fix="leave out one of them")
    if args.int8 and args.opset < FIRST_OPSET:
        raise UsageError(f"-int8 needs -opset {FIRST_OPSET} or more, not {args.opset}", fix=f"such as {DEFAULT_OPSET}")
    if args.tolerance is not None and not (args.check or args.check_on):
        raise UsageError("-tolerance has no effect without -check", fix="add -check")
    return bool(args.check or args.check_on)


def _check(net: Net, path: str, given: scoring.Given, args: argparse.Namespace) -> None:
    """Print how far each output of the model is from the net's. Raises ExportError where that is too far."""
    tolerance = TOLERANCES["int8" if args.int8 else args.math] if args.tolerance is None else args.tolerance
    found = check_onnx(net, path, given, dynamic_batch=args.dynamic_batch, random=not args.int8)
    show_differences(found)
    far = [d.output for d in found if not d.relative <= tolerance]
    if far:
        raise ExportError(
            f"{', '.join(far)}: further from the net than -tolerance {tolerance:g}",
            where=Where(file=path),
            fix="do not use this model; if you expect such a difference, give a larger -tolerance",
        )
