"""A thread that prepares batches ahead of the net.

Covers: any function of a batch's number; errors at their place in the order; going on at another batch.
Does not cover: what a batch is (batches.py).
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

from ...errors import LayerParamError

_LOOK_AGAIN_SECONDS = 1.0
_CLOSE_SECONDS = 60.0


class Prefetcher:
    """Calls `produce(start)`, `produce(start + 1)`, ... on a daemon thread, at most `depth` results ahead of `next`.

    An error in `produce` reaches the caller of `next` in its turn, with its own traceback, and again at every further
    call until `seek`. Dropped or left open at the interpreter's exit, it stops its thread by itself.
    Raises: LayerParamError for a depth below 1 (`data_param.prefetch`).
    """

    def __init__(self, produce: Callable[[int], Any], depth: int = 4, start: int = 0, *, ahead: bool = True):
        if depth < 1:
            raise LayerParamError(f"prefetch {depth}: no batch could wait", fix="set data_param.prefetch to 1 or more")
        self._produce = produce
        self._depth, self._ahead = depth, ahead
        self._start(start)

    @property
    def position(self) -> int:
        """Number of the batch that `next` returns; with `start` 0, how many have been handed out."""
        return self._position

    def next(self) -> Any:
        """The next batch; waits for it. Raises: what `produce` raised for it; RuntimeError after `close`."""
        queue = self._queue
        if self._thread.ident is None and not queue.stopped:
            self._thread.start()
        with queue.changed:
            while not queue.results and queue.error is None:
                if queue.stopped:
                    raise RuntimeError("next() after close()")
                if not self._thread.is_alive():  # as in a forked child, where threads do not follow
                    raise RuntimeError("the prefetch thread is gone; make the Prefetcher in the process that uses it")
                queue.changed.wait(_LOOK_AGAIN_SECONDS)
            if queue.results:
                result = queue.results.popleft()
                queue.changed.notify_all()
                self._position += 1
                return result
            assert queue.error is not None  # of the wait above, the only other end
            raise queue.error.with_traceback(queue.traceback)

    def seek(self, batch: int) -> None:
        """Drop what is queued and go on from `batch`, after an error or `close` as well."""
        self.close()
        self._start(batch)

    def close(self) -> None:
        """Stop and join the thread; what is queued is lost. A second call does nothing.

        A `produce` that is running is waited for. Raises: RuntimeError where it does not end within a minute.
        """
        if self._thread is threading.current_thread():
            raise RuntimeError("close() or seek() inside produce()")
        self._finalizer.detach()
        _stop(self._queue, self._thread)
        if self._thread.is_alive():
            raise RuntimeError(f"the batch being prefetched did not end within {_CLOSE_SECONDS:.0f} seconds")

    def _start(self, batch: int) -> None:
        self._position = batch
        self._queue = _Queue(self._depth)
        # The thread holds the queue but not this object, or dropping this object could not stop it.
        self._thread = threading.Thread(
            target=_run, args=(self._queue, self._produce, batch), name=f"prefetch-{batch}", daemon=True
        )
        if self._ahead:
            self._thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._queue, self._thread)

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class _Queue:
    """What caller and thread share; every attribute is used under `changed`."""

    def __init__(self, depth: int):
        self.changed = threading.Condition()
        self.depth = depth
        self.results: deque[Any] = deque()
        self.stopped = False
        self.error: BaseException | None = None
        self.traceback: Any = None


def _run(queue: _Queue, produce: Callable[[int], Any], batch: int) -> None:
    while True:
        with queue.changed:
            queue.changed.wait_for(lambda: queue.stopped or len(queue.results) < queue.depth)
            if queue.stopped:
                return
        try:
            result = produce(batch)
        except BaseException as error:  # nothing may be lost in a thread: the caller raises it
            with queue.changed:
                queue.error, queue.traceback = error, error.__traceback__
                queue.changed.notify_all()
            return
        with queue.changed:
            if queue.stopped:
                return
            queue.results.append(result)
            queue.changed.notify_all()
        del result  # the caller owns it; holding on here would keep a batch alive
        batch += 1


def _stop(queue: _Queue, thread: threading.Thread) -> None:
    with queue.changed:
        queue.stopped = True
        queue.results.clear()
        queue.error = queue.traceback = None
        queue.changed.notify_all()
    if (
        thread.ident is not None and thread is not threading.current_thread()
    ):  # garbage collection may run this in the thread itself
        thread.join(_CLOSE_SECONDS)
