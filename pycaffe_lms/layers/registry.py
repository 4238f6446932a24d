"""The table of layer types by name: `register_layer` fills it, `layer_class` reads it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable

from ..errors import UnknownLayerError
from ..formats.prototxt.unsupported import unknown_type
from .base import Layer

LAYERS: dict[str, type[Layer]] = {}
_NEAR = 0.8  # likeness of a name that is suggested: of a slip, not of another layer


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
    """Return the class for a `type:`. Raises UnknownLayerError, which names its fork or suggests similar names."""
    missing = missing_type(type_name)
    if missing is not None:
        raise missing
    return LAYERS[type_name]


def missing_type(type_name: str) -> UnknownLayerError | None:
    """Return the error for a `type:` that no class has, else None."""
    importlib.import_module("pycaffe_lms.layers")  # registers every type
    if type_name in LAYERS:
        return None
    of_fork = unknown_type(type_name)
    if of_fork is not None:
        return UnknownLayerError(of_fork[0], fix=of_fork[1])
    folded = {name.lower(): name for name in LAYERS}
    typed = type_name.lower()
    near = [typed] if typed in folded else difflib.get_close_matches(typed, folded, n=3, cutoff=_NEAR)
    hint = f"; did you mean {' or '.join(repr(folded[n]).replace(chr(39), chr(34)) for n in near)}?" if near else ""
    return UnknownLayerError(f'no layer type "{type_name}"{hint}', fix="write one of: " + ", ".join(sorted(LAYERS)))
