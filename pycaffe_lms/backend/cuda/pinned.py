"""Allocate page-locked host memory.

CUDA's own call takes 0.4 s a GiB, since it locks small pages one by one. So blocks are mapped in huge pages, touched by
several threads, and then registered with the driver, which takes 0.1 s a GiB. Linux gives huge pages to private memory
alone, unless its administrator allows them for shared memory.
"""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from ...arrays import HostArray
from ...errors import OutOfHostMemory, human_bytes

_PARALLEL_FROM = 64 << 20
_PIECE = 256 << 20


def pinned_bytes(nbytes: int, runtime: Any) -> HostArray:
    """Allocate `nbytes` of page-locked memory as uint8; it is unlocked and freed with the last array over it.

    A process that is forked does not have this memory, like that of CUDA's own call.

    runtime: CuPy's. Raises OutOfHostMemory when the host cannot allocate or lock it.
    """
    if nbytes == 0:
        return np.empty(0, np.uint8)
    try:
        mapping = _private(nbytes)
        whole = np.frombuffer(mapping, np.uint8)
        _touch(whole.ctypes.data, nbytes)
        runtime.hostRegister(whole.ctypes.data, nbytes, 0)
    except (OSError, MemoryError, runtime.CUDARuntimeError) as error:
        raise OutOfHostMemory(
            f"the host cannot give {human_bytes(nbytes)} of page-locked memory: {error}",
            needed=nbytes,
            free=0,
            fix="lower batch_size, raise the memlock limit (ulimit -l), or manage fewer buffers (larger -lms)",
        ) from error
    weakref.finalize(whole, _give_back, runtime, whole.ctypes.data, mapping).atexit = False
    return whole[:nbytes]  # a view: `whole` lives as long as any of them


def _private(nbytes: int) -> mmap.mmap:
    """Map memory of this process alone, in huge pages where there are any."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):  # not Linux
        return mmap.mmap(-1, nbytes)
    mapping = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel that is built without huge pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    mapping.madvise(mmap.MADV_DONTFORK)  # locked pages cannot be shared with a fork: Linux would copy them all
    return mapping


_gate = threading.RLock()  # a finalizer may run wherever its thread is, here too
_closed = 0
_later: list[tuple[Any, int, mmap.mmap]] = []


@contextmanager
def nothing_unlocked() -> Iterator[None]:
    """Within: keep unused memory locked until the end, and do not collect garbage.

    Unlocking waits for the device, which breaks a capture in any thread, and so may finalizers of collected objects.
    """
    global _closed
    collects = gc.isenabled()
    gc.disable()
    with _gate:
        _closed += 1
    try:
        yield
    finally:
        with _gate:
            _closed -= 1
            while _later and not _closed:
                _unlock(*_later.pop())
        if collects:
            gc.enable()


def _give_back(runtime: Any, address: int, mapping: mmap.mmap) -> None:
    with _gate:
        if _closed:
            _later.append((runtime, address, mapping))
        else:
            _unlock(runtime, address, mapping)


def _unlock(runtime: Any, address: int, mapping: mmap.mmap) -> None:
    """Unlock memory. `mapping` exists until here: its addresses must not be reused while they are registered."""
    runtime.deviceSynchronize()  # a copy may still be in flight
    runtime.hostUnregister(address)


def _touch(address: int, nbytes: int) -> None:
    """Let the kernel allocate every page, with all cores where there are many."""
    pieces = [(address + i, min(_PIECE, nbytes - i)) for i in range(0, nbytes, _PIECE)]
    if nbytes < _PARALLEL_FROM:
        for where, size in pieces:
            ctypes.memset(where, 0, size)
        return
    with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as threads:  # memset runs without the GIL
        list(threads.map(lambda piece: ctypes.memset(piece[0], 0, piece[1]), pieces))
