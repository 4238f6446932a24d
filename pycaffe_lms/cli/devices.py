"""Which device a command runs on, said in the log.

An explicit choice is obeyed, also when that means an error; without one the GPU is used if there is one.
"""

from __future__ import annotations

import argparse
import logging

from ..backend import cuda, cuda_available, get_device
from ..errors import UsageError
from ..lms.config import LMSConfig, parse_size
from ..ops import ops_of
from ..ops.cpu.onednn import library as onednn_library

_log = logging.getLogger(__name__)
CPU_MODE, GPU_MODE = 0, 1


def choose(
    args: argparse.Namespace, lms: LMSConfig, *, solver_mode: int | None = None, device_id: int = 0, rank: int = 0
):
    """The device for -backend, -gpu (of a list that of `rank`, the first for commands that take one), else an explicit
    solver_mode, else what the machine has.

    Raises UsageError for a -gpu that is no list of numbers, DeviceError or MissingDependency when a GPU is asked for
    and there is none.
    """
    index = gpu_numbers(args)[rank] if args.gpu else device_id
    backend = args.backend
    if backend is None and args.gpu:
        backend = "cuda"
    if backend is None and solver_mode is not None:
        backend = "cuda" if solver_mode == GPU_MODE else "cpu"
        _log.info("solver_mode asks for the %s.", "GPU" if backend == "cuda" else "CPU")
    if backend is None:
        backend = "cuda" if cuda_available() else "cpu"
        _log.info("No device was asked for: %s.", "a GPU is there" if backend == "cuda" else "no GPU is there")
    if backend == "sim":
        capacity = {} if lms.budget is None else {"capacity": lms.budget}
        device = get_device("sim", order=args.sim_order, seed=args.sim_seed, **capacity)
        _log.info("Using the simulated device (%s).", device.describe())
    elif backend == "cuda":
        cuda.set_math("tf32" if args.math == "bf16" else args.math)
        device = get_device("cuda", index=index)
        _log.info("Using GPUs %d", index)
        _log.info("GPU %d: %s", index, device.describe())
    else:
        device = get_device("cpu")
        _log.info("Use CPU.")
        if library := onednn_library.describe():
            _log.info("Convolutions run through %s.", library)
        if lms.enabled:
            _log.info("This run is on the CPU: all memory is host memory, so LMS has nothing to manage.")
    if args.workspace is not None:
        ops_of(device).workspace_limit = parse_size(args.workspace, "-workspace")
    return device


def gpu_numbers(args: argparse.Namespace) -> list[int]:
    """What -gpu lists, in its order: [0, 1] of "0,1", every GPU of "all"; nothing where it is not given.

    Raises UsageError for what is no list of different numbers, DeviceError or MissingDependency for "all" without a
    GPU."""
    text, fix = args.gpu, "for example -gpu 0, -gpu 0,1 or -gpu all"
    if not text:
        return []
    if text == "all":
        if args.backend not in (None, "cuda"):
            raise UsageError(f"-gpu all: there are no GPUs to count with -backend {args.backend}", fix="list them")
        get_device("cuda")
        return list(range(cuda.device_count()))
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"-gpu {text!r} is no list of GPU numbers", fix=fix) from None
    if min(numbers) < 0:
        raise UsageError(f"-gpu {text}: GPU numbers start at 0", fix=fix)
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"-gpu {text}: a GPU is listed twice", fix=fix)
    return numbers
