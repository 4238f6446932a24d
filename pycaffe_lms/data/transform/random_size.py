"""Give each picture a random size before it is cropped, as Intel's and NVIDIA's forks of Caffe do.

Sizes are drawn as there: ratios of Intel's in steps of a thousandth. A picture that comes out smaller than the crop is
an error. The forks' sequences of random numbers are not reproduced.
Source: intel/caffe, src/caffe/data_transformer.cpp (RandomResizeImage, RandomAlterAspectRatio); NVIDIA/caffe, same file
(image_random_resize).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from ...errors import DataError, LayerParamError, Where
from ...proto.caffe_pb2 import ResizeParameter, TransformationParameter
from .augment import resize

Size: TypeAlias = tuple[int, int]  # height, width
NVIDIA = (
    *("img_rand_resize_lower", "img_rand_resize_upper", "rand_resize_ratio_lower", "rand_resize_ratio_upper"),
    *("vertical_stretch_lower", "vertical_stretch_upper", "horizontal_stretch_lower", "horizontal_stretch_upper"),
)
FIELDS = ("random_resize_param", "random_aspect_ratio_param", *NVIDIA)
"""Fields of transform_param that draw a size. interpolation_algo_* and allow_upscale act with NVIDIA's."""


class RandomSize:
    """Resize pictures at random, to at least `crop`.

    Raises: LayerParamError for fields that contradict each other.
    """

    def __init__(self, param: TransformationParameter, crop: Size, *, source: str):
        self._param, self._crop, self._source = param, crop, source
        intel = [field for field in FIELDS[:2] if param.HasField(field)]
        nvidia = [field for field in NVIDIA if param.HasField(field)]
        self._field = (intel + nvidia)[0]
        others = [*intel, *nvidia[:1], *(["resize_param"] if param.HasField("resize_param") else [])]
        if len(others) > 1:
            raise self._refuse(f"{others[0]} and {others[1]} are both set", "keep one of them")
        if not crop[0]:
            raise self._refuse(f"{self._field} needs a crop, which gives all pictures one size", "add crop_size")
        if param.mean_file:
            raise self._refuse(f"{self._field} does not go with a mean_file, which has one size", "write mean_value")
        self._draw = self._stretched
        if self._field == "random_resize_param":
            self._draw = self._by_shorter_side
            self._check_range("random_resize_param.", "min_size", "max_size", param.random_resize_param)
        elif self._field == "random_aspect_ratio_param":
            self._draw = self._part
            ratios = param.random_aspect_ratio_param
            if not 0 < ratios.min_area_ratio <= ratios.max_area_ratio <= 1 or not 0 < ratios.aspect_ratio_change <= 1:
                raise self._refuse(
                    f"random_aspect_ratio_param has areas {ratios.min_area_ratio:g} to {ratios.max_area_ratio:g}, and "
                    f"aspect_ratio_change {ratios.aspect_ratio_change:g}",
                    "write 0 < min_area_ratio <= max_area_ratio <= 1 and 0 < aspect_ratio_change <= 1",
                )
        else:
            for lower, upper in zip(NVIDIA[::2], NVIDIA[1::2], strict=True):
                self._check_range("", lower, upper, param)

    def _check_range(self, inside: str, lower: str, upper: str, message: object) -> None:
        low, high = getattr(message, lower), getattr(message, upper)
        if not 0 <= low < 1 << 15 or not 0 <= high < 1 << 15 or low > high > 0:
            raise self._refuse(f"{inside}{lower} is {low:g}, {upper} {high:g}", f"write {lower} <= {upper}")

    def _refuse(self, what: str, fix: str) -> LayerParamError:
        return LayerParamError(f"transform_param: {what}", where=Where(file=self._source), fix=fix)

    def apply(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return a picture (height, width) or (height, width, channels) in a size drawn from rng.

        Raises: DataError where it comes out smaller than the crop.
        """
        result = self._draw(image, rng)
        height, width = result.shape[:2]
        if height < self._crop[0] or width < self._crop[1]:
            raise DataError(
                f"{self._field} makes a picture of {image.shape[0]} x {image.shape[1]} one of {height} x {width}, "
                f"which is smaller than the crop of {self._crop[0]} x {self._crop[1]} (height x width)",
                fix="raise the lower bound to the size of the crop (NVIDIA's fields: and set allow_upscale: true)",
            )
        return result

    def _by_shorter_side(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        p, sides = self._param.random_resize_param, image.shape[:2]
        low, high = p.min_size or min(sides), p.max_size or max(sides)
        side = int(rng.integers(low, max(low, high) + 1))
        return _to(image, _in_proportion(image.shape[:2], side), p.resize_param, rng)

    def _part(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        p, (height, width) = self._param.random_aspect_ratio_param, image.shape[:2]
        for _ in range(p.max_attempt):
            side = math.sqrt(_ratio(p.min_area_ratio, p.max_area_ratio, rng) * height * width)
            change = _ratio(p.aspect_ratio_change, 1 / p.aspect_ratio_change, rng)
            part = max(1, int(side * change)), max(1, int(side / change))
            if _ratio(0, 1, rng) < 0.5:
                part = part[::-1]
            if part[0] <= height and part[1] <= width:
                top, left = (int(rng.integers(room + 1)) for room in (height - part[0], width - part[1]))
                window = image[top : top + part[0], left : left + part[1]]
                return _to(window, self._crop, p.resize_param, rng)
        whole = _in_proportion((height, width), max(self._crop))
        return _to(image, whole, p.resize_param, rng)

    def _stretched(self, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        import cv2

        p, sides = self._param, image.shape[:2]
        shorter = min(sides)
        if p.img_rand_resize_lower and p.img_rand_resize_upper:
            shorter = int(rng.integers(p.img_rand_resize_lower, p.img_rand_resize_upper + 1))
        height, width = (shorter / min(sides) * side for side in sides)
        if p.rand_resize_ratio_lower >= 1 and p.rand_resize_ratio_upper > 1:
            ratio = rng.uniform(p.rand_resize_ratio_lower, p.rand_resize_ratio_upper)
            wide = width > height or (width == height and rng.integers(2) == 1)
            height, width = (height, height * ratio) if wide else (width * ratio, width)
        if p.vertical_stretch_lower > 0 and p.vertical_stretch_upper > 0:
            height *= rng.uniform(p.vertical_stretch_lower, p.vertical_stretch_upper)
        if p.horizontal_stretch_lower > 0 and p.horizontal_stretch_upper > 0:
            width *= rng.uniform(p.horizontal_stretch_lower, p.horizontal_stretch_upper)
        new = [max(crop, math.floor(side + 0.5)) for crop, side in zip(self._crop, (height, width), strict=True)]
        if not p.allow_upscale:
            new = [min(side, had) for side, had in zip(new, sides, strict=True)]
        if tuple(new) == tuple(sides):
            return image
        shrinks = new[0] <= sides[0] and new[1] <= sides[1]
        algorithm = p.interpolation_algo_down if shrinks else p.interpolation_algo_up  # numbers are OpenCV's
        return np.asarray(cv2.resize(image, (new[1], new[0]), interpolation=int(algorithm)))


def random_size(param: TransformationParameter, crop: Size, *, source: str) -> RandomSize | None:
    """Return what gives pictures a random size; None where no field asks for one. Raises: as RandomSize."""
    return RandomSize(param, crop, source=source) if any(map(param.HasField, FIELDS)) else None


def _ratio(low: float, high: float, rng: np.random.Generator) -> float:
    """Return a number from low to high, in steps of a thousandth."""
    return low + int(rng.integers(int((high - low) * 1000 + 1))) / 1000


def _in_proportion(sides: tuple[int, ...], shorter: int) -> Size:
    """Return the size in the proportions of `sides` whose shorter side is `shorter`."""
    height, width = sides
    if height < width:
        return shorter, int(np.float32(width) / np.float32(height) * np.float32(shorter))
    return int(np.float32(height) / np.float32(width) * np.float32(shorter)), shorter


def _to(image: np.ndarray, size: Size, given: ResizeParameter, rng: np.random.Generator) -> np.ndarray:
    """Return the picture in a size, by one of the interp_modes of `given`."""
    warp = ResizeParameter(height=size[0], width=size[1], interp_mode=given.interp_mode)
    return resize(image, warp, rng)
