"""Tests synchronized BatchNorm: ranks normalise by the statistics of all their batches together."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.errors import GraphError, LayerParamError, LostRank
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.program.reduction import BucketSizes, Reduction
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.parallel.host import HostCommunicator

from ..layers.harness import CudaArrays, HostArrays, LayerBench
from ..solvers.helpers import bits, inner, loss, messages, solver_text
from .ranks import in_threads, joined, rank_solver, sim
from .test_data_parallel import rows, train

pytest.importorskip("h5py")
FLOAT64 = {"dtype": "float64"}
PLACES = {
    "sim": sim("random"),
    "lms": sim("random", LMSConfig(threshold_kb=1, ahead=1)),
    "lms, small": sim("latest", LMSConfig(threshold_kb=1, budget=80 << 10)),
    "lms auto": sim("earliest", LMSConfig(auto=True, threshold_kb=1, budget=100 << 10)),
}


@pytest.fixture(autouse=True)
def many_sums(monkeypatch):
    """Sum the gradients of most layers by themselves, as those of large nets are."""
    monkeypatch.setattr(Reduction, "sizes", BucketSizes(256, 4 << 20))


def cpu(rank: int) -> dict:
    return {"device": get_device("cpu")}


def conv(name: str, bottom: str, kernel: int = 3) -> str:
    return (
        f'layer {{ name: "{name}" type: "Convolution" bottom: "{bottom}" top: "{name}" convolution_param {{ '
        f'num_output: 8 kernel_size: {kernel} pad: {kernel // 2} weight_filler {{ type: "gaussian" std: 0.3 }} }} }}\n'
    )


def norm(name: str, bottom: str, fields: str = "sync: true") -> str:
    return (
        f'layer {{ name: "{name}" type: "BatchNorm" bottom: "{bottom}" top: "{bottom}" '
        f"batch_norm_param {{ moving_average_fraction: 0.9 {fields} }} }}\n"
    )


def relu(bottom: str) -> str:
    return f'layer {{ name: "relu_{bottom}" type: "ReLU" bottom: "{bottom}" top: "{bottom}" }}\n'


def residual(sync: str = "sync: true") -> str:
    """Return layers with a normalisation of each kind, and a shortcut, where two of them follow one value."""
    return (
        inner("ip1", outputs=48)
        + norm("norm0", "ip1", sync)
        + 'layer { name: "image" type: "Reshape" bottom: "ip1" top: "image" '
        "reshape_param { shape { dim: 0 dim: 3 dim: 4 dim: 4 } } }\n"
        + conv("conv1", "image")
        + norm("norm1", "conv1", sync)
        + 'layer { name: "scale1" type: "Scale" bottom: "conv1" top: "conv1" scale_param { bias_term: true } }\n'
        + relu("conv1")
        + conv("conv2", "conv1")
        + norm("norm2", "conv2", f"scale_bias: true {sync}")
        + conv("conv3", "conv1", kernel=1)
        + norm("norm3", "conv3", sync)
        + 'layer { name: "sum" type: "Eltwise" bottom: "conv3" bottom: "conv2" top: "sum" }\n'
        + relu("sum")
        + inner("ip", "sum")
        + loss()
    )


def text_of(tmp_path, batch: int = 4, layers: str | None = None, **fields) -> str:
    fields = {"momentum": 0.9, "weight_decay": 0.01} | fields
    return solver_text(rows(tmp_path, batch) + (residual() if layers is None else layers), **fields)


def alone(text: str, place: dict, iterations: int) -> list[bytes]:
    solver = rank_solver(text, 0, 1, **place)
    solver.step(iterations)
    found = bits(solver)
    solver.close()
    return found


def distance(found: list[bytes], expected: list[bytes]) -> float:
    """Return the largest difference of two lists of arrays of float64, in parts of each array's largest number."""
    pairs = [(np.frombuffer(a), np.frombuffer(b)) for a, b in zip(found, expected, strict=True)]
    return max(float(np.abs(a - b).max() / max(1, np.abs(b).max())) for a, b in pairs)


@pytest.mark.parametrize("fields", [{}, {"iter_size": 2}], ids=["", "iter_size"])
@pytest.mark.parametrize("count", [2, 3])
def test_as_one_with_all_their_records(tmp_path, count, fields):
    """Parameters, gradients and running averages after five iterations, in float64."""
    plain = residual(sync="")
    expected = alone(text_of(tmp_path, 4 * count, plain, **fields), FLOAT64, 5)
    found = train(text_of(tmp_path, **fields), count, lambda rank: cpu(rank) | FLOAT64)
    for rank in found:
        assert rank == found[0], "the same bits on all ranks, running averages included"
        assert distance(rank, expected) < 1e-11
    apart = train(text_of(tmp_path, 4, plain, **fields), count, lambda rank: cpu(rank) | FLOAT64)
    assert distance(apart[0], expected) > 1e-3 and apart[0] != apart[1]


@pytest.mark.parametrize("layer_wise", [True, False], ids=["layer by layer", "at the end"])
@pytest.mark.parametrize("place", PLACES)
def test_to_the_bit_wherever_they_run(tmp_path, place, layer_wise):
    text = text_of(tmp_path)
    for count in (2, 3):
        expected = train(text, count, cpu)
        assert expected == [expected[0]] * count
        assert train(text, count, PLACES[place], layer_wise=layer_wise) == expected


def test_ranks_with_and_without_lms_train_together(tmp_path):
    """They sum in one order, though only one of them has reason to sum among the steps of the backward."""
    text = text_of(tmp_path)
    expected = train(text, 2, cpu)
    mixed = [sim("random"), sim("random", LMSConfig(threshold_kb=1, budget=80 << 10))]
    split = {"tuning": Tuning(split_backward=True)}
    for layer_wise in (True, False):
        assert train(text, 2, lambda rank: mixed[rank](rank), layer_wise=layer_wise) == expected
        found = train(text, 2, lambda rank: mixed[1](rank) | (split if rank else {}), layer_wise=layer_wise)
        assert found == expected


def test_a_value_that_is_recomputed_exchanges_nothing_again(tmp_path):
    """It is made from the saved statistics, on one rank alone: the other has memory enough."""
    layers = (
        inner("x1", outputs=48)
        + norm("normed", "x1", "sync: true").replace('top: "x1"', 'top: "normed" lms_param { policy: RECOMPUTE }')
        + inner("x2", "x1", outputs=48)
        + 'layer { name: "product" type: "Eltwise" bottom: "normed" bottom: "x2" top: "product" '
        "eltwise_param { operation: PROD } }\n" + inner("ip", "product") + loss()
    )
    text = text_of(tmp_path, layers=layers)
    places = [cpu, PLACES["lms"]]

    def work(rank, path):
        solver = rank_solver(text, rank, 2, **places[rank](rank))
        parallel = joined(solver, path)
        solver.step(3)
        found, plans = bits(solver), solver.net.memory.plans()
        parallel.close()
        return found, [step.name for step in plans["train"].program.steps] if rank else []

    (first, _), (second, steps) = in_threads(2, work)
    assert first == second == train(text, 2, cpu, iterations=3)[0]
    assert steps.count("again:normed") == 1


@pytest.mark.parametrize("place", ["cpu", *PLACES])
def test_divided_histories_give_the_same_weights(tmp_path, place):
    at, text = {"cpu": cpu, **PLACES}[place], text_of(tmp_path)
    expected = train(text, 2, cpu)[0]
    for found in train(text, 2, lambda rank: at(rank) | {"shard_history": True}):
        assert found[: len(found) // 2] == expected[: len(found) // 2], "the other half are gradients"


def test_bfloat16_with_lms_and_without(tmp_path):
    half = {"tuning": Tuning(half=True)}
    text = text_of(tmp_path)
    expected = train(text, 2, lambda rank: cpu(rank) | half)
    assert expected != train(text, 2, cpu)
    assert train(text, 2, lambda rank: PLACES["lms"](rank) | half) == expected


def test_it_runs_recorded_with_the_exchanges(tmp_path):
    text = text_of(tmp_path)

    def work(rank, path):
        solver = rank_solver(text, rank, 2, **sim("latest")(rank))
        parallel = joined(solver, path)
        solver.step(6)
        parallel.close()
        return solver.net.device.launches

    assert in_threads(2, work) == [4, 4]


def test_a_communicator_that_cannot_be_captured_keeps_it_from_being_recorded(tmp_path, monkeypatch):
    """In forwards by hand, too, in which no gradients are summed."""
    text = text_of(tmp_path)

    def work(rank, path):
        solver = rank_solver(text, rank, 2, **sim("latest")(rank))
        parallel = joined(solver, path)
        for _ in range(4):
            solver.net.forward()
        parallel.close()
        return solver.net.device.launches

    assert in_threads(2, work) == [2, 2]
    monkeypatch.setattr(HostCommunicator, "can_capture", False)
    assert in_threads(2, work) == [0, 0]


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1, budget=80 << 10)], ids=["", "lms"])
def test_one_rank_computes_the_bits_of_plain_batch_norm(tmp_path, lms):
    place = {"tuning": Tuning(fuse=True)} | ({} if lms is None else sim("random", lms)(0))
    expected = alone(text_of(tmp_path, layers=residual(sync="")), place, 4)
    assert alone(text_of(tmp_path), place, 4) == expected


def test_test_nets_and_running_averages_are_left_alone(tmp_path):
    """With use_global_stats, and in the phase TEST, nothing is exchanged."""
    fields = "phase: TEST batch_norm_param { sync: true use_global_stats: false }"
    for text in ("batch_norm_param { sync: true use_global_stats: true }", fields):
        solver = rank_solver(
            solver_text(
                rows(tmp_path, 4)
                + f'layer {{ name: "n" type: "BatchNorm" bottom: "x" top: "n" {text} }}\n'
                + inner("ip", "n")
                + loss()
            ),
            0,
            2,
        )
        assert solver.net.graph.exchanging == []


# -- one layer --------------------------------------------------------------------------------------------------------
SIZES = [((4, 3, 2, 2),) * 2, ((2, 3, 4), (5, 3, 4)), ((0, 3), (7, 3), (2, 3)), ((1,), (8,)), ((0, 3, 2), (0, 3, 2))]


@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("shapes", SIZES, ids=str)
def test_formula_and_numeric_gradient(shapes, scaled):
    """Batches of any sizes, empty ones too, against NumPy over all values, whose loss is differenced."""
    rng, eps, count = np.random.default_rng(5), 2**-7, len(shapes)
    x = [rng.normal(3, 2, size=shape) for shape in shapes]
    weights = [rng.normal(size=shape) for shape in shapes]
    c = shapes[0][1] if len(shapes[0]) > 1 else 1
    scale, bias = (rng.normal(size=c), rng.normal(size=c)) if scaled else (np.ones(c), np.zeros(c))

    def rows_of(arrays):
        """Return all values of all ranks as (values, channels)."""
        flat = [a.reshape(a.shape[0], c, -1) if a.size else np.zeros((0, c, 1)) for a in arrays]
        return np.concatenate([np.moveaxis(a, 1, 2).reshape(-1, c) for a in flat])

    def total(arrays):
        values = rows_of(arrays)
        if not len(values):
            return 0.0
        y = (values - values.mean(axis=0)) / np.sqrt(values.var(axis=0) + eps) * scale + bias
        return float((y * rows_of(weights)).sum())

    def work(rank, path):
        ranks = HostCommunicator(get_device("cpu"), path, count, rank)
        text = f"sync: true eps: {eps} scale_bias: {str(scaled).lower()} moving_average_fraction: 0.5"
        bench = LayerBench("BatchNorm", f"batch_norm_param {{ {text} }}", (shapes[rank],), ranks=count)
        assert bench.layer.exchanges
        bench.layer.join(ranks)
        bench.params = [np.full(c, 0.5), np.full(c, 0.25), np.ones(1)] + ([scale, bias] if scaled else [])
        (y,) = bench.forward([x[rank]])
        (again,), _ = bench.rematerialize()
        assert np.array_equal(again, y)
        (dx,), diffs = bench.backward([weights[rank]])
        ranks.close()
        return y, dx, bench.params, diffs

    found = in_threads(count, work)
    values = rows_of(x)
    m = len(values)
    for y, dx, params, _ in found:
        assert np.isfinite(y).all() and np.isfinite(dx).all()
        if m == 0:
            assert np.array_equal(params[0], np.full(c, 0.5)) and params[2] == 1
            continue
        np.testing.assert_allclose(params[0], 0.25 + values.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(params[1], 0.125 + values.var(axis=0, ddof=1), rtol=1e-12)
        np.testing.assert_allclose(params[2], 1.5, rtol=1e-14)
    if m == 0:
        return
    normal = (values - values.mean(axis=0)) / np.sqrt(values.var(axis=0) + eps)
    np.testing.assert_allclose(rows_of([y for y, *_ in found]), normal * scale + bias, rtol=1e-10, atol=1e-12)
    for a, (_, dx, _, _) in zip(x, found, strict=True):
        for i in range(a.size):
            kept, step = a.flat[i], 1e-5
            a.flat[i] = kept + step
            above = total(x)
            a.flat[i] = kept - step
            below = total(x)
            a.flat[i] = kept
            assert dx.flat[i] == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-8)
    if scaled:  # of each rank's values; the solver averages them over ranks
        start = 0
        for w, (*_, diffs) in zip(weights, found, strict=True):
            mine = rows_of([w])
            np.testing.assert_allclose(
                diffs[3], (mine * normal[start : start + len(mine)]).sum(axis=0), rtol=1e-9, atol=1e-11
            )
            np.testing.assert_allclose(diffs[4], mine.sum(axis=0), rtol=1e-9, atol=1e-11)
            start += len(mine)


# -- in a solver ------------------------------------------------------------------------------------------------------
def test_virtual_ranks_are_refused_with_the_place(tmp_path):
    net = tmp_path / "net.prototxt"
    net.write_text(rows(tmp_path, 4) + residual())
    line = 1 + next(i for i, text in enumerate(net.read_text().splitlines()) if '"norm0"' in text)
    text = f'{solver_text("")}\nnet: "{net}"'
    with pytest.raises(LayerParamError, match="sync: true .* -virtual_ranks") as refused:
        rank_solver(text, 0, 1, virtual_ranks=2)
    assert f'{net}:{line}: layer "norm0" (BatchNorm)' in str(refused.value)
    rank_solver(text, 0, 1, virtual_ranks=1).close()  # one rank is alone


def test_a_whole_training_with_tests_displays_and_snapshots(tmp_path, caplog):
    """Rank 0 displays the loss of one more batch at the end, whose statistics need the others."""
    caplog.set_level(logging.INFO)
    fields = {
        "max_iter": 4,
        "display": 2,
        "test_interval": 2,
        "test_iter": 2,
        "snapshot": 2,
        "snapshot_prefix": f'"{tmp_path}/s"',
    }
    text = text_of(tmp_path, **fields)

    def work(rank, path, resume=None):
        solver = rank_solver(text, rank, 2)
        parallel = joined(solver, path, timeout=60)
        solver.solve(resume)
        found = bits(solver)
        parallel.close()
        return found

    first = in_threads(2, work)
    assert first[0] == first[1]
    assert sum(m.startswith("Iteration 4, loss") for m in messages(caplog)) == 1
    again = in_threads(2, lambda rank, path: work(rank, path, f"{tmp_path}/s_iter_2.solverstate"))
    assert again == first


def test_ranks_of_which_one_does_not_synchronise_are_refused(tmp_path):
    texts = [text_of(tmp_path), text_of(tmp_path, layers=residual(sync=""))]

    def work(rank, path):
        with pytest.raises((GraphError, LostRank)) as refused:
            joined(rank_solver(texts[rank], rank, 2), path)
        return str(refused.value)

    assert any("the ranks train different nets" in said for said in in_threads(2, work))


# -- on a GPU ---------------------------------------------------------------------------------------------------------
class Twins:
    """Stand for two ranks with the same batch: what one gives, the other gives, too."""

    rank, size, can_capture = 1, 2, True

    def all_gather(self, parts) -> None:
        parts[0][...] = parts[1]

    def sum(self, arrays) -> None:
        for array in arrays:
            array *= 2


GPU = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]


@pytest.mark.parametrize("device", [HostArrays, pytest.param(CudaArrays, marks=GPU)])
@pytest.mark.parametrize("scaled", [False, True], ids=["plain", "scaled"])
@pytest.mark.parametrize("shape", [(4, 3, 5, 7), (64, 40), (2, 6, 70, 70), (9,), (0, 3, 2)], ids=str)
def test_twins_compute_what_each_would_alone(shape, scaled, device):
    """Two equal batches have the mean and the variance of one; the unbiased variance alone differs."""
    rng = np.random.default_rng(3)
    x, dy = rng.normal(2, 3, size=shape).astype(np.float32), rng.normal(size=shape).astype(np.float32)
    text = f"moving_average_fraction: 0.5 scale_bias: {str(scaled).lower()}"
    plain = LayerBench("BatchNorm", f"batch_norm_param {{ {text} }}", (shape,), dtype=np.float32)
    text = f"batch_norm_param {{ sync: true {text} }}"
    synced = LayerBench("BatchNorm", text, (shape,), dtype=np.float32, device=device(), ranks=2)
    synced.layer.join(Twins())
    before = synced.params = [np.array(p) for p in plain.params]
    close = {"rtol": 2e-5, "atol": 2e-5}
    np.testing.assert_allclose(synced.forward([x])[0], plain.forward([x])[0], **close)
    (dx,), diffs = synced.backward([dy])
    (expected,), wanted = plain.backward([dy])
    np.testing.assert_allclose(dx, expected, **close)
    for a, b in zip(diffs[3:], wanted[3:], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5 * max(1, np.sqrt(x.size)))
    m = x.size // synced.layer.channels
    unbias = (2 * m / (2 * m - 1)) / (m / (m - 1)) if m else 1
    var = before[1] * 0.5 + (plain.params[1] - before[1] * 0.5) * unbias if m else before[1]
    for a, b in zip(synced.params[:3], (plain.params[0], var, plain.params[2]), strict=True):
        np.testing.assert_allclose(a, b, **close)
