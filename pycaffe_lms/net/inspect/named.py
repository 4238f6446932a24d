"""Defines `Named`, the dictionary in which users look up blobs, parameters and layers by name."""

from __future__ import annotations

import difflib
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from ...errors import MissingName, UsageError

V = TypeVar("V")
_LISTED = 30  # most names that an error lists


class Named(OrderedDict[str, V]):
    """Map names to entries in the net's order. An unknown name raises MissingName, which is a KeyError.

    Args:
        net: name of the net, for errors.
        kind: what an entry is called in errors ("blob", "layer").
        of: class of the entries. Assigning anything else raises UsageError, because the net would not use it.
    """

    def __init__(
        self, items: Iterable[tuple[str, V]] = (), *, net: str = "", kind: str = "entry", of: type[V] | None = None
    ):
        self._net, self._kind, self._of = net, kind, of
        super().__init__(items)

    def __setitem__(self, name: str, thing: V) -> None:
        if self._of is not None and not isinstance(thing, self._of):
            raise UsageError(
                f'the {self._kind} "{name}" of net "{self._net}" cannot become a {type(thing).__name__}',
                fix=f'write values: net.blobs["{name}"].data[...] = values, net.params["{name}"][0].data[...] = values',
            )
        super().__setitem__(name, thing)

    def __missing__(self, name: object) -> V:
        raise missing(self._net, self._kind, name, list(self))


def missing(net: str, kind: str, name: object, known: list[str]) -> MissingName:
    """Return the error for an unknown name; its fix lists similar names and the known ones."""
    near = difflib.get_close_matches(str(name), known, n=3)
    noun, _, rest = kind.partition(" ")
    plural = f"{noun}s {rest}".rstrip()
    shown = known if len(known) <= _LISTED else [*known[:_LISTED], f"... ({len(known)} in all)"]
    guess = "did you mean " + " or ".join(f'"{n}"' for n in near) + "? " if near else ""
    fix = f"{guess}{plural} are: {', '.join(shown)}" if known else f"it has no {plural} at all"
    return MissingName(f'net "{net}" has no {kind} "{name}"', fix=fix)
