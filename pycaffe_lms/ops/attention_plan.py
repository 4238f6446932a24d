"""How an attention is computed, and the workspace that it takes. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import AnyArray
from .records import AttentionShape


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


def block_rooms(plan: AttentionPlan, work: AnyArray | None, dtype: DTypeLike) -> tuple[AnyArray, AnyArray]:
    """Return the room for a block's scores, and that for their gradients (empty in a forward), of `dtype`."""
    if work is None:  # no query or no key
        none: AnyArray = np.empty(0, dtype)
        return none, none
    scores, slopes = work[: plan.forward_bytes], work[plan.forward_bytes : plan.backward_bytes]
    return scores.view(dtype), slopes.view(dtype)
