"""Decode picture files (JPEG, PNG, whatever OpenCV reads) from memory to arrays, resize and encode them.

Colours follow Caffe's rules. A header that claims an absurd size is refused before memory is taken.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import numpy as np

from ...errors import DataError, MissingDependency, Where

MAX_PICTURE_VALUES = 1 << 28
"""Most values (height x width x channels) a picture may decode to: 256 MiB, far above any training picture."""

_FIX = "replace the picture, or leave it out of the list and write the database again"


def read_picture(path: str, *, where: Where, fix: str) -> bytes:
    """Return the bytes of a picture file. Raises: DataError with this place and fix."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot read the picture: {reason}", where=where, fix=fix) from error


def require_opencv() -> None:
    """Raise MissingDependency without OpenCV, which reads picture files: to be said before work begins."""
    _opencv(Where())


def _opencv(where: Where) -> Any:
    try:
        import cv2
    except ImportError:
        raise MissingDependency("opencv-python-headless", "reading encoded pictures", "'pycaffe-lms[image]'").at(
            file=where.file
        ) from None
    return cv2


def decode_picture(
    data: bytes, *, where: Where, force_color: bool = False, force_gray: bool = False, sixteen_bits: bool = False
) -> np.ndarray:
    """Decode a picture file to uint8 (channels, height, width); colour in the order blue, green, red.

    Args:
        force_color: always 3 channels. force_gray: always 1. Neither: as stored (1, 3 or, with transparency, 4).
        sixteen_bits: accept pictures of 16 bits per value too, as uint16.
    Raises: DataError for bytes that are no picture, not 8 bits deep or too large; MissingDependency without OpenCV.
    """
    return to_planes(
        decode_pixels(data, where=where, force_color=force_color, force_gray=force_gray, sixteen_bits=sixteen_bits)
    )


def decode_pixels(
    data: bytes, *, where: Where, force_color: bool = False, force_gray: bool = False, sixteen_bits: bool = False
) -> np.ndarray:
    """Decode a picture file as `decode_picture`, to OpenCV's (height, width, channels); (height, width) of one."""
    cv2 = _opencv(where)
    size = header_size(data)
    if size is not None and size[0] * size[1] * 3 > MAX_PICTURE_VALUES:
        raise DataError(
            f"the picture's header says {size[0]} x {size[1]} pixels, more than the {MAX_PICTURE_VALUES // 3} allowed",
            where=where,
            fix=_FIX,
        )
    flag = cv2.IMREAD_COLOR if force_color else cv2.IMREAD_GRAYSCALE if force_gray else cv2.IMREAD_UNCHANGED
    try:
        image: np.ndarray | None = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
    except cv2.error as error:
        raise DataError(f"cannot decode the picture: {error.err or error}", where=where, fix=_FIX) from error
    if image is None:
        raise DataError(f"these {len(data)} bytes are not a picture that OpenCV reads", where=where, fix=_FIX)
    if image.dtype != np.uint8 and not (sixteen_bits and image.dtype == np.uint16):
        raise DataError(
            f"the picture holds {image.dtype} values, only 8 bits per value are read",
            where=where,
            fix="save it with 8 bits per channel, or set transform_param.force_color or force_gray",
        )
    return image


def resize_picture(array: np.ndarray, size: tuple[int, int], nearest: bool = False) -> np.ndarray:
    """Resize a uint8 picture (C, H, W) to `size`, (height, width): bilinearly, or with the nearest pixel's values.

    Needs OpenCV, as `decode_picture`.
    """
    if array.shape[1:] == size:
        return array
    return to_planes(resize_pixels(to_pixels(array), size, nearest))


def resize_pixels(pixels: np.ndarray, size: tuple[int, int], nearest: bool = False) -> np.ndarray:
    """Resize OpenCV's (height, width, channels) or (height, width), as `resize_picture`."""
    import cv2

    if pixels.shape[:2] == size:
        return pixels
    how = cv2.INTER_NEAREST if nearest else cv2.INTER_LINEAR
    resized: np.ndarray = cv2.resize(pixels, size[::-1], interpolation=how)
    return resized


def to_planes(pixels: np.ndarray) -> np.ndarray:
    """Return (height, width) or (height, width, channels) as contiguous (channels, height, width)."""
    import cv2

    if pixels.ndim == 2 or pixels.shape[2] == 1:
        return np.ascontiguousarray(pixels).reshape(1, *pixels.shape[:2])
    planes = np.empty((pixels.shape[2], *pixels.shape[:2]), pixels.dtype)
    cv2.split(pixels, list(planes))  # several times as fast as a transposed copy
    return planes


def to_pixels(planes: np.ndarray) -> np.ndarray:
    """Return (channels, height, width) as contiguous (height, width, channels); (height, width) for one channel."""
    import cv2

    merged: np.ndarray = planes[0] if len(planes) == 1 else cv2.merge(list(planes))
    return merged


def planes_shape(pixels: np.ndarray) -> tuple[int, int, int]:
    """Return the shape (channels, height, width) that `to_planes` gives."""
    height, width = pixels.shape[:2]
    return (pixels.size // (height * width), height, width)


def shorter_side_size(shape: tuple[int, ...], side: int) -> tuple[int, int]:
    """Return (height, width), the shorter one being `side`, in the proportions of a shape (C, H, W), rounded down.

    Raises: DataError where that is more than `MAX_PICTURE_VALUES`, as for a very narrow picture.
    """
    channels, height, width = shape
    size = (side, side * width // height) if height <= width else (side * height // width, side)
    if channels * size[0] * size[1] > MAX_PICTURE_VALUES:
        raise DataError(f"with a shorter side of {side} it would have {size[0]} x {size[1]} pixels", fix=_FIX)
    return size


def encode_pixels(pixels: np.ndarray, kind: str, *, where: Where) -> bytes:
    """Encode OpenCV's pixels of uint8 as the bytes of a file of `kind`, a file name's ending such as jpg or png.

    OpenCV's own settings: a JPEG has quality 95. Needs OpenCV, as `decode_picture`.
    Raises: DataError for a kind that OpenCV does not write.
    """
    import cv2

    try:
        done, encoded = cv2.imencode(f".{kind}", pixels)
    except cv2.error as error:
        raise DataError(
            f'OpenCV does not write pictures of kind "{kind}": {error.err or error}',
            where=where,
            fix="choose another with -encode_type, for example jpg or png",
        ) from error
    if not done:
        raise DataError(f'OpenCV failed to encode the picture as "{kind}"', where=where, fix=_FIX)
    return encoded.tobytes()


def header_size(data: bytes) -> tuple[int, int] | None:
    """Return (height, width) in pixels that a PNG or JPEG header claims; None for other formats and broken headers.

    A few hundred bytes can decode to gigabytes. For other formats there is OpenCV's own limit of 2^30 pixels.
    """
    if data.startswith(_PNG) and len(data) >= 24:
        width, height = struct.unpack_from(">II", data, 16)
        return height, width
    at = _jpeg_frame(data)
    if at is not None:
        height, width = struct.unpack_from(">HH", data, at + 5)
        return height, width
    return None


def usual_jpeg_shape(data: bytes, *, gray: bool) -> tuple[int, int, int] | None:
    """Return the shape (C, H, W) that `decode_pixels` with `force_gray` or else `force_color` gives a JPEG.

    The file's header tells it. None for what is no JPEG of a usual kind, and where a header is not enough: an APP1
    segment may hold EXIF data, by which a decoder turns the picture. `decodes` says whether the rest can be read.
    """
    at, scan = _usual_jpeg_frame(data)
    if at is None or _APP1.search(data, 0, scan) or data[at + 4] != 8 or data[at + 9] not in (1, 3):
        return None
    if data[at + 9] == 3 and (len(data) < at + 19 or data[at + 14] != 0x11 or data[at + 17] != 0x11):
        return None  # `decodes` does not look at how colours of other sizes are enlarged
    height, width = struct.unpack_from(">HH", data, at + 5)
    if not height or not width or height * width * 3 > MAX_PICTURE_VALUES:
        return None
    return (1 if gray else 3, height, width)


def decodes(data: bytes, shape: tuple[int, int, int]) -> bool:
    """Return whether a JPEG of this `usual_jpeg_shape` can be decoded. Needs OpenCV, as `decode_picture`.

    It is decoded to an eighth of its sides, in gray. That reads all its coded data, so it finds the damage that
    `decode_pixels` finds, and leaves out what takes nearly half of the time: cosine transforms and colours.
    """
    import cv2

    try:
        image: np.ndarray | None = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_REDUCED_GRAYSCALE_8)
    except cv2.error:
        return False
    return image is not None and image.shape == (-(-shape[1] // 8), -(-shape[2] // 8))


def stored_channels(data: bytes) -> int | None:
    """Return the channels of 8 bits that a PNG or JPEG header claims; None for other formats and depths, and for a
    palette."""
    if data.startswith(_PNG) and len(data) >= 26:
        depth, colour = data[24:26]
        return {0: 1, 2: 3}.get(colour) if depth == 8 else None
    at = _jpeg_frame(data)
    return data[at + 9] if at is not None and data[at + 4] == 8 else None


_PNG = b"\x89PNG\r\n\x1a\n"


def _jpeg_frame(data: bytes) -> int | None:
    """Return where the frame header of a JPEG begins; None without one."""
    at = 2 if data.startswith(b"\xff\xd8") else len(data)
    while at + 10 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding before a marker
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame header, any coding
            return at
        else:
            at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None


_APP1 = re.compile(b"\xff\xe1")
_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive: Huffman codes of quantized cosine transforms
_SEGMENTS = (0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0))  # tables, restart interval, comment, applications' data
_SCAN = 0xDA


def _usual_jpeg_frame(data: bytes) -> tuple[int | None, int]:
    """Return where the frame header of a JPEG begins (None unless there is one, with usual segments before a scan), and
    where its first scan does."""
    at, frame = 2 if data.startswith(b"\xff\xd8") else len(data), None
    while at + 10 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == _SCAN:
            return frame, at
        if marker in _FRAMES and frame is None:
            frame = at
        elif marker not in _SEGMENTS:
            break
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None, at
