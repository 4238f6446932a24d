"""Choose which of cuDNN's engines runs a graph: list its candidates in its own order, and measure the fastest.

Measuring runs candidates on scratch memory of its own, on the current stream, with the device otherwise idle. A
candidate whose result differs from the first one's (by more than TF32's or bfloat16's rounding) does not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ....backend import cuda
from ....backend.bfloat16 import BFLOAT16

CANDIDATES = 6  # candidates that are measured
FUSED = 5  # of graphs with a bias or ReLU: the sixth takes as long to build as three, and never won in bfloat16
TF32_GRADIENTS = 3  # of float32 gradients: later ones were never the fastest by more than a few percent
_GAIN = 0.97  # a later candidate must take less than this share of an earlier one's time, so that choices are stable
_GENERIC = "eng0"  # cuDNN's name of an engine that does everything, in 30 to 500 times the time of others
_FIRST_CALL_MS, _SLOW_START = 100.0, 4.0  # a first call of more ms, plus this many times the best, is the only one
_LONG_MS = 1000.0  # a first call that takes longer is the only one in any case
_SLOWER = 2.0, 1.25, 1.25  # round by round: a candidate slower than this many times the best is not timed again
_FIRST_RUNS, _MOST_RUNS = 3, 20
_ROUND_MS = 2.0
_TOLERANCE = {np.dtype(np.float32): 5e-3, BFLOAT16: 1e-2}  # share of the largest result; TF32 keeps 11 bits, bfloat16 8
_ALIGNMENT = 512

_SOURCE = """
extern "C" __global__ void scatter_values(long long to, long long n, long long seed) {  // of [-1, 1), all over it
  T* values = (T*)to;
  LOOP(i, n) {
    unsigned h = (unsigned)(i * 2654435761LL + seed * 40503LL);
    h ^= h >> 16; h *= 0x85ebca6bu; h ^= h >> 13; h *= 0xc2b2ae35u; h ^= h >> 16;
    values[i] = (float)(h >> 8) / 8388608.0f - 1.0f;
  }
}
// worst[0] = the largest |a - b|, worst[1] = the largest |a|; as bits, whose order is that of values >= 0, NaN last
extern "C" __global__ void differ(long long a, long long b, long long worst, long long n) {
  unsigned most = 0, size = 0;
  LOOP(i, n) {
    float one = ((const T*)a)[i], other = ((const T*)b)[i];
    unsigned difference = __float_as_uint(fabsf(one - other)), own = __float_as_uint(fabsf(one));
    most = difference > most ? difference : most;
    size = own > size ? own : size;
  }
  atomicMax((unsigned*)worst, most);
  atomicMax((unsigned*)worst + 1, size);
}
"""

_kept = ContextVar[Any]("kept", default=None)  # the memory pool of `keeping_scratch`

Array = tuple[int, np.dtype[Any]]  # elements, and their type
Run = Callable[[Sequence[int], int, int], None]  # (addresses of the inputs, of the result, of the workspace)


@dataclass(frozen=True, slots=True)
class Engine:
    """Hold a built candidate: its index in its graph's list, cuDNN's name of it with settings, bytes of workspace."""

    index: int
    name: str
    workspace_bytes: int


class Written(NamedTuple):
    """Hold a candidate of another process: cuDNN's name of it, bytes of workspace, the engine as cuDNN writes it."""

    name: str
    workspace_bytes: int
    plan: bytes


class Candidates:
    """Build a graph's candidates in cuDNN's order, as many as are asked for, each once."""

    def __init__(self, graph: Any, refusals: tuple[type[BaseException], ...], limit: int | None):
        self.graph = graph
        self.refusals, self._limit = refusals, limit
        self._built: list[Engine] = []
        self._named: dict[str, Engine | None] = {}
        self._more = engines(graph, refusals, limit)

    def first(self, count: int) -> list[Engine]:
        """Return the first `count` candidates that can be built, or all where there are fewer."""
        self._built += itertools.islice(self._more, max(0, count - len(self._built)))
        return self._built[:count]

    def build(self, count: int, turn: Callable[[str, bool], AbstractContextManager[bool]]) -> None:
        """Build the first `count` candidates, each in its name's turn (`Store.turn`), those first whose turn is free.

        NVRTC keeps what it compiled on disk, and engines of one name have the same kernels for many shapes: what
        another process has compiled takes a tenth of the time, if it is not compiled by both at once.
        """
        indices = _indices(self.graph)
        left = [name for name in indices if name != _GENERIC][:count]
        for wait in (False, True):
            for name in [*left]:
                with turn(name, wait) as mine:
                    if mine:
                        left.remove(name)
                        with suppress(*self.refusals):  # `first` leaves it out
                            self.graph.build_plan_at_index(indices[name])

    def run(self, engine: Engine) -> Callable[..., None]:
        """Return the function that queues a built candidate; it takes the candidate's index."""
        return runner(self.graph)

    def written(self, engine: Engine) -> bytes:
        """Return a built candidate as cuDNN writes it; b"" where it cannot."""
        try:
            self.graph.build_plan_at_index(engine.index)  # a graph writes the engine that it built last
            return bytes(self.graph.serialize())
        except self.refusals:
            return b""

    def named(self, name: str) -> Engine | None:
        """Return the candidate of that name; None where there is none that can be built."""
        known = [engine for engine in self._built if engine.name == name]
        if name not in self._named:
            self._named[name] = known[0] if known else named_engine(self.graph, name, self.refusals, self._limit)
        return self._named[name]


class Loaded:
    """Offer candidates that another process built, as `Candidates` does."""

    def __init__(
        self,
        built: Sequence[Written],
        load: Callable[[bytes], Callable[..., None]],
        refusals: tuple[type[BaseException], ...],
    ):
        self.refusals, self._load = refusals, load
        self._built = {one.name: one for one in built}
        self._runs: dict[str, Callable[..., None]] = {}

    def first(self, count: int) -> list[Engine]:
        """Return the first `count` candidates, or all where there are fewer."""
        return [Engine(0, one.name, one.workspace_bytes) for one in [*self._built.values()][:count]]

    def run(self, engine: Engine) -> Callable[..., None]:
        """Return the function that queues a candidate."""
        if engine.name not in self._runs:
            self._runs[engine.name] = self._load(self._built[engine.name].plan)
        return self._runs[engine.name]

    def written(self, engine: Engine) -> bytes:
        """Return a candidate as cuDNN writes it."""
        return self._built[engine.name].plan

    def named(self, name: str) -> Engine | None:
        """Return the candidate of that name; None where there is none."""
        return next((engine for engine in self.first(len(self._built)) if engine.name == name), None)


def runner(graph: Any) -> Callable[..., None]:
    """Return the function that queues a graph's engine, past the frontend's wrapper, which copies the pointers' map."""
    found: Callable[..., None] = getattr(graph, "_execute_plan_at_index", None) or graph.execute_plan_at_index
    return found


def engines(graph: Any, refusals: tuple[type[BaseException], ...], limit: int | None) -> Iterator[Engine]:
    """Yield a graph's candidates in cuDNN's order, built one by one.

    `refusals` are the exceptions by which the frontend refuses a candidate.
    """
    indices = _indices(graph)
    generic, found = indices.pop(_GENERIC, None), False
    for name, index in indices.items():
        for engine in _built(graph, index, name, refusals, limit):
            found = True
            yield engine
    if generic is not None and not found:
        yield from _built(graph, generic, _GENERIC, refusals, limit)


def _indices(graph: Any) -> dict[str, int]:
    """Return the indices of a graph's candidates by name, in cuDNN's order."""
    indices: dict[str, int] = {}
    for index in range(graph.get_execution_plan_count()):
        indices.setdefault(graph.get_plan_name_at_index(index), index)  # the fallback list repeats some
    return indices


def named_engine(graph: Any, name: str, refusals: tuple[type[BaseException], ...], limit: int | None) -> Engine | None:
    """Return the candidate of that name, built; None where there is none."""
    index = _indices(graph).get(name)
    return None if index is None else next(_built(graph, index, name, refusals, limit), None)


def _built(
    graph: Any, index: int, name: str, refusals: tuple[type[BaseException], ...], limit: int | None
) -> Iterator[Engine]:
    try:
        graph.build_plan_at_index(index)
    except refusals:
        return
    needed = graph.get_workspace_size_plan_at_index(index)
    if limit is None or needed <= limit:
        yield Engine(index, name, needed)


def fastest(times: Sequence[float | None]) -> int:
    """Return the index of the fastest run; of times that are about equal, the earliest.

    None does not count; the result is 0 if all are None.
    """
    best = None
    for i, time in enumerate(times):
        if time is not None and (best is None or time < _GAIN * times[best]):
            best = i
    return best or 0


def measure(
    runs: Sequence[Run],
    inputs: Sequence[Array],
    result: Array,
    work_bytes: int,
    refusals: tuple[type[BaseException], ...],
) -> list[float | None] | None:
    """Return the milliseconds of each run on scratch arrays; None for a run that failed or was wrong.

    Returns None where the device has no room for the arrays.

    Args:
        inputs, result: (number of elements, type) of the scratch arrays.
    """
    cupy = cuda.require()
    kept = _kept.get()
    pool = kept or cupy.cuda.MemoryPool()  # of its own, so that the memory of others is neither kept nor returned
    sizes = [*(n * kind.itemsize for n, kind in (*inputs, result, result)), 8, work_bytes]
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] - (-size // _ALIGNMENT) * _ALIGNMENT)
    try:
        memory = pool.malloc(starts[-1])
    except MemoryError:
        return None
    try:
        cupy.cuda.runtime.deviceSynchronize()
        addresses = [memory.ptr + start for start in starts[:-1]]
        return _Scratch(cupy, addresses, inputs, result, refusals).times(runs)
    finally:
        cupy.cuda.runtime.deviceSynchronize()
        del memory
        if kept is None:
            pool.free_all_blocks()


@contextmanager
def keeping_scratch() -> Iterator[None]:
    """Within: this thread keeps the scratch memory of a measurement for the next one."""
    pool = cuda.require().cuda.MemoryPool()
    before = _kept.set(pool)
    try:
        yield
    finally:
        _kept.reset(before)
        pool.free_all_blocks()


class _Scratch:
    """Hold scratch arrays on the device: inputs, the expected result, one to compare with it, workspace."""

    def __init__(
        self,
        cupy: Any,
        addresses: Sequence[int],
        inputs: Sequence[Array],
        result: Array,
        refusals: tuple[type[BaseException], ...],
    ) -> None:
        self.cupy, self.refusals = cupy, refusals
        self.size, self.kind = result
        self.stream = cupy.cuda.get_current_stream().ptr
        self.given = addresses[: len(inputs)]
        self.expected, self.result, self.worst, self.work = addresses[len(inputs) :]
        for seed, (address, (n, kind)) in enumerate(zip(self.given, inputs, strict=True)):
            cuda.launch(_SOURCE, "scatter_values", kind, n, address, n, seed)

    def times(self, runs: Sequence[Run]) -> list[float | None]:
        """Return the milliseconds of each run; None for one that failed or was wrong."""
        times: list[float | None] = []
        to = self.expected
        for run in runs:
            best = min((t for t in times if t is not None), default=float("inf"))
            times.append(self._first_time(run, to, best))
            if times[-1] is not None:
                to = self.result
        for slower in _SLOWER:  # in turn, so that a changing clock affects all of them
            best = min((t for t in times if t is not None), default=0.0)
            count = max(1, min(_MOST_RUNS, int(_ROUND_MS / max(best, 1e-3))))
            for i, run in enumerate(runs):
                time = times[i]
                if time is not None and time <= slower * best:
                    times[i] = min(time, self._span(run, self.result, count))
        return times

    def _first_time(self, run: Run, to: int, best: float) -> float | None:
        """Return the milliseconds of first runs, of one alone where it is slow; None if they fail or are wrong."""
        self.cupy.cuda.runtime.memsetAsync(to, 0xFF, self.kind.itemsize * self.size, self.stream)  # NaN
        try:
            time = self._span(run, to, 1)  # its code is loaded, which may take as long as many runs
            if time <= min(_LONG_MS, _FIRST_CALL_MS + _SLOW_START * best):
                time = self._span(run, to, 1)
                if time <= _SLOWER[0] * best:
                    time = self._span(run, to, _FIRST_RUNS)
        except self.refusals:
            return None
        return time if self._agrees(to) else None

    def _span(self, run: Run, to: int, count: int) -> float:
        """Return the milliseconds of one call, out of `count` in a row."""
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        start.record()
        for _ in range(count):
            run(self.given, to, self.work)
        end.record()
        end.synchronize()
        return self.cupy.cuda.get_elapsed_time(start, end) / count

    def _agrees(self, to: int) -> bool:
        """Return whether the result is the expected one (for that one itself: whether it has no NaN)."""
        runtime, found = self.cupy.cuda.runtime, np.empty(2, np.float32)
        runtime.memsetAsync(self.worst, 0, found.nbytes, self.stream)
        cuda.launch(_SOURCE, "differ", self.kind, self.size, self.expected, to, self.worst, self.size)
        runtime.deviceSynchronize()
        runtime.memcpy(found.ctypes.data, self.worst, found.nbytes, 2)  # to the host
        return bool(found[0] <= _TOLERANCE[self.kind] * found[1])
