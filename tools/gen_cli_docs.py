"""Write docs/cli.md from the commands' own parsers; with --check, only say whether it is current."""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pages import write_or_check  # noqa: E402

from pycaffe_lms.cli import flags  # noqa: E402
from pycaffe_lms.cli.catalogue import COMMANDS, module_of  # noqa: E402
from pycaffe_lms.lms.config import LMSConfig  # noqa: E402
from pycaffe_lms.options import options_of  # noqa: E402
from pycaffe_lms.pycaffe.lms import keywords  # noqa: E402

FILE = ROOT / "docs" / "cli.md"
_SHARED = 3  # commands that have a flag in common: it is described once

_HEAD = """# The command line

<!-- Written by `tools/gen_cli_docs.py` from the commands' help; do not edit. -->

`pycaffe-lms COMMAND [flags]`, or `python -m pycaffe_lms COMMAND [flags]`. Flags have one hyphen, as in Caffe, or two:
`-lms 1000`, `-lms=1000`, `--lms 1000` and `--lms=1000` are the same, and a flag without a value may be written `-flag`,
`-flag=true`, `-flag=false` or `-noflag`. Words and flags come in any order; a file that Caffe gives as a flag, such as
`-model net.prototxt`, may be given as a word. `pycaffe-lms COMMAND -help` prints the usual flags, `-help all` what is
written here, `pycaffe-lms --version` the version. Results go to stdout, the log to stderr.

Exit codes: 0 done, 1 an error in the model or the data, 2 in the flags, 130 interrupted.
"""


_KEYWORDS = """
## Settings of Large Model Support in Python

Nets and solvers take `lms=caffe.LMS(...)` with these keywords, which do what their flags do.

| keyword | flag | takes | default |
|---|---|---|---|
"""


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


@dataclass(frozen=True)
class Section:
    """words: how a command is called, such as "dataset imagenet". what: what it does, in a line. about: at length."""

    words: str
    what: str
    about: str
    usage: str
    example: str
    flags: tuple[Flag, ...]


def section(words: str, p: argparse.ArgumentParser) -> Section:
    """What is to be said of a command with this parser."""
    about = (p.description or "").removeprefix(f"`{flags.PROG} {words}`: ")
    example = (p.epilog or "").removeprefix("example:").strip()
    entries = tuple(
        _flag(p, action, "" if group in (p._positionals, p._optionals) else group.title or "")
        for group in p._action_groups
        for action in group._group_actions
        if not isinstance(action, argparse._HelpAction)
    )
    usage = " ".join([f"{flags.PROG} {words}", *filter(None, map(_usage, entries)), "[flags]"])
    return Section(words, COMMANDS[words].what, about, usage, example, entries)


def _flag(p: argparse.ArgumentParser, action: argparse.Action, group: str) -> Flag:
    positional = not action.option_strings
    name = action.dest if positional else action.option_strings[0].lstrip("-")
    choices = tuple(str(c) for c in action.choices or ())
    metavar = action.metavar if isinstance(action.metavar, str) else None
    takes = action.nargs != 0
    value = (metavar or ("|".join(choices) if choices else _plain(action))) if takes else ""
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
        required=(
            action.required if not positional else action.nargs not in ("?", "*") or getattr(action, "needed", False)
        ),
        group=group,
    )


def _plain(action: argparse.Action) -> str:
    """What stands for a value nobody named: a number where the flag's type is one, else a file."""
    return {int: "N", float: "X"}.get(action.type, "N" if action.type else "FILE")


def _usage(flag: Flag) -> str:
    if flag.positional:
        return flag.name if flag.required else f"[{flag.name}]"
    return f"-{flag.name} {flag.value}" if flag.required else ""


def text(commands: Iterable[str] = COMMANDS) -> str:
    """The whole file, or a file of these commands."""
    found = [section(words, module_of(words).build_parser()) for words in commands]
    count = Counter(_same(f) for c in found for f in c.flags if not f.positional)
    shared = {key for key, n in count.items() if n >= _SHARED}
    lines = [_HEAD, "| command | what it does |", "|---|---|"]
    lines += [f"| [{c.words}](#{_anchor(c.words)}) | {_cell(c.what)} |" for c in found]
    for command in found:
        lines += _section(command, shared)
    options = options_of(LMSConfig)
    settings = [
        f"| `{name}` | `-{options[name].flag}` | {takes} | {f'`{default!r}`' if default is not None else ''} |"
        for name, takes, default, _ in keywords()
    ]
    return "\n".join([*lines, *_shared_flags(found, shared)]) + "\n" + _KEYWORDS + "\n".join(settings) + "\n"


def _section(command: Section, shared: set) -> list[str]:
    lines = [
        "",
        f"## {command.words}",
        "",
        *_paragraphs(command.about[:1].upper() + command.about[1:]),
        "",
        "```",
        command.usage,
        "```",
    ]
    if command.example:
        lines += ["", "For example:", "", "```", command.example, "```"]
    words = [f for f in command.flags if f.positional]
    own = [f for f in command.flags if not f.positional and _same(f) not in shared]
    if words:
        lines += ["", "| word | what it is |", "|---|---|"]
        lines += [f"| `{_cell(f.name)}` | {_cell(_help(f))} |" for f in words]
    if own:
        lines += ["", *_table(own)]
    others = [f for f in command.flags if not f.positional and _same(f) in shared]
    if others:
        listed = ", ".join(f"`-{f.name}`" for f in others)
        lines += ["", f"[Flags of several commands](#flags-of-several-commands): {listed}."]
    return lines


def _shared_flags(found: list[Section], shared: set) -> list[str]:
    groups: dict[str, dict[tuple, Flag]] = defaultdict(dict)
    for command in found:
        for flag in command.flags:
            if not flag.positional and _same(flag) in shared:
                groups[_group(flag)].setdefault(_same(flag), flag)
    lines = ["", "## Flags of several commands"] if groups else []
    for title in sorted(groups):
        lines += ["", *([f"### {title}", ""] if title else []), *_table(list(groups[title].values()))]
    return lines


def _table(flags: list[Flag]) -> list[str]:
    rows = [
        f"| `-{f.name}{' ' + _cell(f.value) if f.value else ''}` | {f'`{_cell(f.default)}`' if f.default else ''} | "
        f"{_cell(_help(f))} |"
        for f in flags
    ]
    return ["| flag | default | what it does |", "|---|---|---|", *rows]


def _help(flag: Flag) -> str:
    """The default has a column of its own."""
    text = flag.help.removesuffix(f" (default: {flag.default})")
    return text + (" (required)" if flag.required and not flag.positional else "")


def _same(flag: Flag) -> tuple:
    return flag.name, flag.value, flag.choices, flag.default, flag.help


def _group(flag: Flag) -> str:
    return "" if flag.group.lower() in ("options", "optional arguments", "positional arguments") else flag.group


def _paragraphs(about: str) -> list[str]:
    """Text as it stands; indented lines become a block."""
    lines: list[str] = []
    inside = False
    for line in about.strip().split("\n"):
        indented = line.startswith("  ") and (inside or not lines or lines[-1] == "" or lines[-1].endswith(":"))
        if indented != inside:
            lines += ["```"] if inside else ([] if lines and lines[-1] == "" else [""]) + ["```"]
            inside = indented
        lines.append(line.removeprefix("  ") if inside else line.replace("*", "\\*"))
    return [*lines, *(["```"] if inside else [])]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _anchor(words: str) -> str:
    return words.replace(" ", "-")


def main(argv: list[str] | None = None) -> int:
    """Write docs/cli.md, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write docs/cli.md from the commands' parsers.", argv)


if __name__ == "__main__":
    sys.exit(main())
