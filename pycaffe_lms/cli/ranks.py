"""`train` on several devices: one process for each of -gpu, which are the ranks of one training."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..backend.nccl import unique_id
from ..log import log_to_stderr
from ..parallel.data_parallel import DataParallel
from ..parallel.host import HostCommunicator, Meeting
from ..parallel.launch import Rank, run_ranks
from ..parallel.nccl import NCCL
from ..solvers import Solver

_log = logging.getLogger(__name__)


def launch(work: Callable[[list[str], Rank], int], argv: Sequence[str], args: argparse.Namespace,
           numbers: Sequence[int]) -> int:  # fmt: skip
    """Run work(argv, rank) in a process for each of these devices; returns the exit code. Raises RankError."""
    simulated = args.backend in ("cpu", "sim")
    names = [f"GPU {n}" if not simulated else f"{args.backend} {n}" for n in numbers]
    _log.info("Using GPUs %s", ", ".join(map(str, numbers)))
    if not simulated:
        return run_ranks(work, (list(argv),), unique_id(), names)
    with Meeting() as meeting:
        return run_ranks(work, (list(argv),), meeting.path, names)


@contextmanager
def logging_as(rank: Rank) -> Iterator[None]:
    """Within: this rank's log goes to stderr; of the ranks other than 0 warnings and errors alone."""
    with log_to_stderr(logging.WARNING if rank.index else logging.INFO):
        yield


@contextmanager
def joined(solver: Solver, rank: Rank | None) -> Iterator[None]:
    """Within: the solver trains with the other ranks, from the same weights on; no rank: alone."""
    if rank is None:
        yield
        return
    if isinstance(rank.place, bytes):
        parallel: DataParallel = NCCL(solver, rank.place)
    else:
        device = solver.net.device
        parallel = DataParallel(solver, HostCommunicator(device, rank.place, rank.count, rank.index))
    try:
        parallel.bcast()
        parallel.join(layer_wise=solver.param.layer_wise_reduce)
        yield
    except BaseException:
        parallel.abort()
        raise
    parallel.close()
