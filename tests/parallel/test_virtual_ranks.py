"""Tests virtual ranks: any number of processes computes the same bits, with LMS and without, resumed or not."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.data.database.datum import encode_datum
from pycaffe_lms.data.database.lmdb_writer import write_lmdb
from pycaffe_lms.errors import GraphError, UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.program.tree_reduction import kept_level
from pycaffe_lms.solvers.update.sharing import Sharing

from ..solvers.helpers import bits, inner, loss, solver_text
from .ranks import in_threads, joined, rank_solver, sim
from .test_data_parallel import RELU, rows

h5py = pytest.importorskip("h5py")
V = 4
PLACES = {
    "cpu": lambda rank: {"device": get_device("cpu")},
    "sim": sim("random"),
    "lms 1": sim("random", LMSConfig(threshold_kb=1, ahead=1)),
    "lms auto": sim("latest", LMSConfig(auto=True, threshold_kb=1, budget=160 << 10)),
}
NORM = 'layer { name: "norm" type: "BatchNorm" bottom: "ip1" top: "ip1" batch_norm_param { scale_bias: true } }\n'
DROP = 'layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }\n'
LAYERS = inner("ip1", outputs=300) + NORM + RELU + DROP + inner("ip2", "ip1", outputs=6) + inner("ip", "ip2") + loss()


def text_of(tmp_path, **fields) -> str:
    return solver_text(rows(tmp_path, 4) + LAYERS, **({"momentum": 0.9, "weight_decay": 0.01} | fields))


def train(
    text: str, count: int, place=PLACES["cpu"], *, iterations: int = 3, layer_wise: bool = True, resume: str = ""
) -> list[list[bytes]]:
    """Return every process's parameters and gradients, to the bit. resume: the state to go on from."""

    def work(rank, path):
        solver = rank_solver(text, rank, count, virtual_ranks=V, **place(rank))
        parallel = joined(solver, path, layer_wise=layer_wise) if count > 1 else None
        if resume:
            solver.restore(resume)
        solver.step(iterations)
        found = bits(solver)
        if parallel is not None:
            parallel.close()
        solver.close()
        return found

    return in_threads(count, work)


def learned(found: list[bytes]) -> list[bytes]:
    """Return what is the same on all processes: all but the three running statistics behind ip1's parameters."""
    return found[:2] + found[5:11] + found[-6:]


@pytest.mark.parametrize("place", PLACES)
def test_any_number_of_processes_computes_the_same_bits(tmp_path, place):
    """Each virtual rank has its own records, dropout and running statistics; those of the first are shown."""
    text = text_of(tmp_path)
    expected = train(text, 1)[0]
    assert len(set(learned(expected))) == len(learned(expected))
    for count in (1, 2, 4):
        for layer_wise in (True, False) if count == 2 else (True,):
            found = train(text, count, PLACES[place], layer_wise=layer_wise)
            assert found[0] == expected
            for other in found[1:]:
                assert learned(other) == learned(expected)
                assert other[2] != expected[2], "another virtual rank's mean"


@pytest.mark.parametrize(
    "fields",
    [{"iter_size": 2}, {"clip_gradients": 0.3}, {"type": '"Adam"', "momentum2": 0.999}, {"debug_info": "true"}],
    ids=["iter_size", "clipping", "Adam", "debug_info"],
)
def test_with_every_kind_of_iteration(tmp_path, fields):
    text = text_of(tmp_path, **fields)
    expected = train(text, 1)[0]
    assert expected != train(text_of(tmp_path), 1)[0] or "debug_info" in fields
    for count, place in ((2, "cpu"), (4, "lms 1")):
        assert train(text, count, PLACES[place])[0] == expected


def test_sums_follow_the_tree(tmp_path):
    """The gradients of four solvers on their own, added pair by pair by NumPy, in float32."""
    text = text_of(tmp_path)
    root = rank_solver(text, 0, V)
    weights = [b.read_data().copy() for b in root.net.learnable_params]

    def gradients(solver):
        seen = []
        params = solver.net.learnable_params
        solver.callbacks.append((lambda: None, lambda: seen.extend(b.read_diff().copy() for b in params)))
        solver.step(1)
        return seen

    found = []
    for rank in range(V):
        solver = rank_solver(text, rank, V)
        for mine, values in zip(solver.net.learnable_params, weights, strict=True):
            mine.data = values
        found.append(gradients(solver))
    tree = [(((a + b) + (c + d)) / np.float32(4)).tobytes() for a, b, c, d in zip(*found, strict=True)]
    line = [((((a + b) + c) + d) / np.float32(4)).tobytes() for a, b, c, d in zip(*found, strict=True)]
    assert tree != line

    def work(rank, path, count):
        solver = rank_solver(text, rank, count, virtual_ranks=V)
        parallel = joined(solver, path) if count > 1 else None
        seen = gradients(solver)
        if parallel is not None:
            parallel.close()
        return [g.tobytes() for g in seen]

    for count in (1, 2, 4):
        assert in_threads(count, partial(work, count=count)) == [tree] * count


def test_the_mean_of_all_virtual_ranks_in_float64(tmp_path):
    """One step of linear regression, from a formula: virtual rank k reads rows k, k + 4, ..."""
    layers = inner("ip", outputs=1) + (
        'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "y" top: "loss" }\n'
    )
    data = rows(tmp_path, 2)
    with h5py.File(tmp_path / "rows.h5", "a") as file:
        x = file["x"][: 2 * V].astype(np.float64)
        file["y"] = np.arange(96, dtype=np.float32)[:, None]
    data = data.replace('top: "label"', 'top: "y"')
    text = solver_text(data + layers, base_lr=0.25)
    for count in (1, 2):

        def work(rank, path, count=count):
            solver = rank_solver(text, rank, count, virtual_ranks=V, dtype="float64")
            before = [b.read_data().copy() for b in solver.net.learnable_params]
            parallel = joined(solver, path) if count > 1 else None
            solver.step(1)
            found = [b.read_data().copy() for b in solver.net.learnable_params]
            if parallel is not None:
                parallel.close()
            return before, found

        (w, b), (new_w, new_b) = in_threads(count, work)[0]
        means = []
        for k in range(V):
            mine = x[k::V]  # two rows, the batch of virtual rank k
            error = mine @ w.reshape(3) + b.reshape(()) - np.arange(2 * V)[k::V]
            means.append((error @ mine / 2, error.sum() / 2))
        step_w, step_b = (0.25 * np.mean([m[i] for m in means], axis=0) for i in (0, 1))
        np.testing.assert_allclose(new_w.reshape(3), w.reshape(3) - step_w, rtol=1e-13)
        np.testing.assert_allclose(new_b.reshape(()), b.reshape(()) - step_b, rtol=1e-13)


def test_statistics_of_all_virtual_ranks_are_kept(tmp_path):
    """What process k of four has, virtual rank k of one process has."""
    text = text_of(tmp_path)
    expected = [found[2] for found in train(text, V)]
    solver = rank_solver(text, 0, 1, virtual_ranks=V)
    solver.step(3)
    found = []
    for index in range(V):
        solver.virtual.turn_to(index)
        found.append(solver.net.params["norm"][0].read_data().tobytes())
    assert found == expected and len(set(found)) == V


@pytest.mark.parametrize("wrote", [1, 4])
def test_snapshots_resume_on_another_number_of_processes(tmp_path, wrote):
    text = text_of(tmp_path, snapshot_prefix=f'"{tmp_path}/run"')
    expected = learned(train(text, 1, iterations=6)[0])
    train(text.replace("momentum: 0.9", "momentum: 0.9 snapshot: 3"), wrote)
    state = f"{tmp_path}/run_iter_3.solverstate"
    for count in (1, 2, 4):
        for place in ("cpu", "lms 1"):
            assert learned(train(text, count, PLACES[place], resume=state)[0]) == expected


def test_carried_values_are_those_of_each_virtual_rank():
    """An LSTM that goes on from batch to batch, over random values that each virtual rank draws for itself."""
    layers = """
layer { name: "data" type: "DummyData" top: "x" top: "label" top: "cont" dummy_data_param {
  shape { dim: 3 dim: 2 dim: 4 } shape { dim: 3 dim: 2 } shape { dim: 3 dim: 2 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 4.99 }
  data_filler { type: "constant" value: 1 } } }
layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h"
  recurrent_param { num_output: 6 weight_filler { type: "uniform" min: -1 max: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "h" top: "ip"
  inner_product_param { axis: 2 num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" softmax_param { axis: 2 } }
"""
    text = solver_text(layers, momentum=0.9)
    expected = train(text, V)[0]
    for count, place in ((1, "cpu"), (1, "lms 1"), (2, "sim")):
        assert train(text, count, PLACES[place])[0] == expected


def test_a_database_is_read_by_all_virtual_ranks_of_a_process(tmp_path):
    """Ten pictures, cut and mirrored at random, each by its own virtual rank."""
    random = np.random.RandomState(0)
    pictures = [random.randint(0, 256, (2, 6, 6), dtype=np.uint8) for _ in range(10)]
    write_lmdb(tmp_path / "db", [(b"%04d" % k, encode_datum(p, k % 5)) for k, p in enumerate(pictures)])
    data = (
        'layer { name: "data" type: "Data" top: "x" top: "label" include { phase: TRAIN } transform_param { '
        f'crop_size: 4 mirror: true scale: 0.01 }} data_param {{ source: "{tmp_path}/db" '
        "backend: LMDB batch_size: 3 } }\n"
    )
    text = solver_text(data + inner() + loss(), snapshot=2, snapshot_prefix=f'"{tmp_path}/run"')
    expected = train(text, V, iterations=4)[0]
    assert train(text, 1, iterations=4)[0] == expected
    assert train(text, 1, iterations=2, resume=f"{tmp_path}/run_iter_2.solverstate")[0] == expected


@pytest.mark.parametrize(("index", "level"), [*enumerate([0, 1, 0, 2, 0, 1, 0, 3])])
def test_sums_are_kept_as_a_counter_carries(index, level):
    assert kept_level(index) == level


def test_numbers_that_cannot_be_shared(tmp_path):
    for number in (0, 3, 6, -4):
        with pytest.raises(UsageError, match=f"-virtual_ranks {number} is no power of two"):
            Sharing(number)
    with pytest.raises(UsageError, match="-virtual_ranks 4 cannot be divided among 3 ranks"):
        rank_solver(text_of(tmp_path), 0, 3, virtual_ranks=4)

    text = text_of(tmp_path)

    def work(rank, path):
        solver = rank_solver(text, rank, 2, virtual_ranks=(4, 8)[rank])
        with pytest.raises(GraphError, match="the ranks train different nets"):
            joined(solver, path)

    in_threads(2, work)


def test_a_backward_by_hand_has_no_mean(tmp_path):
    text = text_of(tmp_path)

    def work(rank, path, total):
        solver = rank_solver(text, rank, 2, virtual_ranks=total)
        parallel = joined(solver, path)
        solver.net.forward()
        if total == 4:
            with pytest.raises(UsageError, match="one of the 2 virtual ranks of this process"):
                solver.net.backward()
        else:
            solver.net.backward()
        found = bits(solver)[-6:]
        parallel.close()
        return found

    in_threads(2, partial(work, total=4))
    first, second = in_threads(2, partial(work, total=2))
    assert first == second


@pytest.mark.parametrize("place", ["cpu", "lms 1"])
def test_pictures_of_every_size_one_at_a_time(tmp_path, place):
    """The shapes of the net change from virtual rank to virtual rank."""
    random, sizes = np.random.RandomState(0), [(8, 8), (5, 9), (12, 6), (8, 8), (20, 20)]
    pictures = [random.randint(0, 256, (3, *size), dtype=np.uint8) for size in sizes]
    write_lmdb(tmp_path / "db", [(b"%04d" % k, encode_datum(p, k)) for k, p in enumerate(pictures)])
    layers = (
        f'layer {{ name: "data" type: "Data" top: "x" top: "label" transform_param {{ scale: 0.01 }} '
        f'data_param {{ source: "{tmp_path}/db" batch_size: 1 backend: LMDB }} }}\n'
        'layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" convolution_param { '
        'num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }\n'
        'layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: AVE '
        "global_pooling: true } }\n"
    )
    text = solver_text(layers + inner(bottom="pool") + loss(), momentum=0.9)
    assert train(text, 1, PLACES[place], iterations=6)[0] == train(text, V, iterations=6)[0]
