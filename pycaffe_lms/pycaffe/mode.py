"""What pycaffe keeps per thread: where nets run, their seed, this process's rank, Large Model Support's default.

Every thread has settings of its own, which begin at the defaults (CPU, seed from the system, one solver, no LMS), as in
Caffe. They are read when a net or solver is built; one that exists keeps what it was built with.

Threads and processes: nets share nothing but read-only tables, so different nets may run in different threads at the
same time, and give the numbers that they give alone; on one GPU (or one simulated device) they take turns, program by
program. One net belongs to one thread at a time. Processes are independent; a process that is forked off after the GPU
was used cannot use it (a rule of CUDA): start such processes with "spawn".
Source of the functions: BVLC/caffe, python/caffe/_caffe.cpp, include/caffe/common.hpp.
"""

from __future__ import annotations

import importlib.util
import logging
import operator
import sys
import threading
from dataclasses import replace

from ..backend import cuda, get_device, nccl_available
from ..backend.device import Device
from ..errors import UsageError
from ..lms.config import LMSConfig
from ..log import LOGGER, GlogFormatter
from ..net.tuning import Tuning

_log = logging.getLogger(f"{LOGGER}.python")
_SEVERITIES = (logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)  # glog's 0..3
_handler: logging.Handler | None = None


class Settings(threading.local):
    """The calling thread's settings, by name: backend, index, seed, solver_count, solver_rank, multiprocess, lms,
    half."""

    def __init__(self) -> None:
        self._values = {
            "backend": "cpu",
            "index": 0,
            "seed": None,
            "solver_count": 1,
            "solver_rank": 0,
            "multiprocess": False,
            "lms": None,
            "half": False,
        }

    def __getitem__(self, name: str):
        return self._values[name]

    def __setitem__(self, name: str, value) -> None:
        if name not in self._values:
            raise KeyError(name)
        self._values[name] = value


settings = Settings()


def device_of(device: Device | None = None) -> Device:
    """`device`, or the one that the calling thread's mode means. Raises DeviceError where that cannot be used."""
    return device or get_device(settings["backend"], index=settings["index"])


def _whole(value, what: str, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{what} {value!r} is not a whole number", fix=f"give {least} or more") from None
    if not least <= number <= most:
        raise UsageError(f"{what} {number} is out of range", fix=f"give {least} to {most}")
    return number


# -- where ---------------------------------------------------------------------------------------------------------
def set_mode_cpu() -> None:
    """Nets and solvers that this thread makes from now on run on the CPU (the default)."""
    settings["backend"] = "cpu"


def set_mode_gpu() -> None:
    """Nets and solvers that this thread makes from now on run on the GPU of `set_device`."""
    settings["backend"] = "cuda"


def set_device(device_id: int) -> None:
    """Which GPU `set_mode_gpu` means, from 0. Whether there is such a one is asked when it is used.

    Raises UsageError for a number that cannot be a GPU's."""
    settings["index"] = _whole(device_id, "GPU", 0, 2**31 - 1)


def set_random_seed(seed: int | None) -> None:
    """Seed of nets that this thread makes from now on: 0 to 2**32 - 1; None: another each time, as at the beginning.

    Raises UsageError for another number."""
    settings["seed"] = None if seed is None else _whole(seed, "seed", 0, 2**32 - 1)


def set_math(math: str) -> None:
    """What products and hidden activations may lose. "tf32" (the default) and "fp32": float32 products on a GPU may
    round their inputs for tensor cores, or not; this holds for the whole process. "bf16": as tf32, and nets and solvers
    that this thread makes from now on store hidden activations and their gradients as bfloat16, on every device.

    Raises UsageError for anything else."""
    if math not in ("tf32", "fp32", "bf16"):
        raise UsageError(f"math is {math!r}", fix='give "tf32", "fp32" or "bf16"')
    cuda.set_math("tf32" if math == "bf16" else math)
    settings["half"] = math == "bf16"


def with_math(options: dict, default: Tuning) -> dict:
    """Options of a net or a solver, as `set_math` says; `default`: its tuning where they have none."""
    if not settings["half"]:
        return options
    return options | {"tuning": replace(options.get("tuning") or default, half=True)}


# -- ranks ---------------------------------------------------------------------------------------------------------
def solver_count() -> int:
    """How many processes train together (1 unless set)."""
    return settings["solver_count"]


def set_solver_count(count: int) -> None:
    """Say how many processes train together: data layers of TRAIN nets deal their records to that many ranks.

    Raises UsageError for less than 1."""
    settings["solver_count"] = _whole(count, "solver count", 1, 2**31 - 1)


def solver_rank() -> int:
    """Which of them this is; 0 is the root, which logs, tests and writes snapshots."""
    return settings["solver_rank"]


def set_solver_rank(rank: int) -> None:
    """Say which of `solver_count` this is, from 0. Raises UsageError for a negative one."""
    settings["solver_rank"] = _whole(rank, "solver rank", 0, 2**31 - 1)


def set_multiprocess(multiprocess: bool) -> None:
    """Taken for compatibility: solvers that train together are one process each here, so nothing depends on it."""
    settings["multiprocess"] = bool(multiprocess)


def has_nccl() -> bool:
    """Whether several GPUs can train together here: this package has the code, and CuPy has NCCL."""
    return importlib.util.find_spec(f"{__package__}.parallel") is not None and nccl_available()


# -- Large Model Support -------------------------------------------------------------------------------------------
def set_lms(lms: LMSConfig | None) -> None:
    """Large Model Support for nets and solvers that this thread makes from now on without `lms=`; None: none.

    Raises UsageError for anything else than `caffe.LMS(...)`, an LMSConfig or None."""
    settings["lms"] = checked_lms(lms)


def checked_lms(lms: LMSConfig | None) -> LMSConfig | None:
    """`lms` itself. Raises UsageError where it is no LMSConfig and not None."""
    if lms is not None and not isinstance(lms, LMSConfig):
        raise UsageError(f"lms is {lms!r}", fix='give caffe.LMS(threshold_kb=1000, frac=0.4, budget="16GB"), or None')
    return lms


def lms_of(lms: LMSConfig | None) -> LMSConfig | None:
    """What a net is built with: `lms` where it is given, else the calling thread's default."""
    return checked_lms(settings["lms"] if lms is None else lms)


# -- the log -------------------------------------------------------------------------------------------------------
def init_log(level: int = 0, stderr: bool = True) -> None:
    """Print this package's log on stderr in Caffe's format, from severity `level` on: 0 INFO, 1 WARNING, 2 ERROR,
    3 FATAL. There are no log files, so with stderr=False, as with glog, only errors are printed. A further call
    changes the level. Raises UsageError for another level."""
    global _handler
    least = _SEVERITIES[_whole(level, "log level", 0, len(_SEVERITIES) - 1)]
    logger = logging.getLogger(LOGGER)
    if _handler is None:
        _handler = _Stderr()
        _handler.setFormatter(GlogFormatter())
        logger.addHandler(_handler)
    _handler.setLevel(least if stderr else max(least, logging.ERROR))
    logger.setLevel(least)


class _Stderr(logging.StreamHandler):
    """What sys.stderr is when a line is printed, not when the log was asked for."""

    @property
    def stream(self):
        return sys.stderr

    @stream.setter
    def stream(self, value) -> None: ...


def log(message: str) -> None:
    """Write a line at severity INFO to this package's log."""
    _log.info("%s", message)
