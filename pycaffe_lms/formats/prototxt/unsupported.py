"""Refuse what a net asks for and is missing here, all of it in one error.

The parser keeps fields of forks that we do not have as `unsupported` in the message, so that a layer that is replaced,
or not of the phase, is not judged. Who builds or rewrites a net calls `refuse_unsupported` for the layers that count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ...errors import CaffeError, PrototxtError, UnknownLayerError, Where
from ...proto.caffe_pb2 import LayerParameter, NetParameter, UnsupportedField
from .dialect_fields import refusal
from .forks import TYPE, forks_of

_PLACES = 4  # that are listed of one problem


class Lack(NamedTuple):
    """Hold one thing that is missing: where, what, and a fix or None."""

    where: Where
    what: str
    fix: str | None
    kind: type[CaffeError] = PrototxtError


def refuse_unsupported(
    net: NetParameter,
    file: str | None,
    line: Callable[[int], int | None],
    types: Callable[[str], UnknownLayerError | None] | None = None,
) -> None:
    """Raise one error for all fields of forks that a net keeps and, with `types`, all layer types that are missing.

    Args:
        line: maps an index of a layer to its line.
        types: returns the error for a type that is missing, else None.
    Raises:
        PrototxtError: fields are missing. UnknownLayerError: types are.
    """
    found = list(problems(net.unsupported, file))
    for k, layer in enumerate(net.layer):
        unknown = types(layer.type) if types is not None and (layer.type or not layer.unsupported) else None
        if unknown is not None:  # its fields are not judged: they go with the type
            where = Where(file=file, line=line(k), layer=layer.name or None, type=layer.type or None)
            fix = unknown.fix if layer.bottom or not forks_of(TYPE, layer.type) else _data_fix(layer)
            found.append(Lack(where, unknown.message, fix, UnknownLayerError))
        else:
            found += problems(layer.unsupported, file, layer)
    refuse(found)


def problems(
    fields: Iterable[UnsupportedField], file: str | None, layer: LayerParameter | None = None
) -> Iterator[Lack]:
    """Yield a problem for each field that the parser has kept, of a layer or of the net itself."""
    for field in fields:
        found = refusal(field.message, field.name)
        said, fix = found or ("no fork that we know has it", "correct the name, or delete the field")
        if "." in field.message:
            what = f"{field.name} is not a value of {field.message.rpartition('.')[2]}: {said}"
        else:
            what = f'{field.message} has no field "{field.name}": {said}'
        name, type_name = (layer.name or None, layer.type or None) if layer is not None else (None, None)
        yield Lack(Where(file=file, line=field.line or None, layer=name, type=type_name), what, fix)


def unknown_type(name: str) -> tuple[str, str] | None:
    """Return the words and the fix for a layer type of a fork that is missing here; None where no fork is known."""
    forks = forks_of(TYPE, name)
    if forks is None:
        return None
    return f'no layer type "{name}": it belongs to {forks}', 'leave the layer out, or write it as a "Python" layer'


def _data_fix(layer: LayerParameter) -> str:
    """Return the fix for a layer without bottoms, whose data can come from elsewhere."""
    top = layer.top[0] if layer.top else "data"
    return f'give its values another way: -shape {top}=32,3,224,224, a "Python" layer, or a layer of docs/supported.md'


def refuse(found: list[Lack]) -> None:
    """Raise one error that lists all problems; nothing where there are none. Equal ones of many layers share a line."""
    if not found:
        return
    kind = next((p.kind for p in found if p.kind is UnknownLayerError), PrototxtError)
    same: dict[tuple[str, str | None], list[Where]] = {}
    for problem in found:
        same.setdefault((problem.what, problem.fix), []).append(problem.where)
    if len(same) == 1:
        ((what, fix), places) = next(iter(same.items()))
        more = f" (so does {_lines(places[1:])})" if len(places) > 1 else ""
        raise kind(what + more, where=places[0], fix=fix)
    lines = [f"{len(same)} things that it asks for are missing here:"]
    for (what, fix), places in same.items():
        first = Where(line=places[0].line, layer=places[0].layer, type=places[0].type)
        more = f" (also {_lines(places[1:])})" if len(places) > 1 else ""
        lines.append(f"  {first}: {what}{more}" + (f"; {fix}" if fix else ""))
    raise kind(
        "\n".join(lines),
        where=Where(file=found[0].where.file),
        fix="change every line above; docs/supported.md lists what there is",
    )


def _lines(places: list[Where]) -> str:
    """Return "line 5, line 9 and 3 more"."""
    said = [f"line {p.line}" if p.line else f'layer "{p.layer}"' for p in places[:_PLACES]]
    return ", ".join(said) + (f" and {len(places) - _PLACES} more" if len(places) > _PLACES else "")
