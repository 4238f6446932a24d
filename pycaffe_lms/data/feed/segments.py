"""Make batches of segments of videos that lie in folders of pictures, for the VideoData layer of temporal segment nets.

Covers: which frames a video has, colours or flow, fixed crops at several scales, mirrored flow.
See also: clips.py, for whole clips.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataError, LayerParamError, Where
from ...proto.caffe_pb2 import TransformationParameter
from ..transform.picture import decode_picture, read_picture, require_opencv, resize_picture
from ..transform.transformer import DataTransformer, Item, batch_rng, item_rng, transformed_batch
from .clips import ClipList
from .image_list import ImageBatches

_SEGMENT = 12  # the purpose of the random numbers that choose frames, crops and mirroring
_SCALES = (1.0, 0.875, 0.75, 0.66)
_CLOSE = 3  # a crop whose side is nearer than so many pixels to crop_size has crop_size


@dataclass(frozen=True)
class Segments:
    """Say what is read of each video: `count` segments of equal length, `length` frames of each.

    flow: each frame is two pictures, x and y. pattern: the name of a frame's file, of its number from 1; of flow with
    %c in front for x or y. grey: one channel per frame. by_channel: of each segment all frames of a channel, then those
    of the next.
    """

    count: int
    length: int
    flow: bool
    pattern: str
    grey: bool = False
    by_channel: bool = False

    def files(self, frame: int) -> list[str]:
        """Return the names of the files of a frame. Raises: TypeError, ValueError for an impossible pattern."""
        return [self.pattern % (axis, frame) for axis in "xy"] if self.flow else [self.pattern % frame]


class SegmentBatches(ImageBatches):
    """Make batch b of a ClipList with lines `folder frames label`, for any b: (data (B, C, h, w), labels).

    C: the channels of every frame after each other (flow: x, y), unless by_channel. A video shorter than its segments
    gives its first frames. While training, segments begin anywhere within their part, else so that they are in its
    middle.
    Args: as ImageBatches has them; crops: transform_param, whose crop and mirroring happen here.
    Raises: DataError for a picture that cannot be read or has another size than the first, naming the line.
    """

    _images: ClipList

    def __init__(
        self,
        videos: ClipList,
        batch_size: int,
        transformer: DataTransformer,
        segments: Segments,
        crops: TransformationParameter,
        train: bool,
        **how: Any,
    ):
        require_opencv()
        self._segments, self._crops, self._train = segments, crops, train
        super().__init__(videos, batch_size, transformer, **how)

    def produce(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        indices = [self.index(self.first + batch * self._batch_size + item) for item in range(self._batch_size)]
        rng = batch_rng(self._seed, batch, self._stream)
        return transformed_batch(
            self._transformer,
            lambda item: self._video(indices[item], item_rng(rng, item, _SEGMENT)),
            self.shape,
            rng,
            dtype=self._dtype,
            fix="set new_height and new_width, or transform_param.crop_size, or batch_size: 1",
        )

    def _read(self, index: int) -> Item:
        return self._video(index, batch_rng(self._seed, 0, _SEGMENT))

    def _video(self, index: int, rng: np.random.Generator) -> Item:
        """Read line `index`: (array (C, h, w), label, place for errors)."""
        where, flow = self._images.place(index), self._segments.flow
        grey = flow or self._segments.grey
        planes: list[np.ndarray] = []
        for first in self._starts(self._images.starts[index], rng):
            for frame in range(first + 1, first + 1 + self._segments.length):
                for name in self._segments.files(frame):
                    file = f"{self._images.paths[index]}/{name}"
                    fix = "correct the line's number of frames, or name_pattern"
                    data = read_picture(file, where=Where(file=f"{where.file}: {file}"), fix=fix)
                    picture = decode_picture(data, where=where, force_color=not grey, force_gray=grey)
                    if self._size is not None:
                        picture = resize_picture(picture, self._size)
                    if planes and picture.shape[1:] != planes[0].shape:
                        raise DataError(
                            f"frames of {planes[0].shape} and of {picture.shape[1:]}",
                            where=where,
                            fix="set new_height and new_width",
                        )
                    planes += list(picture)
        found = self._cropped(planes, rng, where)
        if self._segments.by_channel:
            frames = found.reshape(self._segments.count, self._segments.length, -1, *found.shape[1:])
            found = frames.swapaxes(1, 2).reshape(found.shape)
        return found, self._images.labels[index], where

    def _starts(self, frames: int, rng: np.random.Generator) -> list[int]:
        """Return the frame before each segment's first one."""
        part = frames // self._segments.count
        room = part - self._segments.length
        if room < 0:
            return [0] * self._segments.count
        count = self._segments.count
        first = rng.integers(room + 1, size=count) if self._train else [(room + 1) // 2] * count
        return [int(first[i]) + i * part for i in range(count)]

    def _cropped(self, planes: list[np.ndarray], rng: np.random.Generator, where: Where) -> np.ndarray:
        """Return the crop of all channels, resized to crop_size, mirrored at random."""
        p, (height, width) = self._crops, planes[0].shape
        side = p.crop_size
        if side:
            if side > min(height, width):
                raise LayerParamError(
                    f"crop_size {side} is larger than frames of {height} x {width}",
                    where=where,
                    fix="make crop_size smaller, or set new_height and new_width",
                )
            sizes = crop_sizes((height, width), p) if self._train and p.multi_scale else [(side, side)]
            high, wide = sizes[int(rng.integers(len(sizes)))]
            room = height - high, width - wide
            if not self._train:
                y, x = room[0] // 2, room[1] // 2
            elif p.fix_crop:
                places = crop_places(room, p.more_fix_crop)
                y, x = places[int(rng.integers(len(places)))]
            else:
                y, x = (int(rng.integers(r + 1)) for r in room)
            planes = [resize_picture(plane[None, y : y + high, x : x + wide], (side, side))[0] for plane in planes]
        found = np.stack(planes)
        if p.mirror and rng.integers(2):
            found = found[:, :, ::-1].copy()
            if p.is_flow:
                found[::2] = 255 - found[::2]  # what moved to the left moves to the right
        return found


def crop_sizes(shape: tuple[int, int], p: TransformationParameter) -> list[tuple[int, int]]:
    """Return the heights and widths of crops of several scales, of the shorter side; near crop_size they have it."""
    ratios = np.array(p.scale_ratios or _SCALES, np.float32)
    sides = [int(np.float32(min(shape)) * ratio) for ratio in ratios]
    sides = [p.crop_size if abs(side - p.crop_size) < _CLOSE else side for side in sides]
    pairs = [(i, j) for i in range(len(sides)) for j in range(len(sides)) if abs(i - j) <= p.max_distort]
    return [(sides[i], sides[j]) for i, j in pairs]


def crop_places(room: tuple[int, int], more: bool) -> list[tuple[int, int]]:
    """Return where fixed crops begin, in quarters of the room: corners and centre; more: sides and quarters, too."""
    quarters = [(0, 0), (0, 4), (4, 0), (4, 4), (2, 2)]
    if more:
        quarters += [(0, 2), (4, 2), (2, 0), (2, 4), (1, 1), (1, 3), (3, 1), (3, 3)]
    return [(y * (room[0] // 4), x * (room[1] // 4)) for y, x in quarters]
