"""Make batches of clips of videos that a text file lists, for the VideoData layer.

Covers: the list's lines, which frames a clip has, decoding, resizing. A clip of L frames (C, H, W) is transformed as
one picture of C * L channels, so that all its frames are cropped and mirrored alike.
See also: image_list.py, which decides about order and epochs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import DataError, Where
from ..transform.picture import decode_picture, read_picture, require_opencv, resize_picture, to_planes
from ..transform.transformer import DataTransformer, Item, batch_rng, item_rng, transformed_batch
from .image_list import ImageBatches, ImageList

_CLIP = 11  # the purpose of the random numbers that choose frames


@dataclass(frozen=True)
class Frames:
    """Say which frames clips have.

    length: frames of a clip. rate: from one to the next. most_rate: above 0, the rate is drawn from 1 to it.
    jitter: clips begin anywhere. folders: paths are folders of pictures 000001.jpg, ..., not videos.
    """

    length: int
    rate: int = 1
    most_rate: int = 0
    jitter: bool = False
    folders: bool = False

    @property
    def starts_given(self) -> bool:
        """Return whether lines have a number between path and labels."""
        return self.folders or not self.jitter


class ClipList(ImageList):
    """Read the lines `path start label`; without `start` where clips of videos begin anywhere.

    Args:
        labels: numbers of each line, separated by commas; 0: one number, and labels of one axis.
    Attributes:
        starts: the number in each line: the first frame, or in folders with jitter the number of frames.
    """

    columns = "path start label"

    def __init__(self, source: str | os.PathLike[str], root_folder: str, *, starts: bool, labels: int):
        self.starts: list[int] = []
        self._with_starts, self._count = starts, labels
        super().__init__(source, root_folder)

    def _split(self, line: str, number: int) -> tuple[str, Any]:
        path, *numbers = line.rsplit(None, 2 if self._with_starts else 1)
        try:
            found = [int(n) for n in numbers[-1].split(",")]
            start = int(numbers[0]) if self._with_starts else 0
            fine = len(numbers) == 1 + self._with_starts and start >= 0
        except (ValueError, IndexError):
            fine = False
        if not fine or len(found) != max(1, self._count) or any(abs(n) >= 2**31 for n in (*found, start)):
            columns = "path start label" if self._with_starts else "path label"
            raise DataError(
                f"{line!r} is not `{columns}`",
                where=Where(file=self.source, line=number),
                fix=f"write `{columns}` with numbers"
                + (f", the labels as {self._count} numbers with commas between" if self._count else ""),
            )
        self.starts.append(start)
        return path, found if self._count else found[0]


class ClipBatches(ImageBatches):
    """Make batch b of a ClipList, for any b: (data (B, C, L, h, w), labels).

    Args: as ImageBatches has them; frames: which frames a clip has; train: whether folders with jitter draw a start.
    Raises: DataError for a video or picture that cannot be read, or with too few frames, naming the line.
    """

    _images: ClipList

    def __init__(
        self, clips: ClipList, batch_size: int, transformer: DataTransformer, frames: Frames, train: bool, **how: Any
    ):
        require_opencv()
        self._frames, self._train = frames, train
        super().__init__(clips, batch_size, transformer, **how)

    @property
    def clip_shape(self) -> tuple[int, ...]:
        """Return (B, C, L, h, w)."""
        count, planes, *size = self.shape
        return (count, planes // self._frames.length, self._frames.length, *size)

    def produce(self, batch: int) -> tuple[np.ndarray, np.ndarray]:
        indices = [self.index(self.first + batch * self._batch_size + item) for item in range(self._batch_size)]
        rng = batch_rng(self._seed, batch, self._stream)
        data, labels = transformed_batch(
            self._transformer,
            lambda item: self._clip(indices[item], item_rng(rng, item, _CLIP)),
            self.shape,
            rng,
            dtype=self._dtype,
            fix="set new_height and new_width, or transform_param.crop_size, or batch_size: 1",
        )
        return data.reshape(len(data), -1, self._frames.length, *data.shape[2:]), labels

    def _read(self, index: int) -> Item:
        return self._clip(index, batch_rng(self._seed, 0, _CLIP))

    def _clip(self, index: int, rng: np.random.Generator) -> Item:
        """Read a clip of line `index`: (array (C * L, H, W), labels, place for errors). rng: draws rate and start."""
        frames, where = self._frames, self._images.place(index)
        step = int(rng.integers(frames.most_rate)) + 1 if frames.most_rate else frames.rate
        read = self._of_folder if frames.folders else self._of_video
        pictures: list[np.ndarray] = []
        for picture in read(self._images.paths[index], self._images.starts[index], step, rng, where):
            if self._size is not None and picture.shape[1:] != self._size:
                picture = resize_picture(picture, self._size)
            if pictures and picture.shape != pictures[0].shape:
                raise DataError(
                    f"frames of {pictures[0].shape} and of {picture.shape}",
                    where=where,
                    fix="set new_height and new_width",
                )
            pictures.append(picture)
        clip = np.stack(pictures, axis=1)
        return clip.reshape(-1, *clip.shape[2:]), self._images.labels[index], where

    def _start(self, known: int, step: int, rng: np.random.Generator, where: Where) -> int:
        """Return a drawn start of a clip, from 0. known: frames that there are."""
        room = known - self._frames.length * step
        if room < 0:
            raise DataError(
                f"has {known} frames, but a clip needs {self._frames.length} x {step}",
                where=where,
                fix="remove the line, or make new_length or sampling_rate smaller",
            )
        return int(rng.integers(room + 1))

    def _of_folder(
        self, path: str, start: int, step: int, rng: np.random.Generator, where: Where
    ) -> Iterator[np.ndarray]:
        if self._frames.jitter:  # then `start` is the number of frames
            drawn = self._start(start, step, rng, where)
            start = 1 + (drawn if self._train else 0)
        for k in range(self._frames.length):
            file = f"{path}/{start + k * step:06d}.jpg"
            data = read_picture(file, where=Where(file=f"{where.file}: {file}"), fix="correct the line's numbers")
            yield decode_picture(data, where=where, force_color=self._is_color, force_gray=not self._is_color)

    def _of_video(
        self, path: str, start: int, step: int, rng: np.random.Generator, where: Where
    ) -> Iterator[np.ndarray]:
        import cv2

        video = cv2.VideoCapture(path)
        try:
            if not video.isOpened():
                raise DataError("cannot open the video", where=where, fix="check the path, or remove the line")
            known = int(video.get(cv2.CAP_PROP_FRAME_COUNT))
            if self._frames.jitter:
                start = self._start(known, step, rng, where)
            if start:
                video.set(cv2.CAP_PROP_POS_FRAMES, start)
            for k in range(self._frames.length):
                skipped = all(video.grab() for _ in range(step - 1)) if k else True
                fine, image = video.read() if skipped else (False, None)
                if not fine or image is None:
                    raise DataError(
                        f"has no frame {start + k * step}; it says that there are {known}",
                        where=where,
                        fix="begin earlier, or make new_length or sampling_rate smaller",
                    )
                if not self._is_color:
                    image = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
                yield to_planes(image)
        finally:
            video.release()
