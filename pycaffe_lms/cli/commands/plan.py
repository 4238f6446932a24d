"""`pycaffe-lms plan`: what a model needs and takes on a GPU, without one: does it fit, the Large Model Support plan,
predicted times. Nothing is trained.

As on a GPU, images are channels-last, chains of layers run as one and gradients share memory. How much workspace a
GPU's convolutions will use is not known here: -workspace sets what is assumed (with -gpu: 36MB). Without -lms, plans
are made for -lms auto; -lms 0 tells whether the net fits without. All times are predictions.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...errors import CaffeError, UsageError, human_bytes
from ...formats.atomic import atomic_write
from ...formats.prototxt.parser import read_net
from ...lms.config import parse_size
from ...lms.cost.machine import DEFAULT, MACHINES, Machine, find_machine
from ...lms.report import text
from ...net.inspect.account import page_contents
from ...solvers.rules import RULES
from .. import flags
from ..views import batches, lms_files, plan_text, shapes
from ..views.plan_nets import Nets, Outcome, nets_of
from ..zoo_names import net_with_shapes, solver_with_shapes

# Workspace of a convolution on a named GPU. For ResNets of batch 256, cuDNN's fastest engines on an H200 took 2 to 36
# MiB, and 196 MiB for the first layer.
ASSUMED = "36MB"
_GPU = (
    "NAME",
    f"which GPU is planned for: {', '.join(MACHINES)}, or a JSON file with its memory and rates (default: {DEFAULT}, "
    "with the memory of -lms_budget)",
)


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("plan", __doc__)
    p.add_argument(
        "--model",
        default="",
        metavar="FILE.prototxt",
        help="prototxt of the net to be planned, or a model of the zoo, such as resnet-152",
    )
    p.add_argument(
        "--solver",
        default="",
        metavar="FILE.prototxt",
        help="in place of -model: prototxt of a solver. Its train net is planned, its settings and test "
        "nets are checked as train does before its first iteration",
    )
    p.add_argument(
        "--phase",
        choices=tuple(flags.PHASES),
        default="TRAIN",
        help="TRAIN: an iteration with its update; TEST: a forward pass of the TEST phase",
    )
    shapes.add_shape(p)
    p.add_argument(
        "--solver_type",
        choices=list(RULES),
        default=None,
        help="type of the solver, for its histories: Adam and AdaDelta keep two per parameter (default: SGD, or the "
        "type of -solver)",
    )
    p.add_argument(
        "--sweep",
        default="",
        metavar="batch=A..B",
        help="a table over batch sizes, A doubled up to B, or batch=8,16,32; and the largest that fits",
    )
    p.add_argument(
        "--summary",
        action="store_true",
        help="totals only: no table of steps, no search for the largest batch unless -json asks",
    )
    p.add_argument("--report", default="", metavar="FILE.html", help="write the plan as a page, with predicted times")
    p.add_argument(
        "--report_budgets",
        default="",
        metavar="SIZES",
        help="comma list of budgets that are planned for too, such as 1GB,2GB: a slider on the page chooses one",
    )
    p.add_argument("--json", default="", metavar="FILE.json", help="write all numbers")
    flags.add_state(p)
    flags.add_device(p, _GPU, budget=("--budget",))
    return p


def run(args: argparse.Namespace) -> int:
    """Build the net without memory, plan one training iteration (or a forward, in phase TEST), print it."""
    _refuse_contradictions(args)
    args.lms = "auto" if args.lms is None else args.lms
    lms = flags.lms_config(args)
    for path, flag in ((args.report, "-report"), (args.json, "-json")):
        flags.check_place(path, flag)
    if _sizes(args.report_budgets) and not args.report:
        raise UsageError("-report_budgets needs a page", fix="add -report page.html")
    if args.workspace is None and args.gpu:
        args.workspace = ASSUMED
    make = partial(
        Nets,
        lms=lms,
        python=args.python == "on",
        machine=_machine(args.gpu, lms.budget),
        half=flags.half(args),
        workspace=None if args.workspace is None else parse_size(args.workspace, "-workspace"),
    )
    stages = flags.stages(args)
    if args.solver:
        args.solver, args.shape = solver_with_shapes(args.solver, args.shape)
        nets = nets_of(args.solver, args.shape, args.level, stages, partial(make, stages=()))
    else:
        rule = RULES[args.solver_type or "SGD"] if args.phase == "TRAIN" else None
        args.model, args.shape = net_with_shapes(args.model, args.shape)
        nets = make(read_net(args.model), args.shape, level=args.level, stages=stages, rule=rule)
    args.model = args.model or args.solver
    title = f"{Path(args.model).name}, phase {args.phase}"
    if args.sweep:
        return _sweep(nets, title, args)
    found = nets.outcome()
    numbers = {"model": args.model, "phase": args.phase} | plan_text.machine_numbers(nets, args.workspace)
    _print([f"{title}: {len(found.net.graph.nodes)} layers", *plan_text.machine_lines(nets, args.workspace)])
    numbers |= plan_text.numbers(found)
    _print(plan_text.core_lines(found, lms.enabled))
    if lms.enabled:
        least = nets.least()
        _print([*plan_text.plan_lines(found), *plan_text.least_lines(least, lms)])
        numbers["least"] = plan_text.least_numbers(least)
    if nets.batch and (args.json or not args.summary):
        largest, why = nets.largest(nets.batch)
        _print(plan_text.largest_lines(largest, why, lms))
        numbers["largest_batch"] = largest
    if found.plan is not None and not args.summary:
        _print(["", *text.step_table(found.plan, found.times, found.steps)])
    _write(args, numbers)
    if args.report:
        _write_report(nets, found, title, args)
    if found.refused is not None:
        raise found.refused
    return 0


def _refuse_contradictions(args: argparse.Namespace) -> None:
    """Raise UsageError for flags that exclude each other."""
    if bool(args.model) == bool(args.solver):
        raise UsageError(
            "-model and -solver exclude each other" if args.model else "-model or -solver is missing",
            fix="plan a net with -model, or the train net of a solver with -solver",
        )
    if args.solver and (args.solver_type or args.phase == "TEST"):
        flag = "-solver_type" if args.solver_type else "-phase TEST"
        raise UsageError(f"{flag} and -solver exclude each other", fix=f"plan with -model, or without {flag}")


def _machine(name: str, budget: int | None) -> Machine:
    """Return the machine that -gpu names; if it is not given, the budget is its memory. Raises UsageError."""
    if name.lstrip("-").isdigit():
        raise UsageError(
            f"-gpu {name}: plan needs no GPU, so there is none to be numbered",
            fix=f"name the kind that is planned for: {', '.join(MACHINES)}, or a JSON file",
        )
    machine = find_machine(name or DEFAULT)
    return machine if name or budget is None else replace(machine, memory=budget)


def _sweep(nets: Nets, title: str, args: argparse.Namespace) -> int:
    """Print a line per batch size of -sweep."""
    sizes = batches.parse_sweep(args.sweep)
    if args.report:
        raise UsageError("-report shows one plan, -sweep makes many", fix="leave one of them out")
    _print([title, *plan_text.machine_lines(nets, args.workspace), *plan_text.sweep_head()])
    rows = []
    for batch in sizes:
        found = nets.outcome(batch)
        rows.append(plan_text.numbers(found))
        print(plan_text.sweep_row(found), flush=True)
    largest, why = nets.largest(sizes[-1])
    _print(plan_text.largest_lines(largest, why, nets.lms))
    numbers = {"model": args.model, "phase": args.phase} | plan_text.machine_numbers(nets, args.workspace)
    _write(args, numbers | {"sweep": rows, "largest_batch": largest})
    return 0


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _write(args: argparse.Namespace, numbers: plan_text.Numbers) -> None:
    """Write -json."""
    if args.json:
        atomic_write(args.json, json.dumps(numbers, indent=1).encode(), error=CaffeError)
        print(f"wrote {args.json}")


def _write_report(nets: Nets, found: Outcome, title: str, args: argparse.Namespace) -> None:
    """Write -report, with plans for -report_budgets."""
    if found.plan is None:
        print(f"{args.report} is not written: there is no plan")
        return
    heading = f"Large Model Support: {found.net.name or title}"
    remark = f"{title}. All times are predictions; nothing ran."
    pages = [page_contents(found.net, heading, found.plan, remark=remark, budget=nets.capacity)]
    for size in _sizes(args.report_budgets):
        other = nets.with_memory(replace(nets.lms, budget=size), _machine(args.gpu, size))
        planned = other.outcome()
        if planned.plan is None or planned.refused is not None:
            why = "the net does not fit" if planned.refused else "nothing is copied or computed again"
            print(f"{args.report} does not show {human_bytes(size)}: {why}")
        elif size != nets.capacity:
            pages.append(page_contents(planned.net, heading, planned.plan, remark="", budget=other.capacity))
    lms_files.write_page(args.report, *pages)
    print(f"wrote {args.report}")


def _sizes(text: str) -> list[int]:
    return sorted({parse_size(size.strip(), "-report_budgets") for size in text.split(",") if size.strip()})
