"""Tests histories that are divided among ranks: the bits of whole ones, in 1/N of the memory; snapshots are whole."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.errors import SnapshotError, SolverError, UsageError
from pycaffe_lms.formats.weights.solverstate import read_solverstate
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.program import scatter_reduction
from pycaffe_lms.net.program.reduction import BucketSizes
from pycaffe_lms.parallel.data_parallel import DataParallel
from pycaffe_lms.parallel.host import HostCommunicator
from pycaffe_lms.solvers.base import NONE, SNAPSHOT
from pycaffe_lms.solvers.update.sharing import Shares

from ..solvers.helpers import GAUSSIAN, inner, loss, solver_text
from .ranks import in_threads, joined, rank_solver, sim
from .test_data_parallel import RELU, rows

h5py = pytest.importorskip("h5py")
PLACES = {
    "cpu": lambda rank: {"device": get_device("cpu")},
    "sim": sim("random"),
    "lms 1": sim("random", LMSConfig(threshold_kb=1, ahead=1)),
    "lms auto": sim("latest", LMSConfig(auto=True, threshold_kb=1, budget=160 << 10)),
}
LAYERS = inner("ip1", outputs=300) + RELU + inner("ip2", "ip1", outputs=6) + inner("ip", "ip2") + loss()
TYPES = {
    "SGD": {"momentum": 0.9, "weight_decay": 0.01},
    "Nesterov": {"momentum": 0.9},
    "AdaGrad": {},
    "RMSProp": {"rms_decay": 0.9},
    "AdaDelta": {"momentum": 0.9, "delta": 1e-6},
    "Adam": {"momentum": 0.9, "momentum2": 0.999},
}


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Let the weights of ip1 and ip2 count as large: their gradients are summed by shares."""
    monkeypatch.setattr(scatter_reduction._OwnShares, "sizes", BucketSizes(2000, 4 << 20))


def text_of(tmp_path, type: str = "SGD", **fields) -> str:
    return solver_text(rows(tmp_path, 4) + LAYERS, type=f'"{type}"', **TYPES[type], **fields)


def train(text: str, count: int, place=PLACES["cpu"], *, shard=True, iterations=3, resume="", seen=None, **options):
    """Return every rank's parameters, to the bit. seen: called with every solver behind its training."""

    def work(rank, path):
        solver = rank_solver(text, rank, count, shard_history=shard, **options, **place(rank))
        parallel = joined(solver, path) if count > 1 else None
        if resume:
            solver.restore(resume)
        solver.step(iterations)
        found = [b.read_data().tobytes() for b in solver.net.learnable_params]
        if seen is not None:
            seen(solver)
        if parallel is not None:
            parallel.close()
        solver.close()
        return found

    return in_threads(count, work)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("count", [2, 4])
def test_the_bits_are_those_of_whole_histories(tmp_path, count, place):
    text = text_of(tmp_path)
    expected = train(text, count, shard=False)
    assert train(text, count, PLACES[place]) == expected


@pytest.mark.parametrize("type", [t for t in TYPES if t != "SGD"])
def test_every_type_of_solver(tmp_path, type):
    text = text_of(tmp_path, type)
    expected = train(text, 2, shard=False)
    for place in ("cpu", "sim", "lms 1"):
        assert train(text, 2, PLACES[place]) == expected


def test_large_gradients_are_summed_by_shares_unless_they_are_read_whole(tmp_path):
    def scattered(**fields):
        def work(rank, path):
            solver, sizes = rank_solver(text, rank, 2, shard_history=True), []
            ranks = HostCommunicator(solver.net.device, path, 2, rank)
            scatter = ranks.reduce_scatter
            ranks.reduce_scatter = lambda parts: (sizes.append([p.size for p in parts]), scatter(parts))
            parallel = DataParallel(solver, ranks)
            parallel.bcast()
            parallel.join(layer_wise=True)
            solver.step(1)
            parallel.close()
            return sizes

        text = text_of(tmp_path, **fields)
        return in_threads(2, work)

    assert scattered() == [[[896, 904], [448, 452]]] * 2
    assert scattered(clip_gradients=0.3) == [[], []]


@pytest.mark.parametrize("fields", [{"iter_size": 2}, {"clip_gradients": 0.3}, {"debug_info": "true"}], ids=str)
def test_every_kind_of_iteration(tmp_path, fields):
    """Clipping, too, needs the norm of the whole gradient, which is computed as without shares."""
    text = text_of(tmp_path, **fields)
    assert train(text, 2) == train(text, 2, shard=False)


def test_with_virtual_ranks(tmp_path):
    text = text_of(tmp_path)
    expected = train(text, 1, shard=False, virtual_ranks=4)[0]
    for count, place in ((2, "cpu"), (4, "lms 1")):
        assert train(text, count, PLACES[place], virtual_ranks=4) == [expected] * count


def test_callbacks_see_the_whole_mean(tmp_path):
    text = text_of(tmp_path)

    def gradients(shard: bool) -> list:
        def work(rank, path):
            solver, seen = rank_solver(text, rank, 2, shard_history=shard), []
            parallel = joined(solver, path)
            params = solver.net.learnable_params
            solver.callbacks.append((lambda: None, lambda: seen.extend(b.read_diff().tobytes() for b in params)))
            solver.step(2)
            parallel.close()
            return seen

        return in_threads(2, work)

    assert gradients(True) == gradients(False)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("type", ["SGD", "Adam"])
def test_memory_of_histories(tmp_path, count, type):
    """Of the large parameter each rank has 1/N in every history, as the device's memory shows; of all, about 1/N."""
    text = solver_text(GAUSSIAN + inner("ip", outputs=4096) + loss(), type=f'"{type}"', **TYPES[type])
    slots, item = (2 if type == "Adam" else 1), 4

    def resident(shard):
        found = {}

        def note(solver):
            large = [b for b in solver.net.memory.buffers.values() if ".param0.history" in b.name]
            found[solver.solver_rank] = solver.runtime.resident_bytes, [b.nbytes for b in large]

        train(text, count, PLACES["sim"], shard=shard, seen=note, iterations=1)
        return [found[rank] for rank in range(count)]

    whole, divided = resident(False), resident(True)
    weights, biases = 3 * 4096, 4096
    for (all_bytes, sizes), (less, shares) in zip(whole, divided, strict=True):
        assert sizes == [item * weights] * slots and shares == [item * weights // count] * slots
        assert all_bytes - less == slots * item * (weights + biases) * (count - 1) // count


def test_host_memory_of_histories_that_are_managed():
    """With Large Model Support each rank's page-locked memory holds half of Adam's two histories."""
    text = solver_text(GAUSSIAN + inner("ip", outputs=4096) + loss(), type='"Adam"', **TYPES["Adam"])

    def pinned(shard):
        found = []
        train(
            text,
            2,
            PLACES["lms 1"],
            shard=shard,
            seen=lambda solver: found.append(solver.statistics()["host_pinned_bytes"]),
        )
        return found

    history = 2 * 4 * (3 * 4096 + 4096)
    assert {a - b for a, b in zip(pinned(False), pinned(True), strict=True)} == {history // 2}


def test_snapshots_are_whole(tmp_path):
    """The state file is that of ranks with whole histories, byte for byte but for names."""
    found = []
    for shard in (False, True):
        text = text_of(tmp_path, "Adam", snapshot=2, snapshot_prefix=f'"{tmp_path}/{shard}"')
        train(text, 2, PLACES["lms 1" if shard else "cpu"], shard=shard, iterations=2)
        found.append(read_solverstate(f"{tmp_path}/{shard}_iter_2.solverstate").history)
    assert len(found[0]) == 12 and any(h.any() for h in found[0])
    assert [h.tobytes() for h in found[1]] == [h.tobytes() for h in found[0]]


def test_they_resume_on_another_number_of_ranks_divided_or_not(tmp_path):
    text = text_of(tmp_path, snapshot_prefix=f'"{tmp_path}/run"')
    expected = train(text, 1, iterations=6, virtual_ranks=4)[0]
    train(text.replace("momentum: 0.9", "momentum: 0.9 snapshot: 3"), 2, virtual_ranks=4)
    state = f"{tmp_path}/run_iter_3.solverstate"
    for count, shard in ((1, False), (2, False), (4, True), (2, True)):
        place = PLACES["lms 1" if count == 4 else "cpu"]
        assert train(text, count, place, shard=shard, resume=state, virtual_ranks=4)[0] == expected


def test_the_last_snapshot_and_that_of_the_best_test(tmp_path):
    test = "test_iter: 1 test_interval: 2 test_initialization: false max_iter: 4"
    text = text_of(tmp_path, snapshot_prefix=f'"{tmp_path}/run"', snapshot_after_train="true") + "\n" + test

    def work(rank, path):
        solver = rank_solver(text, rank, 2, shard_history=True)
        solver.snapshots.keep_best("loss")
        parallel = joined(solver, path)
        solver.solve()
        parallel.close()
        solver.close()

    in_threads(2, work)
    names = {p.name for p in tmp_path.glob("run*")}
    assert {"run_iter_4.solverstate", "run_iter_4.caffemodel"} < names
    assert any(n.startswith("run_best_iter_") for n in names)


def test_a_signal_to_the_root_lets_all_ranks_take_part(tmp_path):
    """On the CPU after the iteration in which it came, on a device LAG iterations later."""
    text = text_of(tmp_path, snapshot_prefix=f'"{tmp_path}/run"')

    def work(rank, path):
        solver = rank_solver(text, rank, 2, shard_history=True)
        solver._action = lambda: SNAPSHOT if rank == 0 and solver.iter == 2 else NONE
        parallel = joined(solver, path)
        solver.step(4)
        parallel.close()
        solver.close()

    in_threads(2, work)
    assert {p.name for p in tmp_path.glob("run*")} == {"run_iter_2.solverstate", "run_iter_2.caffemodel"}


def test_a_snapshot_of_one_rank_alone_is_refused(tmp_path):
    text = text_of(tmp_path, snapshot_prefix=f'"{tmp_path}/run"')

    def write(solver):
        if solver.is_root:
            with pytest.raises(SnapshotError, match="parts of the histories are on other ranks"):
                solver.snapshots.write(wait=True)

    train(text, 2, seen=write)


def test_what_does_not_go_together(tmp_path):
    with pytest.raises(SolverError, match="snapshot_diff needs gradients"):
        rank_solver(text_of(tmp_path, snapshot_diff="true"), 0, 2, shard_history=True)
    lms = LMSConfig(threshold_kb=1, split_outputs="auto")
    with pytest.raises(UsageError, match="layers in blocks of outputs"):
        rank_solver(text_of(tmp_path), 0, 2, shard_history=True, lms=lms)
    solver = rank_solver(text_of(tmp_path), 0, 2, shard_history=True)
    with pytest.raises(UsageError, match="before it is joined"):
        solver.step(1)


@pytest.mark.parametrize("n", [0, 1, 31, 64, 1000, 4097])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_shares_cover_everything_once(n, size):
    parts = [Shares(rank, size).parts(np.arange(n)) for rank in range(size)]
    assert all(np.concatenate(p).tolist() == list(range(n)) for p in parts)
    sizes = [Shares(rank, size).own(n)[1] for rank in range(size)]
    assert sizes == [len(p) for p in parts[0]] and max(sizes) < n / size + 32 * 2
