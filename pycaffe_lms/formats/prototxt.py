"""prototxt files to messages of the current generation, with the line of every layer.

Covers: nets and solvers as text, nets as binary proto. Inline nets of a solver are upgraded too.
See also: dialects.py for forks' texts, upgrade.py for the generations, scanner.py for the lines, prototxt_errors.py for
the errors.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from google.protobuf import text_format

from pycaffe_lms.errors import CaffeError, PrototxtError, Where
from pycaffe_lms.formats.dialects import translate
from pycaffe_lms.formats.prototxt_errors import layer_words, missing_fields, nul_byte, syntax_error
from pycaffe_lms.formats.rawfile import parse_message, read_bytes
from pycaffe_lms.formats.scanner import Entry, Token, scan
from pycaffe_lms.formats.upgrade import upgrade_net, upgrade_solver
from pycaffe_lms.formats.upgraded import Upgraded, UpgradeError
from pycaffe_lms.proto.caffe_pb2 import NetParameter, SolverParameter

_log = logging.getLogger(__name__)
_INLINE = ("train_net_param", "test_net_param", "net_param")
_M = TypeVar("_M", NetParameter, SolverParameter)


@dataclass(frozen=True)
class Lines:
    """Lines, from 1, of what a message was read from; None where there is no text.

    `layers`: by layer of the message. `fields`: by name of a top-level field as the file has it, one line per value.
    `nets`: by field name, the lines of a solver's inline nets.
    """

    layers: tuple[int | None, ...] = ()
    fields: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    nets: Mapping[str, tuple[Lines, ...]] = field(default_factory=dict)

    def layer(self, k: int) -> int | None:
        """The line of layer k; an added Input layer has that of the `input` field."""
        return self.layers[k] if k < len(self.layers) else None

    def field(self, name: str, index: int = 0) -> int | None:
        """The line of a top-level field's value number `index`."""
        lines = self.fields.get(name, ())
        return lines[index] if index < len(lines) else None

    def net(self, name: str, index: int = 0) -> Lines:
        """The lines inside an inline net, such as "net_param"."""
        nets = self.nets.get(name, ())
        return nets[index] if index < len(nets) else Lines()


@dataclass(frozen=True)
class Parsed(Generic[_M]):
    """A message, the lines it was read from and the file's name as it was given."""

    message: _M
    lines: Lines
    filename: str | None = None

    def where(self, k: int) -> Where:
        """The place of layer k of a net."""
        layer = self.message.layer[k]
        return Where(file=self.filename, line=self.lines.layer(k), layer=layer.name or None, type=layer.type or None)


def read_net(path: str | os.PathLike) -> Parsed[NetParameter]:
    """A net from a text file, upgraded. Raises: PrototxtError, also for a file that is missing, binary or empty."""
    return parse_net(_read_text(path), os.fspath(path))


def read_solver(path: str | os.PathLike) -> Parsed[SolverParameter]:
    """A solver from a text file, upgraded. Raises: as read_net; SolverError for solver_type beside type."""
    return parse_solver(_read_text(path), os.fspath(path))


def read_net_binary(path: str | os.PathLike) -> Parsed[NetParameter]:
    """A net from a binary proto file, upgraded; there are no lines. Raises: PrototxtError."""
    net = parse_message(NetParameter(), path, "a binary net", PrototxtError)
    filename = os.fspath(path)
    upgraded, lines = _upgrade(net, Lines(), [], filename)
    return Parsed(upgraded, lines, filename)


def parse_net(text: str, filename: str | None = None) -> Parsed[NetParameter]:
    """A net from text. Unknown fields, bad values and a mixture of `layer` and `layers` are errors, as in Caffe.

    Fields of forks that change no result are logged as warnings with their lines (see dialects.py), and so is what an
    upgrade has to drop.
    Raises: PrototxtError with file, line, layer, what was found and a fix.
    """
    text, tokens = translate(text, NetParameter.DESCRIPTOR, filename)
    net = _merge(text, tokens, NetParameter(), filename)
    entries = list(scan(tokens))
    upgraded, lines = _upgrade(net, _file_lines(entries), entries, filename)
    return Parsed(upgraded, lines, filename)


def parse_solver(text: str, filename: str | None = None) -> Parsed[SolverParameter]:
    """A solver from text. Raises: PrototxtError as parse_net; SolverError for solver_type beside type."""
    text, tokens = translate(text, SolverParameter.DESCRIPTOR, filename)
    message = _merge(text, tokens, SolverParameter(), filename)
    entries = list(scan(tokens))
    lines = _file_lines(entries)
    try:
        solver = SolverParameter()
        solver.CopyFrom(upgrade_solver(message))
    except CaffeError as error:
        error.at(file=filename, line=lines.field("solver_type"))
        raise
    nets: dict[str, tuple[Lines, ...]] = {}
    for name in _INLINE:
        inner = [list(scan(entry.body)) for entry in entries if entry.name == name]
        messages = getattr(solver, name) if name == "test_net_param" else [getattr(solver, name)] * bool(inner)
        done = [_upgrade(net, _file_lines(part), part, filename) for net, part in zip(messages, inner, strict=True)]
        for net, (upgraded, _) in zip(messages, done, strict=True):
            net.CopyFrom(upgraded)
        nets[name] = tuple(inside for _, inside in done)
    return Parsed(solver, Lines(fields=lines.fields, nets=nets), filename)


def _read_text(path: str | os.PathLike) -> str:
    content = read_bytes(path, PrototxtError)
    if b"\0" in content[:4096]:
        raise PrototxtError(
            "not a text file",
            where=Where(file=os.fspath(path)),
            fix="give the .prototxt here; weights (.caffemodel) have an argument of their own",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Comments in other encodings are common and mean nothing to the parser, whatever letters they become.
        return content.decode("latin-1")


def _merge(text: str, tokens: Sequence[Token], message: _M, filename: str | None) -> _M:
    if not tokens:
        raise PrototxtError(
            "nothing in it but white space and comments",
            where=Where(file=filename),
            fix="give the file that was meant; this one may have been cut off",
        )
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as failure:
        raise syntax_error(text, failure, filename) from None
    wrong = missing_fields(message, tokens, filename) or nul_byte(tokens, filename)
    if wrong is not None:
        raise wrong
    return message


def _file_lines(entries: Sequence[Entry]) -> Lines:
    fields: dict[str, list[int]] = {}
    for entry in entries:
        fields.setdefault(entry.name, []).append(entry.line)
    return Lines(fields={name: tuple(lines) for name, lines in fields.items()})


def _upgrade(
    net: NetParameter, lines: Lines, entries: Sequence[Entry], filename: str | None
) -> tuple[NetParameter, Lines]:
    """The net of today and its lines, from the net of the file, the lines of its fields and its entries."""
    old = "layers" if net.layers else "layer"
    layers = [entry for entry in entries if entry.name == old]
    try:
        result = upgrade_net(net)
    except UpgradeError as error:
        index = error.source
        known = layer_words(layers[index]) if index is not None and layers else {}
        line = _line(index, error.field, old, lines)
        error.at(file=filename, line=line, layer=known.get("name"), type=known.get("type"))
        raise
    for note in result.notes:
        line = _line(note.source, note.field, old, lines)
        _log.warning("%s: %s", Where(file=filename, line=line), note.text)
    return result.message, Lines(_layer_lines(result, old, lines), lines.fields)


def _line(source: int | None, name: str | None, old: str, lines: Lines) -> int | None:
    """The line of a layer of the file or, where the net itself is meant, of one of its fields."""
    if source is not None:
        return lines.field(old, source)
    return lines.field(name) if name else None


def _layer_lines(result: Upgraded, old: str, lines: Lines) -> tuple[int | None, ...]:
    return tuple(lines.field("input" if origin is None else old, origin or 0) for origin in result.origins)
