"""What training a net would take on some GPU, without it: memory, copies and predicted time, for one batch or several.

Assumed: images channels-last, layers fused and gradients packed, as on a GPU; -workspace for every convolution that
wants some (what cuDNN would want is not known here); DummyData in place of data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..backend.sim import SimDevice
from ..errors import OutOfDeviceMemory, UsageError, human_bytes
from ..lms.config import LMSConfig
from ..lms.machine import Machine
from ..lms.plan import Plan
from ..lms.runtime import Runtime
from ..net.net import Net
from ..net.splitting import describe
from ..net.tuning import Tuning
from ..ops import ops_of
from ..proto.caffe_pb2 import NetParameter

WORKSPACE = 512 << 20
_UNLIMITED = 1 << 46


@dataclass(frozen=True)
class Outcome:
    """Of one batch. device: bytes in all; core: bytes without Large Model Support; least: bytes that fetching on demand
    needs, and `at` the step that needs most; refused: why there is no plan. seconds, core_seconds: of an iteration.
    parts: which layers run in parts of the batch, in words."""

    batch: int
    core: int
    least: int
    at: str
    core_seconds: float
    device: int = 0
    host: int = 0
    seconds: float = 0.0
    stall: float = 0.0
    bytes_in: int = 0
    bytes_out: int = 0
    replayed: int = 0
    refused: str = ""
    parts: tuple[str, ...] = ()


class Simulation:
    """machine: the GPU. lms: how it is used; without a budget, all of the GPU's memory. updates: makes the update steps
    of a net."""

    def __init__(self, machine: Machine, lms: LMSConfig, phase: int, options: dict, updates: Callable,
                 workspace: int = WORKSPACE):  # fmt: skip
        self.machine, self.lms, self.phase, self.options = machine, lms, phase, options
        self.updates, self.workspace = updates, workspace
        self.budget = lms.budget_of(machine.memory) or machine.memory

    def net(self, message: NetParameter, lms: LMSConfig, capacity: int) -> Net:
        """The net on a simulated device of that capacity."""
        device = SimDevice(capacity)
        ops_of(device).workspace_limit = self.workspace
        runtime = Runtime(device, lms, machine=self.machine)
        tuning = Tuning(channels_last=True, pack=True)
        return Net(message, self.phase, runtime=runtime, fill=False, tuning=tuning, **self.options)

    def _plan(self, net: Net) -> Plan | None:
        return net.plan_only(self.updates(net) if self.phase == 0 else None)

    def run(self, message: NetParameter, batch: int) -> Outcome:
        """Of the message as it is; batch: for the report."""
        core = self.net(message, LMSConfig(), _UNLIMITED)
        plan = self._plan(core)
        arena = plan.arena_bytes if plan is not None else 0
        in_core = core.runtime.resident_bytes + core.runtime.workspace_bytes + arena
        everything = self._plan(self.net(message, LMSConfig(auto=True), _UNLIMITED))
        fast = everything.seconds if everything is not None else 0.0
        least, at = self._least(message)
        known = {"batch": batch, "core": in_core, "least": least, "at": at, "core_seconds": fast}
        if not self.lms.enabled:
            refused = "" if in_core <= self.budget else "does not fit without -lms"
            return Outcome(**known, device=in_core, seconds=fast, refused=refused)
        try:
            net = self.net(message, self.lms, self.budget)
            plan = self._plan(net)
        except OutOfDeviceMemory as error:
            return Outcome(**known, refused=error.message)
        runtime = net.runtime
        if plan is None:
            return Outcome(**known, device=in_core, seconds=fast)
        host = plan.host_bytes
        limit = self.lms.host_limit
        refused = f"needs {human_bytes(host)} of host memory" if limit is not None and host > limit else ""
        return Outcome(
            **known, device=runtime.resident_bytes + runtime.workspace_bytes + plan.arena_bytes, host=host,
            seconds=plan.seconds, stall=plan.stall, bytes_in=plan.bytes_in, bytes_out=plan.bytes_out,
            replayed=plan.replayed, refused=refused, parts=tuple(describe(net.graph, net.unfolded)),
        )  # fmt: skip

    def _least(self, message: NetParameter) -> tuple[int, str]:
        """(bytes that training needs with everything fetched on demand, the step that needs most at once)."""
        net = self.net(message, LMSConfig(threshold_kb=max(1, self.lms.threshold_kb), ahead=0), _UNLIMITED)
        plan = self._plan(net)
        runtime = net.runtime
        stays = runtime.resident_bytes + runtime.workspace_bytes
        if plan is None:
            return stays, "-"
        sizes = {b: buffer.nbytes for b, buffer in plan.buffers.items()}
        worst = max(plan.program.steps, key=lambda step: step.device_bytes(sizes))
        names = sorted({a.buffer for a in worst.accesses if a.buffer in sizes}, key=lambda b: -sizes[b])
        return stays + plan.arena_bytes, f"{worst.name} ({', '.join(plan.buffers[b].name for b in names[:3])})"


def batches(text: str) -> list[int]:
    """Of "batch=8..512" (doubling) or "batch=8,16,24". Raises UsageError."""
    match = re.fullmatch(r"batch=(?:(\d+)\.\.(\d+)|(\d+(?:,\d+)*))", text.strip())
    found: list[int] = []
    if match and match.group(3):
        found = [int(n) for n in match.group(3).split(",")]
    elif match:
        n, last = int(match.group(1)), int(match.group(2))
        while 0 < n <= last:
            found.append(n)
            n *= 2
    if not found or min(found) < 1:
        raise UsageError(f"-sweep {text!r} is not a range of batches", fix="-sweep batch=8..512, or batch=8,16,24")
    return found


def with_batch(message: NetParameter, batch: int) -> NetParameter:
    """The net with so many items per batch: first axis of what Input and DummyData make, batch_size of data layers."""
    result = NetParameter()
    result.CopyFrom(message)
    for layer in result.layer:
        if layer.bottom:
            continue
        for shape in (*layer.dummy_data_param.shape, *layer.input_param.shape):
            if shape.dim:
                shape.dim[0] = batch
        for name in ("data_param", "image_data_param", "hdf5_data_param", "window_data_param", "memory_data_param"):
            if layer.HasField(name):
                getattr(layer, name).batch_size = batch
    return result


def table(outcomes: list[Outcome], budget: int) -> Iterator[str]:
    """A line per batch, and the largest that runs."""
    yield (f"{'batch':>6} {'in core':>10} {'device':>10} {'host':>10} {'least':>10} {'ms':>9} {'items/s':>9} "
           f"{'stall ms':>9} {'again':>6} {'in':>10} {'out':>10} {'of core':>8}")  # fmt: skip
    for o in outcomes:
        start = f"{o.batch:>6} {human_bytes(o.core):>10}"
        if o.refused:
            yield f"{start} {'-':>10} {'-':>10} {human_bytes(o.least):>10}  {o.refused}"
            continue
        share = f"{o.core_seconds / o.seconds:.2f}" if o.seconds else "-"
        speed = f"{o.batch / o.seconds:.0f}" if o.seconds else "-"
        memory = " ".join(f"{human_bytes(n):>10}" for n in (o.device, o.host, o.least))
        copied = " ".join(f"{human_bytes(n):>10}" for n in (o.bytes_in, o.bytes_out))
        times = f"{1e3 * o.seconds:>9.1f} {speed:>9} {1e3 * o.stall:>9.1f}"
        yield f"{start} {memory} {times} {o.replayed:>6} {copied} {share:>8}"
    runs = [o.batch for o in outcomes if not o.refused]
    yield f"largest of these batches in {human_bytes(budget)}: {max(runs) if runs else 'none'}"


def first_batch(net_message: NetParameter, fallback: int = 1) -> int:
    """The batch of a net as its data layers say it."""
    for layer in net_message.layer:
        if layer.bottom:
            continue
        for shape in (*layer.dummy_data_param.shape, *layer.input_param.shape):
            if shape.dim:
                return shape.dim[0]
        for name in ("data_param", "image_data_param", "hdf5_data_param", "window_data_param", "memory_data_param"):
            if layer.HasField(name):
                return getattr(layer, name).batch_size
    return fallback
