"""`pycaffe-lms benchmark`: how fast a model trains, in how much memory, by batch, image size and setting of Large Model
Support. The data are synthetic and stay the same. Each case runs in a process of its own; one that does not fit is a
line of the table, with the least budget that would be enough.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ...backend import cuda_available
from ...errors import CaffeError, OutOfDeviceMemory, UsageError, human_bytes
from ...formats.atomic import atomic_write
from ...lms.config import LMSConfig
from ...options import options_of
from .. import flags, overrides
from ..bench import table
from ..bench.measure import Case, Row, measured, needed, nets_of
from ..bench.model import Model, average_all, find, parse_image, resized
from ..views.batches import MOST

_log = logging.getLogger(__name__)
# By then kernels are compiled and convolutions chosen, and -lms auto has measured and planned again.
_WARMUP = {"cuda": 18, "sim": 8, "cpu": 1}
_UNLIMITED = 1 << 46  # bytes


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("benchmark", __doc__, common="batch image lms budget iterations json plot set gpu backend math")
    flags.add_word(
        p, "model", "net prototxt, a folder with one, or a model of the zoo, such as resnet-152", value="MODEL"
    )
    p.add_argument("--batch", default="", metavar="N,..", help="images per iteration (default: as the net says)")
    p.add_argument(
        "--image",
        default="",
        metavar="SIZE",
        help="size of images, such as 224 or 480x640, or of volumes: 192x192x192 (default: as the net says)",
    )
    p.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="BLOB=N,C,H,W",
        help="shape of a blob that a data layer makes, where no file says it; -batch and -image change it",
    )
    p.add_argument(
        "--lms",
        default=None,
        metavar="LIST",
        help="settings of Large Model Support to compare: off, KB of the smallest buffer that is managed, auto "
        "(default: off,1000,auto, or off on the CPU)",
    )
    p.add_argument(
        "--budget", "--lms_budget", default=None, metavar="SIZE", help="hard limit of device memory, such as 16GB"
    )
    p.add_argument("--iterations", type=int, default=10, metavar="N", help="iterations that are measured")
    p.add_argument(
        "--warmup",
        type=int,
        default=None,
        metavar="N",
        help="iterations before them (default: 18 on a GPU, 8 on the simulated device, 1 on the CPU)",
    )
    p.add_argument("--json", default="", metavar="FILE", help="write all numbers")
    p.add_argument("--plot", default="", metavar="FILE.png", help="draw images/s and memory as a picture, too")
    overrides.add_set(p, "the net", "layer.fc8.inner_product_param.num_output=10")
    flags.add_tuning(p, pack="on")
    flags.add_device(p, without=("threshold_kb", "budget"))
    return p


def run(args: argparse.Namespace) -> int:
    """Measure case after case; print a line for each when it is done, then the chart."""
    args.backend = args.backend or ("cuda" if args.gpu or cuda_available() else "cpu")
    if args.backend == "cpu" and (args.budget or args.lms not in (None, "off")):
        raise UsageError(
            "the CPU has no device memory: -lms and -budget would change nothing",
            fix="leave them out, or try them on the simulated device: -backend sim",
        )
    args.warmup = _WARMUP[args.backend] if args.warmup is None else args.warmup
    if args.iterations < 1 or args.warmup < 0:
        raise UsageError("-iterations must be 1 or more, -warmup 0 or more", fix="for example -iterations 10")
    flags.check_place(args.json, "-json")
    table.check_plot(args.plot)
    model = find(args.model, args.shape, args.set)
    cases = list(_cases(model, args))
    for case in dict((case.shapes, case) for case in cases).values():
        _check(case)
    rows: list[Row] = []
    budget = cases[0].lms.budget
    for row in _measure(cases):
        rows.append(row)
        if args.json:  # after every case: a run may take hours
            _write(args, model, budget, rows)
    print("", *table.remarks(rows), "", *table.chart(rows), sep="\n")
    where = rows[0].get("device", args.backend)
    title = f"{_name(model)}, {where}" + (f", budget {human_bytes(budget)}" if budget else "")
    if args.json:
        print(f"wrote {args.json}")
    if args.plot:
        table.plot(rows, title, budget, args.plot)
        print(f"wrote {args.plot}")
    return 1 if any("error" in row and row.get("fits", True) for row in rows) else 0


def _cases(model: Model, args: argparse.Namespace) -> Iterator[Case]:
    """Yield the cases in their order. Raises UsageError for flags that mean nothing."""
    image = parse_image(args.image)
    base = model.shapes(image)
    if resized(base, None, image) != base:
        whole = average_all(model.parsed().message)
        model = replace(model, other_size=True)
        if whole:
            _log.info('-image: "%s" takes the average of the whole image, whatever its size.', '", "'.join(whole))
    settings = {text: _lms(args, text) for text in (args.lms or _usual(args.backend)).split(",")}
    for batch in _batches(args.batch):
        shapes = resized(base, batch, image)
        given = tuple(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())
        items = batch or next(iter(shapes.values()))[0]
        for text, lms in settings.items():
            yield Case(model, given, items, text, lms, args)


def _usual(backend: str) -> str:
    return "off" if backend == "cpu" else "off,1000,auto"


def _batches(text: str) -> list[int | None]:
    """Return the numbers of -batch; None is the net's own."""
    parts = text.split(",") if text else []
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:20]) <= MOST for part in parts):
        raise UsageError(f"-batch {text[:200]!r} is no list of batch sizes", fix="for example -batch 8,16,32")
    return [int(part) for part in parts] or [None]


def _lms(args: argparse.Namespace, text: str) -> LMSConfig:
    """Return what one of -lms means. Flags that need LMS are not for the case without."""
    values = vars(args) | {"lms": text, "lms_budget": args.budget}
    if not flags.settings_of(LMSConfig, argparse.Namespace(lms=text)).enabled:
        values |= {option.flag: None for option in options_of(LMSConfig).values() if option.needs_lms}
    return flags.settings_of(LMSConfig, argparse.Namespace(**values))


def _check(case: Case) -> None:
    """Raise the error of a net that cannot be built for these shapes, before anything is measured."""
    try:
        nets_of(case, "", _UNLIMITED, None).build(LMSConfig(), memory=_UNLIMITED)
    except OutOfDeviceMemory:
        return  # that is for the table to say


def _measure(cases: list[Case]) -> Iterator[Row]:
    """Print the table and yield its rows, each when it is measured."""
    first, args = cases[0], cases[0].args
    print(f"{_name(first.model)}: {first.model.net}, {_solver(first.model)}", flush=True)
    for case in cases:
        shapes = ", ".join(case.shapes)
        counts = args.iterations, args.warmup, shapes
        _log.info("Batch %d, -lms %s: %d iterations after %d to warm up; %s.", case.batch, case.setting, *counts)
        row = measured(case)
        if row.get("capacity") is not None and not row["fits"]:
            _log.info("It does not fit. Looking for the least budget that would be enough.")
            row["least"] = needed(case, row)
        if case is first:
            if "versions" in row:
                print(row["versions"])
            math = f"; math {args.math}" if args.backend == "cuda" else ""
            print(f"the median of {args.iterations} iterations after {args.warmup} to warm up{math}\n\n{table.head()}")
        print(table.line(row), flush=True)
        yield row


def _write(args: argparse.Namespace, model: Model, budget: int | None, rows: list[Row]) -> None:
    """Write -json."""
    about = {"model": args.model, "net": model.net, "solver": model.solver, "backend": args.backend}
    about |= {"math": args.math, "iterations": args.iterations, "warmup": args.warmup, "budget": budget}
    atomic_write(args.json, json.dumps(about | {"results": rows}, indent=1).encode(), error=CaffeError)


def _solver(model: Model) -> str:
    kind = model.solver_param().type
    return f"{kind} with the settings of {model.solver}" if model.solver else f"{kind} with momentum 0.9"


def _name(model: Model) -> str:
    return model.parsed().message.name or Path(model.net).stem
