"""Tests `mpiexec -n 2 pycaffe-lms train` on two GPUs, where NCCL sums: the same bits as with `-gpu 0,1`."""

from __future__ import annotations

import subprocess

import pytest

from pycaffe_lms.backend import cuda, cuda_available, nccl_available

from .mpi_ranks import TRAIN, environment, needs_mpi
from .test_mpi_train import HOST, filled, snapshots, train

GPUS = cuda.device_count() if cuda_available() else 0
pytestmark = [
    pytest.mark.gpu,
    needs_mpi,
    pytest.mark.skipif(GPUS < 2, reason="not two GPUs"),
    pytest.mark.skipif(GPUS > 1 and not nccl_available(), reason="no NCCL"),
]


@pytest.mark.parametrize("flags", ["", "-lms 1", "-lms auto", "-graph off", "-shard_history"])
def test_the_bits_of_ranks_on_two_gpus(tmp_path, flags):
    """Choices of convolutions are kept in the first run and found by the second."""
    alone, ranks = (tmp_path / name for name in ("alone", "ranks"))
    for place in (alone, ranks):
        place.mkdir()
        filled(place)
    words = [*flags.split(), "-cache", str(tmp_path / "cache")]
    command = [*TRAIN, "-solver", "s.prototxt", "-gpu", "0,1", *words]
    subprocess.run(command, cwd=alone, env=environment(), check=True, capture_output=True)
    code, said = train(ranks, 2, *words)
    assert code == 0, said
    assert f"Ranks on {HOST}: 0 (process" in said
    assert snapshots(ranks) == snapshots(alone)
