"""Read prototxt files into messages of the current generation, with the line of every layer.

Covers: nets and solvers as text, nets as binary proto. Nets inside a solver are upgraded too.
See also: dialects.py for forks' texts, upgrade.py for the generations, scanner.py for the lines,
errors.py for the errors.
"""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Generic, TypeVar

from google.protobuf import text_format

from ...errors import CaffeError, PrototxtError, Where
from ...proto.caffe_pb2 import LabelMap, NetParameter, SolverParameter, UnsupportedField
from ..rawfile import parse_message, read_bytes
from .dialects import may_name_c3d, translate
from .errors import layer_words, missing_fields, nul_byte, syntax_error
from .scanner import Entry, scan, tokenize
from .unsupported import problems, refuse, refuse_unsupported
from .upgrade import upgrade_net, upgrade_solver
from .upgraded import UpgradeError

_log = logging.getLogger(__name__)
_HEAD = 4096  # bytes; a 0 among them is no text
_INLINE = ("train_net_param", "test_net_param", "net_param")
_M = TypeVar("_M", NetParameter, SolverParameter, LabelMap)
_Translated = tuple[str, _M, "list[UnsupportedField] | None"]
_LinesOfFields = Mapping[str, tuple[int, ...]]  # name of a top-level field in the file -> one line per value


@dataclass(frozen=True)
class Lines:
    """Find the lines, from 1, of the text that a message was read from; None where there is no text.

    Args:
        find: returns the lines of the top-level fields; scans the text at the first call.
        origins: for each layer of the message, its index in the file, None for an Input layer that was added.
        old: the file's field for layers, "layer" or "layers".
        nets: the lines of the nets inside a solver, by field name.
        file: the file of the text, if it is not the one that the lines around it are of.
    """

    find: Callable[[], _LinesOfFields] = dict
    origins: tuple[int | None, ...] = ()
    old: str = "layer"
    nets: Mapping[str, tuple[Lines, ...]] = field(default_factory=dict)
    file: str | None = None

    @property
    def fields(self) -> _LinesOfFields:
        """Return the lines of top-level fields, by name in the file."""
        return self.find()

    def layer(self, k: int) -> int | None:
        """Return the line of layer k; for an added Input layer that of the `input` field."""
        if k >= len(self.origins):
            return None
        origin = self.origins[k]
        return self.field("input") if origin is None else self.field(self.old, origin)

    def field(self, name: str, index: int = 0) -> int | None:
        """Return the line of value number `index` of a top-level field."""
        lines = self.fields.get(name, ())
        return lines[index] if index < len(lines) else None

    def net(self, name: str, index: int = 0) -> Lines:
        """Return the lines of a net inside a solver, such as "net_param"."""
        nets = self.nets.get(name, ())
        return nets[index] if index < len(nets) else Lines()


@dataclass(frozen=True)
class Parsed(Generic[_M]):
    """Hold a message, its lines and the file's name as given."""

    message: _M
    lines: Lines
    filename: str | None = None

    def where(self: Parsed[NetParameter], k: int) -> Where:
        """Return the place of layer k of a net."""
        layer = self.message.layer[k]
        return Where(file=self.filename, line=self.lines.layer(k), layer=layer.name or None, type=layer.type or None)


def read_net(path: str | os.PathLike[str], *, judge: bool = True) -> Parsed[NetParameter]:
    """Read a net from a text file, upgraded.

    Args:
        judge: as of parse_net.
    Raises:
        PrototxtError: as parse_net; also for a missing, binary or empty file.
    """
    return parse_net(_read_text(path), os.fspath(path), judge=judge)


def read_solver(path: str | os.PathLike[str]) -> Parsed[SolverParameter]:
    """Read a solver from a text file, upgraded. Raises: as read_net; SolverError for solver_type beside type."""
    return parse_solver(_read_text(path), os.fspath(path))


def read_text(path: str | os.PathLike[str], kind: type[_M]) -> _M:
    """Read a message of another kind, such as a LabelMap, from a text file. Raises: PrototxtError as parse_net."""
    return _parse(_read_text(path), kind, os.fspath(path))[1]


def kind_of(*paths: str) -> str:
    """Return "net" or "solver", as the first field says that only one of them has; "net" if there is none.

    Raises: PrototxtError for a file that cannot be read."""
    nets, solvers = (set(m.DESCRIPTOR.fields_by_name) for m in (NetParameter, SolverParameter))
    for path in paths:
        text = read_bytes(path, PrototxtError).decode("latin-1")  # names of fields are ASCII
        names = {entry.name for entry in scan(tokenize(text))}
        if names & (solvers - nets):
            return "solver"
        if names & (nets - solvers):
            return "net"
    return "net"


def read_net_binary(path: str | os.PathLike[str]) -> Parsed[NetParameter]:
    """Read a net from a binary proto file, upgraded; it has no lines. Raises: PrototxtError."""
    net = parse_message(NetParameter(), path, "a binary net", PrototxtError)
    filename = os.fspath(path)
    upgraded, lines = _upgrade(net, dict, tuple, filename)
    return Parsed(upgraded, lines, filename)


def parse_net(text: str, filename: str | None = None, *, judge: bool = True) -> Parsed[NetParameter]:
    """Parse a net. Unknown fields, bad values and a mixture of `layer` and `layers` are errors, as in Caffe.

    Logs a warning with its line for each ignored field of a fork (see dialects.py), and for what an upgrade drops.

    Args:
        judge: False: fields of forks that cannot be ignored are kept as `unsupported`. A net is built from the message
            only if no layer of its phase has any.
    Raises:
        PrototxtError: with file, line, layer, what was found and a fix.
    """
    text, net, missing = _parse(text, NetParameter, filename)
    net.unsupported.extend(missing or ())

    def entries() -> Iterable[Entry]:
        return scan(tokenize(text))

    upgraded, lines = _upgrade(net, cache(lambda: _file_lines(entries())), entries, filename)
    if judge and missing is not None:
        refuse_unsupported(upgraded, filename, lines.layer)
    return Parsed(upgraded, lines, filename)


def parse_solver(text: str, filename: str | None = None) -> Parsed[SolverParameter]:
    """Parse a solver. Raises: PrototxtError as parse_net; SolverError for solver_type beside type."""
    text, message, missing = _parse(text, SolverParameter, filename)
    refuse(list(problems(missing or (), filename)))
    entries = list(scan(tokenize(text)))
    lines = _file_lines(entries)
    try:
        solver = copy.deepcopy(upgrade_solver(message))
    except CaffeError as error:
        error.at(file=filename, line=Lines(lambda: lines).field("solver_type"))
        raise
    nets: dict[str, tuple[Lines, ...]] = {}
    for name in _INLINE:
        inner = [list(scan(entry.body)) for entry in entries if entry.name == name]
        messages = getattr(solver, name) if name == "test_net_param" else [getattr(solver, name)] * bool(inner)
        done = [_upgrade_inline(net, part, filename) for net, part in zip(messages, inner, strict=True)]
        for net, (upgraded, _) in zip(messages, done, strict=True):
            net.CopyFrom(upgraded)
        nets[name] = tuple(inside for _, inside in done)
    return Parsed(solver, Lines(lambda: lines, nets=nets), filename)


def _read_text(path: str | os.PathLike[str]) -> str:
    content = read_bytes(path, PrototxtError, head=_HEAD)
    if b"\0" in content[:_HEAD]:
        raise PrototxtError(
            "not a text file",
            where=Where(file=os.fspath(path)),
            fix="give the .prototxt here; weights (.caffemodel) have an argument of their own",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Comments in other encodings are common; the parser skips them, whatever letters they become.
        return content.decode("latin-1")


def _parse(text: str, kind: type[_M], filename: str | None) -> _Translated[_M]:
    """Return the text in BVLC's terms, its message, and the fields outside of layers that are missing here.

    The last is None for a text that has no fields of forks at all."""
    text, message, missing = _merge(text, kind, filename)
    if not message.ListFields() and not missing and not tokenize(text):
        raise PrototxtError(
            "nothing in it but white space and comments",
            where=Where(file=filename),
            fix="give the file that was meant; this one may have been cut off",
        )
    wrong = missing_fields(message, text, filename) or nul_byte(text, filename)
    if wrong is not None:
        raise wrong
    return text, message, missing


def _merge(text: str, kind: type[_M], filename: str | None) -> _Translated[_M]:
    if not may_name_c3d(text):
        with suppress(text_format.ParseError):  # only then is the text translated, which takes longer
            return text, text_format.Parse(text, kind()), None
    text, missing = translate(text, kind.DESCRIPTOR, filename)
    try:
        return text, text_format.Parse(text, kind()), missing
    except text_format.ParseError as failure:
        raise syntax_error(text, failure, filename) from None


def _file_lines(entries: Iterable[Entry]) -> _LinesOfFields:
    fields: dict[str, list[int]] = {}
    for entry in entries:
        fields.setdefault(entry.name, []).append(entry.line)
    return {name: tuple(lines) for name, lines in fields.items()}


def _upgrade_inline(net: NetParameter, entries: Iterable[Entry], filename: str | None) -> tuple[NetParameter, Lines]:
    lines = _file_lines(entries)
    return _upgrade(net, lambda: lines, lambda: entries, filename)  # keeps the lines, not the entries


def _upgrade(
    net: NetParameter, find: Callable[[], _LinesOfFields], entries: Callable[[], Iterable[Entry]], filename: str | None
) -> tuple[NetParameter, Lines]:
    """Upgrade the net of a file, whose fields have these lines and entries; return the net and its lines."""
    old = "layers" if net.layers else "layer"
    try:
        result = upgrade_net(net)
    except UpgradeError as error:
        index, lines = error.source, Lines(find)
        layers = [entry for entry in entries() if entry.name == old]
        known = layer_words(layers[index]) if index is not None and layers else {}
        line = _line(index, error.field, old, lines)
        error.at(file=filename, line=line, layer=known.get("name"), type=known.get("type"))
        raise
    lines = Lines(find, result.origins, old)
    for note in result.notes:
        line = _line(note.source, note.field, old, lines)
        _log.warning("%s: %s", Where(file=filename, line=line), note.text)
    return result.message, lines


def _line(source: int | None, name: str | None, old: str, lines: Lines) -> int | None:
    """Return the line of layer `source` of the file or, where that is None, of the net's field `name`."""
    if source is not None:
        return lines.field(old, source)
    return lines.field(name) if name else None
