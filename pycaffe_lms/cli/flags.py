"""Parse flags in gflags and GNU spelling (`-lms 1000`, `--lms=1000`, `-flag`/`-noflag`), and declare shared ones.

One spelling is declared and argv is rewritten first, because argparse alone would read `-lms_f` as `-l ms_f`. Flags of
settings come from the `Option`s of their fields (`options.py`): `add_settings` declares them, `settings_of` reads them.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar

from ..backend import BACKENDS
from ..errors import UsageError
from ..lms.config import LMSConfig
from ..net.tuning import Tuning
from ..options import MOST, options_of
from ..proto.caffe_pb2 import TEST, TRAIN
from ..pycaffe.mode import MATH
from . import help
from .catalogue import COMMANDS

PROG = "pycaffe-lms"
_NEAR = 0.7  # how alike an unknown flag and the one that is offered for it must be, 0 to 1
PHASES = {"TRAIN": TRAIN, "TEST": TEST}
_Settings = TypeVar("_Settings")


class Word(NamedTuple):
    """Describe a word that may be given as a flag instead: the two actions, of which one is used."""

    word: argparse.Action
    flag: argparse.Action
    required: bool


class Parser(argparse.ArgumentParser):
    """Raise UsageError instead of exiting.

    Attributes:
        gpu_may_be_bare: `-gpu` without a number means GPU 0, as in Caffe's scripts.
        refused: flags of other commands, by name without hyphens, that would mean nothing here, and why.
        common: names of the flags that the short help explains; empty: all.
        words: words that may be given as flags instead, by the attribute that holds the value.
    """

    gpu_may_be_bare = False
    refused: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *args: Any, common: Collection[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.common = common
        self.words: dict[str, Word] = {}

    def format_help(self) -> str:
        """Return the short help."""
        return help.short(self, self.common)

    def error(self, message: str) -> NoReturn:
        fix = f"see {self.prog} --help"
        if wrong := re.match(r"argument (?:--)?(\S+): (?P<what>.*)", message):
            name, what = ("-" if message.startswith("argument --") else "") + wrong[1].split("/")[0], wrong["what"]
            if choice := re.match(r"invalid choice: (.+?) \(choose from (.*)\)", what):
                message, fix = f"{name} {choice[1]} does not exist", f"use {choice[2].replace(chr(39), '')}"
            elif number := re.match(r"invalid (int|float) value: (.*)", what):
                message = f"{name} {number[2]} is not a {'whole ' * (number[1] == 'int')}number"
            else:
                message = f"{name}: {what}"
        raise UsageError(message, fix=fix)


def parser(words: str, description: str, common: str = "") -> Parser:
    """Return a parser for a command; its help ends with the command's example.

    common: the flags that the short help explains, by name, with spaces between them; "": all.
    """
    return Parser(
        common=common.split(),
        prog=f"{PROG} {words}",
        description=description,
        epilog=f"example:\n  {PROG} {words} {COMMANDS[words].example}" if words in COMMANDS else None,
        allow_abbrev=False,
    )


def add_word(
    p: Parser,
    name: str,
    what: str,
    *,
    names: Sequence[str] = (),
    value: str = "FILE.prototxt",
    required: bool = True,
) -> None:
    """Declare a word that Caffe's scripts give as a flag: MODEL, or -model MODEL. With the flag, the word is left out.

    Args:
        name: of the flag, and of the attribute that holds the value.
        what: its help.
        names: other names of the flag.
        value: what stands for the flag's value in help.
        required: one of the two must be given.
    """
    word = p.add_argument(name, metavar=name.upper(), nargs="?", help=what)
    word.needed = required  # type: ignore[attr-defined]
    spelled = [f"--{n}" for n in (name, *names)]
    flag = p.add_argument(*spelled, dest=name, metavar=value, help=f"{name.upper()}, given as a flag")
    p.words[name] = Word(word, flag, required)


def gflags_style(argv: list[str]) -> list[str]:
    """Rewrite -name to --name; leave -h, numbers such as -1, and what follows a lone --, as they are.

    A value that looks like a flag (-1GB) is joined to the flag before it."""
    result: list[str] = []
    for i, arg in enumerate(argv):
        if arg == "--":
            return result + argv[i:]
        if re.match(r"-[\d.]+[A-Za-z]", arg) and result and result[-1].startswith("--") and "=" not in result[-1]:
            result[-1] += "=" + arg
        else:
            result.append(re.sub(r"^-(?=[A-Za-z_])(?!h$)", "--", arg))
    return result


def parse(p: Parser, argv: list[str]) -> argparse.Namespace:
    """Parse argv. Raises UsageError: an unknown flag is named before a required one that is missing.

    Prints the help and raises SystemExit for -h, -help, --help, and `-help all`, which prints all flags.
    """
    argv = gflags_style(argv)
    _answer_help(p, argv)
    required = [a for a in p._actions if a.required and a.option_strings]
    for action in required:
        action.required = False
    given = {arg.split("=")[0] for arg in argv[: argv.index("--") if "--" in argv else None]}
    for word in p.words.values():
        if given & set(word.flag.option_strings):
            p._actions.remove(word.word)
    if any("\0" in arg for arg in argv):
        raise UsageError("a word of the command line holds a NUL byte", fix=f"no name has one; see {p.prog} --help")
    if p.gpu_may_be_bare:
        argv = [
            f"{arg}=0" if arg in ("-gpu", "--gpu") and not re.fullmatch(r"[\d,]+", after) else arg
            for arg, after in zip_longest(argv, argv[1:], fillvalue="")
        ]
    # "intermixed": words may stand on both sides of a flag, as gflags allows, optional ones too
    known, unknown = p.parse_known_intermixed_args(_booleans(p, argv))
    if unknown:
        flags = [o.lstrip("-") for a in p._actions for o in a.option_strings]
        typed = re.sub("^-+", "-", unknown[0])
        name = typed.lstrip("-").split("=")[0]
        if typed.startswith("-") and name in p.refused:
            raise UsageError(f"-{name}: {p.refused[name]}", fix=f"leave -{name} out")
        near = difflib.get_close_matches(name, flags, n=1, cutoff=_NEAR)
        hint = f"; did you mean -{near[0]}?" if near else ""
        what = "unknown flag" if typed.startswith("-") else "unexpected word"
        twice = [name for name, word in p.words.items() if what == "unexpected word" and word.word not in p._actions]
        if twice:
            hint = "".join(f"; {name.upper()} is given as a flag already" for name in twice)
        raise UsageError(f"{what} {typed!r}{hint}", fix=f"see {p.prog} --help")
    for action in p._actions:
        value = getattr(known, action.dest, None)
        if isinstance(value, int) and not -MOST <= value <= MOST:
            name = action.option_strings[-1].lstrip("-") if action.option_strings else action.dest
            raise UsageError(f"-{name} {str(value)[:40]} is too large", fix=f"give a number from {-MOST} to {MOST}")
    for action in required:
        if not getattr(known, action.dest):
            name = action.option_strings[0].lstrip("-")
            raise UsageError(f"-{name} is missing: {action.help}", fix=f"see {p.prog} --help")
    for name, word in p.words.items():
        if word.required and not getattr(known, name):
            others = [help.name_of(a) for a in p._actions if not a.option_strings and a.nargs in (None, "+")]
            said = f"{name.upper()} is missing: {word.word.help}"
            if others:  # which word is missing is not known
                said = f"too few words: there must be {' '.join([name.upper(), *others])}"
            raise UsageError(said, fix=f"give {name.upper()}, or -{name} {name.upper()}; see {p.prog} --help")
    return known


def _answer_help(p: Parser, argv: list[str]) -> None:
    """Print the help that is asked for, and raise SystemExit."""
    for at, arg in enumerate(argv):
        if arg == "--":
            return
        if arg in ("-h", "--help", "--help=all"):
            everything = arg.endswith("=all") or argv[at + 1 : at + 2] == ["all"]
            sys.stdout.write(help.full(p, p.common) if everything else p.format_help())
            raise SystemExit(0)


def _booleans(p: Parser, argv: list[str]) -> list[str]:
    """Rewrite gflags' -flag=true, -flag=False and -noflag to argparse's spelling: the flag or nothing."""
    names = [o for a in p._actions if isinstance(a, argparse._StoreTrueAction) for o in a.option_strings]
    negated = {f"--no{name.lstrip('-')}": name for name in names}
    kept: list[str] = []
    for arg in argv:
        name, _, value = arg.partition("=")
        if arg in negated or (name in names and value.lower() in ("false", "f", "0", "no", "n")):
            kept = [k for k in kept if k != negated.get(arg, name)]
        else:
            kept.append(name if name in names and value.lower() in ("true", "t", "1", "yes", "y") else arg)
    return kept


def add_settings(
    p: argparse._ActionsContainer,
    kind: type,
    *,
    without: Collection[str] = (),
    defaults: Mapping[str, str] | None = None,
    names: Mapping[str, Sequence[str]] | None = None,
) -> None:
    """Declare the flags of a settings class.

    Args:
        without: fields that get no flag.
        defaults: texts in force without the flag, by field, where they differ from the option's.
        names: other names of the flag, by field.
    """
    for name, option in options_of(kind).items():
        if option.has_flag and name not in without:
            p.add_argument(
                f"--{option.flag}",
                *(names or {}).get(name, ()),
                nargs=None if option.bare is None else "?",
                const=option.bare,
                choices=option.choices or None,
                default=(defaults or {}).get(name, option.default),
                metavar=option.value or None,
                help=option.help,
            )


def settings_of(kind: type[_Settings], args: argparse.Namespace, **known: Any) -> _Settings:
    """Return the settings that parsed flags say. known: values of fields for which there is no flag. Raises UsageError
    for values that mean nothing."""
    for name, option in options_of(kind).items():
        text = getattr(args, option.flag, None)
        if text is not None:
            value = option.parse(text, f"-{option.flag}")
            known |= value if isinstance(value, dict) else {name: value}
    return kind(**known)


def check_place(path: str, flag: str) -> None:
    """Raise UsageError if no file of that name can be made, before hours of work; "" is no file."""
    if path and (not Path(path).absolute().parent.is_dir() or Path(path).is_dir()):
        raise UsageError(f"{flag} {path}: no file can be written there", fix="give a file in a folder that exists")


def add_state(p: argparse._ActionsContainer) -> None:
    """Declare -level and -stage, the net's state."""
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
        help="comma list of stages of the net's state: layers with `include { stage: .. }` are kept if theirs is named",
    )


def stages(args: argparse.Namespace) -> list[str]:
    """Return what -stage lists."""
    return [s for s in args.stage.split(",") if s]


def add_profile(p: argparse.ArgumentParser, which: str) -> None:
    """Declare -profile, a trace of the iterations `which`."""
    p.add_argument(
        "--profile",
        default="",
        metavar="FILE",
        help=f"write a trace of {which}: when every step and copy ran, for ui.perfetto.dev or chrome://tracing",
    )


def add_tuning(
    p: argparse.ArgumentParser, *, fuse: str = "on", pack: str = "on", without: Collection[str] = ()
) -> None:
    """Declare how a net is rearranged: -layout, -fuse, -pack, -masks, -graph.

    without: those that mean nothing to the command: "graph" where nothing is run many times, "masks" without backward.
    """
    add_settings(p, Tuning, without=without, defaults={"fuse": fuse, "pack": pack})


def tuning(args: argparse.Namespace) -> Tuning:
    """Return what -layout, -fuse, -pack, -masks, -graph and -math say."""
    return settings_of(Tuning, args, graph=False, half=half(args))


def half(args: argparse.Namespace) -> bool:
    """Tell whether -math asks for hidden activations in bfloat16."""
    return getattr(args, "math", "") == "bf16"


def add_cache(p: argparse._ActionsContainer, what: str, default: str) -> None:
    """Declare -cache, the folder for `what`; default: the folder without the flag."""
    text = f"folder in which {what}; off: keep none (default: {default} in the user's cache folder)"
    p.add_argument("--cache", default="", metavar="DIR", help=text)


_GPU = (
    "N,..",
    "number of the GPU to run on; an error if there is none; overrides solver_mode. A list or all: train runs a "
    "process on each, other commands use the first",
)


def add_device(
    p: argparse.ArgumentParser,
    gpu: tuple[str, str] = _GPU,
    *,
    budget: Sequence[str] = (),
    trains: bool = False,
    without: Collection[str] = (),
) -> None:
    """Declare where a net runs: -gpu, -backend and their like, and the LMS flags.

    Args:
        gpu: what stands for the value of -gpu, and its help.
        budget: other names of -lms_budget.
        trains: the command trains, so it has -lms_plan.
        without: settings of Large Model Support that the command declares itself.
    """
    p.add_argument("--gpu", default="", metavar=gpu[0], help=gpu[1])
    p.add_argument(
        "--backend",
        choices=BACKENDS,
        default=None,
        help="where layers run: cpu, cuda (a GPU), or sim, a simulated GPU; sim is for trying Large Model Support "
        "without a GPU (default: what -gpu or solver_mode says, else the GPU if there is one)",
    )
    p.add_argument(
        "--sim_order",
        choices=("latest", "earliest", "random"),
        default="latest",
        help="when the simulated device runs queued work: at the latest or the earliest moment that events allow, or "
        "in a random legal order, which reveals a missing wait",
    )
    p.add_argument("--sim_seed", type=int, default=0, metavar="N", help="seed of the order of -sim_order random")
    p.add_argument(
        "--math",
        choices=MATH,
        default=MATH[0],
        help="float32 products on the GPU: tf32 may round inputs for tensor cores, fp32 does not; bf16: hidden "
        "activations and their gradients are stored in 16 bits, parameters and their updates in float32",
    )
    kept = (
        "a GPU's fastest algorithms of convolutions (engines), compiled kernels and plans of large nets (found_plans)"
    )
    add_cache(p, f"{kept} are kept, so that the next start takes seconds", "pycaffe_lms")
    p.add_argument(
        "--workspace",
        default=None,
        metavar="SIZE",
        help="most device workspace of one convolution, unless it needs more to run at all (default: 512MB on a GPU, "
        "64MB on the CPU, 64KB simulated)",
    )
    without = [*without, *(n for n, option in options_of(LMSConfig).items() if option.for_training and not trains)]
    add_settings(p.add_argument_group("Large Model Support"), LMSConfig, without=without, names={"budget": budget})


def lms_config(args: argparse.Namespace) -> LMSConfig:
    """Return what the LMS flags say. Raises UsageError for values that mean nothing."""
    return settings_of(LMSConfig, args)
