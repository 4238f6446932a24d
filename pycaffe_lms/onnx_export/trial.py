"""Make inputs to try a net on: random ones, of the kind that each input needs.

See also: `check.py`, which runs the net and its ONNX model on them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import HostArray
from ..formats.types import SPLIT

if TYPE_CHECKING:
    from ..net.net import Net

_Maker = Callable[["Net", Any, tuple[int, ...], np.random.Generator], HostArray]
PIXELS = 128.0  # pixels less their mean lie within this
IMAGE_SIDE = 64.0  # of regions, where the map does not tell


def random_inputs(net: Net, seed: int, spread: float | None = None) -> dict[str, HostArray]:
    """Return an array for each input of the net, in its present shape and type.

    An input that a layer reads as indices, as marks of sequences or as regions gets such numbers; all others get
    standard normal values, or with `spread` even ones from -spread to spread.
    """
    rng = np.random.default_rng(seed)
    made = {}
    for name in net.inputs:
        shape = tuple(net.blobs[name].shape)
        layer, bottom = _reader(net, net.graph.last[name])
        maker = _maker(layer, bottom) if layer is not None else None
        if maker is not None:
            values = maker(net, layer, shape, rng)
        elif spread is None:
            values = rng.standard_normal(shape)
        else:
            values = rng.uniform(-spread, spread, shape)
        made[name] = np.asarray(values, net.dtype)
    return made


def _reader(net: Net, value: int) -> tuple[Any, int]:
    """Return the first layer that reads this value as such, behind Splits, and which of its bottoms that is."""
    for node in net.graph.nodes:
        if value in node.bottoms:
            if node.layer.param.type != SPLIT:
                return node.layer, list(node.bottoms).index(value)
            for top in node.tops:
                layer, bottom = _reader(net, top)
                if layer is not None and _maker(layer, bottom) is not None:
                    return layer, bottom
    return None, 0


def _maker(layer: Any, bottom: int) -> _Maker | None:
    """Return what makes the numbers that a bottom of this layer needs; None for any."""
    counted_back = bottom - len(layer.param.bottom)
    return _SPECIAL.get((layer.param.type, bottom)) or _SPECIAL.get((layer.param.type, counted_back))


def _choice(net: Net, layer: Any, shape: tuple[int, ...], rng: np.random.Generator) -> HostArray:
    return rng.integers(0, 2, shape)


def _indices(net: Net, layer: Any, shape: tuple[int, ...], rng: np.random.Generator) -> HostArray:
    return rng.integers(0, layer.param.embed_param.input_dim, shape)


def _items(net: Net, layer: Any, shape: tuple[int, ...], rng: np.random.Generator) -> HostArray:
    return rng.integers(0, net.blobs[layer.param.bottom[0]].shape[0], shape)


def _marks(net: Net, layer: Any, shape: tuple[int, ...], rng: np.random.Generator) -> HostArray:
    """Return marks of sequences: 0 begins one. All begin at the first step, so no earlier state has a part in it."""
    marks = rng.integers(0, 2, shape)
    marks[:1] = 0
    return marks


def _regions(net: Net, layer: Any, shape: tuple[int, ...], rng: np.random.Generator) -> HostArray:
    """Return rows of (image, x1, y1, x2, y2) within the picture."""
    items, _, *size = net.blobs[layer.param.bottom[0]].shape
    height, width = (side / getattr(layer, "scale", side / IMAGE_SIDE) for side in size)
    rows = rng.uniform(0, 1, (shape[0], 5))
    xs, ys = np.sort(rows[:, 1::2] * (width - 1)), np.sort(rows[:, 2::2] * (height - 1))
    rows[:, 0], rows[:, 1::2], rows[:, 2::2] = rng.integers(0, items, shape[0]), np.floor(xs), np.floor(ys)
    return rows.reshape(shape)


def _pictures(net: Net, layer: Any, shape: tuple[int, ...], rng: np.random.Generator) -> HostArray:
    """Return rows of height, width and scale, of the picture that the map is of."""
    _, _, height, width = net.blobs[layer.param.bottom[0]].shape
    rows = np.ones((shape[0], int(np.prod(shape[1:]))))
    rows[:, 0], rows[:, 1] = (side * layer.options.feat_stride for side in (height, width))
    return rows.reshape(shape)


_SPECIAL: dict[tuple[str, int], _Maker] = {
    ("Embed", 0): _indices,
    ("BatchReindex", 1): _items,
    ("LSTM", 1): _marks,
    ("RNN", 1): _marks,
    ("ROIPooling", 1): _regions,
    ("PSROIPooling", 1): _regions,
    ("Proposal", 2): _pictures,
    ("Filter", -1): _choice,
}
