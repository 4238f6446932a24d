"""SPP against Pooling level by level, shapes, gradients, new input sizes, checks."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench, check_gradient

CASES: list[Case] = [
    Case("SPP", f"spp_param {{ pool: {method} pyramid_height: {height} }}", (shape,))
    for method in ("MAX", "AVE")
    for height, shape in (
        (1, (2, 3, 5, 4)),
        (2, (2, 3, 3, 5)),
        (3, (2, 2, 7, 8)),
        (3, (1, 2, 11, 4)),
        (2, (0, 3, 4, 4)),
    )
]


def by_pooling(x, param):
    """Return the top, from one Pooling layer per level."""
    parts = []
    for level in range(param.pyramid_height):
        bins = 2**level
        kernel = [int(np.ceil(n / bins)) for n in x.shape[2:]]
        pad = [(k * bins - n + 1) // 2 for k, n in zip(kernel, x.shape[2:], strict=True)]
        fields = " ".join(
            f"{f}_h: {v[0]} {f}_w: {v[1]}" for f, v in (("kernel", kernel), ("stride", kernel), ("pad", pad))
        )
        pool = LayerBench("Pooling", f"pooling_param {{ pool: {'AVE' if param.pool else 'MAX'} {fields} }}", (x.shape,))
        (y,) = pool.forward([x])
        assert y.shape == (*x.shape[:2], bins, bins)
        parts.append(y)
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([p.reshape(len(x), p[0].size if len(x) else p.shape[1] * p.shape[2] ** 2) for p in parts], 1)


@pytest.mark.parametrize("needs_backward", [True, False])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_forward_is_pooling_at_every_level(case, needs_backward):
    (x,) = case.make_bottoms(np.random.default_rng(3))
    bench = LayerBench("SPP", case.text, case.shapes, needs_backward=needs_backward)
    np.testing.assert_array_equal(bench.forward([x])[0], by_pooling(x, bench.layer.param.spp_param))
    assert ("mask0" in bench.scratch) == (needs_backward and "MAX" in case.text)


@pytest.mark.parametrize("case", [c for c in CASES if c.shapes[0][0]], ids=str)
def test_gradient(case):
    shape = case.shapes[0]
    x = np.random.default_rng(4).permutation(int(np.prod(shape))).reshape(shape) * 0.01  # no kink in reach
    check_gradient(case.bench(), [x])


def test_small_numbers_by_hand():
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    for method, expected in (("MAX", [15, 5, 7, 13, 15]), ("AVE", [7.5, 2.5, 4.5, 10.5, 12.5])):
        bench = LayerBench("SPP", f"spp_param {{ pyramid_height: 2 pool: {method} }}", ((1, 1, 4, 4),))
        assert bench.forward([x])[0].tolist() == [expected]


def test_the_width_does_not_depend_on_the_input_size():
    bench = LayerBench("SPP", "spp_param { pyramid_height: 3 }", ((3, 9, 35, 28),))
    assert bench.top_shapes == [(3, 9 * 21)]
    bench.reshape([(1, 9, 7, 8)])
    x = np.random.default_rng(5).normal(size=(1, 9, 7, 8))
    np.testing.assert_array_equal(bench.forward([x])[0], by_pooling(x, bench.layer.param.spp_param))


def test_backward_reads_no_data():
    for case in CASES:
        needs = case.bench().layer.backward_needs([True], [])
        assert not (needs.bottoms or needs.tops or needs.params)


@pytest.mark.parametrize(
    "fields, shape, kind, words",
    [
        ("", (1, 1, 4, 4), LayerParamError, "pyramid_height is not set"),
        ("pyramid_height: 2 pool: STOCHASTIC", (1, 1, 4, 4), LayerParamError, "no stochastic pooling"),
        ("pyramid_height: 2", (1, 4, 4), ShapeError, "4 axes"),
        ("pyramid_height: 3", (1, 1, 5, 8), ShapeError, "too small for level 2"),
        ("pyramid_height: 40", (1, 1, 5, 8), ShapeError, "too small for level 2"),
        ("pyramid_height: 1", (1, 1, 0, 8), ShapeError, "too small for level 0"),
    ],
)
def test_what_cannot_be_names_the_layer(fields, shape, kind, words):
    with pytest.raises(kind) as caught:
        LayerBench("SPP", f'name: "s" spp_param {{ {fields} }}', (shape,))
    assert words in str(caught.value) and 'layer "s" (SPP)' in str(caught.value) and caught.value.fix
