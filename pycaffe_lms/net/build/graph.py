"""The graph of a net: nodes (layers), values (versions of blobs) and parameters. Plain data, no arrays.

A *value* is one version of a blob: an in-place layer makes a new version of the same name. Versions share memory only
where `net/program/buffers.py` finds that the overwritten one is not read later. `wiring.py` builds the graph of a
NetParameter; `net/passes/` changes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...errors import CaffeError
from ...layers.base import Layer, Runs, Shape
from ...layers.sizes import check_tops

_E = TypeVar("_E", bound=CaffeError)


@dataclass
class Value:
    """Describe one version of a blob. `data` and `diff` are buffer ids, set by `buffers.assign`.

    Args:
        producer, top: index of the layer that makes it, and which of its tops it is.
        takes_gradient: whether `diff` holds its gradient; False where no layer gives one and `diff` is shared with a
            value that has one.
        blob: the name that users know; another than `name` in micro-batches.
        rows, whole: in a micro-batch, the value is images rows[0] to rows[1] - 1 of the value `whole`, in its memory.
    """

    id: int
    name: str
    shape: Shape
    producer: int
    top: int
    data: int = -1
    diff: int = -1
    loss_weight: float = 0.0
    takes_gradient: bool = True
    channels_last: bool = False  # stored as (N, H, W, C), see `passes/memory_order.py`
    half: bool = False  # stored as bfloat16, see `passes/precision.py`
    blob: str = ""
    rows: tuple[int, int] | None = None
    whole: int | None = None

    def __post_init__(self) -> None:
        self.blob = self.blob or self.name


@dataclass
class Param:
    """Describe one parameter of one layer.

    Args:
        owner: index in Graph.params of the parameter whose memory it uses; its own unless it is shared.
        lr_mult_here: the multiplier in this layer's own ParamSpec. If it is not 0, the layer's backward makes the
            gradient, even where the multiplier of another sharer keeps the parameter from being updated.
        explicit: the multipliers that the prototxt gives, for an owner also those given where it is shared.
        channels_last: data, diff and histories are stored as (O, H, W, C), see `passes/param_order.py`; the same for
            all sharers.
    """

    index: int
    node: int
    position: int  # index among the layer's blobs
    shape: Shape
    filler: Any
    name: str  # ParamSpec name, "" if none
    owner: int
    lr_mult: float
    decay_mult: float
    lr_mult_here: float
    explicit: set[str] = field(default_factory=set)
    values: Any = None  # an array of initial values, used instead of the filler
    channels_last: bool = False
    data: int = -1
    diff: int = -1


@dataclass(frozen=True)
class Waiting:
    """Why a layer cannot run for the current shapes of its bottoms, and the last ones for which it could."""

    error: CaffeError
    shapes: list[Shape]


@dataclass
class Node:
    """Describe one layer in the graph. Bottoms and tops are value ids, params indices into Graph.params."""

    index: int
    layer: Layer
    message: Any
    line: int | None
    bottoms: list[int] = field(default_factory=list)
    tops: list[int] = field(default_factory=list)
    params: list[int] = field(default_factory=list)
    need_backward: bool = False
    propagate: list[bool] = field(default_factory=list)
    param_propagate: list[bool] = field(default_factory=list)
    scratch: dict[str, int] = field(default_factory=dict)  # name -> buffer id
    channels_last: bool = False  # the layer runs on (N, H, W, C), see `passes/memory_order.py`
    half: bool = False  # the layer runs on bfloat16 arrays, see `passes/precision.py`
    group: int | None = None  # of a group of layers: its index in Graph.groups, see `passes/fusion.py`
    members: tuple[int, ...] = ()  # of a group: the indices of its layers, first to last
    origin: int = -1  # index of the user's layer; not the node's own in micro-batches and blocks
    part: tuple[int, int] | None = None  # in micro-batches: which one, from 0, of how many
    block: tuple[int, int] | None = None  # in blocks of outputs: which one, from 0, of how many
    slab: tuple[int, int] | None = None  # in slabs: which one, from 0, of how many
    adds: tuple[bool, ...] = ()  # in slabs, per bottom: its gradient is added to that of later slabs; (): of none
    # what backward also reads: (value that a later layer makes, "data" or "diff")
    later: tuple[tuple[int, str], ...] = ()
    waiting: Waiting | None = None  # the layer has no shapes yet, see `Graph.infer_shapes`

    def __post_init__(self) -> None:
        if self.origin < 0:
            self.origin = self.index

    @property
    def name(self) -> str:
        """Return the layer's name."""
        return self.layer.name


@dataclass(frozen=True, slots=True)
class Place:
    """Locate a value: in `buffer`, from element `start` on."""

    buffer: int
    start: int


@dataclass
class Graph:
    """Hold the layers, values and parameters of a net."""

    name: str
    nodes: list[Node] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)  # blob name -> its final value's id
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    groups: list[Node] = field(default_factory=list)  # chains of layers that a solver's iterations run as one
    views: dict[int, Place] = field(default_factory=dict)  # buffer views, see `program/buffer_views.py`

    def everyone(self) -> list[Node]:
        """Return all nodes, then all groups."""
        return [*self.nodes, *self.groups]

    def units(self) -> list[Node]:
        """Return what a solver's iteration runs: all groups, then the layers outside of groups."""
        inside = {m for group in self.groups for m in group.members}
        return [*self.groups, *(node for node in self.nodes if node.index not in inside)]

    def inside_groups(self, groups: Iterable[Node] | None = None) -> set[int]:
        """Return the values inside groups (None: all): tops of their layers that are not the groups' own."""
        chains = self.groups if groups is None else groups
        return {t for g in chains for m in g.members for t in self.nodes[m].tops if t not in g.tops}

    def readers(self) -> dict[int, list[int]]:
        """Return {value: indices of the layers that read it}, for values that any layer reads."""
        found: dict[int, list[int]] = {}
        for node in self.nodes:
            for b in node.bottoms:
                found.setdefault(b, []).append(node.index)
        return found

    def place(self, error: _E, file: str | None) -> _E:
        """Add the file, and the line and type of the layer that it names, to an error, and return it."""
        names = ((n, (n.name, n.layer.param.name)) for n in self.everyone())
        node = next((n for n, known in names if error.where.layer in known), None)
        if node is not None:
            error.at(file=file, line=node.line, type=node.layer.param.type)
        return error.at(file=file)

    def stored(self, v: int) -> int:
        """Return the value in whose memory a value is stored: itself, unless it is some images of a whole value."""
        whole = self.values[v].whole
        return v if whole is None else whole

    def param_name(self, param: Param) -> str:
        """Return the name of a parameter's layer in the prototxt, or of its block of outputs."""
        node = self.nodes[param.node]
        return node.layer.param.name if node.block is None else node.name

    @property
    def learnable(self) -> list[Param]:
        """Return the parameters that own their memory, in the order of the layers."""
        return [p for p in self.params if p.owner == p.index]

    @property
    def shapes_may_change(self) -> bool:
        """Return whether shapes may change within an iteration: with values, or by the code of a layer on the host."""
        return any(map(_may_change, self.nodes))

    @property
    def exchanging(self) -> list[Node]:
        """Return the layers whose passes exchange arrays with other ranks, see `Layer.exchanges`."""
        return [node for node in self.nodes if node.layer.exchanges]

    def infer_shapes(self, known: int = -1) -> bool:
        """Infer all shapes again from the current shapes of inputs; return whether any shape changed.

        A layer of the user's may give its tops their shapes in its own forward. Until then a layer behind it can find
        bottoms that do not fit together. It keeps its shapes, is `waiting`, and has to wait for the next inference.

        Args:
            known: the last layer whose forward has run for these shapes of inputs.
        """
        changed, unknown = False, set[int]()
        before = [value.shape for value in self.values]
        for node in self.nodes:
            shapes = [self.values[b].shape for b in node.bottoms]
            if not node.bottoms and node.layer.declares.is_net_input:
                continue  # an input's shape is the user's to set
            waits = not unknown.isdisjoint(node.bottoms)
            last = node.waiting.shapes if node.waiting is not None else [before[b] for b in node.bottoms]
            node.waiting = None
            try:
                inferred = node.layer.infer_shapes(shapes)
                check_tops(node.layer, inferred)
            except CaffeError as error:
                error.at(line=node.line, layer=node.name, type=node.layer.param.type)
                if not waits:
                    raise
                node.waiting = Waiting(error, last)
                inferred = node.layer.infer_shapes(last)
            for value, shape in zip(node.tops, inferred, strict=True):
                shape = tuple(shape)
                changed |= self.values[value].shape != shape
                self.values[value].shape = shape
            if waits or (node.index > known and _may_change(node)):
                unknown.update(node.tops)
        return changed


def _may_change(node: Node) -> bool:
    """Return whether a layer's tops can get other shapes within an iteration."""
    declares = node.layer.declares
    return bool(declares.dynamic_shape_bottoms or (declares.runs_on is Runs.HOST and node.bottoms))
