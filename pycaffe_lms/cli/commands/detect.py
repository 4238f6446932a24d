"""`pycaffe-lms detect MODEL WINDOWS OUTPUT -weights FILE`: class scores of windows of pictures."""

from __future__ import annotations

import argparse
import csv
import io
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ...data.transform.picture import require_opencv
from ...detector import Detector
from ...errors import DataError, UsageError, Where
from ...formats.atomic import atomic_write
from ...formats.hdf5_file import load_h5py, write_hdf5
from ...formats.rawfile import check_readable, read_bytes
from ...log import only_warnings
from .. import flags, scoring

_log = logging.getLogger(__name__)
_COORDINATES = ("ymin", "xmin", "ymax", "xmax")
_AT_ONCE = 256
_ABOUT = """Score windows of pictures with a net, as Caffe's detect.py does.

WINDOWS is a .csv file with the columns filename, ymin, xmin, ymax and xmax, in any order. OUTPUT is a .csv file of
filename, the window and class0, class1, ..; or a .h5 file with the datasets filename, window and prediction."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("detect", _ABOUT, common="weights context_pad mean_file gpu backend lms lms_budget")
    scoring.add_model(p)
    p.add_argument("input_file", metavar="WINDOWS", help=".csv of windows")
    p.add_argument("output_file", metavar="OUTPUT", help=".csv or .h5 to write")
    scoring.add_net(p)
    p.add_argument(
        "--crop_mode",
        choices=("list", "selective_search"),
        default=None,
        help="where windows come from: list, the .csv; selective_search is a MATLAB program, not here "
        "(default: by the ending of WINDOWS)",
    )
    p.add_argument(
        "--context_pad",
        type=int,
        default=16,
        metavar="PIXELS",
        help="pixels of the input around the window that show what surrounds it (default: %(default)s)",
    )
    return p


def run(args: argparse.Namespace) -> int:
    """Write the scores."""
    ending = Path(args.output_file).suffix.lower()
    if ending not in (".csv", ".h5"):
        raise UsageError(f"{args.output_file!r} is neither .csv nor .h5", fix="end it in one of them")
    if ending == ".h5":
        load_h5py()
    flags.check_place(args.output_file, "OUTPUT")
    require_opencv()
    listed = args.crop_mode == "list" or (args.crop_mode is None and args.input_file.lower().endswith(".csv"))
    if not listed:
        raise UsageError(
            "selective search runs in MATLAB, through a script that this package does not have",
            fix="compute windows with any proposal method and give them as a .csv file",
        )
    windows = _windows(args.input_file)
    for picture in windows:
        check_readable(picture, DataError)
    where = scoring.options(args)
    with only_warnings():
        net = Detector(scoring.deploy_file(args), args.pretrained_model, **where)
    scoring.set_input(net, net.transformer, args)
    net.configure_crop(args.context_pad)
    start = time.perf_counter()
    found = [one for some in _some(windows) for one in net.detect_windows(some)]
    net.close()
    _log.info("Processed %d windows in %.3f s.", len(found), time.perf_counter() - start)
    if ending == ".csv":
        atomic_write(args.output_file, _csv(found), error=DataError)
    else:
        write_hdf5(args.output_file, lambda file: _fill(file, found), DataError)
    return 0


def _windows(path: str) -> dict[str, list[list[int]]]:
    """Return picture -> its windows, both in the order of the file. Raises DataError with the line."""
    text = read_bytes(path, DataError).decode("utf-8-sig", "replace")
    reader = csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
    try:
        missing = {"filename", *_COORDINATES} - set(reader.fieldnames or ())
        if missing:
            raise DataError(
                f"there is no column {', '.join(sorted(missing))}",
                where=Where(file=path, line=1),
                fix="begin it with a line filename,ymin,xmin,ymax,xmax",
            )
        found: dict[str, list[list[int]]] = {}
        for row in reader:
            try:
                window = [int(float(row[name])) for name in _COORDINATES]
            except (TypeError, ValueError, OverflowError):
                raise DataError(
                    "a window is four numbers",
                    where=Where(file=path, line=reader.line_num),
                    fix="give ymin, xmin, ymax, xmax in pixels",
                ) from None
            found.setdefault(row["filename"], []).append(window)
    except csv.Error as failure:
        fix = "give a text file of the columns filename, ymin, xmin, ymax, xmax"
        raise DataError(f"not a readable .csv file: {failure}", where=Where(file=path), fix=fix) from None
    if not found:
        raise DataError("there is no window in it", where=Where(file=path), fix="give a line for each window")
    return found


def _some(windows: dict[str, list[list[int]]]) -> Iterator[list[tuple[str, list[list[int]]]]]:
    """Yield blocks of windows that are small enough for memory."""
    block: list[tuple[str, list[list[int]]]] = []
    for name, rows in windows.items():
        for i in range(0, len(rows), _AT_ONCE):
            block.append((name, rows[i : i + _AT_ONCE]))
            if sum(len(part) for _, part in block) >= _AT_ONCE:
                yield block
                block = []
    if block:
        yield block


def _csv(found: list[dict[str, Any]]) -> bytes:
    """Return the windows with their scores as a .csv file."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    scores = [np.asarray(one["prediction"]).reshape(-1) for one in found]
    writer.writerow(["filename", *_COORDINATES, *(f"class{k}" for k in range(len(scores[0])))])
    for one, row in zip(found, scores, strict=True):
        writer.writerow([one["filename"], *one["window"], *(f"{v:.9g}" for v in row)])
    return text.getvalue().encode()


def _fill(file: Any, found: list[dict[str, Any]]) -> None:
    """Write them to an open HDF5 file."""
    file["filename"] = np.array([one["filename"].encode() for one in found])
    file["window"] = np.array([one["window"] for one in found], np.int32)
    file["prediction"] = np.stack([np.asarray(one["prediction"]).reshape(-1) for one in found])
