"""Build the engines of many convolutions at once, before anyone asks for them one by one.

cuDNN's frontend holds Python's lock while it builds an engine, so processes do it (`worker.py`), each with a context of
its own on the GPU. One of them at a time measures what it has built, while the others build, which hardly uses the GPU.
The choices, with the engines as cuDNN writes them, reach this process through the store.
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from ....backend import cuda
from ....backend.child import child_command, child_environment, cores
from ....formats.cache_folder import cache_folder
from .build import KNOWN, Wanted, candidate_count, is_stored, store_of

COMMAND = child_command("pycaffe_lms.ops.cuda.cudnn.worker")
FEWEST = 60  # candidates to be built from which processes are started: starting them takes as long
_MOST = 12  # processes
_DEVICE_BYTES = 1 << 30  # device memory that a process may take: its context, handle and kernels
_FIRST_S, _EVERY_S = 1.0, 2.0  # when the log tells how far it is
_ENDING_S = 10.0  # seconds that a process may take to end after it closed its output

_log = logging.getLogger(__name__)


class Lost(Exception):
    """Say that a process ended early or failed; the text is the reason."""


def build_ahead(wanted: Iterable[Wanted]) -> None:
    """Have engines built, measured and stored. What cannot be is built later where it is asked for, after a warning.

    Ranks of a training ask for the same ones: the first has them built, the others wait and find them in the store.
    """
    tasks = _tasks(wanted)
    if _candidates(tasks) < FEWEST:
        return
    with store_of(tasks[0][0].device).alone():
        tasks = _tasks(one for task in tasks for one in task if not is_stored(one))
        if _candidates(tasks) < FEWEST:
            return
        free, _ = cuda.require().cuda.Device(tasks[0][0].device).mem_info
        count = _processes(len(tasks), free)
        if count > 1:
            _Building(tasks).run(count)


def _tasks(wanted: Iterable[Wanted]) -> list[list[Wanted]]:
    """Return what is wanted, each once, in the order in which it is to be built.

    A graph with a bias or ReLU follows the plain one that it competes with. cuDNN compiles its engines, which takes a
    quarter of a second each, so these come first.
    """
    each: dict[str, Wanted] = {}
    for one in wanted:
        key = f"{one.device} {one}"
        if key not in each or each[key].mode == KNOWN:  # which is content with what another one measures
            each[key] = one
    together: dict[Any, list[Wanted]] = {}
    for one in sorted(each.values(), key=lambda w: any(w.fused)):
        together.setdefault((one.device, one.geometry, one.direction, one.types), []).append(one)
    return sorted(together.values(), key=lambda task: not any(any(one.fused) for one in task))


def _candidates(tasks: Sequence[list[Wanted]]) -> int:
    return sum(candidate_count(one) for task in tasks for one in task)


def _processes(tasks: int, free: int) -> int:
    """Return the number of processes for so many tasks and bytes of free device memory."""
    return min(_MOST, cores(), tasks, free // 2 // _DEVICE_BYTES)


class _Building:
    """Hand tasks to processes, each served by a thread."""

    def __init__(self, tasks: Sequence[list[Wanted]]):
        self._tasks = deque(tasks)
        self._total = sum(map(len, tasks))
        self._lock, self._turn = threading.Lock(), threading.Lock()  # of these numbers, and who may measure
        self._built, self._measured = 0, 0
        self._failures: list[str] = []
        self._workers: list[_Worker] = []
        self._begin = time.monotonic()

    def run(self, count: int) -> None:
        """Return when all tasks are done or the processes are lost; every process has ended then."""
        threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        try:
            for thread in threads:
                thread.start()
            self._tell_until_done(threads)
        finally:
            self._tasks.clear()  # after Ctrl-C; else there are none, and the processes have ended
            for worker in [*self._workers]:
                worker.kill()
            for thread in threads:
                thread.join()
        if self._failures:
            _log.warning(
                "%d of %d processes that build engines of convolutions failed (%s); %d engines are left to be built "
                "one by one.",
                len(self._failures),
                count,
                self._failures[0],
                self._total - self._measured,
            )

    def _tell_until_done(self, threads: Sequence[threading.Thread]) -> None:
        due = self._begin + _FIRST_S
        for thread in threads:
            while thread.is_alive():
                thread.join(max(0.0, due - time.monotonic()))
                if time.monotonic() >= due:
                    due += _EVERY_S
                    self._tell()
        if due > self._begin + _FIRST_S:
            self._tell()

    def _tell(self) -> None:
        text, seconds = "Convolutions: %d of %d engines built, %d chosen, %.0f s", time.monotonic() - self._begin
        _log.info(text, self._built, self._total, self._measured, seconds)

    def _serve(self) -> None:
        """Let a process build and measure engines, task by task, while there are any."""
        worker = None
        try:
            worker = _Worker()
            self._workers.append(worker)
            built: list[list[Wanted]] = []
            for task in iter(self._next, None):
                worker.ask("prepare", task)
                with self._lock:
                    self._built += len(task)
                built.append(task)
                if self._turn.acquire(blocking=False):  # else it goes on building
                    try:
                        self._measure(worker, built)
                    finally:
                        self._turn.release()
            with self._turn:
                self._measure(worker, built)
        except Lost as error:
            self._failures.append(str(error))
        finally:
            if worker is not None:
                worker.end()

    def _measure(self, worker: _Worker, built: list[list[Wanted]]) -> None:
        """Let a process measure what it has built, and empty the list."""
        while built:
            worker.ask("find", built[0])
            self._measured += len(built.pop(0))

    def _next(self) -> list[Wanted] | None:
        with self._lock:
            return self._tasks.popleft() if self._tasks else None


class _Worker:
    """Run a process that answers one question after the other. Raises Lost where none can be started."""

    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `end`)
        try:
            self._process = subprocess.Popen(
                [*COMMAND, str(cache_folder())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=child_environment(),
            )
        except OSError as error:
            self._errors.close()
            raise Lost(str(error)) from error

    def ask(self, what: str, task: list[Wanted]) -> None:
        """Let the process call that function of `build.py` for each. Raises Lost."""
        try:
            pickle.dump((what, task), self._process.stdin)
            self._process.stdin.flush()
            error = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise Lost(self._last_words()) from None
        if error:
            raise Lost(error)

    def kill(self) -> None:
        """End the process, also while it works."""
        self._process.kill()

    def end(self) -> None:
        """End the process and close its files."""
        with self._errors, self._process:
            self._process.kill()

    def _last_words(self) -> str:
        """Return why the process ended: the last line that it wrote to stderr, and its exit code."""
        try:
            code = self._process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"exit code {code}" + (f", {lines[-1]}" if lines else "")
