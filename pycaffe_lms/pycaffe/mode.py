"""Keeps pycaffe's settings of a thread: where nets run, their seed, this process's rank, the default of LMS.

Every thread has settings of its own, which begin at the defaults (CPU, seed from the system, one solver, no LMS), as in
Caffe. They are read when a net or solver is built; an existing one keeps what it was built with.

Threads and processes: nets share only read-only tables, so different nets may run in different threads at the same
time, with the same numbers as alone; on one GPU (or one simulated device) they take turns, program by program. One net
belongs to one thread at a time. Processes are independent; a process that was forked after the GPU was used cannot use
the GPU (a rule of CUDA): start such processes with "spawn".
Source of the functions: BVLC/caffe, python/caffe/_caffe.cpp, include/caffe/common.hpp.
"""

from __future__ import annotations

import logging
import operator
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, SupportsIndex

from ..backend import cuda, get_device, nccl_available
from ..backend.device import Device
from ..backend.sim.streams import ORDERS
from ..errors import UsageError
from ..lms.config import LMSConfig, config_of, parse_size
from ..log import LOGGER, GlogFormatter
from ..net.tuning import Tuning

_log = logging.getLogger(f"{LOGGER}.python")
_SEVERITIES = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)  # glog's 0..3
_handler: logging.Handler | None = None
MATH = ("tf32", "fp32", "bf16")  # modes of `set_math`, and of the flag -math; the first is the default


@dataclass
class Settings(threading.local):
    """Hold the calling thread's settings. seed None: from the system. half: store hidden activations as bfloat16."""

    backend: str = "cpu"
    index: int = 0  # of the GPU
    seed: int | None = None
    solver_count: int = 1
    solver_rank: int = 0
    multiprocess: bool = False
    lms: LMSConfig | None = None
    half: bool = False
    join: Callable[[Any], None] | None = None  # joins a new solver to the other ranks


settings = Settings()
_simulated = threading.local()  # .device: the thread's simulated device, where its mode is "sim"


def device_of(device: Device | None = None) -> Device:
    """Return `device`, or else the device of the thread's mode. Raises DeviceError where that cannot be used."""
    if device is None and settings.backend == "sim":
        device = _simulated.device
    return device or get_device(settings.backend, index=settings.index)


def _whole(value: SupportsIndex, what: str, least: int, most: int) -> int:
    """Return `value` as an int. Raises UsageError unless least <= value <= most. what: its name in messages."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{what} {value!r} is not a whole number", fix=f"give {least} or more") from None
    if not least <= number <= most:
        raise UsageError(f"{what} {number} is out of range", fix=f"give {least} to {most}")
    return number


# -- where ---------------------------------------------------------------------------------------------------------
def set_mode_cpu() -> None:
    """Let nets and solvers that this thread makes from now on run on the CPU (the default)."""
    settings.backend = "cpu"


def set_mode_gpu() -> None:
    """Let nets and solvers that this thread makes from now on run on the GPU of `set_device`."""
    settings.backend = "cuda"


def set_mode_sim(memory: int | str = "16GB", *, order: str = "latest", seed: int = 0) -> None:
    """Let nets and solvers that this thread makes from now on run on a simulated GPU, which needs no GPU.

    It has device memory of its own, of limited size, and copies between it and the host, so Large Model Support works
    there as on a GPU; the values are computed on the CPU. Each call makes a new, empty device, which the nets and
    solvers made after it share.

    Args:
        memory: bytes of device memory, or a size such as "64MB".
        order: when queued work runs, as events allow: "latest", "earliest", or "random" (by `seed`), which reveals a
            missing wait.
        seed: of the random order, 0 or more.

    Raises UsageError for anything else."""
    if isinstance(memory, str):
        memory = parse_size(memory, "memory")
    if order not in ORDERS:
        raise UsageError(f"order is {order!r}", fix='give "latest", "earliest" or "random"')
    capacity, seed = _whole(memory, "memory", 1, 2**63 - 1), _whole(seed, "seed", 0, 2**32 - 1)
    _simulated.device = get_device("sim", capacity=capacity, order=order, seed=seed)
    settings.backend = "sim"


def set_device(device_id: int) -> None:
    """Choose the GPU of `set_mode_gpu`, from 0. Whether it exists is checked when it is used.

    Raises UsageError for a number that cannot be a GPU's."""
    settings.index = _whole(device_id, "GPU", 0, 2**31 - 1)


def set_random_seed(seed: int | None) -> None:
    """Set the seed of nets that this thread makes from now on: 0 to 2**32 - 1; None (default): another for each.

    Raises UsageError for another number."""
    settings.seed = None if seed is None else _whole(seed, "seed", 0, 2**32 - 1)


def set_math(math: str) -> None:
    """Choose the precision of products and hidden activations.

    "tf32" (the default): float32 products on a GPU may round their inputs for tensor cores; "fp32": they may not. This
    holds for the whole process. "bf16": as tf32, and nets and solvers that this thread makes from now on store hidden
    activations and their gradients as bfloat16, on every device.

    Raises UsageError for anything else."""
    if math not in MATH:
        raise UsageError(f"math is {math!r}", fix='give "tf32", "fp32" or "bf16"')
    cuda.set_math("tf32" if math == "bf16" else math)
    settings.half = math == "bf16"


def with_math(options: dict[str, Any], default: Tuning) -> dict[str, Any]:
    """Return options of a net or a solver, changed as `set_math` says. default: the tuning where they have none."""
    if not settings.half:
        return options
    return options | {"tuning": replace(options.get("tuning") or default, half=True)}


# -- ranks ---------------------------------------------------------------------------------------------------------
def solver_count() -> int:
    """Return how many processes train together (1 unless set)."""
    return settings.solver_count


def set_solver_count(count: int) -> None:
    """Say how many processes train together: data layers of TRAIN nets divide their records among so many ranks.

    Raises UsageError for less than 1."""
    settings.solver_count = _whole(count, "solver count", 1, 2**31 - 1)


def solver_rank() -> int:
    """Return the rank of this process; rank 0 logs, tests and writes snapshots."""
    return settings.solver_rank


def set_solver_rank(rank: int) -> None:
    """Set the rank of this process, from 0 to `solver_count` - 1. Raises UsageError for a negative one."""
    settings.solver_rank = _whole(rank, "solver rank", 0, 2**31 - 1)


def set_multiprocess(multiprocess: bool) -> None:
    """Accept pycaffe's setting, on which nothing depends here: ranks are always processes."""
    settings.multiprocess = bool(multiprocess)


def has_nccl() -> bool:
    """Return whether several GPUs can train together: whether CuPy is installed with NCCL."""
    return nccl_available()


# -- Large Model Support -------------------------------------------------------------------------------------------
def set_lms(lms: LMSConfig | int | str | None) -> None:
    """Set the default of `lms=` for nets and solvers that this thread makes from now on; None: off.

    It takes `caffe.LMS(...)`, or what `-lms` takes: 1000 (KB), "auto", "off". Raises UsageError for anything else."""
    settings.lms = None if lms is None else config_of(lms)


def lms_of(lms: LMSConfig | int | str | None) -> LMSConfig | None:
    """Return the settings that `lms` means, the calling thread's default where it is None. Raises UsageError."""
    return settings.lms if lms is None else config_of(lms)


# -- the log -------------------------------------------------------------------------------------------------------
def init_log(level: int = 0, stderr: bool = True) -> None:
    """Print this package's log on stderr in Caffe's format, from severity `level` on: 0 INFO, 1 WARNING, 2 ERROR,
    3 FATAL. With stderr=False only errors are printed, as by glog (there are no log files). Another call changes the
    level. Raises UsageError for another level."""
    global _handler
    least = _SEVERITIES[_whole(level, "log level", 0, len(_SEVERITIES) - 1)]
    logger = logging.getLogger(LOGGER)
    if _handler is None:
        _handler = _Stderr()
        _handler.setFormatter(GlogFormatter())
        logger.addHandler(_handler)
    _handler.setLevel(least if stderr else max(least, logging.ERROR))
    logger.setLevel(least)


class _Stderr(logging.Handler):
    """Print lines to what sys.stderr is at that time, which may have changed since `init_log`."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log(message: str) -> None:
    """Write a line at severity INFO to this package's log."""
    _log.info("%s", message)
