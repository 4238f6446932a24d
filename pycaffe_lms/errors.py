"""Define one family of errors that say where the problem is, what it is, and what to change.

An error has a place (file, line, layer, type, blob), a fix, and the exit code of the command line. Bugs of this package
are `AssertionError` and keep their traceback.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

_E = TypeVar("_E", bound="CaffeError")


@dataclass(frozen=True, slots=True)
class Where:
    """Name a place in the user's files or net. Every part may be unknown (None)."""

    file: str | None = None
    line: int | None = None
    layer: str | None = None
    type: str | None = None
    blob: str | None = None

    def __str__(self) -> str:
        parts = []
        if self.file is not None:
            parts.append(self.file if self.line is None else f"{self.file}:{self.line}")
        elif self.line is not None:
            parts.append(f"line {self.line}")
        inner = []
        if self.layer is not None:
            inner.append(f'layer "{self.layer}"' + (f" ({self.type})" if self.type else ""))
        if self.blob is not None:
            inner.append(f'blob "{self.blob}"')
        if inner:
            parts.append(", ".join(inner))
        return ": ".join(parts)


class CaffeError(RuntimeError):
    """Be the base of all errors that a user can cause. `str()` is `where: message` and a second line `  fix: ...`.

    `exit_code` is what the command line returns: 1 for the user's model or data, 2 for usage.
    """

    exit_code = 1

    def __init__(self, message: str, *, where: Where | None = None, fix: str | None = None):
        super().__init__(message)
        self.message = message
        self.where = where or Where()
        self.fix = fix

    def at(self: _E, **parts: str | int | None) -> _E:
        """Fill in the parts of the place that are still unknown, and return self: `raise error.at(layer="conv1")`.

        A line is filled in only together with its file: an error in another file (a database, say) keeps that alone.
        """
        if self.where.file is not None and parts.get("file") != self.where.file:
            parts.pop("line", None)
        known: dict[str, Any] = {k: v for k, v in parts.items() if v is not None and getattr(self.where, k) is None}
        self.where = replace(self.where, **known)
        return self

    def rename(self, names: dict[str, str]) -> None:
        """Replace internal names (keys) by the user's (values), in the message and in the place."""
        for made, given in names.items():
            self.message = self.message.replace(f'"{made}"', f'"{given}"').replace(f"'{made}'", f"'{given}'")
        if self.where.blob in names:
            self.where = replace(self.where, blob=names[self.where.blob])

    def __str__(self) -> str:
        place = str(self.where)
        text = f"{place}: {self.message}" if place else self.message
        return text + (f"\n  fix: {self.fix}" if self.fix else "")


class UsageError(CaffeError):
    """Report a wrong flag, a wrong value of a flag, a missing argument."""

    exit_code = 2


class PrototxtError(CaffeError):
    """Report a prototxt or binary proto that cannot be read: syntax, unknown field, bad enum value, failed upgrade."""


class UnknownLayerError(CaffeError):
    """Report a `type:` that no layer has."""


class GraphError(CaffeError):
    """Report layers that do not fit together: missing bottom, duplicate top, bad sharing, contradicting rules."""


class MissingName(GraphError, KeyError):
    """Report a name that no blob or layer of a net has; it is a KeyError too, as of a dict."""


class BlobCountError(CaffeError):
    """Report a layer with another number of bottoms or tops than it takes."""


class ShapeError(CaffeError):
    """Report shapes that a layer cannot work on."""


class LayerParamError(CaffeError):
    """Report impossible values in a layer's parameters."""


class ReadOnlyValue(CaffeError, ValueError):
    """Report that a layer written in Python wrote to a value that it may only read."""


class WeightsError(CaffeError):
    """Report weights that cannot be read or do not fit the net."""


class ExportError(CaffeError):
    """Report a net that another format cannot express, or a file of that format that cannot be written."""


class OnnxError(CaffeError):
    """Report an ONNX model that cannot be read, or that no layers express."""


class SnapshotError(CaffeError):
    """Report a snapshot that cannot be written, read or resumed from."""


class SolverError(CaffeError):
    """Report a solver parameter that is missing, contradictory or out of range. `field`: its name, if it is one."""

    def __init__(self, message: str, *, field: str | None = None, where: Where | None = None, fix: str | None = None):
        super().__init__(message, where=where, fix=fix)
        self.field = field


class NonFiniteLoss(CaffeError):
    """Report that a loss, or another result of a layer that reads labels, is NaN or infinite.

    Attributes:
        loss: its value.
        iteration: the solver's; None in a test.
        label, classes: a label that is out of range, and the number of classes, if that is the reason; else None.
    """

    loss: float
    iteration: int | None = None
    label: float | None = None
    classes: int | None = None


class DataError(CaffeError):
    """Report a database, image, list or mean file that is absent, damaged or of the wrong shape."""


class ArrayError(CaffeError, ValueError):
    """Report an array given from Python that has the wrong shape; it is a ValueError too, as in pycaffe."""


class MissingDependency(CaffeError):
    """Report an optional package that is not installed, with the feature, the pip command and an alternative."""

    def __init__(self, package: str, feature: str, pip: str | None = None, otherwise: str = ""):
        super().__init__(
            f"{feature} needs the package {package}, which is not installed",
            fix=f"pip install {pip or package}{f'; or {otherwise}' if otherwise else ''}",
        )


class DeviceError(CaffeError):
    """Report that the device (GPU, driver, library) is absent or failed."""


class LostRank(DeviceError):
    """Report that another of the processes that train together failed, ended, or did not answer in time."""


class _OutOfMemory(CaffeError):
    """Report too little free memory. `needed`, `free`: bytes."""

    def __init__(self, message: str, *, needed: int, free: int, where: Where | None = None, fix: str | None = None):
        super().__init__(message, where=where, fix=fix)
        self.needed = needed
        self.free = free


class OutOfDeviceMemory(_OutOfMemory):
    """Report that the device's pool has too little free memory."""


class OutOfHostMemory(_OutOfMemory):
    """Report that the host has too little memory, or cannot lock it."""


class PlanError(CaffeError):
    """Report a memory plan that the verifier refuses, or that no longer fits the net."""


class InvalidTransition(CaffeError):
    """Report an ask that a buffer's state has no row for, with the buffer's name and its last transitions."""


class DiscardedRead(InvalidTransition):
    """Report a read of a value that Large Model Support dropped because nothing in the iteration reads it again."""


def human_bytes(size: int | float) -> str:
    """Return a size as text: `12_000_000` -> `11.4 MiB`."""
    if abs(size) < 1024:
        return f"{size:.0f} B"
    for unit in ("KiB", "MiB"):
        size /= 1024
        if abs(size) < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} GiB"
