"""`pycaffe-lms init NAME -images DIR`: a net, a solver and databases from a folder of classes."""

from __future__ import annotations

import argparse
import importlib.util
import logging
from pathlib import Path
from shlex import quote

from ...data.sets.imagenet import write_lines
from ...data.sets.imageset import PictureForm
from ...errors import MissingDependency, UsageError
from .. import flags, starter
from ..conversion import add_seed
from ..progress import Progress, add_progress
from . import train

_log = logging.getLogger(__name__)
_LEAST_SIDE, _MOST_SIDE = 8, 1024
_ABOUT = """Begin a classifier of your own pictures: write a folder with all that `train` needs.

DIR has a folder per class: DIR/CLASS/PICTURE. A part of each class's pictures is for testing. The folder NAME gets
databases of pictures resized to -size x -size (train_lmdb, test_lmdb), their lists, labels.txt (the class names),
mean.binaryproto, a small convolutional net (train_val.prototxt, deploy.prototxt) and solver.prototxt. The net and the
solver are a beginning: change them. Files that are there already and the same stay; others are an error, unless
-overwrite says to replace them. Pictures that cannot be read are reported and left out. Needs OpenCV."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("init", _ABOUT)
    p.add_argument("name", metavar="NAME", help="folder to write; its last part names the net and the snapshots")
    p.add_argument("--images", required=True, metavar="DIR", help="folder with a folder of pictures per class")
    p.add_argument(
        "--size",
        type=int,
        default=64,
        metavar="PIXELS",
        help="side that pictures are resized to (default: %(default)s)",
    )
    p.add_argument("--gray", action="store_true", help="store pictures with one channel")
    p.add_argument(
        "--test_share",
        type=float,
        default=0.2,
        metavar="F",
        help="share of each class's pictures that are for testing, 0 to 1 (default: %(default)s)",
    )
    add_seed(p, "which pictures are for testing, their order and the first weights", default=1)
    p.add_argument("--train", action="store_true", help="train at once, as `pycaffe-lms train` does without flags")
    p.add_argument("--overwrite", action="store_true", help="replace files and databases that are there and differ")
    add_progress(p)
    return p


def run(args: argparse.Namespace) -> int:
    """Write the folder, print how to train and how to use what was trained; train if that is asked for."""
    if not _LEAST_SIDE <= args.size <= _MOST_SIDE:
        raise UsageError(
            f"-size {args.size} is too small or too large",
            fix=f"give {_LEAST_SIDE} to {_MOST_SIDE} pixels, such as 64 or 224",
        )
    if not 0 < args.test_share < 1:
        raise UsageError(f"-test_share {args.test_share} is no share", fix="give a number between 0 and 1, such as 0.2")
    if importlib.util.find_spec("cv2") is None:
        raise MissingDependency("opencv-python-headless", "reading pictures", "'pycaffe-lms[image]'")
    out = Path(args.name)
    form = PictureForm(gray=args.gray, size=(args.size, args.size))
    with Progress(args.progress) as progress:
        data = starter.write_data(
            args.images,
            out,
            form,
            share=args.test_share,
            seed=args.seed,
            overwrite=args.overwrite,
            progress=progress,
        )
    name = out.resolve().name
    texts = {
        "train_val": starter.net_text(name, out, data, deploy=False),
        "deploy": starter.net_text(name, out, data, deploy=True),
        "solver": starter.solver_text(name, out, data, args.seed),
    }
    for file, text in texts.items():
        write_lines(out / f"{file}.prototxt", text.splitlines(), overwrite=args.overwrite)
    if data.skipped:
        _log.warning("%d pictures could not be read and were left out.", data.skipped)
    shape = " x ".join(map(str, data.shape))
    print(f"{out}: {len(data.classes)} classes, {data.train} pictures to train and {data.test} to test, {shape}")
    solver = out / "solver.prototxt"
    print(f"train:    {flags.PROG} train {quote(str(solver))}")
    print(f"classify: {flags.PROG} {_classify(out, name, args.size, starter.iterations(data))}", flush=True)
    return train.run(flags.parse(train.build_parser(), [str(solver)])) if args.train else 0


def _classify(out: Path, name: str, size: int, iterations: int) -> str:
    """Return the command that classifies a picture with what was trained, prepared as in training."""
    files = ("deploy.prototxt", f"{name}_iter_{iterations}.caffemodel", "labels.txt", "mean.binaryproto")
    net, weights, labels, mean = (quote(str(out / file)) for file in files)
    return (
        f"classify {net} PICTURE -weights {weights} -labels_file {labels} "
        f"-mean_file {mean} -input_scale {starter.INPUT_SCALE:g} -images_dim {size},{size} -center_only"
    )
