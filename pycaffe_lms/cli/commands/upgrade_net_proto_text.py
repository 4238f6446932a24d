"""`pycaffe-lms upgrade_net_proto_text INPUT OUTPUT`: an old net prototxt in the current form."""

from __future__ import annotations

import argparse

from ...formats.prototxt.parser import read_net
from ...proto.caffe_pb2 import NetParameter
from .. import flags
from ..upgrade import text_as_it_is, upgrade, upgrade_parser

_ABOUT = """Write a net prototxt in the current form: one of the first generation (layers { layer { .. } }), of the
second (layers { type: CONVOLUTION }), or with `input` fields. Comments are not kept."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    return upgrade_parser("upgrade_net_proto_text", _ABOUT)


def run(args: argparse.Namespace) -> int:
    """Read any generation, write the current one."""
    return upgrade(args, lambda path: read_net(path).message, lambda path: text_as_it_is(path, NetParameter()))
