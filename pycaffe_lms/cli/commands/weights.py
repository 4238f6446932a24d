"""`pycaffe-lms weights list` and `weights get NAME`: public weights, by name, in a folder that all projects share."""

from __future__ import annotations

import argparse
import difflib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from ...data.sets.download import copy, download, is_whole
from ...data.sets.known_weights import WEIGHTS, Weights, cache_folder
from ...errors import DataError, UsageError, Where, human_bytes
from .. import flags

_log = logging.getLogger(__name__)

_ABOUT = """List public weights, or get them by name: the path of the file goes to stdout, for example for -weights.
"weights diff OLD NEW" compares two files, "weights convert IN OUT" writes a file in another form.

They are kept in PYCAFFE_LMS_CACHE or ~/.cache/pycaffe_lms and checked by their checksum each time. A broken download
goes on where it stopped when the command is run again. No other command uses the network."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("weights", _ABOUT)
    p.add_argument(
        "action",
        metavar="ACTION",
        choices=("get", "list", "diff", "convert"),
        help="get: have the file in the cache and print its path; list: print all names; diff, convert: see their help",
    )
    p.add_argument("name", metavar="NAME", nargs="?", help="of get: which weights, of the list")
    p.add_argument("--from", dest="source", default="", metavar="FILE", help="copy this file instead of downloading it")
    p.add_argument(
        "--mirror",
        default="",
        metavar="URL",
        help="download from here: the address of the file, or of the folder it is in",
    )
    return p


def run(args: argparse.Namespace) -> int:
    """Print the list; or put the weights into the cache and print where they are."""
    if args.action == "list":
        _print_list()
        return 0
    _check_name(args.name)
    if args.source and args.mirror:
        raise UsageError("-from and -mirror exclude each other", fix="give one of them")
    weights = WEIGHTS[args.name]
    url = _address(args.mirror, weights.file) or weights.url
    target = cache_folder() / weights.file
    if is_whole(target, weights.checksum):
        _log.info("%s is there already.", weights.file)
    elif not (args.source or url):
        raise UsageError(
            f"no address of {args.name} is known", fix=f"get {weights.file} and give it as -from, or give a -mirror"
        )
    else:
        _get(weights, target, args.source, url)
    print(target)
    return 0


def _print_list() -> None:
    """Print a line per known file: its name, what it is, where it is to be had."""
    wide = max(map(len, WEIGHTS))
    for name, weights in WEIGHTS.items():
        there = (cache_folder() / weights.file).is_file()
        how = "in the cache" if there else "to download" if weights.url else "needs -from or -mirror"
        print(f"{name:<{wide}}  {how:<22}  {weights.what}")


def _check_name(name: str | None) -> None:
    """Raise UsageError for a name that the list lacks, or none."""
    if name not in WEIGHTS:
        near = difflib.get_close_matches(name or "", WEIGHTS, n=3)
        said = "no weights are named" if name is None else f"no weights are called {name!r}"
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UsageError(said + hint, fix=f"see {flags.PROG} weights list")


def _address(mirror: str, file: str) -> str:
    """Return the address of the file: `mirror`, or in the folder `mirror`; "" without one."""
    return mirror if not mirror or mirror.endswith("/" + file) else f"{mirror.rstrip('/')}/{file}"


def _get(weights: Weights, target: Path, source: str, url: str) -> None:
    """Copy the file from `source`, or download it. Raises DataError."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"the folder cannot be made: {error.strerror}",
            where=Where(file=str(target.parent)),
            fix="set PYCAFFE_LMS_CACHE to a folder that can be written",
        ) from error
    if source:
        copy(Path(source), target, weights.checksum)
        return
    _log.info("Downloading %s", url)
    download(url, target, weights.checksum, progress=_Lines())
    _log.info("Its %s is right.", weights.checksum.algorithm)


class _Lines:
    """Log a line per tenth of a file, or per 64 MiB if its size is not known, with the rate since the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._last, self._clock, self._time = 0, clock, clock()

    def __call__(self, done: int, total: int | None) -> None:
        if done < self._last or done - self._last >= (total or 10 * (64 << 20)) / 10 or done == total:
            now = self._clock()
            new, seconds = done - self._last, now - self._time
            rate = f", {human_bytes(new / seconds)}/s" if new > 0 and seconds > 0 else ""
            self._last, self._time = done, now
            _log.info("%s%s%s", human_bytes(done), f" of {human_bytes(total)}" if total else "", rate)
