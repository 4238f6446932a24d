"""Define the LMS settings as one frozen value, and parse sizes such as "16GB".

Pure. The command line and the Python interface turn `-lms...` flags into an `LMSConfig`; no other module reads flags.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ..errors import UsageError

_UNITS = {
    "": 1,
    "b": 1,
    "k": 1 << 10,
    "kb": 1 << 10,
    "kib": 1 << 10,
    "m": 1 << 20,
    "mb": 1 << 20,
    "mib": 1 << 20,
    "g": 1 << 30,
    "gb": 1 << 30,
    "gib": 1 << 30,
    "t": 1 << 40,
    "tb": 1 << 40,
    "tib": 1 << 40,
}


COMPRESSED = ("fp16", "bf16")  # formats of compression
AUTO_BYTES = 64 << 10  # with `auto`, buffers up to this many bytes stay on the device


@dataclass(frozen=True, slots=True)
class LMSConfig:
    """Set which buffers LMS manages, and how.

    Attributes:
        threshold_kb: manage buffers larger than this many KB of 1024 bytes; zero or less: LMS is off.
        frac: 0..1; manage buffers only once the bytes demanded so far, in order of creation, exceed this fraction of
            GPU memory (of the budget, if set).
        budget: hard limit of the device pool in bytes, also to emulate a smaller GPU; None: the GPU's memory, or a
            budget that is in force already (all nets on a device share the pool).
        ahead: most steps by which prefetches are issued early and values are kept for reuse, in memory that would be
            idle otherwise; 0: on demand; None: as much as fits, timed by predicted seconds.
        sync: make copies synchronous with layers: 0 none, 1 copies out, 2 copies in, 3 both.
        host_limit: most bytes of page-locked host memory; None: what the host has available.
        auto: the planner chooses which buffers stay, are copied or are rematerialized; a threshold_kb above zero still
            limits which are managed.
        recompute: allow rematerialization; None: with `auto` only.
        exclude: bytes of device memory that LMS leaves free; the rest is the budget. None: no such limit.
        pages: use paging for large buffers if the device supports it, instead of contiguous memory only.
        compress: "fp16" or "bf16": activations and their gradients are copied to the host, and kept there, in 16 bits,
            which loses precision; None: copies are exact.
        plan_file: read the plans of a solver's training programs from this file; if it does not exist, write them to it
            (rank 0, if several train together).
        split: run layers that support it in this many micro-batches (0 or 1: never); "auto": in as few as possible, if
            a net does not fit otherwise; None: never. Sums are rounded differently than over the whole batch.
        split_outputs: cut layers that support it into this many blocks of outputs, each with its rows of the
            parameters; "auto": as few as possible; None: "auto" if `split` is, else never.
    """

    threshold_kb: int = 0
    frac: float = 0.0
    budget: int | None = None
    ahead: int | None = None
    sync: int = 0
    host_limit: int | None = None
    auto: bool = False
    recompute: bool | None = None
    exclude: int | None = None
    pages: bool = True
    compress: str | None = None
    plan_file: str | None = None
    split: int | str | None = None
    split_outputs: int | str | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.frac <= 1.0:
            raise UsageError(f"-lms_frac {self.frac:g} is not a share", fix="give a number from 0 to 1, such as 0.4")
        if self.ahead is not None and self.ahead < 0:
            raise UsageError(f"-lms_ahead {self.ahead} is negative", fix="0 is on demand, 1 looks one step ahead")
        if self.sync not in (0, 1, 2, 3):
            raise UsageError(f"-lms_sync {self.sync} is not a mode", fix="use 0 (none), 1 (out), 2 (in) or 3 (both)")
        if self.exclude is not None and self.exclude < 0:
            raise UsageError("-lms_exclude is negative", fix="give the MB to leave free, for example -lms_exclude 1024")
        for flag, value, what in (("", self.split, "parts"), ("_outputs", self.split_outputs, "blocks")):
            if isinstance(value, int) and value < 0:
                raise UsageError(f"-lms_split{flag} {value} is negative", fix=f"give a number of {what}, auto, or off")
            if isinstance(value, str) and value != "auto":
                raise UsageError(f"-lms_split{flag} {value!r} is no number of {what}", fix='give a number, or "auto"')
        if self.recompute and not self.enabled:
            raise UsageError("-lms_recompute on has no effect without -lms", fix="add -lms auto, or -lms 1000")
        if self.plan_file is not None and not self.enabled:
            raise UsageError("-lms_plan has no effect without -lms", fix="add -lms auto, or -lms 1000")
        if self.compress not in (None, *COMPRESSED):
            raise UsageError(f"-lms_compress {self.compress!r} is not known", fix=f"use {' or '.join(COMPRESSED)}")
        if self.compress and not self.enabled:
            raise UsageError("-lms_compress has no effect without -lms", fix="add -lms auto, or -lms 1000")
        for name, value in (("-lms_budget", self.budget), ("-lms_host", self.host_limit)):
            if value is not None and value <= 0:
                raise UsageError(f"{name} must be more than zero bytes", fix=f"for example {name} 16GB")

    @property
    def enabled(self) -> bool:
        """Tell whether LMS is on."""
        return self.auto or self.threshold_kb > 0

    @property
    def recomputes(self) -> bool:
        """Tell whether values may be rematerialized."""
        return self.auto if self.recompute is None else self.recompute

    @property
    def parts(self) -> int | None:
        """Return the micro-batches of every layer that supports them; 0 or 1: whole batches; None: as few as fit."""
        return None if self.split == "auto" else int(self.split or 0)

    @property
    def blocks(self) -> int | None:
        """Return the blocks of outputs of every layer that supports them; 0 or 1: whole layers; None: as few as fit."""
        chosen = self.split_outputs == "auto" or (self.split_outputs is None and self.split == "auto")
        return None if chosen else int(self.split_outputs or 0)

    @property
    def min_bytes(self) -> int:
        """Return the size in bytes that managed buffers exceed."""
        return AUTO_BYTES if self.auto and self.threshold_kb <= 0 else self.threshold_kb * 1024

    def budget_of(self, memory: int) -> int | None:
        """Return the limit of the device pool in bytes, on a device with `memory` bytes; None: no limit is set."""
        if self.exclude is None:
            return self.budget
        left = memory - self.exclude
        if left <= 0:
            raise UsageError(
                f"-lms_exclude {self.exclude >> 20} leaves nothing of the device's {memory >> 20} MB",
                fix="it is what stays free, in MB",
            )
        return left if self.budget is None else min(left, self.budget)


def parse_size(text: str, flag: str) -> int:
    """Return the bytes of "16GB", "512MB" or "1073741824" (KB, MB, GB, TB are powers of 1024). Raises UsageError."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match.group(2).lower() not in _UNITS:
        raise UsageError(f"{flag} {text!r} is not a size", fix=f"for example {flag} 16GB, {flag} 512MB")
    size = int(Fraction(match.group(1)) * _UNITS[match.group(2).lower()])
    if size >= 1 << 63:
        raise UsageError(f"{flag} {text[:40]!r} is more than any machine has", fix=f"for example {flag} 16GB")
    return size
