"""`pycaffe-lms draw_net MODEL PICTURE`: a net as a graph."""

from __future__ import annotations

import argparse

from ...draw import draw_net_to_file
from ...errors import CaffeError
from ...formats.prototxt.parser import read_net
from ...proto.caffe_pb2 import Phase
from .. import flags

_ABOUT = """Draw a net as a graph of layers (boxes) and blobs (octagons), as Caffe's draw_net.py does.

Needs the package pydot and, for pictures, Graphviz. A PICTURE that ends in .dot is the graph's text, for which Graphviz
is not needed."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("draw_net", _ABOUT)
    p.add_argument("model", metavar="MODEL", help="net prototxt")
    p.add_argument("picture", metavar="PICTURE", help="file to write; its ending says the format: .png, .svg, .pdf, ..")
    p.add_argument(
        "--rankdir",
        choices=("LR", "RL", "TB", "BT"),
        default="LR",
        help="direction of the drawing: from left to right, .. (default: %(default)s)",
    )
    p.add_argument(
        "--phase",
        choices=("ALL", "TRAIN", "TEST"),
        default="ALL",
        help="draw the layers of that phase only (default: %(default)s)",
    )
    p.add_argument("--display_lrm", action="store_true", help="show the learning rate multipliers of layers")
    return p


def run(args: argparse.Namespace) -> int:
    """Write the picture."""
    net = read_net(args.model).message
    phase = None if args.phase == "ALL" else Phase.Value(args.phase)
    print(f"Drawing net to {args.picture}")
    try:
        draw_net_to_file(net, args.picture, args.rankdir, phase, args.display_lrm)
    except CaffeError as error:
        raise (error.at(file=args.model) if error.where.layer else error) from None
    return 0
