"""Write pictures with the boxes of their objects as a database of AnnotatedDatum records, as SSD's tool does.

Keys and records are the fork's, byte for byte. Several threads decode; records are in order. Pictures that cannot be
read are reported and left out.
Source: weiliu89/caffe (SSD), tools/convert_annoset.cpp, src/caffe/util/io.cpp (behaviour).
See also: annotations.py, which reads the files of objects; imageset.py, whose loop this is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...errors import DataError, Where
from ...formats.rawfile import open_text
from ...proto.caffe_pb2 import AnnotatedDatum
from ..feed.image_list import ImageList
from ..transform.picture import (
    MAX_PICTURE_VALUES,
    decode_pixels,
    encode_pixels,
    planes_shape,
    read_picture,
    to_planes,
)
from .annotations import READERS, add_objects
from .conversion import Progress
from .imageset import Converted, MadeRecord, PictureForm, is_kind, kind_of_name, with_slash, write_pictures

_log = logging.getLogger(__name__)


class AnnotationList:
    """Read the lines `picture annotation` of a text file, split at the last white space; blank lines are skipped.

    Raises: DataError for a file that cannot be read or lists nothing, or a line of one word, naming it.
    """

    def __init__(self, source: str | os.PathLike[str]):
        self.source = os.fspath(source)
        self.paths: list[str] = []
        self.annotations: list[str] = []
        self._lines: list[int] = []
        with open_text(self.source, "the list of pictures", "check the list's path") as file:
            for number, line in enumerate(file, 1):
                words = line.strip().rsplit(maxsplit=1)
                if len(words) == 1:
                    raise DataError(
                        f"{line.strip()!r} is not two paths",
                        where=Where(file=self.source, line=number),
                        fix="write the picture, a space and its file of objects; or -anno_type classification",
                    )
                if words:
                    self.paths.append(words[0])
                    self.annotations.append(words[1])
                    self._lines.append(number)
        if not self.paths:
            raise DataError(
                "the list of pictures is empty", where=Where(file=self.source), fix="give one line for each picture"
            )

    def __len__(self) -> int:
        return len(self.paths)

    def place(self, index: int) -> Where:
        """Return list, line and path of picture number `index`, for errors."""
        return Where(file=f"{self.source}:{self._lines[index]}: {self.paths[index]}")


@dataclass(frozen=True)
class AnnotationForm:
    """Set how pictures and objects are stored.

    Attributes:
        picture: how pictures are; its `shorter_side` has no effect.
        min_dim: pixels; a shorter side that has less is enlarged to it, with the same proportions; 0: any.
        max_dim: pixels; a longer side that has more then is reduced to it, with the same proportions; 0: any.
        label_type: kind of the files of objects, a name of READERS.
        labels: number of each name.
    """

    picture: PictureForm = field(default_factory=PictureForm)
    min_dim: int = 0
    max_dim: int = 0
    label_type: str = "xml"
    labels: Mapping[str, int] = field(default_factory=dict)


def convert_annoset(
    root: str,
    images: ImageList | AnnotationList,
    path: str | os.PathLike[str],
    form: AnnotationForm,
    *,
    order: Sequence[int] | np.ndarray | None = None,
    backend: str = "lmdb",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Converted:
    """Write the pictures of `images` with their objects (of an ImageList: their labels) as the database `path`.

    The key of the picture in place n is n in eight digits, "_" and the name as listed. A picture that cannot be read is
    logged and left out; one without its file of objects has none, with a warning.

    Args:
        root: put before each name, a folder with or without its last slash; another text as it stands.
        order: indices of the lines in the order of the records; None keeps the list's order.
    Raises: DataError as `convert_imageset` and `add_objects`; MissingDependency without OpenCV.
    """
    assert form.label_type in READERS, form.label_type
    root = with_slash(root)
    return write_pictures(
        images,
        path,
        lambda at: _make(root, images, form, *at),
        lambda place, line: (place, line),
        root=root,
        order=order,
        check_size=form.picture.check_size,
        backend=backend,
        overwrite=overwrite,
        progress=progress,
    )


def _make(root: str, images: ImageList | AnnotationList, form: AnnotationForm, place: int, line: int) -> MadeRecord:
    """Read, resize and encode one picture, and read its objects. Runs in any thread."""
    name, where, gray = images.paths[line], images.place(line), form.picture.gray
    try:
        data = read_picture(root + name, where=where, fix="correct the line")
        original = decode_pixels(data, where=where, force_color=not gray, force_gray=gray)
        pixels = _resized(original, form)
    except DataError as error:
        return MadeRecord(line, None, reason=error.message)
    record = AnnotatedDatum()
    datum = record.datum
    shape = datum.channels, datum.height, datum.width = planes_shape(pixels)
    datum.label = int(images.labels[line]) if isinstance(images, ImageList) else -1
    datum.encoded = form.picture.encoded
    if form.picture.encoded:
        kind = form.picture.encode_type or kind_of_name(name, where)
        keeps = not (form.picture.size or form.min_dim or form.max_dim) and is_kind(name, kind)
        datum.data = data if keeps else encode_pixels(pixels, kind, where=where)
    else:
        datum.data = to_planes(pixels).tobytes()
    if isinstance(images, AnnotationList):
        record.type = AnnotatedDatum.BBOX
        annotation = root + images.annotations[line]
        if os.path.exists(annotation):
            add_objects(record, annotation, form.label_type, form.labels, planes_shape(original))
        else:
            _log.warning("%s: there is no %s: the picture is stored without objects", where, annotation)
    return MadeRecord(line, (os.fsencode(f"{place:08d}_{name}"), record.SerializeToString()), shape)


def _resized(pixels: np.ndarray, form: AnnotationForm) -> np.ndarray:
    """Return OpenCV's pixels in the size of the form; min_dim and max_dim have precedence, as in the fork.

    Raises: DataError for a very narrow picture, whose longer side would become too long.
    """
    import cv2

    height, width = pixels.shape[:2]
    if form.min_dim or form.max_dim:
        scale = np.float32(1)
        if form.min_dim and min(height, width) < form.min_dim:
            scale = np.float32(form.min_dim) / np.float32(min(height, width))
        if form.max_dim and int(scale * np.float32(max(height, width))) > form.max_dim:
            scale = np.float32(form.max_dim) / np.float32(max(height, width))
        if scale == 1:
            return pixels
        if pixels.size * float(scale) ** 2 > MAX_PICTURE_VALUES:
            raise DataError(
                f"with a shorter side of {form.min_dim} it would have {height * scale:.0f} x {width * scale:.0f} pixels"
            )
        pixels = cv2.resize(pixels, None, fx=float(scale), fy=float(scale))
    elif form.picture.size is not None:
        pixels = cv2.resize(pixels, form.picture.size[::-1])
    return pixels
