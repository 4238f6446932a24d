"""The table of converters: layer type -> how it is written in ONNX. Filled by the families, see `families.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .site import Site

Result = str | list[str] | None


@dataclass(frozen=True)
class Converter:
    """run(site) writes operators and returns the names of the tops' tensors: one, a list, or None for no top.

    family: the heading of its row in docs/onnx.md. ops: every operator that it may write. note: what the exported form
    cannot do, or what a user would not expect; "" where there is nothing to say.
    """

    run: Callable[[Site], Result]
    family: str
    ops: tuple[str, ...]
    note: str


CONVERTERS: dict[str, Converter] = {}


def converts(*types: str, family: str, ops: str, note: str = ""):
    """Decorator: the function converts these layer types. ops: names of operators, with spaces between."""

    def add(run: Callable[[Site], Result]) -> Callable[[Site], Result]:
        for name in types:
            if name in CONVERTERS:
                raise AssertionError(f"two converters for {name}")
            CONVERTERS[name] = Converter(run, family, tuple(ops.split()), note)
        return run

    return add
