"""Tests snapshots that are written beside the training: the same files, one at a time, errors between iterations."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import SnapshotError, WeightsError
from pycaffe_lms.formats.weights.blobproto import array_to_blobproto
from pycaffe_lms.formats.weights.caffemodel import read_weights, write_weights
from pycaffe_lms.formats.weights.solverstate import read_solverstate, write_solverstate
from pycaffe_lms.net import weights
from pycaffe_lms.proto.caffe_pb2 import NetParameter
from pycaffe_lms.solvers.events import Observer
from pycaffe_lms.solvers.snapshots import snapshot, staging
from pycaffe_lms.solvers.snapshots.gathered import gather

from .helpers import GAUSSIAN, PLACES, bits, inner, loss, make, messages

SECONDS = 60
CONV = """
layer { name: "map" type: "Reshape" bottom: "x" top: "map" reshape_param { shape { dim: 4 dim: 3 dim: 1 dim: 1 } } }
layer { name: "conv" type: "Convolution" bottom: "map" top: "conv"
  convolution_param { num_output: 4 kernel_size: 1 weight_filler { type: "gaussian" std: 0.5 } } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
"""
NET = GAUSSIAN + CONV + inner(bottom="bn") + loss()
FORMATS = {"BINARYPROTO": "", "HDF5": ".h5"}


class Slow:
    """Hold up the writer of models until `go`. started: set when it begins; calls: (thread, how many at a time)."""

    def __init__(self, monkeypatch):
        self.started, self.go, self.calls, self.now = threading.Event(), threading.Event(), [], 0
        self.real = snapshot.write_weights
        monkeypatch.setattr(snapshot, "write_weights", self)

    def __call__(self, *args):
        self.now += 1
        self.calls.append((threading.current_thread(), self.now))
        self.started.set()
        assert self.go.wait(SECONDS)
        self.now -= 1
        return self.real(*args)


def _options(tmp_path, form="BINARYPROTO", **more):
    return {"snapshot_prefix": f'"{tmp_path}/s"', "snapshot_format": form, "momentum": 0.9} | more


@pytest.mark.parametrize("diff", ["false", "true"])
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("place", PLACES)
def test_the_files_are_of_their_iteration(place, form, diff, tmp_path):
    """Compare bytes with those of a run that stops there, although training goes on while they are written."""
    if form == "HDF5":
        pytest.importorskip("h5py")
    for folder in ("behind", "stopped"):
        (tmp_path / folder).mkdir()
    behind = make(NET, place, **_options(tmp_path / "behind", form, snapshot=2, snapshot_diff=diff))
    behind.step(7)
    for k in (2, 4, 6):
        stopped = make(NET, place, **_options(tmp_path / "stopped", form, snapshot_diff=diff))
        stopped.step(k)
        expected = [(blob.name, blob.read_data().copy()) for blobs in stopped.net.params.values() for blob in blobs]
        histories = [
            np.zeros(b, np.float32) if isinstance(b, tuple) else b.read_data().copy() for b in stopped.history_blobs()
        ]
        stopped.snapshot()
        model, state = (f"s_iter_{k}.{kind}{FORMATS[form]}" for kind in ("caffemodel", "solverstate"))
        assert (tmp_path / "behind" / model).read_bytes() == (tmp_path / "stopped" / model).read_bytes()
        stored = [b for layer in read_weights(tmp_path / "behind" / model) for b in layer.blobs]
        if form == "BINARYPROTO":
            assert [b.data.tobytes() for b in stored] == [v.tobytes() for _, v in expected]
        ours, theirs = (read_solverstate(tmp_path / f / state) for f in ("behind", "stopped"))
        assert [h.tobytes() for h in ours.history] == [h.tobytes() for h in histories]
        assert (ours.iter, ours.resume, ours.model_sha256) == (k, theirs.resume, theirs.model_sha256)
    alone = make(NET, place, **_options(tmp_path))
    alone.step(7)
    assert bits(behind) == bits(alone), "a snapshot changes nothing of the training"


@pytest.mark.parametrize("diff", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_file_in_pieces_is_the_serialized_message(dtype, diff, tmp_path):
    solver = make(NET, dtype=dtype)
    solver.step(1)
    weights.save(solver.net, tmp_path / "a", write_diff=diff)
    whole = weights.bare_proto(solver.net)
    for layer, arrays in zip(whole.layer, weights.layer_arrays(solver.net, write_diff=diff), strict=True):
        for values in arrays:
            array_to_blobproto(*values, into=layer.blobs.add())
    assert NetParameter.FromString((tmp_path / "a").read_bytes()) == whole
    assert (tmp_path / "a").read_bytes() == whole.SerializeToString(deterministic=True)


def test_training_goes_on_and_the_next_snapshot_waits(tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "pycaffe_lms")
    slow, told = Slow(monkeypatch), []
    solver = make(NET, **_options(tmp_path))
    solver.step(1)

    class Notes(Observer):
        def on_snapshot(self, done):
            told.append((done.iteration, solver.iter, threading.current_thread()))

    solver.observers.append(Notes())
    with solver.snapshots.behind():
        solver.snapshot(wait=False)
        assert slow.started.wait(SECONDS)
        for _ in range(3):
            solver._iterate()
            solver.iter += 1
            solver.snapshots.poll()
        assert solver.iter == 4 and told == [] and not list(tmp_path.glob("*model"))
        threading.Timer(0.2, slow.go.set).start()
        solver.snapshot(wait=False)
    assert [(iteration, now) for iteration, now, _ in told] == [(1, 4), (4, 4)]
    assert all(thread is threading.main_thread() for _, _, thread in told)
    assert [at_once for _, at_once in slow.calls] == [1, 1]
    assert not any(thread is threading.main_thread() for thread, _ in slow.calls)
    assert any("for the snapshot before" in m for m in messages(caplog))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        f"s_iter_{k}.{kind}" for k in (1, 4) for kind in ("caffemodel", "solverstate")
    )


def test_the_model_is_whole_before_the_state_that_names_it(tmp_path, monkeypatch):
    seen = []

    def write(path, saved):
        seen.append(read_weights(saved.learned_net))
        write_solverstate(path, saved)

    monkeypatch.setattr(snapshot, "write_solverstate", write)
    solver = make(NET, **_options(tmp_path))
    solver.snapshot()
    assert len(seen) == 1


def test_a_snapshot_that_is_asked_for_is_there(tmp_path):
    solver = make(NET, **_options(tmp_path, snapshot=3))
    solver.snapshot()
    assert read_solverstate(tmp_path / "s_iter_0.solverstate").iter == 0
    solver.step(3)  # and so are those of the steps before
    assert read_solverstate(tmp_path / "s_iter_3.solverstate").iter == 3


def test_one_that_a_callback_asks_for_is_there_too(tmp_path, monkeypatch):
    """It is, although training is running and another snapshot is being written."""
    slow, found = Slow(monkeypatch), []
    threading.Timer(0.2, slow.go.set).start()
    solver = make(NET, **_options(tmp_path, snapshot=2))

    def ask():
        if solver.iter == 3:
            solver.snapshot()
            found.extend(sorted(p.name for p in tmp_path.iterdir()))

    solver.callbacks.append((ask, lambda: None))
    solver.step(4)
    assert found == sorted(f"s_iter_{k}.{kind}" for k in (2, 3) for kind in ("caffemodel", "solverstate"))


@pytest.mark.parametrize("place", PLACES)
def test_values_of_many_pieces(place, tmp_path, monkeypatch):
    """Several threads copy large values on the host."""
    monkeypatch.setattr(staging, "_PIECE", 24)
    solver = make(NET, place, **_options(tmp_path))
    solver.step(2)
    solver.snapshot()
    stored = [b.data for layer in read_weights(tmp_path / "s_iter_2.caffemodel") for b in layer.blobs]
    expected = [blob.read_data() for blobs in solver.net.params.values() for blob in blobs]
    assert [v.tobytes() for v in stored] == [v.tobytes() for v in expected]


def test_an_error_is_raised_between_iterations(tmp_path, monkeypatch):
    def full(path, *_):
        raise WeightsError("cannot be written: No space left on device").at(file=path)

    solver = make(NET, **_options(tmp_path, snapshot=2))
    with monkeypatch.context() as patch:
        patch.setattr(snapshot, "write_weights", full)
        with pytest.raises(WeightsError, match="s_iter_2.caffemodel: cannot be written: No space left"):
            solver.step(10**6)
        assert 2 <= solver.iter < 10**6
        iteration = solver.iter
        solver.snapshot(wait=False)
        with pytest.raises(WeightsError, match=f"s_iter_{iteration}.caffemodel"):
            solver.close()
    solver.snapshot()  # once there is room again
    assert read_solverstate(tmp_path / f"s_iter_{iteration}.solverstate").iter == iteration


def test_what_fails_besides_waits_for_the_writer(tmp_path, monkeypatch, caplog):
    """After Ctrl-C in a notebook, for example, the snapshot that was being written is whole."""
    slow = Slow(monkeypatch)
    threading.Timer(0.3, slow.go.set).start()
    solver = make(NET, **_options(tmp_path, snapshot=2))

    def interrupt():
        if solver.iter == 3:
            raise KeyboardInterrupt

    solver.callbacks.append((interrupt, lambda: None))
    with pytest.raises(KeyboardInterrupt):
        solver.step(5)
    assert read_solverstate(tmp_path / "s_iter_2.solverstate").iter == 2


@pytest.mark.parametrize("place", PLACES)
def test_memory_is_taken_once(place, tmp_path):
    solver = make(NET, place, **_options(tmp_path, snapshot=1, type='"Adam"'))
    solver.step(1)
    memory = solver.snapshots._staging
    before, values = memory.nbytes, sum(m.nbytes for m in {id(m): m for m in snapshot.memories(solver)}.values())
    assert values <= before
    solver.step(5)
    assert memory.nbytes == before and solver.snapshots._staging is memory


def test_all_host_memory_is_page_locked_and_taken_before(tmp_path, monkeypatch):
    """So is the table by which values are gathered: for pageable memory the host would wait."""
    device, solver = _on_sim(tmp_path, 64 << 20, snapshot=2)
    taken, take, gathers = [], device.host_take, Gathers(monkeypatch)

    def host_take(nbytes, *, pinned=False):
        taken.append((solver.iter, pinned))
        return take(nbytes, pinned=pinned)

    solver.step(1)
    monkeypatch.setattr(device, "host_take", host_take)
    with monkeypatch.context() as patch:
        patch.setattr(staging, "_SEGMENT", 1)  # no more than is asked for
        solver.step(5)
    assert gathers.found == [True] * 3
    assert taken == [(1, True)]


def test_copying_moves_nothing_on_the_device(tmp_path):
    """States, device memory and plans do not change; every copy uses the stream of copies out, none waits for the
    host."""
    solver = make(NET, "sim with LMS", **_options(tmp_path))
    solver.step(4)
    memories = list(snapshot.memories(solver))
    before = [(m.state, m.span, m.written) for m in memories]
    solver.snapshot()
    assert [(m.state, m.span, m.written) for m in memories] == before


@pytest.mark.parametrize("seed", range(5))
def test_any_order_of_the_streams(seed, tmp_path):
    from pycaffe_lms.backend.sim.device import SimDevice
    from pycaffe_lms.formats.prototxt.parser import parse_solver
    from pycaffe_lms.solvers import SGDSolver

    from .helpers import solver_text

    parsed = parse_solver(solver_text(NET, **_options(tmp_path, snapshot=1)))
    solver = SGDSolver(parsed.message, lines=parsed.lines, device=SimDevice(64 << 20, order="random", seed=seed))
    solver.step(4)
    for k in range(1, 5):
        alone = make(NET)
        alone.param.momentum = 0.9
        alone.step(k)
        stored = [b.data for layer in read_weights(tmp_path / f"s_iter_{k}.caffemodel") for b in layer.blobs]
        expected = [b.read_data() for blobs in alone.net.params.values() for b in blobs]
        for ours, theirs in zip(stored, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_a_state_that_changed_by_a_bit_is_refused(tmp_path):
    for form, ending in FORMATS.items():
        if form == "HDF5":
            pytest.importorskip("h5py")
        solver = make(NET, **_options(tmp_path, form))
        solver.step(1)
        solver.snapshot()
        path = tmp_path / f"s_iter_1.solverstate{ending}"
        content = bytearray(path.read_bytes())
        where = content.index(solver.history_blobs()[0].read_data().tobytes())  # of a number in the midst
        content[where] ^= 1
        path.write_bytes(content)
        with pytest.raises(SnapshotError, match="SHA-256 at its end differs"):
            solver.restore(path)


def test_the_digest_is_that_of_the_file(tmp_path):
    import hashlib

    solver = make(NET, **_options(tmp_path))
    solver.snapshot()
    model = (tmp_path / "s_iter_0.caffemodel").read_bytes()
    assert read_solverstate(tmp_path / "s_iter_0.solverstate").model_sha256 == hashlib.sha256(model).digest()
    digest = write_weights(tmp_path / "again", weights.bare_proto(solver.net), weights.layer_arrays(solver.net))
    assert digest == hashlib.sha256(model).digest()


def _on_sim(tmp_path, capacity, **options):
    device = SimDevice(capacity)
    return device, make(NET, lambda: {"device": device}, **_options(tmp_path, **options))


class Gathers:
    """Note every attempt to gather. found: whether there was room."""

    def __init__(self, monkeypatch):
        self.found, self._real = [], staging.gather
        monkeypatch.setattr(staging, "gather", self)

    def __call__(self, *args):
        gathered = self._real(*args)
        self.found.append(gathered is not None)
        return gathered


def test_values_leave_from_memory_of_their_own_where_there_is_room(tmp_path, monkeypatch):
    """Without room they are copied from where they are. The files are equal."""
    found = {}
    for name, spare in (("room", 1 << 20), ("none", 0)):
        (tmp_path / name).mkdir()
        device, solver = _on_sim(tmp_path / name, 64 << 20, snapshot=2)
        solver.step(1)
        device.set_budget(device.in_use() + spare)
        before, gathered = device.in_use(), Gathers(monkeypatch)
        solver.step(3)
        monkeypatch.undo()
        assert gathered.found == [name == "room"] * 2
        assert device.in_use() == before, "the memory is given back"
        found[name] = [p.read_bytes() for p in sorted((tmp_path / name).glob("*.caffemodel"))]
    assert found["room"] == found["none"] and len(found["room"]) == 2


def test_who_needs_memory_gets_that_of_a_snapshot(tmp_path, monkeypatch):
    """A snapshot that is written slowly still holds memory; the device asks for it before it reports that none is
    free."""
    device, solver = _on_sim(tmp_path, 64 << 20)
    solver.step(1)
    monkeypatch.setattr(snapshot, "write", lambda copied: None)  # it does not even wait for the copies
    before = device.in_use()
    solver.snapshot(wait=False)
    taken = solver.snapshots._staging._gathered
    assert taken is not None and device._used > before
    device.set_budget(before + (1 << 16))
    span = device.take(1 << 16)
    assert device.in_use() == before + span.nbytes
    assert np.isfinite(solver.snapshots._staging._segments[0].view(np.float32)).any(), "the copies are done"
    device.give(span)


def test_allocations_that_touch_are_copied_apart():
    """One array over two allocations would be invalid once the first is freed."""
    device = SimDevice(1 << 20)
    whole = np.zeros(2048, np.uint8)
    host_segments = [np.frombuffer(memoryview(whole)[start : start + 1024], np.uint8)[:512] for start in (0, 1024)]
    host_segments.insert(1, np.frombuffer(memoryview(whole)[512:1024], np.uint8))
    values = [np.arange(k, k + 512).astype(np.uint8) for k in range(3)]
    spans = [device.take(512) for _ in values]
    for span, value in zip(spans, values, strict=True):
        device.copy_up(span, value)
    with device.active():
        gathered = gather(device, list(zip(host_segments, spans, strict=True)), device.host_take)
        for raw, span in gathered.runs:
            device.copy_down(raw, span)
    device.synchronize()
    assert len(gathered.runs) == 3 and all(raw.nbytes == 512 for raw, _ in gathered.runs)
    for home, value in zip(host_segments, values, strict=True):
        np.testing.assert_array_equal(home, value)
    gathered.give()
