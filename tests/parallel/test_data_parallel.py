"""Tests ranks that train together: as one with all their records, the same to the bit on each, with LMS and without."""

from __future__ import annotations

import contextlib
import logging
import weakref
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.errors import DeviceError, GraphError, LostRank, UsageError
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.parallel.data_parallel import LAG, DataParallel
from pycaffe_lms.parallel.host import HostCommunicator
from pycaffe_lms.pycaffe.classes import SGDSolver
from pycaffe_lms.solvers.base import NONE, STOP

from ..lms.nets import solver_text as make_text
from ..solvers.helpers import GAUSSIAN, bits, inner, loss, messages, solver_text
from .ranks import in_threads, joined, rank_solver, sim

h5py = pytest.importorskip("h5py")
ITERATIONS = 5
RELU = 'layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }\n'
LAYERS = inner("ip1", outputs=300) + RELU + inner("ip2", "ip1", outputs=6) + inner("ip", "ip2") + loss()
CONVNET = make_text("chain")
LMS = LMSConfig(threshold_kb=1, ahead=1)
PLACES = {
    "cpu": lambda rank: {"device": get_device("cpu")},
    **{f"sim, {order}": sim(order) for order in ("latest", "earliest", "random")},
    **{f"lms, {order}": sim(order, LMS) for order in ("latest", "earliest", "random")},
}


def rows(tmp_path, batch: int) -> str:
    """Return an HDF5Data layer over rows of which each rank reads its share."""
    if not (tmp_path / "list.txt").exists():
        rng = np.random.default_rng(3)
        with h5py.File(tmp_path / "rows.h5", "w") as file:
            file["x"] = rng.normal(size=(96, 3)).astype(np.float32)
            file["label"] = rng.integers(0, 5, 96).astype(np.float32)
        (tmp_path / "list.txt").write_text(f"{tmp_path}/rows.h5\n")
    return (
        'layer { name: "data" type: "HDF5Data" top: "x" top: "label" '
        f'hdf5_data_param {{ source: "{tmp_path}/list.txt" batch_size: {batch} }} }}\n'
    )


def train(text: str, count: int, place, *, layer_wise: bool = True, iterations: int = ITERATIONS) -> list[list[bytes]]:
    """Return every rank's parameters and gradients, to the bit, after some iterations."""

    def work(rank, path):
        solver = rank_solver(text, rank, count, **place(rank))
        parallel = joined(solver, path, layer_wise=layer_wise)
        solver.step(iterations)
        found = bits(solver)
        parallel.close()
        solver.close()
        return found

    return in_threads(count, work)


def alone(text: str, iterations: int = ITERATIONS) -> list[bytes]:
    solver = rank_solver(text, 0, 1)
    solver.step(iterations)
    found = bits(solver)
    solver.close()
    return found


def close_to(found: list[bytes], expected: list[bytes]) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.frombuffer(a, np.float32), np.frombuffer(b, np.float32), rtol=2e-4, atol=2e-6)


@pytest.mark.parametrize(
    "fields",
    [{}, {"momentum": 0.9, "weight_decay": 0.01}, {"iter_size": 2}, {"clip_gradients": 0.3}, {"type": '"Adam"'}],
    ids=["plain", "momentum and decay", "iter_size", "clipping", "Adam"],
)
@pytest.mark.parametrize("count", [2, 3])
def test_as_one_with_all_their_records(tmp_path, count, fields):
    """The mean of the ranks' gradients is the gradient of one batch with all their records."""
    fields = {"momentum": 0.9, "momentum2": 0.999} | fields if "type" in fields else fields
    expected = alone(solver_text(rows(tmp_path, 4 * count) + LAYERS, **fields))
    for found in train(solver_text(rows(tmp_path, 4) + LAYERS, **fields), count, PLACES["cpu"]):
        close_to(found, expected)


@pytest.mark.parametrize("layer_wise", [True, False], ids=["layer by layer", "at the end"])
@pytest.mark.parametrize("place", [p for p in PLACES if p != "cpu"])
def test_to_the_bit_wherever_they_run(tmp_path, place, layer_wise):
    """Compare all ranks, on devices with streams of any order, managed or not, recorded iterations included."""
    text = solver_text(rows(tmp_path, 4) + LAYERS, momentum=0.9, weight_decay=0.01)
    expected = train(text, 2, PLACES["cpu"])
    assert expected[0] == expected[1] and len(set(expected[0])) == len(expected[0])
    assert train(text, 2, PLACES[place], layer_wise=layer_wise) == expected


@pytest.mark.parametrize("place", [p for p in PLACES if p != "cpu"])
def test_recorded_sums_change_no_bit(tmp_path, monkeypatch, place):
    text = solver_text(rows(tmp_path, 4) + LAYERS, momentum=0.9)
    recorded = train(text, 2, PLACES[place])
    monkeypatch.setattr(HostCommunicator, "can_capture", False)
    assert train(text, 2, PLACES[place]) == recorded


def test_they_are_recorded_and_summed_beside_the_backward():
    """The test above runs a replay that includes the sums, queued on the side stream."""

    def work(rank, path):
        solver = rank_solver(solver_text(GAUSSIAN + LAYERS), rank, 2, **sim("latest")(rank))
        parallel, device = joined(solver, path), solver.net.device
        used = []
        on = device.on
        device.on = lambda stream: used.append(stream.name) or on(stream)
        solver.step(2)
        found = set(used), device.launches
        solver.step(4)
        parallel.close()
        return found, device.launches

    for found in in_threads(2, work):
        assert found == (({"side"}, 0), 4)


@pytest.mark.parametrize("layer_wise", [True, False], ids=["layer by layer", "at the end"])
def test_updates_wait_for_the_sums_on_the_side_stream(layer_wise):
    """Under Large Model Support, where updates of a single rank do not wait for the rest of the backward."""

    def order(solver):
        return [s.step.name.split(":")[0] for s in solver.net.memory.programs.bound["train"].sequenced.steps]

    def work(rank, path):
        solver = rank_solver(solver_text(GAUSSIAN + LAYERS), rank, 2, **sim("latest", LMSConfig(threshold_kb=1))(rank))
        parallel = joined(solver, path, layer_wise=layer_wise)
        solver.step(1)
        names = order(solver)
        parallel.close()
        return names

    for names in in_threads(2, work):
        assert "update" in names and "update" not in names[: names.index("reduced")]
    alone = rank_solver(solver_text(GAUSSIAN + LAYERS), 0, 1, **sim("latest", LMSConfig(threshold_kb=1))(0))
    names = order(alone)
    assert names.index("update") < len(names) - names[::-1].index("backward")


def test_ranks_draw_their_own_records_and_begin_with_the_roots_weights():
    def work(rank, path):
        solver = rank_solver(solver_text(GAUSSIAN + LAYERS), rank, 2)
        before = bits(solver)
        parallel = joined(solver, path)
        after = bits(solver)
        solver.step(1)
        drawn = solver.net.blobs["x"].data.copy()
        parallel.close()
        return before, after, drawn

    (mine, same, first), (theirs, also, second) = in_threads(2, work)
    assert mine != theirs and same == also == mine
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("layer_wise", [False, True], ids=["add_callback alone", "after_backward too"])
def test_joined_from_python_gradients_are_averaged_once_an_iteration(tmp_path, layer_wise):
    """In Caffe add_callback alone averages nothing where the file asks for sums layer by layer, and passes of an
    iteration are summed one by one."""

    def work(rank, path, text):
        solver = rank_solver(text, rank, 2)
        communicator = HostCommunicator(solver.net.device, path, 2, rank)
        sums, add = [], communicator.sum
        communicator.sum = lambda arrays: (sums.append(len(arrays)), add(arrays))
        parallel = DataParallel(solver, communicator)
        parallel.bcast()
        SGDSolver.add_callback(solver, parallel)
        if layer_wise:
            solver.net.after_backward(parallel)
        solver.step(ITERATIONS)
        found = bits(solver)
        parallel.close()
        return found, sum(sums)

    for passes in (1, 2):
        fields = {"iter_size": passes, "layer_wise_reduce": "true"}
        expected = alone(solver_text(rows(tmp_path, 8) + LAYERS, **fields))
        text = solver_text(rows(tmp_path, 4) + LAYERS, **fields)
        for found, summed in in_threads(2, partial(work, text=text)):
            close_to(found, expected)
            assert summed == 6 * ITERATIONS  # a weight and a bias of three layers


def test_parameters_that_are_shared_are_summed_once(tmp_path):
    shared = 'param { name: "w" } param { name: "b" }'
    layers = (
        inner("ip1", outputs=3, params=shared)
        + RELU
        + inner("ip2", "ip1", outputs=3, params=shared)
        + inner("ip", "ip2")
        + loss()
    )
    expected = alone(solver_text(rows(tmp_path, 8) + layers))
    for layer_wise in (True, False):
        for found in train(solver_text(rows(tmp_path, 4) + layers), 2, PLACES["cpu"], layer_wise=layer_wise):
            close_to(found, expected)


@pytest.mark.parametrize("kind", ["callbacks", "debug_info"])
def test_iterations_that_run_layer_by_layer(tmp_path, kind):
    """A rank with layer callbacks computes the same numbers as the others, which have none."""
    text = solver_text(rows(tmp_path, 4) + LAYERS, momentum=0.9)
    expected = train(text, 2, PLACES["cpu"])

    def work(rank, path):
        more = "\ndebug_info: true display: 2" if rank == 0 and kind == "debug_info" else ""
        solver = rank_solver(text + more, rank, 2)
        parallel = joined(solver, path)
        if rank == 0 and kind == "callbacks":
            solver.net.before_backward(lambda layer: None)
        solver.step(ITERATIONS)
        found = bits(solver)
        parallel.close()
        return found

    assert in_threads(2, work) == expected


def test_callbacks_see_the_mean(tmp_path):
    text = solver_text(rows(tmp_path, 4) + LAYERS)

    def work(rank, path):
        solver = rank_solver(text, rank, 2)
        parallel, seen = joined(solver, path), []
        solver.callbacks.append((lambda: None, lambda: seen.append(solver.net.params["ip"][0].diff.tobytes())))
        solver.step(2)
        parallel.close()
        return seen

    first, second = in_threads(2, work)
    assert first == second and len(set(first)) == 2


def test_backward_by_hand_and_apply_update(tmp_path):
    """As in pycaffe, with layer by layer sums: gradients are means after backward, even outside of step."""
    text = solver_text(rows(tmp_path, 4) + LAYERS)
    expected = train(text, 2, PLACES["cpu"], iterations=2)

    def work(rank, path):
        solver = rank_solver(text, rank, 2)
        parallel = joined(solver, path)
        for _ in range(2):
            solver.net.clear_param_diffs()
            solver.net.forward()
            solver.net.backward()
            solver.apply_update()
        found = bits(solver)
        parallel.close()
        return found

    assert in_threads(2, work) == expected


def test_the_root_alone_displays_and_writes(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    text = solver_text(
        GAUSSIAN + LAYERS,
        display=1,
        snapshot=2,
        snapshot_prefix=f'"{tmp_path}/run"',
        max_iter=5,
        test_iter=1,
        test_interval=2,
        snapshot_after_train="true",
    )

    def work(rank, path):
        solver = rank_solver(text, rank, 2)
        tested = []
        solver.test = lambda i, test=solver.test: tested.append(i) or test(i)
        wrote = []
        solver.snapshot = lambda snapshot=solver.snapshot: wrote.append(solver.iter) or snapshot()
        parallel = joined(solver, path)
        solver.solve()
        parallel.close()
        return len(tested), wrote, solver.iter

    assert in_threads(2, work) == [(3, [2, 4, 5], 5), (3, [], 5)]  # ranks divide the batches of each test
    assert sum("Testing net" in m for m in messages(caplog)) == 3
    assert sum(m.startswith("Iteration 3 ") for m in messages(caplog)) == 1


def test_every_rank_goes_on_from_the_roots_snapshot(tmp_path):
    """It continues as if uninterrupted, random layers included: positions are the root's, seeds each rank's own."""
    drop = 'layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }\n'
    text = solver_text(
        rows(tmp_path, 4) + inner("ip1", outputs=9) + drop + inner("ip", "ip1") + loss(),
        snapshot_prefix=f'"{tmp_path}/run"',
        momentum=0.9,
    )
    expected = train(text, 2, PLACES["cpu"], iterations=6)

    def work(rank, path):
        solver = rank_solver(text, rank, 2)
        parallel = joined(solver, path)
        solver.step(3)
        if rank == 0:
            solver.snapshot()
        parallel.close()

    in_threads(2, work)

    def resumed(rank, path):
        solver = rank_solver(text, rank, 2)
        parallel = joined(solver, path)
        solver.restore(f"{tmp_path}/run_iter_3.solverstate")
        solver.step(3)
        found = bits(solver)
        parallel.close()
        return found

    assert in_threads(2, resumed) == expected


@pytest.mark.parametrize("place", ["cpu", "sim, random"])
@pytest.mark.parametrize("asked", [0, 1])
def test_all_stop_after_the_same_iteration(place, asked):
    """Any rank may be asked; devices whose work runs late may be some iterations ahead until all know."""

    def work(rank, path):
        solver = rank_solver(solver_text(GAUSSIAN + LAYERS), rank, 2, **PLACES[place](rank))
        solver._action = lambda: STOP if rank == asked and solver.iter == 3 else NONE
        parallel = joined(solver, path)
        solver.step(20)
        stopped = solver.iter
        solver.step(2)
        parallel.close()
        return stopped, solver.iter

    lag = 0 if place == "cpu" else LAG
    assert in_threads(2, work) == [(3 + lag, 5 + lag)] * 2


def test_a_stop_in_the_middle_of_a_test():
    """Rank 0 leaves the test, and all stop after the next iteration."""
    text = solver_text(GAUSSIAN + LAYERS, test_iter=50, test_interval=2, test_initialization="false")

    def work(rank, path):
        solver = rank_solver(text, rank, 2)
        polled = []

        def action():
            polled.append(solver.iter)
            return STOP if rank == 0 and polled.count(2) == 5 else NONE

        solver._action = action
        parallel = joined(solver, path)
        solver.step(20)
        parallel.close()
        return solver.iter, len(polled)

    (first, asked), (second, _) = in_threads(2, work)
    assert (first, second) == (3, 3) and asked < 10


def test_a_rank_that_fails_ends_the_others():
    """It fails in the middle of an iteration, and within its gradient sums."""
    for place in ("cpu", "sim, latest", "lms, random"):

        def work(rank, path, place=place):
            solver = rank_solver(solver_text(GAUSSIAN + LAYERS), rank, 2, **PLACES[place](rank))
            parallel = joined(solver, path)
            if rank == 1:
                solver.step(2)  # a part of it is still queued, perhaps
                parallel.abort()
                return
            with pytest.raises(LostRank, match="rank 1 is gone"):
                solver.step(22)
            with contextlib.suppress(LostRank):
                parallel.close()

        in_threads(2, work)


def test_a_rank_whose_last_work_fails_ends_the_others():
    """It notices at the end, when it waits for what it queued; then the others wait for it alone."""
    kept = []  # nothing parts because Python lets go of it

    def fail():
        raise DeviceError("the last work failed", fix="begin again")

    def work(rank, path):
        solver = rank_solver(solver_text(GAUSSIAN + LAYERS), rank, 2, **PLACES["sim, latest"](rank))
        parallel = joined(solver, path)
        kept.append(parallel)
        solver.step(2)
        if rank == 1:
            solver.net.device.queue(fail)
        parallel.agree(False)
        error, message = (DeviceError, "the last work failed") if rank == 1 else (LostRank, "rank 1 is gone")
        with pytest.raises(error, match=message):
            parallel.close()

    in_threads(2, work)


class BrokenOff:
    """Be one of two ranks, of which the other never answers the second sum: that is aborted, as NCCL's on a GPU, and
    what is queued behind it runs on gradients of this rank alone."""

    rank, size, can_capture = 0, 2, False

    def __init__(self, device):
        self._device, self._sums, self.broken = device, 0, False

    def broadcast(self, arrays):
        pass

    def average(self, arrays):
        self._device.queue(self._sum, arrays)
        return 0.5

    def _sum(self, arrays):
        self._sums += 1
        if self._sums == 2:
            self.broken = True
            return
        for array in arrays:
            array *= 2

    def close(self):
        self.broken = True

    def maximum(self, value):
        return SimpleNamespace(read=lambda: self.check() or value)

    def check(self):
        if self.broken:
            raise LostRank("rank 0 of 2: rank 1 did not answer", fix="resume from the last snapshot")


@pytest.mark.parametrize("form", ["BINARYPROTO", "HDF5"])
def test_no_snapshot_is_written_behind_a_sum_that_was_broken_off(tmp_path, form):
    """Its copies were queued in time and made, of useless weights. The one before it is whole."""
    text = solver_text(GAUSSIAN + LAYERS, snapshot=1, snapshot_format=form, snapshot_prefix=f'"{tmp_path}/s"')
    solver = rank_solver(text, 0, 2, **PLACES["sim, latest"](0))
    ranks = BrokenOff(solver.net.device)
    parallel = DataParallel(solver, ranks)
    parallel.bcast()
    parallel.join(layer_wise=True)
    solver.step(1)
    whole = sorted(tmp_path.iterdir())
    assert len(whole) == 2 and not ranks.broken
    with pytest.raises(LostRank, match="rank 1 did not answer"):
        solver.step(1)
    assert ranks.broken and sorted(tmp_path.iterdir()) == whole


def test_a_snapshot_after_the_ranks_have_parted(tmp_path):
    """A snapshot that is being written is finished before the connections close; later ones do not ask the
    communicator, which is closed."""
    text = solver_text(GAUSSIAN + LAYERS, snapshot_prefix=f'"{tmp_path}/s"')
    solver = rank_solver(text, 0, 2, **PLACES["sim, latest"](0))
    parallel = DataParallel(solver, BrokenOff(solver.net.device))
    parallel.bcast()
    parallel.join(layer_wise=True)
    solver.snapshot(wait=False)
    parallel.close()
    assert len(list(tmp_path.iterdir())) == 2
    solver.iter += 1  # another name
    solver.snapshot()
    assert len(list(tmp_path.iterdir())) == 4


def test_ranks_with_different_nets():
    def work(rank, path):
        text = solver_text(GAUSSIAN + inner("ip", outputs=5 + rank) + loss())
        solver = rank_solver(text, rank, 2)
        with pytest.raises(GraphError, match="the ranks train different nets"):
            joined(solver, path)

    in_threads(2, work)


def test_ranks_whose_weights_lie_otherwise():
    """Sums go element by element through memory, so all ranks store a parameter in one order."""

    def work(rank, path, both):
        tuning = Tuning(channels_last=both or rank == 0)
        solver = rank_solver(CONVNET, rank, 2, tuning=tuning, **sim()(rank))
        if not both:
            with pytest.raises(GraphError, match="the ranks train different nets"):
                joined(solver, path)
            return None
        parallel = joined(solver, path)
        solver.step(ITERATIONS)
        found = bits(solver)
        assert solver.net.graph.params[0].channels_last
        parallel.close()
        return found

    in_threads(2, lambda rank, path: work(rank, path, False))
    found = in_threads(2, lambda rank, path: work(rank, path, True))
    assert found[0] == found[1]


def test_a_solver_of_another_rank():
    class Communicator:
        rank, size = 1, 2

    with pytest.raises(UsageError, match="rank 0 of 1, the communicator 1 of 2") as caught:
        DataParallel(rank_solver(solver_text(GAUSSIAN + LAYERS), 0, 1), Communicator())
    assert "set_solver_rank" in str(caught.value)


def test_a_budget_that_leaves_nothing_beside_the_plan(tmp_path):
    """Sums need no memory of their own: what fits with LMS on one device fits with it on several."""
    text = solver_text(rows(tmp_path, 4) + LAYERS, momentum=0.9)
    expected = train(text, 2, PLACES["cpu"])
    lms = LMSConfig(threshold_kb=1, budget=100 << 10)
    peaks = []

    def work(rank, path):
        solver = rank_solver(text, rank, 2, **sim("latest", lms)(rank))
        parallel = joined(solver, path)
        solver.step(ITERATIONS)
        peaks.append(solver.runtime.device.in_use())
        found = bits(solver)
        parallel.close()
        return found

    assert in_threads(2, work) == expected
    assert max(peaks) <= 100 << 10


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1, ahead=1)], ids=["", "lms"])
def test_an_abort_frees_recorded_iterations(lms):
    """At once, before garbage is collected. NCCL waits for that: they contain its operations."""

    def work(rank, path):
        solver = rank_solver(solver_text(GAUSSIAN + LAYERS), rank, 2, **sim("latest", lms)(rank))
        parallel = joined(solver, path)
        solver.step(4)
        programs = solver.net.memory.programs.bound
        recorded = [weakref.ref(b.replay) for b in programs.values() if b.replay is not None and b.replay.ready]
        parallel.abort()
        return len(recorded), sum(found() is not None for found in recorded)

    assert in_threads(2, work) == [(1, 0)] * 2
