"""The table of layer types by name: `register_layer` fills it, `layer_class` reads it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable

from ..errors import UnknownLayerError
from .base import Layer

LAYERS: dict[str, type[Layer]] = {}


def register_layer(type_name: str) -> Callable[[type[Layer]], type[Layer]]:
    """Return a decorator that enters a class for a prototxt `type:`. It raises ValueError if another class has it."""

    def add(cls: type[Layer]) -> type[Layer]:
        owner = LAYERS.setdefault(type_name, cls)
        if owner is not cls:
            raise ValueError(f"layer type {type_name!r} is claimed by both {owner.__module__} and {cls.__module__}")
        cls.type = type_name
        return cls

    return add


def layer_class(type_name: str) -> type[Layer]:
    """Return the class for a `type:`. Raises UnknownLayerError, which suggests similar names."""
    importlib.import_module("pycaffe_lms.layers")  # registers every type
    cls = LAYERS.get(type_name)
    if cls is None:
        folded = {name.lower(): name for name in LAYERS}
        typed = type_name.lower()
        near = [typed] if typed in folded else difflib.get_close_matches(typed, folded, n=3, cutoff=0.6)
        hint = f"; did you mean {' or '.join(repr(folded[n]).replace(chr(39), chr(34)) for n in near)}?" if near else ""
        raise UnknownLayerError(f'no layer type "{type_name}"{hint}', fix="write one of: " + ", ".join(sorted(LAYERS)))
    return cls
