"""Describe machines by their rates, and predict seconds of steps and copies from them (a roofline model).

Pure. A machine is found by name or JSON file (`find_machine`) or by what the driver calls the device (`machine_of`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from ...errors import UsageError

GiB = 1 << 30
HALF_GAIN = 2.0  # speed-up of products in bfloat16 over float32 with TF32


@dataclass(frozen=True)
class Machine:
    """Describe a GPU and its link to the host. Rates are those that good code reaches, not those of data sheets.

    Attributes:
        memory: bytes of device memory.
        memory_rate: bytes per second that kernels read and write.
        product_rate: float32 operations per second of convolutions and matrix products (TF32 where available).
        link_in, link_out: bytes per second from and to page-locked host memory, with one direction busy.
        link_both: bytes per second of both directions together.
        copy_s: fixed seconds of a copy.
        launch_s: fixed seconds of a step.
        fp32_rate: as product_rate, without TF32 (`-math fp32`); 0: the same.
        capability: compute capability as NVIDIA counts it; bfloat16 needs 8.0.
        nvlink: bytes per second to other GPUs of the node, as NCCL reaches them over NVLink; 0: they talk over PCIe.
    """

    name: str
    memory: int
    memory_rate: float
    product_rate: float
    link_in: float
    link_out: float
    link_both: float
    copy_s: float = 8e-6
    launch_s: float = 12e-6
    fp32_rate: float = 0.0
    capability: float = 8.0
    nvlink: float = 0.0

    def with_math(self, math: str) -> Machine:
        """Return the machine with the rate of products of `-math` tf32, fp32 or bf16 (`HALF_GAIN` comes on top).

        Raises:
            UsageError: it has no bfloat16.
        """
        if math == "bf16" and self.capability < 8:
            raise UsageError(
                f"-math bf16: the {self.name} has no bfloat16, which needs compute capability 8.0",
                fix="leave -math out, or name a newer GPU: pycaffe-lms plan -gpu list",
            )
        return replace(self, product_rate=self.fp32_rate) if math == "fp32" and self.fp32_rate else self

    def step_seconds(self, nbytes: int, flops: int) -> float:
        """Return the seconds of a step that moves `nbytes` in device memory and does `flops` operations."""
        return max(nbytes / self.memory_rate, flops / self.product_rate) + self.launch_s

    def copy_seconds(self, nbytes: int, out: bool, both: bool = False) -> float:
        """Return the seconds of a copy over the link. out: to the host; both: the other direction is busy too."""
        rate = self.link_out if out else self.link_in
        if both:
            rate = min(rate, self.link_both / 2)
        return self.copy_s + nbytes / rate


REQUIRED = tuple(f.name for f in fields(Machine)[1:7])  # fields of a JSON file that describes a GPU

# H200: measured. Others: rates of data sheets times the fraction of peak that the H200 reaches. Products without TF32:
# 0.65 of the data sheet's float32 peak, as of the V100, which has no TF32; no more than with TF32. NVLink: the number
# of links times what NCCL counts on for one (src/graph/topo.h: 20.0 GB/s; compute capability 9.0: 20.6).
MACHINES = {
    "h200": Machine(
        "h200", 139 * GiB, 4.0e12, 255e12, 55.4e9, 55.3e9, 101.6e9, fp32_rate=43e12, capability=9.0, nvlink=370.8e9
    ),
    "h100": Machine(
        "h100", 79 * GiB, 2.6e12, 240e12, 55.4e9, 55.3e9, 101.6e9, fp32_rate=43e12, capability=9.0, nvlink=370.8e9
    ),
    "a100": Machine(
        "a100", 39 * GiB, 1.2e12, 75e12, 25.0e9, 25.0e9, 36.0e9, fp32_rate=12.7e12, capability=8.0, nvlink=240e9
    ),
    "v100": Machine(
        "v100", 16 * GiB, 0.70e12, 10e12, 12.3e9, 12.8e9, 21.0e9, fp32_rate=10e12, capability=7.0, nvlink=120e9
    ),
    "rtx4090": Machine("rtx4090", 23 * GiB, 0.80e12, 40e12, 25.0e9, 25.0e9, 36.0e9, fp32_rate=40e12, capability=8.9),
    "rtx3090": Machine("rtx3090", 23 * GiB, 0.73e12, 17e12, 25.0e9, 25.0e9, 36.0e9, fp32_rate=17e12, capability=8.6),
    "t4": Machine("t4", 15 * GiB, 0.24e12, 5.5e12, 12.0e9, 12.0e9, 18.0e9, fp32_rate=5.5e12, capability=7.5),
}
DEFAULT = "h200"


def find_machine(name: str) -> Machine:
    """Return a machine by its name in `MACHINES`, or from a JSON file with its fields. Raises UsageError."""
    known = MACHINES.get(name.lower())
    if known is not None:
        return known
    path = Path(name)
    if path.suffix != ".json" and not path.exists():
        raise UsageError(f'-gpu "{name}" is not known', fix=f"use {', '.join(sorted(MACHINES))}, or a JSON file")
    try:
        given = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"-gpu {name} cannot be read: {error}", fix=f"write it like this: {example()}") from None
    return _from_fields(given, name)


def machine_of(device_name: str, memory: int) -> Machine:
    """Return the machine for a device name of the driver, with `memory` bytes; A100 rates if it is unknown."""
    text = device_name.lower().replace(" ", "").replace("geforce", "")
    for key, machine in MACHINES.items():
        if key in text:
            return replace(machine, memory=memory)
    return replace(MACHINES["a100"], name=device_name, memory=memory)


def _from_fields(given: object, file: str) -> Machine:
    """Return the machine with the fields read from a JSON file. Raises UsageError."""
    kinds = {f.name: f for f in fields(Machine)}
    if not isinstance(given, Mapping):
        raise UsageError(f"-gpu {file} does not hold one object", fix=f"write it like this: {example()}")
    for name, value in given.items():
        if name not in kinds:
            raise UsageError(f'-gpu {file}: "{name}" is not a field', fix=f"fields are {', '.join(kinds)}")
        if name != "name" and not (isinstance(value, (int, float)) and 0 < value < 1 << 63):
            raise UsageError(f"-gpu {file}: {name} is {value!r}", fix="give a number greater than zero, below 2^63")
    missing = [f for f in REQUIRED if f not in given]
    if missing:
        raise UsageError(f"-gpu {file} lacks {', '.join(missing)}", fix=f"write it like this: {example()}")
    return Machine(**({"name": Path(file).stem} | dict(given) | {"memory": int(given["memory"])}))


def described(name: str) -> str:
    """Return the JSON text of a machine of `MACHINES`."""
    return json.dumps(asdict(MACHINES[name]))


def example() -> str:
    """Return an example of a JSON file, with the fields that it must have."""
    values = asdict(MACHINES["v100"])
    return f"{{{', '.join(f'{json.dumps(f)}: {values[f]:.12g}' for f in REQUIRED)}}}"


@dataclass(frozen=True)
class Costs:
    """Hold seconds of every step (`steps`) and of rematerializing it (`again`), and the machine with the link."""

    steps: Sequence[float]
    again: Mapping[int, float]
    machine: Machine
