"""Give pages of a GPU through the driver's virtual memory functions (CUDA 10.2 and newer, called with ctypes).

Each page is an allocation, because only whole allocations can be mapped. To kernels and copies a view is memory like
any other: on an H200 both run as fast on scattered pages as on one piece, and mapping takes 30 us a page.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Iterable
from typing import Any

from ...errors import DeviceError, OutOfDeviceMemory, human_bytes
from ..device import Piece, Span

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
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _call(name: str, *args: Any) -> int:
    code: int = getattr(_library(), name)(*args)
    if code not in (0, _OUT_OF_MEMORY):
        raise DeviceError(f"the driver's {name} failed with error {code}", fix="run without pages: -lms_pages off")
    return code


def page_bytes(device: int) -> int | None:
    """Return the bytes of a page; None: the GPU or its driver has none."""
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
    """Implement `device.Pages`.

    Args:
        device: number of the GPU.
        page: bytes of a page.
        count_bytes(n): called before n more bytes are allocated (after -n are freed); raises to refuse.
        pointer(address, nbytes): returns CuPy's pointer to a view.
    """

    def __init__(
        self, device: int, page: int, count_bytes: Callable[[int], None], pointer: Callable[[int, int], object]
    ):
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
        address = start.value
        mapped: list[tuple[int, int]] = []
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


def _must(name: str, *args: Any) -> None:
    if _call(name, *args):
        raise OutOfDeviceMemory(f"the driver's {name} found no memory", needed=0, free=0)
