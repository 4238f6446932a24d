"""Tests several GPUs through NCCL: as simulated ranks, the same to the bit on each, with LMS and recorded; and
failures."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda, cuda_available, get_device, nccl_available
from pycaffe_lms.backend.cuda.communicator import unique_id
from pycaffe_lms.errors import SolverError
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.program.reduction import BucketSizes, Reduction
from pycaffe_lms.ops import ops_of
from pycaffe_lms.parallel.launch import Rank, RankError, run_ranks
from pycaffe_lms.pycaffe.classes import PycaffeNet
from pycaffe_lms.solvers import SGDSolver
from pycaffe_lms.solvers.rank_report import Row

from ..cli.command import process as command
from ..solvers.helpers import bits, solver_text
from .mpi_ranks import finish
from .ranks import in_threads, joined, rank_solver
from .test_mpi_faults import LONG, gone
from .test_mpi_train import filled
from .test_pulse import by_gpu_flag, with_pictures

GPUS = cuda.device_count() if cuda_available() else 0
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS < 2, reason="fewer than two GPUs"),
    pytest.mark.skipif(GPUS > 0 and not nccl_available(), reason="no NCCL"),
]

NET = """
layer { name: "in" type: "DummyData" top: "x" top: "label" dummy_data_param {
  shape { dim: 8 dim: 3 dim: 16 dim: 16 } shape { dim: 8 }
  data_filler { type: "gaussian" } data_filler { type: "uniform" min: 0 max: 9.99 } } }
layer { name: "conv1" type: "Convolution" bottom: "x" top: "conv1" convolution_param { num_output: 64 kernel_size: 3
  pad: 1 weight_filler { type: "msra" } } }
layer { name: "bn1" type: "BatchNorm" bottom: "conv1" top: "bn1" }
layer { name: "scale1" type: "Scale" bottom: "bn1" top: "bn1" scale_param { bias_term: true } }
layer { name: "relu1" type: "ReLU" bottom: "bn1" top: "bn1" }
layer { name: "conv2" type: "Convolution" bottom: "bn1" top: "conv2" convolution_param { num_output: 512 kernel_size: 3
  pad: 1 weight_filler { type: "msra" } } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "pool" type: "Pooling" bottom: "conv2" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "ip1" type: "InnerProduct" bottom: "pool" top: "ip1" inner_product_param { num_output: 1024
  weight_filler { type: "msra" } } }
layer { name: "relu3" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2" inner_product_param { num_output: 10
  weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
TEXT = solver_text(NET, momentum=0.9, weight_decay=0.001, base_lr=0.01)
SYNC = TEXT.replace('top: "bn1" }', 'top: "bn1" batch_norm_param { sync: true } }', 1)
CLIPPED = solver_text(NET, momentum=0.9, base_lr=0.01, clip_gradients=0.5, iter_size=2)
ITERATIONS = 6
LMS = {
    "off": None,
    "100 KB": LMSConfig(threshold_kb=100, ahead=1),
    "auto": LMSConfig(auto=True, budget=32 << 20),
}


class FaceSolver(SGDSolver):
    net_class = PycaffeNet


def apart(rank: Rank) -> None:
    """Let this process be a host of its own to NCCL, which reaches the others through sockets."""
    ways = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}
    os.environ.update(ways, NCCL_HOSTID=f"rank{rank.index}")


def make(text: str, rank: Rank, lms, capture: bool | None, timeout: float = 60, index: int | None = None, **options):
    cuda.set_math("fp32")
    Reduction.sizes = BucketSizes(1 << 20, 4 << 20)  # several sums
    parsed = parse_solver(text)
    device = get_device("cuda", index=rank.index if index is None else index)
    ops_of(device).workspace_limit = 4 << 20  # a budget leaves no more
    ranks = {"solver_count": rank.count, "solver_rank": rank.index}
    solver = FaceSolver(parsed.message, lines=parsed.lines, device=device, lms=lms, **ranks, **options)
    return solver, caffe.NCCL(solver, rank.place, timeout=timeout, capture=capture)


def work(folder: str, text: str, lms, layer_wise: bool, capture: bool | None, options: dict, rank: Rank) -> int:
    """Train, then write parameters and gradients."""
    solver, nccl = make(text, rank, lms, capture, **options)
    nccl.bcast()
    nccl.join(layer_wise=layer_wise)
    solver.step(ITERATIONS)
    np.savez(f"{folder}/{rank.index}.npz", *[np.frombuffer(b, np.float32) for b in bits(solver)])
    nccl.close()
    solver.close()
    return 0


def failing(kind: str, capture: bool, rank: Rank) -> int:
    """End rank 1 after some iterations, recorded ones if `capture`, or let it hang; rank 0 continues."""
    solver, nccl = make(TEXT, rank, None, capture, timeout=30 if kind == "silent" else 60)
    try:
        nccl.bcast()
        nccl.join(layer_wise=True)
        solver.step(8)
        assert recorded(solver) is capture
        if rank.index == 1 and kind == "silent":
            time.sleep(600)
        elif rank.index == 1 and kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif rank.index == 1 and kind == "memory":
            solver.net.device.take(1 << 50)
        elif rank.index == 1:
            raise SolverError("rank 1 has had enough")
        solver.step(1000000)
    except BaseException:
        nccl.abort()
        raise
    return 0


def mixed(folder: str, text: str, lms, rank: Rank) -> int:
    """Train while rank 0 replays graphs, and rank 1 runs step by step, but for a few iterations in the middle."""
    solver, nccl = make(text, rank, lms, True)
    nccl.bcast()
    nccl.join(layer_wise=True)
    device = solver.net.device
    for _ in range(ITERATIONS):
        device.can_capture = rank.index == 0 or solver.iter in (3, 4)
        solver.step(1)
    np.savez(f"{folder}/{rank.index}.npz", *[np.frombuffer(b, np.float32) for b in bits(solver)])
    device.can_capture = True
    nccl.close()
    solver.close()
    return 0


def recorded(solver) -> bool:
    """Return whether the solver's iterations are recorded."""
    return any(b.replay is not None and b.replay.ready for b in solver.net.memory.programs.bound.values())


def late(folder: str, lms, layer_wise: bool, capture: bool | None, rank: Rank) -> int:
    """Let the GPU of rank 1 do nothing for 20 ms in each iteration; write what the ranks report, and the seconds that
    sums cost each iteration of the second half, with those that it took."""
    solver, nccl = make(solver_text(NET, base_lr=0.01, display=4), rank, lms, capture)
    nccl.bcast()
    nccl.join(layer_wise=layer_wise)
    device, exposed = solver.net.device, solver.net.reduction.exposed
    if rank.index == 1:
        solver.around_iteration = lambda: nullcontext(device.pause(0.02))
    solver.step(12)
    single = []
    for _ in range(8):
        device.synchronize()
        before, began = exposed.read(), time.perf_counter()
        solver.step(1)
        device.synchronize()
        single.append((exposed.read() - before, time.perf_counter() - began))
    assert lms is not None or recorded(solver) is (capture is not False)  # with LMS the replay benchmark chooses
    solver.rank_report.total(nccl.gather)
    Path(f"{folder}/{rank.index} single.json").write_text(json.dumps(single))
    found = {"rows": solver.rank_report.rows, "totals": solver.rank_report.totals}
    rows = {name: [asdict(row) for row in rows] for name, rows in found.items()}
    Path(f"{folder}/{rank.index}.json").write_text(json.dumps(rows))
    nccl.close()
    solver.close()
    return 0


def alone(rank: Rank) -> int:
    """Compare the clock of the compute stream with pauses of known length, queued and recorded, on GPU 0."""
    device = get_device("cuda", index=0)
    clock = device.stream_clock()

    def timed():
        clock.start()
        device.pause(0.01)
        clock.stop()
        device.pause(0.03)  # is not counted

    def counted(work) -> float:
        """Return the least of five times: other processes on this GPU may take turns with this one."""
        found = []
        for _ in range(5):
            before = clock.read()
            work()
            device.synchronize()
            found.append(clock.read() - before)
        return min(found)

    with device.active():
        assert counted(timed) == pytest.approx(0.01, rel=0.1)
        before = clock.read()
        launch = device.capture(timed)
        device.synchronize()
        assert clock.read() == before  # recorded is not run
        assert counted(launch) == pytest.approx(0.01, rel=0.1)
        assert counted(lambda: [launch(), launch()]) == pytest.approx(0.02, rel=0.1)
    return 0


def train(
    tmp_path, count: int, text=TEXT, lms="off", layer_wise=True, capture=False, **options
) -> list[list[np.ndarray]]:
    names = [f"GPU {i}" for i in range(count)]
    args = (str(tmp_path), text, LMS[lms], layer_wise, capture, options)
    assert run_ranks(work, args, unique_id(), names) == 0
    found = []
    for i in range(count):
        with np.load(tmp_path / f"{i}.npz") as file:
            found.append([file[name] for name in file.files])
    return found


STATISTICS = {2, 3, 4}  # blobs of BatchNorm: every rank's own


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return what two ranks compute step by step, layer by layer, without LMS. One rank alone runs first: it measures
    convolutions and stores its choices, so that every later process computes with the same."""
    train(tmp_path_factory.mktemp("first"), 1)
    return train(tmp_path_factory.mktemp("expected"), 2)


def same(found, expected, *, but=()) -> None:
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert i in but or np.array_equal(a, b), f"blob {i} differs by {np.abs(a - b).max()}"


def test_the_clock_of_the_compute_stream():
    assert run_ranks(alone, (), unique_id(), ["GPU 0"]) == 0


@pytest.mark.parametrize("lms", ["off", "100 KB"])
@pytest.mark.parametrize("layer_wise", [True, False], ids=["layer by layer", "at the end"])
@pytest.mark.parametrize("capture", [False, None], ids=["queued", "recorded by default"])
def test_the_report_of_ranks(tmp_path, lms, layer_wise, capture):
    """All ranks have the same rows; the rank that is late waits least, in recorded iterations too."""
    assert run_ranks(late, (str(tmp_path), LMS[lms], layer_wise, capture), unique_id(), ["GPU 0", "GPU 1"]) == 0
    found, other = (json.loads((tmp_path / f"{i}.json").read_text()) for i in range(2))
    assert found == other
    for rows in (found["rows"], found["totals"]):
        first, second = (Row(**row) for row in rows)
        assert first.iterations == second.iterations > 0
        assert (first.bytes_in is not None) is (lms != "off")
        assert first.exchange > second.exchange >= 0 and second.work > first.work > 0
    single = [json.loads((tmp_path / f"{i} single.json").read_text()) for i in range(2)]
    assert all(0 <= exposed < seconds for rows in single for exposed, seconds in rows)
    first, second = (np.median([exposed for exposed, _ in rows]) for rows in single)  # others may use these GPUs, too
    assert 0 < second < 0.01 < first  # GPU 1 comes 20 ms later


def near_simulated(found, text: str) -> None:
    """Compare rank 0 with that of two simulated ranks."""

    def simulated(rank, path):
        solver = rank_solver(text, rank, 2)
        parallel = joined(solver, path)
        solver.step(ITERATIONS)
        values = bits(solver)
        parallel.close()
        return values

    for a, b in zip(found, in_threads(2, simulated)[0], strict=True):
        np.testing.assert_allclose(a, np.frombuffer(b, np.float32), rtol=2e-3, atol=2e-4)


def test_both_ranks_have_the_same_and_it_is_what_simulated_ranks_have(expected):
    same(expected[1], expected[0], but=STATISTICS)
    near_simulated(expected[0], TEXT)


@pytest.mark.parametrize("lms", LMS)
@pytest.mark.parametrize("layer_wise", [True, False], ids=["layer by layer", "at the end"])
def test_to_the_bit_with_lms_and_without(tmp_path, expected, lms, layer_wise):
    found = train(tmp_path, 2, lms=lms, layer_wise=layer_wise)
    for rank in (0, 1):
        same(found[rank], expected[rank])


@pytest.mark.parametrize("lms", LMS)
@pytest.mark.parametrize("layer_wise", [True, False], ids=["layer by layer", "at the end"])
def test_recorded(tmp_path, expected, lms, layer_wise):
    found = train(tmp_path, 2, lms=lms, layer_wise=layer_wise, capture=None)
    for rank in (0, 1):
        same(found[rank], expected[rank])


@pytest.mark.parametrize("capture", [False, True], ids=["queued", "recorded"])
def test_virtual_ranks_give_the_same_bits_on_one_and_two(tmp_path, expected, capture):
    one = train(tmp_path, 1, virtual_ranks=4)[0]
    for lms in LMS:
        first, second = train(tmp_path, 2, lms=lms, capture=capture, virtual_ranks=4)
        same(first, one)
        same(second, one, but=STATISTICS)


@pytest.mark.parametrize("capture", [False, True], ids=["queued", "recorded"])
@pytest.mark.parametrize("lms", LMS)
def test_divided_histories_give_the_same_weights(tmp_path, expected, lms, capture):
    """A sum of two has one order; the second half of the blobs are gradients, of which each rank has a share."""
    found = train(tmp_path, 2, lms=lms, capture=capture, shard_history=True)
    weights = len(found[0]) // 2
    for rank in (0, 1):
        same(found[rank][:weights], expected[rank][:weights])


def test_clipping_and_several_passes(tmp_path, expected):
    first, second = train(tmp_path, 2, CLIPPED), train(tmp_path, 2, CLIPPED, lms="100 KB")
    for rank in (0, 1):
        same(first[rank], second[rank])
    same(first[0], first[1], but=STATISTICS)


@pytest.mark.parametrize("capture", [False, True], ids=["queued", "recorded"])
@pytest.mark.parametrize("layer_wise", [True, False], ids=["layer by layer", "at the end"])
def test_synchronized_batch_norm(tmp_path, expected, layer_wise, capture):
    """The same bits with LMS and without, running averages included on both; near what simulated ranks have."""
    plain = train(tmp_path, 2, SYNC)
    same(plain[1], plain[0])
    assert not np.array_equal(plain[0][2], expected[0][2]), "the mean of one rank alone"
    for lms in LMS:
        for found in train(tmp_path, 2, SYNC, lms, layer_wise, capture):
            same(found, plain[0])
    near_simulated(plain[0], SYNC)


@pytest.mark.skipif(GPUS < 4, reason="fewer than four GPUs")
@pytest.mark.parametrize("lms", LMS)
def test_four(tmp_path, expected, lms):
    plain = train(tmp_path, 4)
    found = train(tmp_path, 4, lms=lms)
    for rank in range(4):
        same(found[rank], plain[rank])
        same(found[rank], found[0], but=STATISTICS)


@pytest.mark.parametrize("lms", LMS)
@pytest.mark.parametrize("text", [TEXT, SYNC], ids=["", "sync"])
def test_a_rank_that_replays_and_one_that_does_not(tmp_path, text, lms):
    """As while rank 0 copies values to a snapshot. The bits are those of ranks that both run step by step."""
    wanted = train(tmp_path, 2, text)
    assert run_ranks(mixed, (str(tmp_path), text, LMS[lms]), unique_id(), ["GPU 0", "GPU 1"]) == 0
    for i in range(2):
        with np.load(tmp_path / f"{i}.npz") as file:
            same([file[name] for name in file.files], wanted[i])


@pytest.mark.parametrize("capture", [False, True], ids=["queued", "recorded"])
@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("error", "rank 1 has had enough"),
        ("killed", "its process was ended by SIGKILL"),
        ("memory", "GPU 1"),
    ],
)
def test_a_rank_that_fails_ends_the_others(kind, said, capture):
    start = time.monotonic()
    with pytest.raises(RankError, match=rf"rank 1 of 2 \(GPU 1\) failed: (.|\n)*{said}"):
        run_ranks(failing, (kind, capture), unique_id(), ("GPU 0", "GPU 1"))
    assert time.monotonic() - start < 120


@pytest.mark.parametrize("capture", [False, True], ids=["queued", "recorded"])
def test_a_rank_that_does_not_answer(capture):
    """The other one waits on its GPU, and the watch ends that."""
    start = time.monotonic()
    with pytest.raises(RankError, match=r"rank 0 of 2 \(GPU 0\) failed: .*did not answer within 30 s"):
        run_ranks(failing, ("silent", capture), unique_id(), ("GPU 0", "GPU 1"))
    assert time.monotonic() - start < 180


@pytest.mark.parametrize("graph", ["off", "on"])
def test_ranks_that_hang(tmp_path, graph):
    """One whose next picture is a pipe, in iterations that are recorded unless `-graph off`; one that is stopped."""
    words = ["-gpu", "0,1", "-graph", graph, "-hang_timeout", "5", *LONG]
    done = command("train", "-solver", "s.prototxt", *words, cwd=with_pictures(tmp_path, 400))
    assert done.code == 1 and done.stderr.count("error:") == 1
    assert re.search(
        r'rank \d of 2 \(GPU \d\) failed: it has made no progress for \d+ s in .* layer "in"', done.stderr
    ), done.stderr
    (tmp_path / "stopped").mkdir()
    ranks, pids, _ = by_gpu_flag(filled(tmp_path / "stopped"), *words, until="Iteration 20 ")
    os.kill(pids[1], signal.SIGSTOP)
    code, said = finish(ranks)
    assert code == 1 and f"its process {pids[1]} has not run for" in said and gone(pids), said


def test_the_command_line(tmp_path):
    (tmp_path / "solver.prototxt").write_text(f'{TEXT} max_iter: 8 display: 2 snapshot_prefix: "run"')
    done = command("train", "-solver", "solver.prototxt", "-gpu", "0,1", "-lms", "100", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.log.count("Optimization Done.") == 1 and done.stderr.count("Iteration 2 (") == 1
    assert "exchanging (" in done.stderr


def test_the_command_line_where_the_environment_keeps_sums_from_being_recorded(tmp_path, monkeypatch):
    """It trains step by step, which one rank says."""
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "1")
    (tmp_path / "solver.prototxt").write_text(f'{TEXT} max_iter: 8 display: 2 snapshot_prefix: "run"')
    done = command("train", "-solver", "solver.prototxt", "-gpu", "0,1", cwd=tmp_path)
    assert done.code == 0, done.stderr
    assert done.stderr.count("Iterations are not recorded as CUDA graphs") == 1 and "exchanging (" in done.stderr
