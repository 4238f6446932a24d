"""From a prototxt file or a message to a filtered NetParameter with Split layers and line numbers. No arrays."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import CaffeError
from ...formats.prototxt.parser import Lines, read_net
from ...formats.prototxt.unsupported import refuse_unsupported
from ...formats.prototxt.upgrade import upgrade_net
from ...layers.registry import missing_type
from ...proto.caffe_pb2 import NetParameter, NetState, Phase
from .filter import filter_net
from .splits import insert_splits


@dataclass(frozen=True)
class NetSource:
    """Hold a NetParameter, filtered and with Split layers, and where its layers come from.

    Args:
        lines: prototxt line of each layer, None if unknown.
        file: path as given.
    """

    message: NetParameter
    lines: list[int | None]
    file: str | None


def load_source(
    source: str | os.PathLike[str] | NetParameter,
    *,
    phase: int | None = None,
    level: int = 0,
    stages: Sequence[str] = (),
    lines: Lines | None = None,
    file: str | None = None,
) -> NetSource:
    """Read a net, upgrade it from old formats, filter its layers and insert Split layers.

    Args:
        phase: if given, it and `level` replace those of the net's state, and `stages` are added to it.
        lines, file: where the layers of a message come from.
    Raises:
        PrototxtError, UnknownLayerError, GraphError: with file and line; all that is missing in one.
    """
    if isinstance(source, NetParameter):
        message = upgrade_net(source).message
        lines = lines or Lines()
    else:
        file = os.fspath(source)
        parsed = read_net(file, judge=False)
        message, lines = parsed.message, parsed.lines
    net = copy.deepcopy(message)
    if phase is not None:
        net.state.MergeFrom(NetState(phase=Phase.Name(phase), level=level, stage=stages))
    try:
        kept, origins = filter_net(net, lines.layer)
        refuse_unsupported(kept, file, lambda k: lines.layer(origins[k]), missing_type)
        split, origins = insert_splits(kept, origins, lines.layer)
    except CaffeError as error:
        error.at(file=file)
        raise
    return NetSource(split, [lines.layer(i) for i in origins], file)
