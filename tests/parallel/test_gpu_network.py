"""NCCL's way between hosts, sockets, on one machine: every rank is a host of its own to NCCL.

NCCL refuses two ranks of a host on one GPU, but not of two hosts, so one GPU is enough. With several, the bits are also
compared with those over NVLink.
"""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available, nccl_available
from pycaffe_lms.backend.cuda.communicator import unique_id
from pycaffe_lms.parallel.launch import run_ranks

from . import test_gpu
from .test_gpu import ITERATIONS, LMS, STATISTICS, TEXT, bits, make, near_simulated, same

GPUS = cuda.device_count() if cuda_available() else 0
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPUS < 1, reason="no GPU"),
    pytest.mark.skipif(GPUS > 0 and not nccl_available(), reason="no NCCL"),
]


def work(folder: str, lms, capture: bool, rank) -> int:
    """Train, then write parameters and gradients."""
    test_gpu.apart(rank)
    solver, nccl = make(TEXT, rank, lms, capture, index=rank.index % GPUS)
    nccl.bcast()
    nccl.join(layer_wise=True)
    solver.step(ITERATIONS)
    np.savez(f"{folder}/{rank.index}.npz", *[np.frombuffer(b, np.float32) for b in bits(solver)])
    nccl.close()
    solver.close()
    return 0


def train(folder, count: int, lms="off", capture=False) -> list[list[np.ndarray]]:
    names = [f"rank {i} on GPU {i % GPUS}" for i in range(count)]
    assert run_ranks(work, (str(folder), LMS[lms], capture), unique_id(), names) == 0
    found = []
    for i in range(count):
        with np.load(folder / f"{i}.npz") as file:
            found.append([file[name] for name in file.files])
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """Return what two ranks compute. One alone runs first: it stores its choices of convolutions for all."""
    train(tmp_path_factory.mktemp("first"), 1)
    return train(tmp_path_factory.mktemp("expected"), 2)


def test_both_ranks_have_the_same_and_it_is_what_simulated_ranks_have(expected):
    same(expected[1], expected[0], but=STATISTICS)
    near_simulated(expected[0], TEXT)


@pytest.mark.parametrize("lms", LMS)
@pytest.mark.parametrize("capture", [False, True], ids=["queued", "recorded"])
def test_to_the_bit_with_lms_and_without(tmp_path, expected, lms, capture):
    for found, rank in zip(train(tmp_path, 2, lms, capture), expected, strict=True):
        same(found, rank)


@pytest.mark.skipif(GPUS < 2, reason="fewer than two GPUs")
def test_the_bits_are_those_over_nvlink(tmp_path, expected):
    for found, rank in zip(test_gpu.train(tmp_path, 2), expected, strict=True):
        same(found, rank)


@pytest.fixture(scope="module")
def four(tmp_path_factory, expected):
    return train(tmp_path_factory.mktemp("four"), 4)


@pytest.mark.parametrize("lms", LMS)
def test_four_ranks(tmp_path, four, lms):
    for found, rank in zip(train(tmp_path, 4, lms), four, strict=True):
        same(found, rank)
        same(found, four[0], but=STATISTICS)
