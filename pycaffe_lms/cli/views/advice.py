"""Say which settings of Large Model Support let a training fit that was refused: each is tried before it is named."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

from ...errors import CaffeError, OutOfDeviceMemory
from ...lms.config import LMSConfig
from ...log import only_warnings

_log = logging.getLogger(__name__)
_THRESHOLDS = (1000, 100, 10, 1)  # KB
_OTHERWISE = "lower batch_size, or raise -lms_budget"


def set_fix(refused: OutOfDeviceMemory, lms: LMSConfig, make: Callable[[LMSConfig], None]) -> None:
    """Set the fix of an error to the first settings that fit, or to say that none was found.

    Args:
        lms: the settings that were refused.
        make: prepares the same training with other settings; raises CaffeError if it does not fit.
    """
    _log.info("It does not fit: trying other settings of Large Model Support.")
    refused.__context__ = refused.__cause__ = None  # tracebacks keep what was refused in memory
    for flags, settings, note in _candidates(lms):
        gc.collect()
        if _fits(settings, make):
            refused.fix = f"{'use' if lms.enabled else 'add'} {flags}: it was tried and fits{note}; or {_OTHERWISE}"
            return
    tried = ", ".join(flags for flags, *_ in _candidates(lms))
    refused.fix = f"{_OTHERWISE}; {f'{tried} were tried: none fits' if tried else 'no -lms is lower'}"


def _fits(settings: LMSConfig, make: Callable[[LMSConfig], None]) -> bool:
    try:
        with only_warnings():
            make(settings)
        return True
    except CaffeError:
        return False


def _candidates(lms: LMSConfig) -> Iterator[tuple[str, LMSConfig, str]]:
    """Yield (flags, settings, what else to know) in the order of what they cost; those with whole layers first."""
    auto = replace(lms, auto=True, threshold_kb=0, frac=0.0, plan_file=None)
    if not lms.auto:
        yield "-lms auto", auto, ""
    for threshold in _THRESHOLDS:
        if lms.auto or not lms.enabled or threshold < lms.threshold_kb or lms.frac:
            yield f"-lms {threshold}", replace(auto, auto=False, threshold_kb=threshold), ""
    if lms.split is None:
        note = " (layers run in micro-batches: results are equal to rounding, not to the bit)"
        yield "-lms auto -lms_split auto", replace(auto, split="auto"), note
        yield "-lms 1 -lms_split auto", replace(auto, auto=False, threshold_kb=1, split="auto"), note
