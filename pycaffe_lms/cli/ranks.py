"""Run `train` on several devices: one process for each of -gpu, the ranks of one training."""

from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from ..backend.cuda.communicator import unique_id
from ..log import log_to_stderr
from ..parallel.communicator import TIMEOUT_S
from ..parallel.data_parallel import DataParallel
from ..parallel.host import HostCommunicator
from ..parallel.launch import Rank, run_ranks
from ..parallel.meeting import Meeting
from ..parallel.nccl import NCCL
from ..solvers import Solver
from ..solvers.base import STOP

_log = logging.getLogger(__name__)
SNAPSHOT_AND_STOP = "snapshot_and_stop"  # an effect of a signal


def add_timeout(p: argparse.ArgumentParser) -> None:
    """Declare -timeout, of ranks."""
    p.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="with several GPUs: how long a rank waits for another before the run ends with an error that names it; it "
        "must be longer than a test or a snapshot, which rank 0 makes alone",
    )


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < threading.TIMEOUT_MAX:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds, larger than 0")


def launch(work: Callable[[argparse.Namespace, Rank], int], args: argparse.Namespace, numbers: Sequence[int]) -> int:
    """Run work(args, rank) in a process for each of these devices; return the exit code. Raises RankError."""
    simulated = args.backend in ("cpu", "sim")
    names = [f"GPU {n}" if not simulated else f"{args.backend} {n}" for n in numbers]
    _log.info("Using GPUs %s", ", ".join(map(str, numbers)))
    insist = args.sigint_effect in (STOP, SNAPSHOT_AND_STOP)
    if not simulated:
        return run_ranks(work, (args,), unique_id(), names, insist=insist)
    with Meeting() as meeting:
        return run_ranks(work, (args,), meeting.path, names, insist=insist)


@contextmanager
def logging_as(rank: Rank) -> Iterator[None]:
    """Within: log to stderr; of ranks other than 0 only warnings and errors."""
    with log_to_stderr(logging.WARNING if rank.index else logging.INFO):
        yield


@contextmanager
def joined(solver: Solver, rank: Rank | None, timeout: float) -> Iterator[None]:
    """Within: the solver trains with the other ranks, from the same weights; no rank: alone.

    timeout: seconds to wait for another rank.
    """
    if rank is None:
        yield
        return
    if isinstance(rank.place, bytes):
        parallel: DataParallel = NCCL(solver, rank.place, timeout=timeout, beats=rank.beats)
    else:
        device = solver.net.device
        parallel = DataParallel(solver, HostCommunicator(device, rank.place, rank.count, rank.index, timeout=timeout))
    try:
        parallel.bcast()
        parallel.join(layer_wise=solver.param.layer_wise_reduce)
        yield
    except BaseException:
        parallel.abort()
        raise
    parallel.close()
