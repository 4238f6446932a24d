"""Choose a device: the CPU, a GPU through CUDA, or the simulated GPU. `device.py` says what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from ..errors import DeviceError, UsageError
from .device import ON_THE_CPU, Device

if TYPE_CHECKING:
    from .cpu import CpuDevice
    from .cuda import CudaDevice
    from .sim.device import SimDevice

BACKENDS = ("cpu", "cuda", "sim")
_cuda_devices: dict[int, CudaDevice] = {}


def cuda_available() -> bool:
    """Return whether CuPy is installed and sees a GPU."""
    from . import cuda

    return cuda.available()


def nccl_available() -> bool:
    """Return whether CuPy is installed with NCCL."""
    from . import cuda

    return cuda.nccl_available()


@overload
def get_device(name: Literal["cpu"]) -> CpuDevice: ...


@overload
def get_device(name: Literal["sim"], **options: Any) -> SimDevice: ...


@overload
def get_device(name: Literal["cuda"], *, index: int = 0) -> CudaDevice: ...


@overload
def get_device(name: str, *, index: int = 0, **options: Any) -> Device: ...


def get_device(name: str, *, index: int = 0, **options: Any) -> Device:
    """Return the device of a backend.

    Args:
        name: "cpu", "cuda" (one object per GPU and process) or "sim" (a new one at each call).
        index: number of the GPU, for "cuda".
        options: of `SimDevice`, for "sim".

    Raises:
        UsageError: another name.
        MissingDependency, DeviceError: a GPU cannot be used.
    """
    if name == "cpu":
        from .cpu import CpuDevice

        return CpuDevice()
    if name == "sim":
        from .sim.device import SimDevice

        return SimDevice(**options)
    if name == "cuda":
        from . import cuda

        if not cuda.available():
            cuda.require()  # raises where CuPy is missing
            raise DeviceError("no usable GPU was found", fix=ON_THE_CPU)
        if index not in _cuda_devices:
            _cuda_devices[index] = cuda.CudaDevice(index)
        return _cuda_devices[index]
    raise UsageError(f'there is no backend "{name}"', fix=f"use one of {', '.join(BACKENDS)}")
