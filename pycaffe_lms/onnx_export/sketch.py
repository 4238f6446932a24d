"""Define an ONNX graph as plain data, which converters write; this needs no onnx.

See also: `model.py`, which turns it into ONNX's own messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Dim = int | str | None  # a size, a size by name ("batch"), or one that is not known
OPSETS = range(11, 24)  # that converters can write; `site.py` knows what changed between them
DEFAULT_OPSET = 17
BATCH = "batch"


@dataclass
class SketchNode:
    """Hold one operator. inputs, outputs: names of tensors, "" for an optional input that is left out."""

    op: str
    name: str
    inputs: list[str]
    outputs: list[str]
    attributes: dict[str, Any]

    def rename(self, names: dict[str, str]) -> None:
        """Replace names of tensors."""
        self.inputs = [names.get(n, n) for n in self.inputs]
        self.outputs = [names.get(n, n) for n in self.outputs]


@dataclass
class Tensor:
    """Describe an input or output of the graph."""

    name: str
    shape: tuple[Dim, ...]
    dtype: np.dtype


@dataclass
class Sketch:
    """Hold a graph. constants: the initializers, by name; an input of the same name is optional and has that default.

    folded: names of constants computed from parameters, by computation and parameters (see `Site.folded`).
    """

    name: str
    opset: int
    dtype: np.dtype
    nodes: list[SketchNode] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)
    folded: dict[tuple[str, tuple[int, ...]], str] = field(default_factory=dict)

    def rename(self, names: dict[str, str]) -> None:
        """Replace names of tensors in nodes, inputs and outputs."""
        for node in self.nodes:
            node.rename(names)
        for tensor in (*self.inputs, *self.outputs):
            tensor.name = names.get(tensor.name, tensor.name)


class Names:
    """Give out names, each once."""

    def __init__(self, taken: Iterable[str] = ()):
        self._taken = set(taken)

    def reserve(self, name: str) -> bool:
        """Take a name; return whether it was free."""
        free = name not in self._taken
        self._taken.add(name)
        return free

    def new(self, name: str) -> str:
        """Return the name itself if it is free, else with a number appended."""
        found, n = name, 1
        while not self.reserve(found):
            n += 1
            found = f"{name}_{n}"
        return found
