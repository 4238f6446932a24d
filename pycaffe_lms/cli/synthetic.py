"""Let nets run on synthetic data: data layers become blobs of given shapes, whose values are made once.

`-shape BLOB=N,C,H,W` of `train` and `time`, and `benchmark`. Images are normally distributed; labels and indices are
whole numbers within the classes of the layer that reads them; pictures of AnnotatedData have no objects. Every
iteration sees the same values, so that making them takes no time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ..errors import DataError, UsageError
from ..formats.types import SPLIT
from ..layers.conv.embed import EmbedLayer
from ..net.build.graph import Graph
from ..net.net import Net
from ..proto.caffe_pb2 import NetParameter
from .views import shapes

SEED = 1


def add_shape(p: argparse.ArgumentParser) -> None:
    """Declare -shape."""
    p.add_argument(
        "--shape",
        action="append",
        default=[],
        metavar="BLOB=N,C,H,W",
        help="run on synthetic data: the data layer that makes this blob gives values of this shape, made once (labels "
        "within the classes), so that no database is needed; once per blob",
    )


class Synthetic:
    """Give synthetic data to the nets of a command.

    Args:
        given: each -shape, for the nets that have its blob.
    """

    def __init__(self, given: Sequence[str]):
        self._given, self._unused = given, set(given)
        self._made, self._tops = set[str](), set[str]()  # by data layers; by those that were replaced

    def replace(self, message: NetParameter) -> NetParameter:
        """Return the net with constants in place of the layers that make the blobs. Raises as `shapes.with_shapes`."""
        tops = {top for layer in message.layer for top in layer.top}
        self._made |= {top for layer in message.layer if not layer.bottom for top in layer.top}
        mine = [text for text in self._given if "=" not in text or text.partition("=")[0] in tops]
        if not mine:
            return message
        self._unused.difference_update(mine)
        names = {text.partition("=")[0] for text in mine}
        replaced = shapes.with_shapes(message, mine)
        for layer in replaced.layer:
            if not layer.bottom and names.intersection(layer.top):
                for top, filler in zip(layer.top, layer.dummy_data_param.data_filler, strict=True):
                    if filler.type != "constant":
                        self._tops.add(top)
                        filler.Clear()
                        filler.type = "constant"
        return replaced

    @contextmanager
    def building(self, file: str) -> Iterator[None]:
        """Within: the nets of a file are built. Raises UsageError where none has the blob of a shape."""
        try:
            yield
        except DataError as error:
            self._check(file)
            raise shapes.or_a_shape(error) from None
        self._check(file)

    def _check(self, file: str) -> None:
        if self._unused:
            fix = f"data layers make {', '.join(sorted(self._made))}"
            raise UsageError(f"-shape {min(self._unused)[:200]}: no net of {file} has that blob", fix=fix)

    def fill(self, net: Net) -> None:
        """Write the values of the net's blobs: the same for every net of the same shapes."""
        rng, classes = np.random.default_rng(SEED), _classes(net.graph)
        for name in (n for n in net.blobs if n in self._tops):
            blob = net.blobs[name]
            if name in classes:
                blob.data = rng.integers(0, classes[name], blob.shape)
            else:
                blob.data = rng.standard_normal(blob.shape, dtype=np.float32)


def _classes(graph: Graph) -> dict[str, int]:
    """Return how many classes or rows there are to choose from, by the blob that chooses; the least of its readers."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if isinstance(node.layer, EmbedLayer):
            bottom, classes = 0, node.layer.param.embed_param.input_dim
        elif node.layer.labels is not None:
            bottom, classes = node.layer.labels.bottom, node.layer.labels.classes
        else:
            continue
        value = graph.values[node.bottoms[bottom]]
        while graph.nodes[value.producer].layer.param.type == SPLIT:
            value = graph.values[graph.nodes[value.producer].bottoms[0]]
        found[value.blob] = min(classes, found.get(value.blob, classes))
    return found
