"""What wiring makes of a NetParameter: nodes, values and parameters. Plain data, no arrays.

A *value* is one version of a blob: an in-place layer makes a new version of the same name. Versions share memory only
where `buffers.py` finds that nobody needs the overwritten one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...errors import CaffeError
from ...layers.base import Layer, Shape
from ...layers.sizes import check_tops

_E = TypeVar("_E", bound=CaffeError)


@dataclass
class Value:
    """One version of a blob. `data` and `diff` are buffer ids, set by `buffers.assign`. takes_gradient: whether what is
    in `diff` counts; it does not where no layer gives a gradient, but memory is shared with a value that has one.

    Where layers run in parts (`unfold.py`): blob: the name that users know. rows, whole: these are the images from
    rows[0] on, before rows[1], of the value `whole`, in its memory.
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
    channels_last: bool = False  # stored as (N, H, W, C), see `orders.py`
    half: bool = False  # stored as bfloat16, see `precision.py`
    blob: str = ""
    rows: tuple[int, int] | None = None
    whole: int | None = None

    def __post_init__(self) -> None:
        self.blob = self.blob or self.name


@dataclass
class Param:
    """One parameter of one layer. `owner`: the index (in Graph.params) of the one whose memory it uses.

    explicit: which multipliers the prototxt gives, here or, for an owner, at one of its sharers.
    lr_mult_here: that of this layer's own ParamSpec; where it is not 0, its backward makes the gradient, though another
    sharer's may keep the parameter from moving.
    channels_last: its data, diff and histories are stored as (O, H, W, C), see `param_orders.py`; as the owner's.
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
    values: Any = None  # an array of first values, in place of the filler's
    channels_last: bool = False
    data: int = -1
    diff: int = -1


@dataclass
class Node:
    """One layer in place. Bottoms and tops are value ids, params indices into Graph.params."""

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
    channels_last: bool = False  # the layer runs on (N, H, W, C), see `orders.py`
    half: bool = False  # the layer runs on bfloat16 arrays, see `precision.py`
    group: int | None = None  # this stands for several layers: its index in Graph.groups, see `fusion.py`
    members: tuple[int, ...] = ()  # then: their indices, first to last
    origin: int = -1  # the user's layer, by its index; its own, unless the layer runs in parts
    part: tuple[int, int] | None = None  # then, of its batch: which part, from 0, of how many
    block: tuple[int, int] | None = None  # or of its outputs: which block, from 0, of how many

    def __post_init__(self) -> None:
        if self.origin < 0:
            self.origin = self.index

    @property
    def name(self) -> str:
        return self.layer.name


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies: in `buffer`, from element `start` on."""

    buffer: int
    start: int


@dataclass
class Graph:
    name: str
    nodes: list[Node] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    params: list[Param] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)  # blob name -> its final value's id
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    groups: list[Node] = field(default_factory=list)  # chains of layers that a solver's iterations run as one
    laid: dict[int, Place] = field(default_factory=dict)  # buffers in whose place they use others, see `laying.py`

    def everyone(self) -> list[Node]:
        """All nodes, and behind them the groups."""
        return [*self.nodes, *self.groups]

    def place(self, error: _E, file: str | None) -> _E:
        """The error, which may name a layer, with that layer's file, line and type."""
        names = ((n, (n.name, n.layer.param.name)) for n in self.everyone())
        node = next((n for n, known in names if error.where.layer in known), None)
        if node is not None:
            error.at(file=file, line=node.line, type=node.layer.param.type)
        return error.at(file=file)

    def stored(self, v: int) -> int:
        """The value in whose memory a value lies: itself, unless it is some images of another one."""
        whole = self.values[v].whole
        return v if whole is None else whole

    def param_name(self, param: Param) -> str:
        """Whose parameter it is: a layer of the prototxt, or a block of one."""
        node = self.nodes[param.node]
        return node.layer.param.name if node.block is None else node.name

    @property
    def learnable(self) -> list[Param]:
        """Parameters that own their memory, in order of appearance."""
        return [p for p in self.params if p.owner == p.index]

    def infer_shapes(self) -> bool:
        """Run every layer's shape inference again, from the sources' current shapes. True if anything changed."""
        changed = False
        for node in self.nodes:
            shapes = [self.values[b].shape for b in node.bottoms]
            if not node.bottoms and node.layer.is_net_input:
                continue  # an input's shape is the user's to set
            try:
                inferred = node.layer.infer_shapes(shapes)
                check_tops(node.layer, inferred)
            except CaffeError as error:
                error.at(line=node.line, layer=node.name, type=node.layer.param.type)
                raise
            for value, shape in zip(node.tops, inferred, strict=True):
                shape = tuple(shape)
                changed |= self.values[value].shape != shape
                self.values[value].shape = shape
        return changed
