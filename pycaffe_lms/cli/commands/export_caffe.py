"""`pycaffe-lms export_caffe`: a trained net as Caffe files for the toolchain of a chip."""

from __future__ import annotations

import argparse

from ...caffe_export import CHIPS, check_caffe, export_caffe
from ...errors import ExportError, UsageError, Where, human_bytes
from ...log import only_warnings
from .. import flags
from ..deploy_net import check_named, net_with_weights

_ABOUT = """Write a deploy net with its weights as prototxt and caffemodel for the toolchain of a chip.

BatchNorm, Scale and Bias become part of the layer before them, if no other layer reads its top. Layers get the types
that the toolchain's document lists. One error names everything that it does not list. docs/chips.md has the lists.

-check reads the files again, runs them beside the net, and prints how far each output is from the net's. It exits with
1 if one of them is further off than rounding explains."""
_TOLERANCE = 1e-4


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("export_caffe", _ABOUT, common="weights for o check")
    flags.add_word(p, "model", "deploy prototxt of the net, or a model of the zoo")
    p.add_argument(
        "--weights",
        required=True,
        metavar="FILES",
        help="comma list of .caffemodel (.h5) or .safetensors files with its weights",
    )
    p.add_argument("--for", dest="chip", required=True, choices=CHIPS, help="the chip whose toolchain reads the files")
    p.add_argument(
        "--o", "--output", dest="output", required=True, metavar="STEM", help="write STEM.prototxt and STEM.caffemodel"
    )
    p.add_argument(
        "--check",
        action="store_true",
        help="read the files again, and print the largest difference of each output on random inputs",
    )
    flags.add_state(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Write the files and print what they are."""
    check_named(args)
    stem = args.output.removesuffix(".prototxt").removesuffix(".caffemodel")
    for suffix in ("prototxt", "caffemodel"):
        flags.check_place(f"{stem}.{suffix}", "-o")
    if args.model == f"{stem}.prototxt":
        raise UsageError(f"-o {args.output} would replace the net itself", fix="give another name")
    net = net_with_weights(args)
    with only_warnings():
        files = export_caffe(net, stem, args.chip)
        found = check_caffe(net, *files) if args.check else []
    nbytes = sum(p.data.nbytes for p in net.learnable_params)
    print(
        f"{files[0]}, {files[1]}: net {net.name!r} for {args.chip}, {human_bytes(nbytes)} of parameters before folding"
    )
    if args.check:
        print("read again; largest differences:")
        width = max(len("output"), *(len(d.output) for d in found))
        print(f"  {'output':{width}}  absolute  relative")
        for d in found:
            print(f"  {d.output:{width}}  {d.absolute:8.2e}  {d.relative:8.2e}")
        far = [d.output for d in found if not d.relative <= _TOLERANCE]
        if far:
            raise ExportError(
                f"{', '.join(far)}: further from the net than {_TOLERANCE:g}",
                where=Where(file=files[0]),
                fix="do not use these files; report the net",
            )
    net.close()
    return 0
