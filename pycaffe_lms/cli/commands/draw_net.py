"""`pycaffe-lms draw_net MODEL PICTURE`: a net as a graph."""

from __future__ import annotations

import argparse

from ...data.sets.zoo import find_model
from ...draw import check_tools, draw_net_to_file, draw_overview_to_file
from ...errors import CaffeError
from ...formats.prototxt.parser import read_net
from ...proto.caffe_pb2 import Phase
from .. import flags

_ABOUT = """Draw a net: a box for each chain of layers, such as Convolution, BatchNorm, Scale and ReLU, and a frame for
each block, which is found by how names begin (inception_3a/..). In a browser, the wheel zooms an .svg, the mouse moves
it, and a double click shows all of it.

With -blobs every layer has a box and every blob an octagon, as in the pictures of Caffe's draw_net.py.

Needs the package pydot and, for pictures, Graphviz. A PICTURE that ends in .dot is the graph's text, for which Graphviz
is not needed."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("draw_net", _ABOUT)
    flags.add_word(p, "model", "net prototxt, or a model of the zoo")
    p.add_argument("picture", metavar="PICTURE", help="file to write; its ending says the format: .svg, .png, .pdf, ..")
    p.add_argument(
        "--rankdir",
        choices=("LR", "RL", "TB", "BT"),
        default=None,
        help="direction of the drawing: TB is from the top down, LR from left to right (default: TB, with -blobs LR)",
    )
    p.add_argument(
        "--phase",
        choices=("ALL", "TRAIN", "TEST"),
        default="ALL",
        help="draw the layers of that phase only (default: %(default)s)",
    )
    p.add_argument("--display_lrm", action="store_true", help="show the learning rate multipliers of layers")
    p.add_argument("--blobs", action="store_true", help="draw every layer and every blob, as Caffe does")
    return p


def run(args: argparse.Namespace) -> int:
    """Write the picture."""
    check_tools(args.picture)
    flags.check_place(args.picture, "PICTURE")
    args.model = find_model(args.model)
    net = read_net(args.model, judge=False).message
    phase = None if args.phase == "ALL" else Phase.Value(args.phase)
    draw, rankdir = (draw_net_to_file, "LR") if args.blobs else (draw_overview_to_file, "TB")
    print(f"Drawing net to {args.picture}")
    try:
        draw(net, args.picture, args.rankdir or rankdir, phase, args.display_lrm)
    except CaffeError as error:
        raise (error.at(file=args.model) if error.where.layer else error) from None
    return 0
