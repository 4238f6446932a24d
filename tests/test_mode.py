"""Tests settings of a thread: what pycaffe's module functions set, where it takes effect, and the log."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import asdict

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms import errors as caffe_errors
from pycaffe_lms.backend import cuda
from pycaffe_lms.errors import UsageError
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.pycaffe import mode

from .net.nets import inputs, ip, loss


@pytest.fixture(autouse=True)
def settings_come_back():
    before = everything()
    yield
    vars(mode.settings).update(before)


def in_a_thread(function):
    """Return what a function returns in a thread of its own."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join()
    return found[0]


def everything():
    return asdict(mode.settings)


def test_every_thread_begins_with_the_defaults():
    caffe.set_mode_gpu()
    caffe.set_device(3)
    caffe.set_random_seed(9)
    caffe.set_solver_count(4)
    caffe.set_solver_rank(2)
    caffe.set_multiprocess(True)
    mine = everything()
    assert (mine["backend"], mine["index"], mine["seed"], mine["multiprocess"]) == ("cuda", 3, 9, True)
    assert (caffe.solver_count(), caffe.solver_rank()) == (4, 2)
    other = in_a_thread(everything)
    assert other == {
        "backend": "cpu",
        "index": 0,
        "seed": None,
        "solver_count": 1,
        "solver_rank": 0,
        "multiprocess": False,
        "lms": None,
        "half": False,
        "join": None,
    }
    in_a_thread(caffe.set_mode_cpu)
    assert everything() == mine


def test_values_that_make_no_sense():
    for function, values in (
        (caffe.set_device, (-1, "0", 1.5)),
        (caffe.set_random_seed, (-1, 2**32, "3")),
        (caffe.set_solver_count, (0, -2, 1.5)),
        (caffe.set_solver_rank, (-1, None)),
        (caffe.set_lms, ("16GB", "autoo", 1.5, {})),
        (caffe.set_math, ("bfloat16", None, 16)),
        (caffe.init_log, (-1, 4, "INFO")),
        (caffe.set_mode_sim, (0, -1, 1.5, None, "16 apples", 2**63)),
        (lambda order: caffe.set_mode_sim(order=order), ("last", None, 1)),
        (lambda seed: caffe.set_mode_sim(seed=seed), (-1, 2**32, "3")),
    ):
        before = everything()
        for value in values:
            with pytest.raises(UsageError):
                function(value)
        assert everything() == before
    caffe.set_random_seed(np.int64(2**32 - 1))
    assert everything()["seed"] == 2**32 - 1


def test_ranks_deal_records(tmp_path):
    """A train net's layers know count and rank; a test net's read every record."""
    path = tmp_path / "net.prototxt"
    path.write_text('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 } } }')
    caffe.set_solver_count(3)
    caffe.set_solver_rank(2)
    net = caffe.Net(str(path), caffe.TRAIN)
    layer = net.graph.nodes[0].layer
    assert (net.solver_count, net.solver_rank, layer.context.solver_count, layer.context.solver_rank) == (3, 2, 3, 2)
    solver = tmp_path / "solver.prototxt"
    solver.write_text(f'net: "{path}" base_lr: 1 lr_policy: "fixed"')
    dealt = caffe.get_solver(str(solver)).net.graph.nodes[0].layer.context
    assert (dealt.solver_count, dealt.solver_rank) == (3, 2)
    tested = caffe.Net(str(path), caffe.TEST).graph.nodes[0].layer.context
    assert (tested.solver_count, tested.solver_rank) == (1, 0)


@pytest.mark.parametrize("available", [False, True])
def test_nccl_is_there_where_cupy_has_it(available, monkeypatch):
    monkeypatch.setattr(mode, "nccl_available", lambda: available)
    assert caffe.has_nccl() is available


@pytest.fixture
def no_handler():
    logger = logging.getLogger("pycaffe_lms")
    level = logger.level
    yield
    logger.removeHandler(mode._handler)
    logger.setLevel(level)
    mode._handler = None


def test_the_log(no_handler, capsys):
    caffe.log("unheard")
    caffe.init_log()
    caffe.log("heard 100%")
    caffe.init_log(1)
    caffe.log("too low")
    logging.getLogger("pycaffe_lms.x").warning("high enough")
    caffe.init_log(0, False)
    caffe.log("no file to write to")
    logging.getLogger("pycaffe_lms.x").error("an error")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == ["heard 100%", "high enough", "an error"]
    assert re.fullmatch(r"I\d{4} \d\d:\d\d:\d\d\.\d{6} \d+ \w+\.py:\d+\] heard 100%", lines[0])
    assert [line[0] for line in lines] == ["I", "W", "E"]


CONVOLUTION = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 }
  shape { dim: 2 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param { num_output: 4 kernel_size: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


def test_math_is_of_nets_and_solvers_that_are_made_next(tmp_path):
    net, solver = tmp_path / "net.prototxt", tmp_path / "solver.prototxt"
    net.write_text(CONVOLUTION)
    solver.write_text(f'net: "{net}" base_lr: 0.1 lr_policy: "fixed" snapshot_prefix: "{tmp_path}/x"')

    def halves():
        made = caffe.Net(str(net), caffe.TRAIN), caffe.SGDSolver(str(solver)).net
        tuned = caffe.Net(str(net), caffe.TRAIN, tuning=Tuning(fuse=False))
        assert not tuned.tuning.fuse and not made[0].tuning.fuse and made[1].tuning.fuse
        return [{v.name for v in m.graph.values if v.half} for m in (*made, tuned)]

    before = cuda.math()
    try:
        assert halves() == [set()] * 3
        caffe.set_math("bf16")
        assert cuda.math() == "tf32" and halves() == [{"conv"}] * 3 and in_a_thread(halves) == [set()] * 3
        caffe.set_math("fp32")
        assert cuda.math() == "fp32" and halves() == [set()] * 3
    finally:
        cuda.set_math(before)


# -- the simulated device -------------------------------------------------------------------------------------------
WIDE = inputs(x=(64, 1000), label=(64,)) + ip("a", "x", 500) + ip("b", "a", 500) + ip("c", "b", 3) + loss("c")


def trained(files, **options):
    """Return a solver's parameters after three iterations on fixed values, and the solver."""
    solver = caffe.get_solver(files, **options)
    rng = np.random.default_rng(0)
    solver.net.blobs["x"].data[...] = rng.normal(size=(64, 1000))
    solver.net.blobs["label"].data[...] = rng.integers(0, 3, 64)
    solver.step(3)
    return [p.data.copy() for params in solver.net.params.values() for p in params], solver


@pytest.fixture
def wide(tmp_path):
    (tmp_path / "net.prototxt").write_text(WIDE)
    path = tmp_path / "solver.prototxt"
    path.write_text(f'net: "{tmp_path}/net.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 9 random_seed: 1')
    return str(path)


def test_lms_on_the_simulated_device_copies_and_gives_the_same_bits(wide):
    """750,000 parameters with gradients and histories take 8.6 MB, those of the largest layer 5.8."""
    caffe.set_mode_sim("64MB")
    whole, solver = trained(wide)
    assert solver.net.device.capacity() == 64 << 20
    assert solver.net.lms.stats()["bytes_out"] == 0
    caffe.set_mode_sim("7MB", order="random", seed=3)
    with pytest.raises(caffe_errors.OutOfDeviceMemory):
        caffe.get_solver(wide)
    small, solver = trained(wide, lms=caffe.LMS(10))
    stats = solver.net.lms.stats()
    assert stats["bytes_out"] > 0 and stats["bytes_in"] > 0 and stats["device_bytes"] == 7 << 20
    assert all(np.array_equal(a, b) for a, b in zip(whole, small, strict=True))


def test_nets_of_one_simulated_device_share_it(wide):
    caffe.set_mode_sim("64MB")
    solver = caffe.get_solver(wide)
    net = caffe.Net(wide.replace("solver.", "net."), caffe.TEST)
    assert net.device is solver.net.device
    solver.share_weights(net)
    caffe.set_mode_sim(64 << 20)
    assert caffe.Net(wide.replace("solver.", "net."), caffe.TEST).device is not net.device
    assert in_a_thread(lambda: caffe.Net(wide.replace("solver.", "net."), caffe.TEST).device.name) == "cpu"
    caffe.set_mode_cpu()
    assert caffe.Net(wide.replace("solver.", "net."), caffe.TEST).device.is_host
