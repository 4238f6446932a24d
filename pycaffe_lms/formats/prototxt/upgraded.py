"""Define what upgrade steps hand on: the message, the origin of each layer, and notes on what was dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from google.protobuf.message import Message

from ...errors import PrototxtError
from ...proto.caffe_pb2 import NetParameter


class UpgradeError(PrototxtError):
    """Signal an old file that has no meaning today.

    source: index of the layer in the file. field: where source is None, the field of the net.
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
    """Note something in the file that an upgrade drops. source, field: as in UpgradeError."""

    text: str
    source: int | None = None
    field: str | None = None


@dataclass(frozen=True)
class Upgraded:
    """Hold a net after some steps. origins[k]: index of layer k in the file, None for a layer that was added."""

    message: NetParameter
    origins: tuple[int | None, ...]
    notes: tuple[Note, ...] = ()

    def then(self, step: Callable[[NetParameter], Upgraded]) -> Upgraded:
        """Apply one more step, and trace its layer indices back to the file."""
        try:
            later = step(self.message)
        except UpgradeError as error:
            error.source = self._source(error.source)
            raise
        if later.message is self.message and not later.notes:
            return self
        notes = tuple(replace(note, source=self._source(note.source)) for note in later.notes)
        return Upgraded(later.message, tuple(map(self._source, later.origins)), self.notes + notes)

    def _source(self, index: int | None) -> int | None:
        return None if index is None else self.origins[index]


def unchanged(net: NetParameter) -> Upgraded:
    """Return the net as it is, whichever generation its layers have."""
    return Upgraded(net, tuple(range(len(net.layers) or len(net.layer))))


def as_text(value: str | bytes) -> str:
    """Return the value of a string field: protobuf gives bytes where a binary file holds a string that is not UTF-8.

    Values of other fields are returned as they are.
    """
    return value.decode("latin-1") if isinstance(value, bytes) else value


def assign(message: Message, name: str, value: Any) -> None:
    """Give field `name` the value of a field of the same type elsewhere: set, copied, extended or appended."""
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
