"""Every command with its parser, for completion and documentation: nothing is listed twice.

A command is a line of `main.ACTIONS`, or one of its module's `OWN_FLAGS` ("dataset imagenet"). Its `run(argv)` makes a
parser and hands it to `flags.parse`, which is where it is taken from.
"""

from __future__ import annotations

import argparse
import importlib
from dataclasses import dataclass

from . import flags

_FOLDER, _FILE = ("DIR", "FOLDER"), ("FILE", "DB", "LIST", "IMAGES", "LABELS", "LOG")


@dataclass(frozen=True)
class Flag:
    """One flag, or a word without a flag (`name` is then what the usage calls it).

    value: what stands for its value in the usage, "" where it takes none. default: as text, "" where there is none to
    tell. group: the heading it stands under, "" for a command's own."""

    name: str
    positional: bool
    value: str
    choices: tuple[str, ...]
    default: str
    help: str
    required: bool
    group: str

    @property
    def kind(self) -> str:
        """What its value is, for completion: "choice", "folder", "file" or "other"; "" where it takes none."""
        if not self.value or self.choices:
            return "choice" if self.choices else ""
        words = self.value.upper()
        if any(w in words for w in _FOLDER):
            return "folder"
        return "file" if any(w in words for w in _FILE) else "other"


@dataclass(frozen=True)
class Command:
    """words: how it is called, such as "dataset imagenet". what: what it does, in a line. about: at length."""

    words: str
    what: str
    about: str
    usage: str
    example: str
    flags: tuple[Flag, ...]


def commands(actions: dict[str, str]) -> list[Command]:
    """All commands of a table such as `main.ACTIONS`, in its order."""
    found = []
    for action, what in actions.items():
        module = importlib.import_module(f"pycaffe_lms.cli.commands.{action}")
        found.append(_command(module, action, (), what))
        for sub, sub_what in getattr(module, "OWN_FLAGS", {}).items():
            found.append(_command(module, action, (sub,), sub_what))
    return found


def _command(module, action: str, sub: tuple[str, ...], what: str) -> Command:
    p = flags.parser_of(module.run, sub)
    words = " ".join((action, *sub))
    about = (p.description or "").removeprefix(f"`{flags.PROG} {words}`: ")
    example = (p.epilog or "").removeprefix("example:").strip()
    entries = tuple(
        _flag(p, action, "" if group in (p._positionals, p._optionals) else group.title or "")
        for group in p._action_groups
        for action in group._group_actions
        if not isinstance(action, argparse._HelpAction)
    )
    usage = " ".join([f"{flags.PROG} {words}", *filter(None, map(_usage, entries)), "[flags]"])
    return Command(words, what, about, usage, example, entries)


def _flag(p: argparse.ArgumentParser, action: argparse.Action, group: str) -> Flag:
    positional = not action.option_strings
    name = action.dest if positional else action.option_strings[0].lstrip("-")
    choices = tuple(str(c) for c in action.choices or ())
    metavar = action.metavar if isinstance(action.metavar, str) else None
    takes = action.nargs != 0
    value = (metavar or ("|".join(choices) if choices else _plain(action, name))) if takes else ""
    if value and action.nargs == "?" and not positional:
        value = f"[{value}]"
    shown = action.default not in (None, "", False, [], argparse.SUPPRESS) and not positional
    return Flag(
        name=(metavar or name) if positional else name,
        positional=positional,
        value=value,
        choices=choices,
        default=str(action.default) if shown else "",
        help=(action.help or "") % {**vars(action), "prog": p.prog},
        required=action.required if not positional else action.nargs not in ("?", "*"),
        group=group,
    )


def _plain(action: argparse.Action, name: str) -> str:
    """What stands for a value nobody named: a number where the flag's type is one, else a file."""
    return {int: "N", float: "X"}.get(action.type, "N" if action.type else "FILE")


def _usage(flag: Flag) -> str:
    if flag.positional:
        return flag.name if flag.required else f"[{flag.name}]"
    return f"-{flag.name} {flag.value}" if flag.required else ""
