"""Offers Large Model Support in Python: `caffe.LMS(...)` sets it up, `net.lms` tells what it does.

    net = caffe.Net("net.prototxt", caffe.TRAIN, lms=caffe.LMS(1000, frac=0.4, budget="16GB"))
    with caffe.LMS(1000):                # for everything that this thread builds inside
        solver = caffe.get_solver("solver.prototxt")
    solver.step(10)
    print(solver.net.lms.stats()["bytes_out"], solver.net.lms.report())

See also: `lms/config.py` (the settings and their limits), `mode.set_lms`, `Net.keep`.
"""

from __future__ import annotations

import difflib
import inspect
import threading
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from ..errors import UsageError
from ..lms.config import BARE_KB, LMSConfig, near_word, no_unit, parse_size
from ..lms.plan.plan import Plan
from ..lms.report import text
from ..lms.report.page import render
from ..net.inspect.account import page_contents
from ..options import options_of
from .mode import settings

if TYPE_CHECKING:
    from ..net.net import Net

_around = threading.local()  # .stack: the settings outside of each `with` that the thread is in
_TYPES = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(LMSConfig).items()}
_LEAST_BYTES = 1 << 20  # of a size given as a number: a smaller one is meant in GB or MB
_IN_WORDS = {int: "whole number", float: "number", bool: "True or False", str: "text"}


def keywords() -> list[tuple[str, str, object, str]]:
    """Return (name, what it takes, default, what it does) of every keyword of `LMS`."""
    rows = []
    for name, parameter in _SIGNATURE.parameters.items():
        option = options_of(LMSConfig)[name]
        texts = option.choices or ("off", "auto") * (int in _TYPES[name])
        in_words = _IN_WORDS | {str: " or ".join(map(repr, texts)) or _IN_WORDS[str]}
        takes = " or ".join(in_words[kind] for kind in _TYPES[name] if kind in in_words)
        if option.is_size:
            takes = "a size such as '16GB', or bytes (1 MiB or more)"
        elif name == "threshold_kb":
            takes = "KB, a size such as '1MB', or 'auto'"
        rows.append((name, takes, BARE_KB if name == "threshold_kb" else parameter.default, option.help))
    return rows


class LMS(LMSConfig):
    """Say what Large Model Support manages, and in how much memory, with the settings of the command line's flags.

    `with caffe.LMS(...):` makes it the default of the nets and solvers that the calling thread builds inside; after it
    the default is what it was before. Raises UsageError for values that make no sense.
    """

    __slots__ = ()

    def __init__(self, *values: Any, **named: Any) -> None:
        for name in named.keys() - _SIGNATURE.parameters.keys():
            near = difflib.get_close_matches(name, _SIGNATURE.parameters, 1)
            hint = f"did you mean {near[0]}?" if near else f"settings are {', '.join(_SIGNATURE.parameters)}"
            raise TypeError(f"caffe.LMS has no setting {name!r}; {hint}")
        bound = _SIGNATURE.bind(*values, **named)
        bound.apply_defaults()
        given = bound.arguments
        threshold = given["threshold_kb"]
        if threshold in ("auto", "off"):
            given["auto"], threshold = threshold == "auto", None if threshold == "auto" else 0
        if threshold is None:
            threshold = 0 if given["auto"] else BARE_KB
        elif isinstance(threshold, str):
            if threshold.strip().isdigit():
                raise UsageError(f"threshold_kb {threshold!r} has no unit", fix="give 1000 (KB), or a size: '1MB'")
            try:
                threshold = parse_size(threshold, "threshold_kb") // 1024
            except UsageError:
                raise UsageError(
                    f"threshold_kb {threshold!r} is no size{near_word(threshold)}",
                    fix='give 1000 (KB), a size: "1MB", or "auto", or "off"',
                ) from None
        given["threshold_kb"] = threshold
        super().__init__(**{name: _checked(name, value) for name, value in given.items()})

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


class _Bytes(int):
    """Hold a size that was given with a unit, however small; copies of the settings keep it."""


def _checked(name: str, value: Any) -> Any:
    """Return the setting's value: a size as bytes, a text such as "off" as the flag takes it.

    Raises UsageError for a value of another type."""
    option, kinds = options_of(LMSConfig)[name], _TYPES[name]
    is_size = option.is_size
    if is_size and isinstance(value, str):
        return _Bytes(parse_size(value, name))
    if isinstance(value, str) and str in kinds:
        value = option.parse(value, name)
    if not isinstance(value, (*kinds, int) if float in kinds else kinds) or (
        isinstance(value, bool) and bool not in kinds
    ):
        fix = f'give bytes, or {name}="16GB"' if is_size else "see help(caffe.LMS)"
        raise UsageError(f"{name} cannot be {value!r}", fix=fix)
    if is_size and isinstance(value, int) and 0 < value < _LEAST_BYTES and not isinstance(value, _Bytes):
        raise no_unit(f"{name}={value}", str(value), f'{name}="{{}}"')
    return value


_SIGNATURE = inspect.Signature(
    [
        inspect.Parameter(
            field.name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None if field.name == "threshold_kb" else field.default,
        )
        for field in fields(LMSConfig)
    ]
)
LMS.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
LMS.__doc__ = f"{LMS.__doc__}\n    Args:\n" + "\n".join(
    f"        {name}: {takes} (default: {default!r}). {what[:1].upper()}{what[1:]}"
    for name, takes, default, what in keywords()
)


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
        """Return whether anything is managed, because LMS is on and there is device memory to save."""
        return self._net.runtime.active

    @property
    def plan(self) -> Plan | None:
        """Return the plan of what the net ran last (a solver's iteration, after a step), with operations and offsets.

        It is None before anything ran, and where nothing is managed."""
        return self._net.memory.last_plan

    @property
    def plans(self) -> dict[str, Plan]:
        """Return all plans of this net so far, by the name of the program."""
        return {name: plan for name, plan in self._net.memory.plans().items() if plan is not None}

    def stats(self) -> dict[str, int | bool]:
        """Return totals since the net was built, sizes in bytes. On the CPU all are zero.

        - managed_buffers, managed_bytes: number of managed buffers and their sizes' sum.
        - resident_bytes: buffers that never leave the device.
        - workspace_bytes, arena_bytes: device memory that layers, and managed buffers, use in turn.
        - device_bytes_in_use, device_bytes: of the pool, and its limit. host_bytes: page-locked.
        - runs: of programs with a plan. bytes_in, bytes_out: copied to and from the device by plans.
        - held_peak_bytes: most bytes of managed buffers on the device at once.
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
