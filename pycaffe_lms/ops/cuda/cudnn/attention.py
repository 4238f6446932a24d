"""Compute scaled dot-product attention of bfloat16 arrays by cuDNN's fused kernels, which hold no scores in memory.

Queries and the result lie as (items, queries, heads, dim), keys and values as (items, keys, kv_heads, dim); packed, a
position's queries, keys and values follow each other. Weights are not dropped here. Sums are float32. The backward is
cuDNN's deterministic one, whose workspace holds the gradients of all weights: it runs for a part of the items at a
time. Engines whose sums change their order between runs are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....arrays import AnyArray
from ....backend import cuda
from ....backend.bfloat16 import BFLOAT16
from ....backend.cuda.rehearsal import is_rehearsal
from ....errors import DeviceError
from ...attention_plan import items_at_once
from ...records import AttentionShape, QueryKeyValue
from . import choice, library
from .build import NEVER, CudnnGraph, CudnnUnsupported, first_line, handle, lock

_QUERY, _KEY, _VALUE, _RESULT, _LSE, _SLOPE = range(1, 7)  # names within every graph
_GRADIENTS = 7, 8, 9  # of query, key and value
_ALIGNMENT = 512  # bytes

_plans: dict[tuple[int, AttentionShape], CudnnAttention | CudnnUnsupported] = {}


@dataclass(frozen=True, slots=True)
class CudnnAttention:
    """Hold an attention's two graphs on one device. Calls queue on CuPy's current stream and return at once.

    Arrays are C-contiguous, on the device, at multiples of 16 bytes. part: items of one run of the backward's graph, a
    divisor of all. Raises DeviceError where cuDNN fails.
    """

    shape: AttentionShape
    device: int
    forward: CudnnGraph
    backward: CudnnGraph
    part: int

    @property
    def backward_bytes(self) -> int:
        """Return the bytes of workspace of the backward, with room for gradients that nobody wants."""
        unwanted = max(_elements(self.shape._replace(items=self.part))) * BFLOAT16.itemsize
        return _align(self.backward.workspace_bytes) + unwanted

    def run_forward(self, inputs: QueryKeyValue, y: AnyArray, lse: AnyArray, work: AnyArray | None) -> None:
        """Compute y and lse (items, heads, queries), float32: logarithms of the rows' sums of exponentials."""
        self._run(self.forward, _addresses(inputs) | {_RESULT: y.data.ptr, _LSE: lse.data.ptr}, work)

    def run_backward(
        self,
        inputs: QueryKeyValue,
        y: AnyArray,
        dy: AnyArray,
        gradients: QueryKeyValue,
        lse: AnyArray,
        work: AnyArray,
    ) -> None:
        """Compute the gradients of queries, keys and values; those that are None are written to workspace."""
        unwanted = work.data.ptr + _align(self.backward.workspace_bytes)
        made = {name: g.data.ptr for name, g in zip(_GRADIENTS, gradients, strict=True) if g is not None}
        first = _addresses(inputs) | {_RESULT: y.data.ptr, _LSE: lse.data.ptr, _SLOPE: dy.data.ptr} | made
        each, nowhere = _item_bytes(self.shape), dict.fromkeys(_GRADIENTS, unwanted)
        for item in range(0, self.shape.items, self.part):
            self._run(self.backward, nowhere | {name: at + item * each[name] for name, at in first.items()}, work)

    def _run(self, graph: CudnnGraph, addresses: Mapping[int, int], work: AnyArray | None) -> None:
        if is_rehearsal():
            return
        try:
            with lock:
                handle(self.device)
                graph.run(addresses, work.data.ptr if work is not None else 0, graph.index, None)
        except Exception as error:  # the frontend raises RuntimeError, ValueError and a type of its own
            raise DeviceError(f"cuDNN failed in the attention of {self.shape}: {first_line(error)}") from error


def plan(shape: AttentionShape) -> CudnnAttention:
    """Build an attention's graphs on the current device, or find them built.

    Raises:
        CudnnUnsupported: cuDNN cannot do it.
        DeviceError: there is no GPU, or cuDNN cannot start.
        MissingDependency: CuPy is not installed.
    """
    if library.load()[0] is None:
        raise CudnnUnsupported(library.load()[1])
    if min(shape.items, shape.queries, shape.keys) < 1:
        raise CudnnUnsupported("an attention without items, queries or keys")
    device = cuda.require().cuda.runtime.getDevice()
    key = device, shape._replace(rows=0)  # queries are not worked on in blocks here
    with lock:
        if key not in _plans:
            try:
                _plans[key] = CudnnAttention(
                    key[1], device, _build(key[1], device, False), *_build_backward(key[1], device)
                )
            except CudnnUnsupported as error:
                _plans[key] = CudnnUnsupported(error.message)  # without the frames, which keep the caller's net alive
    found = _plans[key]
    if isinstance(found, CudnnUnsupported):
        raise CudnnUnsupported(found.message)
    return found


def _build_backward(shape: AttentionShape, device: int) -> tuple[CudnnGraph, int]:
    """Return the backward's graph and for how many items it is."""
    whole = _build(shape, device, True)
    part = items_at_once(shape, whole.workspace_bytes)
    return (whole if part == shape.items else _build(shape._replace(items=part), device, True)), part


def _build(shape: AttentionShape, device: int, backward: bool) -> CudnnGraph:
    frontend, own = library.load()[0], handle(device)
    refusals = (frontend.cudnnGraphNotSupportedError, RuntimeError, ValueError, NotImplementedError)
    try:
        graph = _describe(frontend, shape, own, backward)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([frontend.heur_mode.A])
        graph.deselect_numeric_notes([getattr(frontend.numerical_note, note) for note in NEVER])
        graph.check_support()
        engine = next(choice.engines(graph, refusals, None), None)
    except refusals as error:
        raise CudnnUnsupported(f"attention of {shape}: {first_line(error)}") from error
    if engine is None:
        raise CudnnUnsupported(f"attention of {shape}: no engine")
    return CudnnGraph(choice.runner(graph), engine.index, engine.name, engine.workspace_bytes)


def _describe(frontend: Any, shape: AttentionShape, own: Any, backward: bool) -> Any:
    """Return the frontend's graph of one direction."""
    half, wide = frontend.data_type.BFLOAT16, frontend.data_type.FLOAT
    graph = frontend.pygraph(io_data_type=half, intermediate_data_type=wide, compute_data_type=wide, handle=own)
    heads = (shape.heads, shape.queries), (shape.kv_heads, shape.keys)
    query, key = ([shape.items, h, t, shape.dim] for h, t in heads)
    rows = [shape.items, shape.heads, shape.queries, 1]
    row_strides = [shape.heads * shape.queries, shape.queries, 1, 1]

    wide_row, (query_row, key_row) = shape.heads * shape.dim, shape.row

    def strides(dims: list[int], row: int) -> list[int]:
        _, _, t, d = dims
        return [t * row, d, row, 1]

    def tensor(name: str, uid: int, dims: list[int], row: int) -> Any:
        return graph.tensor(name=name, dim=dims, stride=strides(dims, row), data_type=half, uid=uid)

    def output(made: Any, uid: int, dims: list[int], row: int) -> None:
        made.set_output(True).set_uid(uid).set_data_type(half).set_dim(dims).set_stride(strides(dims, row))

    inputs = [
        tensor("q", _QUERY, query, query_row),
        tensor("k", _KEY, key, key_row),
        tensor("v", _VALUE, key, key_row),
    ]
    settings: dict[str, Any] = {"attn_scale": shape.scale, "diagonal_alignment": frontend.diagonal_alignment.TOP_LEFT}
    if shape.causal:
        settings["diagonal_band_right_bound"] = 0
    if shape.window:
        settings["diagonal_band_left_bound"] = shape.window
    if not backward:
        y, lse = graph.sdpa(*inputs, generate_stats=True, **settings)
        output(y, _RESULT, query, wide_row)
        lse.set_output(True).set_uid(_LSE).set_data_type(wide).set_dim(rows).set_stride(row_strides)
        return graph
    y, dy = tensor("y", _RESULT, query, wide_row), tensor("dy", _SLOPE, query, wide_row)
    lse = graph.tensor(name="lse", dim=rows, stride=row_strides, data_type=wide, uid=_LSE)
    made = graph.sdpa_backward(*inputs, y, dy, lse, use_deterministic_algorithm=True, **settings)
    sizes = (query, query_row), (key, key_row), (key, key_row)
    for gradient, uid, (dims, row) in zip(made, _GRADIENTS, sizes, strict=True):
        output(gradient, uid, dims, row)
    return graph


def _addresses(inputs: QueryKeyValue) -> dict[int, int]:
    return {name: a.data.ptr for name, a in zip((_QUERY, _KEY, _VALUE), inputs, strict=True)}


def _elements(shape: AttentionShape) -> tuple[int, int]:
    """Return the elements of the queries and of the keys."""
    each = shape.items * shape.dim
    return each * shape.queries * shape.heads, each * shape.keys * shape.kv_heads


def _item_bytes(shape: AttentionShape) -> dict[int, int]:
    """Return the bytes from one item to the next of each array of the backward."""
    query, key = (t * row * BFLOAT16.itemsize for t, row in zip((shape.queries, shape.keys), shape.row, strict=True))
    wide, one = shape.queries * shape.heads * shape.dim * BFLOAT16.itemsize, np.dtype(np.float32).itemsize
    inputs = {_QUERY: query, _KEY: key, _VALUE: key}
    gradients = dict(zip(_GRADIENTS, (query, key, key), strict=True))
    return inputs | gradients | {_RESULT: wide, _SLOPE: wide, _LSE: shape.heads * shape.queries * one}


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
