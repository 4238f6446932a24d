"""Run `pycaffe-lms <action> [flags]`: find the command, turn errors into one message and an exit code.

Exit codes: 0 done, 1 an error in the model or data, 2 in the flags, 130 interrupted (after a snapshot, if one was
due), 143 ended by SIGTERM (after a snapshot).
"""

from __future__ import annotations

import difflib
import io
import os
import sys
import textwrap
import traceback
from contextlib import suppress

from ..errors import CaffeError, UsageError
from ..log import log_to_stderr
from ..parallel import mpi
from ..version import __version__
from . import flags, help, ranks
from .catalogue import COMMANDS, module_of

_ROOM = "check that files and folders exist, may be read and written, and that the disk has room"
_SMALLER = "lower batch_size, or make the blobs smaller"
_FIRST_WORDS = [words for words in COMMANDS if " " not in words]


def main(argv: list[str] | None = None) -> int:
    """Run a command; return the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # names of blobs and files may be any bytes
        try:
            return _run(argv)
        finally:
            sys.stdout.flush()  # a failure at the interpreter's exit could not be reported
    except BrokenPipeError:  # what reads the output (`head`, a pager) is closed
        _drop_output()
        return 1
    except (CaffeError, OSError, MemoryError, KeyboardInterrupt) as error:
        if isinstance(error, OSError):
            _drop_output()
        text, code = _told(error)
        with suppress(OSError):  # stderr may be closed, or on a full disk: the exit code remains
            print(text, file=sys.stderr, flush=True)
        return code


def _run(argv: list[str]) -> int:
    words, rest = _find_command(argv)
    if words is None:
        print(_usage())
        return 0
    ranks.refuse(words)
    if words == "train" and mpi.started() is not None:
        return ranks.as_rank(lambda: _do(words, rest), _told)
    with log_to_stderr():
        return _do(words, rest)


def _do(words: str, rest: list[str]) -> int:
    module = module_of(words)
    code: int = module.run(flags.parse(module.build_parser(), rest))
    return code


def _told(error: BaseException) -> tuple[str, int]:
    """Return what is printed about an error, and the exit code."""
    if isinstance(error, CaffeError):
        return f"error: {error}", error.exit_code
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename is not None else ""
        return f"error: {place}{error.strerror or error}\n  fix: {_ROOM}", 1
    if isinstance(error, MemoryError):
        return f"error: the host has no memory left\n  fix: {_SMALLER}", 1
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    return "error: a bug of this package\n" + "".join(traceback.format_exception(error)).rstrip(), 1


def _drop_output() -> None:
    """Drop what is left of the output, so that the interpreter does not fail on it at its exit."""
    with suppress(OSError):  # the stream may be no file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _find_command(argv: list[str]) -> tuple[str | None, list[str]]:
    """Return the command's words and the other words; no command means help. Raises UsageError."""
    if not argv or argv[0] in ("-h", "--help", "-help"):
        return None, []
    if argv[0] in ("-version", "--version"):
        print(f"{flags.PROG} {__version__}")
        raise SystemExit(0)
    at = [i for i, a in enumerate(argv) if not a.startswith("-")]
    first = 0 if 0 in at else next((i for i in at if argv[i] in _FIRST_WORDS), at[0] if at else None)
    if first is None:
        raise UsageError("no action is given", fix="one of: " + ", ".join(_FIRST_WORDS))
    words, rest = argv[first], argv[:first] + argv[first + 1 :]
    if words not in _FIRST_WORDS:
        near = difflib.get_close_matches(words, _FIRST_WORDS, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise UsageError(f'unknown action "{words}"{hint}', fix="one of: " + ", ".join(_FIRST_WORDS))
    both = f"{words} {rest[0]}" if rest else ""
    return (both, rest[1:]) if both in COMMANDS else (words, rest)


def _usage() -> str:
    """Return the list of commands and how to begin."""
    lines, column = ["usage: pycaffe-lms <action> [flags]", "", "actions:"], 3 + max(map(len, _FIRST_WORDS))
    for name in _FIRST_WORDS:
        first = f"  {name}".ljust(column)
        lines += textwrap.wrap(COMMANDS[name].what, help.WIDTH, initial_indent=first, subsequent_indent=" " * column)
    lines += ["", "begin with one of"]
    lines += ["  pycaffe-lms train digits                a small net; its data are included"]
    lines += ["  pycaffe-lms init mynet -images FOLDER   a net for your own pictures"]
    return "\n".join([*lines, "", "pycaffe-lms <action> --help explains the flags of one."])


if __name__ == "__main__":
    sys.exit(main())
