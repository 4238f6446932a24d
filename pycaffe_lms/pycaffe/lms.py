"""Offers Large Model Support in Python: `caffe.LMS(...)` sets it up, `net.lms` tells what it does.

    net = caffe.Net("net.prototxt", caffe.TRAIN, lms=caffe.LMS(1000, frac=0.4, budget="16GB"))
    with caffe.LMS(1000):                # for everything that this thread builds inside
        solver = caffe.get_solver("solver.prototxt")
    solver.step(10)
    print(solver.net.lms.stats()["bytes_out"], solver.net.lms.report())

See also: `lms/config.py` (the settings and their limits), `mode.set_lms`, `Net.keep`.
"""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..lms.config import LMSConfig, parse_size
from ..lms.plan.plan import Plan
from ..lms.report import text
from ..lms.report.page import render
from ..net.inspect.account import page_contents
from .mode import settings

if TYPE_CHECKING:
    from ..net.net import Net

DEFAULT_KB = 1000  # of 1024 bytes: what the flag -lms without a value means

_around = threading.local()  # .stack: the defaults outside of each `with` that the thread is in


class LMS(LMSConfig):
    """Say what Large Model Support manages, in how much memory, with the command line's flags as keywords.

    `with caffe.LMS(...):` makes it the default of the nets and solvers that the calling thread builds inside.

    Args:
        threshold_kb: manage buffers larger than so many KB of 1024 bytes, or than a size such as "1MB"; 0: LMS is off;
            "auto": as auto=True; None: 1000, or with auto as much as pays off.
        budget, host_limit, exclude: bytes, or sizes such as "16GB" (powers of 1024).
        frac, ahead, sync, auto, recompute, pages, compress, plan_file, split, split_outputs: those of `LMSConfig`.

    Raises:
        UsageError: a value has the wrong type or is out of range.
    """

    __slots__ = ()

    def __init__(
        self,
        threshold_kb: int | str | None = None,
        frac: float = 0.0,
        budget: int | str | None = None,
        ahead: int | None = None,
        sync: int = 0,
        host_limit: int | str | None = None,
        auto: bool = False,
        recompute: bool | None = None,
        exclude: int | str | None = None,
        pages: bool = True,
        compress: str | None = None,
        plan_file: str | None = None,
        split: int | str | None = None,
        split_outputs: int | str | None = None,
    ):
        if threshold_kb == "auto":
            threshold_kb, auto = None, True
        if threshold_kb is None:
            threshold_kb = 0 if auto else DEFAULT_KB
        elif isinstance(threshold_kb, str):
            if threshold_kb.strip().isdigit():
                raise UsageError(f"threshold_kb {threshold_kb!r} has no unit", fix="give 1000 (KB), or a size: '1MB'")
            threshold_kb = parse_size(threshold_kb, "threshold_kb") // 1024
        for name, value, kinds in (
            ("threshold_kb", threshold_kb, (int,)),
            ("frac", frac, (int, float)),
            ("ahead", ahead, (int, type(None))),
            ("sync", sync, (int,)),
            ("auto", auto, (bool,)),
            ("recompute", recompute, (bool, type(None))),
            ("pages", pages, (bool,)),
            ("plan_file", plan_file, (str, type(None))),
            ("split", split, (int, str, type(None))),
            ("split_outputs", split_outputs, (int, str, type(None))),
        ):
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise UsageError(f"{name} cannot be {value!r}", fix="see help(caffe.LMS)")
        super().__init__(
            threshold_kb=threshold_kb,
            frac=frac,
            budget=_size(budget, "budget"),
            ahead=ahead,
            sync=sync,
            host_limit=_size(host_limit, "host_limit"),
            auto=auto,
            recompute=recompute,
            exclude=_size(exclude, "exclude"),
            pages=pages,
            compress=compress,
            plan_file=plan_file,
            split=split,
            split_outputs=split_outputs,
        )

    def __enter__(self) -> LMS:
        if not hasattr(_around, "stack"):
            _around.stack = []
        _around.stack.append(settings.lms)
        settings.lms = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        settings.lms = _around.stack.pop()


def _size(value: int | str | None, name: str) -> int | None:
    if isinstance(value, str):
        return parse_size(value, name)
    if value is not None and not isinstance(value, int):
        raise UsageError(f"{name} is {value!r}, not a size", fix=f'give bytes, or {name}="16GB"')
    return value


class NetLMS:
    """Tell what Large Model Support does with a net. The nets of a solver share memory, and these numbers."""

    def __init__(self, net: Net):
        self._net = net

    @property
    def config(self) -> LMSConfig:
        """Return the settings that the net was built with."""
        return self._net.runtime.asked

    @property
    def enabled(self) -> bool:
        """Return whether anything is managed: LMS is on, and there is device memory to save."""
        return self._net.runtime.active

    @property
    def plan(self) -> Plan | None:
        """Return the plan of what the net ran last (a solver's iteration, after a step): operations, offsets, bytes.
        None before anything ran, and where nothing is managed."""
        return self._net.memory.last_plan

    @property
    def plans(self) -> dict[str, Plan]:
        """Return all plans of this net so far, by the name of the program."""
        return {name: plan for name, plan in self._net.memory.plans().items() if plan is not None}

    def stats(self) -> dict[str, int | bool]:
        """Return totals since the net was built, sizes in bytes. On the CPU all are zero.

        managed_buffers, managed_bytes: number of managed buffers and their sizes' sum.
        resident_bytes: buffers that never leave the device.
        workspace_bytes, arena_bytes: device memory that layers, and managed buffers, use in turn.
        device_bytes_in_use, device_bytes: of the pool, and its limit. host_bytes: page-locked.
        runs: of programs with a plan. bytes_in, bytes_out: copied to and from the device by plans.
        held_peak_bytes: most bytes of managed buffers on the device at once.
        """
        runtime, memory, on_host = self._net.runtime, self._net.memory, self._net.device.is_host
        managed = [memory.buffers[b].nbytes for b in memory.store.managed_ids]
        return {
            "enabled": self.enabled,
            "managed_buffers": len(managed),
            "managed_bytes": sum(managed),
            "resident_bytes": runtime.resident_bytes,
            "workspace_bytes": runtime.workspace_bytes,
            "arena_bytes": runtime.arena.nbytes,
            "device_bytes_in_use": 0 if on_host else runtime.device.in_use(),
            "device_bytes": 0 if on_host else runtime.device.capacity(),
            "host_bytes": 0 if on_host else runtime.slab.nbytes,
            "runs": runtime.stats.runs,
            "bytes_in": runtime.stats.bytes_in,
            "bytes_out": runtime.stats.bytes_out,
            "held_peak_bytes": runtime.stats.held_peak,
        }

    def statistics(self) -> dict[str, Any]:
        """Return more numbers, by program, ready for JSON. `lms/plan/statistics.py` says which are counted, predicted
        or measured. The solver's own `statistics` counts iterations too."""
        return self._net.statistics()

    def html(self) -> str:
        """Return the last plan as an HTML page: memory over an iteration, the streams, what layers cost. Times are
        predictions. Raises UsageError where there is no plan."""
        plan = self.plan
        if plan is None:
            raise UsageError("there is no plan to show", fix="run the net first, with Large Model Support on")
        remark = f"Program {plan.program.name}. All times are predictions."
        budget = self._net.device.capacity()
        return render(
            page_contents(self._net, f"Large Model Support: {self._net.name}", plan, remark=remark, budget=budget)
        )

    def report(self, steps: bool = False) -> str:
        """Return the last plan in words; with `steps` also a line for each step, as `pycaffe-lms plan` prints it."""
        plan = self.plan
        if plan is None:
            return "nothing is managed" if not self.enabled else "nothing ran yet"
        return "\n".join([*(text.step_table(plan) if steps else ()), *text.summary(plan)])

    def __repr__(self) -> str:
        if not self.enabled:
            return "<LMS of a net: nothing is managed>"
        stats = self.stats()
        return f"<LMS of a net: {stats['managed_buffers']} buffers managed, {stats['runs']} runs>"
