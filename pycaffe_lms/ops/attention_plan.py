"""How an attention is computed, and the workspace that it takes. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import AnyArray
from .records import AttentionShape

BACKWARD_BYTES = 320 << 20  # of workspace of a fused backward, unless a single item takes more
_TILE = 64  # queries and keys, of which cuDNN's workspace has whole ones


class AttentionPlan(NamedTuple):
    """Describe how an attention is computed.

    forward_bytes, backward_bytes: of workspace. fused: an object of `cuda/cudnn/attention.py`, which computes all at
    once; None: a block of queries at a time, whose scores are held in workspace.
    """

    shape: AttentionShape
    forward_bytes: int
    backward_bytes: int
    fused: Any = None


def in_blocks(shape: AttentionShape, dtype: DTypeLike) -> AttentionPlan:
    """Return the plan that works on a block of queries at a time; `dtype`: of the net, in which scores are held."""
    scores = shape.heads * shape.rows * shape.keys * np.dtype(dtype).itemsize
    return AttentionPlan(shape, scores, 2 * scores)


def items_at_once(shape: AttentionShape, nbytes: int) -> int:
    """Return for how many items a fused backward runs at a time, a divisor of all.

    It is the largest whose workspace is at most BACKWARD_BYTES, or else the smallest. The logarithms of each part begin
    at a multiple of 16 bytes, as cuDNN wants it. nbytes: of workspace for all items."""
    items, rows = max(1, shape.items), shape.heads * shape.queries
    most = max(1, BACKWARD_BYTES * items // max(1, nbytes))
    parts = [part for part in range(1, items + 1) if items % part == 0 and (part == items or part * rows % 4 == 0)]
    return max((part for part in parts if part <= most), default=parts[0])


def fused_backward_bytes(shape: AttentionShape) -> int:
    """Return the bytes of workspace that cuDNN's deterministic backward takes on a GPU, for a plan without one.

    It holds the gradients of all weights in bfloat16, and a float32 of each query and head; besides there is room for a
    gradient that nobody wants. Source: NVIDIA/cudnn-frontend, scaled_dot_product_flash_attention.h; measured with
    cuDNN 9.19."""
    queries, keys = (-(-n // _TILE) * _TILE for n in (shape.queries, shape.keys))
    each = shape.heads * (2 * queries * keys + 4 * queries)
    unwanted = 2 * shape.dim * max(shape.heads * shape.queries, shape.kv_heads * shape.keys)
    return items_at_once(shape, shape.items * each) * (each + unwanted)


def block_rooms(plan: AttentionPlan, work: AnyArray | None, dtype: DTypeLike) -> tuple[AnyArray, AnyArray]:
    """Return the room for a block's scores, and that for their gradients (empty in a forward), of `dtype`."""
    if work is None:  # no query or no key
        none: AnyArray = np.empty(0, dtype)
        return none, none
    scores, slopes = work[: plan.forward_bytes], work[plan.forward_bytes : plan.backward_bytes]
    return scores.view(dtype), slopes.view(dtype)
