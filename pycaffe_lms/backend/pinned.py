"""Page-locked host memory. One plain call costs 0.6 s a GiB, most of it one thread touching pages; so large blocks are
mapped, touched by several threads, and then registered with the driver."""

from __future__ import annotations

import ctypes
import mmap
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ..errors import OutOfHostMemory, human_bytes

_PARALLEL_FROM = 64 << 20
_PIECE = 256 << 20


class _Pinned:
    """Owns a mapping and its registration."""

    def __init__(self, nbytes: int, runtime):
        self.map = mmap.mmap(-1, nbytes)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            self.map.madvise(mmap.MADV_HUGEPAGE)
        self.array = np.frombuffer(self.map, np.uint8)
        self._runtime = runtime
        self._address = self.array.ctypes.data
        _touch(self._address, nbytes)
        runtime.hostRegister(self._address, nbytes, 0)

    def close(self) -> None:
        """Unlock the pages; no copy may be in flight. The memory goes when the last array over it does."""
        if self._runtime is not None:
            self._runtime.hostUnregister(self._address)
            self._runtime = None


def _touch(address: int, nbytes: int) -> None:
    """Make the kernel back every page, with all cores when there is much of it."""
    pieces = [(address + i, min(_PIECE, nbytes - i)) for i in range(0, nbytes, _PIECE)]
    if nbytes < _PARALLEL_FROM:
        for where, size in pieces:
            ctypes.memset(where, 0, size)
        return
    with ThreadPoolExecutor(max_workers=min(16, os.cpu_count() or 1)) as threads:  # memset runs without the GIL
        list(threads.map(lambda piece: ctypes.memset(piece[0], 0, piece[1]), pieces))


def pinned_bytes(nbytes: int, runtime, *, keep: dict[int, object]) -> np.ndarray:
    """`nbytes` of page-locked memory as uint8; `keep` gets the owner (by address), which must outlive every copy.

    Raises OutOfHostMemory when the host cannot give or lock it.
    """
    if nbytes == 0:
        return np.empty(0, np.uint8)
    try:
        owner = _Pinned(nbytes, runtime)
    except (OSError, MemoryError, runtime.CUDARuntimeError) as error:
        raise OutOfHostMemory(
            f"the host cannot give {human_bytes(nbytes)} of page-locked memory: {error}",
            needed=nbytes,
            free=0,
            fix="lower batch_size, raise the memlock limit (ulimit -l), or manage fewer buffers (larger -lms)",
        ) from error
    keep[owner.array.ctypes.data] = owner
    return owner.array[:nbytes]
