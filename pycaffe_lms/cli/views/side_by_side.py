"""Do several pieces of work in two processes side by side, where the system can fork and has two processors."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Lock
from typing import Any

from ...errors import CaffeError


def side_by_side(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return what each of `works` returns, in their order.

    This process does the first, and then takes the next that nobody has taken; a forked process takes the last, and
    then those before it. Work whose process ends without a result (because of an error, say) is done here again. Where
    no process can be forked, or with one processor, all is done here.

    Raises:
        Exception: what a piece of work raises here.
    """
    if len(works) < 2 or sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        return [work() for work in works]
    context = multiprocessing.get_context("fork")
    taken = [context.Lock() for _ in works]  # never released: who has it does the work
    taken[0].acquire()
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_take_from_the_end, args=(works, taken, there), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside NumPy's threads, which wait
        process.start()
    there.close()
    try:
        found = {0: works[0]()}
        for i in range(1, len(works)):
            if taken[i].acquire(block=False):
                found[i] = works[i]()
        with suppress(EOFError):
            while len(found) < len(works):
                found.update([here.recv()])
        return [found[i] if i in found else work() for i, work in enumerate(works)]
    finally:
        process.terminate()
        process.join()
        here.close()


def _take_from_the_end(works: Sequence[Callable[[], Any]], taken: Sequence[Lock], there: Connection) -> None:
    """Do the work that nobody has taken, from the last piece on; send (index, result) of each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the other process ends this one
    for i in reversed(range(len(works))):
        if taken[i].acquire(block=False):
            with suppress(CaffeError):  # the other process does the work again, and reports it
                there.send((i, works[i]()))
