"""Write docs/cli.md from the commands' own parsers; with --check, only say whether it is current."""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pycaffe_lms.cli.catalogue import Command, Flag, commands  # noqa: E402
from pycaffe_lms.cli.main import ACTIONS  # noqa: E402

FILE = ROOT / "docs" / "cli.md"
_SHARED = 3  # commands that have a flag in common: it is described once

_HEAD = """# The command line

Written by `tools/gen_cli_docs.py` from the commands themselves: change their help, not this file.

`pycaffe-lms COMMAND [flags]`, or `python -m pycaffe_lms COMMAND [flags]`. Flags are spelt as in Caffe or as elsewhere:
`-lms 1000`, `-lms=1000`, `--lms 1000` and `--lms=1000` are the same, and a flag without a value may be written `-flag`,
`-flag=true`, `-flag=false` or `-noflag`. Words and flags come in any order. `pycaffe-lms COMMAND --help` prints what
stands here, `pycaffe-lms --version` the version. Results go to stdout, the log to stderr.

Exit codes: 0 done, 1 something is wrong with the model or the data, 2 with the flags, 130 interrupted.
"""


def text(actions: dict[str, str] = ACTIONS) -> str:
    """The whole file."""
    found = commands(actions)
    count = Counter(_same(f) for c in found for f in c.flags if not f.positional)
    shared = {key for key, n in count.items() if n >= _SHARED}
    lines = [_HEAD, "| command | what it does |", "|---|---|"]
    lines += [f"| [{c.words}](#{_anchor(c.words)}) | {_cell(c.what)} |" for c in found]
    for command in found:
        lines += _section(command, shared)
    return "\n".join([*lines, *_shared_flags(found, shared)]) + "\n"


def _section(command: Command, shared: set) -> list[str]:
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
        lines += [f"| `{f.name}` | {_cell(_help(f))} |" for f in words]
    if own:
        lines += ["", *_table(own)]
    others = [f for f in command.flags if not f.positional and _same(f) in shared]
    if others:
        listed = ", ".join(f"`-{f.name}`" for f in others)
        lines += ["", f"[Flags of several commands](#flags-of-several-commands): {listed}."]
    return lines


def _shared_flags(found: list[Command], shared: set) -> list[str]:
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
        lines.append(line.removeprefix("  ") if inside else line)
    return [*lines, *(["```"] if inside else [])]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _anchor(words: str) -> str:
    return words.replace(" ", "-")


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description="Write docs/cli.md from the commands' parsers.")
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    check, wanted = parser.parse_args(argv).check, text().encode()
    if FILE.is_file() and FILE.read_bytes() == wanted:
        return 0
    if not check:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_bytes(wanted)
    print(f"{'not current' if check else 'written'}: {FILE.name}")
    return int(check)


if __name__ == "__main__":
    sys.exit(main())
