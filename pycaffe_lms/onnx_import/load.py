"""Define `caffe.import_onnx`: read a model, convert it, and write the prototxt and the weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from google.protobuf import text_format

from ..errors import OnnxError
from ..formats.atomic import atomic_write
from ..formats.weights.caffemodel import write_weights
from .convert import ImportConversion
from .read import OnnxModel

_NAMELESS = ("main_graph", "torch_jit", "torch-jit-export", "onnx")  # what exporters call every graph


def import_onnx(
    path: str | os.PathLike[str],
    prototxt: str | os.PathLike[str],
    weights: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> None:
    """Write an ONNX model as a deploy prototxt, with Input layers, and a .caffemodel.

    Inputs and outputs keep their names; a graph that an exporter named gets that of its file. Values are those of the
    model, to rounding, in float32. `check_onnx` of a net of both files and the model tells how far they are apart.

    Args:
        path: the model, of opset 7 or newer; its files of weights lie beside it.
        shapes: input -> shape, for inputs whose sizes are not numbers in the model.
    Raises: OnnxError for a damaged model, or one with operators that no layers express (all of them in one message);
    UsageError for shapes that are missing or do not fit; WeightsError for weights over 2 GiB; MissingDependency without
    onnx.
    """
    net, params = ImportConversion(OnnxModel(path, shapes or {})).run()
    if net.name in _NAMELESS:
        net.name = Path(path).stem
    text = f"# From {Path(path).name}, by pycaffe-lms import_onnx.\n{text_format.MessageToString(net, as_utf8=True)}"
    write_weights(weights, net, [[(array, None) for array in arrays] for arrays in params])
    atomic_write(prototxt, text.encode(), error=OnnxError)
