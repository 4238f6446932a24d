"""Nets that run at the same time in threads or processes compute what each computes alone."""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from dataclasses import dataclass

import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.pycaffe import mode
from pycaffe_lms.pycaffe.classes import PycaffeNet
from pycaffe_lms.solvers import SGDSolver

from .nets import conv, inputs, ip, layer, loss, relu

TEXT = (
    inputs(x=(4, 3, 8, 8), label=(4,))
    + conv("c1", "x", 8)
    + layer("n", "BatchNorm", "c1", "b1")
    + relu("r", "b1", "r1")
    + layer("p", "Pooling", "r1", text="pooling_param { kernel_size: 2 stride: 2 }")
    + ip("a", "p", 200)
    + layer("d", "Dropout", "a")
    + ip("b", "d", 3)
    + loss("b")
)
STEPS = 6


class _Solver(SGDSolver):
    net_class = PycaffeNet


@dataclass
class Job:
    """Train a net with numbers of its own."""

    seed: int
    device: object
    lms: LMSConfig | None = None
    graph: bool = False

    def run(self, wait=lambda: None) -> list[bytes]:
        import numpy as np

        head = f'base_lr: 0.05 momentum: 0.9 lr_policy: "fixed" max_iter: 100 random_seed: {self.seed}'
        parsed = parse_solver(f"{head}\nnet_param {{ {TEXT} }}", "f")
        solver = _Solver(
            parsed.message,
            file=parsed.filename,
            lines=parsed.lines,
            device=self.device,
            lms=self.lms,
            tuning=Tuning(fuse=False, pack=False, graph=self.graph),
        )
        rng, seen = np.random.default_rng(self.seed), []
        wait()
        for _ in range(STEPS):
            solver.net.blobs["x"].data[...] = rng.normal(size=(4, 3, 8, 8))
            solver.net.blobs["label"].data[...] = rng.integers(0, 3, 4)
            solver.step(1)
            solver.net.forward()
            seen += [b.read_data().tobytes() for b in (solver.net.blobs["b"], *solver.net.learnable_params)]
        return seen


def together(jobs: list[Job]) -> list[list[bytes]]:
    """Each job's numbers, from threads that begin at the same time."""
    barrier, found, failed = threading.Barrier(len(jobs)), {}, []

    def work(k: int) -> None:
        try:
            found[k] = jobs[k].run(barrier.wait)
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    workers = [threading.Thread(target=work, args=(k,)) for k in range(len(jobs))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failed:
        raise failed[0]
    return [found[k] for k in range(len(jobs))]


def alone(seed: int) -> list[bytes]:
    return Job(seed, get_device("cpu")).run()


@pytest.fixture(scope="module")
def expected() -> list[list[bytes]]:
    found = [alone(seed) for seed in (1, 2, 3)]
    assert found[0] != found[1]
    return found


def test_on_the_cpu(expected):
    assert together([Job(seed, get_device("cpu")) for seed in (1, 2, 3)]) == expected


@pytest.mark.parametrize("order", ["latest", "earliest", "random"])
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1)])
def test_on_one_simulated_device(expected, order, lms):
    """Nets of three threads on one device, whose streams and memory they share."""
    device = SimDevice(256 << 20, order=order, seed=1)
    assert together([Job(seed, device, lms) for seed in (1, 2, 3)]) == expected


def test_with_and_without_large_model_support_and_recordings(expected):
    device = SimDevice(256 << 20, order="random", seed=2)
    jobs = [Job(1, device, LMSConfig(threshold_kb=1)), Job(2, device, graph=True), Job(3, device, graph=True)]
    assert together(jobs) == expected and device.launches > 0


def test_modes_of_threads(tmp_path):
    """One thread's default is another's nothing; both build at the same time."""
    path = tmp_path / "net.prototxt"
    path.write_text(TEXT)
    barrier, found = threading.Barrier(2), {}

    def build(name, seed, lms):
        caffe.set_random_seed(seed)
        caffe.set_lms(lms)
        barrier.wait()
        net = caffe.Net(str(path), caffe.TRAIN, device=SimDevice(64 << 20))
        found[name] = net.lms.enabled, net.params["a"][0].data.tobytes()

    threads = [threading.Thread(target=build, args=a) for a in (("a", 1, None), ("b", 2, caffe.LMS(1)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n][0] for n in "ab"] == [False, True]
    build2 = {}
    for seed in (1, 2):
        caffe.set_random_seed(seed)
        build2[seed] = caffe.Net(str(path), caffe.TRAIN).params["a"][0].data.tobytes()
    mode.settings.seed = None
    assert (found["a"][1], found["b"][1]) == (build2[1], build2[2])


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_two_processes(expected, method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons: of forking where there are threads
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(alone, (1, 2)) == expected[:2]


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1)])
@pytest.mark.parametrize("graph", [False, True])
def test_on_one_gpu(lms, graph):
    device = get_device("cuda")
    jobs = [Job(seed, device, lms, graph) for seed in (1, 2)]
    assert together(jobs) == [job.run() for job in jobs]
    assert device.can_capture


def on_the_gpu(seed: int) -> list[bytes]:
    return Job(seed, get_device("cuda"), LMSConfig(threshold_kb=1), True).run()


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_two_processes_on_one_gpu():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(on_the_gpu, (1, 2), chunksize=1)
    assert found == [on_the_gpu(seed) for seed in (1, 2)]
