"""Offers `caffe.NCCL`: data-parallel training on several GPUs, one process each, with pycaffe's interface.

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

from typing import TYPE_CHECKING

from ..backend.cuda.communicator import Beats, NcclCommunicator, unique_id
from . import communicator
from .communicator import TIMEOUT_S
from .data_parallel import DataParallel

if TYPE_CHECKING:
    from ..solvers.base import Solver


class NCCL(DataParallel):
    """Join a solver, which must have a GPU of its own, to the others as rank solver_rank() of solver_count().

    The constructor waits until all ranks are connected.

    Args:
        uid: what `new_uid()` returned, the same for all ranks.
        timeout: seconds to wait for another rank.
        capture: let CUDA graphs of iterations contain the sums; None: unless the environment variable
            NCCL_GRAPH_REGISTER forbids it, of which the log tells. False: iterations run step by step.
        beats: those of `launch.Rank`; they let messages name the rank that does not answer.

    Raises:
        MissingDependency: NCCL is not installed.
        UsageError: the solver is not on a GPU, uid is not one of `new_uid()`, or NCCL_GRAPH_REGISTER forbids what
            capture=True asks for.
        LostRank: another rank did not come.
    """

    def __init__(
        self,
        solver: Solver,
        uid: bytes,
        *,
        timeout: float = TIMEOUT_S,
        capture: bool | None = None,
        beats: Beats | None = None,
    ):
        joined = NcclCommunicator(
            solver.net.device,
            uid,
            solver.solver_count,
            solver.solver_rank,
            timeout=timeout,
            capture=capture,
            warn=communicator.WARN_S,
            beats=beats,
        )
        super().__init__(solver, joined)

    @staticmethod
    def new_uid() -> bytes:
        """Return 128 bytes that name a new group of ranks. Raises MissingDependency without NCCL."""
        return unique_id()
