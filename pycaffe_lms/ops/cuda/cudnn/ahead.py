"""Have engines that cuDNN compiles built by several processes, while this one builds and measures all others.

cuDNN has most engines ready. Those of a convolution with a bias or ReLU it compiles, which takes 0.2 s each, and its
frontend holds Python's lock meanwhile. So processes (`worker.py`), each with a context of its own on the GPU, build
them and hand them over as cuDNN writes them. `build.py` measures and chooses, here, where an engine's code is loaded
once.
"""

from __future__ import annotations

import logging
import pickle
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress

from ....backend import cuda
from ....backend.child import child_command, child_environment, cores
from ....formats.cache_folder import cache_folder
from .build import CudnnUnsupported, Wanted, candidate_count, find, from_processes, is_stored, lock, store_of
from .choice import Written, keeping_scratch

COMMAND = child_command("pycaffe_lms.ops.cuda.cudnn.worker")
FEWEST = 15  # candidates to be built from which processes are started: that takes over a second
_MOST = 12  # processes
_DEVICE_BYTES = 1 << 30  # device memory that a process may take: its context, handle and kernels
_ENDING_S = 10.0  # seconds that a process may take to end after it closed its output

_log = logging.getLogger(__name__)


class Lost(Exception):
    """Say that a process ended early or failed; the text is the reason."""


@contextmanager
def building(wanted: Iterable[Wanted]) -> Iterator[None]:
    """Within: processes build what is wanted and compiled, and `build.find` waits for it.

    What they cannot build is built by `find`, after a warning. Ranks of a training ask for the same engines: the first
    is within, the others wait and find them in the store.
    """
    each = list(dict.fromkeys(wanted))
    with keeping_scratch(), ExitStack() as alone:
        alone.enter_context(store_of(each[0].device).alone())
        missing = [one for one in each if not is_stored(one)]
        if not missing:
            alone.close()  # the ranks that waited go on side by side
        tasks = [one for one in missing if any(one.fused) and one not in from_processes]  # it may be within another
        count = _processes(tasks)
        if count < 2:
            yield
            return
        building = _Building(tasks, count)
        try:
            _build_here(one for one in missing if not any(one.fused))  # before anybody waits for a process
            yield
        finally:
            building.end()


def _build_here(wanted: Iterable[Wanted]) -> None:
    """Build and measure engines. A refusal of cuDNN is kept for whoever asks."""
    for one in wanted:
        with lock, suppress(CudnnUnsupported):
            find(one)


def _processes(tasks: Sequence[Wanted]) -> int:
    """Return the number of processes for these tasks and the free device memory; 0 where they would not pay."""
    if sum(map(candidate_count, tasks)) < FEWEST:
        return 0
    free, _ = cuda.require().cuda.Device(tasks[0].device).mem_info
    return int(min(_MOST, cores(), len(tasks), free // 2 // _DEVICE_BYTES))


class _Building:
    """Hand tasks to processes, each served by a thread, until all are done or `end` is called."""

    def __init__(self, tasks: Sequence[Wanted], count: int):
        self._tasks = deque((one, Future[list[Written]]()) for one in tasks)
        self._mine, self._count = dict(self._tasks), count
        self._lock = threading.Lock()
        self._serving = count
        self._failures: list[str] = []
        self._workers: list[_Worker] = []
        from_processes.update(self._mine)
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let every process end, which takes them seconds. What is not built yet is not built, as after Ctrl-C."""
        with self._lock:
            self._drop()
        for worker in [*self._workers]:
            worker.kill()
        for thread in self._threads:
            thread.join()
        threading.Thread(target=self._wait, daemon=True).start()
        for one in self._mine:
            from_processes.pop(one, None)
        if self._failures:
            text = "%d of %d processes that build engines of convolutions failed (%s); engines were built one by one."
            _log.warning(text, len(self._failures), self._count, self._failures[0])

    def _wait(self) -> None:
        """Wait for the processes, so that the system forgets them."""
        for worker in self._workers:
            worker.end()

    def _drop(self) -> None:
        """Let those who wait for tasks that nobody has begun go on without."""
        while self._tasks:
            self._tasks.popleft()[1].set_result([])

    def _serve(self) -> None:
        """Let a process build engines, task by task, while there are any. It ends with the others."""
        worker = None
        try:
            worker = _Worker()
            self._workers.append(worker)
            for one, made in iter(self._next, None):
                built: list[Written] = []
                try:
                    built = worker.ask(one)
                finally:
                    made.set_result(built)
        except Lost as error:
            if worker is None or not worker.killed:
                self._failures.append(str(error))
        finally:
            with self._lock:
                self._serving -= 1
                if not self._serving:
                    self._drop()

    def _next(self) -> tuple[Wanted, Future[list[Written]]] | None:
        with self._lock:
            return self._tasks.popleft() if self._tasks else None


class _Worker:
    """Run a process that answers one question after the other. Raises Lost where none can be started."""

    def __init__(self) -> None:
        self.killed = False
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

    def ask(self, wanted: Wanted) -> list[Written]:
        """Return what `build.written` returns in the process. Raises Lost."""
        try:
            pickle.dump(wanted, self._process.stdin)
            self._process.stdin.flush()
            answer: list[Written] | str = pickle.load(self._process.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            raise Lost("" if self.killed else self._last_words()) from None
        if isinstance(answer, str):
            raise Lost(answer)
        return answer

    def kill(self) -> None:
        """End the process, also while it works."""
        self.killed = True
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
