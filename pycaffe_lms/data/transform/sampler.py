"""Draw boxes within a picture at random, to which SSD crops it (`batch_sampler`).

Source: weiliu89/caffe (SSD), src/caffe/util/sampler.cpp (behaviour).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import LayerParamError
from ...proto.caffe_pb2 import BatchSampler, SampleConstraint, Sampler
from .boxes import coverages, jaccard_overlaps

_MEASURES = ("jaccard_overlap", "sample_coverage", "object_coverage")


def check_sampler(batch_sampler: BatchSampler, number: int) -> None:
    """Raise LayerParamError for scales and ratios that cannot be drawn. number: of the sampler, from 1."""
    p = batch_sampler.sampler
    for right, said, fix in (
        (
            0 < p.min_scale <= p.max_scale <= 1,
            f"scales {p.min_scale:g} to {p.max_scale:g}",
            "0 < min_scale <= max_scale <= 1",
        ),
        (
            0 < p.min_aspect_ratio <= p.max_aspect_ratio < np.inf,
            f"aspect ratios {p.min_aspect_ratio:g} to {p.max_aspect_ratio:g}",
            "0 < min_aspect_ratio <= max_aspect_ratio",
        ),
    ):
        if not right:
            raise LayerParamError(
                f"annotated_data_param.batch_sampler number {number} draws {said}", fix=f"write {fix}"
            )


def draw_boxes(samplers: Sequence[BatchSampler], objects: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return float32 (n, 4): the boxes that all samplers draw, in order, of which each fulfils its constraint.

    objects: float32 (m, 4), the objects of the picture.
    """
    found = [np.empty((0, 4), np.float32)]
    for sampler in samplers:
        if sampler.use_original_image:
            drawn = _candidates(sampler.sampler, sampler.max_trials, rng)
            good = drawn[satisfies(drawn, objects, sampler.sample_constraint)]
            found.append(good[: sampler.max_sample] if sampler.HasField("max_sample") else good)
    return np.concatenate(found)


def jittered(jitter: float, square: bool, rng: np.random.Generator) -> np.ndarray:
    """Return float32 (1, 4): a box of the picture, as MobileNet-YOLO draws it.

    In three of five pictures each side is 1 - jitter to 1 times that of the picture, in one 1 - jitter / 2 to 1, and
    in one the picture is whole. square: both sides are the same fraction.
    Source: eric612/MobileNet-YOLO, src/caffe/util/sampler.cpp (GenerateJitterSamples).
    """
    kind, width, height, x, y = rng.random(5, dtype=np.float32)
    most = 0.0 if kind < 0.2 else jitter / 2 if kind < 0.4 else jitter
    size = 1 - most * np.array([width, width if square else height])
    low = np.array([x, y]) * (1 - size)
    return np.concatenate([low, np.minimum(low + size, 1)], dtype=np.float32)[None]


def _candidates(param: Sampler, count: int, rng: np.random.Generator) -> np.ndarray:
    """Draw boxes: their scale and their ratio, each from its range, then their place. A ratio is limited so that the
    box fits."""
    scale, ratio, x, y = rng.random((4, count), dtype=np.float32)
    scale = np.clip(param.min_scale + scale * (param.max_scale - param.min_scale), param.min_scale, param.max_scale)
    ratio = param.min_aspect_ratio + ratio * (param.max_aspect_ratio - param.min_aspect_ratio)
    ratio = np.sqrt(np.clip(ratio, scale**2, 1 / scale**2))
    size = np.minimum(np.stack([scale * ratio, scale / ratio], axis=1), 1)
    low = np.stack([x, y], axis=1) * (1 - size)
    return np.concatenate([low, np.minimum(low + size, 1)], axis=1, dtype=np.float32)


def satisfies(boxes: np.ndarray, objects: np.ndarray, constraint: SampleConstraint) -> np.ndarray:
    """Return for each of the boxes (n, 4) whether one of the objects (m, 4) meets all parts of the constraint with it.

    Without parts, every box does. (In the fork, of a constraint with several kinds of parts the first kind may be met
    by one object and the others by none.)
    """
    given = [name for name in _MEASURES if any(constraint.HasField(f"{end}_{name}") for end in ("min", "max"))]
    if not given:
        return np.ones(len(boxes), bool)
    drawn, here = boxes[:, None], objects[None]
    good = np.ones((len(boxes), len(objects)), bool)
    for name in given:
        if name == "jaccard_overlap":
            value = jaccard_overlaps(drawn, here)
        else:
            value = coverages(drawn, here) if name == "sample_coverage" else coverages(here, drawn)
        if constraint.HasField(f"min_{name}"):
            good &= value >= np.float32(getattr(constraint, f"min_{name}"))
        if constraint.HasField(f"max_{name}"):
            good &= value <= np.float32(getattr(constraint, f"max_{name}"))
    return np.asarray(good.any(axis=1))
