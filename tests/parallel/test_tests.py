"""Tests of a solver divided among ranks: means, log lines and positions equal those of one process, to the bit."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.net import Net
from pycaffe_lms.solvers.base import NONE, STOP
from pycaffe_lms.solvers.testing import why_alone

from ..data.helpers import numbered_lmdb
from ..solvers.helpers import bits, inner, loss, messages, solver_text
from .ranks import in_threads, joined, rank_solver, sim

h5py = pytest.importorskip("h5py")
LMS = LMSConfig(threshold_kb=1, ahead=1)
PLACES = {
    "cpu": lambda rank: {"device": get_device("cpu")},
    "sim": sim("random"),
    "lms": sim("random", LMS),
}
ROWS, BATCH, ITER = 60, 4, 7


@pytest.fixture
def rows(tmp_path):
    """Return the text of a TRAIN and a TEST layer over rows, of which tests do not read a whole number of epochs."""
    rng = np.random.default_rng(5)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["x"] = rng.normal(size=(ROWS, 3)).astype(np.float32)
        file["label"] = rng.integers(0, 5, ROWS).astype(np.float32)
    (tmp_path / "list.txt").write_text(f"{tmp_path}/rows.h5\n")

    def layers(shuffle: bool = False) -> str:
        return "".join(
            f'layer {{ name: "data" type: "HDF5Data" top: "x" top: "label" include {{ phase: {phase} }} '
            f'hdf5_data_param {{ source: "{tmp_path}/list.txt" batch_size: {BATCH} '
            f"shuffle: {str(shuffle).lower()} }} }}\n"
            for phase in ("TRAIN", "TEST")
        )

    return layers


ACCURACY = (
    'layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" include { phase: TEST } }\n'
)
DROPOUT = 'layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }\n'
NORM = 'layer { name: "norm" type: "BatchNorm" bottom: "ip1" top: "ip1" }\n'
NET = inner("ip1", outputs=8) + DROPOUT + inner("ip", "ip1") + ACCURACY + loss()


def run(text: str, count: int, place) -> list:
    """Return for every rank what its tests found (means to the bit), its weights, and where test nets stand."""

    def work(rank, path):
        solver = rank_solver(text, rank, count, **place(rank))
        found = []
        solver.observers.append(_Watcher(found))
        parallel = joined(solver, path) if count > 1 else None
        solver.solve()
        states = [
            node.layer.state()
            for net in solver.test_nets
            for node in net.graph.nodes
            if "batches" in node.layer.state()
        ]
        weights = bits(solver)
        if parallel is not None:
            parallel.close()
        solver.close()
        return found, weights, states

    return in_threads(count, work)


class _Watcher:
    def __init__(self, found: list):
        self._found = found

    def on_test(self, test) -> None:
        values = [*(o.value for o in test.outputs), test.loss or 0.0]
        self._found.append((test.iteration, test.net, [o.name for o in test.outputs], np.array(values).tobytes()))

    def __getattr__(self, name):
        if not name.startswith("on_"):
            raise AttributeError(name)
        return lambda *args: None


def _text(net: str, **more) -> str:
    return solver_text(net, test_iter=ITER, test_interval=2, max_iter=6, test_compute_loss="true", **more)


@pytest.mark.parametrize("shuffle", [False, True], ids=["in order", "shuffled"])
@pytest.mark.parametrize("count", [2, 3])
def test_scores_are_those_of_one_process_to_the_bit(rows, count, shuffle):
    """Weights that stand still (base_lr 0) are the same on all ranks; 7 batches are no multiple of 2 or 3."""
    text = _text(rows(shuffle) + NET, base_lr=0)
    alone, _, states = run(text, 1, PLACES["cpu"])[0]
    assert [at for at, *_ in alone] == [0, 2, 4, 6] and len({values for *_, values in alone}) > 1
    for found, _, where in run(text, count, PLACES["cpu"]):
        assert found == alone and where == states


def test_fewer_batches_than_ranks(rows):
    text = _text(rows() + NET, base_lr=0).replace(f"test_iter: {ITER}", "test_iter: 1")
    alone = run(text, 1, PLACES["cpu"])[0]
    assert [(found, where) for found, _, where in run(text, 3, PLACES["cpu"])] == [(alone[0], alone[2])] * 3


@pytest.mark.parametrize("place", PLACES)
def test_weights_and_scores_are_those_of_rank_0_testing_alone(rows, place, monkeypatch):
    text = _text(rows() + NET)
    divided = run(text, 2, PLACES[place])
    assert divided[0] == divided[1]
    monkeypatch.setattr("pycaffe_lms.solvers.base.why_alone", lambda net: "asked")
    alone = run(text, 2, PLACES["cpu"])
    assert alone[0][:2] == divided[0][:2] and len(alone[0][0]) == 4 and alone[1][0] == []


def test_statistics_of_rank_0_are_those_that_count(rows, monkeypatch):
    """Running averages of BatchNorm differ between ranks; tests use those of rank 0, as when it tests alone."""
    text = _text(rows() + inner("ip1", outputs=8) + NORM + inner("ip", "ip1") + ACCURACY + loss())
    divided = run(text, 2, PLACES["sim"])
    assert divided[0][0] == divided[1][0]
    monkeypatch.setattr("pycaffe_lms.solvers.base.why_alone", lambda net: "asked")
    alone = run(text, 2, PLACES["sim"])
    assert alone[0][0] == divided[0][0] and alone[1][0] == [] and len(alone[0][0]) == 4
    assert alone[0][1] == divided[0][1]


def test_each_rank_runs_its_share(rows, monkeypatch):
    counts, forward = [0, 0, 0], Net.test_forward

    def counted(net):
        counts[net.solver_rank] += 1
        return forward(net)

    monkeypatch.setattr(Net, "test_forward", counted)
    run(_text(rows() + NET), 3, PLACES["cpu"])
    assert counts == [4 * 3, 4 * 2, 4 * 2]  # four tests; batches 0, 3, 6 and 1, 4 and 2, 5


def test_log_lines_are_those_of_one_process(rows, caplog):
    caplog.set_level(logging.INFO)
    text = _text(rows() + NET, base_lr=0)
    tests = []
    for count in (1, 2):
        caplog.clear()
        run(text, count, PLACES["cpu"])
        tests.append([m for m in messages(caplog) if "Test" in m and "Creating" not in m])
    assert tests[0] == tests[1] and len(tests[0]) == 4 * 4  # "Testing net", loss and two outputs


def test_databases_and_random_transforms(tmp_path):
    """The Data layer mirrors at random in tests, too: draws are those of one process, whatever the rank's seed."""
    numbered_lmdb(str(tmp_path / "db"), 22, shape=(1, 2, 5))
    data = "".join(
        f'layer {{ name: "data" type: "Data" top: "x" top: "label" include {{ phase: {phase} }} '
        f'transform_param {{ mirror: true }} data_param {{ source: "{tmp_path}/db" batch_size: 4 backend: LMDB }} }}\n'
        for phase in ("TRAIN", "TEST")
    )
    score = inner("ip", "x", outputs=122) + loss()
    alone = run(_text(data + score, base_lr=0), 1, PLACES["cpu"])[0]
    for rank in run(_text(data + score, base_lr=0), 3, PLACES["cpu"]):
        assert rank[0] == alone[0] and rank[2] == alone[2]


def test_a_wish_to_stop_ends_the_test_of_all(rows):
    asked = []

    def work(rank, path):
        def action():
            asked.append(rank)
            return STOP if rank == 0 and asked.count(0) > 2 else NONE

        solver = rank_solver(_text(rows() + NET), rank, 2, device=get_device("cpu"), action=action)
        found = []
        solver.observers.append(_Watcher(found))
        parallel = joined(solver, path)
        solver.solve()
        parallel.close()
        return found, solver.iter

    assert in_threads(2, work) == [([], 1), ([], 1)]


@pytest.mark.parametrize(
    "layers, why",
    [
        ('layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 4 } } }', '"in" (Input)'),
        (
            'layer { name: "d" type: "DummyData" top: "x" top: "label" dummy_data_param { shape { dim: 4 } } }'
            'layer { name: "out" type: "HDF5Output" bottom: "x" bottom: "label" hdf5_output_param { file_name: "o" } }',
            '"out" (HDF5Output)',
        ),
        (
            'layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 4 dim: 2 } } }'
            'layer { name: "n" type: "BatchNorm" bottom: "x" top: "y" batch_norm_param { use_global_stats: false } }',
            '"n" (BatchNorm)',
        ),
        ('layer { name: "d" type: "DummyData" top: "x" dummy_data_param { shape { dim: 4 dim: 2 } } }', None),
    ],
)
def test_which_nets_cannot_be_divided(layers, why, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = solver_text(layers, test_iter=1, test_interval=1)
    found = why_alone(rank_solver(text, 0, 1).test_nets[0])
    assert found is None if why is None else found is not None and why in found
