"""`pycaffe-lms detect MODEL PICTURE... -weights FILE`: objects and their boxes, by a net that ends in DetectionOutput.

`detect MODEL WINDOWS OUTPUT -weights FILE`: class scores of windows of pictures.
"""

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

from ...classifier import input_transformer
from ...data.sets.annotations import read_label_map
from ...data.transform.picture import require_opencv
from ...detector import Detector
from ...errors import DataError, UsageError, Where
from ...formats.atomic import atomic_write
from ...formats.hdf5_file import load_h5py, write_hdf5
from ...formats.rawfile import check_readable, read_bytes
from ...log import only_warnings
from ...net import weights
from ...pycaffe.classes import TEST, Net
from .. import flags, scoring
from ..views.objects import places_of, show_objects

_log = logging.getLogger(__name__)
_COORDINATES = ("ymin", "xmin", "ymax", "xmax")
_AT_ONCE = 256
_ABOUT = """Find objects in pictures with a net that ends in DetectionOutput, such as SSD, or score windows of pictures
with any net, as Caffe's detect.py does.

detect MODEL PICTURE... prints a line for each object: picture, class, score, xmin, ymin, xmax, ymax in pixels. The
whole picture is resized to the net's input.

detect MODEL WINDOWS OUTPUT: WINDOWS is a .csv file with the columns filename, ymin, xmin, ymax and xmax, in any order.
OUTPUT is a .csv file of filename, the window and class0, class1, ..; or a .h5 file with the datasets filename, window
and prediction."""
_COMMON = (
    "weights draw confidence_threshold label_map_file mean_value input_scale context_pad gpu backend lms lms_budget"
)


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("detect", _ABOUT, common=_COMMON)
    scoring.add_model(p)
    p.add_argument(
        "inputs", metavar="PICTURE", nargs="+", help="pictures; or a .csv of windows, and .csv or .h5 to write"
    )
    scoring.add_net(p)
    p.add_argument("--draw", metavar="FOLDER", help="write each picture with the boxes of its objects there, as .png")
    p.add_argument(
        "--confidence_threshold",
        type=float,
        default=0.5,
        metavar="SCORE",
        help="least score of an object that is printed and drawn (default: %(default)g)",
    )
    p.add_argument("--label_map_file", metavar="FILE", help="LabelMap prototxt with the names of the classes")
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
        help="pixels of the input around a window that show what surrounds it (default: %(default)s)",
    )
    return p


def run(args: argparse.Namespace) -> int:
    """Print and draw what is found in pictures, or write the scores of windows."""
    listed = args.crop_mode == "list" or (args.crop_mode is None and args.inputs[0].lower().endswith(".csv"))
    return _score_windows(args) if listed or args.crop_mode is not None else _find_objects(args)


def _find_objects(args: argparse.Namespace) -> int:
    """Print and draw what is found in pictures."""
    require_opencv()
    for picture in args.inputs:
        check_readable(picture, DataError)
    places = places_of(args.inputs, args.draw)
    numbers = {} if args.label_map_file is None else read_label_map(args.label_map_file)
    where = scoring.options(args)
    with only_warnings():
        net = Net(scoring.deploy_file(args), TEST, **where)
        weights.copy_from(net, args.pretrained_model, must_match=True)
    transformer = input_transformer(net)
    scoring.set_input(net, transformer, args)
    labels = {number: name for name, number in numbers.items()}
    least = args.confidence_threshold
    show_objects(net, transformer, args.model, args.inputs, least=least, labels=labels, places=places)
    net.close()
    return 0


def _score_windows(args: argparse.Namespace) -> int:
    """Write the scores."""
    if args.crop_mode == "selective_search":
        raise UsageError(
            "selective search runs in MATLAB, through a script that this package does not have",
            fix="compute windows with any proposal method and give them as a .csv file",
        )
    if len(args.inputs) != 2:
        raise UsageError(f"WINDOWS and OUTPUT are two files, but {len(args.inputs)} are given", fix="give both")
    source, target = args.inputs
    ending = Path(target).suffix.lower()
    if ending not in (".csv", ".h5"):
        raise UsageError(f"{target!r} is neither .csv nor .h5", fix="end it in one of them")
    if ending == ".h5":
        load_h5py()
    flags.check_place(target, "OUTPUT")
    require_opencv()
    windows = _windows(source)
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
        atomic_write(target, _csv(found), error=DataError)
    else:
        write_hdf5(target, lambda file: _fill(file, found), DataError)
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
