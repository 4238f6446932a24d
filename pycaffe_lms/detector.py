"""Offers `caffe.Detector`, a net that scores windows of pictures as R-CNN does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .classifier import input_transformer
from .errors import ArrayError, UsageError
from .io import load_image, resize_image
from .net import weights
from .pycaffe.classes import TEST, Net

Window = Sequence[int]
"""ymin, xmin, ymax, xmax in pixels."""


class Detector(Net):
    """Build a deploy net in TEST phase whose first input takes windows of pictures, warped to its size.

    `transformer`, `crop_dims` (the input's height, width, channels), `context_pad` and `crop_mean` may be read.

    Args:
        context_pad: pixels on each side of the input that show what surrounds the window; 0 or None: the window fills
            the input.
        mean, input_scale, raw_scale, channel_swap: see Transformer; call configure_crop where they change later.

    Raises:
        WeightsError: the file of weights has nothing for the net; and what Net and Transformer raise.

    Source of the behaviour: BVLC/caffe, python/caffe/detector.py.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
        **options: Any,
    ) -> None:
        if pretrained_file is None:
            raise UsageError("a Detector needs weights", fix="give a .caffemodel; without one, use caffe.Net")
        super().__init__(model_file, TEST, **options)
        weights.copy_from(self, pretrained_file, must_match=True)
        self.transformer = input_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def detect_windows(
        self, images_windows: Iterable[tuple[str | os.PathLike[str], Sequence[Window]]]
    ) -> list[dict[str, Any]]:
        """Score windows: [(picture file, windows)] -> [{"window", "prediction", "filename"}], in that order.

        windows: rows of ymin, xmin, ymax, xmax in pixels.
        Raises DataError for a file that is not a picture, ArrayError for a window outside of its picture.
        """
        places, inputs = [], []
        source = self.inputs[0]
        for pair in images_windows:
            if isinstance(pair, (str, os.PathLike)) or len(pair) != 2:
                raise UsageError(
                    f"{pair!r} is not a file with windows", fix="give [(file, [(ymin, xmin, ymax, xmax)])]"
                )
            filename, windows = pair
            image = load_image(filename)
            for window in windows:
                try:
                    inputs.append(self.transformer.preprocess(source, self.crop(image, window)))
                except ArrayError as error:
                    raise error.at(file=os.fspath(filename)) from None
                places.append((filename, window))
        if not inputs:
            return []
        predictions = self.forward_all(**{source: np.stack(inputs)})[self.outputs[0]]
        return [
            {"window": window, "prediction": prediction, "filename": filename}
            for (filename, window), prediction in zip(places, predictions, strict=True)
        ]

    def detect_selective_search(self, image_fnames: Iterable[str | os.PathLike[str]]) -> list[dict[str, Any]]:
        """Raise UsageError: these windows come from a MATLAB program that is not part of Caffe."""
        raise UsageError(
            "selective search runs in MATLAB, through a script that this package does not have",
            fix="compute windows with any proposal method and call detect_windows([(file, windows), ...])",
        )

    def crop(self, im: np.ndarray, window: Window) -> np.ndarray:
        """Return the part of a picture (H, W, K) in `window`; with context_pad, scaled to the input's size: (h, w, K).

        With context_pad the window fills the input but for so many pixels on each side, which show its surroundings;
        pixels outside of the picture get the mean. Raises ArrayError for a window without a pixel of the picture.
        """
        if np.shape(window) != (4,):
            raise ArrayError(f"{window!r} is not a window", fix="windows are ymin, xmin, ymax, xmax")
        ymin, xmin, ymax, xmax = (int(v) for v in window)
        if not self.context_pad:
            crop = im[max(ymin, 0) : max(ymax, 0), max(xmin, 0) : max(xmax, 0)]
            if not crop.size:
                raise _outside(window, im)
            return crop
        y = _padded(ymin, ymax, im.shape[0], self.crop_dims[0], self.context_pad)
        x = _padded(xmin, xmax, im.shape[1], self.crop_dims[1], self.context_pad)
        part = im[y[0], x[0]]
        if not part.size or not y[2] > 0 or not x[2] > 0:
            raise _outside(window, im)
        crop = np.ones(self.crop_dims, np.float32) * self.crop_mean
        crop[y[1] : y[1] + y[2], x[1] : x[1] + x[2]] = resize_image(part, (y[2], x[2]))
        return crop

    def configure_crop(self, context_pad: int | None) -> None:
        """Set context_pad, and compute the mean of unprocessed pictures, which fills pixels outside of a picture.

        Raises UsageError for a context_pad that leaves nothing of the input.
        """
        source = self.inputs[0]
        transformer = self.transformer
        order = np.argsort(transformer.transpose[source])  # the input's axes -> the picture's
        self.crop_dims = np.array(self.blobs[source].shape[1:])[order]
        if context_pad and not 0 < 2 * context_pad < min(self.crop_dims[:2]):
            raise UsageError(
                f"context_pad {context_pad} leaves nothing of an input of {tuple(self.crop_dims[:2].tolist())}",
                fix="give less than half of the input's size",
            )
        self.context_pad = context_pad
        self.crop_mean = np.zeros(self.crop_dims, np.float32)
        mean = transformer.mean.get(source)
        if context_pad and mean is not None:
            mean = np.array(mean, np.float32).transpose(order)
            if source in transformer.channel_swap:
                mean = mean[:, :, np.argsort(transformer.channel_swap[source])]
            self.crop_mean = mean / transformer.raw_scale.get(source, 1)


def _padded(low: int, high: int, length: int, size: int, pad: int) -> tuple[slice, int, int]:
    """Return, along one axis, the part of the picture to take, where it begins in the crop, and its length there.

    The window low..high of a picture of `length` pixels is enlarged about its centre by size / (size - 2 pad).
    """
    half = (high - low + 1) / 2
    reach = half * (size / (size - 2 * pad))
    start, stop = np.round(low + half - reach), np.round(low + half + reach)
    scale = size / (stop - start + 1)
    begins = round(max(0.0, -start) * scale)
    start, stop = np.clip((start, stop), 0, length)
    taken = min(round((stop - start + 1) * scale), size - begins)
    return slice(int(start), int(stop)), begins, taken


def _outside(window: Window, im: np.ndarray) -> ArrayError:
    return ArrayError(
        f"window {tuple(int(v) for v in window)} holds no pixel of a picture of {im.shape[0]} x {im.shape[1]}",
        fix="windows are ymin, xmin, ymax, xmax",
    )
