"""Which device a command runs on, said in the log.

An explicit choice is obeyed, also when that means an error; without one the GPU is used if there is one.
"""

from __future__ import annotations

import argparse
import logging

from ..backend import cuda_available, get_device
from ..errors import UsageError
from ..lms.config import LMSConfig, parse_size
from ..ops import ops_of

_log = logging.getLogger(__name__)
CPU_MODE, GPU_MODE = 0, 1


def choose(args: argparse.Namespace, lms: LMSConfig, *, solver_mode: int | None = None, device_id: int = 0):
    """The device for -backend, -gpu, else an explicit solver_mode, else what the machine has.

    Raises UsageError for a -gpu list that is no number, DeviceError or MissingDependency when a GPU is asked for and
    there is none.
    """
    index = _gpu_index(args.gpu, device_id)
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
        from ..backend import cuda

        cuda.set_math(args.math)
        device = get_device("cuda", index=index)
        _log.info("Using GPUs %d", index)
        _log.info("GPU %d: %s", index, device.describe())
    else:
        device = get_device("cpu")
        _log.info("Use CPU.")
        if lms.enabled:
            _log.info("This run is on the CPU: all memory is host memory, so LMS has nothing to manage.")
    if args.workspace is not None:
        ops_of(device).workspace_limit = parse_size(args.workspace, "-workspace")
    return device


def _gpu_index(text: str, device_id: int) -> int:
    if not text:
        return device_id
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"-gpu {text!r} is not a GPU number", fix="for example -gpu 0") from None
    if len(numbers) > 1:
        raise UsageError(f"-gpu {text}: one GPU per run for now", fix=f"for example -gpu {numbers[0]}")
    if numbers[0] < 0:
        raise UsageError(f"-gpu {text}: GPU numbers start at 0", fix="for example -gpu 0")
    return numbers[0]
