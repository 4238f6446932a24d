"""Run oneDNN's primitives on plain addresses: every argument lies in C order, and is reordered where needed.

See: oneDNN's developer guide, "C API"; the numbers are those of its header dnnl_types.h, fixed for version 3.
"""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Sequence
from math import prod
from typing import Any

from ....arrays import HostArray
from .library import load

ALIGNMENT = 64
_CPU, _F32, _ANY, _IN_ORDER, _USER_SCRATCHPAD, _RELU = 1, 3, 1, 1, 1, 0x20
_IMPLEMENTATION, _SCRATCHPAD_MD, _ARGUMENT_MD = 8, 136, 255
_FROM, _TO, _SCRATCHPAD = 1, 17, 80
_NOWHERE = None  # memory whose address comes later; (void*)-1 would let oneDNN allocate
_Dims = ctypes.c_int64 * 12
_own = threading.local()


class OnednnUnsupported(Exception):
    """Say that oneDNN has no good way to compute something."""


class _Argument(ctypes.Structure):
    _fields_ = [("index", ctypes.c_int), ("memory", ctypes.c_void_p)]


class Handle:
    """Own a oneDNN object made by dnnl_<what>_<how>(&object, ...); it is destroyed with its last reference."""

    def __init__(self, what: str, how: str, *args: Any) -> None:
        library, self._pointer = load(), ctypes.c_void_p()
        status = getattr(library, f"dnnl_{what}_{how}")(ctypes.byref(self._pointer), *args)
        if status:
            raise OnednnUnsupported(f"dnnl_{what}_{how} answers {status}")
        kind = "primitive_desc" if what.endswith("primitive_desc") else what
        weakref.finalize(self, getattr(library, f"dnnl_{kind}_destroy"), self._pointer).atexit = False

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return self._pointer


def check(status: int, what: str) -> None:
    """Raise RuntimeError where `status`, the result of a call, is not 0."""
    if status:
        raise RuntimeError(f"oneDNN: {what} failed with status {status}")


@functools.cache
def engine() -> Handle:
    """Return the handle of the CPU."""
    return Handle("engine", "create", _CPU, ctypes.c_size_t(0))


def _stream() -> Handle:
    """Return this thread's stream."""
    if not hasattr(_own, "stream"):
        _own.stream = Handle("stream", "create", engine(), ctypes.c_uint(_IN_ORDER))
    return _own.stream


def numbers(values: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """Return sizes, strides or paddings as oneDNN takes them."""
    return _Dims(*values)


def any_order(shape: Sequence[int]) -> Handle:
    """Describe a float32 array in the order that the primitive likes best."""
    return Handle("memory_desc", "create_with_tag", len(shape), numbers(shape), _F32, _ANY)


def c_order(shape: Sequence[int]) -> Handle:
    """Describe a float32 array in C order."""
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return Handle("memory_desc", "create_with_strides", len(shape), numbers(shape), _F32, numbers(strides))


def aligned(work: HostArray) -> int:
    """Return the first address in `work` that is a multiple of ALIGNMENT."""
    return -(-work.ctypes.data // ALIGNMENT) * ALIGNMENT


def attributes(relu: bool = False) -> Handle:
    """Return attributes: scratch memory is given by the caller; with `relu` negative results become 0."""
    made = Handle("primitive_attr", "create")
    check(load().dnnl_primitive_attr_set_scratchpad_mode(made, _USER_SCRATCHPAD), "scratchpad mode")
    if relu:
        after = Handle("post_ops", "create")
        zero = ctypes.c_float(0)
        check(load().dnnl_post_ops_append_eltwise(after, _RELU, zero, zero), "ReLU behind a primitive")
        check(load().dnnl_primitive_attr_set_post_ops(made, after), "operations behind a primitive")
    return made


def implementation(description: Handle) -> str:
    """Return the name of the code that runs a described primitive, such as "jit:avx512_core"."""
    name = ctypes.c_char_p()
    check(load().dnnl_primitive_desc_query(description, _IMPLEMENTATION, 0, ctypes.byref(name)), "query")
    return name.value.decode()


class Call:
    """Run a primitive on arguments in C order.

    `arguments` lists (oneDNN's number of it, its shape, whether it is written), in the order in which `run` takes
    addresses. `nbytes` of workspace hold reordered arguments and the primitive's own scratch. Code is generated at the
    first run. Only one thread may use it at a time.
    """

    def __init__(self, description: Handle, arguments: Sequence[tuple[int, Sequence[int], bool]]) -> None:
        self._description, self._arguments, self._ready = description, arguments, None
        self._plain = [c_order(shape) for _, shape, _ in arguments]
        self._inner = [self._wanted(index) for index, _, _ in arguments]
        same = [load().dnnl_memory_desc_equal(a, b) for a, b in zip(self._plain, self._inner, strict=True)]
        self._offsets, self.nbytes = [], 0
        for inner, equal in zip(self._inner, same, strict=True):
            self._offsets.append(None if equal else self._room(inner))
        self._scratch = ctypes.c_void_p(load().dnnl_primitive_desc_query_md(description, _SCRATCHPAD_MD, 0))
        self._scratch_offset = self._room(self._scratch)

    def _wanted(self, index: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(load().dnnl_primitive_desc_query_md(self._description, _ARGUMENT_MD, index))

    def _room(self, memory_description: ctypes.c_void_p) -> int:
        """Reserve room for a memory description in the workspace; return its offset in bytes."""
        begin, size = self.nbytes, load().dnnl_memory_desc_get_size(memory_description)
        self.nbytes += -(-size // ALIGNMENT) * ALIGNMENT
        return begin

    def _prepare(self) -> tuple[list[tuple[int, Handle, Handle]], Handle, list[_Step]]:
        primitive = Handle("primitive", "create", self._description)
        memories, before, after = [], [], []
        for (index, _, written), plain, inner, offset in zip(
            self._arguments, self._plain, self._inner, self._offsets, strict=True
        ):
            outside = Handle("memory", "create", plain, engine(), _NOWHERE)
            inside = outside if offset is None else Handle("memory", "create", inner, engine(), _NOWHERE)
            memories.append((index, outside, inside))
            if offset is not None:
                ends = ((inner, inside), (plain, outside)) if written else ((plain, outside), (inner, inside))
                (after if written else before).append(_reorder(*ends))
        scratch = Handle("memory", "create", self._scratch, engine(), _NOWHERE)
        main = _Step(primitive, [(index, inside) for index, _, inside in memories] + [(_SCRATCHPAD, scratch)])
        return memories, scratch, [*before, main, *after]

    def run(self, workspace: int, *addresses: int) -> None:
        """Run on arrays at these addresses, with `nbytes` bytes at address `workspace`, a multiple of ALIGNMENT."""
        if self._ready is None:
            self._ready = self._prepare()
        memories, scratch, steps = self._ready
        put = load().dnnl_memory_set_data_handle
        for (_, outside, inside), offset, address in zip(memories, self._offsets, addresses, strict=True):
            put(outside, ctypes.c_void_p(address))
            if offset is not None:
                put(inside, ctypes.c_void_p(workspace + offset))
        put(scratch, ctypes.c_void_p(workspace + self._scratch_offset))
        for step in steps:
            step.run()


class _Step:
    """Hold a primitive and its memory objects."""

    def __init__(self, primitive: Handle, arguments: list[tuple[int, Handle]]) -> None:
        self._primitive, self._held = primitive, arguments
        pairs = [(index, memory._as_parameter_.value) for index, memory in arguments]
        self._arguments = (_Argument * len(pairs))(*pairs)

    def run(self) -> None:
        """Run the primitive on this thread's stream."""
        status = load().dnnl_primitive_execute(self._primitive, _stream(), len(self._arguments), self._arguments)
        check(status, "a primitive")


def _reorder(source: tuple[Any, Handle], target: tuple[Any, Handle]) -> _Step:
    description = Handle("reorder_primitive_desc", "create", source[0], engine(), target[0], engine(), None)
    return _Step(Handle("primitive", "create", description), [(_FROM, source[1]), (_TO, target[1])])
