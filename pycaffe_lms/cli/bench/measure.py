"""Measure iterations of training, each case in a process of its own, so that one that fails leaves nothing behind."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import signal
import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, Protocol

from ...backend.cuda import CudaDevice
from ...backend.device import Device
from ...errors import CaffeError, OutOfDeviceMemory, OutOfHostMemory
from ...formats.prototxt.parser import Parsed
from ...lms.config import LMSConfig
from ...lms.cost.machine import machine_of
from ...log import log_to_stderr
from ...parallel.launch import end_with_parent
from ...proto.caffe_pb2 import NetParameter
from ...solvers import Solver, solver_class
from ...solvers.loss_watch import IGNORE
from .. import devices, flags
from ..synthetic import Synthetic
from ..views.plan_nets import Nets
from .hardware import versions
from .model import Model

_log = logging.getLogger(__name__)
_GPU_WORKSPACE = 36 << 20  # bytes that a convolution is assumed to use, as `plan -gpu` does
Row = dict[str, Any]
"""What is known of a case, ready for JSON; "error" is in it where nothing was measured, "fits" says whether memory was
enough."""


@dataclass(frozen=True)
class Case:
    """Describe one measurement.

    Attributes:
        model: what is trained; shapes: of its data, as -shape has them.
        batch: images per iteration.
        setting: of -lms, as text; lms: what it means.
        args: the flags, for the device and how nets are rearranged.
    """

    model: Model
    shapes: tuple[str, ...]
    batch: int
    setting: str
    lms: LMSConfig
    args: argparse.Namespace

    def net(self) -> tuple[Parsed[NetParameter], Synthetic]:
        """Return the net on synthetic data, and what fills them."""
        parsed, synthetic = self.model.parsed(), Synthetic(self.shapes)
        return Parsed(synthetic.replace(parsed.message), parsed.lines, parsed.filename), synthetic


class Stepped(Protocol):
    """Do iterations: a solver."""

    runtime: Any

    def step(self, n: int) -> None: ...


@dataclass(frozen=True)
class Timed:
    """Hold seconds of each iteration, up to the device's end, and bytes that LMS copied per iteration."""

    seconds: list[float]
    bytes_in: float
    bytes_out: float


def timed(solver: Stepped, iterations: int, warmup: int, clock: Callable[[], float], *, in_a_row: int = 1) -> Timed:
    """Run `warmup` iterations one by one, as -lms auto plans anew in between; then take `iterations` times.

    Args:
        clock: returns seconds.
        in_a_row: iterations of one time, which is divided by them. With several the host issues an iteration while the
            one before runs, as `train` does.
    """
    stats, device = solver.runtime.stats, solver.runtime.device
    for _ in range(warmup):
        solver.step(1)
        device.synchronize()
    before, seconds = (stats.bytes_in, stats.bytes_out), []
    for _ in range(iterations):
        begin = clock()
        solver.step(in_a_row)
        device.synchronize()
        seconds.append((clock() - begin) / in_a_row)
    ran = iterations * in_a_row
    copied = ((now - then) / ran for now, then in zip((stats.bytes_in, stats.bytes_out), before, strict=True))
    return Timed(seconds, *copied)


def measured(case: Case) -> Row:
    """Return the case's row, measured in a new process, which ends with this one."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_child, args=(case, theirs), name=f"batch {case.batch}", daemon=True)
    with _interrupt_waits():  # else a process that has not got its case yet would print a traceback
        process.start()
        theirs.close()
    try:
        row: Row = ours.recv()
    except EOFError:
        row = _row(case) | {"error": "its process was ended, perhaps by the system for want of host memory"}
    except BaseException:
        process.kill()
        raise
    finally:
        process.join()
        ours.close()
    return row


@contextmanager
def _interrupt_waits() -> Iterator[None]:
    """Within: Ctrl-C is noted, and raises KeyboardInterrupt at the end."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # it is ignored, or somebody else's
        yield
        return
    noted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if noted:
        raise KeyboardInterrupt


def _child(case: Case, pipe: Connection) -> None:
    """Send the row. It runs in the process of the case, which an interrupt of the command ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, args=(pipe,), name="caffe-parent", daemon=True).start()
    pipe.send(_guarded(case))


def _guarded(case: Case) -> Row:
    """Return the row, of an error too."""
    with log_to_stderr(logging.WARNING):
        try:
            return measure(case)
        except (OutOfDeviceMemory, OutOfHostMemory) as error:
            device = devices.choose(case.args, case.lms)
            return _row(case) | _about(device) | {"fits": False, "error": error.message}
        except CaffeError as error:
            return _row(case) | {"error": str(error).splitlines()[0]}
        except Exception as error:  # of a library; the cases behind this one are measured all the same
            _log.exception("batch %d, -lms %s failed", case.batch, case.setting)
            return _row(case) | {"error": f"{type(error).__name__}: {error}".splitlines()[0]}


def _row(case: Case) -> Row:
    return {"batch": case.batch, "lms": case.setting, "budget": case.lms.budget, "shapes": list(case.shapes)}


def _about(device: Device) -> Row:
    """Return what is known of the device; capacity: bytes, None on the CPU; page: bytes, None: there are no pages."""
    capacity = None if device.is_host else device.capacity()
    return {"device": device.describe(), "capacity": capacity, "page": device.page, "versions": versions(device)}


def measure(case: Case, clock: Callable[[], float] | None = None) -> Row:
    """Train and measure a case here. clock: returns seconds; None: the device's.

    Raises:
        OutOfDeviceMemory, OutOfHostMemory: it does not fit.
        CaffeError: it cannot be trained.
    """
    device = devices.choose(case.args, case.lms)
    before = driver_bytes(device)
    solver = build(case, device)
    found = timed(solver, case.args.iterations, case.args.warmup, clock or devices.clock(device))
    median, plan, runtime = statistics.median(found.seconds), solver.net.memory.plans().get("train"), solver.runtime
    if device.is_host:
        own = sum(memory.nbytes for memory in solver.net.memory.memories.values())
    else:
        own = device.in_use()
    driver = driver_bytes(device)
    row = (
        _row(case)
        | {
            "fits": True,
            "seconds": found.seconds,
            "median_s": median,
            "images_per_s": case.batch / median,
            "bytes_in": found.bytes_in,
            "bytes_out": found.bytes_out,
            "memory": own if driver is None else driver,
            "memory_by": "package" if driver is None else "driver",
            "memory_of_package": own,
            "memory_before": before,
            "host_memory": 0 if device.is_host else runtime.slab.nbytes,
            "predicted_s": plan.seconds if plan else None,
            "rematerialized": plan.rematerialized if plan else 0,
        }
        | _about(device)
    )
    solver.close()
    runtime.close()
    return row


def build(case: Case, device: Device) -> Solver:
    """Return the solver of a case, its net's data filled."""
    param, (parsed, synthetic) = case.model.solver_param(), case.net()
    param.net_param.CopyFrom(parsed.message)
    kind = solver_class(param, case.model.solver, None)
    solver = kind(param, file=case.model.net, device=device, lms=case.lms, tuning=flags.tuning(case.args))
    synthetic.fill(solver.net)
    solver.nan = IGNORE  # random images may make the loss grow; times do not depend on it
    return solver


def driver_bytes(device: Device) -> int | None:
    """Return the bytes of a GPU's memory that its driver says are used, by all processes; None: there is no driver."""
    if not isinstance(device, CudaDevice):
        return None
    free, total = device.memory_info()
    return total - free


def needed(case: Case, row: Row) -> int:
    """Return about how much device memory a case that does not fit needs: its least budget, or without LMS all of it.

    Nothing runs. Args: row: its device, capacity and page are read.
    """
    nets = nets_of(case, row["device"], row["capacity"], row["page"])
    nbytes, page = nets.least().nbytes if case.lms.enabled else nets.in_core().nbytes, row["page"] or 1
    return -(-nbytes // page) * page


def nets_of(case: Case, device: str, capacity: int, page: int | None) -> Nets:
    """Return the case's net for planning on a device of this name, with capacity and page in bytes."""
    param, tuning, on_gpu = case.model.solver_param(), flags.tuning(case.args), case.args.backend == "cuda"
    return Nets(
        case.net()[0],
        (),
        level=param.train_state.level,
        stages=list(param.train_state.stage),
        rule=solver_class(param, case.model.solver, None).rule,
        machine=machine_of(device, capacity),
        lms=case.lms,
        workspace=_GPU_WORKSPACE if on_gpu else None,
        half=flags.half(case.args),
        python=True,
        tuning=replace(tuning, channels_last=on_gpu if tuning.channels_last is None else tuning.channels_last),
        page=page,
    )
