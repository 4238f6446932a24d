"""Tests that a resumed run equals an uninterrupted one: every parameter, gradient and loss, to the bit."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.errors import CaffeError, SnapshotError
from pycaffe_lms.formats.weights.solverstate import SolverSnapshot, read_solverstate, write_solverstate
from pycaffe_lms.net.weights import save

from .helpers import CONSTANT, GAUSSIAN, INPUT, PLACES, bits, inner, loss, make, messages

FORMATS = {"BINARYPROTO": "", "HDF5": ".h5"}
DROPOUT = 'layer { name: "drop" type: "Dropout" bottom: "x" top: "drop" dropout_param { dropout_ratio: 0.3 } }\n'
DROPOUT_IN_PLACE = 'layer { name: "drop2" type: "Dropout" bottom: "ip" top: "ip" }\n'
NORM = 'layer { name: "bn" type: "BatchNorm" bottom: "drop" top: "bn" }\n'


def _data(source, phase, size, transform) -> str:
    return (
        f'layer {{ name: "data" type: "Data" top: "x" top: "label" include {{ phase: {phase} }} '
        f'data_param {{ source: "{source}" batch_size: {size} backend: LMDB prefetch: 3 }} '
        f"transform_param {{ {transform} }} }}\n"
    )


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """Write a database of ten random pictures."""
    path, random = tmp_path_factory.mktemp("resume") / "db", np.random.RandomState(0)
    pictures = [random.randint(0, 256, (2, 6, 6), dtype=np.uint8) for _ in range(10)]
    write_lmdb(path, [(b"%04d" % k, encode_datum(p, k % 5)) for k, p in enumerate(pictures)])
    return path


def _net(kind: str, database) -> str:
    """Return a net with all kinds of randomness: drawn inputs, or crops and mirrors of a database; dropout, and running
    statistics."""
    body = DROPOUT + NORM + inner(bottom="bn") + DROPOUT_IN_PLACE + loss()
    if kind == "drawn":
        return GAUSSIAN + body
    if kind == "constant":
        return CONSTANT + body
    train = _data(database, "TRAIN", 3, "crop_size: 4 mirror: true scale: 0.01")
    return train + _data(database, "TEST", 4, "crop_size: 4 scale: 0.01") + body


class Run:
    """Run a solver and note its loss in every iteration."""

    def __init__(self, net, place, tmp_path, **options):
        defaults = {
            "snapshot_prefix": f'"{tmp_path}/r"',
            "momentum": 0.9,
            "weight_decay": 0.01,
            "test_interval": 2,
            "test_iter": 2,
            "lr_policy": '"multistep"',
            "gamma": 0.5,
            "stepvalue": [1, 3],
        }
        self.solver, self.losses = make(net, place, **(defaults | options)), []

    def step(self, n):
        for _ in range(n):
            self.solver.step(1)
            self.losses.append(self.solver.net.loss())
        return self

    def state(self):
        """Return all that a run computes: losses, parameters and gradients, history, and tests of what follows."""
        history = [b.read_data().tobytes() for b in self.solver.history_blobs() if not isinstance(b, tuple)]
        return self.losses[-3:], bits(self.solver), history, self.solver.current_step, self.solver.test()


def _close(*runs):
    for run in runs:
        run.solver.close()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["drawn", "database"])
def test_resumed_equals_uninterrupted(kind, place, form, database, tmp_path):
    """Tests come at 0, 2, 4, 6, so also right where it was interrupted; iteration 4 lies within the second epoch."""
    if form == "HDF5":
        pytest.importorskip("h5py")
    net = _net(kind, database)
    whole = Run(net, place, tmp_path).step(7)
    first = Run(net, place, tmp_path, snapshot_format=form).step(4)
    first.solver.snapshot()
    second = Run(net, place, tmp_path, random_seed=99)  # whose own draws are all other ones
    other = Run(net, place, tmp_path, random_seed=99).step(3).losses
    second.solver.restore(tmp_path / f"r_iter_4.solverstate{FORMATS[form]}")
    assert second.solver.iter == 4
    second.step(3)
    assert second.state() == whole.state()
    assert second.losses != other
    first.step(3)  # and a snapshot disturbs nothing
    assert bits(first.solver) == bits(whole.solver)
    _close(whole, first, second)


@pytest.mark.parametrize("seed", [None, -1])
def test_without_a_seed_the_layers_seeds_travel(seed, database, tmp_path):
    """random_seed is unset: every run draws another seed, yet a resumed run continues with the first one's."""
    net = _net("database", database)
    first = Run(net, "cpu", tmp_path, random_seed=seed).step(2)
    first.solver.snapshot()
    fresh, resumed = (Run(net, "cpu", tmp_path, random_seed=seed) for _ in range(2))
    seeds = {run.solver.net.layers[run.solver.net.layer_index("drop")].seed for run in (first, fresh, resumed)}
    assert len(seeds) == 3
    resumed.solver.restore(tmp_path / "r_iter_2.solverstate")
    first.step(4)
    resumed.step(4)
    assert resumed.state() == first.state()
    _close(first, fresh, resumed)


@pytest.mark.parametrize("options", [{"iter_size": 2}, {"clip_gradients": 0.1}], ids=str)
def test_resumed_between_accumulated_and_clipped_iterations(options, database, tmp_path):
    net = _net("database", database)
    whole = Run(net, "sim with LMS", tmp_path, **options).step(5)
    first = Run(net, "sim with LMS", tmp_path, **options).step(3)
    first.solver.snapshot()
    second = Run(net, "sim with LMS", tmp_path, **options)
    second.solver.restore(tmp_path / "r_iter_3.solverstate")
    assert second.step(2).state()[1:] == whole.state()[1:] and second.losses == whole.losses[-2:]
    _close(whole, first, second)


def test_across_devices_and_formats(tmp_path):
    """A snapshot of the simulated device can be resumed on any; LMS makes no difference, to the bit."""
    net = _net("drawn", None)
    first = Run(net, "sim with LMS", tmp_path, snapshot_format="HDF5").step(3)
    pytest.importorskip("h5py")
    first.solver.snapshot()
    runs = []
    for place in ("sim", "sim with LMS"):
        runs.append(Run(net, place, tmp_path))
        runs[-1].solver.restore(tmp_path / "r_iter_3.solverstate.h5")
        runs[-1].step(3)
    assert runs[0].state() == runs[1].state()


def test_solve_resumes(tmp_path, caplog):
    """`solve(state)` trains the rest and ends with the same numbers in the log as an uninterrupted run."""
    caplog.set_level(logging.INFO, "pycaffe_lms")
    options = {"max_iter": 6, "snapshot": 4, "display": 2, "lr_policy": '"multistep"', "stepvalue": [1, 3]}
    net = _net("drawn", None)

    def numbers(resume=None):
        run = Run(net, "cpu", tmp_path, **options)
        caplog.clear()
        run.solver.solve(resume)
        return [m.split(" (")[0] + m.split("iters)")[-1] for m in messages(caplog) if "=" in m], messages(caplog)

    (whole, _), state = numbers(), str(tmp_path / "r_iter_4.solverstate")
    resumed, story = numbers(state)
    assert [m for m in story if "esum" in m or "restoring" in m] == [
        f"Resuming from {state}",
        "SGDSolver: restoring history",
    ]
    assert resumed == whole[-len(resumed) :] and "Iteration 4, loss" in resumed[1]
    assert any("Iteration 6, loss = " in m for m in resumed)


def test_the_model_is_found_beside_the_state(tmp_path, monkeypatch):
    """learned_net is relative to the folder of the run; a snapshot whose two files were moved together still works."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old").mkdir()
    first = Run(_net("constant", None), "cpu", tmp_path, snapshot_prefix='"old/r"').step(2)
    first.solver.snapshot()
    assert read_solverstate("old/r_iter_2.solverstate").learned_net == "old/r_iter_2.caffemodel"
    (tmp_path / "old").rename(tmp_path / "new")
    second = Run(_net("constant", None), "cpu", tmp_path)
    second.solver.restore("new/r_iter_2.solverstate")
    assert second.step(2).state()[1:] == first.step(2).state()[1:]
    (tmp_path / "new" / "r_iter_2.caffemodel").unlink()
    with pytest.raises(CaffeError, match="Could not open file .*r_iter_2.caffemodel"):
        second.solver.restore("new/r_iter_2.solverstate")


# -- states that do not fit ---------------------------------------------------------------------------------------
NET = GAUSSIAN + DROPOUT + inner(bottom="drop") + loss()


@pytest.fixture
def saved(tmp_path):
    """Return (path of a state of NET at iteration 2, a fresh solver of NET)."""
    run = Run(NET, "cpu", tmp_path, test_iter=None, test_interval=0).step(2)
    run.solver.snapshot()
    return tmp_path / "r_iter_2.solverstate", Run(NET, "cpu", tmp_path, test_iter=None, test_interval=0).solver


def _refused(solver, path, text):
    """Check that restoring raises an error that names the file and leaves the solver unchanged; return it."""
    before = solver.iter, solver.current_step, bits(solver), [n.layer.state() for n in solver.net.graph.nodes]
    with pytest.raises(SnapshotError, match=text) as caught:
        solver.restore(path)
    assert str(path) in str(caught.value)
    after = solver.iter, solver.current_step, bits(solver), [n.layer.state() for n in solver.net.graph.nodes]
    assert after == before
    return caught.value


@pytest.mark.parametrize("keep", [0, 0.3, 0.9])
def test_damaged_files(keep, saved):
    path, solver = saved
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])
    _refused(solver, path, "empty|cut short|not a solver state|damaged")


def test_a_model_is_no_state(saved):
    path, solver = saved
    _refused(solver, path.with_suffix(".caffemodel"), "not a solver state")


def test_missing(saved):
    _refused(saved[1], saved[0].with_name("none.solverstate"), "Could not open file")


def _changed(path, **changes):
    old = read_solverstate(path)
    fields = {k: getattr(old, k) for k in ("iter", "learned_net", "current_step", "history", "resume")}
    write_solverstate(path, SolverSnapshot(**(fields | changes)))


def test_another_number_of_histories(saved):
    path, solver = saved
    _changed(path, history=read_solverstate(path).history * 2)
    assert "solver type" in _refused(solver, path, "the snapshot has 4 history blobs, this solver needs 2").fix


def test_another_shape_of_history(saved):
    path, solver = saved
    first, second = read_solverstate(path).history
    _changed(path, history=[first, second[:4]])
    _refused(solver, path, r"a history blob has shape \(4,\), this solver's has \(5,\)")


def test_a_history_of_four_axes_fits(saved):
    """Old versions of Caffe wrote such histories."""
    path, solver = saved
    first, second = read_solverstate(path).history
    _changed(path, history=[first.reshape(1, 1, *first.shape), second.reshape(1, 1, 1, -1)])
    solver.restore(path)
    assert (solver.history_blobs()[0].read_data() == first).all()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({("train", "drop", "draws"): None}, "'seed'"),
        ({("train", "drop", "more"): 3}, "'more': 3"),
        ({("train", "data", "draws"): -1}, "'draws': -1"),
    ],
)
def test_positions_that_a_layer_does_not_keep(change, text, saved):
    path, solver = saved
    resume = {k: v for k, v in (dict(read_solverstate(path).resume) | change).items() if v is not None}
    _changed(path, resume=resume)
    error = _refused(solver, path, f"{text}.* does not say where the layer stood: it keeps seed, draws, none negative")
    assert error.where.layer in ("drop", "data")


def test_a_state_of_caffe_says_nothing_of_positions(saved, caplog):
    """It is accepted, with one warning about the layers that start anew."""
    path, solver = saved
    _changed(path, resume={})
    caplog.clear()
    solver.restore(path)
    assert solver.iter == 2
    warnings = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert warnings == [
        f"{path} does not say where these layers stood, they start anew: data (train), drop (train)",
    ]


def test_a_state_without_model_keeps_the_weights(saved):
    """A solver whose model was loaded by itself writes such a state."""
    path, solver = saved
    _changed(path, learned_net="")
    before = [b.read_data().copy() for b in solver.net.params["ip"]]
    solver.restore(path)
    assert all((a.read_data() == b).all() for a, b in zip(solver.net.params["ip"], before, strict=True))


def test_a_model_of_another_net(saved, tmp_path):
    path, solver = saved
    other = make(INPUT + inner(outputs=4) + loss())
    save(other.net, tmp_path / "r_iter_2.caffemodel")
    before = solver.iter, [b.read_data().tobytes() for b in solver.history_blobs()]
    with pytest.raises(SnapshotError, match=r"r_iter_2.caffemodel is not the one .* SHA-256 differs"):
        solver.restore(path)
    write_solverstate(path, replace(read_solverstate(path), model_sha256=b""))  # as Caffe's, which say nothing of it
    with pytest.raises(CaffeError, match=r"r_iter_2.caffemodel: layer \"ip\".*shape \(4, 3\) in the file and \(5, 3\)"):
        solver.restore(path)
    assert (solver.iter, [b.read_data().tobytes() for b in solver.history_blobs()]) == before
