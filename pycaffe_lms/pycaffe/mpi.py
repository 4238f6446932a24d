"""Offers `caffe.init_mpi` and `caffe.MPI`: training from Python by the ranks that mpirun or srun started.

caffe.set_mode_gpu()
caffe.init_mpi()                                 # count, rank, GPU; later solvers train together
solver = caffe.get_solver("solver.prototxt")
solver.step(solver.param.max_iter)
"""

from __future__ import annotations

import atexit
import sys
from contextlib import redirect_stderr
from functools import cache, partial
from io import StringIO
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..backend import get_device
from ..errors import UsageError
from ..parallel import mpi
from ..parallel.agreement import agree, of_solver, versions
from ..parallel.communicator import TIMEOUT_S
from ..parallel.data_parallel import DataParallel
from . import mode

if TYPE_CHECKING:
    from ..solvers.base import Solver


class MPI(DataParallel):
    """Join a solver to those of the other MPI ranks as rank solver_rank() of solver_count(), as `caffe.NCCL` does.

    Solvers on GPUs sum through NCCL, others through MPI. The constructor waits until all ranks are connected, and
    compares versions, solvers, nets and numbers of records. `init_mpi` does all that this needs for each solver.

    Args:
        comm: a communicator of mpi4py; None: COMM_WORLD.
        timeout: seconds to wait for another rank.

    Raises:
        MissingDependency: mpi4py, or on GPUs NCCL, is not installed.
        Disagreement: the ranks do not train the same.
        UsageError: the solver is of another rank.
        LostRank: another rank did not come.
    """

    def __init__(self, solver: Solver, comm: Any = None, *, timeout: float = TIMEOUT_S):
        ranks = mpi.world() if comm is None else mpi.MpiRanks(comm)
        wanted, found = (solver.solver_rank, solver.solver_count), (ranks.index, ranks.count)
        if wanted != found:
            raise UsageError(
                f"the solver is rank {wanted[0]} of {wanted[1]}, this process {found[0]} of {found[1]}",
                fix="call caffe.init_mpi() before the solver is made",
            )
        between_hosts = mpi.MpiCommunicator(ranks, get_device("cpu"), timeout=timeout)
        agree(between_hosts.gather, versions(solver.net.device) | of_solver(solver))
        super().__init__(solver, ranks.communicator(solver.net.device, timeout=timeout))


def init_mpi(comm: Any = None, *, timeout: float = TIMEOUT_S) -> None:
    """Let solvers that this thread makes from now on train with those of the other MPI ranks.

    It sets solver_count and solver_rank, and after `set_mode_gpu` the GPU: each rank of a host takes the next one. A
    solver starts from rank 0's weights. All ranks make the same solvers and steps. Rank 0 logs and writes snapshots,
    and the ranks divide the batches of a test. An exception that ends a rank's program ends all ranks, with rank and
    host. In one process that no MPI launcher started nothing changes.

    Args:
        comm: a communicator of mpi4py; None: COMM_WORLD.
        timeout: seconds to wait for another rank.

    Raises:
        MissingDependency: mpi4py is not installed.
        DeviceError: there is no MPI library, or it is another than the launcher's.
        UsageError: a host has fewer GPUs than ranks.
    """
    if comm is None and mpi.started() is None:
        return
    ranks = mpi.world() if comm is None else mpi.MpiRanks(comm)
    mode.set_solver_count(ranks.count)
    mode.set_solver_rank(ranks.index)
    mode.set_multiprocess(True)
    if mode.settings.backend == "cuda":
        mode.set_device(ranks.gpu())
    mode.settings.join = partial(_join, comm=comm, timeout=timeout)
    _end_all_with(ranks)


def _join(solver: Solver, comm: Any, timeout: float) -> None:
    parallel = MPI(solver, comm, timeout=timeout)
    parallel.bcast()
    parallel.join(layer_wise=solver.param.layer_wise_reduce)
    atexit.register(parallel.close)


@cache
def _end_all_with(ranks: mpi.MpiRanks) -> None:
    """Let an exception that nothing catches end all ranks: they would wait for this one."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if ranks.speaks(error):
            with redirect_stderr(StringIO()) as said:
                print(f"rank {ranks.index} of {ranks.count} on {ranks.hosts[ranks.index]}:", file=sys.stderr)
                before(kind, error, trace)
            sys.stderr.write(said.getvalue())  # in one piece, of which no end can be lost
            sys.stderr.flush()
            ranks.abort(getattr(error, "exit_code", 1))

    sys.excepthook = hook
