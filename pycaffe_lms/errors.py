"""One family of errors: where it happened, what was found, what to change.

Covers: the place of an error (file, line, layer, type, blob), its fix and the exit code the command line uses.
Does not cover: our own bugs, which stay `AssertionError` and keep their traceback.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

_E = TypeVar("_E", bound="CaffeError")


@dataclass(frozen=True, slots=True)
class Where:
    """A place a user can go to. Every part may be unknown (None)."""

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
    """Base of everything a user can cause. `str()` is `where: message` and, on a second line, `  fix: ...`.

    `exit_code` is what the command line returns: 1 the user's model or data, 2 usage.
    """

    exit_code = 1

    def __init__(self, message: str, *, where: Where | None = None, fix: str | None = None):
        super().__init__(message)
        self.message = message
        self.where = where or Where()
        self.fix = fix

    def at(self: _E, **parts: str | int | None) -> _E:
        """Fill in the parts of the place that are still unknown, and return self: `raise error.at(layer="conv1")`.

        A line counts only together with its file: an error in another file (a database, say) keeps that alone."""
        if self.where.file is not None and parts.get("file") != self.where.file:
            parts.pop("line", None)
        known = {k: v for k, v in parts.items() if v is not None and getattr(self.where, k) is None}
        self.where = replace(self.where, **known)
        return self

    def rename(self, names: dict[str, str]) -> None:
        """Replace names that were made up inside (keys) by the user's (values), in the text and in the place."""
        for made, given in names.items():
            self.message = self.message.replace(f'"{made}"', f'"{given}"').replace(f"'{made}'", f"'{given}'")
        if self.where.blob in names:
            self.where = replace(self.where, blob=names[self.where.blob])

    def __str__(self) -> str:
        place = str(self.where)
        text = f"{place}: {self.message}" if place else self.message
        return text + (f"\n  fix: {self.fix}" if self.fix else "")


class UsageError(CaffeError):
    """A wrong flag, a flag's wrong value, a missing argument."""

    exit_code = 2


class PrototxtError(CaffeError):
    """A prototxt (or binary proto) that cannot be read: syntax, unknown field, bad enum value, failed upgrade."""


class UnknownLayerError(CaffeError):
    """A `type:` that no layer claims."""


class GraphError(CaffeError):
    """Layers that do not fit together: missing bottom, duplicate top, bad sharing, contradicting rules."""


class MissingName(GraphError, KeyError):
    """A name that no blob or layer of a net has; a KeyError too, as of a dict."""


class BlobCountError(CaffeError):
    """A layer got another number of bottoms or tops than it takes."""


class ShapeError(CaffeError):
    """Shapes that a layer cannot work on."""


class LayerParamError(CaffeError):
    """A layer's parameter message asks for something impossible."""


class ReadOnlyValue(CaffeError, ValueError):
    """A layer written in Python wrote to a value that it only gets to read."""


class WeightsError(CaffeError):
    """Weights that cannot be read or do not fit the net."""


class ExportError(CaffeError):
    """A net that another format cannot hold, or a file of that format that cannot be written."""


class SnapshotError(CaffeError):
    """A snapshot that cannot be written, read or resumed from."""


class SolverError(CaffeError):
    """A solver parameter that is missing, contradictory or out of range. `field`: its name, where one is to blame."""

    def __init__(self, message: str, *, field: str | None = None, where: Where | None = None, fix: str | None = None):
        super().__init__(message, where=where, fix=fix)
        self.field = field


class NonFiniteLoss(CaffeError):
    """A loss, or another result of a layer that reads labels, is NaN or infinite.

    loss: its value. iteration: the solver's; None in a test. label, classes: a label that names none of so many
    classes, where that is the reason; else None."""

    loss: float
    iteration: int | None = None
    label: float | None = None
    classes: int | None = None


class DataError(CaffeError):
    """A database, image, list or mean file that is absent, damaged or of the wrong shape."""


class ArrayError(CaffeError, ValueError):
    """An array given from Python that has the wrong shape; a ValueError too, as in pycaffe."""


class MissingDependency(CaffeError):
    """An optional package is not installed; the message names the feature, the pip line and what else can be done."""

    def __init__(self, package: str, feature: str, pip: str | None = None, otherwise: str = ""):
        super().__init__(
            f"{feature} needs the package {package}, which is not installed",
            fix=f"pip install {pip or package}{f'; or {otherwise}' if otherwise else ''}",
        )


class DeviceError(CaffeError):
    """The device (GPU, driver, library) is absent or failed."""


class LostRank(DeviceError):
    """Another of the processes that train together failed, is gone, or did not answer in time."""


class OutOfDeviceMemory(CaffeError):
    """The device pool cannot give what was asked: sizes in bytes."""

    def __init__(self, message: str, *, needed: int, free: int, where: Where | None = None, fix: str | None = None):
        super().__init__(message, where=where, fix=fix)
        self.needed = needed
        self.free = free


class OutOfHostMemory(CaffeError):
    """The host cannot give (or pin) what was asked: sizes in bytes."""

    def __init__(self, message: str, *, needed: int, free: int, where: Where | None = None, fix: str | None = None):
        super().__init__(message, where=where, fix=fix)
        self.needed = needed
        self.free = free


class PlanError(CaffeError):
    """A memory plan that the verifier refuses, or that no longer fits the net."""


class InvalidTransition(CaffeError):
    """An ask that a buffer's state has no row for; carries the buffer's name and its last transitions."""


class DiscardedRead(InvalidTransition):
    """A read of a value that Large Model Support dropped because nothing in the iteration reads it again."""


def human_bytes(size: int | float) -> str:
    """`12_000_000` -> `11.4 MiB`."""
    size = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")
