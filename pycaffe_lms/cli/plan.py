"""`pycaffe-lms plan`: print the Large Model Support plan of a model. Nothing is trained, no GPU is needed.

The plan is that of the simulated device: its convolutions ask for less workspace than a GPU's do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from ..backend import get_device
from ..errors import DataError, UsageError, human_bytes
from ..formats.atomic import atomic_write
from ..formats.prototxt import read_net
from ..layers.base import count
from ..lms import report
from ..lms.config import parse_size
from ..lms.machine import DEFAULT, MACHINES, find_machine
from ..lms.schedule import Access, Mode, Step, merge_accesses
from ..log import only_warnings
from ..net.account import page_contents
from ..net.net import Net
from ..net.programs import HostedStep
from ..net.splitting import describe
from ..net.tuning import Tuning
from ..solvers.rules import RULES, Rule
from . import flags, lms_files, shapes, simulate

_UNLIMITED = 1 << 46


def run(argv: list[str]) -> int:
    """Build the net without memory, plan one training iteration (or a forward, in phase TEST), print it."""
    p = flags.parser("plan", __doc__)
    p.add_argument("--model", required=True, metavar="FILE.prototxt", help="prototxt of the net to be planned")
    p.add_argument("--phase", choices=("TRAIN", "TEST"), default="TRAIN",
                   help="TRAIN: an iteration with its update; TEST: a forward pass of the TEST phase")  # fmt: skip
    shapes.add_shape(p)
    p.add_argument("--solver_type", choices=list(RULES), default="SGD",
                   help="whose histories are planned for: Adam and AdaDelta keep two per parameter")  # fmt: skip
    p.add_argument("--summary", action="store_true", help="totals only, without the table of steps")
    p.add_argument("--sweep", default="", metavar="batch=A..B",
                   help="instead of the plan, a line for each batch, doubling from A to B, or of a list batch=8,16,24: "
                        "memory, predicted time, what is copied and made again, on -gpu's GPU")  # fmt: skip
    p.add_argument(
        "--json", default="", metavar="FILE.json", help="with -gpu or -sweep, write the numbers to a file too"
    )
    p.add_argument("--report", default="", metavar="FILE.html", help="write the plan as a page, with predicted times")
    flags.add_state(p)
    flags.add_device(p)
    _explain_gpu(p)
    args = flags.parse(p, argv)
    lms = flags.lms_config(args)
    lms_files.check_path(args.report, "-report")
    if args.gpu or args.sweep or args.json:
        return _simulate(args, lms)
    if not lms.enabled:
        raise UsageError("there is nothing to plan without -lms", fix="for example -lms 1000, or bare -lms")
    phase = 0 if args.phase == "TRAIN" else 1
    device = get_device("sim", capacity=lms.budget or _UNLIMITED)
    parsed = read_net(args.model)
    message = shapes.with_shapes(parsed.message, args.shape)
    options = {"level": args.level, "stages": flags.stages(args), "file": args.model, "lines": parsed.lines}
    try:
        net = Net(message, phase, device=device, lms=lms, fill=False, tuning=Tuning(), **options)
    except DataError as error:
        raise shapes.or_a_shape(error) from None
    plan = net.plan_only(updates(net, RULES[args.solver_type]) if phase == 0 else None)
    print(f"{Path(args.model).name}, phase {args.phase}: {len(net.graph.nodes)} layers")
    runtime = net.runtime
    print(f"resident on the device: {human_bytes(runtime.resident_bytes)}, and "
          f"{human_bytes(runtime.workspace_bytes)} of workspace")  # fmt: skip
    if plan is None:
        print("nothing is managed: every buffer is at most -lms KB, or comes before -lms_frac")
        if args.report:
            print(f"{args.report} is not written: there is no plan")
        return 0
    for line in report.summary(plan):
        print(line)
    for line in describe(net.graph, net.unfolded):
        print(line)
    total = runtime.resident_bytes + runtime.workspace_bytes + plan.arena_bytes
    print(f"device memory in all: {human_bytes(total)}")
    if not args.summary:
        print()
        for line in report.step_table(plan):
            print(line)
    if args.report:
        title = f"Large Model Support: {Path(args.model).name}, phase {args.phase}"
        remark = "All times are predictions; nothing ran."
        contents = page_contents(net, title, plan, remark=remark, budget=lms.budget)
        lms_files.write_page(args.report, contents)
        print(f"wrote {args.report}")
    return 0


def _explain_gpu(p) -> None:
    """Here nothing runs, so -gpu names a kind of GPU."""
    action = next(a for a in p._actions if a.dest == "gpu")
    action.metavar = "NAME"
    action.help = (
        f"predict for this GPU: {', '.join(sorted(MACHINES))}, or a JSON file with the fields of lms/machine.py; "
        "prints totals with times instead of the table of steps"
    )


def _simulate(args, lms) -> int:
    """What training takes on a GPU that is named, for the net's batch or for those of -sweep."""
    machine = find_machine(args.gpu or DEFAULT)
    parsed = read_net(args.model)
    message = shapes.with_shapes(parsed.message, args.shape)
    phase = 0 if args.phase == "TRAIN" else 1
    options = {"level": args.level, "stages": flags.stages(args), "file": args.model, "lines": parsed.lines}
    workspace = simulate.WORKSPACE if args.workspace is None else parse_size(args.workspace, "-workspace")
    rule = RULES[args.solver_type]
    simulation = simulate.Simulation(machine, lms, phase, options, lambda net: updates(net, rule), workspace)
    sizes = simulate.batches(args.sweep) if args.sweep else [None]
    print(f"{Path(args.model).name}, phase {args.phase}, {machine.name}, {human_bytes(simulation.budget)} of memory, "
          f"{human_bytes(workspace)} of workspace for a convolution that wants some")  # fmt: skip
    outcomes = []
    try:
        with only_warnings():
            for batch in sizes:
                net = message if batch is None else simulate.with_batch(message, batch)
                outcomes.append(simulation.run(net, simulate.first_batch(net) if batch is None else batch))
    except DataError as error:
        raise shapes.or_a_shape(error) from None
    for outcome in outcomes:
        for line in outcome.parts:
            print(f"batch {outcome.batch}: {line}")
    for line in simulate.table(outcomes, simulation.budget):
        print(line)
    print(f"least memory: layers whole, fetched on demand, set by {outcomes[-1].at}")
    if args.json:
        atomic_write(args.json, (json.dumps([asdict(o) for o in outcomes], indent=1) + "\n").encode())
    return 0


def updates(net: Net, rule: Rule) -> Callable[[], list[HostedStep]]:
    """Makes the update steps of a solver, for planning: nobody runs them. Its histories are added at once."""
    histories: dict[int, list[int]] = {}
    for p in net.graph.learnable:
        if p.lr_mult != 0:
            name, nbytes = net.graph.nodes[p.node].name, count(p.shape) * net.dtype.itemsize
            histories[p.index] = [
                net.memory.add(f"{name}.param{p.position}.history{slot or ''}", nbytes) for slot in range(rule.slots)
            ]
    return lambda: _update_steps(net, histories)


def _update_steps(net: Net, histories: Mapping[int, Sequence[int]]) -> list[HostedStep]:
    steps: list[HostedStep] = []
    for index, slots in histories.items():
        p = net.graph.params[index]
        accesses = tuple(Access(b, Mode.UPDATE) for b in (p.data, p.diff, *slots))
        steps.append(HostedStep(Step(f"update:{net.graph.nodes[p.node].name}", accesses), lambda: None))
    if steps and net.runtime.keeps_params():  # then it is one step
        together = tuple(a for step in steps for a in step.step.accesses)
        return [HostedStep(Step("update:all", merge_accesses(together)), lambda: None)]
    return steps
