"""Compare two nets or two solvers: layers added, removed, moved and changed, fields old -> new. Pure.

Messages are compared by meaning: a field that is written with its default equals one that is not written.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from google.protobuf.message import Message

from ...proto.caffe_pb2 import LayerParameter, NetParameter

_PRESENCE_COUNTS = {"solver_mode"}  # where it is not written, the machine decides
_UNSET = "(not set)"
_Field: TypeAlias = Any  # a FieldDescriptor, whose class depends on how protobuf is implemented
_Key: TypeAlias = tuple[Any, ...]  # of a layer


@dataclass(frozen=True)
class Change:
    """Hold a changed field: its path inside the layer or the file, and both values as text."""

    path: str
    old: str
    new: str


@dataclass(frozen=True)
class LayerChange:
    """Hold what happened to a layer: "added", "removed", "moved" or "changed" (with its fields)."""

    name: str
    type: str
    what: str
    fields: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Differences:
    """Hold the changes of fields outside of layers, and of layers, in the new file's order.

    A removed layer comes after the layer that preceded it in the old file.
    """

    fields: tuple[Change, ...]
    layers: tuple[LayerChange, ...]

    def __bool__(self) -> bool:
        return bool(self.fields or self.layers)


def compare(old: Message, new: Message) -> Differences:
    """Compare two NetParameters, or two SolverParameters, of the current generation."""
    if not isinstance(old, NetParameter) or not isinstance(new, NetParameter):
        return Differences(tuple(_fields(old, new, "")), ())
    a, b = _without_layers(old), _without_layers(new)
    return Differences(tuple(_fields(a, b, "")), tuple(_layers(old.layer, new.layer)))


def _without_layers(net: NetParameter) -> NetParameter:
    bare = copy.deepcopy(net)
    bare.ClearField("layer")
    return bare


def _layers(old: Sequence[LayerParameter], new: Sequence[LayerParameter]) -> Iterator[LayerChange]:
    before, after = _keyed(old), _keyed(new)
    common = [key for key in after if key in before]
    places = {key: i for i, key in enumerate(before)}
    staying = set(_longest_rising(common, [places[key] for key in common]))
    gone = iter([key for key in before if key not in after])
    removed = next(gone, None)
    for key, layer in after.items():
        while removed is not None and key in staying and places[removed] < places[key]:
            yield LayerChange(before[removed].name, before[removed].type, "removed")
            removed = next(gone, None)
        if key not in before:
            yield LayerChange(layer.name, layer.type, "added")
            continue
        if key not in staying:
            yield LayerChange(layer.name, layer.type, "moved")
        changes = tuple(_fields(before[key], layer, ""))
        if changes:
            yield LayerChange(layer.name, layer.type, "changed", changes)
    while removed is not None:
        yield LayerChange(before[removed].name, before[removed].type, "removed")
        removed = next(gone, None)


def _keyed(layers: Sequence[LayerParameter]) -> dict[_Key, LayerParameter]:
    """Return layers by a key: the name and, where it repeats (data layers of two phases), the rules and a number."""
    names = Counter(layer.name for layer in layers)
    found: dict[_Key, LayerParameter] = {}
    for layer in layers:
        key: _Key = (layer.name,)
        if names[layer.name] > 1:
            key += tuple(_message(r) for r in (*layer.include, *layer.exclude))
        number = 0
        while (*key, number) in found:
            number += 1
        found[(*key, number)] = layer
    return found


def _longest_rising(keys: Sequence[_Key], places: Sequence[int]) -> list[_Key]:
    """Return a longest list of keys whose places rise: the layers that did not move."""
    tails: list[int] = []  # the smallest last place of a rising run of each length
    ends: list[int] = []
    back: list[int] = []
    for i, place in enumerate(places):
        at = bisect_left(tails, place)
        back.append(ends[at - 1] if at else -1)
        tails[at : at + 1], ends[at : at + 1] = [place], [i]
    found, i = [], ends[-1] if ends else -1
    while i >= 0:
        found.append(keys[i])
        i = back[i]
    return found[::-1]


def _fields(old: Message, new: Message, prefix: str) -> Iterator[Change]:
    for field in old.DESCRIPTOR.fields:
        path, many = prefix + field.name, _repeated(field)
        a, b = getattr(old, field.name), getattr(new, field.name)
        if field.message_type is None:
            if many:
                if list(a) != list(b):
                    yield Change(path, _list(field, a), _list(field, b))
                continue
            counts = field.name in _PRESENCE_COUNTS and old.HasField(field.name) != new.HasField(field.name)
            if counts or not _same(a, b):
                yield Change(path, _value(field, old, counts), _value(field, new, counts))
        elif many:
            yield from _repeated_messages(a, b, path)
        elif old.HasField(field.name) or new.HasField(field.name):
            yield from _fields(a, b, path + ".")


def _repeated_messages(old: Sequence[Message], new: Sequence[Message], path: str) -> Iterator[Change]:
    for i in range(max(len(old), len(new))):
        place = f"{path}[{i}]"
        if i < len(old) and i < len(new):
            yield from _fields(old[i], new[i], place + ".")
        else:
            yield Change(place, *(_message(x[i]) if i < len(x) else _UNSET for x in (old, new)))


def _repeated(field: _Field) -> bool:
    """Return whether a field is repeated. Newer protobuf has `is_repeated` and warns of `label`; older has `label`."""
    known: bool | None = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if known is None else known


def _same(a: Any, b: Any) -> bool:
    return bool(a == b or (a != a and b != b))  # NaN is no change


def _value(field: _Field, message: Message, presence: bool) -> str:
    if not message.HasField(field.name):
        return _UNSET if presence or not field.has_default_value else f"{_text(field, field.default_value)} (default)"
    return _text(field, getattr(message, field.name))


def _list(field: _Field, values: Sequence[Any]) -> str:
    return ", ".join(_text(field, v) for v in values) if len(values) else _UNSET


def _text(field: _Field, value: Any) -> str:
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if field.cpp_type == field.CPPTYPE_FLOAT:
        return f"{value:.7g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _message(message: Message) -> str:
    """Return a message as in a prototxt, on one line; the same with every version of protobuf."""
    parts = []
    for field, value in message.ListFields():
        for one in value if _repeated(field) else [value]:
            parts.append(
                f"{field.name} {_message(one)}" if field.message_type else f"{field.name}: {_text(field, one)}"
            )
    return "{ " + " ".join(parts) + " }" if parts else "{ }"
