"""The LMS settings as one frozen value. Pure; flags become this, nothing reads flags after that."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ..errors import UsageError

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
          "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30, "t": 1 << 40, "tb": 1 << 40, "tib": 1 << 40}  # fmt: skip


COMPRESSED = ("fp16", "bf16")  # forms of a value in 16 bits
AUTO_BYTES = 64 << 10  # of `auto`: what is not larger stays on the device


@dataclass(frozen=True, slots=True)
class LMSConfig:
    """What LMS manages and how far it looks ahead.

    threshold_kb: manage buffers larger than this many KB of 1024 bytes; zero or less: LMS is off.
    frac: 0..1; buffers are managed only once the bytes demanded so far, in creation order, exceed this share of GPU
    memory (of the budget, where one is set).
    budget: hard limit of the device pool in bytes; None: the GPU's memory, or a budget that is in force already (the
    pool is shared by everything on the device). Also how a smaller GPU is emulated.
    ahead: most steps of look-ahead for prefetch, and of keeping what is needed again, as far as memory would be idle
    otherwise; 0: on demand; None: as much as fits, laid out by predicted time.
    sync: 0 neither direction, 1 copies out, 2 copies in, 3 both synchronous with the layers.
    host_limit: most bytes of page-locked host memory; None: what the host has available.
    auto: the planner chooses who stays, and what is copied or made again; a threshold_kb above zero still bounds who is
    managed.
    recompute: whether values may be made again instead of being copied; None: with `auto` only.
    exclude: bytes of the device's memory that LMS leaves to others: the budget is what remains. None: nothing said.
    pages: let large buffers lie in pages wherever some are free, where the device has pages, instead of in one piece
    of memory.
    compress: "fp16" or "bf16": swapped activations and their gradients travel, and wait on the host, in 16 bits, which
    loses digits; None: copies are exact.
    plan_file: the plans of a solver's training programs are replayed from this file where it is there, and written to
    it where it is not, by rank 0 where several train together.
    split: layers that can work on a part of the batch do so, in so many parts (0 or 1: never); "auto": where a net does
    not fit otherwise, in as few as possible; None: never. Sums are rounded otherwise than whole layers round them.
    split_outputs: likewise, layers that can be cut into blocks of their outputs, each with its rows of the parameters,
    in so many blocks; "auto": as few as possible; None: as `split` has it, but none where that is a number.
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
        return self.auto or self.threshold_kb > 0

    @property
    def recomputes(self) -> bool:
        """Whether values may be made again."""
        return self.auto if self.recompute is None else self.recompute

    @property
    def parts(self) -> int | None:
        """Parts of the batch of every layer that can run in parts, 0 or 1: none; None: as few as fit."""
        return None if self.split == "auto" else int(self.split or 0)

    @property
    def blocks(self) -> int | None:
        """Likewise, blocks of outputs of every layer that can be cut."""
        chosen = self.split_outputs == "auto" or (self.split_outputs is None and self.split == "auto")
        return None if chosen else int(self.split_outputs or 0)

    @property
    def min_bytes(self) -> int:
        """Buffers of more than this many bytes are managed."""
        return AUTO_BYTES if self.auto and self.threshold_kb <= 0 else self.threshold_kb * 1024

    def budget_of(self, memory: int) -> int | None:
        """Bytes that the device pool may hold, of a device with `memory` bytes. None: no limit of ours."""
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
    """Bytes of "16GB", "512MB", "2MB", "1073741824" (KB, MB, GB, TB are powers of 1024). Raises UsageError."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match.group(2).lower() not in _UNITS:
        raise UsageError(f"{flag} {text!r} is not a size", fix=f"for example {flag} 16GB, {flag} 512MB")
    size = int(Fraction(match.group(1)) * _UNITS[match.group(2).lower()])
    if size >= 1 << 63:
        raise UsageError(f"{flag} {text[:40]!r} is more than any machine has", fix=f"for example {flag} 16GB")
    return size
