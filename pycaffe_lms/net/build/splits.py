"""Insertion of Split layers where a blob is used more than once. Pure, message to message, idempotent.

Source: BVLC/caffe, src/caffe/util/insert_splits.cpp (names and order). One difference: where a top's loss weight moves
to its Split, the weights of the layer's other tops stay; Caffe clears them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

from ...errors import GraphError
from ...formats.types import SPLIT
from ...proto.caffe_pb2 import NetParameter

_MAX_NAMED = 100  # blobs that an error names, at most


def split_layer_name(blob: str, layer: str, index: int) -> str:
    """Return the name of the Split after top `index` of a layer."""
    return f"{blob}_{layer}_{index}_split"


def split_blob_name(blob: str, layer: str, index: int, k: int) -> str:
    """Return the name of top k of that Split."""
    return f"{split_layer_name(blob, layer, index)}_{k}"


def insert_splits(
    net: NetParameter, origins: list[int], line: Callable[[int], int | None] = lambda i: None
) -> tuple[NetParameter, list[int]]:
    """Return a copy of a NetParameter with Split layers inserted after the producers, and the origins of its layers.

    Args:
        origins: index in the prototxt of each layer; a Split has that of its producer.
        line: maps an origin to its prototxt line, for errors.
    Raises:
        GraphError: a bottom is made by no earlier layer.
    """
    producer: dict[str, tuple[int, int]] = {}  # blob -> (layer, top) that last made it
    uses: dict[tuple[int, int], int] = {}
    source_of: dict[tuple[int, int], tuple[int, int]] = {}  # (layer, bottom) -> (layer, top)
    for i, layer in enumerate(net.layer):
        for j, blob in enumerate(layer.bottom):
            if blob not in producer:
                known = ", ".join([*producer][-_MAX_NAMED:]) or "none yet"
                known += f" and {len(producer) - _MAX_NAMED} before" if len(producer) > _MAX_NAMED else ""
                raise GraphError(
                    f"Unknown bottom blob '{blob}' (layer '{layer.name}', bottom index {j}): no earlier layer makes it",
                    fix=f"name a top of an earlier layer (known so far: {known})",
                ).at(line=line(origins[i]), layer=layer.name, type=layer.type, blob=blob)
            source_of[i, j] = producer[blob]
            uses[producer[blob]] = uses.get(producer[blob], 0) + 1
        for j, blob in enumerate(layer.top):
            producer[blob] = (i, j)
        made = {producer[blob] for blob in layer.top}
        for j, weight in enumerate(layer.loss_weight[: len(layer.top)]):
            if weight and (i, j) in made:
                uses[i, j] = uses.get((i, j), 0) + 1
    result = copy.deepcopy(net)
    del result.layer[:]
    new_origins: list[int] = []
    next_k: dict[tuple[int, int], int] = {}
    for i, layer in enumerate(net.layer):
        new = result.layer.add()
        new.CopyFrom(layer)
        new_origins.append(origins[i])
        for j in range(len(layer.bottom)):
            source = source_of[i, j]
            if uses[source] > 1:
                k = next_k.get(source, 0)
                next_k[source] = k + 1
                maker = net.layer[source[0]]
                new.bottom[j] = split_blob_name(layer.bottom[j], maker.name, source[1], k)
        for j, blob in enumerate(layer.top):
            count = uses.get((i, j), 0)
            if count < 2:
                continue
            weight = layer.loss_weight[j] if j < len(layer.loss_weight) else 0.0
            split = result.layer.add()
            new_origins.append(origins[i])
            split.name = split_layer_name(blob, layer.name, j)
            split.type = SPLIT
            split.bottom.append(blob)
            split.top.extend(split_blob_name(blob, layer.name, j, k) for k in range(count))
            if weight:
                split.loss_weight.extend([weight] + [0.0] * (count - 1))
                next_k[i, j] = 1  # the first top carries the loss
                new.loss_weight[j] = 0.0  # not removed: without a list a loss has weight 1
    return result, new_origins
