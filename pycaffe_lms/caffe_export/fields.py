"""Find the fields of a layer that no other Caffe knows, and drop those that change no outputs of a net in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from google.protobuf.message import Message

from ..proto.caffe_pb2 import LayerParameter

OURS = range(7000, 7200)  # proto/caffe.proto
_TRAINING_ONLY = {"lms_param", "sync"}  # and memory: outputs are the same without
_OF_TRAINING = ("param", "loss_weight", "propagate_down", "include", "exclude", "phase")


class OwnField(NamedTuple):
    """Hold a field of ours that is set: the message that has it, its name, and the path to it from the layer."""

    owner: Message
    name: str
    path: str


def drop_training(layer: LayerParameter) -> None:
    """Clear what only training, or the choice of a phase, reads."""
    for name in _OF_TRAINING:
        layer.ClearField(name)  # type: ignore[arg-type]


def drop_neutral(layer: LayerParameter) -> list[str]:
    """Clear fields of ours that change no outputs: of training, and at their default. Return the paths of the first."""
    dropped = []
    for found in list(ours_in(layer)):
        if found.name in _TRAINING_ONLY:
            dropped.append(found.path)
        elif not _at_default(found):
            continue
        found.owner.ClearField(found.name)
    return dropped


def refused(layer: LayerParameter, params: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the paths of the fields of ours that are set, and of those in `params` that the lists there lack."""
    wrong = []
    for found in ours_in(layer):
        if found.path in params:
            given = getattr(layer, found.path).ListFields()
            wrong += [f"{found.path}.{one.name}" for one, _ in given if one.name not in params[found.path]]
        else:
            wrong.append(found.path)
    return wrong


def ours_in(message: Message, prefix: str = "") -> Iterator[OwnField]:
    """Yield the set fields of a message, and of messages in it, whose numbers are ours; not what is inside of these."""
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.number in OURS:
            yield OwnField(message, field.name, path)
        elif field.message_type is not None:
            for one in [value] if isinstance(value, Message) else value:
                yield from ours_in(one, f"{path}.")


def _at_default(found: OwnField) -> bool:
    """Tell whether a field has the value that it has when it is not set; so has a message without any field."""
    field, value = found.owner.DESCRIPTOR.fields_by_name[found.name], getattr(found.owner, found.name)
    if isinstance(value, Message):
        return not value.ListFields()
    return not hasattr(value, "MergeFrom") and field.has_default_value and bool(value == field.default_value)
