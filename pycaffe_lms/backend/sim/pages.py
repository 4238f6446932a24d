"""Give the simulated device pages: of a file in memory, mapped wherever a view says (Linux)."""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import weakref
from collections.abc import Callable, Iterable

import numpy as np

from ...errors import OutOfDeviceMemory, human_bytes
from ..device import Piece, Span, runs

_SHARED, _PRIVATE, _FIXED, _ANONYMOUS, _NO_RESERVE = 0x01, 0x02, 0x10, 0x20, 0x4000
_FAILED = ctypes.c_void_p(-1).value


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    size, integer = ctypes.c_size_t, ctypes.c_int
    library.mmap.argtypes = [ctypes.c_void_p, size, integer, integer, integer, ctypes.c_int64]
    library.mmap.restype = ctypes.c_void_p
    library.munmap.argtypes = [ctypes.c_void_p, size]
    return library


def _map(address: int | None, nbytes: int, protection: int, flags: int, file: int, offset: int) -> int:
    found: int = _library().mmap(address, nbytes, protection, flags, file, offset)
    if found == _FAILED:
        error = os.strerror(ctypes.get_errno())
        raise OutOfDeviceMemory(
            f"the simulated device cannot map {human_bytes(nbytes)}: {error}", needed=nbytes, free=0
        )
    return found


class _Addresses:
    """Reserve addresses until the last array over them is gone."""

    def __init__(self, nbytes: int):
        address = _map(None, nbytes, 0, _PRIVATE | _ANONYMOUS | _NO_RESERVE, -1, 0)
        self.__array_interface__ = {"shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3}
        weakref.finalize(self, _library().munmap, address, nbytes).atexit = False
        self.address = address


class SimPages:
    """Implement `device.Pages`. count_bytes(n): called before n more bytes are allocated; raises to refuse."""

    def __init__(self, page: int, count_bytes: Callable[[int], None], poison: int):
        self.count = 0
        self._page, self._count_bytes, self._poison = page, count_bytes, poison
        self._file = os.memfd_create("pages of a simulated device")
        self._close = weakref.finalize(self, os.close, self._file)

    def grow(self, count: int) -> None:
        if count <= self.count:
            return
        self._count_bytes((count - self.count) * self._page)
        if os.fstat(self._file).st_size < count * self._page:
            os.ftruncate(self._file, count * self._page)
        self._spoil(self.count, count)
        self.count = count

    def shrink(self, count: int) -> None:
        """Free pages. The file keeps its length: a read of a freed page gives poison, and does not end the process."""
        if count < self.count:
            self._spoil(count, self.count)
            self._count_bytes((count - self.count) * self._page)
            self.count = count

    def _spoil(self, first: int, end: int) -> None:
        os.pwrite(self._file, bytes([self._poison]) * ((end - first) * self._page), first * self._page)

    def view(self, nbytes: int, pieces: Iterable[Piece]) -> Span:
        size = max(1, -(-nbytes // self._page)) * self._page
        addresses, both = _Addresses(size), mmap.PROT_READ | mmap.PROT_WRITE
        for offset, pages in pieces:
            for i, first, n in runs(pages):
                where = addresses.address + offset + i * self._page
                _map(where, n * self._page, both, _SHARED | _FIXED, self._file, first * self._page)
        return Span(np.asarray(addresses), 0, nbytes)

    def drop(self, view: Span) -> None: ...

    def close(self) -> None:
        """Free all pages. Views stay readable as long as they exist."""
        self._count_bytes(-self.count * self._page)
        self.count = 0
        self._close()
