"""Find which parameter messages a layer type reads, and which of their fields its cases set."""

from __future__ import annotations

import inspect
import re
from functools import cache

from google.protobuf import text_format

from pycaffe_lms.layers.base import Layer
from pycaffe_lms.proto import caffe_pb2

MESSAGES = {  # layer_param's fields that hold a layer's own settings: name -> descriptor
    field.name: field.message_type
    for field in caffe_pb2.LayerParameter.DESCRIPTOR.fields
    if field.name.endswith("_param") and field.name != "lms_param"
}


@cache
def messages_of(cls: type[Layer]) -> tuple[str, ...]:
    """Return the `xxx_param` fields that the source of a layer class or of its bases names, and the type's own."""
    bases = [c for c in cls.__mro__ if issubclass(c, Layer) and c is not Layer]
    named = {word for c in bases for word in re.findall(r"\b\w+_param\b", inspect.getsource(c))}
    own = f"{cls.type}Parameter"
    return tuple(name for name, message in MESSAGES.items() if name in named or message.name == own)


def fields_set(text: str) -> set[tuple[str, str]]:
    """Return (message field, field) of everything that the inside of a `layer { }` sets."""
    message = text_format.Parse(text, caffe_pb2.LayerParameter())
    return {
        (outer.name, inner.name)
        for outer, value in message.ListFields()
        if outer.name in MESSAGES
        for inner, _ in value.ListFields()
    }


def with_field(text: str, message: str, inner: str) -> str:
    """Return the inside of a `layer { }` with more fields in one of its messages."""
    layer = text_format.Parse(text, caffe_pb2.LayerParameter())
    text_format.Merge(inner, getattr(layer, message))
    getattr(layer, message).SetInParent()
    return text_format.MessageToString(layer, as_one_line=True)
