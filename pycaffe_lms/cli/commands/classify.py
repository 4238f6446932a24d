"""`pycaffe-lms classify MODEL INPUT [OUTPUT] -weights FILE`: class scores of pictures."""

from __future__ import annotations

import argparse
import glob
import io
import logging
import os
import time
from collections.abc import Iterator, Sequence

import numpy as np

from ...arrays import HostArray
from ...classifier import Classifier
from ...data.transform.picture import require_opencv
from ...errors import DataError, UsageError, Where
from ...formats.atomic import atomic_write
from ...formats.rawfile import could_not_open, read_bytes
from ...io import load_image
from ...log import only_warnings
from .. import flags, scoring

_log = logging.getLogger(__name__)
_AT_ONCE = 64
_ROUNDING = 1e-3  # of a sum of probabilities
_COMMON = "weights labels_file top center_only images_dim mean_file ext gpu backend lms lms_budget"
_ABOUT = """Score pictures with a net, as Caffe's classify.py does: print the best classes with their probabilities,
or save all scores (pictures, classes) as .npy.

INPUT is a picture, a folder (its pictures in the order of their names) or a .npy file of pictures (number, height,
width, channels) with values from 0 to 1. Each is resized to -images_dim; the scores are the mean over ten crops, the
corners and the centre and their mirrors."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("classify", _ABOUT, common=_COMMON)
    scoring.add_model(p)
    p.add_argument("input_file", metavar="INPUT", help="picture, folder or .npy")
    p.add_argument(
        "output_file",
        metavar="OUTPUT",
        nargs="?",
        help=".npy to write all scores to, the ending is added where it is missing; without it, the best classes are "
        "printed",
    )
    scoring.add_net(p)
    p.add_argument("--center_only", action="store_true", help="score the centre crop alone")
    p.add_argument(
        "--images_dim",
        default="256,256",
        metavar="HEIGHT,WIDTH",
        help="size that pictures are resized to before they are cropped (default: %(default)s)",
    )
    p.add_argument(
        "--ext", default="jpg", metavar="ENDING", help="ending of the pictures of a folder (default: %(default)s)"
    )
    p.add_argument("--labels_file", metavar="FILE", help="names of the classes, a line each")
    p.add_argument(
        "--top",
        type=int,
        default=5,
        metavar="N",
        help="how many classes of a picture to print, without OUTPUT or with -labels_file (default: %(default)s)",
    )
    return p


def run(args: argparse.Namespace) -> int:
    """Save the scores, or print the best classes; with -labels_file, do both."""
    dims = scoring.numbers(args.images_dim, "-images_dim", int)
    if len(dims) != 2 or min(dims) < 1:
        raise UsageError(f"-images_dim {args.images_dim} is not a height and a width", fix="for example 256,256")
    if args.top < 1:
        raise UsageError(f"-top {args.top}", fix="1 or more")
    path = "" if args.output_file is None else args.output_file.removesuffix(".npy") + ".npy"
    flags.check_place(path, "OUTPUT")
    labels = _labels(args.labels_file)
    names, pictures = _inputs(args)
    where = scoring.options(args)
    with only_warnings():
        net = Classifier(scoring.deploy_file(args), args.pretrained_model, image_dims=dims, **where)
    color = scoring.set_input(net, net.transformer, args) != 1
    _log.info("Classifying %d inputs.", len(names))
    start = time.perf_counter()
    scores = np.concatenate(
        [net.predict(some, not args.center_only).reshape(len(some), -1) for some in _some(names, pictures, color)]
    )
    _log.info("Done in %.2f s.", time.perf_counter() - start)
    net.close()
    if labels is not None and len(labels) != scores.shape[1]:
        raise DataError(
            f"{len(labels)} names for {scores.shape[1]} classes",
            where=Where(file=args.labels_file),
            fix="give a line for each class",
        )
    if labels is not None or args.output_file is None:
        _print_best(names, scores, labels or [f"class {k}" for k in range(scores.shape[1])], args.top)
    if not path:
        _warn_of_no_probabilities(scores)
        return 0
    _log.info("Saving results into %s", path)
    content = io.BytesIO()
    np.save(content, scores)
    atomic_write(path, content.getvalue(), error=DataError)
    return 0


def _inputs(args: argparse.Namespace) -> tuple[list[str], HostArray | None]:
    """Return the pictures' names (their paths), and the pictures themselves if INPUT holds them. Raises DataError."""
    path = os.path.expanduser(args.input_file)
    if path.endswith(".npy"):
        pictures = scoring.load_npy(path)
        if pictures.ndim != 4 or not pictures.size:
            raise DataError(
                f"pictures of shape {pictures.shape}",
                where=Where(file=path),
                fix="give (number, height, width, channels)",
            )
        return [f"{path}[{i}]" for i in range(len(pictures))], pictures
    require_opencv()
    if not os.path.isdir(path):
        if not os.path.exists(path):
            raise could_not_open(path, FileNotFoundError(), DataError)
        return [path], None
    found = sorted(glob.glob(os.path.join(glob.escape(path), f"*.{glob.escape(args.ext)}")))
    if not found:
        raise DataError(f"no *.{args.ext} in this folder", where=Where(file=path), fix="say which ending with -ext")
    return found, None


def _some(names: list[str], pictures: HostArray | None, color: bool) -> Iterator[Sequence[HostArray]]:
    """Yield pictures, few enough at a time for memory."""
    for i in range(0, len(names), _AT_ONCE):
        if pictures is not None:
            yield list(pictures[i : i + _AT_ONCE])
        else:
            yield [load_image(name, color) for name in names[i : i + _AT_ONCE]]


def _labels(path: str | None) -> list[str] | None:
    if path is None:
        return None
    return read_bytes(path, DataError).decode("utf-8", "replace").rstrip("\n").split("\n")


def _warn_of_no_probabilities(scores: HostArray) -> None:
    """Warn if the rows are no distributions: what was printed is then not a probability."""
    if scores.min() < 0 or np.abs(scores.sum(axis=1) - 1).max() > _ROUNDING:
        _log.warning(
            "These scores are no probabilities: they are not positive or do not add up to 1. A net for use ends with a "
            "Softmax layer."
        )


def _print_best(names: Sequence[str], scores: HostArray, labels: Sequence[str], top: int) -> None:
    for name, row in zip(names, scores, strict=True):
        print(name)
        for k in np.argsort(-row, kind="stable")[:top]:
            print(f"  {row[k]:.5f}  {labels[k].strip()}")
