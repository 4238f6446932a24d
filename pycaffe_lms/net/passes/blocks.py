"""Layers that can be cut into blocks of outputs, each with its rows of the parameters. Pure.

Blocks are for nets that do not fit because of one layer's parameters. `cuttable` finds the layers, `output_cuts` the
places to cut.
See also: `layers/micro_batch.py` (what a block is), `net/passes/micro_batch.py` (the graph that runs then).
"""

from __future__ import annotations

from collections import Counter

from ...proto.caffe_pb2 import LMSParameter
from ..build.graph import Graph

EVEN = 4  # outputs: blocks of a multiple of them keep rows of their tops aligned to 16 bytes


def cuttable(graph: Graph) -> dict[int, int]:
    """Return {index of a layer that can be cut: its number of outputs}. Excludes layers that share a parameter and
    those with `lms_param { policy: KEEP }`."""
    users = Counter(p.owner for p in graph.params)
    found = {}
    for node in graph.nodes:
        own = all(graph.params[p].owner == p and users[p] == 1 for p in node.params)
        if own and node.layer.splits_over_outputs > 1 and node.layer.param.lms_param.policy != LMSParameter.KEEP:
            found[node.index] = node.layer.splits_over_outputs
    return found


def output_cuts(outputs: int, blocks: int) -> list[int]:
    """Return the first output of each block, then the number of outputs.

    There are never more blocks than outputs. All but the last have a multiple of EVEN outputs if there are enough."""
    step = EVEN if outputs >= EVEN * blocks else 1
    units = -(-outputs // step)
    blocks = min(blocks, units)
    return [min(outputs, step * (j * units // blocks)) for j in range(blocks)] + [outputs]
