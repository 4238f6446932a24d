"""`-profile FILE`: records some iterations of a command and writes them as a trace."""

from __future__ import annotations

import json
import logging
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ...errors import CaffeError, UsageError
from ...formats.atomic import atomic_write
from ...lms.runtime.recorder import Recorder
from . import trace

_log = logging.getLogger(__name__)


class Profile:
    """path: "" for none. first, last: iterations to record, counted from 1; last None: all from `first` on.

    Raises UsageError at once where the file's folder is not there, not after hours of training.
    """

    def __init__(self, path: str, runtime, title: str, *, first: int = 1, last: int | None = None):
        if path and (not Path(path).absolute().parent.is_dir() or Path(path).is_dir()):
            raise UsageError(
                f"-profile {path}: no file can be written there", fix="give a file in a folder that exists"
            )
        self.path, self.title, self.first, self.last = path, title, first, last
        self._recorder = Recorder(runtime) if path else None
        self._count = self._recorded = 0

    def iteration(self) -> AbstractContextManager:
        """To be entered for every iteration; records those that are asked for, and writes once the last of them is
        over."""
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
        """Write what was recorded, unless that is done."""
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
