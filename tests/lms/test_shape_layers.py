"""Layers that cut, repeat, choose and add up, in one net: the same training with Large Model Support and without."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig

from . import nets


def _layer(kind, name, bottoms, tops="", more=""):
    lines = "".join(f' bottom: "{b}"' for b in bottoms.split()) + "".join(
        f' top: "{t}"' for t in (tops or name).split()
    )
    return f'layer {{ name: "{name}" type: "{kind}"{lines} {more} }}\n'


_TABLE = 'param { name: "table" } parameter_param { shape { dim: 4 dim: 6 } }'

NET = (
    nets._DATA
    + _layer("DummyData", "index", "", more="dummy_data_param { shape { dim: 4 } data_filler { value: 2.5 } }")
    + nets.conv("conv1", "data", 6)
    + _layer("MVN", "mvn", "conv1", "conv1")
    + _layer("Slice", "slice", "conv1", "s0 s1 s2")
    + _layer("ArgMax", "best", "s2", more="argmax_param { axis: 1 }")  # so s2 has no gradient
    + _layer("Silence", "quiet", "best").replace(' top: "quiet"', "")
    + nets._pool("pool", "s1")
    + _layer("Crop", "crop", "s0 pool", more="crop_param { offset: 3 }")  # pool learns through the sum alone
    + _layer("Eltwise", "sum", "crop pool")
    + _layer("Tile", "tile", "sum", more="tile_param { tiles: 3 }")
    + _layer("BatchReindex", "choice", "tile index")
    + _layer("Embed", "words", "label", more=f"embed_param {{ num_output: 6 input_dim: 5 {nets._FILL} }}")
    + _layer("Parameter", "free", "", more=_TABLE)
    + _layer("Parameter", "again", "", more=_TABLE)
    + _layer("Bias", "b1", "tile words", more="bias_param { axis: 0 }")
    + _layer("Bias", "b2", "b1 free", more="bias_param { axis: 0 }")
    + _layer("Bias", "b3", "b2 again", more="bias_param { axis: 0 }")
    + _layer("Eltwise", "all", "b3 choice")
    + _layer("Reduction", "size", "all", more="reduction_param { operation: SUMSQ coeff: 0.01 } loss_weight: 0.1")
    + nets.head("all")
)


@pytest.fixture(autouse=True)
def the_net(monkeypatch):
    monkeypatch.setitem(nets.NETS, "shapes", NET)


def _train(device=None, lms=None):
    return nets.train(nets.make_solver("shapes", device, lms), 3)


def test_it_trains_alike_on_both_devices():
    losses, _ = _train()
    assert len(set(losses)) == 3 and np.isfinite(losses).all()
    assert _train(get_device("cpu"))[0] == pytest.approx(losses, rel=1e-5)


@pytest.mark.parametrize("seed", range(12))
def test_lms_changes_no_bit(seed):
    device = SimDevice(64 << 20, order="random", seed=seed)
    lms = LMSConfig(threshold_kb=1, ahead=(0, 1, 32)[seed % 3])
    assert _train(device, lms) == _train()
    assert device.bytes_in > 0


def test_a_shared_parameter_collects_the_gradients_of_both_tops():
    solver = nets.make_solver("shapes", get_device("cpu"))
    solver.step(1)
    net = solver.net
    net.clear_param_diffs()
    net.forward_range()
    net.backward_range()
    parts = [net.blobs[name].read_diff() for name in ("free", "again")]
    assert np.abs(parts[0]).max() > 0
    np.testing.assert_allclose(net.params["free"][0].read_diff(), parts[0] + parts[1], rtol=1e-6)
