"""Write the help of a command: its usual flags, at most a screen of them (`-help`), or all (`-help all`).

A parser says which flags are usual (`Parser.common`). The short help shows the first clause of each flag's help, up to
a semicolon, and the names of all other flags.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Collection, Iterable, Iterator
from itertools import groupby

WIDTH = 80  # characters of a line
_INDENT, _COLUMN, _GAP = 2, 26, 2  # of an entry; where its text begins; least space before it


def short(p: argparse.ArgumentParser, common: Collection[str]) -> str:
    """Return the help with these flags (empty: all), and the names of all others."""
    if not common:
        return full(p)
    flags = [a for a in _shown(p._actions) if a.option_strings]
    rest = [a for a in flags if not _named(a) & set(common)]
    lines = [*_head(p, (p.description or "").split("\n\n")[0]), *_groups(p, common, hide=rest, whole=False)]
    if rest:
        names = ", ".join(f"-{name_of(a)}" for a in rest)
        lines += ["", f"more flags, which `{p.prog} -help all` explains:", *_wrapped(names)]
    else:
        lines += ["", f"`{p.prog} -help all` says more."]
    return "\n".join([*lines, *_tail(p)])


def full(p: argparse.ArgumentParser, common: Collection[str] = ()) -> str:
    """Return the help with all flags, these first."""
    return "\n".join([*_head(p, p.description or ""), *_groups(p, common, hide=(), whole=True), *_tail(p)])


def usage(p: argparse.ArgumentParser) -> str:
    """Return how the command is called: its words, and the flags that it cannot do without."""
    entries = [a for a in _shown(p._actions) if not a.option_strings or a.required]
    flags = ["[flags]"] if any(a.option_strings for a in _shown(p._actions)) else []
    return " ".join([p.prog, *map(_in_usage, entries), *flags])


def name_of(action: argparse.Action) -> str:
    """Return what a flag is called, or a word: "weights", "MODEL"."""
    if action.option_strings:
        return action.option_strings[0].lstrip("-")
    return action.metavar if isinstance(action.metavar, str) else action.dest


def value_of(action: argparse.Action) -> str:
    """Return what stands for a flag's value; "" if it takes none."""
    if action.nargs == 0 or not action.option_strings:
        return ""
    named = action.metavar if isinstance(action.metavar, str) else None
    value = named or ("|".join(map(str, action.choices)) if action.choices else _kind(action))
    return f"[{value}]" if action.nargs == "?" else value


def default_of(action: argparse.Action) -> str:
    """Return the value that holds without the flag, as text; "" if there is none to tell."""
    none = action.default in (None, "", False, [], argparse.SUPPRESS)
    return "" if none or not action.option_strings or action.nargs == 0 else str(action.default)


def _kind(action: argparse.Action) -> str:
    """Return a number's letter where the flag's type is one, else FILE."""
    return {int: "N", float: "X"}.get(action.type, "N" if action.type else "FILE")  # type: ignore[call-overload, no-any-return]


def _shown(actions: Iterable[argparse.Action]) -> Iterator[argparse.Action]:
    """Yield the actions that help tells of."""
    for action in actions:
        if not isinstance(action, argparse._HelpAction) and action.help is not argparse.SUPPRESS:
            yield action


def _named(action: argparse.Action) -> set[str]:
    return {o.lstrip("-") for o in action.option_strings}


def _in_usage(action: argparse.Action) -> str:
    if action.option_strings:
        return f"-{name_of(action)} {value_of(action)}"
    optional = action.nargs in ("?", "*") and not getattr(action, "needed", False)
    return f"[{name_of(action)}]" if optional else name_of(action)


def _head(p: argparse.ArgumentParser, about: str) -> list[str]:
    about = about.strip().removeprefix(f"`{p.prog}`: ")
    lines = textwrap.wrap(f"usage: {usage(p)}", WIDTH, subsequent_indent=" " * 7, break_on_hyphens=False)
    return [*lines, "", *_paragraphs(about[:1].upper() + about[1:])]


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the lines of a text, wrapped; those that are indented stay as they are."""
    for indented, some in groupby(text.split("\n"), key=lambda line: line[:1] in ("", " ")):
        lines = list(some)
        yield from lines if indented else textwrap.wrap(" ".join(lines), WIDTH, break_on_hyphens=False)


def _tail(p: argparse.ArgumentParser) -> list[str]:
    return ["", *p.epilog.split("\n"), ""] if p.epilog else [""]


def _groups(
    p: argparse.ArgumentParser, common: Collection[str], hide: Collection[argparse.Action], whole: bool
) -> Iterator[str]:
    """Yield the entries, without those to hide, group by group, in each the common ones first, in their order."""
    rank = {name: k for k, name in enumerate(common)}
    for group in p._action_groups:
        entries = [a for a in _shown(group._group_actions) if a not in hide]
        if entries:
            words = group is p._positionals
            yield from [""] if words else ["", f"{'flags' if group is p._optionals else group.title}:"]
            for action in sorted(entries, key=lambda a: min((rank.get(n, len(rank)) for n in _named(a)), default=0)):
                yield from _entry(p, action, whole)


def _entry(p: argparse.ArgumentParser, action: argparse.Action, whole: bool) -> Iterator[str]:
    """Yield the lines about a flag or a word."""
    names = [f"-{o.lstrip('-')}" for o in action.option_strings] if whole else []
    left = " " * _INDENT + " ".join(filter(None, [", ".join(names) or _flag_or_word(action), value_of(action)]))
    about = (action.help or "") % {**vars(action), "prog": p.prog}
    about = about if whole else about.split("; ")[0]
    if (default := default_of(action)) and "default:" not in about:
        about += f" (default: {default})"
    lines = textwrap.wrap(about, WIDTH - _COLUMN, break_on_hyphens=False)
    if len(left) + _GAP > _COLUMN:
        yield left
    else:
        yield left.ljust(_COLUMN) + lines.pop(0)
    yield from (" " * _COLUMN + line for line in lines)


def _flag_or_word(action: argparse.Action) -> str:
    return f"-{name_of(action)}" if action.option_strings else name_of(action)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * _INDENT, subsequent_indent=" " * _INDENT, break_on_hyphens=False
    )
