"""Share between the three upgrade_* commands: read an old file, write it in the current form."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable

from google.protobuf import text_format
from google.protobuf.message import Message

from ..errors import PrototxtError
from ..formats.atomic import atomic_write
from ..formats.rawfile import read_bytes, serialize
from . import flags

_log = logging.getLogger(__name__)


def upgrade_parser(words: str, about: str) -> flags.Parser:
    """Return the parser of a command with the words INPUT and OUTPUT."""
    p = flags.parser(words, about)
    p.add_argument("input", metavar="INPUT", help="file to read; it stays as it is")
    p.add_argument("output", metavar="OUTPUT", help="file to write; one that is there is replaced")
    return p


def upgrade(
    args: argparse.Namespace,
    read: Callable[[str], Message],
    as_it_is: Callable[[str], Message | None],
    *,
    binary: bool = False,
) -> int:
    """Write a file in the current form, even if there is nothing to upgrade, as Caffe does; return the exit code.

    Args:
        read: file -> upgraded message.
        as_it_is: file -> the message in it, to know whether there was anything to upgrade.
        binary: write it as binary, not as text.
    """
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
    """Return the message of a text file that was read without error; None if protobuf's own parser cannot read it."""
    text = read_bytes(path, PrototxtError).decode("utf-8-sig", errors="replace")
    try:
        return text_format.Parse(text, message)
    except text_format.ParseError:
        return None  # a fork's text, which reading has brought to the current form
