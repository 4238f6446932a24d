"""`caffe.NCCL`: data-parallel training on several GPUs, one process each, as pycaffe's users know it.

def rank(uid, rank, count):                      # in a process of its own, started with "spawn"
    caffe.set_device(rank); caffe.set_mode_gpu()
    caffe.set_solver_count(count); caffe.set_solver_rank(rank); caffe.set_multiprocess(True)
    solver = caffe.SGDSolver("solver.prototxt")
    nccl = caffe.NCCL(solver, uid)               # uid = caffe.NCCL.new_uid(), made once
    nccl.bcast()
    solver.add_callback(nccl)
    if solver.param.layer_wise_reduce:
        solver.net.after_backward(nccl)
    solver.step(solver.param.max_iter)
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TYPE_CHECKING

from ..backend.cuda.communicator import NcclCommunicator, unique_id
from . import communicator
from .communicator import TIMEOUT_S
from .data_parallel import DataParallel

if TYPE_CHECKING:
    from ..solvers.base import Solver


class NCCL(DataParallel):
    """NCCL(solver, uid): the solver, which must be on a GPU of its own, as rank solver_rank() of solver_count().

    Waits until all ranks have come. uid: of `new_uid()`, the same for all. timeout: seconds to wait for another rank.
    capture: let iterations be recorded as CUDA graphs with the sums in them. beats: of `launch.Rank`; with them the
    messages about a rank that does not answer name it.
    Raises MissingDependency without NCCL, UsageError for a solver that is on no GPU or a uid that is none, LostRank.
    """

    def __init__(
        self,
        solver: Solver,
        uid: bytes,
        *,
        timeout: float = TIMEOUT_S,
        capture: bool = False,
        beats: MutableSequence[int] | None = None,
    ):
        super().__init__(solver, _communicator(solver, uid, timeout, capture, beats))

    @staticmethod
    def new_uid() -> bytes:
        """128 bytes that name a new group of ranks. Raises MissingDependency without NCCL."""
        return unique_id()


def _communicator(
    solver: Solver, uid: bytes, timeout: float, capture: bool, beats: MutableSequence[int] | None
) -> NcclCommunicator:
    return NcclCommunicator(
        solver.net.device,
        uid,
        solver.solver_count,
        solver.solver_rank,
        timeout=timeout,
        capture=capture,
        warn=communicator.WARN_S,
        beats=beats,
    )
