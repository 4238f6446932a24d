"""What one upgrade step hands to the next: the message, where each layer came from, and what was passed over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import Message

from ...errors import PrototxtError
from ...proto.caffe_pb2 import NetParameter


class UpgradeError(PrototxtError):
    """An old file that has no meaning today.

    `source` is the index of the layer in the file; where it is None, `field` is the field of the net.
    """

    def __init__(
        self,
        message: str,
        *,
        source: int | None = None,
        field: str | None = None,
        layer: str | None = None,
        fix: str | None = None,
    ):
        super().__init__(message, fix=fix)
        self.source = source
        self.field = field
        if layer:
            self.at(layer=layer)


@dataclass(frozen=True)
class Note:
    """Something in the file that an upgrade drops; `source` and `field` as in UpgradeError."""

    text: str
    source: int | None = None
    field: str | None = None


@dataclass(frozen=True)
class Upgraded:
    """A net after some steps. `origins[k]` is the index layer k had in the file, None for a layer that was added."""

    message: NetParameter
    origins: tuple[int | None, ...]
    notes: tuple[Note, ...] = ()

    def then(self, step: Callable[[NetParameter], Upgraded]) -> Upgraded:
        """Apply one more step; its layer indices are traced back to the file."""
        try:
            later = step(self.message)
        except UpgradeError as error:
            error.source = self._source(error.source)
            raise
        notes = tuple(replace(note, source=self._source(note.source)) for note in later.notes)
        return Upgraded(later.message, tuple(map(self._source, later.origins)), self.notes + notes)

    def _source(self, index: int | None) -> int | None:
        return None if index is None else self.origins[index]


def unchanged(net: NetParameter) -> Upgraded:
    """The net as it is, layers of whichever generation it has."""
    return Upgraded(net, tuple(range(len(net.layers) or len(net.layer))))


def as_text(value: str | bytes) -> str:
    """A string field's value: protobuf gives bytes where a binary file holds a string that is not UTF-8."""
    return value.decode("latin-1") if isinstance(value, bytes) else value


def assign(message: Message, name: str, value: Any) -> None:
    """Give field `name` a value that a field of the same type has elsewhere: set, copied, extended or appended."""
    target = getattr(message, name)
    if isinstance(value, Message):
        target.CopyFrom(value)
    elif not hasattr(target, "MergeFrom"):
        setattr(message, name, as_text(value))
    elif not hasattr(value, "MergeFrom"):
        target.append(as_text(value))
    elif message.DESCRIPTOR.fields_by_name[name].message_type is not None:
        target.MergeFrom(value)
    else:
        target.extend(map(as_text, value))
