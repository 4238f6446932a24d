"""Pages of a GPU through the driver's virtual memory functions (CUDA 10.2 and newer, called with ctypes).

A page is an allocation of its own, for only whole allocations can be mapped. Memory of a view is like any other to
kernels and copies; on an H200 with scattered pages both run as fast as in one piece, and mapping takes 30 us a page.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Iterable

from ...errors import DeviceError, OutOfDeviceMemory, human_bytes
from ..device import Span
from ..pages import Piece

_OUT_OF_MEMORY = 2
_SUPPORTED = 102  # CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
_PINNED, _ON_DEVICE, _READ_WRITE = 1, 1, 3  # of CUmemAllocationType, CUmemLocationType, CUmemAccess_flags


class _Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class _Properties(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handles", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    ]


class _Access(ctypes.Structure):
    _fields_ = [("location", _Location), ("flags", ctypes.c_int)]


@functools.cache
def _library():
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _call(name: str, *args) -> int:
    code = getattr(_library(), name)(*args)
    if code not in (0, _OUT_OF_MEMORY):
        raise DeviceError(f"the driver's {name} failed with error {code}", fix="run without pages: -lms_pages off")
    return code


def page_bytes(device: int) -> int | None:
    """Bytes of a page; None: the GPU or its driver has none."""
    try:
        found, size = ctypes.c_int(), ctypes.c_size_t()
        if _library().cuDeviceGetAttribute(ctypes.byref(found), _SUPPORTED, device) or not found.value:
            return None
        properties = _properties(device)
        if _library().cuMemGetAllocationGranularity(ctypes.byref(size), ctypes.byref(properties), 0):
            return None
    except (OSError, AttributeError):  # no such library, or no such function in it
        return None
    return size.value


def _properties(device: int) -> _Properties:
    return _Properties(_PINNED, 0, _Location(_ON_DEVICE, device))


class CudaPages:
    """See `pages.Pages`. count_bytes(n): is told how many bytes more are taken, before they are; may refuse."""

    def __init__(self, device: int, page: int, count_bytes, pointer):
        self._device, self._page, self._count_bytes, self._pointer = device, page, count_bytes, pointer
        self._handles: list[int] = []
        self._views: dict[int, tuple[int, list[tuple[int, int]]]] = {}  # address -> bytes, what is mapped there

    @property
    def count(self) -> int:
        return len(self._handles)

    def grow(self, count: int) -> None:
        before = len(self._handles)
        if count <= before:
            return
        self._count_bytes((count - before) * self._page)
        properties, handle = _properties(self._device), ctypes.c_ulonglong()
        for _ in range(count - before):
            size = ctypes.c_size_t(self._page)
            if _call("cuMemCreate", ctypes.byref(handle), size, ctypes.byref(properties), ctypes.c_ulonglong(0)):
                self._release(before)
                self._count_bytes((before - count) * self._page)
                raise OutOfDeviceMemory(
                    f"GPU {self._device} cannot give {human_bytes((count - before) * self._page)} in pages",
                    needed=(count - before) * self._page,
                    free=0,
                )
            self._handles.append(handle.value)

    def view(self, nbytes: int, pieces: Iterable[Piece]) -> Span:
        start, nothing = ctypes.c_ulonglong(), ctypes.c_ulonglong(0)
        size = max(1, -(-nbytes // self._page)) * self._page
        args = ctypes.c_size_t(size), ctypes.c_size_t(0), nothing, nothing
        if _call("cuMemAddressReserve", ctypes.byref(start), *args):
            raise OutOfDeviceMemory(f"the driver cannot give {human_bytes(size)} of addresses", needed=size, free=0)
        address, mapped = start.value, []
        self._views[address] = size, mapped
        access = _Access(_Location(_ON_DEVICE, self._device), _READ_WRITE)
        page = ctypes.c_size_t(self._page)
        for offset, pages in pieces:
            for k, number in enumerate(pages):
                where = ctypes.c_ulonglong(address + offset + k * self._page)
                _must("cuMemMap", where, page, ctypes.c_size_t(0), ctypes.c_ulonglong(self._handles[number]), nothing)
            where, length = ctypes.c_ulonglong(address + offset), len(pages) * self._page
            mapped.append((address + offset, length))
            _must("cuMemSetAccess", where, ctypes.c_size_t(length), ctypes.byref(access), ctypes.c_size_t(1))
        return Span(self._pointer(address, size), 0, nbytes)

    def drop(self, view: Span) -> None:
        self._forget(view.base.ptr)

    def _forget(self, address: int) -> None:
        size, mapped = self._views.pop(address)
        for where, length in mapped:
            _must("cuMemUnmap", ctypes.c_ulonglong(where), ctypes.c_size_t(length))
        _must("cuMemAddressFree", ctypes.c_ulonglong(address), ctypes.c_size_t(size))

    def _release(self, keep: int) -> None:
        while len(self._handles) > keep:
            _must("cuMemRelease", ctypes.c_ulonglong(self._handles.pop()))

    def shrink(self, count: int) -> None:
        surplus = max(0, len(self._handles) - count)
        self._release(count)
        self._count_bytes(-surplus * self._page)

    def close(self) -> None:
        for address in list(self._views):
            self._forget(address)
        self.shrink(0)


def _must(name: str, *args) -> None:
    if _call(name, *args):
        raise OutOfDeviceMemory(f"the driver's {name} found no memory", needed=0, free=0)
