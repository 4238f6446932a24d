"""`pycaffe-lms device_query`: show what the devices are."""

from __future__ import annotations

import argparse

from ...backend import cuda, cuda_available, get_device
from ...errors import UsageError, human_bytes
from .. import flags


def build_parser() -> flags.Parser:
    """Return the parser."""
    p = flags.parser("device_query", __doc__)
    p.add_argument("--gpu", default="all", metavar="N,..", help="comma list of GPU numbers, or all")
    return p


def run(args: argparse.Namespace) -> int:
    """Print a block per GPU of -gpu (a comma list or all), or that there is no GPU."""
    if args.gpu == "all" and not cuda_available():
        print("No GPU is usable here; pycaffe-lms runs on the CPU.")
        return 0
    try:
        numbers = range(cuda.device_count()) if args.gpu == "all" else [int(n) for n in args.gpu.split(",")]
    except ValueError:
        raise UsageError(
            f"-gpu {args.gpu!r} is not a list of GPU numbers", fix="for example -gpu 0,1, or -gpu all"
        ) from None
    for number in numbers:
        device = get_device("cuda", index=number)
        facts = device.properties()
        free, total = device.memory_info()
        rows = {
            "Device id": number,
            "Name": device.describe(),
            "Compute capability": f"{facts['major']}.{facts['minor']}",
            "Total global memory": f"{total} ({human_bytes(total)})",
            "Free global memory": f"{free} ({human_bytes(free)})",
            "Multiprocessors": facts["multiProcessorCount"],
            "Warp size": facts["warpSize"],
            "Maximum threads per block": facts["maxThreadsPerBlock"],
            "Shared memory per block": facts["sharedMemPerBlock"],
            "Registers per block": facts["regsPerBlock"],
            "Concurrent copies": facts["asyncEngineCount"],
            "Memory bus width": f"{facts['memoryBusWidth']} bits",
        }
        for name, value in rows.items():
            print(f"{name + ':':<32}{value}")
    return 0
