"""`pycaffe-lms upgrade_net_proto_binary INPUT OUTPUT`: an old .caffemodel in the current form."""

from __future__ import annotations

import argparse

from ...errors import PrototxtError
from ...formats.prototxt.parser import read_net_binary
from ...formats.rawfile import parse_message
from ...proto.caffe_pb2 import NetParameter
from .. import flags
from ..upgrade import upgrade, upgrade_parser

_ABOUT = """Write a binary net (a .caffemodel) of an older generation in the current form, weights and all."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    return upgrade_parser("upgrade_net_proto_binary", _ABOUT)


def run(args: argparse.Namespace) -> int:
    """Read any generation, write the current one."""
    return upgrade(
        args,
        lambda path: read_net_binary(path).message,
        lambda path: parse_message(NetParameter(), path, "a binary net", PrototxtError),
        binary=True,
    )
