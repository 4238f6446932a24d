"""Override fields of a net or a solver by path, such as "base_lr=0.001" or "layer.conv1.param.0.lr_mult=0".

A path leads through messages; a layer is named by its name, an element of a repeated message by its index from 0. A
value is typed by the field; of a repeated field, a comma list replaces all values.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, TypeAlias

from google.protobuf import text_format
from google.protobuf.message import Message

from ...errors import UsageError, Where
from ...proto.caffe_pb2 import NetParameter, SolverParameter
from .parser import Parsed, read_net

_log = logging.getLogger(__name__)
_Field: TypeAlias = Any  # a FieldDescriptor, whose class depends on how protobuf is implemented
_NET, _SOLVER = (frozenset(kind.DESCRIPTOR.fields_by_name) for kind in (NetParameter, SolverParameter))
_WORD = re.compile(r"[\w.+-]+")  # a number, a truth value, the name of an enum's value
_OWNERS = {"SolverParameter": "the solver", "NetParameter": "the net", "LayerParameter": "the layer"}
_FIX = "give FIELD=VALUE, such as base_lr=0.001, or layer.NAME.FIELD=VALUE, such as layer.conv1.param.0.lr_mult=0"


def override_net(parsed: Parsed[NetParameter], given: Sequence[str]) -> Parsed[NetParameter]:
    """Return the net with the given "path=value"s in force; log each. Raises UsageError."""
    for text in given:
        path, value = _split(text)
        if path.split(".")[0] in _SOLVER - _NET:
            raise UsageError(f"-set {text}: {path} is a field of a solver, and this is a net", fix="leave it out")
        _in_nets([parsed], path, value)
    return parsed


def override_solver(parsed: Parsed[SolverParameter], given: Sequence[str]) -> Parsed[SolverParameter]:
    """Return the solver with the given "path=value"s in force; log each. A path that is no solver's field is of its
    nets, which are then read. Raises UsageError; PrototxtError for a net that cannot be read."""
    solver, of_nets, changed = parsed.message, [], set()
    for text in given:
        path, value = _split(text)
        first = path.split(".")[0]
        if first not in _SOLVER and (first in _NET or not _close(first, _SOLVER)):
            of_nets.append((path, value))
            continue
        _log_change(path, _set(solver, path, path, value, lambda part: []), parsed.filename)
        changed.add(first)
    if of_nets:
        nets = {name: list(_nets(parsed, name)) for name in ("net_param", "train_net_param", "test_net_param")}
        for path, value in of_nets:
            _in_nets([net for some in nets.values() for net in some], path, value)
        parsed = _with_nets(parsed, nets)
    kept = {name: lines for name, lines in parsed.lines.fields.items() if name not in changed}
    return replace(parsed, lines=replace(parsed.lines, find=lambda: kept))


def _nets(parsed: Parsed[SolverParameter], field: str) -> Iterator[Parsed[NetParameter]]:
    """Yield the nets inside a solver in a field, then those that its file names in their stead."""
    solver, file_field = parsed.message, field.removesuffix("_param")
    repeated = field.startswith("test")
    inside = getattr(solver, field) if repeated else [getattr(solver, field)] * solver.HasField(field)
    for k, net in enumerate(inside):
        yield Parsed(net, parsed.lines.net(field, k), parsed.filename)
    for name in (
        getattr(solver, file_field) if repeated else [getattr(solver, file_field)] * solver.HasField(file_field)
    ):
        yield read_net(name, judge=False)


def _with_nets(parsed: Parsed[SolverParameter], nets: dict[str, list[Parsed[NetParameter]]]) -> Parsed[SolverParameter]:
    """Return the solver with these nets inside of it, none in files."""
    solver = SolverParameter()
    solver.CopyFrom(parsed.message)
    for field, found in nets.items():
        solver.ClearField(field)
        solver.ClearField(field.removesuffix("_param"))
        for net in found:
            target = getattr(solver, field)
            (target.add() if field.startswith("test") else target).CopyFrom(net.message)
    inner = {field: tuple(replace(n.lines, file=n.filename) for n in found) for field, found in nets.items()}
    return Parsed(solver, replace(parsed.lines, nets=inner), parsed.filename)


def _split(text: str) -> tuple[str, str]:
    path, equals, value = text.partition("=")
    if not equals or not path.strip():
        raise UsageError(f"-set {text!r} is not FIELD=VALUE", fix=_FIX)
    return path.strip(), value.strip()


def _in_nets(nets: Sequence[Parsed[NetParameter]], path: str, value: str) -> None:
    """Set a field of the nets; of a layer in every net that has it, and in all layers of that name."""
    first, _, rest = path.partition(".")
    if first != "layer":
        for net in nets:
            _log_change(path, _set(net.message, path, path, value, lambda part: _near_net(part, nets)), net.filename)
        return
    names = {layer.name for net in nets for layer in net.message.layer}
    name = max((n for n in names if n and (rest == n or rest.startswith(f"{n}."))), key=len, default=None)
    if name is None:
        near = _did_you_mean([f"layer.{n}" for n in _close(rest.split(".")[0], names)])
        raise UsageError(f"-set {path}={value}: no layer has this name{near}", fix=_FIX)
    inside = rest[len(name) + 1 :]
    if not inside:
        raise UsageError(f"-set {path}={value} names a layer, but no field of it", fix=_FIX)
    for net in nets:
        for k, layer in enumerate(net.message.layer):
            if layer.name == name:
                change = _set(layer, inside, path, value, lambda part, layer=layer: _near_layer(part, layer))
                _log_change(path, change, net.filename, net.lines.layer(k))


def _set(message: Message, inside: str, path: str, value: str, near: Any) -> tuple[str, str]:
    """Set the field that `inside` leads to; return its old and its new value as text. path: the whole, for errors."""
    *parents, last = inside.split(".")
    said = f"-set {path}={value}"
    while parents:
        field = _field(message, parents.pop(0), said, near)
        if field.message_type is None:
            raise UsageError(f"{said}: {field.name} is no message, so it has no fields", fix=_FIX)
        inner = getattr(message, field.name)
        if not isinstance(inner, Message):
            index = parents.pop(0) if parents else last
            if not index.isdigit() or int(index) >= len(inner):
                there = f"it has {len(inner)}" if len(inner) else "it has none"
                fix = f"count from 0: {field.name}.0"
                raise UsageError(f"{said}: {index!r} is no element of {field.name}, {there}", fix=fix)
            inner = inner[int(index)]
        message = inner
    field = _field(message, last, said, near)
    if field.message_type is not None:
        names = ", ".join(field.message_type.fields_by_name)
        raise UsageError(f"{said}: {field.name} is a message", fix=f"name one of its fields: {names}")
    old = _text(message, field)
    repeated = not isinstance(getattr(message, field.name), (str, bytes, bool, int, float))
    message.ClearField(field.name)
    for one in value.split(",") if repeated else [value]:
        _assign(message, field, one.strip(), said)
    return old, _text(message, field)


def _field(message: Message, name: str, said: str, near: Any) -> _Field:
    field = message.DESCRIPTOR.fields_by_name.get(name)
    if field is None:
        known = message.DESCRIPTOR.fields_by_name
        found = _close(name, known) or near(name)
        owner = _OWNERS.get(message.DESCRIPTOR.name, message.DESCRIPTOR.name)
        raise UsageError(f"{said}: {owner} has no field {name!r}{_did_you_mean(found)}", fix=_FIX)
    return field


def _assign(message: Message, field: _Field, value: str, said: str) -> None:
    if field.type == field.TYPE_STRING:
        if isinstance(getattr(message, field.name), str):
            setattr(message, field.name, value)
        else:
            getattr(message, field.name).append(value)
        return
    if field.enum_type is not None and value.upper() in field.enum_type.values_by_name:
        value = value.upper()
    try:
        if _WORD.fullmatch(value) is None:
            raise text_format.ParseError(value)
        text_format.Merge(f"{field.name}: {value}", message)
    except text_format.ParseError:
        raise UsageError(f"{said}: {field.name} takes {_kind(field)}", fix=f"{value!r} is none") from None


def _kind(field: _Field) -> str:
    if field.enum_type is not None:
        return "one of " + ", ".join(field.enum_type.values_by_name)
    if field.type == field.TYPE_BOOL:
        return "true or false"
    return "a number" if field.type in (field.TYPE_FLOAT, field.TYPE_DOUBLE) else "a whole number"


def _text(message: Message, field: _Field) -> str:
    """Return a field's value as it is written, or "not set"."""
    entries = [value for known, value in message.ListFields() if known.name == field.name]
    if not entries:
        return "not set"
    values = entries[0] if not isinstance(entries[0], (str, bytes, bool, int, float)) else entries
    if field.enum_type is not None:
        values = [field.enum_type.values_by_number[v].name for v in values]
    return ", ".join(
        f"{v:.7g}" if isinstance(v, float) else str(v).lower() if v is True or v is False else str(v) for v in values
    )


def _near_net(name: str, nets: Iterable[Parsed[NetParameter]]) -> list[str]:
    """Return where a name that is no field of a net may be: a layer, or a solver's field."""
    return [f"layer.{name}"] if any(layer.name == name for net in nets for layer in net.message.layer) else []


def _near_layer(name: str, layer: Message) -> list[str]:
    """Return paths inside a layer that end with the name, those of messages that the layer has first."""
    fields = layer.DESCRIPTOR.fields
    paths = [f.name for f in fields if f.message_type is not None and name in f.message_type.fields_by_name]
    set_ones = {f.name for f, _ in layer.ListFields()}
    found = [p for p in paths if p in set_ones] or paths
    return [f"{p}.{name}" for p in found[:3]]


def _close(name: str, known: Iterable[str]) -> list[str]:
    return get_close_matches(name, list(known), n=3)


def _did_you_mean(found: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(found)}?" if found else ""


def _log_change(path: str, change: tuple[str, str], file: str | None, line: int | None = None) -> None:
    _log.info("-set %s: %s, was %s (%s)", path, change[1], change[0], Where(file=file, line=line))
