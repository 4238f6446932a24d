"""Tests values of a snapshot that are copied from where they are while the next iteration runs: no step overwrites one
before it is copied, and none waits longer than that. Many legal orders of the streams are tried, and times of the model
clock."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.weights.caffemodel import read_weights
from pycaffe_lms.formats.weights.solverstate import read_solverstate
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.memory.synced import SyncedMemory
from pycaffe_lms.solvers.snapshots import snapshot, staging

from .helpers import GAUSSIAN, bits, inner, loss, make

CONV = """
layer { name: "map" type: "Reshape" bottom: "x" top: "map" reshape_param { shape { dim: 4 dim: 3 dim: 1 dim: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "map" top: "conv"
  convolution_param { num_output: 64 kernel_size: 1 weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
"""
NET = GAUSSIAN + CONV + inner(bottom="bn") + loss()
PLAIN = GAUSSIAN + inner("hidden", outputs=64) + inner(bottom="hidden") + loss()
LMS = {"without LMS": None, "with LMS": LMSConfig(threshold_kb=1), "auto": LMSConfig(threshold_kb=1, auto=True)}
ITERATIONS, EVERY = 11, 3
OPTIONS = [{}, {"iter_size": 2}, {"clip_gradients": 0.05}, {"snapshot_diff": "true"}, {"type": '"Adam"'}]


def _solver(tmp_path, lms=None, net=NET, *, order="latest", seed=0, **options):
    device = SimDevice(64 << 20, order=order, seed=seed)
    more = {"snapshot_prefix": f'"{tmp_path}/s"', "momentum": 0.9} | options
    return device, make(net, lambda: {"device": device, "lms": lms}, **more)


@pytest.fixture(autouse=True)
def no_room(monkeypatch):
    """Let there be no room to gather, as under a tight budget: values are copied from where they are."""
    monkeypatch.setattr(staging, "gather", lambda *_: None)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lms", LMS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_step_overtakes_a_copy(options, lms, seed, tmp_path):
    """Every file equals that of a run that stops there, and the training equals that without snapshots."""
    options = {"base_lr": 0.01} | options
    device, solver = _solver(tmp_path, LMS[lms], order="random", seed=seed, snapshot=EVERY, **options)
    solver.step(ITERATIONS)
    assert device.launches > 0, "most iterations are launches"
    _, alone = _solver(tmp_path, **options)
    for k in range(1, ITERATIONS + 1):
        alone.step(1)
        if k % EVERY:
            continue
        model = read_weights(tmp_path / f"s_iter_{k}.caffemodel")
        expected = [b.read_data().tobytes() for blobs in alone.net.params.values() for b in blobs]
        assert [b.data.tobytes() for layer in model for b in layer.blobs] == expected
        history = read_solverstate(tmp_path / f"s_iter_{k}.solverstate").history
        kept = [np.zeros(b, np.float32) if isinstance(b, tuple) else b.read_data() for b in alone.history_blobs()]
        assert [h.tobytes() for h in history] == [h.tobytes() for h in kept]
    assert bits(solver) == bits(alone)


def _times(tmp_path, monkeypatch, lms, net, bytes_per_s, snapshots, count=4):
    """Return the seconds of the model clock that the compute stream takes for each of `count` iterations, after
    warm-up, with or without a snapshot started before each; and the seconds of a snapshot's copies."""
    monkeypatch.setattr(snapshot, "write", lambda copied: None)
    device, solver = _solver(tmp_path, lms, net)
    device.link_bytes_per_s = bytes_per_s
    solver.step(4)
    found, copies = [], 0.0
    with solver.snapshots.behind():
        for _ in range(count):
            device.synchronize()
            begin = device.compute.time = device.copy_out.time = device.copy_in.time = device.model_seconds()
            if snapshots:
                solver.snapshot(wait=False)
                copies = device.copy_out.time - begin
                assert device.compute.time == begin, "nothing waits yet"
            solver._iterate()
            solver.iter += 1
            found.append(device.compute.time - begin)
    return found, copies


@pytest.mark.parametrize(("net", "before"), [(PLAIN, 0), (NET, 64 * (3 + 1 + 2) * 4 + 4)], ids=["plain", "statistics"])
@pytest.mark.parametrize("lms", LMS)
def test_an_iteration_takes_as_long_as_without(lms, net, before, tmp_path, monkeypatch):
    """Copies that are shorter than forward and backward do not delay the compute stream. A forward that writes
    statistics waits at most for the bytes that are copied `before` them: those of the layers up to there."""
    rate = 2e8
    plain, _ = _times(tmp_path, monkeypatch, LMS[lms], net, rate, False)
    within, copies = _times(tmp_path, monkeypatch, LMS[lms], net, rate, True)
    assert 0.05 * plain[0] < copies < 0.5 * plain[0]
    assert before / rate < 0.75 * copies, "else all could be waited for"
    assert max(within) <= max(plain) * (1 + 1e-9) + before / rate


def test_the_update_waits_for_copies_that_take_longer(tmp_path, monkeypatch):
    """Forward and backward, which only read, run meanwhile: the iteration ends one update after the copies."""
    monkeypatch.setattr(snapshot, "write", lambda copied: None)
    device, solver = _solver(tmp_path, None, PLAIN)
    times = []
    solver.callbacks.append((lambda: times.append(device.compute.time), lambda: times.append(device.compute.time)))
    found = {}
    for bytes_per_s in (55e9, 5e5):
        device.link_bytes_per_s = bytes_per_s
        solver.step(1)
        device.synchronize()
        solver.snapshot(wait=False)
        copied = device.copy_out.time
        begin = device.compute.time
        solver._iterate()
        found[bytes_per_s] = copied - begin, times[-1] - begin, device.compute.time - times[-1]
        solver.close()
    (_, _, update), (copies, passes, rest) = found.values()
    assert copies > 2 * passes, "they take longer"
    assert rest == pytest.approx(copies - passes + update, rel=0.05)


def test_a_launch_comes_again_once_all_have_left(tmp_path, monkeypatch):
    """An iteration runs step by step while copies are under way, and the next one as the same CUDA graph as before."""
    monkeypatch.setattr(snapshot, "write", lambda copied: None)
    device, solver = _solver(tmp_path)
    solver.step(5)
    recordings = [bound.replay._launch for bound in solver.net.memory.programs.bound.values() if bound.replay]
    before, counts = device.launches, []
    for wait in (False, True):
        solver.snapshot(wait=False)
        solver.snapshots.finish()
        if wait:
            device.synchronize()  # the copies are done before the iteration begins
        for _ in range(2):
            solver._iterate()
            counts.append(device.launches - before)
    assert counts == [0, 1, 2, 3]
    assert [bound.replay._launch for bound in solver.net.memory.programs.bound.values() if bound.replay] == recordings


def test_memory_that_is_given_back_is_not_used_before(tmp_path, monkeypatch):
    """A net is reshaped, or deleted, while its values are copied."""
    monkeypatch.setattr(snapshot, "write", lambda copied: None)
    device = SimDevice(1 << 16)
    memory = SyncedMemory(512, "conv1.data", device)
    memory.ask(staging.Ask.OVERWRITE_GPU)
    device.queue(np.copyto, memory.device_array((512,), np.uint8), 7)
    copies = staging.Staging(device)
    copies.begin()
    raw = copies.memory(memory)
    copies.end()
    span = memory.span
    memory.give_back()
    device.synchronize()
    assert (raw == 7).all()
    assert any(one is span for one in copies._held), "a pool hands it to nobody else while it is copied"
    copies.wait()
    assert not copies._held
