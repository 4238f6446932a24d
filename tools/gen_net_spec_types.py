"""Write the types of NetSpec's layers, for editors and type checkers, from the layer classes and caffe.proto.

python tools/gen_net_spec_types.py            write pycaffe_lms/proto/net_spec_types.pyi
python tools/gen_net_spec_types.py --check    write nothing; exit 1 if it is not current
"""

from __future__ import annotations

import inspect
import math
import sys
from keyword import iskeyword
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from pages import write_or_check  # noqa: E402

from pycaffe_lms.layers.registry import LAYERS, layer_class  # noqa: E402
from pycaffe_lms.net_spec import keyword_messages  # noqa: E402
from pycaffe_lms.proto import caffe_pb2  # noqa: E402
from tests.layers.fields import messages_of  # noqa: E402

FILE = ROOT / "pycaffe_lms" / "proto" / "net_spec_types.pyi"
_WIRING = ("type", "bottom", "top")  # fields of LayerParameter that NetSpec sets itself
_LAYER = caffe_pb2.LayerParameter.DESCRIPTOR
_ALIASES = {"int": "Int", "float": "Float", "bool": "bool", "str": "str", "bytes": "bytes"}
_HEAD = '''"""Types of `layers` and `params` of net_spec.py. Written by tools/gen_net_spec_types.py; do not edit."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from ..net_spec import Top
from . import caffe_pb2 as pb

Int: TypeAlias = int | np.integer[Any]
Ints: TypeAlias = Int | Sequence[Int] | NDArray[Any]
Float: TypeAlias = float | Int | np.floating[Any]
Floats: TypeAlias = Float | Sequence[Float] | NDArray[Any]
Fields: TypeAlias = Mapping[str, Any]  # of a message: dict(type="xavier")
Made: TypeAlias = Any  # a Top; a tuple of Tops for ntop > 1, a Function for 0
'''
_PLURAL = {"Int": "Ints", "Float": "Floats"}


def text() -> str:
    """The whole file."""
    layer_class("ReLU")  # registers every type
    methods = [_method(name, cls) for name, cls in sorted(LAYERS.items())]
    messages = sorted(m for m in caffe_pb2.DESCRIPTOR.message_types_by_name if m.endswith("Parameter"))
    constants = [f"    {m.removesuffix('Parameter')}: type[pb.{m}]" for m in messages if m != "Parameter"]
    return "\n".join(
        [
            _HEAD,
            "class LayerTypes:",
            "\n".join(methods),
            "",
            "class ParameterTypes:",
            *constants,
            "",
        ]
    )


def keywords(name: str, cls: type) -> dict[str, tuple[str, str]]:
    """Return {keyword: (its type, its default)} of a layer type: its own fields, those of any layer, then messages."""
    found: dict[str, tuple[str, str]] = {}
    homes = keyword_messages(name)
    for home in homes:
        for field in _LAYER.fields_by_name[home].message_type.fields:
            if iskeyword(field.name):  # it is written in the message: detection_loss_param={"lambda": 2}
                continue
            if not field.name.endswith("param") or field.name not in _LAYER.fields_by_name:
                found.setdefault(field.name, (_type(field), _default(field)))
    messages = [*homes, *messages_of(cls), "lms_param"]
    for field in _LAYER.fields:
        if field.name not in _WIRING and (not field.name.endswith("_param") or field.name in messages):
            found.setdefault(field.name, (_type(field), _default(field)))
    return found


def _method(name: str, cls: type) -> str:
    first = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
    lines = [f"        {key}: {kind} = {default}," for key, (kind, default) in keywords(name, cls).items()]
    return "\n".join(
        [
            f"    def {name}(",
            "        self,",
            "        *bottoms: Top,",
            "        ntop: Int = 1,",
            "        in_place: bool = False,",
            *lines,
            "    ) -> Made:",
            f'        r"""{first}"""',
        ]
    )


def _type(field: Any) -> str:
    repeated = _repeated(field)
    if field.message_type is not None:
        one = f"Fields | pb.{_nested(field.message_type)}"
        return f"{one} | Sequence[{one}]" if repeated else one
    if field.enum_type is not None:
        values = ", ".join(f'"{v.name}"' for v in field.enum_type.values)
        one = f"Literal[{values}] | Int"
        return f"{one} | Sequence[{one}]" if repeated else one
    one = _ALIASES[_scalar(field)]
    several = repeated or f"{field.name.removesuffix('_size')}_shape" in field.containing_type.fields_by_name
    return _PLURAL.get(one, f"{one} | Sequence[{one}]") if several else one


def _scalar(field: Any) -> str:
    """Return the Python type of a scalar field."""
    if field.type == field.TYPE_BYTES:
        return "bytes"
    return {
        field.CPPTYPE_STRING: "str",
        field.CPPTYPE_BOOL: "bool",
        field.CPPTYPE_FLOAT: "float",
        field.CPPTYPE_DOUBLE: "float",
    }.get(field.cpp_type, "int")


def _repeated(field: Any) -> bool:
    return hasattr(getattr(getattr(caffe_pb2, field.containing_type.name)(), field.name), "extend")


def _nested(message: Any) -> str:
    return message.full_name.removeprefix(f"{message.file.package}.")


def _default(field: Any) -> str:
    """Return the default that caffe.proto gives to a single value; "..." for none."""
    if field.message_type is not None or _repeated(field) or not field.has_default_value:
        return "..."
    value = field.default_value
    if field.enum_type is not None:
        return f'"{field.enum_type.values_by_number[value].name}"'
    if isinstance(value, float):
        return f"{value:.7g}" if math.isfinite(value) else "..."
    return repr(value) if not isinstance(value, str) else f'"{value}"'


def main(argv: list[str] | None = None) -> int:
    """Write the stub file, or with --check only say whether it is current; return the exit code."""
    return write_or_check(FILE, text, "Write the types of NetSpec's layer functions.", argv)


if __name__ == "__main__":
    sys.exit(main())
