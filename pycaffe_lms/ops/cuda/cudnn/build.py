"""Build cuDNN's graph of one direction of a convolution, once per process, with the engine of `choice.py`.

Also holds what all graphs of a process share: a handle per device, and the lock for it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....arrays import AnyArray
from ....backend import cuda
from ....backend.bfloat16 import BFLOAT16
from ....errors import DeviceError
from ...geometry import ConvGeometry, Ints
from .. import bias_relu
from . import choice, library
from .graph import BIAS, FIRST, RESULT, SECOND, Fused, Types, describe, elements
from .store import Store, store_path

# Engines left out: sums whose order changes between runs, float32 rounded to half precision (narrower range), sums kept
# in less than the tensors' type.
NEVER = ("NONDETERMINISTIC", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
_WORTH = 1 << 25  # products from which engines are measured: less takes a few microseconds
_FLOAT, _BF16 = np.dtype(np.float32), BFLOAT16
KNOWN = "known"  # mode: what was chosen before, else the first candidate; nothing is measured
_SEPARATE = "separate"  # choice of a plain convolution followed by a kernel
_TELL_S = 3.0  # seconds of measuring after which the log says how far it is

_log = logging.getLogger(__name__)

lock = threading.RLock()  # a device's handle must keep its stream from setting it to using it
_handles: dict[int, list[Any]] = {}  # device -> [cuDNN handle, address of the stream it is set to]
_graphs: dict[Wanted, CudnnGraph | CudnnUnsupported] = {}
_candidates: dict[Wanted, choice.Candidates] = {}  # of graphs that were described, but not measured
_stores: dict[Any, Store] = {}


class CudnnUnsupported(DeviceError):
    """Say that cuDNN has no engine for a convolution under these limits; the text is cuDNN's reason."""


@dataclass(frozen=True, slots=True)
class CudnnGraph:
    """Hold one built direction: `run(pointers, workspace, index, handle)` queues it; handle None: the graph's own."""

    run: Callable[..., None]
    index: int
    name: str
    workspace_bytes: int


def mode() -> str:
    """Return how engines are chosen: the environment variable PYCAFFE_LMS_CUDNN."""
    how = os.environ.get("PYCAFFE_LMS_CUDNN") or "measure"
    if how not in ("measure", "heuristic"):
        raise DeviceError(f'PYCAFFE_LMS_CUDNN is "{how}"', fix='set it to "measure" or "heuristic", or leave it unset')
    return how


@dataclass(frozen=True, slots=True)
class Wanted:
    """Hold all that the choice of an engine depends on."""

    geometry: ConvGeometry
    direction: str
    fused: Fused
    limit: int | None
    device: int
    mode: str
    types: Types = Types()

    def __str__(self) -> str:
        """Return the key in the store, whose file belongs to one kind of GPU and one version of cuDNN."""
        g = self.geometry
        order = "channels last" if g.channels_last else "channels first"
        after = " + bias" * self.fused.bias + " + relu" * self.fused.relu
        sizes = f"{g.batch}x{g.channels}x{_by(g.in_spatial)} -> {g.out_channels}x{_by(g.out_spatial)} group {g.group}"
        steps = f"kernel {_by(g.kernel)} stride {_by(g.stride)} pad {_by(g.pad)} dilation {_by(g.dilation)}"
        return f"{self.direction}{after}, {sizes} {steps}, {order}, {self.math}, limit {self.limit}"

    @property
    def math(self) -> str:
        """Return the type that products round their inputs to."""
        return "bf16" + " throughout" * self.types.narrow if self.types.half else "tf32"


@dataclass
class _Measured:
    """Count what measuring engines has taken in this process, and tell a user who waits for it."""

    passes: int = 0
    seconds: float = 0.0
    told: float = 0.0

    def add(self, seconds: float, path: Path) -> None:
        """Count a forward or backward of a convolution; log the counts every few seconds."""
        self.passes, self.seconds = self.passes + 1, self.seconds + seconds
        if self.seconds - self.told >= _TELL_S:
            self.told = self.seconds
            text = "Measured cuDNN's engines for %d passes of convolutions in %.0f s; kept for later runs in %s."
            _log.info(text, self.passes, self.seconds, path)


_measured = _Measured()


def find(wanted: Wanted) -> CudnnGraph:
    """Return a graph that was built before, or build it. A refusal of cuDNN is kept too."""
    if wanted not in _graphs:
        try:
            _graphs[wanted] = _build(wanted)
        except CudnnUnsupported as error:
            _graphs[wanted] = CudnnUnsupported(error.message)  # without the frames, which keep the caller's net alive
    found = _graphs[wanted]
    if isinstance(found, CudnnUnsupported):
        raise CudnnUnsupported(found.message)
    return found


def _build(wanted: Wanted) -> CudnnGraph:
    of_any_mode = replace(wanted, mode="")
    candidates = _candidates.get(of_any_mode)
    if candidates is None:
        candidates = _candidates[of_any_mode] = _described(wanted)
    engine = _choose(wanted, candidates)
    if wanted.mode != KNOWN:
        del _candidates[of_any_mode]
    if engine is None:
        raise CudnnUnsupported(
            f"{wanted.direction} of {wanted.geometry} ({wanted.math}): no engine within {wanted.limit} bytes, or only "
            "slow ones"
        )
    return CudnnGraph(runner(candidates.graph), engine.index, engine.name, engine.workspace_bytes)


def _described(wanted: Wanted) -> choice.Candidates:
    """Describe a graph to cuDNN, and ask for its candidates."""
    g, limit = wanted.geometry, wanted.limit
    frontend, own = library.load()[0], handle(wanted.device)
    refusals = (frontend.cudnnGraphNotSupportedError, RuntimeError, ValueError, NotImplementedError)
    try:
        graph = describe(frontend, g, wanted.direction, wanted.fused, wanted.types, own)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([frontend.heur_mode.A, frontend.heur_mode.FALLBACK])
        graph.deselect_numeric_notes([getattr(frontend.numerical_note, note) for note in NEVER])
        if limit is not None:
            graph.deselect_workspace_greater_than(limit)
        graph.check_support()
    except refusals as error:
        raise CudnnUnsupported(f"{wanted.direction} of {g} ({wanted.math}): {first_line(error)}") from error
    return choice.Candidates(graph, refusals, limit)


def _choose(wanted: Wanted, candidates: choice.Candidates) -> choice.Engine | None:
    """Return the engine for a described graph.

    None: there is none, or a plain convolution followed by a kernel is faster.
    """
    g = wanted.geometry
    if wanted.mode == "heuristic" or g.batch * g.out_channels * g.out_size * g.rows < _WORTH:
        return next(iter(candidates.first(1)), None)
    store, key = _store(wanted.device), str(wanted)
    known = store.get(key)
    if known == _SEPARATE and any(wanted.fused):
        return None
    engine = candidates.named(known) if known is not None else None
    if engine is not None:
        return engine
    if wanted.mode == KNOWN:
        return next(iter(candidates.first(1)), None)
    begin = time.perf_counter()
    engines: list[choice.Engine | None] = [*candidates.first(choice.CANDIDATES)]
    if any(wanted.fused):
        engines.insert(0, None)
    if len(engines) < 2:
        return engines[0] if engines else None
    times = _measure(wanted, candidates.graph, engines, candidates.refusals)
    _measured.add(time.perf_counter() - begin, store.path)
    if times is None:
        return next(engine for engine in engines if engine is not None)  # the choice is not kept for later runs
    engine = engines[choice.fastest(times)]
    store.put(key, engine.name if engine is not None else _SEPARATE)
    return engine


def _measure(
    wanted: Wanted, graph: Any, engines: Sequence[choice.Engine | None], refusals: tuple[type[BaseException], ...]
) -> list[float | None] | None:
    """Return the times of engines in ms; None among engines stands for a plain convolution followed by a kernel."""
    first, second, result = elements(wanted.geometry, wanted.direction)
    inputs = [first, second] + [wanted.geometry.out_channels] * wanted.fused.bias
    built = [e for e in engines if e is not None]
    runs = [_run(CudnnGraph(runner(graph), e.index, e.name, e.workspace_bytes)) for e in built]
    if len(built) < len(engines):
        plain = find(replace(wanted, fused=Fused()))
        built.append(plain)
        runs.insert(0, _run(plain, wanted))
    kinds = [_BF16, _BF16, _FLOAT] if wanted.types.half else [_FLOAT] * 3
    made = _FLOAT if wanted.direction == "backward_filter" and not wanted.types.narrow else kinds[0]
    inputs = list(zip(inputs, kinds, strict=False))
    return choice.measure(runs, inputs, (result, made), max(e.workspace_bytes for e in built), refusals)


def _run(built: CudnnGraph, separate: Wanted | None = None) -> choice.Run:
    """Return a call of an engine on plain addresses; with `separate`, followed by a kernel for its bias and ReLU."""

    def run(inputs: Sequence[int], result: int, work: AnyArray | None) -> None:
        names = (FIRST, SECOND) if separate else (FIRST, SECOND, BIAS)
        built.run({RESULT: result, **dict(zip(names, inputs, strict=False))}, work, built.index, None)
        if separate:
            g, fused = separate.geometry, separate.fused
            y, b = _array(result, g.batch * g.out_channels * g.out_size, _BF16 if separate.types.half else _FLOAT), None
            if fused.bias:
                b = _array(inputs[2], g.out_channels, _FLOAT)
            bias_relu.forward(y, b, fused.relu, g.grid)

    return run


def _array(address: int, size: int, dtype: np.dtype[Any]) -> AnyArray:
    """Return `size` elements at an address as an array that does not own them."""
    cupy = cuda.require()
    memory = cupy.cuda.UnownedMemory(address, dtype.itemsize * size, None)
    return cupy.ndarray((size,), dtype, cupy.cuda.MemoryPointer(memory, 0))


def runner(graph: Any) -> Callable[..., None]:
    """Return the function that queues a graph's engine, past the frontend's wrapper, which copies the pointers' map."""
    return getattr(graph, "_execute_plan_at_index", None) or graph.execute_plan_at_index


def _store(device: int) -> Store:
    name = cuda.require().cuda.runtime.getDeviceProperties(device)["name"].decode()
    path = store_path(name, library.load()[0].backend_version())
    if path not in _stores:
        _stores[path] = Store(path)
    return _stores[path]


def handle(device: int) -> Any:
    """Return the device's cuDNN handle, set to CuPy's current stream.

    The stream is set only where it changed: that costs several driver calls.
    """
    stream = cuda.require().cuda.get_current_stream().ptr
    entry = _handles.get(device)
    if entry is None:
        try:
            entry = _handles[device] = [library.load()[0].create_handle(), None]
        except RuntimeError as error:
            raise DeviceError(
                f"cuDNN cannot be started on device {device}: {first_line(error)}",
                fix="leave it some device memory, or check that driver and cuDNN fit each other",
            ) from error
    if entry[1] != stream:
        library.load()[0].set_stream(handle=entry[0], stream=stream)
        entry[1] = stream
    return entry[0]


def _by(sizes: Ints) -> str:
    return "x".join(map(str, sizes))


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, or its type where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
