"""-shape BLOB=N,C,H,W: what data layers make, said by the user, so that a net is built without its data."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..errors import DataError, UsageError
from ..proto.caffe_pb2 import LayerParameter, NetParameter


def add_shape(p: argparse.ArgumentParser) -> None:
    """-shape."""
    p.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="BLOB=N,C,H,W",
        help="shape of a data layer's top, so that no database is needed; once per top",
    )


def or_a_shape(error: DataError) -> DataError:
    """The error of data that is not there, with -shape among its fixes."""
    error.fix = f"{error.fix}; or give the shape instead of the data, such as -shape data=32,3,224,224"
    return error


def with_shapes(message: NetParameter, given: Sequence[str]) -> NetParameter:
    """The net with layers that make the given tops replaced by DummyData of those shapes; layers keep their indices.

    Raises: UsageError for a shape that is none, or of a blob that no layer without bottoms makes.
    """
    shapes = dict(_parse(text) for text in given)
    made = {top for layer in message.layer if not layer.bottom for top in layer.top}
    for name in shapes.keys() - made:
        raise UsageError(
            f"-shape {name}=...: no data layer makes {name}", fix=f"data layers make {', '.join(sorted(made))}"
        )
    result = NetParameter()
    result.CopyFrom(message)
    for layer in result.layer:
        if layer.bottom or not any(t in shapes for t in layer.top):
            continue
        missing = [t for t in layer.top if t not in shapes]
        if missing and not (len(layer.top) == 2 and layer.top[1] in missing):
            raise UsageError(f'layer "{layer.name}" also makes {", ".join(missing)}',
                             fix=f"give -shape {missing[0]}=... too")  # fmt: skip
        replacement = LayerParameter(name=layer.name, type="DummyData", top=layer.top)
        replacement.include.extend(layer.include)
        replacement.exclude.extend(layer.exclude)
        for top in layer.top:
            dims = shapes.get(top) or [shapes[layer.top[0]][0]]
            replacement.dummy_data_param.shape.add(dim=dims)
            replacement.dummy_data_param.data_filler.add(type="uniform")
        layer.CopyFrom(replacement)
    return result


def _parse(text: str) -> tuple[str, list[int]]:
    name, _, dims = text.partition("=")
    try:
        shape = [int(d) for d in dims.split(",")]
    except ValueError:
        shape = []
    if not name or not shape or min(shape) < 0:
        raise UsageError(f"-shape {text!r} is not BLOB=N,C,H,W", fix="for example -shape data=32,3,224,224")
    return name, shape
