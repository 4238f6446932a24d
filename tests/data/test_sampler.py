"""Drawn boxes: shapes, constraints and numbers over many seeds, distributions against their formulas."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from pycaffe_lms.data.transform.sampler import check_sampler, draw_boxes
from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.proto.caffe_pb2 import BatchSampler
from tests.data.test_boxes import area, shared

OBJECTS = np.array([[0.1, 0.1, 0.4, 0.5], [0.5, 0.55, 0.95, 0.9], [0.3, 0.3, 0.35, 0.9]], np.float32)
SHAPES = "sampler { min_scale: 0.3 max_scale: 0.9 min_aspect_ratio: 0.5 max_aspect_ratio: 2 }"


def sampler(text):
    return text_format.Parse(text, BatchSampler())


def draw(text, seed=0, objects=OBJECTS):
    return draw_boxes([sampler(text)], objects, np.random.default_rng(seed)).astype(np.float64)


def measure(name, box, one):
    common = shared(box, one)
    whole = {
        "jaccard_overlap": area(box) + area(one) - common,
        "sample_coverage": area(box),
        "object_coverage": area(one),
    }
    return common / whole[name]


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32),
    names=st.sets(st.sampled_from(["jaccard_overlap", "sample_coverage", "object_coverage"]), min_size=1),
    low=st.sampled_from([None, 0.1, 0.3]),
    high=st.sampled_from([None, 0.4, 0.8]),
    most=st.sampled_from([None, 0, 1, 3]),
)
def test_every_box_obeys_over_seeds(seed, names, low, high, most):
    parts = [f"{end}_{n}: {v}" for n in sorted(names) for end, v in (("min", low), ("max", high)) if v is not None]
    text = f"{SHAPES} sample_constraint {{ {' '.join(parts)} }}"
    found = draw(text if most is None else f"{text} max_sample: {most}", seed)
    everything = draw(SHAPES, seed)
    assert len(everything) == 100  # max_trials
    good = [
        box
        for box in everything
        if not parts
        or any(all((low or 0) - 1e-6 <= measure(n, box, one) <= (high or 1) + 1e-6 for n in names) for one in OBJECTS)
    ]
    np.testing.assert_array_equal(found, np.array(good).reshape(-1, 4)[: len(good) if most is None else most])


def test_shapes_and_places():
    found = np.concatenate([draw(SHAPES, seed) for seed in range(100)])
    assert (found >= 0).all() and (found <= 1).all()
    wide, tall = (found[:, 2:] - found[:, :2]).T
    scale, ratio = np.sqrt(wide * tall), wide / tall
    assert scale.min() >= 0.3 - 1e-5 and scale.max() <= 0.9 + 1e-5
    assert ratio.min() >= 0.5 - 1e-4 and ratio.max() <= 2 + 1e-4
    # uniform: mean (a + b) / 2 and deviation (b - a) / sqrt(12), within 5 standard errors of 10,000 draws
    x, y = found[wide < 0.95, 0] / (1 - wide[wide < 0.95]), found[tall < 0.95, 1] / (1 - tall[tall < 0.95])
    for values, a, b in ((scale, 0.3, 0.9), (x, 0, 1), (y, 0, 1)):
        assert abs(values.mean() - (a + b) / 2) < 5 * (b - a) / np.sqrt(12 * len(values))
        assert abs(values.std() - (b - a) / np.sqrt(12)) < 0.01
    limits = np.maximum(ratio / scale**2, 1 / (ratio * scale**2))
    assert ((scale**2 - 1e-4 <= ratio) & (ratio <= 1 / scale**2 + 1e-3)).all() and limits.min() >= 1 - 1e-4


def test_a_ratio_is_limited_so_that_the_box_fits():
    found = draw("sampler { min_scale: 0.9 max_scale: 0.9 min_aspect_ratio: 9 max_aspect_ratio: 9 }")
    np.testing.assert_allclose(found[:, [0, 2]], [[0, 1]] * 100, atol=1e-6)  # ratio 1 / 0.81: as wide as the picture
    np.testing.assert_allclose(found[:, 3] - found[:, 1], 0.81, atol=1e-6)


def test_without_sampler_the_box_is_the_picture():
    np.testing.assert_array_equal(draw("max_sample: 1 max_trials: 1"), [[0, 0, 1, 1]])


def test_counts():
    samplers = [sampler("max_trials: 3"), sampler(f"{SHAPES} max_trials: 5 max_sample: 2"), sampler(SHAPES)]
    samplers[2].use_original_image = False
    assert len(draw_boxes(samplers, OBJECTS, np.random.default_rng(0))) == 5
    nothing = np.empty((0, 4), np.float32)
    assert len(draw("max_trials: 3", objects=nothing)) == 3
    assert len(draw("max_trials: 3 sample_constraint { min_object_coverage: 0 }", objects=nothing)) == 0


@pytest.mark.parametrize(
    "text, words",
    [
        ("min_scale: 0.5 max_scale: 0.4", "number 2 draws scales 0.5 to 0.4"),
        ("min_scale: 0", "scales 0 to 1"),
        ("max_scale: 1.5", "scales 1 to 1.5"),
        ("min_aspect_ratio: 3", "aspect ratios 3 to 1"),
        ("min_aspect_ratio: -1", "aspect ratios -1 to 1"),
        ("max_aspect_ratio: inf", "aspect ratios 1 to inf"),
    ],
)
def test_wrong_ranges(text, words):
    with pytest.raises(LayerParamError, match=words) as caught:
        check_sampler(sampler(f"sampler {{ {text} }}"), 2)
    assert caught.value.fix
