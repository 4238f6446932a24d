"""Build nets without their data: the user gives shapes of data layers' tops, `-shape BLOB=N,C,H,W`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from ...blob import MOST_AXIS
from ...data.transform.transformer import refuse_contradictions
from ...errors import DataError, LayerParamError, UsageError
from ...layers.data.input import on_host
from ...layers.python import stand_ins
from ...net.build.filter import filter_net
from ...proto.caffe_pb2 import LayerParameter, NetParameter, Phase

_BOXES = 8  # rows for each picture of AnnotatedData, where no -shape gives them


def add_shape(p: argparse.ArgumentParser) -> None:
    """Declare -shape and -python."""
    p.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="BLOB=N,C,H,W",
        help="shape of a data layer's top, so that no database is needed, or of a Python layer's; once per top",
    )
    p.add_argument(
        "--python",
        choices=("on", "off"),
        default="off",
        help="on: import the modules of Python layers, whose code computes the shapes of their tops; off: run none of "
        "their code, -shape gives the shapes",
    )


def or_a_shape(error: DataError) -> DataError:
    """Return the error of missing data with -shape among its fixes."""
    error.fix = f"{error.fix}; or give the shape instead of the data, such as -shape data=32,3,224,224"
    return error


def of_python_layers(
    message: NetParameter, given: Sequence[str], python: bool, batches: tuple[int, int] | None = None
) -> AbstractContextManager[None]:
    """Within: a net is built without the code of its Python layers, whose tops have the given shapes.

    Args:
        python: build it with that code after all.
        batches: (old, new) items per iteration; a shape that begins with the old number gets the new one.
    """
    if python:
        return nullcontext()
    shapes = {name: tuple(shape) for name, shape in map(parse_shape, given)}
    if batches is not None:
        old, new = batches
        shapes = {name: (new, *s[1:]) if s[:1] == (old,) else s for name, s in shapes.items()}
    return stand_ins({t: shapes[t] for layer in message.layer for t in layer.top if t in shapes})


def of_data_layers(original: NetParameter, message: NetParameter) -> AbstractContextManager[None]:
    """Within: DummyData in place of a layer of another type runs on the host, where that layer reads its data."""
    pairs = zip(original.layer, message.layer, strict=True)
    return on_host(frozenset(new.name for old, new in pairs if old.type != new.type))


def with_shapes(message: NetParameter, given: Sequence[str], python: bool = False) -> NetParameter:
    """Return the net with the layers that make the given tops replaced by DummyData of those shapes.

    Layers keep their indices, and DummyData keeps its fillers. With `python`, the code of Python layers says their
    shapes.

    Raises:
        LayerParamError: settings of a replaced layer contradict each other.
        UsageError: a text is no shape, or of a blob whose layer has bottoms or is a Python layer that runs.
    """
    shapes = dict(parse_shape(text) for text in given)
    made = {top for layer in message.layer if not layer.bottom for top in layer.top}
    known = made | {top for layer in message.layer if layer.type == "Python" and not python for top in layer.top}
    for name in shapes.keys() - known:
        raise UsageError(
            f"-shape {name}=...: no data layer makes {name}", fix=f"data layers make {', '.join(sorted(made))}"
        )
    result = NetParameter()
    result.CopyFrom(message)
    for layer in result.layer:
        if layer.bottom or not any(t in shapes for t in layer.top):
            continue
        _refuse_contradictions(layer)
        missing = [t for t in layer.top if t not in shapes]
        if missing and not (len(layer.top) == 2 and layer.top[1] in missing):
            raise UsageError(
                f'layer "{layer.name}" also makes {", ".join(missing)}', fix=f"give -shape {missing[0]}=... too"
            )
        replacement = LayerParameter(name=layer.name, type="DummyData", top=layer.top)
        replacement.include.extend(layer.include)
        replacement.exclude.extend(layer.exclude)
        for top in layer.top:
            items = shapes[layer.top[0]][0] if layer.top[0] in shapes else 0
            boxes = layer.type == "AnnotatedData" and top != layer.top[0]  # rows of boxes; of -1: there are none
            dims = shapes.get(top) or ([1, 1, _BOXES * items, 8] if boxes else [items])
            replacement.dummy_data_param.shape.add(dim=dims)
            if layer.type != "DummyData":
                filler = {"type": "constant", "value": -1} if boxes else {"type": "uniform"}
                replacement.dummy_data_param.data_filler.add(**filler)
        if layer.type == "DummyData":
            replacement.dummy_data_param.data_filler.extend(layer.dummy_data_param.data_filler)
        layer.CopyFrom(replacement)
    return result


def layers_in_state(
    message: NetParameter,
    phase: Phase,
    level: int,
    stages: Sequence[str],
    line: Callable[[int], int | None] = lambda i: None,
) -> list[int]:
    """Return the indices of the layers in this state. line: maps an index to the prototxt's line, for errors."""
    net = NetParameter()
    net.CopyFrom(message)
    net.state.phase, net.state.level = phase, level
    net.state.stage.extend(stages)
    return filter_net(net, line)[1]


def _refuse_contradictions(layer: LayerParameter) -> None:
    """Raise LayerParamError for a transform_param that the layer would refuse, whatever its data."""
    fields = (getattr(layer, f"{kind}_param") for kind in ("data", "image_data", "window_data"))
    source = next((field.source for field in fields if field.source), "")
    try:
        refuse_contradictions(layer.transform_param, source=source)
    except LayerParamError as error:
        raise error.at(layer=layer.name, type=layer.type) from None


def parse_shape(text: str) -> tuple[str, list[int]]:
    """Return the blob and the sizes of "BLOB=N,C,H,W". Raises UsageError."""
    name, _, dims = text.partition("=")
    try:
        shape = [int(d) for d in dims.split(",")]
    except ValueError:
        shape = []
    if not name or not shape or min(shape) < 0:
        raise UsageError(f"-shape {text[:200]!r} is not BLOB=N,C,H,W", fix="for example -shape data=32,3,224,224")
    if max(shape) > MOST_AXIS:
        raise UsageError(f"-shape {text[:200]!r}: an axis has at most {MOST_AXIS} elements", fix="make it smaller")
    return name, shape
