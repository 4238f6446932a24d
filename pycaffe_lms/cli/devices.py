"""Choose the device of a command, log it, and build the net that runs there.

An explicit choice is obeyed, also when that means an error; without one the GPU is used if there is one.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from ..backend import cuda, cuda_available, get_device
from ..backend.device import Device
from ..backend.sim.device import SimDevice
from ..data.sets.zoo import find_model
from ..errors import UsageError, WeightsError
from ..formats.cache_folder import use_cache_folder
from ..formats.rawfile import check_readable
from ..lms.config import LMSConfig, parse_size
from ..net import weights
from ..net.net import Net
from ..ops import ops_of
from ..ops.cpu.onednn import library as onednn_library
from . import flags, overrides
from .synthetic import Synthetic
from .zoo_names import net_with_data

_log = logging.getLogger(__name__)
CPU_MODE, GPU_MODE = 0, 1


def choose(
    args: argparse.Namespace,
    lms: LMSConfig,
    *,
    solver_mode: int | None = None,
    device_id: int = 0,
    rank: int = 0,
    pick: Callable[[Sequence[int]], int] | None = None,
) -> Device:
    """Return the device that -backend and -gpu name, else solver_mode if it is set, else what the machine has.

    Args:
        rank: position in the list of -gpu.
        device_id: GPU without -gpu.
        pick: chooses the GPU instead, of those that -gpu lists (none: of all).

    Raises:
        UsageError: -gpu is no list of numbers, or -cache is a file.
        DeviceError, MissingDependency: a GPU is asked for and there is none.
    """
    use_cache_folder(args.cache)
    numbers = gpu_numbers(args)
    backend = args.backend
    if backend is None and args.gpu:
        backend = "cuda"
    if backend is None and solver_mode is not None:
        backend = "cuda" if solver_mode == GPU_MODE else "cpu"
        _log.info("solver_mode asks for the %s.", "GPU" if backend == "cuda" else "CPU")
    if backend is None:
        backend = "cuda" if cuda_available() else "cpu"
        _log.info("No -gpu or -backend is given: %s.", "there is a GPU" if backend == "cuda" else "there is no GPU")
    device: Device
    if backend != "cpu":
        cuda.set_math("tf32" if args.math == "bf16" else args.math)  # of the simulated device: what is predicted
    if backend == "sim":
        capacity = {} if lms.budget is None else {"capacity": lms.budget}
        device = get_device("sim", order=args.sim_order, seed=args.sim_seed, **capacity)
        _log.info("Using the %s.", device.describe())
    elif backend == "cuda":
        index = pick(numbers) if pick is not None else numbers[rank] if numbers else device_id
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


def clock(device: Device) -> Callable[[], float]:
    """Return the clock, in seconds, that tells how long the device takes: the simulated one's own, else the wall's."""
    return device.model_seconds if isinstance(device, SimDevice) else time.perf_counter


def gpu_numbers(args: argparse.Namespace) -> list[int]:
    """Return what -gpu lists, in its order: [0, 1] of "0,1", every GPU of "all", [] if it is not given.

    Raises:
        UsageError: it is no list of different numbers.
        DeviceError, MissingDependency: "all" without a GPU.
    """
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


def build_net(
    args: argparse.Namespace,
    phase: int,
    *,
    device: Device | None = None,
    forward_only: bool = False,
    synthetic: Synthetic | None = None,
) -> Net:
    """Return the net of -model on the device (None: the chosen one), with the flags' state, settings and tuning.

    synthetic: the data it runs on, in place of its own.
    """
    file = args.model = net_with_data(args.model, phase) if synthetic is None else find_model(args.model)
    lms, parsed = flags.lms_config(args), overrides.net_of(args)
    device = device or choose(args, lms)
    with nullcontext() if synthetic is None else synthetic.building(file):
        net = Net(
            parsed.message if synthetic is None else synthetic.replace(parsed.message),
            phase,
            lines=parsed.lines,
            file=file,
            level=args.level,
            stages=flags.stages(args),
            device=device,
            lms=lms,
            forward_only=forward_only,
            tuning=flags.tuning(args),
        )
    if synthetic is not None:
        synthetic.fill(net)
    return net


def check_weights(files: str) -> None:
    """Raise WeightsError unless every file of a comma list can be opened, UsageError for a solver's state: it is said
    before a net is built."""
    for path in filter(None, map(str.strip, files.split(","))):
        check_readable(path, WeightsError)
        if path.removesuffix(".h5").endswith(".solverstate"):
            fix = "give the .caffemodel that was written with it; `train -snapshot` resumes from a .solverstate"
            raise UsageError(f"-weights {path}: this is the state of a solver, not weights", fix=fix)


def load_weights(net: Net, files: str) -> None:
    """Copy the weights of a comma list of files into the net, layer by layer by name. Raises WeightsError for a file
    that has nothing for the net."""
    for path in filter(None, files.split(",")):
        weights.copy_from(net, path.strip(), must_match=True)
