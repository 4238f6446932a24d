"""Recurrent nets in training: they learn, with and without Large Model Support alike, resume where they stood, and a
real language model builds."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import text_format

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.formats.weights.solverstate import SolverSnapshot, read_solverstate, write_solverstate
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.net import Net
from pycaffe_lms.proto import caffe_pb2
from pycaffe_lms.solvers import SGDSolver
from tests.shared_data import SHARED, needs_shared

SYMBOLS, STEPS, STREAMS = 4, 5, 8

NET = """
layer { name: "input" type: "Input" top: "word" top: "cont" top: "target"
  input_param { shape { dim: 5 dim: 8 } } }
layer { name: "embed" type: "Embed" bottom: "word" top: "embed"
  embed_param { input_dim: 4 num_output: 6 bias_term: false weight_filler { type: "uniform" min: -1 max: 1 } } }
layer { name: "recur" type: "LSTM" bottom: "embed" bottom: "cont" top: "recur"
  recurrent_param { num_output: 12 weight_filler { type: "uniform" min: -0.4 max: 0.4 } } }
layer { name: "drop" type: "Dropout" bottom: "recur" top: "recur" dropout_param { dropout_ratio: 0 } }
layer { name: "predict" type: "InnerProduct" bottom: "recur" top: "predict"
  inner_product_param { num_output: 4 axis: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "predict" bottom: "target" top: "loss"
  softmax_param { axis: 2 } loss_param { ignore_label: -1 } }
layer { name: "accuracy" type: "Accuracy" bottom: "predict" bottom: "target" top: "accuracy"
  accuracy_param { axis: 2 ignore_label: -1 } }
"""


def _batches(seed=0):
    """Endless streams of symbols in pieces of STEPS; the target is the symbol before, which for a piece's first step
    is the last of the piece before. Now and then a stream begins anew: then there is no symbol before."""
    rng = np.random.default_rng(seed)
    before = np.full(STREAMS, -1)
    while True:
        words = rng.integers(SYMBOLS, size=(STEPS, STREAMS))
        cont = (rng.random((STEPS, STREAMS)) > 0.1).astype(float)
        target = np.where(cont, np.vstack([before, words[:-1]]), -1)
        before = words[-1]
        yield {"word": words, "cont": cont, "target": target}


class Trained:
    """A solver that is fed from `_batches`."""

    def __init__(self, device=None, lms=None, kind="LSTM", prefix="", lr=0.5, **options):
        fields = {"base_lr": lr, "momentum": 0.9, "lr_policy": '"fixed"', "random_seed": 5} | options
        text = "\n".join(f"{name}: {value}" for name, value in fields.items())
        text += f'\nsnapshot_prefix: "{prefix}"' if prefix else ""
        parsed = parse_solver(f"{text}\nnet_param {{ {NET.replace('LSTM', kind)} }}", None)
        self.solver = SGDSolver(parsed.message, lines=parsed.lines, device=device or get_device("cpu"), lms=lms)
        self.net, self.batches, self.losses = self.solver.net, _batches(), []

    def step(self, n):
        for _ in range(n):
            for name, values in next(self.batches).items():
                self.net.blobs[name].data = values
            self.solver.step(1)
            self.losses.append(self.net.loss())
        return self

    def bits(self):
        blobs = [b.read_data().tobytes() + b.read_diff().tobytes() for b in self.net.learnable_params]
        return blobs, [(k, v.tobytes()) for k, v in self.net.recurrent_states.read().items()]


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_it_learns_to_remember(kind):
    """Also over the borders of batches: else a fifth of the answers would be guesses."""
    run = Trained(kind=kind, lr=1.0 if kind == "LSTM" else 0.2).step(250)
    assert np.mean(run.losses[:5]) > 1.2
    assert np.mean(run.losses[-20:]) < 0.05
    assert float(run.net.blobs["accuracy"].read_data()) == 1


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
@pytest.mark.parametrize("seed", range(6))
def test_lms_changes_no_bit(seed, kind):
    expected = Trained(SimDevice(64 << 20), kind=kind).step(4)
    device = SimDevice(64 << 20, order="random", seed=seed)
    run = Trained(device, LMSConfig(threshold_kb=1, ahead=(0, 1, 32)[seed % 3]), kind).step(4)
    assert (run.losses, run.bits()) == (expected.losses, expected.bits())
    assert device.bytes_in > 0 and len(set(run.losses)) == 4


PLACES = {
    "cpu": lambda: {},
    "sim": lambda: {"device": SimDevice(64 << 20)},
    "sim with LMS": lambda: {"device": SimDevice(64 << 20), "lms": LMSConfig(threshold_kb=0.25, ahead=1)},
}


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
@pytest.mark.parametrize("place", PLACES)
def test_resumed_equals_uninterrupted(place, form, tmp_path):
    """What the states were at the snapshot is part of it."""
    if form == "HDF5":
        pytest.importorskip("h5py")
    whole = Trained(**PLACES[place]()).step(6)
    first = Trained(prefix=f"{tmp_path}/r", snapshot_format=form, **PLACES[place]()).step(3)
    first.solver.snapshot()
    second = Trained(random_seed=99, **PLACES[place]())
    second.step(1)  # states of its own, to be replaced
    second.batches = first.batches
    second.solver.restore(tmp_path / f"r_iter_3.solverstate{'.h5' if form == 'HDF5' else ''}")
    second.step(3)
    assert second.bits() == whole.bits() and second.losses[1:] == whole.losses[3:]


def test_states_of_test_nets_are_kept_too(tmp_path):
    """Each net has its own."""
    more = {"test_iter": 1, "test_interval": 100, "prefix": f"{tmp_path}/r"}
    first, second = Trained(**more).step(2), Trained(**more)
    test = first.solver.test_nets[0]
    test.blobs["cont"].data, test.blobs["word"].data = 1, 2
    first.solver.test()
    first.solver.snapshot()
    second.solver.restore(tmp_path / "r_iter_2.solverstate")
    theirs, ours = second.solver.test_nets[0].recurrent_states.read(), test.recurrent_states.read()
    assert ours.keys() == {("recur", "h"), ("recur", "c")}
    assert all((theirs[key] == ours[key]).all() and ours[key].any() for key in ours)
    assert any((first.net.recurrent_states.read()[key] != ours[key]).any() for key in ours)


@pytest.mark.parametrize("kept", [{}, {("train", "recur", "h"): np.ones((3, 12)), ("train", "other", "c"): np.ones(2)}])
def test_a_snapshot_without_fitting_states(kept, tmp_path, caplog):
    """Of Caffe, or of another batch size: the states start at zero, and that is said."""
    run = Trained(prefix=f"{tmp_path}/r").step(2)
    path = Path(run.solver.snapshot() or tmp_path / "r_iter_2.solverstate")
    old = read_solverstate(path)
    assert old.carried.keys() == {("train", "recur", "h"), ("train", "recur", "c")}
    write_solverstate(path, SolverSnapshot(old.iter, old.learned_net, 0, old.history, old.resume, kept))
    caplog.set_level(logging.WARNING, "pycaffe_lms")
    run.solver.restore(path)
    assert not any(v.any() for v in run.net.recurrent_states.read().values())
    assert "start anew: recur (train)" in caplog.text


@pytest.mark.parametrize("suffix", ["", ".h5"])
def test_what_is_carried_survives_a_file(suffix, tmp_path):
    if suffix:
        pytest.importorskip("h5py")
    values = {
        ("train", "a/b:c", "h"): np.arange(6, dtype=np.float32).reshape(2, 3),
        ("test0", "lstm 1", "c"): np.array([[1e-300, np.pi]]),
        ("test1", "none", "c"): np.zeros((0, 3), np.float32),
    }
    write_solverstate(tmp_path / f"s{suffix}", SolverSnapshot(1, carried=values))
    found = read_solverstate(tmp_path / f"s{suffix}").carried
    assert found.keys() == values.keys()
    for key, expected in values.items():
        assert found[key].dtype == expected.dtype and found[key].shape == expected.shape
        assert (found[key] == expected).all()


def test_a_reshape_keeps_states_that_fit():
    """Of steps as many as one likes; with another number of streams states begin at zero."""
    run = Trained().step(2)
    before = run.net.recurrent_states.read()
    run.net.reshape()
    assert all((v == before[k]).all() and v.any() for k, v in run.net.recurrent_states.read().items())
    for name in ("word", "cont", "target"):
        run.net.blobs[name].reshape(2, STREAMS)
    run.net.reshape()
    assert all((v == before[k]).all() for k, v in run.net.recurrent_states.read().items())
    for name in ("word", "cont", "target"):
        run.net.blobs[name].reshape(2, 3)
    run.net.reshape()
    assert not any(v.any() for v in run.net.recurrent_states.read().values())


@needs_shared
@pytest.mark.shared
@pytest.mark.parametrize("stages", [(), ("embed-drop", "lstm-drop")])
def test_a_real_language_model_builds(stages):
    path = SHARED / "material" / "lstm_lm" / "lstm_language_model.prototxt"
    message = text_format.Parse(path.read_text(), caffe_pb2.NetParameter())
    layers = [layer for layer in message.layer if layer.type != "HDF5Data"]
    del message.layer[:]
    data = message.layer.add(name="data", type="Input", top=["cont_sentence", "input_sentence", "target_sentence"])
    data.input_param.shape.add(dim=[20, 10])
    message.layer.extend(layers)
    net = Net(message, phase=0, stages=stages, fill=False)
    shapes = [[b.shape for b in net.params[name]] for name in ("embedding", "lstm1", "predict")]
    assert shapes == [[(8801, 1000)], [(4000, 1000), (4000,), (4000, 1000)], [(8801, 1000), (8801,)]]
    assert net.blobs["predict"].shape == (20, 10, 8801)
