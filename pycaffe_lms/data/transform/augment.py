"""Change pictures as `transform_param` of SSD's fork of Caffe says: their size, their colours, noise, a larger canvas.

Pictures are OpenCV's, which computes them: (height, width) or (height, width, channels), blue, green, red. The fork
stores a picture as JPEG between these steps, which changes its pixels; here they are not stored.
Source: weiliu89/caffe (SSD), src/caffe/util/im_transforms.cpp, src/caffe/data_transformer.cpp (behaviour).
"""

from __future__ import annotations

import logging

import numpy as np

from ...errors import DataError, LayerParamError, Where
from ...proto.caffe_pb2 import DistortionParameter, NoiseParameter, ResizeParameter, TransformationParameter
from .picture import MAX_PICTURE_VALUES

_log = logging.getLogger(__name__)
_SATURATED = np.arange(256, dtype=np.float32)


def every_size(transform_param: TransformationParameter) -> list[ResizeParameter]:
    """Return every resize_param that is written, first to last."""
    first = [transform_param.resize_param] if transform_param.HasField("resize_param") else []
    return [*first, *transform_param.further_resize_param]


# -- what fields may say ---------------------------------------------------------------------------------------------
def check_fields(transform_param: TransformationParameter, *, source: str) -> None:
    """Raise LayerParamError for values that SSD's fields of transform_param cannot have.

    Logs a warning for `prob` of resize_param and noise_param, which acts neither in the fork nor here.
    """
    where = Where(file=source)
    several = bool(transform_param.further_resize_param)
    for name in ("noise_param",) if several else ("resize_param", "noise_param"):
        if getattr(transform_param, name).HasField("prob") and getattr(transform_param, name).prob != 1:
            _log.warning("%s: transform_param.%s.prob has no effect, as in the fork", source, name)
    for size in every_size(transform_param):
        if not 0 < size.height * size.width * 3 <= MAX_PICTURE_VALUES:
            raise LayerParamError(
                f"transform_param.resize_param has height {size.height} and width {size.width}",
                where=where,
                fix=f"write both, in pixels: at most {MAX_PICTURE_VALUES // 3} in all",
            )
    if transform_param.HasField("noise_param"):
        noise = transform_param.noise_param
        if noise.saltpepper and not (0 <= noise.saltpepper_param.fraction <= 1 and noise.saltpepper_param.value):
            raise LayerParamError(
                "transform_param.noise_param.saltpepper needs saltpepper_param with a fraction of 0 to 1 and a value",
                where=where,
                fix="write saltpepper_param { fraction: 0.01 value: 0 }",
            )
        if noise.convert_to_hsv and noise.convert_to_lab:
            raise LayerParamError(
                "transform_param.noise_param: convert_to_hsv and convert_to_lab are both set",
                where=where,
                fix="keep one of them",
            )
    distort = transform_param.distort_param
    for field in ("contrast", "saturation"):
        lower, upper = getattr(distort, f"{field}_lower"), getattr(distort, f"{field}_upper")
        if not 0 <= lower <= upper:
            raise LayerParamError(
                f"transform_param.distort_param has {field}_lower {lower:g} and {field}_upper {upper:g}",
                where=where,
                fix=f"write 0 <= {field}_lower <= {field}_upper",
            )
    for field in ("brightness_delta", "hue_delta"):
        if not getattr(distort, field) >= 0:
            raise LayerParamError(
                f"transform_param.distort_param.{field} is {getattr(distort, field):g}",
                where=where,
                fix="write 0 or more",
            )
    if transform_param.HasField("expand_param"):
        ratio = transform_param.expand_param.max_expand_ratio
        if not 1 < ratio < np.inf:
            raise LayerParamError(
                f"transform_param.expand_param.max_expand_ratio is {ratio:g}",
                where=where,
                fix="write a number above 1, or remove expand_param",
            )
        if transform_param.mean_file:
            raise LayerParamError(
                "transform_param.expand_param fills the canvas with mean_value, but there is a mean_file",
                where=where,
                fix="write mean_value instead",
            )


def per_channel(values: list[float], channels: int, what: str) -> list[float]:
    """Return one value per channel; a single one counts for all, none as 0. Raises LayerParamError."""
    if len(values) not in (0, 1, channels):
        raise LayerParamError(
            f"transform_param.{what}: {len(values)} values for {channels} channels",
            fix=f"give one value, or {channels}",
        )
    return values if len(values) == channels else (values or [0.0]) * channels


def channels_of(image: np.ndarray) -> int:
    """Return the number of channels of a picture."""
    return 1 if image.ndim == 2 else image.shape[2]


# -- size ------------------------------------------------------------------------------------------------------------
def resized_size(param: ResizeParameter, height: int, width: int) -> tuple[int, int]:
    """Return the height and width that a picture gets."""
    if param.resize_mode == ResizeParameter.FIT_SMALL_SIZE:
        return _in_proportion(param, height, width, larger=True)
    return param.height, param.width


def _in_proportion(param: ResizeParameter, height: int, width: int, *, larger: bool) -> tuple[int, int]:
    """Return the size in the proportions of height x width of which one side is that of `param`, and the other is
    larger, or is not."""
    aspect = np.float32(width) / np.float32(height)
    narrow = aspect < np.float32(param.width) / np.float32(param.height)
    if narrow == larger:
        return max(int(np.float32(param.width) / aspect), 1), param.width
    return param.height, max(int(aspect * np.float32(param.height)), 1)


def resize(image: np.ndarray, param: ResizeParameter, rng: np.random.Generator) -> np.ndarray:
    """Return the picture in the size that `param` says, by one of its interp_modes, at random.

    Raises: DataError for a picture that OpenCV does not resize; LayerParamError for another number of pad_values.
    """
    import cv2

    modes = {
        ResizeParameter.LINEAR: cv2.INTER_LINEAR,
        ResizeParameter.AREA: cv2.INTER_AREA,
        ResizeParameter.NEAREST: cv2.INTER_NEAREST,
        ResizeParameter.CUBIC: cv2.INTER_CUBIC,
        ResizeParameter.LANCZOS4: cv2.INTER_LANCZOS4,
    }
    named = list(param.interp_mode) or [ResizeParameter.LINEAR]
    mode = modes[named[int(rng.integers(len(named)))]]
    height, width = image.shape[:2]
    pads = param.resize_mode == ResizeParameter.FIT_LARGE_SIZE_AND_PAD
    size = _in_proportion(param, height, width, larger=False) if pads else resized_size(param, height, width)
    out: np.ndarray = cv2.resize(image, size[::-1], interpolation=mode)
    if not pads:
        return out
    top, left = (param.height - size[0]) // 2, (param.width - size[1]) // 2
    border = {
        ResizeParameter.CONSTANT: cv2.BORDER_CONSTANT,
        ResizeParameter.MIRRORED: cv2.BORDER_REFLECT_101,
        ResizeParameter.REPEAT_NEAREST: cv2.BORDER_REPLICATE,
    }[param.pad_mode]
    value = per_channel(list(param.pad_value), channels_of(image), "resize_param.pad_value")
    edges = (top, param.height - size[0] - top, left, param.width - size[1] - left)
    return np.asarray(cv2.copyMakeBorder(out, *edges, border, value=value))


# -- noise -----------------------------------------------------------------------------------------------------------
def add_noise(image: np.ndarray, param: NoiseParameter, rng: np.random.Generator) -> np.ndarray:
    """Return a uint8 picture of 1 or 3 channels with the changes of `param`, which are not random but for saltpepper.

    convert_to_lab gives float32, L in 0 .. 100 (the fork reads the bytes of these numbers).
    Raises: DataError for other channels, or a conversion of colours of a gray picture; LayerParamError for another
    number of values.
    """
    import cv2

    colour = channels_of(image) == 3
    if not colour and channels_of(image) != 1:
        raise DataError(
            f"noise_param changes pictures of 1 or 3 channels, not {channels_of(image)}",
            fix="set transform_param.force_color: true",
        )
    if param.decolorize and colour:
        image = cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY), cv2.COLOR_GRAY2BGR)
    if param.gauss_blur:
        image = cv2.GaussianBlur(image, (7, 7), 1.5)
    if param.hist_eq:
        image = _on_brightness(image, cv2.equalizeHist)
    if param.clahe:
        image = _on_brightness(image, cv2.createCLAHE(clipLimit=4).apply)
    if param.jpeg > 0:
        _, data = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, int(param.jpeg)])
        image = np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR if colour else cv2.IMREAD_GRAYSCALE))
    if param.erode:
        image = cv2.erode(image, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (3, 3)))
    if param.posterize:
        image = image // 64 * 64 + 32
    if param.inverse:
        image = 255 - image
    if param.saltpepper:
        image = _salted(image, param, rng)
    if (param.convert_to_hsv or param.convert_to_lab) and not colour:
        raise DataError("a gray picture has no colours to convert", fix="set transform_param.force_color: true")
    if param.convert_to_hsv:
        image = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    if param.convert_to_lab:
        image = cv2.cvtColor(image.astype(np.float32) * np.float32(1 / 255), cv2.COLOR_BGR2LAB)
    return np.asarray(image)


def _on_brightness(image: np.ndarray, change: object) -> np.ndarray:
    """Change the brightness of a picture: of a colour picture the Y of YCrCb."""
    import cv2

    assert callable(change)
    if channels_of(image) == 1:
        return np.asarray(change(image)).reshape(image.shape)
    planes = list(cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2YCrCb)))
    planes[0] = change(planes[0])
    return np.asarray(cv2.cvtColor(cv2.merge(planes), cv2.COLOR_YCrCb2BGR))


def _salted(image: np.ndarray, param: NoiseParameter, rng: np.random.Generator) -> np.ndarray:
    """Overwrite fraction * height * width pixels, drawn with replacement."""
    height, width = image.shape[:2]
    salt = param.saltpepper_param
    values = per_channel(list(salt.value), channels_of(image), "noise_param.saltpepper_param.value")
    count = int(np.float32(salt.fraction) * np.float32(width) * np.float32(height))
    image = image.copy()
    rows, columns = rng.integers(height, size=count), rng.integers(width, size=count)
    image[rows, columns] = values[0] if image.ndim == 2 else values
    return image


# -- colours ---------------------------------------------------------------------------------------------------------
def distort(image: np.ndarray, param: DistortionParameter, rng: np.random.Generator) -> np.ndarray:
    """Return a uint8 picture with other colours: brightness, contrast, saturation, hue, order of channels, each with
    its probability. Contrast comes second or, as probably, after hue.

    Raises: DataError for a change of saturation, hue or order where there are no 3 channels.
    """
    prob = rng.random(6)
    delta = {
        "brightness": rng.uniform(-param.brightness_delta, param.brightness_delta),
        "contrast": rng.uniform(param.contrast_lower, param.contrast_upper),
        "saturation": rng.uniform(param.saturation_lower, param.saturation_upper),
        "hue": rng.uniform(-param.hue_delta, param.hue_delta),
    }
    order = rng.permutation(3)
    early = prob[0] > 0.5
    names = ["brightness", *(["contrast"] if early else []), "saturation", "hue", *([] if early else ["contrast"])]
    chances = dict(zip(("brightness", "contrast", "saturation", "hue"), prob[1:5], strict=True))
    needs_colours = param.saturation_prob > 0 or param.hue_prob > 0 or param.random_order_prob > 0
    if needs_colours and channels_of(image) != 3:
        raise DataError(
            f"distort_param changes colours, but the picture has {channels_of(image)} channels",
            fix="set transform_param.force_color: true",
        )
    for name in names:
        if chances[name] < getattr(param, f"{name}_prob"):
            image = _ADJUST[name](image, delta[name])
    if prob[5] < param.random_order_prob:
        image = np.ascontiguousarray(image[:, :, order])
    return image


def adjust_brightness(image: np.ndarray, delta: float) -> np.ndarray:
    """Return the picture with delta added to every value, within 0 .. 255."""
    return _looked_up(image, _SATURATED + np.float32(delta))


def adjust_contrast(image: np.ndarray, factor: float) -> np.ndarray:
    """Return the picture with every value times a factor, within 0 .. 255; a factor within 0.001 of 1 has no effect."""
    return image if abs(factor - 1) <= 1e-3 else _looked_up(image, _SATURATED * np.float32(factor))


def adjust_saturation(image: np.ndarray, factor: float) -> np.ndarray:
    """Return a picture of 3 channels whose saturation (S of HSV) is multiplied by a factor."""
    return _on_hsv(image, 1, _SATURATED * np.float32(factor))


def adjust_hue(image: np.ndarray, delta: float) -> np.ndarray:
    """Return a picture of 3 channels with delta added to its hue (H of HSV, 0 .. 179), within 0 .. 255 as in OpenCV."""
    return _on_hsv(image, 0, _SATURATED + np.float32(delta)) if delta else image


_ADJUST = {
    "brightness": adjust_brightness,
    "contrast": adjust_contrast,
    "saturation": adjust_saturation,
    "hue": adjust_hue,
}


def _looked_up(image: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Replace each byte b by values[b], rounded as OpenCV does and within 0 .. 255."""
    import cv2

    table = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return np.asarray(cv2.LUT(image, table)).reshape(image.shape)


def _on_hsv(image: np.ndarray, channel: int, values: np.ndarray) -> np.ndarray:
    import cv2

    hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    hsv[..., channel] = _looked_up(np.ascontiguousarray(hsv[..., channel]), values)
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2BGR))


# -- a larger canvas -------------------------------------------------------------------------------------------------
def expand(
    array: np.ndarray, max_ratio: float, fill: list[float], rng: np.random.Generator
) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """Return a picture (C, H, W) at a random place on a canvas, and the canvas as a box in fractions of the picture.

    Args:
        max_ratio: the canvas has the picture's sides times a number drawn from 1 to this.
        fill: value of each channel of the canvas elsewhere.
    """
    channels, height, width = array.shape
    ratio = np.float32(rng.uniform(1, max_ratio))
    tall, wide = int(height * ratio), int(width * ratio)
    top, left = int(rng.uniform(0, tall - height)), int(rng.uniform(0, wide - width))
    canvas = np.empty((channels, tall, wide), array.dtype)
    colour = np.clip(np.rint(fill), 0, 255) if array.dtype == np.uint8 else np.asarray(fill)
    canvas[...] = colour[:, None, None]
    canvas[:, top : top + height, left : left + width] = array
    return canvas, (-left / width, -top / height, (wide - left) / width, (tall - top) / height)
