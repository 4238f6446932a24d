"""Build cuDNN's graph of one direction of a convolution, once per process, with the engine of `choice.py`.

An engine that `store.py` has is loaded. Others are built and measured here, one after the other; several processes
would take longer, because one alone may measure, and each has to load the code of every engine. What cuDNN must compile
is built by those of `ahead.py`. Also holds what all graphs of a process share: a handle per device, and the lock for
it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ....activity import activity
from ....arrays import AnyArray
from ....backend import cuda
from ....backend.bfloat16 import BFLOAT16
from ....errors import DeviceError
from ....formats.cache_folder import cache_folder
from ... import NotBuilt
from ...geometry import ConvGeometry, Ints
from .. import bias_relu
from . import choice, library
from .graph import BIAS, FIRST, RESULT, SECOND, Fused, Types, describe, elements
from .store import Choice, Store, open_store

# Engines left out: sums whose order changes between runs, float32 rounded to half precision (narrower range), sums kept
# in less than the tensors' type.
NEVER = ("NONDETERMINISTIC", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
_WORTH = 1 << 25  # products from which engines are measured: less takes a few microseconds
_FLOAT, _BF16 = np.dtype(np.float32), BFLOAT16
_Offer = choice.Candidates | choice.Loaded  # candidates built here, or by another process
KNOWN = "known"  # mode: what was chosen before, else the first candidate; nothing is measured
_SEPARATE = "separate"  # choice of a plain convolution followed by a kernel
_UNMEASURED = ", first"  # end of the key of a choice that was not measured
_TELL_S = 3.0  # seconds of measuring after which the log says how far it is

_log = logging.getLogger(__name__)

lock = threading.RLock()  # a device's handle must keep its stream from setting it to using it
_handles: dict[int, list[Any]] = {}  # device -> [cuDNN handle, address of the stream it is set to]
_graphs: dict[Wanted, CudnnGraph | CudnnUnsupported] = {}
_candidates: dict[Wanted, choice.Candidates] = {}  # of graphs that were described, but not measured
_stores: dict[tuple[Path, int], Store] = {}  # by cache folder and device
from_processes: dict[Wanted, Future[list[choice.Written]]] = {}  # what `ahead.py` has built; []: nothing


class CudnnUnsupported(DeviceError):
    """Say that cuDNN has no engine for a convolution under these limits; the text is cuDNN's reason."""


@dataclass(frozen=True, slots=True)
class CudnnGraph:
    """Hold one built direction: `run(pointers, workspace, index, handle)` queues it; handle None: the graph's own."""

    run: Callable[..., None]
    index: int
    name: str
    workspace_bytes: int


def _not_built(*_: Any) -> None:
    raise NotBuilt


NOT_BUILT = CudnnGraph(_not_built, 0, "", 0)  # stands for a graph within `collecting`


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


_collected = ContextVar[list[Wanted] | None]("collected", default=None)  # within `collecting`; each thread has its own


@contextmanager
def collecting() -> Iterator[list[Wanted]]:
    """Within, in this thread: `find` notes in the list what it would have to build, and returns NOT_BUILT."""
    assert not is_collecting()
    wanted: list[Wanted] = []
    before = _collected.set(wanted)
    try:
        yield wanted
    finally:
        _collected.reset(before)


def is_collecting() -> bool:
    """Return whether this is within `collecting`."""
    return _collected.get() is not None


def find(wanted: Wanted) -> CudnnGraph:
    """Return a graph that was built before, or load or build it. A refusal of cuDNN is kept too."""
    if wanted not in _graphs:
        try:
            known = _stored(wanted)
            if known is None and (collected := _collected.get()) is not None:
                collected.append(wanted)
                return NOT_BUILT
            _graphs[wanted] = known or _build(wanted)
        except CudnnUnsupported as error:
            _graphs[wanted] = CudnnUnsupported(error.message)  # without the frames, which keep the caller's net alive
    found = _graphs[wanted]
    if isinstance(found, CudnnUnsupported):
        raise CudnnUnsupported(found.message)
    return found


def loaded(wanted: Wanted) -> CudnnGraph:
    """Return what `find` returns, with its engine on the device now instead of at its first run."""
    found = find(wanted)
    if isinstance(found.run, _Stored):
        try:
            found.run.load()
        except found.run.refusals as error:
            _log.warning("The stored engine of %s cannot be loaded and is chosen again: %s", wanted, first_line(error))
            store_of(wanted.device).forget(found.run.key)
            del _graphs[wanted]
            return find(wanted)
    return found


class _Stored:
    """Run a stored engine, which is loaded at the first run, or by `load`."""

    def __init__(self, device: int, key: str, plan: bytes) -> None:
        self.key, self.refusals = key, _refusals()
        self._device, self._plan, self._run = device, plan, None

    def load(self) -> None:
        if self._run is None:
            self._run, self._plan = _loaded(self._device, self._plan), b""

    def __call__(self, *args: Any) -> None:
        if self._run is None:
            self.load()
        self._run(*args)


def _stored(wanted: Wanted) -> CudnnGraph | None:
    """Return the graph of a stored engine; None where there is none. Raises CudnnUnsupported as `find` does."""
    key, known = _recall(wanted)
    if known is None or not (known.plan or known.refused or known.name == _SEPARATE):
        return None
    if known.refused:
        raise CudnnUnsupported(known.refused)
    if known.name == _SEPARATE:
        raise _no_engine(wanted)
    return CudnnGraph(_Stored(wanted.device, key, known.plan), 0, known.name, known.workspace_bytes)


def is_stored(wanted: Wanted) -> bool:
    """Return whether the store has an engine, or the reason why there is none."""
    try:
        return _stored(wanted) is not None
    except CudnnUnsupported:
        return True


def _recall(wanted: Wanted) -> tuple[str, Choice | None]:
    """Return what was chosen before, and its key."""
    store, key = store_of(wanted.device), str(wanted)
    found = store.get(key) if wanted.mode == KNOWN or measures(wanted) else None
    if found is None and not measures(wanted):
        key += _UNMEASURED
        found = store.get(key)
    return key, found


def measures(wanted: Wanted) -> bool:
    """Return whether the engine is the fastest of several; else it is cuDNN's first."""
    g = wanted.geometry
    return wanted.mode not in ("heuristic", KNOWN) and g.batch * g.out_channels * g.out_size * g.rows >= _WORTH


def written(wanted: Wanted) -> list[choice.Written]:
    """Return the engines among which `find` will choose, as another process can run them; [] where it cannot."""
    candidates = _described(wanted)
    candidates.build(candidate_count(wanted), store_of(wanted.device).turn)
    found = [
        choice.Written(engine.name, engine.workspace_bytes, candidates.written(engine))
        for engine in candidates.first(candidate_count(wanted))
    ]
    return found if all(engine.plan for engine in found) else []


def candidate_count(wanted: Wanted) -> int:
    """Return the number of candidates among which one is chosen."""
    if not measures(wanted):
        return 1
    if any(wanted.fused):
        return choice.FUSED
    return choice.CANDIDATES if wanted.types.half or wanted.direction == "forward" else choice.TF32_GRADIENTS


def _candidates_of(wanted: Wanted) -> _Offer:
    if wanted in from_processes and (built := from_processes.pop(wanted).result()):
        return choice.Loaded(built, lambda plan: _loaded(wanted.device, plan), _refusals())
    of_any_mode = replace(wanted, mode="")
    if of_any_mode not in _candidates:
        _candidates[of_any_mode] = _described(wanted)
    return _candidates[of_any_mode]


def _build(wanted: Wanted) -> CudnnGraph:
    """Choose an engine, unless another process did so meanwhile: ranks of a training ask for the same ones at once."""
    with activity.doing("choosing a convolution", bounded=False), store_of(wanted.device).alone():
        known = _stored(wanted)
        if known is not None:
            return known
        begin = time.perf_counter()
        candidates = _candidates_of(wanted)
        engine = _choose(wanted, candidates, begin)
    if wanted.mode != KNOWN:
        _candidates.pop(replace(wanted, mode=""), None)
    if engine is None:
        raise _no_engine(wanted)
    return _graph_of(candidates, engine)


def _graph_of(candidates: _Offer, engine: choice.Engine) -> CudnnGraph:
    return CudnnGraph(candidates.run(engine), engine.index, engine.name, engine.workspace_bytes)


def _no_engine(wanted: Wanted) -> CudnnUnsupported:
    where = f"{wanted.direction} of {wanted.geometry} ({wanted.math})"
    return CudnnUnsupported(f"{where}: no engine within {wanted.limit} bytes, or only slow ones")


def _refusals() -> tuple[type[BaseException], ...]:
    """Return the exceptions by which the frontend refuses a graph."""
    return (library.load()[0].cudnnGraphNotSupportedError, RuntimeError, ValueError, NotImplementedError)


def _described(wanted: Wanted) -> choice.Candidates:
    """Describe a graph to cuDNN, and ask for its candidates."""
    g, limit = wanted.geometry, wanted.limit
    frontend, own, refusals = library.load()[0], handle(wanted.device), _refusals()
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
        reason = f"{wanted.direction} of {g} ({wanted.math}): {first_line(error)}"
        if isinstance(error, frontend.cudnnGraphNotSupportedError):  # others may be a passing lack of memory
            store_of(wanted.device).put(_recall(wanted)[0], Choice("", refused=reason))
        raise CudnnUnsupported(reason) from error
    return choice.Candidates(graph, refusals, limit)


def _choose(wanted: Wanted, candidates: _Offer, begin: float) -> choice.Engine | None:
    """Return the engine for a described graph. begin: when the work on it began.

    None: there is none, or a plain convolution followed by a kernel is faster.
    """
    store, (key, known) = store_of(wanted.device), _recall(wanted)
    if known is not None:  # an engine that cuDNN could not write
        engine = candidates.named(known.name)
        if engine is not None:
            return engine
    engines: list[choice.Engine | None] = [*candidates.first(candidate_count(wanted))]
    if any(wanted.fused) and measures(wanted):
        engines.insert(0, None)
    engine = engines[0] if engines else None
    if len(engines) > 1:
        times = _measure(wanted, candidates, engines)
        _measured.add(time.perf_counter() - begin, store.folder)
        if times is None:  # there is no memory to measure in now
            return next(engine for engine in engines if engine is not None)
        engine = engines[choice.fastest(times)]
    if engine is not None:
        store.put(key, Choice(engine.name, engine.workspace_bytes, candidates.written(engine)))
    elif len(engines) > 1:
        store.put(key, Choice(_SEPARATE))
    return engine


def _measure(wanted: Wanted, candidates: _Offer, engines: Sequence[choice.Engine | None]) -> list[float | None] | None:
    """Return the times of engines in ms; None among engines stands for a plain convolution followed by a kernel."""
    first, second, result = elements(wanted.geometry, wanted.direction)
    inputs = [first, second] + [wanted.geometry.out_channels] * wanted.fused.bias
    built = [_graph_of(candidates, engine) for engine in engines if engine is not None]
    runs = [_run(graph) for graph in built]
    if len(built) < len(engines):
        plain = find(replace(wanted, fused=Fused()))
        built.append(plain)
        runs.insert(0, _run(plain, wanted))
    kinds = [_BF16, _BF16, _FLOAT] if wanted.types.half else [_FLOAT] * 3
    made = _FLOAT if wanted.direction == "backward_filter" and not wanted.types.narrow else kinds[0]
    inputs = list(zip(inputs, kinds, strict=False))
    return choice.measure(runs, inputs, (result, made), max(e.workspace_bytes for e in built), candidates.refusals)


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


def _loaded(device: int, plan: bytes) -> Callable[..., None]:
    """Return the function that queues an engine that cuDNN wrote."""
    graph = library.load()[0].pygraph(handle=handle(device))
    graph.deserialize(bytearray(plan))  # no bytes; a list takes half as long again
    return choice.runner(graph)


def store_of(device: int) -> Store:
    """Return the store of engines for this GPU, in the cache folder that is in use."""
    place = cache_folder(), device
    if place not in _stores:
        name, frontend = cuda.require().cuda.runtime.getDeviceProperties(device)["name"], library.load()[0]
        _stores[place] = open_store(name.decode(), frontend.backend_version(), frontend.__version__)
    return _stores[place]


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
