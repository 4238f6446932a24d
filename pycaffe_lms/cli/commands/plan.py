"""`pycaffe-lms plan`: does a model fit a GPU, with and without Large Model Support, how fast is it, what limits it and
what to change. Needs no GPU and no data; nothing is trained. All times are predictions.

As on a GPU, images are channels-last, chains of layers run as one and gradients share memory. How much workspace a
GPU's convolutions will use is not known here: -workspace sets what is assumed (with -gpu: 36MB). Without -lms, plans
are made for -lms auto; -lms 0 tells whether the net fits without. Answers are kept on disk (-cache).
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from ...errors import CaffeError, UsageError, human_bytes
from ...formats.atomic import atomic_write
from ...formats.cache_folder import use_cache_folder
from ...formats.prototxt.parser import kind_of
from ...lms.config import LMSConfig, parse_size
from ...lms.cost.machine import DEFAULT, MACHINES, Machine, find_machine
from ...lms.cost.network import Cluster, parse_network, parse_ranks
from ...net.inspect.account import page_contents
from ...options import options_of
from ...pycaffe.mode import MATH
from ...solvers.rules import RULES
from .. import flags, overrides
from ..sign_of_life import SignOfLife
from ..views import batches, lms_files, plan_text, shapes
from ..views.answer_cache import AnswerCache
from ..views.plan_answers import Answers, Numbers, error_of
from ..views.plan_nets import Nets, Outcome, nets_of
from ..zoo_names import net_with_shapes, solver_with_shapes

# Workspace of a convolution on a named GPU. For ResNets of batch 256, cuDNN's fastest engines on an H200 took 2 to 36
# MiB, and 196 MiB for the first layer.
ASSUMED = "36MB"
_COMMON = "solver shape set gpu lms lms_budget budget sweep steps report json"
LIST = "list"  # of -gpu
NODE_GPUS = 8
_FIRST = ("threshold_kb", "budget")  # settings whose flags stand among the common ones
_REFUSED = dict.fromkeys(("backend", "sim_order", "sim_seed"), "plan runs nothing, so there is no device to choose") | {
    "lms_sync": "plan predicts how copies and layers overlap, which -lms_sync changes in a run, to measure and debug"
}


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("plan", __doc__, common=_COMMON)
    p.refused = _REFUSED
    flags.add_word(p, "model", "prototxt of a net or a solver, or a model of the zoo", required=False)
    p.add_argument(
        "--solver",
        default="",
        metavar="FILE.prototxt",
        help="in place of -model: prototxt of a solver. Its train net is planned, its settings and test "
        "nets are checked as train does before its first iteration",
    )
    shapes.add_shape(p)
    p.add_argument(
        "--gpu",
        default="",
        metavar="NAME",
        help=f"which GPU is planned for: {', '.join(MACHINES)}, or a JSON file with its memory and rates; list: print "
        f"what is known of them (default: {DEFAULT}, with the memory of -lms_budget)",
    )
    others = [name for name in options_of(LMSConfig) if name not in _FIRST]
    flags.add_settings(p, LMSConfig, without=others, names={"budget": ("--budget",)})
    p.add_argument(
        "--ranks",
        default="",
        metavar="N",
        help="also predict a data-parallel training on N GPUs, each with a batch of its own; 8,16,32: a line for each "
        "number (how: docs/scaling.md)",
    )
    p.add_argument(
        "--node_gpus",
        type=int,
        default=NODE_GPUS,
        metavar="N",
        help=f"of -ranks: GPUs of a node (default: {NODE_GPUS})",
    )
    p.add_argument(
        "--network",
        default="",
        metavar="RATE",
        help="of -ranks: what a node sends per second, and receives at the same time, over all its network cards, such "
        "as 50GB/s or 400Gbit/s",
    )
    p.add_argument(
        "--sweep",
        default="",
        metavar="batch=A..B",
        help="a table over batch sizes, A doubled up to B, or batch=8,16,32; and the largest that fits",
    )
    p.add_argument("--steps", action="store_true", help="also print what happens at every step")
    p.add_argument("--report", default="", metavar="FILE.html", help="write the plan as a page, with predicted times")
    p.add_argument(
        "--report_budgets",
        default="",
        metavar="SIZES",
        help="comma list of budgets that are planned for too, such as 1GB,2GB: a slider on the page chooses one",
    )
    p.add_argument("--json", default="", metavar="FILE.json", help="write all numbers, and the largest batch that fits")
    more = p.add_argument_group("more")
    more.add_argument(
        "--math",
        choices=MATH,
        default=MATH[0],
        help="how products are computed: tf32 on tensor cores where the GPU has them, fp32 without; bf16: hidden "
        "activations and their gradients are stored in 16 bits, too",
    )
    more.add_argument(
        "--phase",
        choices=tuple(flags.PHASES),
        default="TRAIN",
        help="TRAIN: an iteration with its update; TEST: a forward pass of the TEST phase",
    )
    more.add_argument(
        "--solver_type",
        choices=list(RULES),
        default=None,
        help="type of the solver, for its histories: Adam and AdaDelta keep two per parameter (default: SGD, or the "
        "type of -solver)",
    )
    more.add_argument(
        "--workspace",
        default=None,
        metavar="SIZE",
        help=f"device workspace that every convolution is assumed to use (default: with -gpu {ASSUMED}, else what the "
        "simulated device's need)",
    )
    overrides.add_set(p, "the net, or of the solver or its nets", "layer.data.data_param.batch_size=10")
    flags.add_state(more)
    answers = "answers are kept, and plans of large nets (found_plans), so that the same question is answered at once"
    flags.add_cache(more, answers, "pycaffe_lms, with answers in plans,")
    more.add_argument("--summary", action="store_true", help="the page without -steps, as by default")
    known = options_of(LMSConfig).items()
    without = [name for name, option in known if option.for_training or option.flag in _REFUSED or name in _FIRST]
    flags.add_settings(p.add_argument_group("Large Model Support"), LMSConfig, without=without)
    return p


def run(args: argparse.Namespace) -> int:
    """Build the net without memory, plan one training iteration (or a forward, in phase TEST), print it."""
    if args.gpu == LIST:
        _print(plan_text.gpu_lines())
        return 0
    if args.model and not args.solver and Path(args.model).is_file() and kind_of(args.model) == "solver":
        args.model, args.solver = None, args.model
    _refuse_contradictions(args)
    args.lms = "auto" if args.lms is None else args.lms
    lms = flags.lms_config(args)
    for path, flag in ((args.report, "-report"), (args.json, "-json")):
        flags.check_place(path, flag)
    if _sizes(args.report_budgets) and not args.report:
        raise UsageError("-report_budgets needs a page", fix="add -report page.html")
    if args.workspace is None and args.gpu:
        args.workspace = ASSUMED
    clusters = _clusters(args)
    make = partial(
        Nets,
        lms=lms,
        python=args.python == "on",
        machine=_machine(args.gpu, lms.budget).with_math(args.math),
        half=flags.half(args),
        workspace=None if args.workspace is None else parse_size(args.workspace, "-workspace"),
    )
    use_cache_folder(args.cache)
    cache = AnswerCache(args.cache)
    with _rare_collection(), SignOfLife(f"planning {args.model or args.solver}") as sign:
        if args.solver:
            args.solver, args.shape = solver_with_shapes(args.solver, args.shape)
            nets = nets_of(
                overrides.solver_of(args), args.shape, args.level, flags.stages(args), partial(make, stages=())
            )
        else:
            rule = RULES[args.solver_type or "SGD"] if args.phase == "TRAIN" else None
            args.model, args.shape = net_with_shapes(args.model, args.shape)
            nets = make(overrides.net_of(args), args.shape, level=args.level, stages=flags.stages(args), rule=rule)
        args.model = args.model or args.solver
        answers = Answers(nets, cache, outcome_wanted=bool(args.report))
        return _sweep(answers, args, sign) if args.sweep else _page(answers, args, sign, clusters)


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Within: Python looks for unreachable objects less often. Looking takes a fifth of the time of planning, and finds
    next to nothing: nearly all objects live until the plan is done."""
    before = gc.get_threshold()
    gc.set_threshold(1_000_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _title(nets: Nets, args: argparse.Namespace) -> str:
    name = f"{nets.message.name} ({Path(args.model).name})" if nets.message.name else Path(args.model).name
    return f"{name}, {'a training iteration' if args.phase == 'TRAIN' else 'a forward pass of phase TEST'}"


def _page(answers: Answers, args: argparse.Namespace, sign: SignOfLife, clusters: Sequence[Cluster]) -> int:
    """Print the page of one plan, and what else is asked for."""
    nets, steps = answers.nets, args.steps and not args.summary
    answered = answers.page(steps=steps, largest=bool(args.json))
    found, least = answered.outcome, answered.least
    numbers = {"model": args.model, "phase": args.phase} | plan_text.machine_numbers(nets, args.workspace)
    numbers |= {name: value for name, value in found.items() if name not in ("error", "table")}
    if least is not None:
        numbers["least"], numbers["least_in_parts"] = least
    if answered.largest_without_lms is not None:
        numbers["largest_batch_without_lms"] = answered.largest_without_lms
    if answered.largest is not None:
        numbers["largest_batch"] = answered.largest
    if clusters and found["error"] is None:
        numbers["ranks"] = answers.ranks(clusters)
    items = "" if nets.batch is None else f", batch {nets.batch}"
    title = f"{_title(nets, args)}: {found['layers']} layers{items}"
    sign.clear()
    _print(plan_text.page(nets, title, args.workspace, answered))
    if "ranks" in numbers:
        _print(["", *plan_text.rank_lines(nets, clusters[-1], numbers["ranks"])])
    if found["table"]:
        _print(["", *plan_text.step_lines(found["table"])])
    _write(args, numbers)
    if args.report and answers.found is not None:
        _write_report(nets, answers.found, _title(nets, args), args)
    if found["error"] is not None:
        raise error_of(found["error"])
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


def _clusters(args: argparse.Namespace) -> list[Cluster]:
    """Return what -ranks, -node_gpus and -network describe. Raises UsageError."""
    if not args.ranks:
        for flag, given in (("-network", args.network), ("-node_gpus", args.node_gpus != NODE_GPUS)):
            if given:
                raise UsageError(f"{flag} describes what -ranks run on", fix="add -ranks 64, say")
        return []
    for flag, given in (("-phase TEST", args.phase == "TEST"), ("-sweep", args.sweep)):
        if given:
            raise UsageError(f"-ranks and {flag} exclude each other", fix="leave one of them out")
    if args.node_gpus < 1:
        raise UsageError(f"-node_gpus {args.node_gpus}: a node has at least one GPU", fix="-node_gpus 8, say")
    ranks = parse_ranks(args.ranks, args.node_gpus)
    if max(ranks) > args.node_gpus and not args.network:
        raise UsageError(
            f"-ranks {args.ranks} with {args.node_gpus} GPUs a node needs -network", fix="for example -network 50GB/s"
        )
    network = parse_network(args.network) if args.network else 0.0
    return [Cluster(n, args.node_gpus, network) for n in ranks]


def _machine(name: str, budget: int | None) -> Machine:
    """Return the machine that -gpu names; if it is not given, the budget is its memory. Raises UsageError."""
    if name.lstrip("-").isdigit():
        raise UsageError(
            f"-gpu {name}: plan needs no GPU, so there is none to be numbered",
            fix=f"name the kind that is planned for: {', '.join(MACHINES)}, or a JSON file",
        )
    machine = find_machine(name or DEFAULT)
    return machine if name or budget is None else replace(machine, memory=budget)


def _sweep(answers: Answers, args: argparse.Namespace, sign: SignOfLife) -> int:
    """Print a line per batch size of -sweep."""
    nets, sizes = answers.nets, batches.parse_sweep(args.sweep)
    for flag in ("report", "steps"):
        if getattr(args, flag):
            raise UsageError(f"-{flag} shows one plan, -sweep makes many", fix="leave one of them out")
    sign.clear()
    _print([_title(nets, args), *plan_text.machine_lines(nets, args.workspace), "", *plan_text.sweep_head(nets)])
    rows = []
    for batch in sizes:
        found = answers.outcome(batch)
        rows.append({name: value for name, value in found.items() if name not in ("error", "table")})
        sign.clear()
        print(plan_text.sweep_row(found), flush=True)
    largest, why = answers.largest(sizes[-1])
    sign.clear()
    fitted = max((row["batch"] for row in rows if row["fits"]), default=0)
    _print(["", *plan_text.sweep_legend(), *plan_text.largest_lines(nets, largest, why, fitted)])
    numbers = {"model": args.model, "phase": args.phase} | plan_text.machine_numbers(nets, args.workspace)
    _write(args, numbers | {"sweep": rows, "largest_batch": largest})
    return 0


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _write(args: argparse.Namespace, numbers: Numbers) -> None:
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
        other = nets.with_memory(replace(nets.lms, budget=size), _machine(args.gpu, size).with_math(args.math))
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
