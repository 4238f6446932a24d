"""Offers `caffe.Classifier`, a net that takes pictures and returns class scores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from .data.transform.preprocess import Transformer
from .errors import ArrayError, UsageError
from .io import oversample as ten_crops
from .io import resize_image
from .net import weights
from .net.net import Net as BuiltNet
from .pycaffe.classes import TEST, Net


def input_transformer(
    net: BuiltNet,
    mean: np.ndarray | None = None,
    input_scale: float | None = None,
    raw_scale: float | None = None,
    channel_swap: Sequence[int] | None = None,
) -> Transformer:
    """Return a Transformer of pictures (H, W, K) to the first input of `net`. Raises UsageError for a net without
    one, and what its setters raise."""
    if not net.inputs:
        raise UsageError(
            f"{f'{net.file}: ' if net.file else ''}the net has no input that takes pictures",
            fix="give the deploy prototxt, which begins with an Input layer in place of data layers",
        )
    name = net.inputs[0]
    transformer = Transformer({name: net.blobs[name].shape})
    transformer.set_transpose(name, (2, 0, 1))
    if mean is not None:
        transformer.set_mean(name, mean)
    if input_scale is not None:
        transformer.set_input_scale(name, input_scale)
    if raw_scale is not None:
        transformer.set_raw_scale(name, raw_scale)
    if channel_swap is not None:
        transformer.set_channel_swap(name, channel_swap)
    return transformer


class Classifier(Net):
    """Build a deploy net in TEST phase whose first input takes pictures.

    `transformer`, `image_dims` and `crop_dims`, the input's (height, width), may be read and changed.

    Args:
        image_dims: (height, width) to which pictures are resized before they are cropped to the net's input; default:
            the input's own.
        mean, input_scale, raw_scale, channel_swap: see Transformer.
        options: those of Net, such as lms and device.

    Raises:
        UsageError: image_dims are smaller than the input.
        WeightsError: the file of weights has nothing for the net; and what Net and Transformer raise.

    Source of the behaviour: BVLC/caffe, python/caffe/classifier.py.
    """

    def __init__(
        self,
        model_file: str | os.PathLike[str],
        pretrained_file: str | os.PathLike[str],
        image_dims: Sequence[int] | None = None,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        **options: Any,
    ) -> None:
        if pretrained_file is None:
            raise UsageError("a Classifier needs weights", fix="give a .caffemodel; without one, use caffe.Net")
        super().__init__(model_file, TEST, **options)
        weights.copy_from(self, pretrained_file, must_match=True)
        self.transformer = input_transformer(self, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        dims = self.crop_dims if image_dims is None else image_dims
        if np.ndim(dims) != 1:
            raise UsageError(f"image_dims {dims!r} is not a pair", fix="give (height, width)")
        self.image_dims = tuple(int(d) for d in dims)
        if len(self.image_dims) != 2 or (np.array(self.image_dims) < self.crop_dims).any():
            raise UsageError(
                f"image_dims {self.image_dims} are smaller than the net's input {tuple(self.crop_dims.tolist())}",
                fix="give a larger (height, width), or leave it out",
            )

    def predict(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """Return the scores (N, classes) of N pictures (H, W, K).

        oversample: mean over ten crops, of corners and centre and their mirror images; else of the centre crop alone.
        Raises ArrayError for what is not a picture.
        """
        if isinstance(inputs, np.ndarray) and inputs.ndim == 3:
            raise ArrayError(f"one picture of shape {inputs.shape}, not a list of them", fix="predict([picture])")
        if isinstance(inputs, (str, os.PathLike)):
            raise ArrayError(f"{inputs!r} is not a list of pictures", fix="predict([caffe.io.load_image(file)])")
        inputs = list(inputs)
        if not inputs:
            raise UsageError("there are no pictures to classify", fix="give at least one (height, width, channels)")
        pictures = np.stack([resize_image(picture, self.image_dims) for picture in inputs])
        if oversample:
            pictures = ten_crops(list(pictures), [int(d) for d in self.crop_dims])
        else:
            top, left = (np.array(self.image_dims) - self.crop_dims) // 2
            height, width = self.crop_dims
            pictures = pictures[:, top : top + height, left : left + width]
        source = self.inputs[0]
        batch = np.stack([self.transformer.preprocess(source, picture) for picture in pictures])
        scores = self.forward_all(**{source: batch})[self.outputs[0]]
        return scores.reshape(len(scores) // 10, 10, -1).mean(1) if oversample else scores
