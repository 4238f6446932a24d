"""Call a function for many items in processes of their own, and give the results in the order of the items.

Threads of one process wait for each other wherever Python itself runs: with many of them that limits work of less than
a millisecond an item, such as reading, decoding and encoding a small picture.
Items and results go through pipes, except what is large in a result: it goes through a file in memory that a process
shares with its parent. A pipe copies in pieces of 64 KiB, and pickle while no other thread of the parent can run.
Covers: starting, feeding and ending the processes; what one of them does (`main`).
See also: workers.py, the same with threads.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import IO, Any, BinaryIO, TypeVar

from ...backend.child import child_command, child_environment
from ...errors import CaffeError, DataError
from .workers import keep_freed_memory

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_CHUNK = 16  # items that a process gets at a time
_AHEAD = 2  # chunks that a process has got beyond those that were asked for
_MESSAGE_BYTES = 4 << 20  # results are sent at this size even before the chunk's end
_LARGE_BYTES = 4 << 10  # `bytes` of at least this size go through shared memory
_PIPE_BYTES = 1 << 20  # the most that Linux gives everybody
_SHARED_BYTES = 16 << 20  # of memory for the results of one chunk; what is not written takes none


def in_order_by_processes(
    work: Callable[[_Item], _Result], items: Iterable[_Item], processes: int
) -> Generator[_Result, None, None]:
    """Yield work(item) for each item, in order, computed by so many processes.

    The n-th chunk of items goes to process n % processes, so the same process makes the same results in every run.

    Args:
        work: a function of a module, or a `functools.partial` of one; it, items and results are pickled. It imports
            what it needs from modules, not from `pycaffe_lms` itself.
    Raises: CaffeError that `work` raised, in the place of that item's result; RuntimeError with the traceback of any
    other exception; DataError where a process was ended from outside.
    """
    keep_freed_memory()
    children: list[_Child] = []
    asked: deque[tuple[_Child, int]] = deque()
    try:
        for _ in range(processes):
            children.append(_Child(work))
        for turn, chunk in enumerate(_chunks(items)):
            if len(asked) == _AHEAD * processes:
                yield from _answers(*asked.popleft())
            child = children[turn % processes]
            child.ask(chunk)
            asked.append((child, len(chunk)))
        while asked:
            yield from _answers(*asked.popleft())
    finally:  # after an error, or when the caller stops early, too
        for child in children:
            child.end()


def _chunks(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    chunk: list[_Item] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == _CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _answers(child: _Child, count: int) -> Iterator[Any]:
    for _ in range(count):
        result = child.answer()
        if isinstance(result, Exception):
            raise result
        yield result


class _Child:
    """Be one process, as its parent sees it."""

    def __init__(self, work: Callable[..., object]):
        self._shared = _shared_file()
        try:
            self._process = subprocess.Popen(
                [*child_command(__name__), str(self._shared)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=child_environment(),
                pass_fds=() if self._shared < 0 else (self._shared,),
            )
        except OSError as error:
            self._close_shared()
            raise DataError(
                f"a process that reads pictures cannot start: {error.strerror or error}",
                fix="free memory or let the user have more processes, or set OMP_NUM_THREADS=1 to use none",
            ) from error
        except BaseException:
            self._close_shared()
            raise
        self._widen()
        self.ask(work)

    def _widen(self) -> None:
        """Let the pipe to the process hold whole chunks, where the system can: `ask` then need not wait for it."""
        assert self._process.stdin is not None
        with contextlib.suppress(ImportError, AttributeError, OSError):  # OSError: the user has many such pipes
            import fcntl

            fcntl.fcntl(self._process.stdin, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    def ask(self, what: object) -> None:
        stream = self._process.stdin
        assert stream is not None
        try:
            pickle.dump(what, stream, pickle.HIGHEST_PROTOCOL)
            stream.flush()
        except OSError as error:
            raise self._gone() from error

    def answer(self) -> Any:
        stream = self._process.stdout
        assert stream is not None
        try:
            return _Unpickler(stream, self._shared).load()
        except (EOFError, pickle.UnpicklingError) as error:
            raise self._gone() from error

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):  # of what was not sent any more
                stream.close()
        self._close_shared()

    def _close_shared(self) -> None:
        if self._shared >= 0:
            os.close(self._shared)

    def _gone(self) -> DataError:
        return DataError(
            f"a process that reads pictures ended with code {self._process.wait()}",
            fix="if the system ran out of memory, use fewer, for example OMP_NUM_THREADS=2; else see what it printed",
        )


def _shared_file() -> int:
    """Return a file in memory for the results of two chunks, -1 where the system has none."""
    if not hasattr(os, "memfd_create"):
        return -1
    file = os.memfd_create("caffe-results")
    os.ftruncate(file, _AHEAD * _SHARED_BYTES)
    return file


class _Pickler(pickle.Pickler):
    """Pickle a result, but write its large `bytes` to part `part` of the file `shared`, as far as they fit.

    The chunk that used the part before was read, because the parent asks for no more than `_AHEAD` chunks at a time."""

    def __init__(self, message: io.BytesIO, shared: int, part: int):
        super().__init__(message, pickle.HIGHEST_PROTOCOL)
        size = os.fstat(shared).st_size // _AHEAD if shared >= 0 else 0
        self._shared, self._free, self._end = shared, part * size, (part + 1) * size

    def persistent_id(self, value: Any) -> tuple[int, int] | None:
        if type(value) is not bytes or len(value) < _LARGE_BYTES:
            return None
        start, end = self._free, self._free + len(value)
        if end > self._end or os.pwrite(self._shared, value, start) != len(value):
            return None
        self._free = end
        return start, len(value)


class _Unpickler(pickle.Unpickler):
    """Read what a `_Pickler` wrote, and the rest from the file `shared`; other threads run while that is copied."""

    def __init__(self, stream: IO[bytes], shared: int):
        super().__init__(stream)
        self._shared = shared

    def persistent_load(self, place: tuple[int, int]) -> bytes:
        start, length = place
        return os.pread(self._shared, length, start)


def main() -> None:
    """Answer, as one of the processes, on the standard output what is asked on the standard input, until that ends.

    The command line has the number of the file in memory that takes results, -1 for none."""
    import cv2

    shared = int(sys.argv[1])
    # The parent ends this process. It may need more results when the whole group is told to stop.
    for each in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, each):
            signal.signal(getattr(signal, each), signal.SIG_IGN)
    cv2.setNumThreads(1)  # there are as many processes as CPUs
    keep_freed_memory()
    asked, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else is written among the answers
    sending: Future[None] | None = None
    turn = 0
    with ThreadPoolExecutor(1) as sender:  # the next results are made while some are sent
        work, chunks = pickle.load(asked), SimpleQueue[list[Any] | None]()
        # so that the parent never waits for this process to take a chunk, while this one waits for it to take results
        threading.Thread(target=_take, args=(asked, chunks), daemon=True).start()
        while (chunk := chunks.get()) is not None:
            for message in _messages(work, chunk, shared, turn % _AHEAD):
                if sending is not None:
                    sending.result()
                sending = sender.submit(_send, answers, message)
            turn += 1


def _take(asked: BinaryIO, chunks: SimpleQueue[list[Any] | None]) -> None:
    """Read chunks as they come; None behind the last one. There are never more than the parent asks ahead."""
    try:
        while True:
            chunks.put(pickle.load(asked))
    except (EOFError, pickle.UnpicklingError):  # the parent has ended
        chunks.put(None)


def _messages(work: Callable[[Any], Any], chunk: list[Any], shared: int, part: int) -> Iterator[bytes]:
    """Yield the pickled results of a chunk; a message of many small ones is not much larger than it should be.

    shared, part: as for `_Pickler`."""
    message = io.BytesIO()
    pickler = _Pickler(message, shared, part)
    for item in chunk:
        try:
            result = work(item)
        except CaffeError as error:
            result = error
        except Exception:
            result = RuntimeError(traceback.format_exc())
        pickler.dump(result)
        pickler.clear_memo()
        if message.tell() >= _MESSAGE_BYTES:
            yield message.getvalue()
            message.seek(0)
            message.truncate()
    yield message.getvalue()


def _send(stream: BinaryIO, message: bytes) -> None:
    try:
        stream.write(message)
        stream.flush()
    except BrokenPipeError:  # the parent is gone
        os._exit(1)
