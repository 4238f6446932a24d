"""Quantize an ONNX model to int8, by onnxruntime's own tools, from inputs that show how large its values become."""

from __future__ import annotations

import importlib
import logging
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arrays import HostArray
from ..errors import CaffeError, ExportError, MissingDependency, UsageError, Where
from ..formats.atomic import atomic_write
from .export import export_onnx
from .model import require
from .site import CONVERTERS, Precision
from .sketch import DEFAULT_OPSET

if TYPE_CHECKING:
    from ..net.net import Net

FIRST_OPSET = 13  # since then every channel of a weight may have a scale of its own
_PRODUCTS = ["Conv", "Gemm", "MatMul"]
_BETWEEN = ["Add", "AveragePool", "Clip", "Concat", "GlobalAveragePool", "LeakyRelu", "MaxPool", "Relu"]


def export_int8(
    net: Net,
    path: str | os.PathLike[str],
    samples: Iterable[Mapping[str, HostArray]],
    *,
    opset: int = DEFAULT_OPSET,
    dynamic_batch: bool = False,
) -> list[str]:
    """Write a TEST net as an ONNX model with int8 products; return the names of the files that were written.

    Every convolution and product, and what lies between them, stands between QuantizeLinear and DequantizeLinear (QDQ),
    weights in 7 bits with a scale per channel, values with one for the smallest and the largest number that the samples
    give. Layers that compute indices, boxes, exponentials or sums of squares stay in float32.

    Args:
        samples: arrays by input, in the net's present shapes; a few hundred pictures like those of the net's use.
    Raises: UsageError without samples, or for an opset below 13; MissingDependency without onnxruntime; ExportError for
    a model that it cannot quantize; and what export_onnx raises.
    """
    if opset < FIRST_OPSET:
        raise UsageError(f"int8 needs opset {FIRST_OPSET}, not {opset}", fix=f"such as {DEFAULT_OPSET}")
    tools = require_quantization()
    with tempfile.TemporaryDirectory(prefix="pycaffe_lms_") as folder, _quiet():
        plain, prepared, made = (os.path.join(folder, f"{name}.onnx") for name in ("plain", "prepared", "made"))
        if len(export_onnx(net, plain, opset=opset, dynamic_batch=dynamic_batch)) > 1:
            raise ExportError("the net is too large to be quantized (2 GiB)", where=Where(file=net.file))
        try:
            tools.shape_inference.quant_pre_process(plain, prepared, skip_symbolic_shape=True)
            tools.quantize_static(
                prepared,
                made,
                _reader(tools, samples),
                quant_format=tools.QuantFormat.QDQ,
                op_types_to_quantize=_PRODUCTS + _BETWEEN,
                nodes_to_exclude=_exact(net, prepared),
                per_channel=True,
                reduce_range=True,  # with 8 bits sums of two products overflow where a CPU has no VNNI
            )
        except CaffeError:  # a sample that cannot be read
            raise
        except (ValueError, RuntimeError, TypeError) as error:
            raise ExportError(f"onnxruntime cannot quantize it: {error}", where=Where(file=net.file)) from error
        atomic_write(path, Path(made).read_bytes(), error=ExportError)
    return [os.fspath(path)]


def require_quantization() -> Any:
    """Import onnxruntime's tools. Raises: MissingDependency with the pip line."""
    try:
        importlib.import_module("onnxruntime.quantization.shape_inference")
        return importlib.import_module("onnxruntime.quantization")
    except ImportError:
        raise MissingDependency("onnxruntime", "quantizing ONNX models", "onnx onnxruntime") from None


def _reader(tools: Any, samples: Iterable[Mapping[str, HostArray]]) -> Any:
    source = iter(samples)
    first = next(source, None)
    if first is None:
        raise UsageError("there is no sample to quantize with", fix="give pictures like those of the net's use")
    waiting = [first]

    class Reader(tools.CalibrationDataReader):  # type: ignore[misc]
        def get_next(self) -> dict[str, HostArray] | None:
            sample = waiting.pop() if waiting else next(source, None)
            return None if sample is None else dict(sample)

    return Reader()


def _exact(net: Net, prepared: str) -> list[str]:
    """Return the names of the nodes of layers that stay in float32: LAYER, LAYER_2, ..."""
    layers = [
        re.escape(node.name)
        for node in net.graph.nodes
        if node.layer.param.type in CONVERTERS and CONVERTERS[node.layer.param.type].precision is Precision.SINGLE
    ]
    pattern = re.compile(rf"({'|'.join(layers)})(_\d+)?") if layers else None
    graph = require().load(prepared).graph
    return [node.name for node in graph.node if pattern is not None and pattern.fullmatch(node.name)]


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the tools, which write to the root logger, say errors only."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(before)
