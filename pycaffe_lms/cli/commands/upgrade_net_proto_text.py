"""`pycaffe-lms upgrade_net_proto_text INPUT OUTPUT`: an old net prototxt, or one of a fork, in the current form."""

from __future__ import annotations

import argparse
import logging

from ...formats.prototxt.parser import read_net
from ...formats.prototxt.plainest import write_plainly
from ...proto.caffe_pb2 import NetParameter
from .. import flags
from ..upgrade import text_as_it_is, upgrade, upgrade_parser

_log = logging.getLogger(__name__)
_ABOUT = """Write a net prototxt in the current form: one of the first generation (layers { layer { .. } }), of the
second (layers { type: CONVOLUTION }), or with `input` fields. Comments are not kept.

What forks of Caffe spell otherwise is written in BVLC's words where the layer stays the same (ceil_mode,
kernel_shape, NdConvolution, C3D's types), and their fields without effect are left out. The log names each with file
and line. Fields of forks that change results stay, or are an error where no layer here has them. Writing a second time
changes nothing."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    return upgrade_parser("upgrade_net_proto_text", _ABOUT)


def run(args: argparse.Namespace) -> int:
    """Read any generation, write the current one."""
    return upgrade(args, _read_plainly, lambda path: text_as_it_is(path, NetParameter()))


def _read_plainly(path: str) -> NetParameter:
    """Return the net of a file, in its plainest form; log each change with its line."""
    parsed = read_net(path)
    for k, layer in enumerate(parsed.message.layer):
        place = parsed.where(k)
        for change in write_plainly(layer):
            _log.info("%s: written plainly: %s", place, change)
    return parsed.message
