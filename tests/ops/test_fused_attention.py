"""The backward of cuDNN's fused attention: for how many items it runs at a time, in which memory, and where."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.ops import load_ops
from pycaffe_lms.ops.attention_plan import fused_backward_bytes, items_at_once
from pycaffe_lms.ops.cuda.cudnn import attention
from pycaffe_lms.ops.records import AttentionShape, QueryKeyValue

MIB = 1 << 20


def shape_of(items, queries, heads, dim, kv_heads=None, keys=None, packed=False):
    sizes = items, queries, keys or queries, heads, kv_heads or heads, dim
    return AttentionShape(*sizes, dim**-0.5, True, 0, queries, packed)


def test_items_at_once():
    """The most items whose share of the workspace is at most 320 MiB, of those that divide all."""
    cases = {(8, 1025): 2, (16, 2050): 2, (8, 319): 8, (6, 500): 3, (7, 400): 1, (4, 0): 4, (2, 2000): 1}
    assert {(n, mib): items_at_once(shape_of(n, 64, 2, 32), mib * MIB) for n, mib in cases} == cases
    assert items_at_once(shape_of(8, 3, 3, 32), 8 * 320 * MIB) == 4  # 9 logarithms of an item: 36 bytes
    assert items_at_once(shape_of(0, 64, 2, 32), MIB) == 1


def test_workspace_where_there_is_no_gpu():
    """cuDNN 9.19 took 1,074,790,912 bytes for 8 x 2048 tokens and 16 heads of 128 values, 512 of them beside any item;
    here for 2 of the 8."""
    shape, unwanted = shape_of(8, 2048, 16, 128), 2 * 2 * 2048 * 16 * 128
    assert fused_backward_bytes(shape) == 1_074_790_400 // 4 + unwanted
    assert fused_backward_bytes(shape_of(1, 100, 1, 32)) == 2 * 128 * 128 + 4 * 128 + 2 * 100 * 32  # whole tiles


class Memory:
    """An array as CuPy has it."""

    def __init__(self, array):
        self.array, self.data = array, SimpleNamespace(ptr=array.ctypes.data)


@pytest.mark.parametrize("packed, unwanted", [(False, None), (False, 0), (False, 1), (True, None)])
@pytest.mark.parametrize("part", [1, 2, 6])
def test_parts_of_a_backward(part, packed, unwanted, monkeypatch):
    """What stands in for cuDNN takes the addresses of a part; together they give the gradients of all items."""
    shape, ops = shape_of(6, 12, 4, 8, 2, None if packed else 10, packed), load_ops("cpu")
    rng, rows = np.random.default_rng(4), (shape.queries, shape.keys, shape.keys)
    widths = 4 * 8, 2 * 8, 2 * 8
    if packed:
        whole = rng.standard_normal((6, 12, sum(widths))).astype(BFLOAT16)
        given, room = np.split(whole, [32, 48], axis=2), np.zeros_like(whole)
        made = np.split(room, [32, 48], axis=2)
    else:
        given = [rng.standard_normal((6, t, w)).astype(BFLOAT16) for t, w in zip(rows, widths, strict=True)]
        made = [np.zeros_like(a) for a in given]
    if unwanted is not None:
        made[unwanted] = None
    separate = shape._replace(packed=False)
    plan, compact = ops.attention.plan(separate, np.float32, True), [np.ascontiguousarray(a) for a in given]
    y, dy = np.zeros_like(compact[0]), rng.standard_normal((6, 12, 32)).astype(BFLOAT16)
    lse, expected = np.zeros((6, 4, 12), np.float32), [np.zeros_like(a) for a in compact]
    work = np.zeros(plan.backward_bytes, np.uint8)
    ops.attention.forward(plan, QueryKeyValue(*compact), y, lse, work, None)
    ops.attention.backward(plan, QueryKeyValue(*compact), y, dy, QueryKeyValue(*expected), lse, work, None)
    calls = []

    def run(addresses, work_at, index, stream):
        calls.append(addresses)
        own = separate._replace(items=part)
        sizes = list(zip(rows, (shape.row[0], *shape.row[1:] * 2), strict=True))

        def at(name, t, row, width):
            nbytes = 2 * ((part * t - 1) * row + width)
            flat = np.frombuffer((ctypes.c_char * nbytes).from_address(addresses[name]), BFLOAT16)
            return as_strided(flat, (part, t, width), (2 * t * row, 2 * row, 2))

        q, k, v = (at(name, *size, w).copy() for name, size, w in zip((1, 2, 3), sizes, widths, strict=True))
        result, slope = (at(name, 12, 32, 32).copy() for name in (4, 6))
        logs = np.frombuffer((ctypes.c_char * (4 * part * 4 * 12)).from_address(addresses[5]), np.float32)
        gradients = QueryKeyValue(*(np.zeros_like(a) for a in (q, k, v)))
        of_part = ops.attention.plan(own, np.float32, True)
        inner = np.zeros(of_part.backward_bytes, np.uint8)
        ops.attention.backward(
            of_part, QueryKeyValue(q, k, v), result, slope, gradients, logs.reshape(part, 4, 12).copy(), inner, None
        )
        for name, size, w, gradient in zip((7, 8, 9), sizes, widths, gradients, strict=True):
            at(name, *size, w)[...] = gradient

    monkeypatch.setattr(attention, "handle", lambda device: 0)
    monkeypatch.setattr(attention, "is_rehearsal", lambda: False)
    graph = SimpleNamespace(workspace_bytes=1000, run=run, index=0)
    fused = attention.CudnnAttention(separate if not packed else shape, 0, None, graph, part)
    wide = max(rows) * 32 * 2
    assert fused.backward_bytes == 1024 + part * wide
    room_for_work = np.zeros(fused.backward_bytes + part * wide, np.uint8)
    fused.run_backward(
        QueryKeyValue(*map(Memory, given)),
        Memory(y),
        Memory(dy),
        QueryKeyValue(*(None if a is None else Memory(a) for a in made)),
        Memory(lse),
        Memory(room_for_work),
    )
    assert len(calls) == 6 // part and not room_for_work[:1000].any()
    assert not room_for_work[fused.backward_bytes :].any()
    for a, b in zip(made, expected, strict=True):
        if a is not None:
            np.testing.assert_array_equal(a, b)
            assert a.astype(np.float32).any()
