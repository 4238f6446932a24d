"""Define the LMS settings as one frozen value, and parse sizes such as "16GB".

Pure. Each setting is declared here once, with the `Option` that its flag, check, Python keyword and documentation are
made from (`options.py`). No other module reads flags.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction
from operator import index

from ..errors import UsageError
from ..options import Limit, number, option, options_of, switch, whole_number

# What a size may end in, in bytes; no unit: of zero alone.
_UNITS = {"": 0, "b": 1} | {f"{x}{b}": 1024**k for k, x in enumerate("kmgt", 1) for b in ("", "b", "ib")}
BARE_KB = 1000  # of -lms without a number, as in PowerAI
COMPRESSED = ("fp16", "bf16")  # formats of compression
AUTO_BYTES = 64 << 10  # with `auto`, buffers up to this many bytes stay on the device


def parse_size(text: str, flag: str) -> int:
    """Return the bytes of "16GB", "512MB" or "4096B" (KB, MB, GB, TB are powers of 1024).

    Raises:
        UsageError: the text is no size, or has no unit: 16 could be anything.
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match.group(2).lower() not in _UNITS:
        raise UsageError(f"{flag} {text[:40]!r} is not a size", fix=f"for example {flag} 16GB, {flag} 512MB")
    number, unit = match.group(1), match.group(2).lower()
    if not unit and Fraction(number):
        raise no_unit(f"{flag} {number[:40]}", number[:40], f"{flag} {{}}")
    size = int(Fraction(number) * _UNITS[unit])
    if size >= 1 << 63:
        raise UsageError(f"{flag} {text[:40]!r} is more than any machine has", fix=f"for example {flag} 16GB")
    return size


def no_unit(said: str, number: str, example: str) -> UsageError:
    """Return the error of a size without a unit. example: how to write it, {} stands for the size."""
    units = ("GB", "MB") if len(number) < 5 else ("MB", "KB") if len(number) < 7 else ("B",)
    meant = " or ".join(example.format(f"{number}{unit}") for unit in units)
    return UsageError(f"{said}: {number} has no unit", fix=f"give a unit: {meant}")


def near_word(text: str) -> str:
    """Return the question whether a word of `-lms` was meant, "" if none is near."""
    near = get_close_matches(text.strip().lower(), ("auto", "off"), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def _threshold(text: str, flag: str) -> dict[str, bool | int]:
    """Return the fields that a value of -lms sets. Raises UsageError."""
    if text in ("auto", "off"):
        return {"auto": text == "auto"}
    try:
        return {"threshold_kb": max(int(text), 0)}
    except ValueError:
        raise UsageError(
            f"{flag} {text!r} is not a number of KB{near_word(text)}",
            fix="-lms 1000 manages buffers larger than 1000 KB, -lms auto chooses, -lms off is without",
        ) from None


def _pieces(what: str) -> tuple[Callable[[str, str], int | str], tuple[Limit, Limit]]:
    """Return the parser and the limits of a number of `what` that may be chosen."""

    def parse(text: str, flag: str) -> int | str:
        if text in ("auto", "off"):
            return 0 if text == "off" else text
        if not re.fullmatch(r"[1-9][0-9]{0,8}", text):
            raise UsageError(f"{flag} {text!r} is no number of {what}", fix="use auto, off, or a number such as 4")
        return int(text)

    return parse, (
        Limit(
            lambda n: isinstance(n, str) or n >= 0,
            "{flag} {value} is negative",
            f"give a number of {what}, auto, or off",
        ),
        Limit(
            lambda n: isinstance(n, int) or n == "auto",
            f"{{flag}} {{value!r}} is no number of {what}",
            'give a number, or "auto"',
        ),
    )


_PARTS, _PARTS_LIMITS = _pieces("parts")
_BLOCKS, _BLOCKS_LIMITS = _pieces("blocks")
_SLABS, _SLABS_LIMITS = _pieces("slabs")
_MORE_THAN_ZERO = Limit(lambda n: n > 0, "{flag} must be more than zero bytes", "for example {flag} 16GB")


@dataclass(frozen=True, slots=True)
class LMSConfig:
    """Set which buffers LMS manages, and how; each field's `help` says what it does. Raises UsageError."""

    threshold_kb: int = option(
        0,
        flag="lms",
        value="KB|auto",
        bare=str(BARE_KB),
        parse=_threshold,
        help="manage buffers larger than this many KB, or choose them by predicted time (auto); 1 KB has 1024 bytes; "
        "without a value: 1000; zero, a negative number or off: no Large Model Support; auto also chooses which values "
        "are rematerialized instead of copied",
    )
    frac: float = option(
        0.0,
        flag="lms_frac",
        value="F",
        parse=number,
        limits=(
            Limit(
                lambda f: 0.0 <= f <= 1.0, "{flag} {value:g} is not a share", "give a number from 0 to 1, such as 0.4"
            ),
        ),
        help="0..1: manage only buffers that are created after this share of GPU memory (of the budget) is demanded",
    )
    budget: int | None = option(
        None,
        flag="lms_budget",
        value="SIZE",
        parse=parse_size,
        limits=(_MORE_THAN_ZERO,),
        is_size=True,
        help="hard limit of device memory, such as 16GB; it also serves to emulate a smaller GPU",
    )
    ahead: int | None = option(
        None,
        flag="lms_ahead",
        value="K",
        parse=whole_number,
        limits=(Limit(lambda k: k >= 0, "{flag} {value} is negative", "0 is on demand, 1 looks one step ahead"),),
        help="most steps of look-ahead, in memory that would be idle; 0: copy on demand (default: as many as fit)",
    )
    sync: int = option(
        0,
        flag="lms_sync",
        value="M",
        parse=whole_number,
        limits=(
            Limit(
                lambda m: m in (0, 1, 2, 3), "{flag} {value} is not a mode", "use 0 (none), 1 (out), 2 (in) or 3 (both)"
            ),
        ),
        help="which copies wait for the layers, to measure and debug: 0 none, 1 copies out, 2 copies in, 3 both",
    )
    host_limit: int | None = option(
        None,
        flag="lms_host",
        value="SIZE",
        parse=parse_size,
        limits=(_MORE_THAN_ZERO,),
        is_size=True,
        help="most page-locked host memory (default: what the host has available)",
    )
    auto: bool = option(
        False,
        flag="lms auto",
        help="choose by predicted time what is copied, rematerialized or left on the device; a threshold above zero "
        "still limits what is managed",
    )
    recompute: bool | None = switch(
        None,
        flag="lms_recompute",
        needs_lms=True,
        help="let cheap layers run again instead of copying their tops (default: on with -lms auto, else off)",
    )
    exclude: int | None = option(
        None,
        flag="lms_exclude",
        value="MB",
        parse=lambda text, flag: whole_number(text, flag) << 20,
        limits=(Limit(lambda n: n >= 0, "{flag} is negative", "give the MB to leave free, for example {flag} 1024"),),
        is_size=True,
        help="leave this much of the device's memory free: all other memory is used before anything is copied",
    )
    pages: bool = switch(
        True,
        flag="lms_pages",
        help="if the GPU has virtual memory: put large buffers into free pages anywhere, so that no memory is lost "
        "between buffers",
    )
    compress: str | None = option(
        None,
        flag="lms_compress",
        choices=("off", *COMPRESSED),
        default="off",
        parse=lambda text, flag: None if text == "off" else text,
        limits=(
            Limit(lambda form: form in COMPRESSED, "{flag} {value!r} is not known", f"use {' or '.join(COMPRESSED)}"),
        ),
        needs_lms=True,
        help="lossy: copy activations and their gradients to the host in 16 bits, which halves the bytes on the link "
        "and on the host; fp16 keeps 11 binary digits, up to 65504, bf16 8, in the whole range (default: off, exact)",
    )
    plan_file: str | None = option(
        None,
        flag="lms_plan",
        value="FILE",
        needs_lms=True,
        for_training=True,
        help="the plans of training: read from FILE if it exists, else written to it; of several ranks (-gpu 0,1), "
        "rank 0 writes it after all have joined, and all read it",
    )
    split: int | str | None = option(
        None,
        flag="lms_split",
        value="N",
        default="off",
        parse=lambda text, flag: _PARTS(text, flag) or None,
        limits=_PARTS_LIMITS,
        help="auto: run a layer that is larger than the memory in micro-batches, as few as fit; or a number: run all "
        "layers that can in this many; results then equal those of whole batches to rounding, not to the bit "
        "(default: off, a net that does not fit is refused)",
    )
    split_outputs: int | str | None = option(
        None,
        flag="lms_split_outputs",
        value="N",
        parse=_BLOCKS,
        limits=_BLOCKS_LIMITS,
        help="auto: run an InnerProduct whose parameter, gradient and history are larger than the memory in blocks of "
        "its outputs, as few as fit; or a number: run each in this many blocks; results then equal those of whole "
        "layers to rounding, not to the bit (default: auto with -lms_split auto, else off)",
    )
    split_slabs: int | str | None = option(
        None,
        flag="lms_split_slabs",
        value="N",
        parse=_SLABS,
        limits=_SLABS_LIMITS,
        help="auto: run layers that are larger than the memory in slabs, parts along the first spatial axis with what "
        "neighbours need of each other, where parts of the batch do not help; or a number: run the largest layers in "
        "this many; results then equal those of whole layers to rounding, not to the bit (default: auto with "
        "-lms_split auto, else off)",
    )

    def __post_init__(self) -> None:
        for name, described in options_of(LMSConfig).items():
            value = getattr(self, name)
            described.check(value)
            if described.needs_lms and value not in (None, False) and not self.enabled:
                given = f"-{described.flag} on" if value is True else f"-{described.flag}"
                raise UsageError(f"{given} has no effect without -lms", fix="add -lms auto, or -lms 1000")

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
    def slabs(self) -> int | None:
        """Return the slabs of the largest layers that support them; 0 or 1: whole layers; None: as few as fit."""
        chosen = self.split_slabs == "auto" or (self.split_slabs is None and self.split == "auto")
        return None if chosen else int(self.split_slabs or 0)

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


def config_of(value: LMSConfig | int | str) -> LMSConfig:
    """Return the settings that a value of `lms=` means, as for `-lms`. Raises UsageError.

    value: settings, a number of KB, True (1000 KB), "auto", "off" or False.
    """
    if isinstance(value, LMSConfig):
        return value
    if isinstance(value, str) and value in ("auto", "off"):
        return LMSConfig(auto=value == "auto")
    if isinstance(value, bool):
        return LMSConfig(BARE_KB if value else 0)
    if hasattr(value, "__index__"):
        return LMSConfig(max(index(value), 0))
    near = near_word(value) if isinstance(value, str) else ""
    fix = 'give 1000 (KB), "auto", "off", or caffe.LMS("auto", budget="16GB")'
    raise UsageError(f"lms is {value!r}{near}", fix=fix)
