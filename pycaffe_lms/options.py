"""Declare an option once: a field of a settings class carries an `Option`, and everything else is made from it.

From the metadata of `lms/config.py` and `net/tuning.py` are made: the flag and its help (`cli/flags.py`), the check
of the value with its error (`Option.check`), the keyword of `caffe.LMS(...)` with its documentation
(`pycaffe/lms.py`) and the rows of docs/cli.md (`tools/gen_cli_docs.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from .errors import UsageError

MOST = 2**31 - 1  # of a whole number on the command line, as in Caffe


@dataclass(frozen=True)
class Limit:
    """Say what must hold for a value that is given.

    Attributes:
        holds: tell whether a value is right.
        says: the error's message; {flag} and {value} stand for themselves.
        fix: how to put it right; {flag} as above.
    """

    holds: Callable[[Any], bool]
    says: str
    fix: str


@dataclass(frozen=True, kw_only=True)
class Option:
    """Describe one setting.

    Attributes:
        flag: name on the command line, without hyphens; "lms auto" is no flag of its own but a value of `-lms`.
        help: what it does, one sentence for --help, the keyword and docs/cli.md.
        value: what stands for its value in help; "": its choices.
        choices: texts that the command line takes; (): any that `parse` takes.
        default: text in force without the flag; None: the field's default.
        bare: text that the flag alone stands for; None: it needs a value.
        parse: (text, flag as written) -> the field's value, or a dict of several fields; raises UsageError.
        limits: what must hold for a value other than None.
        is_size: the keyword takes bytes, or text such as "16GB".
        needs_lms: a value other than None and False is an error while LMS is off.
        for_training: only commands that train have the flag.
    """

    flag: str
    help: str
    value: str = ""
    choices: tuple[str, ...] = ()
    default: str | None = None
    bare: str | None = None
    parse: Callable[[str, str], Any] = lambda text, flag: text
    limits: tuple[Limit, ...] = ()
    is_size: bool = False
    needs_lms: bool = False
    for_training: bool = False

    @property
    def has_flag(self) -> bool:
        """Tell whether it has a flag of its own."""
        return " " not in self.flag

    def check(self, value: Any) -> None:
        """Raise UsageError for a value that breaks a limit."""
        for limit in self.limits:
            if value is not None and not limit.holds(value):
                flag = f"-{self.flag}"
                raise UsageError(limit.says.format(flag=flag, value=value), fix=limit.fix.format(flag=flag))


def option(field_default: Any, **described: Any) -> Any:
    """Return a dataclass field with that default and an `Option` of these attributes."""
    return field(default=field_default, metadata={"option": Option(**described)})


def switch(field_default: bool | None, **described: Any) -> Any:
    """Return a field that the command line turns "on" or "off"."""
    shown = None if field_default is None else ("off", "on")[field_default]
    return option(
        field_default, choices=("on", "off"), default=shown, parse=lambda text, flag: text == "on", **described
    )


def options_of(settings: type) -> dict[str, Option]:
    """Return the options of a settings class by the names of its fields."""
    return {f.name: f.metadata["option"] for f in fields(settings) if "option" in f.metadata}


def whole_number(text: str, flag: str) -> int:
    """Return the number in `text`. Raises UsageError."""
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"{flag} {text[:40]!r} is not a whole number", fix=f"for example {flag} 1") from None
    if not -MOST <= number <= MOST:
        raise UsageError(f"{flag} {text[:40]} is too large", fix=f"give a number from {-MOST} to {MOST}")
    return number


def number(text: str, flag: str) -> float:
    """Return the number in `text`, which may have a fraction. Raises UsageError."""
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{flag} {text[:40]!r} is not a number", fix=f"for example {flag} 0.4") from None
