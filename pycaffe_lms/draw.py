"""Define caffe.draw: draw a net as a graph, with pydot; pictures need Graphviz.

    net = read_net("train_val.prototxt").message  # formats.prototxt
    draw_net_to_file(net, "net.png")  # needs Graphviz's `dot`
    draw_net_to_file(net, "net.raw")  # the graph as dot text; `.dot` and `.gv` do the same
    draw_overview_to_file(net, "net.svg")  # boxes of several layers, blocks framed; zooms in a browser

Nets of older generations are upgraded before they are drawn.
Source of the behaviour: BVLC/caffe, python/caffe/draw.py.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from .errors import DataError, GraphError, LayerParamError, MissingDependency, UsageError, Where
from .formats.atomic import atomic_write
from .formats.prototxt.upgrade import upgrade_net
from .proto import caffe_pb2
from .viz.net_overview import overview
from .viz.svg_zoom import zoomable

LAYER_STYLE_DEFAULT = {"shape": "record", "fillcolor": "#6495ED", "style": "filled"}
NEURON_LAYER_STYLE = {"shape": "record", "fillcolor": "#90EE90", "style": "filled"}
BLOB_STYLE = {"shape": "octagon", "fillcolor": "#E0E0E0", "style": "filled"}
_COLORS = {"Convolution": "#FF5050", "Deconvolution": "#FF5050", "Pooling": "#FF9900", "InnerProduct": "#CC33FF"}
_LEARNING = ("Convolution", "Deconvolution", "InnerProduct")
_TEXT = ("raw", "dot", "gv")
_RANKDIRS = ("LR", "RL", "TB", "BT")


def get_pooling_types_dict() -> dict[int, str]:
    """Return {number: name} of the pooling methods."""
    return {
        value.number: name for name, value in caffe_pb2.PoolingParameter.PoolMethod.DESCRIPTOR.values_by_name.items()
    }


def get_edge_label(layer: caffe_pb2.LayerParameter) -> str:
    """Return the label of edges to a layer's tops: batch size or number of outputs, else two quotation marks."""
    if layer.type == "Data":
        return f"Batch {layer.data_param.batch_size}"
    if layer.type in ("Convolution", "Deconvolution"):
        return str(layer.convolution_param.num_output)
    if layer.type == "InnerProduct":
        return str(layer.inner_product_param.num_output)
    return '""'


def get_layer_lr_mult(layer: caffe_pb2.LayerParameter) -> tuple[float, float]:
    """Return the lr_mult of a layer's weights and bias. Raises: LayerParamError for other types or more than two."""
    where = Where(layer=layer.name, type=layer.type)
    if layer.type not in _LEARNING:
        raise LayerParamError(f"{layer.type} layers do not have a learning rate multiplier", where=where)
    if len(layer.param) > 2:
        raise LayerParamError(f"{len(layer.param)} `param`; there are weights and a bias", where=where)
    first, second = [*(spec.lr_mult for spec in layer.param), 1.0, 1.0][:2]
    return first, second


def get_layer_label(layer: caffe_pb2.LayerParameter, rankdir: str, display_lrm: bool = False) -> str:
    """Return a layer's label, in quotation marks: name, type (and pooling method), window, with display_lrm the rates.

    The parts are on one line for rankdir TB and BT, on a line each otherwise.
    """
    separator = " " if rankdir in ("TB", "BT") else r"\n"
    parts = [_escaped(layer.name, r"\"{}|<>")]
    if layer.type == "Pooling":
        parts.append(f"(Pooling {get_pooling_types_dict()[layer.pooling_param.pool]})")
    else:
        parts.append(f"({_escaped(layer.type, chr(92) + chr(34))})")
    if layer.type in ("Convolution", "Deconvolution", "Pooling"):
        parts += _window(layer)
    if display_lrm and layer.type in _LEARNING:
        rates = get_layer_lr_mult(layer)
        if any(rates):
            parts.append("lr mult: {:.1f}, {:.1f}".format(*rates))
    return f'"{separator.join(parts)}"'


def _window(layer: caffe_pb2.LayerParameter) -> list[str]:
    """Return the texts of kernel, stride and pad; one number where all axes have the same."""
    pooling = layer.type == "Pooling"
    if pooling and layer.pooling_param.global_pooling:
        return ["global"]
    param = layer.pooling_param if pooling else layer.convolution_param
    texts = []
    for what, field, default in (("kernel size", "kernel", 1), ("stride", "stride", 1), ("pad", "pad", 0)):
        whole = getattr(param, "kernel_size" if field == "kernel" else field)
        if param.HasField(f"{field}_h") or param.HasField(f"{field}_w"):
            values = [getattr(param, f"{field}_h"), getattr(param, f"{field}_w")]
        elif pooling:
            values = list(getattr(param, f"{field}_shape").dim) or [whole]
        else:
            values = list(whole) or [default]
        texts.append(f"{what}: {_dims(values)}")
    return texts


def _dims(values: Sequence[int]) -> str:
    return str(values[0]) if len(set(values)) == 1 else "x".join(map(str, values))


def choose_color_by_layertype(layertype: str) -> str:
    """Return the fill colour of a layer's box."""
    return _COLORS.get(layertype, LAYER_STYLE_DEFAULT["fillcolor"])


def get_pydot_graph(
    caffe_net: caffe_pb2.NetParameter,
    rankdir: str,
    label_edges: bool = True,
    phase: int | None = None,
    display_lrm: bool = False,
) -> Any:
    """Return a pydot.Dot of a net: boxes for layers (`<layer>_<type>`), octagons for blobs (`<blob>_blob`).

    rankdir: the direction of the graph, LR, RL, TB or BT. phase: 0 TRAIN or 1 TEST, for the layers of that phase only.
    Raises: UsageError for another rankdir; GraphError for a layer with include and exclude; MissingDependency.
    """
    pydot = _pydot()
    if rankdir not in _RANKDIRS:
        raise UsageError(f"rankdir {rankdir!r} is none of {', '.join(_RANKDIRS)}")
    caffe_net, layers = _layers(caffe_net, phase)
    graph = pydot.Dot(_id(caffe_net.name or "Net"), graph_type="digraph", rankdir=rankdir)
    nodes: dict[str, Any] = {}
    edges = []
    for layer in layers:
        name = f"{layer.name}_{layer.type}"
        if len(layer.bottom) == len(layer.top) == 1 and layer.bottom[0] == layer.top[0]:
            style = NEURON_LAYER_STYLE
        else:
            style = LAYER_STYLE_DEFAULT | {"fillcolor": choose_color_by_layertype(layer.type)}
        nodes[name] = pydot.Node(_id(name), label=get_layer_label(layer, rankdir, display_lrm), **_quoted(style))
        for blob in (*layer.bottom, *layer.top):
            label = '"' + _escaped(blob, r"\"") + '"'
            nodes.setdefault(f"{blob}_blob", pydot.Node(_id(f"{blob}_blob"), label=label, **_quoted(BLOB_STYLE)))
        label = get_edge_label(layer).strip('"') if label_edges else ""
        edges += [(f"{blob}_blob", name, "") for blob in layer.bottom]
        edges += [(name, f"{blob}_blob", label) for blob in layer.top]
    for node in nodes.values():
        graph.add_node(node)
    for source, target, label in edges:
        graph.add_edge(pydot.Edge(nodes[source], nodes[target], label=f'"{label}"'))
    return graph


def draw_net(
    caffe_net: caffe_pb2.NetParameter,
    rankdir: str,
    ext: str = "png",
    phase: int | None = None,
    display_lrm: bool = False,
) -> bytes:
    """Draw a net: dot text for ext "raw", "dot" and "gv", else a picture in a format of Graphviz (png, svg, ...).

    Raises: UsageError for a picture without Graphviz, and for a format that it lacks; as get_pydot_graph.
    """
    return _drawn(get_pydot_graph(caffe_net, rankdir, phase=phase, display_lrm=display_lrm), ext)


def draw_net_to_file(
    caffe_net: caffe_pb2.NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Draw to a file, whole or not at all; its ending is the format (see draw_net)."""
    ext = check_tools(filename)
    atomic_write(filename, draw_net(caffe_net, rankdir, ext, phase, display_lrm), error=DataError)


def draw_overview_to_file(
    caffe_net: caffe_pb2.NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "TB",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Draw a net with a box for each chain of layers (Convolution, BatchNorm, Scale, ReLU) and a frame for each block.

    Arguments and errors are those of draw_net_to_file.
    """
    ext = check_tools(filename)
    caffe_net, layers = _layers(caffe_net, phase)
    atomic_write(filename, _drawn(overview(caffe_net, layers, rankdir, display_lrm), ext), error=DataError)


def check_tools(filename: str | os.PathLike[str]) -> str:
    """Return the format that a file's ending names, if what draws it is installed.

    Raises: UsageError for a name without an ending, and for a picture without Graphviz; MissingDependency for pydot.
    """
    ext = os.path.splitext(filename)[1].lstrip(".")
    if not ext:
        raise UsageError(f"{os.fspath(filename)!r} has no ending", fix="end it in .png, .svg, .pdf or .dot")
    _pydot()
    if ext not in _TEXT:
        _check_graphviz(ext)
    return ext


def _pydot() -> ModuleType:
    try:
        import pydot
    except ImportError:
        graphviz = "" if shutil.which("dot") else " && apt install graphviz"
        raise MissingDependency("pydot", "drawing nets", f"'pycaffe-lms[draw]'{graphviz}") from None
    return pydot


def _check_graphviz(ext: str) -> None:
    if shutil.which("dot") is None:
        raise UsageError(
            f"drawing a net as .{ext} needs Graphviz, whose program `dot` is not on the PATH",
            fix="apt install graphviz (or your system's way); or write the graph's text, to a file that ends in .dot",
        )
    if ext not in _pydot().Dot().formats:
        raise UsageError(
            f'Graphviz writes no format "{ext}"', fix="give the file an ending such as .png, .svg, .pdf, .dot"
        )


def _drawn(graph: Any, ext: str) -> bytes:
    """Return the file of a graph. An SVG can be zoomed and moved where a browser shows it by itself."""
    if ext in _TEXT:
        return str(graph.to_string()).encode()
    _check_graphviz(ext)
    picture = bytes(graph.create(format=ext))
    return zoomable(picture) if ext == "svg" else picture


def _layers(
    net: caffe_pb2.NetParameter, phase: int | None
) -> tuple[caffe_pb2.NetParameter, list[caffe_pb2.LayerParameter]]:
    """Return the net in the current generation, and its layers of a phase (None: all)."""
    if not isinstance(net, caffe_pb2.NetParameter):
        raise UsageError(
            f"{net!r} is no NetParameter",
            fix="parse the file: text_format.Parse(open(file).read(), caffe_pb2.NetParameter()); of a Net: net.message",
        )
    if net.layers:
        net = upgrade_net(net).message
    return net, [layer for layer in net.layer if phase is None or _in_phase(layer, phase)]


def _in_phase(layer: caffe_pb2.LayerParameter, phase: int) -> bool:
    if layer.include and layer.exclude:
        raise GraphError("both include and exclude", where=Where(layer=layer.name, type=layer.type))

    def of(rule: caffe_pb2.NetStateRule) -> bool:
        return not rule.HasField("phase") or rule.phase == phase

    return any(map(of, layer.include)) if layer.include else not any(map(of, layer.exclude))


def _escaped(text: str, special: str) -> str:
    return "".join("\\" + c if c in special else c for c in text)


def _id(name: str) -> str:
    """Return a name as dot reads it, quoted where needed; pydot itself would read "a:b" as port b of a."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else '"' + _escaped(name, r"\"") + '"'


def _quoted(style: dict[str, str]) -> dict[str, Any]:
    return {key: f'"{value}"' for key, value in style.items()}
