"""Turn a sketch into ONNX's messages and write the files.

Weights that do not fit in one message (2 GiB) go to a second file beside the model, as ONNX's format allows.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ExportError, MissingDependency
from ..formats.atomic import atomic_write
from ..version import __version__
from .sketch import Sketch, Tensor

MOST_BYTES = (1 << 31) - (1 << 20)  # of weights: a message's limit, less room for the rest of it
_SMALL = 1024  # arrays of fewer bytes always stay in the model
_ALIGNED = 64


def require() -> Any:
    """Import onnx. Raises: MissingDependency with the pip line."""
    try:
        return importlib.import_module("onnx")
    except ImportError:
        raise MissingDependency("onnx", "exporting nets to ONNX", "'pycaffe-lms[onnx]'") from None


def newest_opset() -> int:
    """Return the newest opset of the installed onnx. Raises: MissingDependency."""
    newest: int = require().defs.onnx_opset_version()
    return newest


def write_model(sketch: Sketch, path: str | os.PathLike[str]) -> list[str]:
    """Write a sketch as a model file, whole or not at all; return the names of the files.

    Weights over 2 GiB go to "PATH-DIGEST.data" first, a name that no other weights have, so that an old model at `path`
    keeps its own. Raises: ExportError, MissingDependency.
    """
    onnx, path = require(), Path(path)
    total = sum(array.nbytes for array in sketch.constants.values())
    if total <= MOST_BYTES:
        model, files = _model(onnx, sketch, None), []
    else:
        large = {name: array for name, array in sketch.constants.items() if array.nbytes >= _SMALL}
        digest = hashlib.sha256()
        for array in large.values():
            digest.update(np.ascontiguousarray(array).data)
        data = path.with_name(f"{path.name}-{digest.hexdigest()[:12]}.data")
        offsets = _offsets(large)
        atomic_write(data, lambda part: _write_data(part, large, offsets), error=ExportError)
        model, files = _model(onnx, sketch, (data.name, offsets)), [str(data)]
    atomic_write(path, model.SerializeToString(), error=ExportError)
    return [str(path), *files]


def _offsets(arrays: dict[str, np.ndarray]) -> dict[str, int]:
    offsets, end = {}, 0
    for name, array in arrays.items():
        offsets[name] = end
        end += -(-array.nbytes // _ALIGNED) * _ALIGNED
    return offsets


def _write_data(part: Path, arrays: dict[str, np.ndarray], offsets: dict[str, int]) -> None:
    with open(part, "rb+") as file:
        for name, array in arrays.items():
            file.seek(offsets[name])
            file.write(_bytes(array).data)


def _bytes(array: np.ndarray) -> np.ndarray:
    """Return an array in little-endian C order, as in the files."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))


def _model(onnx: Any, sketch: Sketch, external: tuple[str, dict[str, int]] | None) -> Any:
    """Return the model message. external: the name of the file of weights, and their offsets in it."""
    helper = onnx.helper
    nodes = [
        helper.make_node(node.op, node.inputs, node.outputs, name=node.name, **node.attributes) for node in sketch.nodes
    ]
    used = {name for node in sketch.nodes for name in node.inputs} | {t.name for t in sketch.inputs}
    graph = helper.make_graph(
        nodes,
        sketch.name,
        [_info(onnx, tensor) for tensor in sketch.inputs],
        [_info(onnx, tensor) for tensor in sketch.outputs],
        initializer=[
            _initializer(onnx, name, array, external) for name, array in sketch.constants.items() if name in used
        ],
    )
    opset = helper.make_opsetid("", sketch.opset)
    return helper.make_model(
        graph,
        opset_imports=[opset],
        ir_version=helper.find_min_ir_version_for([opset]),  # so that old runtimes read it
        producer_name="pycaffe-lms",
        producer_version=__version__,
    )


def _info(onnx: Any, tensor: Tensor) -> Any:
    return onnx.helper.make_tensor_value_info(tensor.name, _type(onnx, tensor.dtype), tensor.shape)


def _type(onnx: Any, dtype: np.dtype) -> int:
    number: int = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return number


def _initializer(onnx: Any, name: str, array: np.ndarray, external: tuple[str, dict[str, int]] | None) -> Any:
    tensor = onnx.TensorProto(name=name, data_type=_type(onnx, array.dtype), dims=array.shape)
    if external is None or name not in external[1]:
        tensor.raw_data = _bytes(array).tobytes()
        return tensor
    tensor.data_location = onnx.TensorProto.EXTERNAL
    location, offsets = external
    for key, value in (("location", location), ("offset", offsets[name]), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor
