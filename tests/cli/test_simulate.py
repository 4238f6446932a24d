"""`plan` as a simulator: -gpu, -sweep, -json."""

from __future__ import annotations

import json

import pytest

from pycaffe_lms.cli import plan, simulate
from pycaffe_lms.errors import UsageError
from pycaffe_lms.lms.machine import MACHINES
from pycaffe_lms.proto.caffe_pb2 import NetParameter

NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 dim: 16 dim: 16 } shape { dim: 4 } data_filler { type: "uniform" } data_filler { type: "constant" } } }
layer { name: "c1" type: "Convolution" bottom: "data" top: "c1" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" }
layer { name: "c2" type: "Convolution" bottom: "c1" top: "c2" convolution_param { num_output: 16 kernel_size: 3 pad: 1 } }
layer { name: "r2" type: "ReLU" bottom: "c2" top: "c2" }
layer { name: "fc" type: "InnerProduct" bottom: "c2" top: "fc" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""  # noqa: E501


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "small.prototxt"
    path.write_text(NET)
    return path


def _numbers(model, tmp_path, *flags):
    out = tmp_path / "out.json"
    assert plan.run(["--model", str(model), "--workspace", "64KB", "--json", str(out), *flags]) == 0
    return json.loads(out.read_text())


def test_memory_grows_with_the_batch_and_the_largest_that_fits_is_named(model, tmp_path, capsys):
    found = _numbers(model, tmp_path, "-gpu", "h200", "-sweep", "batch=8..64", "-lms", "auto")
    assert [o["batch"] for o in found] == [8, 16, 32, 64]
    cores = [o["core"] for o in found]
    activations = 16 * 16 * 16 * 4  # of one image, of one convolution
    for small, large, b in zip(cores, cores[1:], (8, 16, 32), strict=False):
        assert large - small >= 2 * b * activations  # two tops at least stay until backward
    assert all(o["least"] <= o["core"] for o in found)
    budget = cores[2]
    fitted = _numbers(
        model, tmp_path, "-gpu", "h200", "-sweep", "batch=8..64", "-lms", "auto", "-lms_budget", str(budget)
    )
    ran = [o for o in fitted if not o["refused"]]
    assert f": {ran[-1]['batch']}" in capsys.readouterr().out.splitlines()[-2]
    assert len(ran) >= 3 and all(o["device"] <= budget and o["seconds"] >= o["core_seconds"] > 0 for o in ran)
    assert ran[0]["core"] < budget / 2 and not ran[0]["bytes_out"] and not ran[0]["replayed"]
    assert all(o["bytes_out"] or o["replayed"] for o in ran if o["core"] > budget)


def test_a_slower_gpu_takes_longer(model, tmp_path):
    (fast,) = _numbers(model, tmp_path, "-gpu", "h200", "-sweep", "batch=512")
    (slow,) = _numbers(model, tmp_path, "-gpu", "t4", "-sweep", "batch=512")
    assert slow["seconds"] > 2 * fast["seconds"] and slow["core"] == fast["core"]


def test_without_lms_it_says_whether_the_net_fits(model, tmp_path):
    (small,) = _numbers(model, tmp_path, "-lms_budget", "1MB", "-sweep", "batch=2")
    (large,) = _numbers(model, tmp_path, "-lms_budget", "1MB", "-sweep", "batch=64")
    assert small["refused"] == "" and small["core"] <= 1 << 20
    assert large["refused"] == "does not fit without -lms" and large["core"] > 1 << 20


def test_a_machine_of_ones_own(model, tmp_path):
    own = tmp_path / "mine.json"
    fields = {"memory": 1 << 30, "memory_rate": 1e12, "product_rate": 1e13, "link_in": 1e10, "link_out": 1e10,
              "link_both": 1e10}  # fmt: skip
    own.write_text(json.dumps(fields))
    (found,) = _numbers(model, tmp_path, "-gpu", str(own))
    assert found["batch"] == 4 and found["seconds"] > 0
    own.write_text(json.dumps(fields | {"link_in": -1}))
    with pytest.raises(UsageError, match="link_in"):
        plan.run(["--model", str(model), "-gpu", str(own)])


@pytest.mark.parametrize("flags, match", [
    (["-gpu", "0"], "is not known"),
    (["-gpu", "h200", "-sweep", "8"], "is not a range"),
    (["-gpu", "h200", "-sweep", "batch=9..8"], "is not a range"),
])  # fmt: skip
def test_what_a_user_gets_wrong(model, flags, match):
    with pytest.raises(UsageError, match=match):
        plan.run(["--model", str(model), *flags])


def test_ranges_of_batches():
    assert simulate.batches("batch=8..512") == [8, 16, 32, 64, 128, 256, 512]
    assert simulate.batches("batch=3,5") == [3, 5]


def test_a_batch_is_set_wherever_data_come_from():
    net = NetParameter()
    net.layer.add(name="d", type="Data", top=["data"]).data_param.batch_size = 7
    net.layer.add(name="i", type="Input", top=["x"]).input_param.shape.add(dim=[7, 3])
    assert simulate.first_batch(net) == 7
    changed = simulate.with_batch(net, 12)
    assert changed.layer[0].data_param.batch_size == 12 and list(changed.layer[1].input_param.shape[0].dim) == [12, 3]
    assert net.layer[0].data_param.batch_size == 7


def test_times_come_from_bytes_and_products():
    """By hand, for an H200: 3.8 TB/s, 240 TFLOP/s, 8 us at least."""
    h200 = MACHINES["h200"]
    assert h200.step_seconds(int(3.8e12), 0) == pytest.approx(1.000008)
    assert h200.step_seconds(0, int(240e12)) == pytest.approx(1.000008)
    assert h200.copy_seconds(int(55.4e9), out=False) == pytest.approx(1.000008)
    assert h200.copy_seconds(int(50.8e9), out=False, both=True) == pytest.approx(1.000008)
