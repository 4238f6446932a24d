"""`pycaffe-lms plot_training_log CHART PICTURE LOG ..`: curves of training logs."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...errors import DataError, UsageError
from ...formats.atomic import atomic_write
from ...formats.training_log import read_training_log
from ...viz.text_chart import TERMINAL, text_chart
from ...viz.training_curves import AXES, CHARTS, FORMATS, curves, draw, require_matplotlib
from .. import flags

_ABOUT = (
    "Draw a curve of each training log, of this package or of Caffe, into one chart.\n\nCHART is one of\n"
    + "\n".join(f"  {number}: {y} vs. {x}" for number, (y, x) in enumerate(CHARTS))
)


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("plot_training_log", _ABOUT)
    p.add_argument("chart", metavar="CHART", type=int, help=f"0 to {len(CHARTS) - 1}, see above")
    endings = ", .".join(FORMATS)
    p.add_argument("picture", metavar="PICTURE", help=f"file to write, which ends in .{endings}; -: plain characters")
    p.add_argument("logs", metavar="LOG", nargs="+", help="what `train` wrote to stderr")
    p.add_argument(
        "--output",
        default="",
        metavar="NAME[,NAME]",
        help="test outputs to draw in charts 0 to 3 (default: the first that looks like an accuracy, or a loss)",
    )
    return p


def run(args: argparse.Namespace) -> int:
    """Write the picture."""
    if not 0 <= args.chart < len(CHARTS):
        raise UsageError(f"there is no chart {args.chart}", fix=f"0 to {len(CHARTS) - 1}; --help says what they show")
    form = Path(args.picture).suffix.lstrip(".").lower()
    if form not in FORMATS and args.picture != TERMINAL:
        fix = f"end it in .{', .'.join(FORMATS)}; or give {TERMINAL} for a chart in the terminal"
        raise UsageError(f"{args.picture!r} is not the name of a picture", fix=fix)
    outputs = [o for o in args.output.split(",") if o]
    if outputs and CHARTS[args.chart][0].startswith("Train"):
        raise UsageError("-output names test outputs", fix="charts 0 to 3 draw them")
    if args.picture != TERMINAL:
        require_matplotlib()
        flags.check_place(args.picture, "PICTURE")
    lines, nets = [], set()
    for path in args.logs:
        log = read_training_log(path)
        try:
            lines += curves(log, Path(path).stem, args.chart, outputs)
        except DataError as error:
            raise error.at(file=path) from None
        nets.add(log.net)
    title = nets.pop() if len(nets) == 1 else ""
    if args.picture == TERMINAL:
        y, x = CHARTS[args.chart]
        points = [(line.label, list(zip(line.x, line.y, strict=True))) for line in lines]
        print(*text_chart(f"{title}: {y.lower()}" if title else y, points, AXES[x]), sep="\n")
        return 0
    atomic_write(args.picture, draw(lines, args.chart, form, title), error=DataError)
    return 0
