"""Losses and overlaps of the layers that train detectors of boxes: MS-CNN's and Cascade R-CNN's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....arrays import HostArray
from ....errors import DataError
from ....proto.caffe_pb2 import BBoxRegParameter, LossParameter
from ...base import Declaration, Layer, Reads, Runs, between, exactly
from ...mixins import RandomLayer

LABEL = 6  # numbers of a label
_TINY = float(np.finfo(np.float32).tiny)
_LEAST_SIDE = 2  # of an object


class Score(Layer):
    """A layer whose tops are scores, on the host, and pass no gradient on."""

    declares = Declaration(
        runs_on=Runs.HOST, no_backward=None, backward_reads=Reads.NONE, tops=between(1, 2), bottoms=exactly(2)
    )


class BoxGrid(NamedTuple):
    """Describe the boxes of a detector: their sizes, pixels from one to the next, and how far they move.

    size: width and height, (2, 1, 1), or (N, 2, 1, 1) where each item of maps has boxes of its own.
    """

    size: HostArray
    stride: float
    reach: float  # in sizes; infinite: no limit
    most: float  # of logarithms of sizes

    def centres(self, maps: HostArray) -> HostArray:
        """Return the centres of the boxes of maps (N, ..., H, W), (2, H, W)."""
        number = maps.dtype.type
        rows, columns = (np.arange(n, dtype=maps.dtype) + number(0.5) for n in maps.shape[-2:])
        return np.asarray(np.stack(np.broadcast_arrays(columns, rows[:, None])) * number(self.stride))


def field_of(layer: Layer, p: Any) -> BoxGrid:
    """Return the boxes that a message describes. Raises LayerParamError."""
    for name in ("cls_num", "field_w", "field_h", "downsample_rate"):
        if not getattr(p, name):
            raise layer.error(f"{name} is 0", fix=f"write {name} in the layer's message")
    if p.coord_num != 4:
        raise layer.error(f"coord_num is {p.coord_num}", fix="delete it: there are 4")
    size = np.array([p.field_w, p.field_h], layer.dtype)
    return BoxGrid(size[:, None, None], p.downsample_rate, *limits_of(layer, p))


def limits_of(layer: Layer, p: Any) -> tuple[float, float]:
    """Return how far a message lets boxes move, in their sizes, and the logarithm of by what their sizes change.

    Raises LayerParamError.
    """
    for name in ("field_whr", "field_xyr"):
        if not getattr(p, name) > 0:
            raise layer.error(f"{name} is {getattr(p, name):g}", fix="give a number above 0")
    return 1 / p.field_xyr, float(np.log(p.field_whr))


def means_and_deviations(layer: Layer, p: BBoxRegParameter) -> tuple[HostArray, HostArray]:
    """Return bbox_mean and bbox_std of bbox_reg_param, (4) each; without both 0 and 1. Raises LayerParamError."""
    given = bool(p.bbox_mean) and bool(p.bbox_std)
    mean = np.array(p.bbox_mean if given else (0,) * 4, layer.dtype)
    std = np.array(p.bbox_std if given else (1,) * 4, layer.dtype)
    if len(mean) != 4 or len(std) != 4 or not (std > 0).all():
        raise layer.error(
            f"bbox_reg_param has {len(mean)} bbox_mean and {len(std)} bbox_std",
            fix="give four of each, for x, y, width, height; bbox_std above 0",
        )
    return mean, std


def ignored_class(loss: LossParameter) -> int | None:
    """Return the class that does not count, None where all do."""
    return loss.ignore_label if loss.HasField("ignore_label") else None


def check_labels(layer: Layer, labels: HostArray, classes: int, bottom: int) -> None:
    """Raise DataError for the label of an object outside the classes. bottom: which one it is of."""
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        raise layer.error(
            f"bottom {bottom} has the label {wrong[0]}, outside 0..{classes - 1}",
            kind=DataError,
            fix="mend the label, raise cls_num, or name it as loss_param { ignore_label: ... }",
        )


def host_generator(layer: RandomLayer) -> np.random.Generator:
    """Return the generator of the random numbers of a forward on the host, which counts as one."""
    ((seed, draws, _),) = layer.next_key().values()
    return np.random.Generator(np.random.Philox(key=np.array([seed & (2**64 - 1), draws], np.uint64)))


def class_loss(scores: HostArray, labels: HostArray, counts: HostArray, weights: HostArray, slopes: HostArray) -> float:
    """Return the mean of -log softmax of scores (N, K, H, W), and write its slopes, of the same shape.

    labels, counts, weights: (N, H, W): the class of each position, whether it counts, and what its loss is multiplied
    by.
    """
    number = int(counts.sum())
    if not number:
        return 0.0
    chance = np.exp(scores.astype(np.float64) - scores.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    at = np.where(counts, labels, 0)[:, None]
    own = np.take_along_axis(chance, at, axis=1)[:, 0]
    loss = -(np.log(np.maximum(own, _TINY)) * weights)[counts].sum() / number
    np.put_along_axis(chance, at, own[:, None] - 1, axis=1)
    slopes[...] = chance * np.where(counts, weights / number, 0)[:, None]
    return float(loss)


def place_loss(
    moves: HostArray,
    truth: HostArray,
    objects: HostArray,
    field: BoxGrid,
    normal: tuple[HostArray, HostArray],
    slopes: HostArray,
    *,
    smooth: bool,
) -> float:
    """Return the mean loss of locations, moves (N, 4, H, W) against labels (N, 6, H, W), and write its slopes.

    objects: positions that count, (N, H, W). normal: means and deviations of moves. smooth: linear beyond 1.
    """
    number = 4 * int(objects.sum())
    if not number:
        return 0.0
    means, deviations = normal
    centres = field.centres(moves)
    wanted = np.concatenate(
        [(truth[:, 1:3] - centres) / field.size, np.log(np.maximum(truth[:, 3:5], _LEAST_SIDE) / field.size)], axis=1
    )
    wanted = (wanted - means[:, None, None]) / deviations[:, None, None]
    mean = np.repeat([means[:2].mean(), means[2:].mean()], 2)
    std = np.repeat([np.sqrt(deviations[:2].prod()), np.sqrt(deviations[2:].prod())], 2)
    limit = np.array([field.reach] * 2 + [field.most] * 2)
    low, high = (((sign * limit - mean) / std).astype(moves.dtype)[:, None, None] for sign in (-1, 1))
    d = np.where(objects[:, None], np.clip(moves, low, high) - wanted, 0).astype(np.float64)
    if smooth:
        loss = np.where(np.abs(d) < 1, d * d / 2, np.abs(d) - 0.5).sum()
        d = np.clip(d, -1, 1)
    else:
        loss = (d * d).sum() / 2
    slopes[...] = d / number
    return float(loss) / number


def overlaps_of_moved(
    moves: HostArray, truth: HostArray, field: BoxGrid, normal: tuple[HostArray, HostArray], least: float = 0
) -> HostArray:
    """Return how much the boxes of a grid, moved by `moves`, overlap the objects of labels, (N, H, W).

    moves: (N, 4, H, W). truth: labels (N, 6, H, W). normal, least: as of `place_loss` and `overlaps_of_pairs`.
    """
    means, deviations = normal
    moves = moves * deviations[:, None, None] + means[:, None, None]
    centres = np.clip(moves[:, :2], -field.reach, field.reach) * field.size
    centres = centres + field.centres(moves)
    found = corners(centres, field.size * np.exp(np.clip(moves[:, 2:], -field.most, field.most)))
    return overlaps_of_pairs(found, corners(truth[:, 1:3], truth[:, 3:5]), least)


def overlaps_of_pairs(a: HostArray, b: HostArray, least: float = 0) -> HostArray:
    """Return (N, ...): the intersection of each box of a with that of b, (N, 4, ...), divided by their union.

    least: an intersection with a shorter side is none.
    """
    sides = np.minimum(a[:, 2:], b[:, 2:]) - np.maximum(a[:, :2], b[:, :2])
    sides = np.where(sides >= least, np.maximum(sides, 0), 0)
    areas = [np.maximum(boxes[:, 2:] - boxes[:, :2], 0).prod(axis=1) for boxes in (a, b)]
    common = sides.prod(axis=1)
    return np.asarray(np.divide(common, sum(areas) - common, out=np.zeros_like(common), where=common > 0))


def corners(centres: HostArray, sides: HostArray) -> HostArray:
    """Return boxes (N, 4, ...) of centres and sides (N, 2, ...)."""
    return np.concatenate([centres - sides / 2, centres + sides / 2], axis=1)


def share(values: HostArray, counts: HostArray) -> float:
    """Return the mean of the values that count; -1 where none does."""
    return float(values[counts].mean(dtype=np.float64)) if counts.any() else -1.0
