"""`pycaffe-lms device_query`: show what the devices are."""

from __future__ import annotations

from ...backend import cuda, cuda_available, get_device
from ...errors import UsageError, human_bytes
from .. import flags


def run(argv: list[str]) -> int:
    """One block per GPU of -gpu (a comma list or all); without a GPU, say so."""
    p = flags.parser("device_query", __doc__)
    p.add_argument("--gpu", default="all", metavar="N,..", help="comma list of GPU numbers, or all")
    args = flags.parse(p, argv)
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
        p = device.properties()
        free, total = device.memory_info()
        rows = {
            "Device id": number,
            "Name": device.describe(),
            "Compute capability": f"{p['major']}.{p['minor']}",
            "Total global memory": f"{total} ({human_bytes(total)})",
            "Free global memory": f"{free} ({human_bytes(free)})",
            "Multiprocessors": p["multiProcessorCount"],
            "Warp size": p["warpSize"],
            "Maximum threads per block": p["maxThreadsPerBlock"],
            "Shared memory per block": p["sharedMemPerBlock"],
            "Registers per block": p["regsPerBlock"],
            "Concurrent copies": p["asyncEngineCount"],
            "Memory bus width": f"{p['memoryBusWidth']} bits",
        }
        for name, value in rows.items():
            print(f"{name + ':':<32}{value}")
    return 0
