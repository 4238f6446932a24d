"""Tests Large Model Support from Python: settings in users' words, defaults of a thread, consistent numbers."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import threading

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli import flags
from pycaffe_lms.errors import UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.plan.plan import OpKind

from .net.nets import inputs, ip, loss

TEXT = inputs(x=(8, 300), label=(8,)) + ip("a", "x", 300) + ip("b", "a", 300) + ip("c", "b", 3) + loss("c")


@pytest.fixture
def files(tmp_path):
    net, solver = tmp_path / "net.prototxt", tmp_path / "solver.prototxt"
    net.write_text(TEXT)
    solver.write_text(f'net: "{net}" base_lr: 0.01 lr_policy: "fixed" max_iter: 9 random_seed: 1\n')
    return str(net), str(solver)


def test_sizes_in_words():
    assert caffe.LMS() == caffe.LMS(1000) == caffe.LMS("1000KB")
    lms = caffe.LMS(
        "2MB",
        frac=0.4,
        budget="16GB",
        ahead=3,
        sync=1,
        host_limit="1.5 GiB",
        recompute=True,
        exclude="1KB",
        split=4,
        split_outputs=3,
        split_slabs=5,
    )
    assert dataclasses.asdict(lms) == {
        "threshold_kb": 2048,
        "frac": 0.4,
        "budget": 16 << 30,
        "ahead": 3,
        "sync": 1,
        "host_limit": 3 << 29,
        "auto": False,
        "recompute": True,
        "exclude": 1024,
        "pages": True,
        "compress": None,
        "plan_file": None,
        "split": 4,
        "split_outputs": 3,
        "split_slabs": 5,
    }
    assert caffe.LMS("auto") == caffe.LMS(auto=True) and caffe.LMS("auto").threshold_kb == 0
    assert caffe.LMS("auto").enabled and caffe.LMS(5, auto=True).min_bytes == 5120
    assert caffe.LMS(0).enabled is False and caffe.LMS(5).min_bytes == 5120
    assert pickle.loads(pickle.dumps(lms)) == lms and dataclasses.replace(lms, frac=0.5).frac == 0.5


def test_the_same_settings_as_the_config():
    """Users can give every setting that LMSConfig has."""
    assert list(inspect.signature(caffe.LMS).parameters) == [f.name for f in dataclasses.fields(LMSConfig)]
    defaults = {f.name: f.default for f in dataclasses.fields(LMSConfig)}
    ours = {name: p.default for name, p in inspect.signature(caffe.LMS).parameters.items()}
    assert ours == defaults | {"threshold_kb": None} and caffe.LMS().threshold_kb == 1000


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (1000, caffe.LMS(1000)),
        (np.int64(7), caffe.LMS(7)),
        ("auto", caffe.LMS("auto")),
        (True, caffe.LMS()),
        *((off, caffe.LMS(0)) for off in (0, -1, False, "off")),
    ],
)
def test_what_lms_means_is_taken_everywhere(given, meant, files):
    """By set_lms, by nets, by solvers: a number of KB, "auto", "off", as by the flag -lms."""
    meant = dataclasses.asdict(meant)
    model, solver = files
    assert dataclasses.asdict(caffe.Net(model, caffe.TEST, lms=given).lms.config) == meant
    for made in (caffe.get_solver(solver, lms=given), caffe.SGDSolver(solver, lms=given)):
        assert dataclasses.asdict(made.net.lms.config) == meant
    caffe.set_lms(given)
    try:
        assert dataclasses.asdict(caffe.Net(model, caffe.TEST).lms.config) == meant
        assert caffe.Net(model, caffe.TEST, lms="off").lms.config.enabled is False
    finally:
        caffe.set_lms(None)


@pytest.mark.parametrize("make", [caffe.LMS, caffe.set_lms])
def test_a_slip_of_auto_is_offered_what_exists(make):
    with pytest.raises(UsageError, match='did you mean "auto"') as error:
        make("autoo")
    assert '"auto"' in error.value.fix and '"off"' in error.value.fix


@pytest.mark.parametrize(
    "wrong",
    [
        {"budget": "16 apples"},
        {"budget": 1.5},
        {"budget": -5},
        {"threshold_kb": "1000"},
        {"threshold_kb": 1.5},
        {"frac": "0.4"},
        {"frac": 1.5},
        {"ahead": -1},
        {"ahead": 2.5},
        {"sync": 4},
        {"host_limit": 0},
        {"auto": 1},
        {"recompute": "on"},
        {"exclude": 2.5},
    ],
)
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(UsageError):
        caffe.LMS(**wrong)


@pytest.mark.parametrize("name, meant", [("budget", "16GB"), ("host_limit", "16GB"), ("exclude", "16GB")])
def test_a_number_that_can_be_no_bytes_is_refused(name, meant):
    """16 is meant in GB, 2048 in MB; a MiB and more is taken as bytes."""
    with pytest.raises(
        UsageError, match=f'{name}=16: 16 has no unit\n  fix: give a unit: {name}="16GB" or {name}="16MB"'
    ):
        caffe.LMS(**{name: 16})
    with pytest.raises(UsageError, match="1048575 has no unit"):
        caffe.LMS(**{name: (1 << 20) - 1})
    assert getattr(caffe.LMS(**{name: 1 << 20}), name) == 1 << 20 == getattr(caffe.LMS(**{name: "1MB"}), name)
    small = caffe.LMS(**{name: "2KB"})
    assert (
        getattr(small, name) == 2048 == getattr(dataclasses.replace(pickle.loads(pickle.dumps(small)), frac=0.5), name)
    )


@pytest.mark.parametrize("name", ["split", "split_outputs", "split_slabs"])
@pytest.mark.parametrize("text", ["off", "auto", "4"])
def test_pieces_as_their_flags_take_them(name, text):
    """`split="off"` is `-lms_split off`, and what the flag refuses the keyword refuses."""
    parser = flags.parser("train", "")
    flags.add_device(parser, trains=True)
    by_flag = dataclasses.asdict(flags.lms_config(flags.parse(parser, ["-lms", "1000", f"-lms_{name}", text])))
    assert dataclasses.asdict(caffe.LMS(**{name: text})) == by_flag
    if text == "4":
        assert dataclasses.asdict(caffe.LMS(**{name: 4})) == by_flag
    for wrong in ("of", "0", "-1", "", "4.0"):
        with pytest.raises(UsageError, match="auto, off, or a number such as 4") as error:
            caffe.LMS(**{name: wrong})
        assert name in str(error.value)


def test_compression_as_its_flag_takes_it():
    assert caffe.LMS(compress="off") == caffe.LMS() and caffe.LMS(compress="bf16").compress == "bf16"
    with pytest.raises(UsageError, match="use fp16 or bf16"):
        caffe.LMS(compress="fp8")


def test_a_default_inside_a_with_statement(files):
    net_file, solver_file = files

    def config(**options):
        return caffe.Net(net_file, caffe.TRAIN, device=SimDevice(64 << 20), **options).lms.config

    mine, inner = caffe.LMS(1), caffe.LMS(2)
    assert config() == LMSConfig()
    with mine as given:
        assert given is mine and config() is mine and config(lms=inner) is inner
        with inner, mine:
            assert config() is mine
        with inner:
            assert config() is inner
            assert caffe.get_solver(solver_file, device=SimDevice(64 << 20)).net.lms.config is inner
        assert caffe.SGDSolver(solver_file, device=SimDevice(64 << 20)).net.lms.config is mine
        seen = []
        thread = threading.Thread(target=lambda: seen.append(config()))
        thread.start()
        thread.join()
        assert seen == [LMSConfig()]
    with pytest.raises(KeyError), mine:
        raise KeyError
    assert config() == LMSConfig()
    caffe.set_lms(inner)
    try:
        assert config() is inner
        with mine:
            assert config() is mine
        assert config() is inner
    finally:
        caffe.set_lms(None)
    assert config() == LMSConfig()


def test_stats_and_plan(files):
    net_file, solver_file = files
    device = SimDevice(64 << 20)
    solver = caffe.get_solver(solver_file, device=device, lms=caffe.LMS(1, ahead=0, budget="4MB"))
    lms = solver.net.lms
    before = lms.stats()
    assert lms.enabled and before["enabled"] and before["runs"] == before["bytes_in"] == before["bytes_out"] == 0
    memories = solver.net.memory
    managed = [b for b, m in memories.memories.items() if m.managed]
    assert before["managed_buffers"] == len(managed)
    assert before["managed_bytes"] == sum(memories.buffers[b].nbytes for b in managed)
    assert lms.plan is None and lms.report() == "nothing ran yet"
    solver.net.blobs["x"].data[...] = np.random.default_rng(0).normal(size=(8, 300))
    copied = device.bytes_in, device.bytes_out
    solver.step(1)
    after, plan = lms.stats(), lms.plan
    assert after["runs"] == 1 and after["device_bytes"] == 4 << 20 and 0 < after["device_bytes_in_use"] <= 4 << 20
    ops = {kind: [op for op in plan.ops if op.kind is kind] for kind in (OpKind.IN, OpKind.OUT)}
    for kind, name in ((OpKind.IN, "bytes_in"), (OpKind.OUT, "bytes_out")):
        real = sum(memories.memories[op.place.buffer].nbytes for op in ops[kind])
        assert after[name] == real > 0, name
    assert (device.bytes_in - copied[0], device.bytes_out - copied[1]) >= (after["bytes_in"], after["bytes_out"])
    assert after["arena_bytes"] >= plan.arena_bytes >= after["held_peak_bytes"] > 0
    assert after["host_bytes"] > 0
    assert after["host_bytes"] <= plan.host_bytes
    assert "copied per run" in lms.report() and "forward:a" in lms.report(steps=True)
    assert plan in lms.plans.values() and "1 runs" in repr(lms)
    found = lms.statistics()
    assert found == {key: value for key, value in solver.statistics().items() if key != "iterations"}
    assert {k: found["programs"]["train"]["total"][k] for k in ("runs", "bytes_in", "bytes_out")} == {
        k: after[k] for k in ("runs", "bytes_in", "bytes_out")
    }
    page = lms.html()
    assert page.startswith("<!DOCTYPE html>") and page.count("<rect") >= len(plan.ops)
    solver.net.forward()
    assert lms.plan is not plan and lms.stats()["runs"] == 2


def test_where_nothing_is_managed(files):
    for options in ({"lms": caffe.LMS(1)}, {"device": SimDevice(64 << 20)}):
        net = caffe.Net(files[0], caffe.TRAIN, **options)
        net.forward()
        stats = net.lms.stats()
        assert not net.lms.enabled and net.lms.plan is None and net.lms.plans == {}
        assert stats["managed_buffers"] == stats["runs"] == stats["arena_bytes"] == stats["bytes_in"] == 0
        assert net.lms.statistics()["programs"] == {}
        with pytest.raises(UsageError, match="no plan"):
            net.lms.html()
        assert net.lms.report() == "nothing is managed" and "nothing is managed" in repr(net.lms)
