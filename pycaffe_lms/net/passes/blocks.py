"""Layers that can be cut into blocks of their outputs: each block with its rows of the parameters, for layers whose
parameters are the reason that a net does not fit. Pure.

See also: `layers/micro_batch.py` (what a block is), `unfold.py` (the graph that runs then).
"""

from __future__ import annotations

from collections import Counter

from ...proto.caffe_pb2 import LMSParameter
from ..build.graph import Graph

EVEN = 4  # outputs: blocks of a multiple of them keep rows of their tops on 16 bytes


def cuttable(graph: Graph) -> dict[int, int]:
    """Outputs of every layer that can be cut, by its index. Not one that shares a parameter with others, nor one whose
    buffers are to stay on the device (`lms_param { policy: KEEP }`)."""
    users = Counter(p.owner for p in graph.params)
    found = {}
    for node in graph.nodes:
        own = all(graph.params[p].owner == p and users[p] == 1 for p in node.params)
        if own and node.layer.splits_over_outputs > 1 and node.layer.param.lms_param.policy != LMSParameter.KEEP:
            found[node.index] = node.layer.splits_over_outputs
    return found


def output_cuts(outputs: int, blocks: int) -> list[int]:
    """Outputs at which the blocks begin, and their number. Where there are enough, blocks are of a multiple of EVEN
    outputs, but for the last; there are never more blocks than outputs."""
    step = EVEN if outputs >= EVEN * blocks else 1
    units = -(-outputs // step)
    blocks = min(blocks, units)
    return [min(outputs, step * (j * units // blocks)) for j in range(blocks)] + [outputs]
