"""Define caffe.io.Transformer: from pictures in Python to the arrays that a net's inputs take, and back.

See also: transformer.py, what data layers do to their records.
Source of the behaviour: BVLC/caffe, python/caffe/io.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...errors import ArrayError, UsageError
from .resize import as_picture, resize_image


class Transformer:
    """Turn pictures into inputs of a net: resize, transpose, swap channels, scale, subtract the mean, scale again.

    inputs: {name of an input: its shape (N, C, H, W)}, such as {"data": net.blobs["data"].data.shape}. A picture is
    (H, W, K), as `load_image` returns it. Each step but the resize is done only if its setter was called:

        t = Transformer({"data": net.blobs["data"].data.shape})
        t.set_transpose("data", (2, 0, 1))  # height, width, channels -> channels, height, width
        t.set_channel_swap("data", (2, 1, 0))  # RGB -> BGR, as most published nets expect
        t.set_raw_scale("data", 255)  # [0, 1] -> [0, 255]
        t.set_mean("data", mean)  # in the space of the steps above: BGR, [0, 255]
        net.blobs["data"].data[...] = t.preprocess("data", load_image("cat.jpg"))

    The attributes `inputs`, `transpose`, `channel_swap`, `raw_scale`, `mean` and `input_scale` are dicts by input name.
    All methods raise UsageError for a name that is not in `inputs`.
    """

    def __init__(self, inputs: Mapping[str, Sequence[int]]):
        try:
            self.inputs = {name: tuple(map(int, shape)) for name, shape in inputs.items()}
        except (AttributeError, TypeError, ValueError):
            raise UsageError(
                f"{inputs!r} does not say the inputs' shapes", fix='give {"data": net.blobs["data"].data.shape}'
            ) from None
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, np.ndarray] = {}
        self.input_scale: dict[str, float] = {}

    def preprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """Return the picture `data` (H, W, K) as float32 in the shape of input `in_`, without the batch axis.

        Order: resize to the input's (H, W) where it differs, transpose, channel swap, * raw_scale, - mean,
        * input_scale. `data` itself is never changed.
        Raises: ArrayError for a picture that cannot be resized or transposed.
        """
        self._check_input(in_)
        picture = np.array(as_picture(data), dtype=np.float32)
        dims = self.inputs[in_][2:]
        if picture.shape[:2] != dims:
            picture = resize_image(picture, dims)
        if in_ in self.transpose:
            picture = _transposed(picture, self.transpose[in_])
        if in_ in self.channel_swap:
            picture = _swapped(picture, self.channel_swap[in_], in_)
        if in_ in self.raw_scale:
            picture *= self.raw_scale[in_]
        if in_ in self.mean:
            picture -= self.mean[in_]
        if in_ in self.input_scale:
            picture *= self.input_scale[in_]
        return picture

    def deprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """Invert `preprocess` but for the resize: turn a blob's values (1, C, H, W) or (C, H, W) into a picture.

        Axes of length 1 are dropped, except where a transpose or a channel swap was set, which need all three.
        """
        self._check_input(in_)
        values = np.array(data)
        kept = 3 if in_ in self.transpose or in_ in self.channel_swap else 0
        picture = values.squeeze()
        if picture.ndim < kept <= values.ndim:
            picture = values.reshape(values.shape[-kept:])
        if in_ in self.input_scale:
            picture = picture / self.input_scale[in_]
        if in_ in self.mean:
            picture = picture + self.mean[in_]
        if in_ in self.raw_scale:
            picture = picture / self.raw_scale[in_]
        if in_ in self.channel_swap:
            picture = picture[np.argsort(self.channel_swap[in_]), :, :]
        if in_ in self.transpose:
            picture = _transposed(picture, np.argsort(self.transpose[in_]))
        return picture

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of axes, such as (2, 0, 1) for (H, W, K) -> (K, H, W).

        Raises: UsageError for another number of axes, or an axis that is missing.
        """
        self._check_input(in_)
        if len(order) != len(self.inputs[in_]) - 1:
            raise UsageError(
                "Transpose order needs to have the same number of dimensions as the input.",
                fix=f"give {len(self.inputs[in_]) - 1} axes, not {len(order)}",
            ).at(blob=in_)
        if sorted(order) != list(range(len(order))):
            raise UsageError(f"{tuple(order)} is no order of axes", fix="give each axis once, such as (2, 0, 1)").at(
                blob=in_
            )
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """Set the order of channels (axis 0, after the transpose), such as (2, 1, 0) for RGB -> BGR.

        Raises: UsageError where there are not as many entries as channels, or one is out of range.
        """
        self._check_input(in_)
        if len(order) != self.inputs[in_][1]:
            raise UsageError(
                "Channel swap needs to have the same number of dimensions as the input channels.",
                fix=f"give {self.inputs[in_][1]} channels, not {len(order)}",
            ).at(blob=in_)
        if not all(0 <= channel < len(order) for channel in order):
            raise UsageError(
                f"{tuple(order)} names channels that are not there", fix=f"give numbers from 0 to {len(order) - 1}"
            ).at(blob=in_)
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """Multiply by this before the mean is subtracted; 255 for a net and a mean for bytes."""
        self._check_input(in_)
        self.raw_scale[in_] = _factor(scale, in_)

    def set_mean(self, in_: str, mean: np.ndarray) -> None:
        """Subtract `mean`: (C), one value per channel, or (C, H, W) or (H, W), resized where its size differs.

        Raises: ArrayError (a ValueError) for another number of channels or axes.
        """
        self._check_input(in_)
        mean = np.asarray(mean)
        if mean.dtype.kind not in "biuf":
            raise ArrayError(
                f"{mean} is no mean: Mean shape invalid", fix="give an array, from a file np.load(file)"
            ).at(blob=in_)
        channels, *dims = self.inputs[in_][1:]
        if mean.ndim == 1:
            mean = mean[:, None, None]
        elif mean.ndim == 2:
            mean = mean[None]
        elif mean.ndim != 3:
            raise ArrayError(
                "Mean shape invalid", fix="give (C), (H, W) or (C, H, W): mean.mean(1).mean(1), mean[0]"
            ).at(blob=in_)
        if mean.shape[0] != channels:
            raise ArrayError(
                "Mean channels incompatible with input.", fix=f"give {channels} channels, not {mean.shape[0]}"
            ).at(blob=in_)
        if mean.shape[1:] not in ((1, 1), tuple(dims)):
            mean = resize_image(mean.transpose(1, 2, 0), dims).transpose(2, 0, 1)
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """Multiply by this after the mean was subtracted."""
        self._check_input(in_)
        self.input_scale[in_] = _factor(scale, in_)

    def _check_input(self, in_: str) -> None:
        if in_ not in self.inputs:
            raise UsageError(f"{in_} is not one of the net inputs: {self.inputs}")


def _factor(scale: float, in_: str) -> float:
    if np.asarray(scale).dtype.kind not in "iuf":
        raise UsageError(f"{scale!r} is no factor", fix="give a number, such as 255").at(blob=in_)
    return scale


def _swapped(picture: np.ndarray, order: Sequence[int], in_: str) -> np.ndarray:
    if picture.ndim != 3 or len(picture) < len(order):
        raise ArrayError(
            f"channel swap {tuple(order)} needs {len(order)} channels first, the picture has shape {picture.shape}",
            fix="read it in colour: caffe.io.load_image(file, color=True), and set_transpose first",
        ).at(blob=in_)
    return picture[np.asarray(order), :, :]


def _transposed(values: np.ndarray, order: Sequence[int] | np.ndarray) -> np.ndarray:
    if values.ndim != len(order):
        raise ArrayError(f"axes {tuple(order)} do not fit values of shape {values.shape}", fix="a picture is (H, W, K)")
    return values.transpose(order)
