"""`pycaffe-lms summarize MODEL`: a net as a table. No device and no data are needed."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from ...backend import get_device
from ...errors import DataError, UsageError, human_bytes
from ...formats.prototxt.parser import Parsed, read_net
from ...log import only_warnings
from ...net.inspect.summary import LayerSummary, settings, summarize, totals
from ...net.net import Net
from ...net.tuning import Tuning
from ...proto.caffe_pb2 import NetParameter
from ...solvers.rules import RULES
from .. import flags
from ..views import shapes, summary_text
from ..views.plan_nets import updates
from ..zoo_names import net_with_shapes

_UNLIMITED = 1 << 46
_ABOUT = """Print a net layer by layer: type, settings, bottoms, tops and their shapes, parameters, floating-point
operations and memory; then what it takes in all.

settings: outputs, method, kernel/stride+pad, g groups, d dilation. MFLOP: 10^6 floating-point operations of the
products of one forward of the whole batch; a multiplication with its addition counts as two. memory: of tops and
parameters that have memory of their own, without gradients. A data layer whose data is missing needs -shape, or
-wiring, which prints what the prototxt alone says."""


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("summarize", _ABOUT)
    flags.add_word(p, "model", "net prototxt, or a model of the zoo")
    p.add_argument("--phase", choices=tuple(flags.PHASES), default="TRAIN", help="the phase whose layers are shown")
    shapes.add_shape(p)
    flags.add_state(p)
    p.add_argument(
        "--solver_type",
        choices=list(RULES),
        default="SGD",
        help="type of the solver whose histories count in training memory",
    )
    p.add_argument("--wiring", action="store_true", help="no shapes: layers, bottoms, tops, multipliers; of any net")
    form = p.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    p.add_argument(
        "--max_width",
        "--max-width",
        "--w",
        dest="most",
        type=int,
        default=30,
        metavar="N",
        help="most characters of a column of text (default: %(default)s)",
    )
    return p


def run(args: argparse.Namespace) -> int:
    """Print the table to stdout."""
    if args.most < 4:
        raise UsageError(f"-max_width {args.most} leaves no room", fix="4 or more")
    if args.wiring and args.json:
        raise UsageError("-wiring has no JSON form", fix="leave one of -wiring and -json out")
    path, args.shape = net_with_shapes(args.model, args.shape)
    parsed = read_net(path, judge=False)
    head: Sequence[str]
    if args.wiring:
        head, lines, facts = summary_text.WIRING_HEAD, _wiring(parsed, args), []
    else:
        net = _build(parsed, args)
        layers = _with_types(summarize(net.graph, net.dtype.itemsize), parsed.message)
        more = _device_bytes(net, args.solver_type)
        net.close()
        if args.json:
            title = {"name": net.name, "file": parsed.filename, "phase": args.phase, "dtype": net.dtype.name}
            print(summary_text.as_json(title, layers, more))
            return 0
        head, lines, facts = summary_text.HEAD, summary_text.rows(layers), _facts(layers, net, more, args)
    print(f"{parsed.filename}: net {parsed.message.name!r}, phase {args.phase}", end="\n\n")
    print(summary_text.markdown(head, lines) if args.markdown else summary_text.text(head, lines, args.most))
    if facts:
        print()
        print(*(f"* {fact}" if args.markdown else fact for fact in facts), sep="\n")
    return 0


def _build(parsed: Parsed[NetParameter], args: argparse.Namespace) -> Net:
    """Return the net on the simulated device, without memory."""
    phase, python = flags.PHASES[args.phase], args.python == "on"
    message = shapes.with_shapes(parsed.message, args.shape, python)
    try:
        stand_ins = shapes.of_python_layers(message, args.shape, python)
        with only_warnings(), stand_ins, shapes.of_data_layers(parsed.message, message):
            return Net(
                message,
                phase,
                level=args.level,
                stages=flags.stages(args),
                lines=parsed.lines,
                file=parsed.filename,
                device=get_device("sim", capacity=_UNLIMITED),
                fill=False,
                forward_only=args.phase == "TEST",
                tuning=Tuning(pack=True),
            )
    except DataError as error:
        error = shapes.or_a_shape(error)
        error.fix = f"{error.fix}; -wiring prints what needs no shapes"
        raise error from None


def _with_types(layers: list[LayerSummary], message: NetParameter) -> list[LayerSummary]:
    """Return the layers with the types of the prototxt where -shape put another layer."""
    types = {(layer.name, tuple(layer.top)): layer.type for layer in message.layer}
    return [replace(x, type=types.get((x.name, tuple(n for n, _ in x.tops)), x.type)) for x in layers]


def _device_bytes(net: Net, solver_type: str) -> dict[str, int]:
    """Return the bytes that `train` or `test` takes of a device without Large Model Support.

    The workspace of layers is not included: a simulated device's convolutions ask for another one than a GPU's.
    """
    training = any(node.need_backward for node in net.graph.nodes) and net.phase == 0
    plan = net.plan_only(updates(net, RULES[solver_type]) if training else None)
    total = net.runtime.resident_bytes + (plan.arena_bytes if plan is not None else 0)
    return {"training_nbytes" if training else "forward_nbytes": total}


def _facts(layers: list[LayerSummary], net: Net, more: dict[str, int], args: argparse.Namespace) -> list[str]:
    """Return the lines below the table."""
    parameters, flops, _ = totals(layers)
    size = net.dtype.itemsize
    facts = [
        f"parameters: {parameters:,}, {human_bytes(parameters * size)} as {net.dtype.name}",
        f"forward: {flops / 1e9:,.3f} GFLOP of products for the whole batch",
    ]
    for name, nbytes in more.items():
        what = f"training with {args.solver_type}" if name == "training_nbytes" else "a forward"
        facts.append(f"device memory of {what}: {human_bytes(nbytes)} without Large Model Support, and workspace")
    return facts


def _wiring(parsed: Parsed[NetParameter], args: argparse.Namespace) -> list[list[str]]:
    """Return cells of what the prototxt alone says."""
    phase, line = flags.PHASES[args.phase], parsed.lines.layer
    kept = shapes.layers_in_state(parsed.message, phase, args.level, flags.stages(args), line)
    return [
        [
            layer.name,
            layer.type,
            settings(layer) or "-",
            ", ".join(layer.bottom) or "-",
            ", ".join(layer.top) or "-",
            ", ".join(f"{p.name + ' ' if p.name else ''}{p.lr_mult:g}xLR {p.decay_mult:g}xDECAY" for p in layer.param)
            or "-",
        ]
        for layer in (parsed.message.layer[i] for i in kept)
    ]
