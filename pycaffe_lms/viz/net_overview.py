"""Draw a net for people, with pydot: a box for each chain of layers, blocks of the net framed, from the top down.

A chain is a layer with what follows in place (BatchNorm, Scale, ReLU), or as the only reader of its blob. Blocks are
neighbouring boxes whose names begin alike: `inception_3a/1x1` and `inception_3a/3x3`, `res2a_branch1` and `res2a`.
`draw.py` draws every layer and blob as Caffe does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from ..proto.caffe_pb2 import LayerParameter, NetParameter, Phase

_CHAINED = ("BatchNorm", "Scale", "Bias", "ReLU", "PReLU", "Dropout")  # join the box of a blob that only they read
_KINDS = {  # fill and outline by what a box does
    "convolution": ("#dbe7fd", "#1450d0"),
    "pooling": ("#d5efe4", "#38a37f"),
    "product": ("#f7dcf2", "#cf58bd"),
    "joining": ("#fbefc6", "#ad8c00"),
    "loss": ("#fadfd7", "#a83820"),
    "other": ("#eeeeea", "#8b8a84"),
}
_MOST_PARTS = 3  # of a name, which the names of a block may share
_MOST_BOXES = 24  # of a block: a frame should fit on a screen
_FONT = "Helvetica,Arial,sans-serif"


@dataclass
class Box:
    """Hold a chain of layers that is drawn as one box.

    Attributes:
        layers: the first gives the name; layers of one name, for different phases, are in one box.
        bottoms: (index of the box, its blob) of all arrows to this box; the blob is "" where its name says nothing new.
        reads: further blobs of data layers, such as labels, which are written in the box.
        block: the name of its block; "" for none.
    """

    layers: list[LayerParameter]
    bottoms: list[tuple[int, str]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    block: str = ""

    @property
    def name(self) -> str:
        """Return the name of its first layer."""
        return self.layers[0].name


def boxes_of(layers: Sequence[LayerParameter]) -> list[Box]:
    """Return the boxes of a net in the order of their first layers."""
    found: list[Box] = []
    makers: dict[str, list[int]] = {}  # blob -> boxes that make it; several in different phases
    named: dict[tuple[str, str], int] = {}
    readers = Counter(blob for layer in layers if not _in_place(layer) for blob in set(layer.bottom))
    for layer in layers:
        known = named.get((layer.name, layer.type))
        before = [i for blob in layer.bottom for i in makers.get(blob, ())]
        if known is not None:  # the same layer for another phase
            found[known].layers.append(layer)
            continue
        if len(before) == 1 and _joins(layer, found[before[0]], readers):
            at = before[0]
            found[at].layers.append(layer)
        else:
            at = len(found)
            found.append(Box([layer]))
            for blob in layer.bottom:
                _connect(found, at, blob, makers)
        named[layer.name, layer.type] = at
        for blob in layer.top:
            earlier = [i for i in makers.get(blob, ()) if blob not in layer.bottom and i != at]
            makers[blob] = [*earlier, at]
    _name_blocks(found)
    return found


def _in_place(layer: LayerParameter) -> bool:
    return len(layer.bottom) == len(layer.top) == 1 and layer.bottom[0] == layer.top[0]


def _joins(layer: LayerParameter, box: Box, readers: Counter[str]) -> bool:
    if _in_place(layer):
        return True
    one = len(layer.bottom) == len(layer.top) == 1 and readers[layer.bottom[0]] == 1
    return one and layer.type in _CHAINED and bool(box.layers[0].bottom)


def _connect(found: list[Box], at: int, blob: str, makers: dict[str, list[int]]) -> None:
    """Note that box `at` reads a blob."""
    if blob not in makers:  # nothing in this net makes it
        makers[blob] = [at + 1]
        found.append(Box([LayerParameter(name=blob, type="Input", top=[blob])]))
    for i in makers[blob]:
        first = found[i].layers[0]
        if not first.bottom and blob in first.top[1:]:
            found[at].reads += [blob] * (blob not in found[at].reads)
        else:
            found[at].bottoms.append((i, blob if len(first.top) > 1 and first.bottom else ""))


def _name_blocks(found: list[Box]) -> None:
    """Name the blocks: the shortest beginnings of names that some neighbours share, and no box elsewhere."""
    for parts in range(1, _MOST_PARTS + 1):
        prefixes = [_prefix(box.name, parts) for box in found]
        for prefix, count in Counter(prefixes).items():
            first = prefixes.index(prefix)
            run = found[first : first + count]
            if 2 <= count <= min(_MOST_BOXES, max(2, len(found) // 2)) and set(prefixes[first : first + count]) == {
                prefix
            }:
                for box in run:
                    box.block = box.block or prefix


def _prefix(name: str, parts: int) -> str:
    """Return the first parts of a name, which slashes separate, or else underscores and full stops."""
    separators = list(re.finditer("/" if "/" in name else "[_.]", name))
    return name[: separators[parts - 1].start()] if len(separators) >= parts else name


def _title(box: Box) -> str:
    """Return the name as it is written in its block."""
    return box.name.removeprefix(box.block).lstrip("/_.") or box.name if box.block else box.name


def described(layer: LayerParameter) -> str:
    """Return type, window, outputs and stride of a layer in a few words."""
    if layer.type in ("Convolution", "Deconvolution"):
        p = layer.convolution_param
        words = [f"{layer.type} {_window(p, p.kernel_size)}", f"{p.num_output} outputs"]
        stride = _window(p, p.stride, "stride")
        words += [f"{p.group} groups"] * (p.group > 1) + [f"stride {stride}"] * (stride not in ("", "1"))
        return ", ".join(words + [f"dilation {_dims(p.dilation)}"] * (_dims(p.dilation) not in ("", "1")))
    if layer.type == "Pooling":
        q = layer.pooling_param
        how = q.PoolMethod.Name(q.pool).lower()
        if q.global_pooling:
            return f"{how} pooling, global"
        kernel = _window(q, list(q.kernel_shape.dim) or [q.kernel_size])
        stride = _window(q, list(q.stride_shape.dim) or [q.stride], "stride")
        return f"{how} pooling {kernel}, stride {stride}"
    details = {
        "InnerProduct": lambda: f", {layer.inner_product_param.num_output} outputs",
        "Data": lambda: f", batch {layer.data_param.batch_size}",
        "Dropout": lambda: f" {layer.dropout_param.dropout_ratio:g}",
        "Eltwise": lambda: f" {layer.eltwise_param.EltwiseOp.Name(layer.eltwise_param.operation).lower()}",
    }
    return layer.type + details.get(layer.type, str)()


def _window(p: Any, sizes: Sequence[int], field: str = "kernel") -> str:
    if p.HasField(f"{field}_h") or p.HasField(f"{field}_w"):
        sizes = [getattr(p, f"{field}_h"), getattr(p, f"{field}_w")]
    return _dims(list(sizes) * 2 if len(sizes) == 1 and field == "kernel" else sizes)


def _dims(sizes: Sequence[int]) -> str:
    return "x".join(map(str, sizes))


def _lines(box: Box, rates: bool) -> list[str]:
    """Return the lines below a box's name: its first layers, one for each phase, then those that follow, in one."""
    first = [layer for layer in box.layers if layer.name == box.name and layer.type == box.layers[0].type]
    lines = []
    for layer in first:
        phases = sorted({Phase.Name(rule.phase) for rule in layer.include if rule.HasField("phase")})
        lines.append(described(layer) + (f" ({', '.join(phases)})" if phases else ""))
    if others := [described(layer) for layer in box.layers if layer not in first]:
        lines.append(" \N{MIDDLE DOT} ".join(others))
    if box.reads:
        lines.append(f"reads {', '.join(box.reads)}")
    mults = [f"{spec.lr_mult:g}" for layer in box.layers for spec in layer.param]
    return lines + [f"lr_mult {', '.join(mults)}"] * bool(rates and mults)


def _kind(layer: LayerParameter) -> str:
    of = {
        **dict.fromkeys(("Convolution", "Deconvolution"), "convolution"),
        **dict.fromkeys(("Concat", "Eltwise"), "joining"),
        "Pooling": "pooling",
        "InnerProduct": "product",
    }
    return of.get(layer.type, "loss" if "Loss" in layer.type or layer.type == "Accuracy" else "other")


def overview(net: NetParameter, layers: Sequence[LayerParameter], rankdir: str, display_lrm: bool = False) -> Any:
    """Return a pydot.Dot of a net.

    Args:
        net: of the current generation of prototxt.
        layers: those of its layers that are drawn.
        rankdir: TB, BT, LR or RL.
        display_lrm: whether boxes name the learning rate multipliers.
    """
    import pydot

    graph = pydot.Dot(
        "overview", graph_type="digraph", rankdir=rankdir, label=_html(net.name or "net", []), labelloc="t",
        fontname=_quoted(_FONT), fontsize="22", nodesep="0.25", ranksep="0.32", bgcolor="white", pad="0.3",
    )  # fmt: skip
    graph.set_node_defaults(
        shape="box", style=_quoted("filled,rounded"), fontname=_quoted(_FONT), fontsize="13", margin=_quoted("0.18,0.1")
    )
    graph.set_edge_defaults(color=_quoted("#5f5e58"), arrowsize="0.6", fontname=_quoted(_FONT), fontsize="10")
    blocks: dict[str, Any] = {}
    found = boxes_of(layers)
    for i, box in enumerate(found):
        into = graph
        if box.block and box.block not in blocks:
            blocks[box.block] = pydot.Cluster(
                f"block{len(blocks)}", label=_html(box.block, []), labeljust="l", style=_quoted("filled,rounded"),
                color=_quoted("#d9d8d2"), fillcolor=_quoted("#f7f7f4"), fontname=_quoted(_FONT), fontsize="14",
            )  # fmt: skip
        if box.block:
            into = blocks[box.block]
        fill, line = _KINDS[_kind(box.layers[0])]
        label = _html(_title(box), _lines(box, display_lrm))
        into.add_node(pydot.Node(f"box{i}", label=label, fillcolor=_quoted(fill), color=_quoted(line)))
    for cluster in blocks.values():
        graph.add_subgraph(cluster)
    for i, box in enumerate(found):
        for source, blob in dict.fromkeys(box.bottoms):
            graph.add_edge(pydot.Edge(f"box{source}", f"box{i}", label=_html("", [blob]) if blob else ""))
    return graph


def _html(title: str, lines: Sequence[str]) -> str:
    """Return a label for Graphviz: the title bold, below it lines in small letters."""
    parts = [f"<B>{_plain(title)}</B>"] * bool(title)
    if lines:
        small = "<BR/>".join(map(_plain, lines))
        parts.append(f'<FONT POINT-SIZE="11">{small}</FONT>')
    return f"<{'<BR/>'.join(parts)}>"


def _plain(text: str) -> str:
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def _quoted(text: str) -> str:
    return f'"{text}"'
