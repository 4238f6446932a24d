"""Record some iterations of a command and write them as a trace, for `-profile FILE`."""

from __future__ import annotations

import json
import logging
from contextlib import AbstractContextManager, nullcontext

from ...errors import CaffeError
from ...formats.atomic import atomic_write
from ...lms.runtime.recorder import Recorder
from ...lms.runtime.runtime import Runtime
from ..places import check_place
from . import trace

_log = logging.getLogger(__name__)


class Profile:
    """Record iterations, and write the trace after the last of them.

    Args:
        path: the file; "" for none.
        first, last: iterations to record, counted from 1; last None: all from `first` on.

    Raises:
        UsageError: the file cannot be made; this is found before hours of training.
    """

    def __init__(self, path: str, runtime: Runtime, title: str, *, first: int = 1, last: int | None = None):
        check_place(path, "-profile")
        self.path, self.title, self.first, self.last = path, title, first, last
        self._recorder = Recorder(runtime) if path else None
        self._count = self._recorded = 0

    def iteration(self) -> AbstractContextManager[None]:
        """Return what is to be entered for every iteration; it records the chosen ones and writes after the last."""
        if self._recorder is None:
            return nullcontext()
        if self.last is not None and self._count == self.last:
            self.write()
            return nullcontext()
        self._count += 1
        if self._count < self.first:
            return nullcontext()
        self._recorded += 1
        return self._recorder.iteration(f"iteration {self._count}")

    def write(self) -> None:
        """Write what was recorded, unless it is written."""
        if self._recorder is None:
            return
        timed, iterations = self._recorder.times()
        self._recorder = None
        if not iterations:
            _log.warning("-profile %s: not written, for the run ended before iteration %d", self.path, self.first)
            return
        content = json.dumps(trace.build(timed, iterations, self.title)).encode()
        atomic_write(self.path, content, error=CaffeError)
        _log.info("Wrote a trace of %d iteration(s) to %s", self._recorded, self.path)
