"""Find which parameter messages a layer type reads, and which of their fields its cases set."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
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
    """Return the `xxx_param` fields that a layer class reads, and the type's own.

    Read is what code that the class reaches names: methods that `Layer` declares, what they call on `self` or on
    `super()`, and strings in attributes of the class (`field = "scale_param"`). Asking whether a message is there
    (`HasField`), texts and comments do not count.
    """
    named = {value for name in dir(cls) if isinstance(value := getattr(cls, name, None), str)}
    todo = [(cls, name) for name in dir(Layer)]
    seen = set()
    while todo:
        if (at := todo.pop()) in seen:
            continue
        seen.add(at)
        owner = next((c for c in cls.__mro__[cls.__mro__.index(at[0]) :] if at[1] in vars(c)), None)
        if owner is None or not issubclass(owner, Layer) or owner is Layer:
            continue
        after = cls.__mro__[cls.__mro__.index(owner) + 1]
        for node in _code(owner, at[1]):
            if isinstance(node, ast.Attribute):
                named.add(node.attr)
                of_super = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super"
                todo.append((after if of_super else cls, node.attr))
            elif isinstance(node, ast.Constant):
                named.add(node.value)
    own = f"{cls.type}Parameter"
    return tuple(name for name, message in MESSAGES.items() if name in named or message.name == own)


def _code(owner: type, name: str) -> Iterator[ast.AST]:
    """Yield the nodes of a method or property of a class, without what `HasField` is called with."""
    value = vars(owner)[name]
    value = getattr(value, "fget", None) or getattr(value, "func", None) or getattr(value, "__func__", value)
    if not inspect.isfunction(value):
        return
    todo: list[ast.AST] = [ast.parse(textwrap.dedent(inspect.getsource(value)))]
    while todo:
        node = todo.pop()
        yield node
        if not (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "HasField"):
            todo += ast.iter_child_nodes(node)


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
