"""Turn protobuf's errors about a text file into ours: file, line, layer, what was found, and a fix.

This is about the text being a NetParameter or SolverParameter, not about the meaning of the net.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from google.protobuf import text_encoding
from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message
from google.protobuf.text_format import ParseError

from ...errors import PrototxtError, Where
from ...proto import caffe_pb2
from ...proto.caffe_pb2 import LayerParameter, NetParameter, SolverParameter
from .dialect_fields import refusal
from .scanner import Entry, Token, scan, tokenize, unclosed

_LAYERS = ("layer", "layers")
_BYTES = ("raw_data", "raw_diff")  # fields of bytes, in which NUL is allowed
_NESTED_NETS = ("net_param", "train_net_param", "test_net_param")
Explain = Callable[["re.Match[str]", "Entry | None"], "tuple[str, str | None]"]
"""(match of protobuf's message, layer of the error) -> (our message, fix)."""


def syntax_error(text: str, failure: ParseError, filename: str | None) -> PrototxtError:
    """Return the error for a text that protobuf refused."""
    tokens = tokenize(text)
    line, column = failure.GetLine() or 1, failure.GetColumn() or 1
    reason = _reason(str(failure), text, line)
    if reason.startswith('Expected "}"') or reason.startswith('Expected ">"'):
        brace = unclosed(tokens)
        if brace is not None:
            layer = enclosing_layer(tokens, (brace.line, brace.column))
            where = _where(filename, brace.line, layer)
            return PrototxtError(f'"{brace.text}" is never closed', where=where, fix="add the closing brace")
    layer = enclosing_layer(tokens, (line, column))
    message, fix = _explain(reason, layer, text, line)
    return PrototxtError(message, where=_where(filename, line, layer), fix=fix)


def missing_fields(message: Message, text: str, filename: str | None) -> PrototxtError | None:
    """Return the error for a missing required field (ClipParameter has some), or None."""
    missing: list[str] = message.FindInitializationErrors()  # type: ignore[attr-defined]
    if not missing:
        return None
    entries, found, line = list(scan(tokenize(text))), None, None
    *path, name = missing[0].split(".")
    for step in path:
        field, _, index = step.rstrip("]").partition("[")
        same = [entry for entry in entries if entry.name == field]
        if not same or int(index or 0) >= len(same):
            break
        entry = same[int(index or 0)]
        found = entry if field in _LAYERS else found
        entries, line = list(scan(entry.body)), entry.line
    parent = path[-1] if path else "the file"
    return PrototxtError(
        f"{parent} has no `{name}`, which it must have",
        where=_where(filename, line, found),
        fix=f"write `{name}: ...` inside {parent} {{ }}",
    )


def nul_byte(text: str, filename: str | None) -> PrototxtError | None:
    """Return the error for a string with a NUL byte, which names of files and blobs cannot have, or None."""
    if "\\" not in text and "\0" not in text:
        return None
    tokens, name = tokenize(text), ""
    for token in tokens:
        if token.text[0].isalpha():
            name = token.text
        if name in _BYTES:
            continue
        bare = text_encoding.CUnescape(token.text).decode("latin-1") if "\\" in token.text else token.text
        if "\0" in bare:
            where = _where(filename, token.line, enclosing_layer(tokens, (token.line, token.column)))
            what = f"the string {token.text[:60]!r} holds a NUL byte"
            return PrototxtError(what, where=where, fix="write it without \\0, which would end it in Caffe")
    return None


def enclosing_layer(tokens: Sequence[Token], place: tuple[int, int]) -> Entry | None:
    """Return the layer (of the file, or of a net inside a solver) in whose text a place (line, column) lies."""
    for entry in scan(tokens):
        if entry.begin <= place and (place <= entry.end or not entry.closed):
            if entry.name in _NESTED_NETS:
                return enclosing_layer(entry.body, place)
            return entry if entry.name in _LAYERS else None
    return None


def layer_words(entry: Entry) -> dict[str, str]:
    """Return "name" and "type" of a layer as written, V0 layers included; what is not written is left out."""
    words: dict[str, str] = {}
    for inner in scan(entry.body):
        if inner.name in ("name", "type") and inner.value:
            words.setdefault(inner.name, inner.text())
        elif entry.name == "layers" and inner.name == "layer":
            words |= layer_words(inner)
    return words


def _where(filename: str | None, line: int | None, layer: Entry | None) -> Where:
    words = layer_words(layer) if layer else {}
    return Where(file=filename, line=line, layer=words.get("name"), type=words.get("type"))


def _reason(said: str, text: str, line: int) -> str:
    """Return protobuf's message without the prefix `line:column : 'the whole line': `."""
    reason = re.sub(r"^\d+:\d+ : ", "", said)
    lines = text.split("\n")
    for quoted in (f"'{lines[line - 1]}': " if line <= len(lines) else "", "'': "):
        if quoted:
            reason = reason.removeprefix(quoted)
    return reason


def _explain(reason: str, layer: Entry | None, text: str, line: int) -> tuple[str, str | None]:
    for pattern, explain in _KNOWN:
        match = pattern.match(reason)
        if match:
            return explain(match, layer)
    lines = text.split("\n")
    near = lines[line - 1].strip()[:60] if line <= len(lines) else ""
    message = reason[:1].lower() + reason[1:200].rstrip(".")
    fix = next((fix for pattern, fix in _FIXES if pattern.match(reason)), _FIELDS)
    return message + (f", in `{near}`" if near else ""), fix


def _unknown_field(match: re.Match[str], layer: Entry | None) -> tuple[str, str | None]:
    type_name, field = match.groups()
    foreign = refusal(type_name, field)
    if foreign is not None:
        return f'{type_name} has no field "{field}": {foreign[0]}', foreign[1]
    descriptor = caffe_pb2.DESCRIPTOR.message_types_by_name[type_name]
    return f'{type_name} has no field "{field}"', _field_fix(descriptor, field, layer)


def _field_fix(descriptor: Descriptor, field: str, layer: Entry | None) -> str:
    known = [f.name for f in descriptor.fields]
    if field in _LAYERS and layer is not None and descriptor is not SolverParameter.DESCRIPTOR:
        return f"close the {layer.name} that begins on line {layer.line} with a brace before this one"
    for other, kind in ((SolverParameter, "solver"), (NetParameter, "net")):
        is_top = descriptor.name in ("NetParameter", "SolverParameter") and descriptor is not other.DESCRIPTOR
        if is_top and field in other.DESCRIPTOR.fields_by_name:
            return f"`{field}` belongs to a {kind} file: was the {kind} given in place of another file?"
    if descriptor is LayerParameter.DESCRIPTOR:
        homes = [f.name for f in descriptor.fields if f.message_type and field in f.message_type.fields_by_name]
        if homes:
            written = {entry.name for entry in scan(layer.body)} if layer else set()
            best = [home for home in homes if home in written] or homes
            return f"write it inside {' or '.join(best[:3])} {{ }}"
    near = slip(field, known)
    if near:
        return f'did you mean "{near}"?'
    if len(known) > 20:
        return "correct the name, or delete the field"
    return f"its fields are {', '.join(known)}"


def slip(field: str, known: Sequence[str]) -> str | None:
    """Return the known name that `field` misspells, or None.

    The bounds are strict, for names of forks (roi_pooling_param) resemble known ones.
    """
    close = get_close_matches(field.lower(), known, 1, 0.9)
    if close:
        return close[0]
    stems = {name.removesuffix("_param"): name for name in known}
    close = get_close_matches(field.lower().removesuffix("_param"), stems, 1, 0.82)
    return stems[close[0]] if close else None


def _bad_enum(match: re.Match[str], layer: Entry | None) -> tuple[str, str | None]:
    path, value = match.groups()
    *outer, name = path.split(".")
    messages, enums = caffe_pb2.DESCRIPTOR.message_types_by_name, caffe_pb2.DESCRIPTOR.enum_types_by_name
    for part in outer:
        messages, enums = messages[part].nested_types_by_name, messages[part].enum_types_by_name
    names = [v.name for v in enums[name].values]
    bare = value.strip("\"'")
    if bare != value and bare in names:
        return f"{value} is a string, {name} takes a plain word", f"write {bare} without quotes"
    near = [n for n in names if n == bare.upper()] or get_close_matches(bare.upper(), names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"{value} is not a value of {name}", f"{hint}write one of {', '.join(names)}"


def _stray(match: re.Match[str], layer: Entry | None) -> tuple[str, str | None]:
    sign = match[1]
    if sign in ("}", ">"):
        return f'"{sign}" closes nothing', "delete it, or look for a block above that is closed too early"
    return f"expected the name of a field, found {sign[:60]!r}", _FIELDS


def _words(message: str, fix: str) -> Explain:
    """Return an explanation in fixed words; {0[1]} stands for what group 1 of the pattern matched."""
    return lambda match, layer: (message.format(match), fix)


_FIELDS = "fields are `name: value` or `name { ... }`: look for a quote or a brace that is missing or left over"
_FIXES = (  # for messages that `_KNOWN` does not explain
    (re.compile(r"Expected string"), 'write the value in quotes: "..."'),
    (re.compile(r"Couldn't parse string"), "write the string in UTF-8, a backslash as \\\\"),
    (re.compile(r'Expected "\{"'), "write `name { ... }`: the value is a message"),
    (re.compile(r"Couldn't parse float"), "write a number, such as 0.01"),
    (re.compile(r'Expected "true"'), "write true or false"),
)
_KNOWN: tuple[tuple[re.Pattern[str], Explain], ...] = (
    (re.compile(r'Message type "caffe\.(\w+)" has no field named "(.*?)"'), _unknown_field),
    (re.compile(r'Enum type "caffe\.([\w.]+)" has no value (?:named|with number) (.*)\.'), _bad_enum),
    (
        re.compile(r'Message type "caffe\.(\w+)" should not have multiple "(\w+)" fields'),
        _words("`{0[2]}` is given twice in one {0[1]}", "keep one of them"),
    ),
    (
        re.compile(r"String missing ending quote: ['\"](.*)['\"]$"),
        _words("the string {0[1]:.60} has no closing quote on its line", "close it with the quote it begins with"),
    ),
    (re.compile(r"Expected identifier or number, got (.*)\.$"), _stray),
    (re.compile(r'Expected ":"'), _words('expected ":" between a field and its value', "write `field: value`")),
    (re.compile(r"Couldn't parse integer: (.*)"), _words("{0[1]} is not an integer", "write a whole number")),
)
