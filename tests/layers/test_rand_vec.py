"""RandVec: its shape, its distribution, and which forwards get the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms import TRAIN, Net
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError
from pycaffe_lms.formats.prototxt.parser import parse_net
from pycaffe_lms.lms.config import LMSConfig

from .cases import Case
from .harness import LayerBench

CASES: list[Case] = [
    Case("RandVec", "randvec_param { batch_size: 5 dim: 3 }", ()),
    Case("RandVec", "rand_vec_param { batch_size: 2 dim: 3 height: 2 width: 4 repeat: 3 lower: 0 upper: 2 }", ()),
]


def test_shape_and_distribution():
    bench = LayerBench("RandVec", "randvec_param { batch_size: 200 dim: 50 lower: -3 upper: 1 }", ())
    (values,) = bench.forward([])
    assert values.shape == (200, 50) and values.min() >= -3 and values.max() <= 1
    counts, _ = np.histogram(values, 8, (-3, 1))
    assert np.abs(counts - 1250).max() < 5 * np.sqrt(1250)  # five deviations of a count
    assert LayerBench("RandVec", "", ()).top_shapes == [(64, 100)]
    assert CASES[1].bench().top_shapes == [(2, 3, 2, 4)]


NET = """
layer { name: "z" type: "RandVec" top: "z" rand_vec_param { batch_size: 4 dim: 6 repeat: 2 } }
layer { name: "ip" type: "InnerProduct" bottom: "z" top: "y" inner_product_param { num_output: 3
  weight_filler { type: "xavier" } } }
"""


def _forwards(**options):
    net = Net(parse_net(NET).message, TRAIN, seed=11, **options)
    found = []
    for _ in range(6):
        net.forward()
        found.append((net.blobs["z"].data.copy(), net.blobs["y"].data.copy()))
    net.close()
    return found


def test_two_forwards_each_get_the_same_numbers_on_every_device():
    plain = _forwards()
    same = [[np.array_equal(a[0], b[0]) for b in plain] for a in plain]
    assert same == [[i // 2 == j // 2 for j in range(6)] for i in range(6)]
    for lms in (None, LMSConfig(threshold_kb=0.01)):
        for ours, theirs in zip(plain, _forwards(device=SimDevice(64 << 20, order="random"), lms=lms), strict=True):
            assert all(map(np.array_equal, ours, theirs))


@pytest.mark.parametrize(
    "fields",
    [
        "randvec_param { dim: 0 }",
        "randvec_param { repeat: 0 }",
        "randvec_param { lower: 1 }",
        "randvec_param { height: 2 }",
        "randvec_param { } rand_vec_param { }",
    ],
)
def test_refused(fields):
    with pytest.raises(LayerParamError, match='layer "l"'):
        LayerBench("RandVec", fields, ())
