"""Reverse against NumPy's flip, and ContinuationIndicator."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms import Net
from pycaffe_lms.errors import LayerParamError, ShapeError

from .cases import Case
from .harness import LayerBench

TYPE = "Reverse"
CASES: list[Case] = [
    Case(TYPE, "", ((5, 3),)),
    Case(TYPE, "reverse_param { axis: 1 }", ((2, 7, 8),)),
    Case(TYPE, "reverse_param { axis: -1 }", ((2, 3, 33),)),
    Case(TYPE, "reverse_param { axis: 2 }", ((3, 50, 11, 6),)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_is_a_flip(case):
    bench, (x,) = case.bench(), case.make_bottoms(np.random.default_rng(1))
    axis = bench.layer.param.reverse_param.axis
    np.testing.assert_array_equal(bench.forward([x])[0], np.flip(x, axis))
    np.testing.assert_array_equal(bench.backward([x])[0][0], np.flip(x, axis))


@pytest.mark.parametrize(
    "text, shape, error", [("reverse_param { axis: 2 }", (2, 3), LayerParamError), ("", (), ShapeError)]
)
def test_refused(text, shape, error):
    with pytest.raises(error, match='layer "l"'):
        LayerBench(TYPE, text, (shape,))


MARKS = 'layer {{ name: "m" type: "ContinuationIndicator" top: "m" continuation_indicator_param {{ {} }} }}'


def test_marks_begin_every_sequence_anew(tmp_path):
    (tmp_path / "net.prototxt").write_text(MARKS.format("time_step: 3 batch_size: 2"))
    net = Net(str(tmp_path / "net.prototxt"), 1)
    net.forward()
    assert net.blobs["m"].data.tolist() == [[0, 0], [1, 1], [1, 1]]


@pytest.mark.parametrize("missing, fields", [("time_step", "batch_size: 2"), ("batch_size", "time_step: 2")])
def test_marks_need_sizes(missing, fields):
    with pytest.raises(LayerParamError, match=f"{missing} is 0"):
        LayerBench("ContinuationIndicator", f"continuation_indicator_param {{ {fields} }}")
