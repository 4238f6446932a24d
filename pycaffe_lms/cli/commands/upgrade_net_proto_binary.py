"""`pycaffe-lms upgrade_net_proto_binary INPUT OUTPUT`: an old .caffemodel in the current form."""

from __future__ import annotations

from ...errors import PrototxtError
from ...formats.prototxt.parser import read_net_binary
from ...formats.rawfile import parse_message
from ...proto.caffe_pb2 import NetParameter
from ..upgrade import upgrade

_ABOUT = """Write a binary net (a .caffemodel) of an older generation in the current form, weights and all."""


def run(argv: list[str]) -> int:
    """Read any generation, write the current one."""
    return upgrade(
        "upgrade_net_proto_binary",
        _ABOUT,
        argv,
        lambda path: read_net_binary(path).message,
        lambda path: parse_message(NetParameter(), path, "a binary net", PrototxtError),
        binary=True,
    )
