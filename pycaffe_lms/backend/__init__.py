"""Devices: the protocol they share, the CPU, CUDA and the simulated device."""

from __future__ import annotations

from ..errors import DeviceError, UsageError
from .device import ON_THE_CPU

BACKENDS = ("cpu", "cuda", "sim")
_cuda_devices: dict = {}


def cuda_available() -> bool:
    """Whether a GPU can be used from here."""
    from . import cuda

    return cuda.available()


def nccl_available() -> bool:
    """Whether CuPy is installed with NCCL."""
    from . import cuda

    return cuda.nccl_available()


def get_device(name: str, *, index: int = 0, **options):
    """The device of a backend: "cpu", "cuda" (one object per GPU and process) or "sim" (`options` of SimDevice).

    Raises UsageError for another name, MissingDependency or DeviceError when a GPU cannot be used.
    """
    if name == "cpu":
        from .cpu import CpuDevice

        return CpuDevice()
    if name == "sim":
        from .sim.device import SimDevice

        return SimDevice(**options)
    if name == "cuda":
        from .cuda import CudaDevice

        cuda_available() or _refuse_cuda()
        if index not in _cuda_devices:
            _cuda_devices[index] = CudaDevice(index)
        return _cuda_devices[index]
    raise UsageError(f'there is no backend "{name}"', fix=f"use one of {', '.join(BACKENDS)}")


def _refuse_cuda() -> None:
    from . import cuda

    cuda.require()
    raise DeviceError("no usable GPU was found", fix=ON_THE_CPU)
