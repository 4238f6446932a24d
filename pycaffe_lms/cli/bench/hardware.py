"""Name the hardware and the versions of libraries that a measurement depends on."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ...backend.cuda import require
from ...backend.device import Device
from ...ops.cpu.onednn import library as onednn
from ...ops.cuda.cudnn import library as cudnn
from ...version import __version__


def versions(device: Device) -> str:
    """Return a line about the device and what its operations run through."""
    return f"{_of_gpu(device) if device.operations == 'cuda' else _of_cpu(device)}, pycaffe-lms {__version__}"


def _of_gpu(device: Device) -> str:
    cupy, frontend = require(), cudnn.load()[0]
    library = f"cuDNN {frontend.backend_version()}, frontend {frontend.__version__}" if frontend else "no cuDNN"
    cuda = f"CUDA {cupy.cuda.runtime.runtimeGetVersion()}, CuPy {cupy.__version__}"
    return f"{device.describe()}, {cuda}, {library}, {_of_host()}"


def _of_cpu(device: Device) -> str:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = f"{_processor()}, {count} CPUs"
    if device.simulated:
        return f"{device.describe()} on {name}, {_of_host()}"
    return f"{name}, {onednn.describe() or 'no oneDNN'}, Numba {version('numba')}, {_of_host()}"


def _of_host() -> str:
    return f"NumPy {np.__version__}, Python {platform.python_version()}"


def _processor() -> str:
    """Return the name of the CPU, as Linux has it where it is there."""
    listed = Path("/proc/cpuinfo")
    lines = listed.read_text().splitlines() if listed.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
