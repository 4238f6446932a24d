"""Run `train` on several devices: a process for each of -gpu, or those that mpirun or srun started.

Of the latter one tells what went wrong, and ends the others: `as_rank`.
"""

from __future__ import annotations

import argparse
import ctypes
import logging
import mmap
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from ..backend import get_device
from ..backend.cuda import communicator as nccl_ranks
from ..backend.cuda.communicator import unique_id
from ..errors import CaffeError, LostRank, UsageError
from ..log import log_to_file, log_to_stderr
from ..parallel import host, mpi
from ..parallel.agreement import Disagreement, agree, of_files, of_solver, versions
from ..parallel.communicator import TIMEOUT_S
from ..parallel.data_parallel import DataParallel
from ..parallel.host import HostCommunicator
from ..parallel.launch import SIGNALS, Rank, run_ranks
from ..parallel.meeting import Meeting
from ..parallel.nccl import NCCL
from ..parallel.pulse import FIX, HANG_S, SAID_S, SHORTEST_S, SLOTS, Heart, Listener, Slots, end_if_silent
from ..solvers import Solver
from ..solvers.base import STOP

_log = logging.getLogger(__name__)
SNAPSHOT_AND_STOP = "snapshot_and_stop"  # an effect of a signal
_ONE_PROCESS = ("test", "time", "benchmark")
Compare = Callable[[Mapping[str, str]], None]
"""Compares facts, name -> value, with the other ranks; raises Disagreement."""
_LATE_S = 2.0  # by which other ranks than 0 say that they hang, because all may wait for the same file system
_slots: Slots | None = None  # shared with the process that forked this one, see `as_rank`
_PR_SET_PDEATHSIG = 1  # of prctl: the signal that a process gets when its parent ends


def add_timeout(p: argparse.ArgumentParser) -> None:
    """Declare -timeout, of ranks."""
    p.add_argument(
        "--timeout",
        type=_seconds,
        default=TIMEOUT_S,
        metavar="SECONDS",
        help="with several GPUs or ranks: how long a rank waits for another before the run ends with an error that "
        "names it; it must be longer than a snapshot, or a test that cannot be divided, which rank 0 makes alone",
    )


def add_hang_timeout(p: argparse.ArgumentParser) -> None:
    """Declare -hang_timeout, of ranks."""
    p.add_argument(
        "--hang_timeout",
        type=_seconds_or_none,
        default=HANG_S,
        metavar="SECONDS",
        help="with several GPUs or ranks: a rank ends the run where its process has not run at all for so long, or "
        "makes no progress in an iteration, which may also take 20 times as long as the longest so far; 0: never",
    )


def add_rank_logs(p: argparse.ArgumentParser) -> None:
    """Declare -rank_logs."""
    p.add_argument(
        "--rank_logs",
        default="",
        metavar="DIR",
        help="write the log of each rank to DIR/rank-000.log, rank-001.log, ...; only rank 0 prints its log",
    )


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < threading.TIMEOUT_MAX:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} is no time in seconds, larger than 0")


def _seconds_or_none(text: str) -> float:
    if text.strip() == "0":
        return 0.0
    if (seconds := _seconds(text)) < SHORTEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is less than {SHORTEST_S:g} seconds")
    return seconds


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


def of_mpi() -> Rank | None:
    """Return the rank that this process is where a launcher of MPI started several, else None; log who they are.

    Raises MissingDependency without mpi4py, DeviceError where MPI does not work."""
    if mpi.started() is None or (world := mpi.world()).count == 1:
        return None
    if world.index:  # rank 0 decides, with the others, on what signals ask for; `train` will hear SIGTERM on every rank
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
    for name in dict.fromkeys(world.hosts):
        there = [f"{r} (process {world.processes[r]})" for r in range(world.count) if world.hosts[r] == name]
        _log.info("Rank%s on %s: %s.", "s" if len(there) > 1 else "", name, ", ".join(there))
    return Rank(world.index, world.count, world, slots=_slots, end=_end_at_once)


@contextmanager
def logging_as(rank: int) -> Iterator[None]:
    """Within: log to stderr; of ranks other than 0 only errors, and warnings about other ranks."""
    with log_to_stderr(logging.WARNING, _to_be_heard) if rank else log_to_stderr():
        yield


def _to_be_heard(record: logging.LogRecord) -> bool:
    return record.levelno > logging.WARNING or record.name in (mpi.__name__, host.__name__, nccl_ranks.__name__)


@contextmanager
def log_file(folder: str, rank: Rank | None) -> Iterator[None]:
    """Within: log to a file of this rank in the folder too; "": only to stderr."""
    if not folder:
        yield
        return
    path = Path(folder) / f"rank-{rank.index if rank is not None else 0:03d}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with log_to_file(path):
        yield


@contextmanager
def joined(solver: Solver, rank: Rank | None, args: argparse.Namespace) -> Iterator[Compare]:
    """Within: the solver trains with the other ranks, from the same weights; no rank: alone.

    Yield a function that compares facts with the other ranks of several hosts; those of one -gpu share them all.
    Raises Disagreement where flags, versions, nets or data of ranks differ."""
    if rank is None:
        yield _nothing
        return
    compare: Compare = _nothing
    device, timeout = solver.net.device, args.timeout
    capture = False if args.graph == "off" else None
    heart = _heart(solver, rank, args.hang_timeout)
    if isinstance(rank.place, mpi.MpiRanks):
        between_hosts = mpi.MpiCommunicator(rank.place, get_device("cpu"), timeout=timeout)
        compare = partial(agree, between_hosts.gather)
        compare(versions(device) | _flags(args) | of_solver(solver) | of_files(_files(args)))
        parallel = DataParallel(solver, rank.place.communicator(device, timeout=timeout, capture=capture))
    elif isinstance(rank.place, bytes):
        parallel = NCCL(solver, rank.place, timeout=timeout, capture=capture, beats=rank.beats)
    else:
        parallel = DataParallel(solver, HostCommunicator(device, rank.place, rank.count, rank.index, timeout=timeout))
    try:
        parallel.bcast()
        parallel.join(layer_wise=solver.param.layer_wise_reduce)
        with _watched(solver, heart):
            yield compare
    except BaseException as error:
        if heart is not None:
            heart.ending(str(error))
        parallel.abort()
        raise
    parallel.close()
    if heart is not None:
        heart.stop()


def _heart(solver: Solver, rank: Rank, limit: float) -> Heart | None:
    """Return what ends this rank where it hangs, beating already; None for a limit of 0. All ranks call it."""
    if not limit or rank.slots is None or rank.end is None:
        return None
    name, neighbours = "it", None
    if isinstance(rank.place, mpi.MpiRanks):
        name = f"rank {rank.index} of {rank.count} on {rank.place.hosts[rank.index]}"
        neighbours = rank.place.neighbours()
    late = _LATE_S if rank.index else 0.0
    heart = Heart(rank.slots, name, limit, idle=solver.net.device.idle, end=rank.end, late=late, neighbours=neighbours)
    heart.start()
    return heart


@contextmanager
def _watched(solver: Solver, heart: Heart | None) -> Iterator[None]:
    """Within: the heart watches the solver's iterations."""
    if heart is None:
        yield
        return
    before = solver.around_iteration

    @contextmanager
    def around() -> Iterator[None]:
        with heart.iteration(solver.iter), before():
            yield

    solver.around_iteration = around
    try:
        yield
    finally:
        solver.around_iteration = before


def _nothing(facts: Mapping[str, str]) -> None:
    """Compare nothing."""


def _flags(args: argparse.Namespace) -> dict[str, str]:
    """Return every flag's value, but for that which may differ from host to host."""
    return {f"-{name}": str(value) for name, value in vars(args).items() if name != "gpu"}


def _files(args: argparse.Namespace) -> list[str]:
    return [path for flag in (args.weights, args.snapshot) for path in map(str.strip, flag.split(",")) if path]


# -- ranks that MPI started: one voice ---------------------------------------------------------------------------------
def refuse(command: str) -> None:
    """Raise UsageError on rank 0 for a command that several processes would only repeat, and where this system cannot
    run ranks that a launcher of MPI started."""
    said = mpi.started()
    if said is None or (command not in _ONE_PROCESS and (command != "train" or sys.platform == "linux")):
        return
    if said[0]:
        time.sleep(mpi.ENDED_S)
        raise SystemExit(UsageError.exit_code)
    if command == "train":
        raise UsageError("training under mpirun or srun needs Linux", fix="train with -gpu alone, on one machine")
    raise UsageError(f"{command} runs in one process, and mpirun or srun started several", fix=f"run {command} alone")


def as_rank(work: Callable[[], int], told: Callable[[BaseException], tuple[str, int]]) -> int:
    """Return the exit code of work(). What it raises is printed once for all ranks, which end.

    It runs in a child process: a launcher ends all ranks when one is killed, and need not say which it was; the parent
    does. told(error): returns the text and the exit code."""
    rank, _ = mpi.started() or (0, 0)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    global _slots
    slots = _slots = memoryview(mmap.mmap(-1, 8 * SLOTS)).cast("d")  # shared with the child
    parent, child = os.getpid(), os.fork()
    if child:
        return _watch(child, rank, slots)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the launcher ends the parent
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    os.setpgid(0, 0)  # signals to the parent's group come once, from the parent
    with logging_as(rank):
        try:
            return work()
        except (Exception, KeyboardInterrupt) as error:
            return _end(error, *told(error))


def _watch(child: int, rank: int, slots: Slots) -> int:
    """Wait for the process of a rank, send signals on to it, end it where it does not run, and print by which signal
    it was ended; return its exit code.

    Where a signal ended it this process ends by it too: of a mere exit code Hydra does not tell other hosts."""
    for number in SIGNALS:
        signal.signal(number, lambda number, frame: os.kill(child, number))
    listener, told = Listener(slots, child), threading.Event()
    here = f"error: rank {rank} on {socket.gethostname()}"

    def tell(wrong: str) -> None:
        told.set()
        _print(f"{here}: {wrong}\n  fix: {FIX}")

    threading.Thread(target=end_if_silent, args=(listener, child, tell), name="caffe-listener", daemon=True).start()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    if not told.is_set() and not listener.spoke:
        _print(
            f"{here}: its process {child} was ended by {signal.Signals(-code).name}\n"
            "  fix: if nobody did that, dmesg says whether the host's memory was full; begin again with -resume latest"
        )
    if -code in SIGNALS:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
    return 128 - code


def _end(error: BaseException, text: str, code: int) -> int:
    try:
        world = mpi.world()
    except CaffeError:  # no MPI: all processes found that out
        said = mpi.started()
        if said is not None and said[0]:
            time.sleep(mpi.ENDED_S)
        else:
            _print(text)
        return code
    if not world.speaks(error):
        return code
    here = f"rank {world.index} of {world.count} on {world.hosts[world.index]}: "
    if isinstance(error, LostRank):  # it names ranks itself, and no layer or file is to blame
        here, text = "", f"{error.message}\n  fix: {error.fix}"
    elif isinstance(error, Disagreement):
        here = ""
    _print(f"error: {here}{text.removeprefix('error: ')}")
    world.abort(code)
    return code


def _end_at_once(error: str) -> None:
    """Say what is wrong from another thread than the main one, which hangs, and end this process: its parent, which
    ends by the same signal, lets the launcher end the other ranks."""
    _print(f"error: {error}")
    time.sleep(SAID_S)
    os.kill(os.getpid(), signal.SIGKILL)


def _print(text: str) -> None:
    with suppress(OSError):  # stderr may be closed: the exit code remains
        print(text, file=sys.stderr, flush=True)
