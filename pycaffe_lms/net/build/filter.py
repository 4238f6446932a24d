"""Include and exclude rules: which layers a net has in a given state. Pure, message to message.

Source: BVLC/caffe, src/caffe/net.cpp, FilterNet and StateMeetsRule (behaviour).
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from ...errors import GraphError
from ...proto.caffe_pb2 import NetParameter, NetState, NetStateRule


def meets_rule(state: NetState, rule: NetStateRule) -> bool:
    """Return whether a NetState meets a NetStateRule; an empty rule is always met."""
    if rule.HasField("phase") and rule.phase != state.phase:
        return False
    if rule.HasField("min_level") and state.level < rule.min_level:
        return False
    if rule.HasField("max_level") and state.level > rule.max_level:
        return False
    stages = set(state.stage)
    return stages.issuperset(rule.stage) and not stages.intersection(rule.not_stage)


def filter_net(net: NetParameter, line: Callable[[int], int | None] = lambda i: None) -> tuple[NetParameter, list[int]]:
    """Return a copy of a NetParameter with only the layers that its `state` keeps, and their indices in the original.

    Args:
        line: maps a layer's index to its prototxt line, for errors.
    Raises:
        GraphError: a layer has both include and exclude rules.
    """
    kept = copy.deepcopy(net)
    del kept.layer[:]
    origins = []
    for i, layer in enumerate(net.layer):
        if layer.include and layer.exclude:
            raise GraphError(
                "has both include and exclude rules", fix="keep one kind: include says when to have the layer"
            ).at(line=line(i), layer=layer.name, type=layer.type)
        if layer.include:
            keep = any(meets_rule(net.state, rule) for rule in layer.include)
        else:
            keep = not any(meets_rule(net.state, rule) for rule in layer.exclude)
        if keep:
            kept.layer.append(layer)
            origins.append(i)
    return kept, origins
