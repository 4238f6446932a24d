"""Translate prototxts of Caffe's forks to BVLC's text, before protobuf reads them.

Covers: fields of forks that change no result here (dropped, one warning per field with its place), `engine` values of
forks, the 3-D spellings of windows, C3D's type names, resize_param given again. Tokens are blanked or replaced
in place, so that lines stay.
Fields of forks that change results become `unsupported` of their layer; unsupported.py refuses them.
See also: dialect_fields.py, the tables.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import FieldDescriptor

from ...errors import Where
from ...proto.caffe_pb2 import UnsupportedField
from .dialect_fields import C3D_MESSAGES, C3D_TYPES, C3D_WINDOW, ENGINES, FORK_ENGINES, IGNORED, INTEL, REFUSED, Ignored
from .errors import slip
from .forks import forks_of
from .scanner import Entry, Field, Token, fields, tokenize

_Descriptor: TypeAlias = Any  # of a message; its class depends on how protobuf is implemented
_log = logging.getLogger(__name__)
_PLAIN = re.compile(r"""-?[\d.][\w.+-]* | true | false | [A-Z][A-Z0-9_]* | (["']).*""", re.VERBOSE)
_LAYERS = ("LayerParameter", "V1LayerParameter")
_WINDOW = {"kernel_size": "kernel_shape", "stride": "stride_shape", "pad": "pad_shape"}
_DEVICES = Ignored("yjxiong's Caffe", "only the first is taken; -gpu 0,1 trains on several")
_WINDOWED = ("PoolingParameter", "ConvolutionParameter")
_VIDEO = "VIDEO_DATA"  # C3D's layer of the second generation, whose fields are in image_data_param
_INTEL_3D = {"kernel_size_3d": "kernel_shape", "stride_3d": "stride_shape", "pad_3d": "pad_shape"}

_RESPELLED = {*_INTEL_3D, *(name for name, *_ in C3D_WINDOW)}


@dataclass
class _Edits:
    """Collect replacements of tokens, and the lines of ignored fields by name and reason."""

    words: dict[Token, str] = field(default_factory=dict)
    ignored: dict[tuple[str, Ignored], list[int]] = field(default_factory=dict)
    missing: list[UnsupportedField] = field(default_factory=list)  # of the layer or net that is walked

    def drop(self, written: Field, why: Ignored) -> None:
        self.words.update(dict.fromkeys(written.tokens, ""))
        self.ignored.setdefault((written.name, why), []).append(written.tokens[0].line)

    def lack(self, written: Field, message: str, name: str) -> None:
        self.words.update(dict.fromkeys(written.tokens, ""))
        self.missing.append(UnsupportedField(message=message, name=name, line=written.tokens[0].line))

    def replace(self, written: Sequence[Field], words: str) -> None:
        for one in written:
            self.words.update(dict.fromkeys(one.tokens, ""))
        self.words[written[0].tokens[0]] = words


def may_name_c3d(text: str) -> bool:
    """Return whether a text may name C3D's layer types. They are strings, which protobuf takes as they are; all else
    that `translate` changes is refused by protobuf."""
    return any(name in text for name in C3D_TYPES)


def translate(text: str, root: _Descriptor, filename: str | None = None) -> tuple[str, list[UnsupportedField]]:
    """Return a text in BVLC's terms, with the same lines; the text itself where it has no fields of forks.

    Logs one warning for each field that is ignored. root: the descriptor of the text's message. Second: fields of
    forks outside of layers that cannot be ignored; those in layers are `unsupported` of these.
    """
    edits = _Edits()
    _walk(tokenize(text), root, edits)
    for (name, why), lines in edits.ignored.items():
        more = f", {len(lines)} times" if len(lines) > 1 else ""
        note = f"; {why.note}" if why.note else ""
        place = Where(file=filename, line=lines[0])
        _log.warning("%s: %s (%s) has no effect here and is ignored%s%s", place, name, why.fork, more, note)
    return _rewrite(text, edits.words) if edits.words else text, edits.missing


def _walk(tokens: Sequence[Token], message: _Descriptor, edits: _Edits) -> None:
    written = list(fields(tokens))
    names = C3D_MESSAGES if message.name in _LAYERS else {}
    types = [entry.text() for one in written if one.name == "type" for entry in one.values]
    if message.name == "V1LayerParameter" and _VIDEO in types:
        names = {**names, "image_data_param": "video_data_param"}
    for one in written:
        why = _no_effect(one, message)
        name = names.get(one.name, one.name)
        known = _known(message).get(name)
        if why is not None:
            edits.drop(one, why)
        elif known is not None and known.message_type is not None:
            if name != one.name:
                edits.words[one.tokens[0]] = name
            for entry in one.values:
                if entry.closed:
                    _walk_message(entry, one, known.message_type, edits)
        elif (lacks := _lacks(one, message)) is not None:
            edits.lack(one, *lacks)
        elif one.name == "type" and message.name in _LAYERS:
            for entry in one.values:
                if entry.text() in C3D_TYPES:
                    word = entry.value[0]
                    edits.words[word] = word.text.replace(entry.text(), C3D_TYPES[entry.text()])
        if (message.name, one.name) == ("SolverParameter", "device_id") and len(one.values) > 1:
            edits.ignored.setdefault(("device_id", _DEVICES), []).append(one.tokens[0].line)
            edits.replace([one], f"device_id: {one.values[0].text()}")
    if message.name in _WINDOWED:
        _windows(written, message.name, edits)
    if message.name == "TransformationParameter":  # in MobileNet-YOLO a field that may be given again
        for one in [one for one in written if one.name == "resize_param"][1:]:
            edits.words[one.tokens[0]] = "further_resize_param"


def _walk_message(entry: Entry, written: Field, message: _Descriptor, edits: _Edits) -> None:
    """Walk a value that is a message. A layer, or a net, takes up what is missing inside of it."""
    if message.name not in (*_LAYERS, "NetParameter"):
        _walk(entry.body, message, edits)
        return
    outer, edits.missing = edits.missing, []
    _walk(entry.body, message, edits)
    if edits.missing:
        end = next(token for token in written.tokens if (token.line, token.column) == entry.end)
        edits.words[end] = _as_text(edits.missing) + end.text
    edits.missing = outer


def _as_text(missing: Sequence[UnsupportedField]) -> str:
    found = ((f.message, f.name, f.line) for f in missing)
    return "".join(f' unsupported {{ message: "{m}" name: "{name}" line: {line} }} ' for m, name, line in found)


def _lacks(one: Field, message: _Descriptor) -> tuple[str, str] | None:
    """Return (message or message.Enum, name) of a field or value that a fork has and we lack; None for all else.

    A message of a layer that is not known at all, and resembles nothing, is of a fork too.
    """
    if not one.values or not all(_whole(entry) for entry in one.values):
        return None
    known = _known(message).get(one.name)
    if known is not None and known.enum_type is not None:
        enum = f"{message.name}.{known.enum_type.name}"
        names = {value.name for value in known.enum_type.values}
        given = [entry.text() for entry in one.values if entry.text() not in names and entry.text() not in C3D_TYPES]
        return (enum, given[0]) if given and all(forks_of(enum, value) for value in given) else None
    if known is not None or (message.name in _WINDOWED and one.name in _RESPELLED):
        return None
    if forks_of(message.name, one.name) or one.name in REFUSED.get(message.name, {}):
        return message.name, one.name
    is_message = one.name.endswith("_param") and one.name.isidentifier() and not any(e.value for e in one.values)
    if message.name in _LAYERS and is_message and slip(one.name, list(_known(message))) is None:
        return message.name, one.name
    return None


@cache
def _known(message: _Descriptor) -> Mapping[str, FieldDescriptor]:
    """Return the fields of a message by name. (protobuf's own map raises for some strings that files may hold.)"""
    return {known.name: known for known in message.fields}


def _no_effect(one: Field, message: _Descriptor) -> Ignored | None:
    """Return why a field may be dropped, or None for one that stays."""
    if not one.values or not all(_whole(entry) for entry in one.values):
        return None
    values = [entry.text() for entry in one.values]
    known = _known(message).get(one.name)
    if one.name == "engine" and message.name.endswith("Parameter"):
        if known is not None and known.enum_type is not None and values[0].startswith(FORK_ENGINES):
            return Ignored(INTEL)
        if known is None and values[0].startswith(ENGINES):
            return IGNORED.get(message.name, {}).get("engine") or Ignored("a fork of Caffe")
    if known is not None:
        return None
    ignored = IGNORED.get(message.name, {}).get(one.name)
    if ignored is not None:
        return ignored
    refused = REFUSED.get(message.name, {}).get(one.name)
    if refused is not None and refused.neutral is not None and all(_same(v, refused.neutral) for v in values):
        return Ignored(refused.fork, f"at {refused.neutral} it changes nothing")
    return None


def _whole(entry: Entry) -> bool:
    """Return whether a value is complete; protobuf refuses incomplete ones and names their place."""
    if not entry.value:
        return bool(entry.closed and (entry.body or entry.end != entry.begin))
    return bool(_PLAIN.fullmatch(entry.value[-1].text))


def _same(value: str, neutral: str) -> bool:
    try:
        return float(value) == float(neutral)
    except ValueError:
        return value == neutral


def _windows(written: Sequence[Field], message: str, edits: _Edits) -> None:
    """Replace forks' windows with a value per axis by kernel_shape, stride_shape and pad_shape."""
    given: dict[str, list[Field]] = {}
    for one in written:
        given.setdefault(one.name, []).append(one)
    if any(name in given for name, *_ in C3D_WINDOW):
        for depth, size, default, ours in C3D_WINDOW:
            parts = [*given.get(depth, ()), *given.get(size, ())]
            fallback = [] if default is None else [default]
            first, second = (_numbers(given.get(name, ())) or fallback for name in (depth, size))
            if parts and len(first) == len(second) == 1:
                edits.replace(parts, _shape(ours, [*first, *second, *second]))
    elif message == "PoolingParameter":
        for spelling, needed in ((_WINDOW, 2), (_INTEL_3D, 1)):
            for name, ours in spelling.items():
                numbers = _numbers(given.get(name, ()))
                if len(numbers) >= needed:
                    edits.replace(given[name], _shape(ours, numbers))


def _numbers(written: Sequence[Field]) -> list[str]:
    """Return the values of all fields of one name; none where one of them is no whole number."""
    values = [entry.text() for one in written for entry in one.values]
    return values if all(value.isdecimal() for value in values) else []


def _shape(name: str, numbers: Sequence[str]) -> str:
    return f"{name} {{ " + " ".join(f"dim: {n}" for n in numbers) + " }"


def _rewrite(text: str, words: dict[Token, str]) -> str:
    """Return `text` with tokens replaced; shorter words are padded with spaces, so that columns stay right."""
    lines = text.split("\n")
    by_line: dict[int, list[Token]] = {}
    for token in sorted(words, key=lambda t: (t.line, t.column)):
        by_line.setdefault(token.line, []).append(token)
    for number, tokens in by_line.items():
        line, done = lines[number - 1], 0
        pieces: list[str] = []
        for token in tokens:
            start = token.column - 1
            pieces += (line[done:start], words[token].ljust(len(token.text)))
            done = start + len(token.text)
        lines[number - 1] = "".join((*pieces, line[done:]))
    return "\n".join(lines)
