"""Fill parameters with first values, by Caffe's seven fillers and three of forks.

Covers: constant, uniform, gaussian (sparse too), positive_unitball, xavier, msra, bilinear, bilinear_3D, gabor,
diagonal, and their checks.
See also: `random.py`, the generator. The net sets the order in which parameters are filled. DummyData draws on the
device what is random, with the same bounds and deviations: `layers/data/input.py`.
Source: BVLC/caffe, include/caffe/filler.hpp; tbuikr/3D_DenseSeg, README.md (bilinear_3D); intel/caffe,
include/caffe/gabor.hpp (the numbers of Gabor filters); lmb-freiburg/flownet2, include/caffe/filler.hpp (diagonal).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from .arrays import HostArray
from .errors import LayerParamError
from .proto.caffe_pb2 import FillerParameter
from .random import CaffeRandom

Shape = tuple[int, ...]
GABOR_SETS = ((32, 5), (64, 7), (64, 3), (96, 11))  # (number of filters, size)


def fill(filler_param: FillerParameter, shape: Shape, dtype: DTypeLike, rng: CaffeRandom) -> np.ndarray:
    """Return a new array of `shape` with the values that a FillerParameter describes.

    Values are computed in float32, as in Caffe's nets, whatever `dtype` is.
    Raises: LayerParamError without a place, which the caller adds with `.at`.
    """
    check(filler_param, shape)
    values = FILLERS[filler_param.type](filler_param, tuple(shape), rng)
    if values.shape == tuple(shape) and values.dtype == dtype:
        return values
    array = np.empty(shape, dtype)
    array[...] = values
    return array


def fill_into(filler_param: FillerParameter, array: HostArray, rng: CaffeRandom) -> None:
    """Write what `fill` returns for an array's shape and type into it, without a copy of a large constant."""
    check(filler_param, array.shape)
    array[...] = FILLERS[filler_param.type](filler_param, array.shape, rng)


def check(filler_param: FillerParameter, shape: Shape) -> None:
    """Raise LayerParamError unless `fill` can give values of this shape."""
    kind = filler_param.type
    if kind not in FILLERS:
        near = difflib.get_close_matches(kind.lower(), FILLERS, n=1)
        hint = f'; did you mean "{near[0]}"?' if near else ""
        raise LayerParamError(f'no filler type "{kind}"{hint}', fix="write one of: " + ", ".join(FILLERS))
    if math.prod(shape) == 0:
        raise LayerParamError(
            f"a {kind} filler has nothing to fill: the shape is {shape}", fix="give every axis a size above 0"
        )
    if filler_param.sparse != -1:
        _check_sparse(filler_param, shape)
    if kind in ("positive_unitball", "xavier", "msra") and not shape:
        raise LayerParamError(
            f"a {kind} filler needs at least one axis", fix="use a constant, uniform or gaussian filler"
        )
    if kind == "uniform":
        low, high = filler_param.min, filler_param.max
        if not (low <= high and high - low < float(np.finfo(np.float32).max)):
            raise LayerParamError(f"a uniform filler cannot draw between {low:g} and {high:g}", fix="set min <= max")
    if kind == "gaussian" and not 0 < filler_param.std < math.inf:
        raise LayerParamError(
            f"a gaussian filler needs std > 0, not {filler_param.std:g}", fix="use a constant filler for equal values"
        )
    if kind == "bilinear" and (len(shape) != 4 or shape[2] != shape[3]):
        raise LayerParamError(
            f"a bilinear filler needs a square kernel of 4 axes, not the shape {shape}", fix="set kernel_size alone"
        )
    if kind == "bilinear_3D" and (len(shape) != 5 or len(set(shape[2:])) != 1):
        raise LayerParamError(
            f"a bilinear_3D filler needs a cubic kernel of 5 axes, not the shape {shape}", fix="give one kernel_size"
        )
    if kind == "diagonal" and not 2 <= len(shape) <= 4:
        raise LayerParamError(
            f"a diagonal filler needs 2 to 4 axes, outputs and inputs first, not the shape {shape}",
            fix="use it for the weights of a convolution of images",
        )
    if kind == "gabor" and (
        len(shape) != 4 or (shape[0], shape[3]) not in GABOR_SETS or shape[1] != 3 or shape[2] != shape[3]
    ):
        known = ", ".join(f"({n}, 3, {size}, {size})" for n, size in GABOR_SETS)
        raise LayerParamError(f"there are no gabor filters of the shape {shape}", fix=f"use a shape of {known}")


def _check_sparse(filler_param: FillerParameter, shape: Shape) -> None:
    kind, sparse = filler_param.type, filler_param.sparse
    if kind != "gaussian":
        raise LayerParamError(f"a {kind} filler cannot be sparse", fix="drop `sparse` or use a gaussian filler")
    if sparse < -1 or not shape or sparse > shape[0]:
        raise LayerParamError(
            f"sparse {sparse} is not between 0 and the first axis of the shape {shape}",
            fix="set sparse to the number of inputs that each output keeps, or drop it",
        )


def fan(filler_param: FillerParameter, shape: Shape) -> np.float32:
    """Return the n of xavier and msra; it depends on the shape alone, not on what the axes mean to the layer."""
    size = math.prod(shape)
    fan_in = size // shape[0]
    fan_out = size // shape[1] if len(shape) > 1 else size
    norm = filler_param.variance_norm
    if norm == FillerParameter.AVERAGE:
        return np.float32((fan_in + fan_out) / 2)
    return np.float32(fan_out if norm == FillerParameter.FAN_OUT else fan_in)


def xavier_bound(filler_param: FillerParameter, shape: Shape) -> float:
    """Return the b of xavier, which draws uniformly between -b and b."""
    return float(np.sqrt(np.float32(3) / fan(filler_param, shape)))


def msra_std(filler_param: FillerParameter, shape: Shape) -> float:
    """Return the standard deviation of msra, which draws normally around 0."""
    return float(np.sqrt(np.float32(2) / fan(filler_param, shape)))


def sparse_share(filler_param: FillerParameter, shape: Shape) -> float:
    """Return the probability with which a gaussian filler keeps an element; the others are 0."""
    return float(np.float32(filler_param.sparse) / np.float32(shape[0])) if filler_param.sparse >= 0 else 1.0


def _constant(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    return np.array(filler_param.value, np.float32)


def _uniform(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    return rng.uniform(math.prod(shape), filler_param.min, filler_param.max).reshape(shape)


def _gaussian(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    values = rng.gaussian(math.prod(shape), filler_param.mean, filler_param.std)
    if filler_param.sparse >= 0:
        values *= rng.bernoulli(values.size, sparse_share(filler_param, shape))
    return values.reshape(shape)


def _positive_unitball(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    rows = rng.uniform(math.prod(shape), 0, 1).reshape(shape[0], -1)
    rows /= rows.sum(axis=1, keepdims=True)
    return rows.reshape(shape)


def _xavier(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    bound = xavier_bound(filler_param, shape)
    return rng.uniform(math.prod(shape), -bound, bound).reshape(shape)


def _msra(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    return rng.gaussian(math.prod(shape), 0.0, msra_std(filler_param, shape)).reshape(shape)


def _ramp(width: int, half: int, centre: float) -> np.ndarray:
    """Return the weights of one axis: 1 - |x / half - centre|."""
    return np.asarray(1 - np.abs(np.arange(width, dtype=np.float32) / np.float32(half) - np.float32(centre)))


def _bilinear(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    width, half = shape[3], math.ceil(shape[3] / 2)
    ramp = _ramp(width, half, (width - 1) / (2 * half))
    return np.asarray(ramp[:, None] * ramp[None, :])


def _bilinear_3d(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    width, half = shape[4], math.ceil(shape[4] / 2)
    ramp = _ramp(width, half, (2 * half - 1 - half % 2) / (2 * half))  # for some widths not that of bilinear
    return np.asarray(ramp[:, None, None] * ramp[:, None] * ramp)


def _diagonal(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    values, area = np.zeros(shape, np.float32), np.float32(math.prod(shape[2:]))
    for i in range(min(shape[:2])):
        given = filler_param.diag_val[i] if i < len(filler_param.diag_val) else 1
        values[i, i] = np.float32(given) / area
    return values


def _gabor(filler_param: FillerParameter, shape: Shape, rng: CaffeRandom) -> np.ndarray:
    return gabor_filters(shape[0], shape[3]).astype(np.float32)


FILLERS: dict[str, Callable[[FillerParameter, Shape, CaffeRandom], np.ndarray]] = {
    "constant": _constant,
    "uniform": _uniform,
    "gaussian": _gaussian,
    "positive_unitball": _positive_unitball,
    "xavier": _xavier,
    "msra": _msra,
    "bilinear": _bilinear,
    "bilinear_3D": _bilinear_3d,
    "gabor": _gabor,
    "diagonal": _diagonal,
}


# -- Gabor filters: waves under a bell, as a net's first convolution learns them -----------------------------------
@dataclass
class _Wave:
    """Describe a filter: height of the wave, width of the bell, frequency, shift, turn; factors of the colours.

    Coordinates run from -1 to 1 over a filter."""

    height: float = 1.0
    width: float = 0.6
    frequency: float = math.pi
    shift: float = 0.0
    turn: float = 0.0
    colours: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def values(self, size: int) -> np.ndarray:
        """Return the filter, (3, size, size)."""
        at = 2.0 * np.arange(size) / (size - 1) - 1
        x, y = at[None, :], at[:, None]
        bell = np.exp(-(x * x + y * y) / (2 * self.width * self.width))
        wave = np.cos((x * np.cos(self.turn) - y * np.sin(self.turn)) * self.frequency + self.shift)
        return np.asarray(np.array(self.colours)[:, None, None] * (self.height * bell * wave))


def gabor_filters(number: int, size: int) -> np.ndarray:
    """Return the filters of one of GABOR_SETS, (number, 3, size, size)."""
    make = {(32, 5): _cifar, (64, 7): _googlenet, (64, 3): _vgg, (96, 11): _alexnet}[number, size]
    return np.stack([make(k, _rate(size)).values(size) for k in range(number)])


def _rate(size: int) -> Callable[[float], float]:
    """Return the frequency of a wave that is so many times as long as the shortest one that a filter can show."""
    return lambda times: math.pi * (size - 1) / 2 / times


def _cifar(k: int, rate: Callable[[float], float]) -> _Wave:
    if k < 8:
        return _Wave(0.5, 0.6, rate(1), 0, k * math.pi / 8)
    if k < 14:
        return _Wave(0.5, 0.6, rate(2), 0, (k - 2) % 6 * math.pi / 6 + math.pi / 12)
    if k < 16:
        return _Wave(0.5, 0.75, rate(8), k % 2 * math.pi, 0, (1, -1, 1))
    wave = _Wave(0.5, 0.6, rate(4), math.pi / 2, k % 4 * math.pi / 2 + 3 * math.pi / 8)
    if k >= 30:
        wave.turn, wave.colours = k % 2 * math.pi / 2 + 3 * math.pi / 8, (1, 1, 0)
    elif k >= 28:
        wave.turn, wave.colours = k % 2 * math.pi / 2 + math.pi / 8, (-1, 1, -1)
    elif k >= 24:
        wave.colours = (-1, 1, 1)
    elif k >= 20:
        wave.colours = (1, 0, -1)
    return wave


def _googlenet(k: int, rate: Callable[[float], float]) -> _Wave:
    eighth, step = k % 8, (k - 1) % 3
    if k < 32:
        shift = k % 2 * math.pi + 3 * math.pi / 8
        return _Wave(1 / (1 + eighth / 8), 0.4 + eighth / 40, rate(1 + eighth / 2), shift, k // 8 * math.pi / 4)
    if k < 40:
        return _Wave(0.5, 0.45, rate(1), math.pi, eighth * math.pi / 8)
    if k < 46:
        return _Wave(1 / (1 + step / 2), 1 / (2.5 - step / 2), math.pi / 4, (k - 1) // 3 * math.pi, 0, (0.25, -1, 1))
    if k < 48:
        return _Wave(2 / 3, 1, rate(12), math.pi / 2, eighth * math.pi + math.pi / 8, (1, 0.1, -0.5))
    if k < 56:
        return _Wave(2 / 3, 1, rate(12), math.pi / 2, eighth * math.pi / 4 + math.pi / 32, (-0.5, 0.1, 1))
    colours, height = ((0.25, -1, 1), 1.0) if k < 60 else ((-1, -1, 1), 2 / 3)
    return _Wave(height, 1, rate(12), math.pi / 2, eighth * math.pi / 2 + math.pi / 8, colours)


def _vgg(k: int, rate: Callable[[float], float]) -> _Wave:
    wave = _googlenet(k, rate)
    wave.width = 1.0
    return wave


def _alexnet(k: int, rate: Callable[[float], float]) -> _Wave:
    eighth, step = k % 8, k % 4
    slow = eighth * math.pi / 4 + math.pi / 32
    if k < 48:
        shift = k % 2 * math.pi + 3 * math.pi / 8
        return _Wave(1 / (3 + 3 * eighth / 8), 0.5 + eighth / 40, rate(1 + eighth / 2), shift, k // 8 * math.pi / 6)
    if k < 56:
        return _Wave(1 / (3 + 3 * step / 2), 1 / (2.5 - step / 2), math.pi / 4, k // 4 * math.pi, 0, (0.25, -1, 1))
    if k < 60:
        return _Wave(1 / 4.5, 0.75, rate(8), math.pi / 2, step * math.pi / 2 + math.pi / 8, (-1, 1, -0.5))
    if k < 64:
        return _Wave(1 / 9, 2, rate(8), math.pi / 2, step * math.pi / 2 + math.pi / 8, (1, -0.5, -0.75))
    if k < 72:
        return _Wave(1 / 4.5, 0.75, rate(4), math.pi / 2, slow, (1, 0.1, -0.75))
    if k < 80:
        return _Wave(1 / 4.5, 1, rate(12), math.pi / 2, slow, (-0.5, 0.1, 1))
    if k < 88:
        return _Wave(1 / 7.5, 1, rate(8), math.pi / 2, slow, (-1, -1, 1))
    if k < 92:
        return _Wave(1 / 3, 0.6, rate(16), math.pi / 2, step * math.pi / 2 + math.pi / 16)
    return _Wave(1 / 12, 0.75, rate(4), math.pi / 2, slow, (-1, -1, 1))
