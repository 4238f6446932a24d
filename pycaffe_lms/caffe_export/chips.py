"""Read what the toolchain of a chip takes, from the tables in `chips/`, each of which follows one document.

A table has the document's title, version and address, and a row per layer type:

    listed     the document's spelling, where it is another
    from       types here that are the same layer, and are written as this one
    limits     what the document demands: {"of": a fact of facts.py, "min", "max", "in" or "not", "when": [conditions],
               "words": the demand in words, where a range of the fact says little,
               "warn": true where the toolchain takes the layer all the same, but runs it elsewhere}
    params     fields of forks that the document lists, by message; no others of 7000 to 7199 are written
    explicit   fields that are written even at their default, which is another one there
    without    fields that the document excludes and that change no outputs
    unchecked  what the document demands and nobody can see from the net
    cpu        the layer runs on the processor beside the chip
    given      fields that are written with this value, which is that of every net in use

`every`: limits of all layers. `same_in_use`: types that pass their bottom on in phase TEST and are left out. `instead`:
the fix for a type that is missing. `not_here`: listed types that no layer here equals, and why. `differ`: what
others say of the toolchain that the document does not, and which of the two is followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, TypeAlias

Fact: TypeAlias = "float | str | bool"

CHIPS = ("ascend", "rknn", "horizon", "nnie")


def spelled(value: Fact) -> str:
    """Return a fact as a prototxt has it: true, not True."""
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True)
class StatedRange:
    """Hold a range that all values of a fact must be in, for layers of which all conditions in `when` hold."""

    of: str
    least: float | None = None
    most: float | None = None
    choice: tuple[Fact, ...] = ()
    when: tuple[StatedRange, ...] = ()
    warns: bool = False
    demand: str = ""
    excluded: tuple[Fact, ...] = ()

    def holds(self, value: Fact) -> bool:
        """Return whether a value is in the range."""
        if self.excluded:
            return value not in self.excluded
        if self.choice:
            return value in self.choice
        if isinstance(value, str):
            raise TypeError(f"{self.of}: a range of numbers for {value!r}")
        return (self.least is None or value >= self.least) and (self.most is None or value <= self.most)

    @property
    def range(self) -> str:
        """Return the range in words: "1 to 7"."""
        if self.choice:
            return " or ".join(map(spelled, self.choice))
        if self.excluded:
            return f"all but {' and '.join(map(spelled, self.excluded))}"
        if self.least is not None and self.least == self.most:
            return f"{self.least:.7g}"
        if self.most is None:
            return f"{self.least:.7g} or more"
        return f"{self.most:.7g} or less" if self.least is None else f"{self.least:.7g} to {self.most:.7g}"

    @property
    def words(self) -> str:
        """Return the limit in words, with its conditions."""
        conditions = " and ".join(f"{one.of.removeprefix('field ')} is {one.range}" for one in self.when)
        limit = self.demand or f"{self.of.removeprefix('field ')}: {self.range}"
        return limit + (f" where {conditions}" if conditions else "")


@dataclass(frozen=True)
class ListedLayer:
    """Hold what a toolchain takes of a layer type. See the module."""

    type: str
    listed: str
    sources: tuple[str, ...] = ()
    limits: tuple[StatedRange, ...] = ()
    params: Mapping[str, Sequence[str]] = field(default_factory=dict)
    explicit: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    unchecked: str = ""
    cpu: bool = False
    given: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class Chip:
    """Hold the table of a chip. rows: by type, here and in the files. See the module."""

    name: str
    toolchain: str
    title: str
    version: str
    address: str
    note: str
    every: tuple[StatedRange, ...]
    rows: Mapping[str, ListedLayer]
    same_in_use: tuple[str, ...]
    instead: Mapping[str, str]
    not_here: Mapping[str, str]
    differ: tuple[str, ...]


@cache
def chip_of(key: str) -> Chip:
    """Return the table of a chip of `CHIPS`."""
    table = json.loads(files(__package__).joinpath("chips", f"{key}.json").read_text(encoding="utf-8"))
    rows = [_row(name, row) for name, row in table["layers"].items()]
    return Chip(
        **{name: table[name] for name in ("name", "toolchain", "title", "version", "address", "note")},
        every=tuple(map(_limit, table["every"])),
        rows={name: row for row in rows for name in (row.type, *row.sources)},
        same_in_use=tuple(table["same_in_use"]),
        instead=table["instead"],
        not_here=table["not_here"],
        differ=tuple(table.get("differ", ())),
    )


def _row(name: str, row: Mapping[str, Any]) -> ListedLayer:
    return ListedLayer(
        name,
        row.get("listed", name),
        tuple(row.get("from", ())),
        tuple(map(_limit, row.get("limits", ()))),
        row.get("params", {}),
        tuple(row.get("explicit", ())),
        tuple(row.get("without", ())),
        row.get("unchecked", ""),
        row.get("cpu", False),
        row.get("given", {}),
    )


def _limit(found: Mapping[str, Any]) -> StatedRange:
    when = tuple(map(_limit, found.get("when", ())))
    choice = tuple(found.get("in", ()))
    ends = found.get("min"), found.get("max")
    words, excluded = found.get("words", ""), tuple(found.get("not", ()))
    return StatedRange(found["of"], *ends, choice, when, found.get("warn", False), words, excluded)
