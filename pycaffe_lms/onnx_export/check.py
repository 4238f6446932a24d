"""Run onnxruntime beside a net, and measure how far its ONNX model is from it.

See also: `trial.py`, which makes random inputs.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import HostArray
from ..errors import ExportError, MissingDependency, Where
from .export import batch_inputs
from .model import require
from .trial import PIXELS, random_inputs

if TYPE_CHECKING:
    from ..net.net import Net

TOLERANCES = {"fp32": 1e-4, "fp16": 2e-2, "int8": 0.3}
"""The largest relative difference of an output that rounding to these numbers explains in a deep net."""
_NUMPY_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float16)": np.float16}
_NUMPY_TYPES |= {"tensor(double)": np.float64}


@dataclass(frozen=True)
class Difference:
    """Hold how far an output of the model is from the net's.

    Attributes:
        output: the blob.
        absolute: the largest |model - net| of an element; infinite where shapes differ, or only one of them is a
            number.
        relative: that divided by the largest |net| of an element.
        where: the input on which it was.
    """

    output: str
    absolute: float
    relative: float
    where: str


def check_onnx(
    net: Net,
    path: str | os.PathLike[str],
    given: Mapping[str, Mapping[str, HostArray]] | None = None,
    *,
    dynamic_batch: bool = False,
    random: bool = True,
    seed: int = 0,
) -> list[Difference]:
    """Run a net and its ONNX model on two random inputs and on the given ones; return each output's largest difference.

    Args:
        given: {a name to show: {input of the net: its array}}; inputs that are left out get random values.
        dynamic_batch: run on random inputs with one item more in the batch, too.
        random: run on random inputs. A model in int8 is for inputs like those that it was made with.
    Raises: MissingDependency without onnx or onnxruntime; ExportError for a model that ONNX's checker or onnxruntime
    refuses; ShapeError for an array of another shape.
    """
    runtime = require_onnxruntime()
    onnx = require()
    try:
        onnx.checker.check_model(os.fspath(path), full_check=True)
        session = open_session(runtime, path)
    except Exception as error:  # both raise types of their own, for each reason another
        raise _refused(error, path, "check") from error
    worst: dict[str, Difference] = {}
    for where, inputs in _runs(net, given or {}, random, dynamic_batch, seed):
        try:
            given_types = {i.name: _NUMPY_TYPES.get(i.type, np.float32) for i in session.get_inputs()}
            feed = {name: values.astype(given_types[name]) for name, values in inputs.items()}
            found = dict(zip((o.name for o in session.get_outputs()), session.run(None, feed), strict=True))
        except Exception as error:
            raise _refused(error, path, "run") from error
        for name, values in inputs.items():
            net.blobs[name].data = values
        net.forward_range()
        for name in net.outputs:
            now = difference(name, found[_output(found, name)], net.blobs[name].data, where)
            if name not in worst or now.relative > worst[name].relative or np.isnan(now.relative):
                worst[name] = now
    return [worst[name] for name in net.outputs]


def require_onnxruntime() -> Any:
    """Import onnxruntime. Raises: MissingDependency with the pip line."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        raise MissingDependency("onnxruntime", "running ONNX models") from None


def open_session(runtime: Any, path: str | os.PathLike[str]) -> Any:
    """Return onnxruntime's session of a model, on the CPU, without messages but errors."""
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    return runtime.InferenceSession(os.fspath(path), options, providers=["CPUExecutionProvider"])


def _refused(error: Exception, path: str | os.PathLike[str], verb: str) -> ExportError:
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return ExportError(
        f"onnxruntime does not {verb} this model: {first}",
        where=Where(file=os.fspath(path)),
        fix="choose an opset that the installed onnxruntime knows, or update it: pip install -U onnxruntime",
    )


def _runs(
    net: Net, given: Mapping[str, Mapping[str, HostArray]], random: bool, dynamic_batch: bool, seed: int
) -> Iterator[tuple[str, dict[str, HostArray]]]:
    """Yield (what to call it, an array for each input); the net has their shapes meanwhile."""
    for more in range(random * (1 + dynamic_batch)):
        with _batch(net, more):
            batch = f", batch {_items(net)}" if dynamic_batch else ""
            yield f"random numbers{batch}", random_inputs(net, seed)
            yield f"random pixels{batch}", random_inputs(net, seed + 1, PIXELS)
    for name, arrays in given.items():
        inputs = random_inputs(net, seed + 2)
        for blob, array in arrays.items():
            inputs[blob] = np.asarray(array, net.dtype)
        yield name, inputs


def _items(net: Net) -> int:
    return int(net.blobs[net.inputs[0]].shape[0])


@contextmanager
def _batch(net: Net, more: int) -> Iterator[None]:
    """Let the net have so many items more in its batch."""
    shapes = batch_inputs(net)
    if more:
        _reshape(net, {name: (shape[0] + more, *shape[1:]) for name, shape in shapes.items()})
    yield
    if more:
        _reshape(net, shapes)


def _reshape(net: Net, shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        net.blobs[name].reshape(*shape)
    net.reshape()


def _output(found: Mapping[str, HostArray], name: str) -> str:
    """Return the name in the model of an output of the net: an output that is an input has a name of its own."""
    return name if name in found else f"{name}.out"


def difference(name: str, found: HostArray, expected: HostArray, where: str) -> Difference:
    """Return how far an output is from the one expected."""
    if found.shape != expected.shape:
        return Difference(name, np.inf, np.inf, f"{where}: shape {found.shape} instead of {tuple(expected.shape)}")
    if not expected.size:
        return Difference(name, 0.0, 0.0, where)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):
        apart = np.where(same, 0, np.abs(a - b))
    absolute = float(np.where(np.isfinite(apart), apart, np.inf).max())
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0))
    return Difference(name, absolute, absolute / scale if scale else (np.inf if absolute else 0.0), where)
