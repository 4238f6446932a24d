"""Runs ranks as threads of one process, each with a solver and a device of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.formats.prototxt.parser import parse_solver
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.parallel.data_parallel import DataParallel
from pycaffe_lms.parallel.host import HostCommunicator
from pycaffe_lms.parallel.meeting import Meeting
from pycaffe_lms.pycaffe.classes import PycaffeNet
from pycaffe_lms.solvers import SOLVERS

TIMEOUT_S = 600.0  # the machine may be busy, or stand still for a while


def in_threads(count: int, work: Callable[[int, str], object]) -> list:
    """Return what work(rank, meeting place) returned, by rank.

    When all are done, raise the first exception: a rank that fails leaves the others waiting, and theirs tell only
    that."""
    found: list = [None] * count
    errors: list[BaseException] = []

    def run(rank: int, path: str) -> None:
        try:
            found[rank] = work(rank, path)
        except BaseException as error:
            errors.append(error)

    with Meeting() as meeting:
        threads = [threading.Thread(target=run, args=(rank, meeting.path)) for rank in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return found


def rank_solver(text: str, rank: int, count: int, **place):
    """Return a rank's solver of this text, whose net has pycaffe's methods. place: device and lms (default: the
    CPU)."""
    parsed = parse_solver(text)
    base = SOLVERS[parsed.message.type]
    cls = type("FaceSolver", (base,), {"net_class": PycaffeNet})
    return cls(parsed.message, lines=parsed.lines, solver_count=count, solver_rank=rank, **place)


def joined(solver, path: str, *, layer_wise: bool = True, timeout: float = TIMEOUT_S) -> DataParallel:
    """Return the solver with the weights of rank 0, averaging gradients."""
    device, count, rank = solver.net.device, solver.solver_count, solver.solver_rank
    parallel = DataParallel(solver, HostCommunicator(device, path, count, rank, timeout=timeout))
    try:
        parallel.bcast()
        parallel.join(layer_wise=layer_wise)
    except BaseException:
        parallel.abort()
        raise
    return parallel


def sim(order: str = "latest", lms: LMSConfig | None = None) -> Callable[[int], dict]:
    """Return places on simulated devices, whose streams run in an order of their own where it is random."""
    return lambda rank: {"device": SimDevice(64 << 20, order=order, seed=rank), "lms": lms}
