"""What the three upgrade_* actions share: read an old file, write it in the current form."""

from __future__ import annotations

import logging
from collections.abc import Callable

from google.protobuf import text_format
from google.protobuf.message import Message

from ..errors import PrototxtError
from ..formats.atomic import atomic_write
from ..formats.rawfile import read_bytes, serialize
from . import flags

_log = logging.getLogger(__name__)


def upgrade(
    action: str,
    about: str,
    argv: list[str],
    read: Callable[[str], Message],
    as_it_is: Callable[[str], Message | None],
    *,
    binary: bool = False,
) -> int:
    """Run one action, `INPUT OUTPUT`. The output is written even where there is nothing to upgrade, as by Caffe.

    read: file -> upgraded message. as_it_is: file -> the message in it, to know whether there was anything to do.
    """
    p = flags.parser(action, about)
    p.add_argument("input", metavar="INPUT", help="file to read; it stays as it is")
    p.add_argument("output", metavar="OUTPUT", help="file to write; one that is there is replaced")
    args = flags.parse(p, argv)
    message = read(args.input)
    if message == as_it_is(args.input):
        _log.error("File already in latest proto format: %s", args.input)
    if binary:
        content = serialize(message, args.output, PrototxtError)
    else:
        content = text_format.MessageToString(message).encode()
    atomic_write(args.output, content, error=PrototxtError)
    _log.info("Wrote upgraded %s to %s", "binary proto" if binary else "text proto", args.output)
    return 0


def text_as_it_is(path: str, message: Message) -> Message | None:
    """The message of a text file that was read without error; None where that took more than protobuf's own parser."""
    text = read_bytes(path, PrototxtError).decode("utf-8-sig", errors="replace")
    try:
        return text_format.Parse(text, message)
    except text_format.ParseError:
        return None  # a fork's text, which reading has brought to the current form
