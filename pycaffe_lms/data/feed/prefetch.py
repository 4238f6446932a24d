"""Make batches ahead of the net, in a thread.

See also: batches.py, image_list.py, hdf5_batches.py and windows.py, which make the batches.
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
    """Call `produce(start)`, `produce(start + 1)`, ... on a daemon thread, at most `depth` results ahead of `next`.

    An error in `produce` is raised by `next` when that batch's turn comes, with its own traceback, and by every further
    `next` until `seek`. The thread stops when the Prefetcher is garbage collected, or at exit.
    ahead: start the thread at once, else at the first `next`.
    Raises: LayerParamError for a depth below 1 (`data_param.prefetch`).
    """

    def __init__(self, produce: Callable[[int], Any], depth: int = 4, start: int = 0, *, ahead: bool = True):
        if depth < 1:
            raise LayerParamError(f"prefetch {depth}: no batch could wait", fix="set data_param.prefetch to 1 or more")
        self._produce = produce
        self._depth, self._ahead = depth, ahead
        self._failed: tuple[BaseException, Any] | None = None  # what `next` raised, and where in `produce`
        self.step = 1
        self._start(start)

    @property
    def position(self) -> int:
        """Return the number of the batch that `next` returns next."""
        return self._position

    def next(self) -> Any:
        """Wait for the next batch and return it. Raises: what `produce` raised for it; RuntimeError after `close`."""
        queue = self._queue
        if self._thread.ident is None and not queue.stopped:
            self._thread.start()
        with queue.changed:
            while not queue.results and queue.error is None and self._failed is None:
                if queue.stopped:
                    raise RuntimeError("next() after close()")
                if not self._thread.is_alive():  # as in a forked child, where threads do not follow
                    raise RuntimeError("the prefetch thread is gone; make the Prefetcher in the process that uses it")
                queue.changed.wait(_LOOK_AGAIN_SECONDS)
            if queue.results:
                result = queue.results.popleft()
                queue.changed.notify_all()
                self._position += self.step
                return result
            if self._failed is None:
                assert queue.error is not None  # otherwise the loop above had not ended
                # No longer in the queue: the finalizer refers to that, and raising makes the traceback refer to this.
                self._failed, queue.error, queue.traceback = (queue.error, queue.traceback), None, None
            error, traceback = self._failed
            raise error.with_traceback(traceback)

    def seek(self, batch: int, step: int = 1, *, ahead: bool | None = None) -> None:
        """Drop what is queued and continue with `batch`, `batch + step`, ..., also after an error or `close`.

        ahead: as of the constructor, from now on; None: as before.
        """
        self.close()
        self.step, self._ahead = step, self._ahead if ahead is None else ahead
        self._start(batch)

    def close(self) -> None:
        """Stop and join the thread, and drop what is queued. A second call does nothing.

        Waits for a `produce` that is running. Raises: RuntimeError where it does not end within a minute.
        """
        if self._thread is threading.current_thread():
            raise RuntimeError("close() or seek() inside produce()")
        self._finalizer.detach()
        self._failed = None
        _stop(self._queue, self._thread)
        if self._thread.is_alive():
            raise RuntimeError(f"the batch being prefetched did not end within {_CLOSE_SECONDS:.0f} seconds")

    def _start(self, batch: int) -> None:
        self._position = batch
        self._queue = _Queue(self._depth)
        # The thread refers to the queue but not to this object, so that garbage collection of the latter can stop it.
        self._thread = threading.Thread(
            target=_run, args=(self._queue, self._produce, batch, self.step), name=f"prefetch-{batch}", daemon=True
        )
        if self._ahead:
            self._thread.start()
        self._finalizer = weakref.finalize(self, _stop, self._queue, self._thread)


class _Queue:
    """Hold what caller and thread share; every attribute is used under `changed`."""

    def __init__(self, depth: int):
        self.changed = threading.Condition()
        self.depth = depth
        self.results: deque[Any] = deque()
        self.stopped = False
        self.error: BaseException | None = None
        self.traceback: Any = None


def _run(queue: _Queue, produce: Callable[[int], Any], batch: int, step: int) -> None:
    while True:
        with queue.changed:
            queue.changed.wait_for(lambda: queue.stopped or len(queue.results) < queue.depth)
            if queue.stopped:
                return
        try:
            result = produce(batch)
        except BaseException as error:  # `next` raises it
            with queue.changed:
                queue.error, queue.traceback = error, error.__traceback__
                queue.changed.notify_all()
            return
        with queue.changed:
            if queue.stopped:
                return
            queue.results.append(result)
            queue.changed.notify_all()
        del result  # else this frame would keep the batch alive
        batch += step


def _stop(queue: _Queue, thread: threading.Thread) -> None:
    with queue.changed:
        queue.stopped = True
        queue.results.clear()
        queue.error = queue.traceback = None
        queue.changed.notify_all()
    # Garbage collection may run this in the thread itself.
    if thread.ident is not None and thread is not threading.current_thread():
        thread.join(_CLOSE_SECONDS)
