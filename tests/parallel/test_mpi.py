"""Tests ranks that an MPI launcher starts: what they exchange, and how they are recognised."""

from __future__ import annotations

import json
import socket
import sys

import pytest

from pycaffe_lms.parallel.mpi import started

from .mpi_ranks import mpiexec, needs_mpi

WORK = [sys.executable, "-m", "tests.parallel.mpi_work"]


def run(count: int, work: str, tmp_path) -> tuple[list, str]:
    """Return what each rank found, and what they said."""
    code, said = mpiexec(count, [*WORK, work, str(tmp_path)], tmp_path)
    assert code == 0, said
    return [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(count)], said


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_RANK": "2"}, (2, 4)),
        ({"PMI_SIZE": "2", "PMI_RANK": "1"}, (1, 2)),
        ({"MV2_COMM_WORLD_SIZE": "8", "MV2_COMM_WORLD_RANK": "7"}, (7, 8)),
        ({"SLURM_STEP_NUM_TASKS": "16", "SLURM_PROCID": "3"}, (3, 16)),
        ({"SLURM_NTASKS": "16", "SLURM_PROCID": "0"}, None),  # a batch script, outside of srun
        ({"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "PMI_SIZE": "8", "PMI_RANK": "5"}, (5, 8)),  # mpirun there
        ({"PMI_SIZE": "1", "PMI_RANK": "0"}, None),
        ({"PMIX_RANK": "1"}, (1, 0)),
    ],
)
def test_launchers_are_known_by_their_variables(variables, expected):
    assert started(variables) == expected


@needs_mpi
@pytest.mark.parametrize("count", [2, 3])
def test_operations(tmp_path, count):
    """Sums have the bits of HostCommunicator's, on the CPU and queued on a simulated device."""
    ranks, _ = run(count, "operations", tmp_path)
    for rank, places in enumerate(ranks):
        for found in places.values():
            assert found == {
                "queued": True,
                "sums": [True, True, True],
                "maxima": [10 * (count - 1), 0],
                "broadcast": [[0, 0]] * 3,
                "scattered": [float(sum(r + rank for r in range(count)))] * (rank + 1),
                "gathered": [[float(r)] * r for r in range(count)],
                "received": [float(rank ^ 1)] * 2 if rank ^ 1 < count else [0, 0],
                "bytes": ["r" * r for r in range(count)],
                "host bytes": ["r" * r for r in range(count)],
            }
        assert set(places) == {"cpu", "sim"}


@needs_mpi
def test_ranks_that_do_not_do_the_same(tmp_path):
    ranks, _ = run(2, "different", tmp_path)
    host = socket.gethostname()
    assert f"rank 0 of 2 on {host}: rank 1 on {host} does a sum of 8 bytes" in ranks[0]
    assert "where this one does a gathering of values of 8" in ranks[0] and "they do not train the same" in ranks[0]
    assert "rank 0 on" in ranks[1] and "does a gathering of values" in ranks[1]


@needs_mpi
def test_a_late_rank_is_named_with_its_host(tmp_path):
    """All others raise; the first of them logs while they wait."""
    ranks, said = run(3, "late", tmp_path)
    assert ranks[2] == "late"
    for rank in (0, 1):
        assert f"rank {rank} of 3 on {socket.gethostname()}: rank 2 (process " in ranks[rank]
        assert f"on {socket.gethostname()}) did not answer within 1.5 s" in ranks[rank]
    assert "Rank 0 of 3 has waited" in said and "for rank 2 (process" in said and "Rank 1 of 3 has waited" not in said


@needs_mpi
def test_a_rank_that_never_comes(tmp_path):
    ranks, _ = run(3, "absent", tmp_path)
    for rank in (0, 1):
        assert f"rank {rank} of 3 on {socket.gethostname()}: another rank of 3 did not come within 1.5 s" in ranks[rank]


@needs_mpi
def test_a_rank_that_stops_in_the_middle_of_a_sum_is_named_alone(tmp_path):
    """The first rank waits for the second too, which waits for the last one's part."""
    ranks, _ = run(3, "half", tmp_path)
    for rank in (0, 1):
        assert f"rank {rank} of 3 on {socket.gethostname()}: rank 2 (process " in ranks[rank]
        assert "rank 1 (" not in ranks[rank] and "did not answer within 1.5 s" in ranks[rank]


@needs_mpi
def test_ranks_on_gpus_find_out_who_is_late(tmp_path):
    """By asking each other: the last one has made fewer calls and says nothing, then it has come."""
    ranks, _ = run(3, "roll_call", tmp_path)
    for before, named, place, after, nobody in ranks[:2]:
        assert before == [5, 5, 0] and named == f"rank 2 ({place}) of 3" and place.endswith(socket.gethostname())
        assert after == [5, 5, 5] and nobody.startswith("another rank of 3")
    assert ranks[2][0] == [5, 5, 5] and ranks[2][1].startswith("another rank of 3")
