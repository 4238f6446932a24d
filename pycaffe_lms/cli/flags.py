"""Flags in gflags and GNU spelling: `-lms 1000`, `--lms=1000`, `-lms` bare, `-flag`/`-noflag` for booleans.

One spelling is declared and argv is rewritten first, because argparse alone would read `-lms_f` as `-l ms_f`.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar

from ..backend import BACKENDS
from ..errors import UsageError
from ..lms.config import COMPRESSED, LMSConfig, parse_size
from ..net.tuning import Tuning
from .examples import EXAMPLES

PROG = "pycaffe-lms"
_MOST = 2**31 - 1  # of a whole number, as in Caffe
BARE_LMS_KB = 1000  # PowerAI's -lms without a number
_LAYOUTS = {"auto": None, "nchw": False, "nhwc": True}


class _Parser(argparse.ArgumentParser):
    """Raises UsageError instead of exiting, with a near flag for an unknown one."""

    def error(self, message: str):
        raise UsageError(message, fix=f"see {self.prog} --help")

    def _print_message(self, message: str, file=None) -> None:
        """Write the help. Unlike argparse's own, raises OSError where the output takes no more."""
        (file or sys.stderr).write(message)


def gflags_style(argv: list[str]) -> list[str]:
    """Rewrite -name to --name; leave numbers such as -1, and what follows a lone --, alone. A value that looks like a
    flag (-1GB) is joined to the flag before it."""
    result: list[str] = []
    for i, arg in enumerate(argv):
        if arg == "--":
            return result + argv[i:]
        if re.match(r"-[\d.]+[A-Za-z]", arg) and result and result[-1].startswith("--") and "=" not in result[-1]:
            result[-1] += "=" + arg
        else:
            result.append(re.sub(r"^-(?=[A-Za-z_])", "--", arg))
    return result


def parser(action: str, description: str) -> argparse.ArgumentParser:
    """A parser for one action; its help ends with the action's example."""
    return _Parser(
        prog=f"{PROG} {action}",
        description=description,
        epilog=f"example:\n  {EXAMPLES[action]}" if action in EXAMPLES else None,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


class _Made(Exception):
    """Carries the parser that a command made, where only that is wanted."""

    def __init__(self, p: argparse.ArgumentParser):
        super().__init__(p.prog)
        self.parser = p


_only_parsers: ContextVar[bool] = ContextVar("_only_parsers", default=False)


def parser_of(run: Callable[[list[str]], int], words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """The parser that a command's `run` makes; it gets no further than `parse`. words: begin argv."""
    token = _only_parsers.set(True)
    try:
        run(list(words))
    except _Made as made:
        return made.parser
    finally:
        _only_parsers.reset(token)
    raise AssertionError(f"{run.__module__}.run does not call flags.parse")


def parse(p: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """Parse argv; an unknown flag is a UsageError that names near ones, also where a required one is missing.

    A command calls it before it does anything else (see `parser_of`)."""
    if _only_parsers.get():
        raise _Made(p)
    required = [a for a in p._actions if a.required and a.option_strings]
    for action in required:
        action.required = False
    if any("\0" in arg for arg in argv):
        raise UsageError("a word of the command line holds a NUL byte", fix=f"no name has one; see {p.prog} --help")
    # "intermixed": words may stand on both sides of a flag, as gflags allows, optional ones too
    known, unknown = p.parse_known_intermixed_args(_booleans(p, gflags_style(argv)))
    if unknown:
        flags = [o.lstrip("-") for a in p._actions for o in a.option_strings]
        typed = re.sub("^-+", "-", unknown[0])
        near = difflib.get_close_matches(typed.lstrip("-").split("=")[0], flags, n=1)
        hint = f"; did you mean -{near[0]}?" if near else ""
        what = "unknown flag" if typed.startswith("-") else "unexpected word"
        raise UsageError(f"{what} {typed!r}{hint}", fix=f"see {p.prog} --help")
    for action in p._actions:
        value = getattr(known, action.dest, None)
        if isinstance(value, int) and not -_MOST <= value <= _MOST:
            name = action.option_strings[-1].lstrip("-") if action.option_strings else action.dest
            raise UsageError(f"-{name} {str(value)[:40]} is too large", fix=f"give a number from {-_MOST} to {_MOST}")
    for action in required:
        if not getattr(known, action.dest):
            name = action.option_strings[0].lstrip("-")
            raise UsageError(f"-{name} is missing: {action.help}", fix=f"see {p.prog} --help")
    return known


def _booleans(p: argparse.ArgumentParser, argv: list[str]) -> list[str]:
    """gflags' spellings of booleans, -flag=true, -flag=false and -noflag, as argparse's: the flag or nothing."""
    names = [o for a in p._actions if isinstance(a, argparse._StoreTrueAction) for o in a.option_strings]
    off = {f"--no{n.lstrip('-')}" for n in names} | {f"{n}={v}" for n in names for v in ("false", "0", "no")}
    on = {f"{n}={v}": n for n in names for v in ("true", "1", "yes")}
    kept: list[str] = []
    for arg in argv:
        if arg in off:
            name = "--" + arg.split("=")[0].lstrip("-").removeprefix("no") if "=" not in arg else arg.split("=")[0]
            kept = [k for k in kept if k != name]
        else:
            kept.append(on.get(arg, arg))
    return kept


def add_state(p: argparse.ArgumentParser) -> None:
    """-level, -stage: the net's state."""
    p.add_argument(
        "--level",
        type=int,
        default=0,
        metavar="N",
        help="level of the net's state: layers whose min_level or max_level exclude it are left out",
    )
    p.add_argument(
        "--stage",
        default="",
        metavar="NAMES",
        help="comma list of stages of the net's state: layers with `include { stage: .. }` need theirs to be named",
    )


def stages(args: argparse.Namespace) -> list[str]:
    return [s for s in args.stage.split(",") if s]


def add_profile(p: argparse.ArgumentParser, which: str) -> None:
    """-profile: a trace of some iterations, `which` ones."""
    p.add_argument(
        "--profile",
        default="",
        metavar="FILE",
        help=f"write a trace of {which}: when every step and copy ran, for ui.perfetto.dev or chrome://tracing",
    )


def add_tuning(p: argparse.ArgumentParser, *, fuse: str = "on", pack: str = "on", graph: bool = True) -> None:
    """-layout, -fuse, -pack, -masks, and where the same is run again and again -graph: how a net is rearranged."""
    p.add_argument(
        "--layout",
        choices=tuple(_LAYOUTS),
        default="auto",
        help="how images lie in memory: nhwc where layers are faster so, nchw, or auto: nhwc on a GPU",
    )
    p.add_argument(
        "--fuse",
        choices=("on", "off"),
        default=fuse,
        help="run chains of layers such as BatchNorm, Scale, sum, ReLU as one, which reads and writes memory once, and "
        "let 1x1 convolutions add their gradient to that of a blob's other reader",
    )
    p.add_argument(
        "--pack",
        choices=("on", "off"),
        default=pack,
        help="without LMS: let gradients of blobs use the same device memory in turn",
    )
    p.add_argument(
        "--masks",
        choices=("on", "off"),
        default="on",
        help="with LMS: keep one bit per element for the backward of ReLU and its kin where no other layer's backward "
        "reads the values; results are the same",
    )
    if graph:
        p.add_argument(
            "--graph",
            choices=("on", "off"),
            default="on",
            help="on a GPU: record an iteration, with its copies, as a CUDA graph and replay it; results are the same",
        )


def half(args: argparse.Namespace) -> bool:
    """Whether -math says that hidden activations are stored as bfloat16."""
    return getattr(args, "math", "") == "bf16"


def tuning(args: argparse.Namespace) -> Tuning:
    """What -layout, -fuse, -pack, -masks, -graph and -math say."""
    graph = getattr(args, "graph", "off") == "on"
    fuse, pack, masks = (value == "on" for value in (args.fuse, args.pack, args.masks))
    return Tuning(channels_last=_LAYOUTS[args.layout], fuse=fuse, pack=pack, graph=graph, masks=masks, half=half(args))


_GPU = (
    "N,..",
    "number of the GPU to run on, an error where there is none; wins over solver_mode. A list or all: train runs a "
    "process on each, other commands use the first",
)


def add_device(p: argparse.ArgumentParser, gpu: tuple[str, str] = _GPU, budget: Sequence[str] = ()) -> None:
    """-gpu, -backend, and the LMS flags. gpu: what -gpu takes, and its help. budget: other names of -lms_budget."""
    p.add_argument("--gpu", default="", metavar=gpu[0], help=gpu[1])
    p.add_argument(
        "--backend",
        choices=BACKENDS,
        default=None,
        help="where layers run: cpu, cuda (a GPU), or sim, a simulated GPU, to try Large Model Support on "
        "(default: what -gpu and solver_mode say, else the GPU if there is one)",
    )
    p.add_argument(
        "--sim_order",
        choices=("latest", "earliest", "random"),
        default="latest",
        help="when the simulated device runs what is queued: at the latest or the earliest moment that events allow, "
        "or in a random legal order, so that a missing wait shows",
    )
    p.add_argument("--sim_seed", type=int, default=0, metavar="N", help="seed of the order of -sim_order random")
    p.add_argument(
        "--math",
        choices=("tf32", "fp32", "bf16"),
        default="tf32",
        help="float32 products on the GPU: tf32 may round inputs for tensor cores, fp32 does not; bf16: hidden "
        "activations and their gradients are stored in 16 bits, parameters and their updates in float32",
    )
    p.add_argument(
        "--workspace",
        default=None,
        metavar="SIZE",
        help="most device workspace of one convolution, where it can do with less (default: 512MB on a GPU)",
    )
    g = p.add_argument_group("Large Model Support")
    g.add_argument(
        "--lms",
        nargs="?",
        const=str(BARE_LMS_KB),
        default=None,
        metavar="KB",
        help="manage buffers larger than so many KB (of 1024 bytes); bare: 1000; zero, negative, off: off; auto: "
        "choose by predicted time what is copied, made again or stays",
    )
    g.add_argument(
        "--lms_frac",
        type=_number,
        default=0.0,
        metavar="F",
        help="0..1: manage only what comes after this share of GPU memory (of the budget) is demanded",
    )
    g.add_argument(
        "--lms_budget",
        *budget,
        default=None,
        metavar="SIZE",
        help="hard limit of device memory, such as 16GB; also how a smaller GPU is emulated",
    )
    g.add_argument(
        "--lms_ahead",
        type=_integer,
        default=None,
        metavar="K",
        help="most steps of look-ahead, as far as memory would be idle; 0: on demand (default: as much as fits)",
    )
    g.add_argument(
        "--lms_sync",
        type=_integer,
        default=0,
        metavar="M",
        help="0 none, 1 copies out, 2 copies in, 3 both wait for the layers (to measure and debug)",
    )
    g.add_argument(
        "--lms_exclude",
        type=_integer,
        default=None,
        metavar="MB",
        help="leave so many MB of the device's memory free: all other memory is used before anything is copied",
    )
    g.add_argument(
        "--lms_recompute",
        choices=("on", "off"),
        default=None,
        help="let cheap layers run again instead of copying their tops (default: on with -lms auto, else off)",
    )
    g.add_argument(
        "--lms_compress",
        choices=("off", *COMPRESSED),
        default="off",
        help="lossy: swapped activations and their gradients travel in 16 bits, half the bytes over the link and on "
        "the host; fp16 keeps 11 binary digits, up to 65504, bf16 8 of them, in the whole range (default: off, exact)",
    )
    g.add_argument(
        "--lms_split",
        default="off",
        metavar="N",
        help="auto: where a layer is larger than the memory, run it in parts of the batch, as few as fit; or a number: "
        "run all layers that can in so many parts; results then equal those of whole layers to rounding, not to the "
        "bit (default: off, what does not fit whole is refused)",
    )
    g.add_argument(
        "--lms_split_outputs",
        default=None,
        metavar="N",
        help="auto: where an InnerProduct's parameter, its gradient and history are larger than the memory, run it in "
        "blocks of its outputs, as few as fit; or a number: run each in so many blocks; results then equal those of "
        "whole layers to rounding, not to the bit (default: auto with -lms_split auto, else off)",
    )
    g.add_argument(
        "--lms_host",
        default=None,
        metavar="SIZE",
        help="most page-locked host memory; default: what the host has available",
    )
    g.add_argument(
        "--lms_pages",
        choices=("on", "off"),
        default="on",
        help="where the GPU has virtual memory: let large buffers lie in pages wherever some are free, so that no "
        "memory is lost between them",
    )


def add_plan(p: argparse.ArgumentParser) -> None:
    """-lms_plan, for what trains."""
    p.add_argument(
        "--lms_plan",
        default=None,
        metavar="FILE",
        help="the plans of training: read from FILE where it exists, else written to it; of several ranks "
        "(-gpu 0,1), rank 0 writes it when all have joined, and all read it",
    )


def lms_config(args: argparse.Namespace) -> LMSConfig:
    """The LMS flags as one value. Raises UsageError for values that mean nothing."""
    threshold, auto = 0, args.lms == "auto"
    if args.lms not in (None, "auto", "off"):
        try:
            threshold = int(args.lms)
        except ValueError:
            raise UsageError(
                f"-lms {args.lms!r} is not a number of KB",
                fix="-lms 1000 manages buffers larger than 1000 KB, -lms auto chooses",
            ) from None
    return LMSConfig(
        threshold_kb=max(threshold, 0),
        frac=args.lms_frac,
        budget=None if args.lms_budget is None else parse_size(args.lms_budget, "-lms_budget"),
        ahead=args.lms_ahead,
        sync=args.lms_sync,
        host_limit=None if args.lms_host is None else parse_size(args.lms_host, "-lms_host"),
        auto=auto,
        recompute=None if args.lms_recompute is None else args.lms_recompute == "on",
        exclude=None if args.lms_exclude is None else args.lms_exclude << 20,
        plan_file=getattr(args, "lms_plan", None),
        pages=args.lms_pages == "on",
        compress=None if args.lms_compress == "off" else args.lms_compress,
        split=_split(args.lms_split, "-lms_split", "parts") or None,
        split_outputs=_split(args.lms_split_outputs, "-lms_split_outputs", "blocks"),
    )


def _split(text: str | None, flag: str, what: str) -> int | str | None:
    if text in ("auto", "off", None):
        return 0 if text == "off" else text
    if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
        raise UsageError(f"{flag} {text!r} is no number of {what}", fix="use auto, off, or a number such as 4")
    return int(text)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
