"""Cache plans in the file of `-lms_plan`: plans are read from it if it exists, and written to it if not.

`read.py` and `write.py` turn text into plans and back; this module holds the file and says when it is used.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from ...errors import PlanError, Where, human_bytes
from ...formats.atomic import atomic_write
from ...formats.rawfile import could_not_open
from ...proto import caffe_pb2
from ..cost.timing import time_plan
from ..plan.plan import Plan
from ..program import makes_param_gradients
from ..request import PlanRequest
from .read import ANEW, FileProgram, parse_plan, plan_from
from .write import plan_text, program_message

_log = logging.getLogger(__name__)
MOST_BYTES = 256 << 20  # of a file: about a hundred times that of a net of a thousand layers


class PlanCache:
    """Hold the plan file at `path`. A file that exists now is read and never changed; else it is written.

    open: whether plans are read and written. Several ranks make one cache each and open it when all have joined, as
    their programs change then, and each must have seen whether the file existed. writes: whether this rank writes.

    Raises:
        PlanError: the file is not a plan.
    """

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        self.open = self.writes = True
        self._notes: dict[str, caffe_pb2.LMSProgramPlan] = {}
        self.programs: dict[str, FileProgram] | None = None
        if os.path.lexists(self.path):
            self.programs = parse_plan(_read(self.path), self.path)
            _log.info("LMS: plans of %s are read from %s.", ", ".join(self.programs), self.path)

    def find(self, request: PlanRequest, limit: int, page: int | None) -> Plan | None:
        """Return the file's plan of a program, verified; None: it holds none.

        Args:
            limit: bytes of the arena.
            page: bytes of a page of the arena; None: it is contiguous.

        Raises:
            PlanError: the plan is of another net, unsafe, or needs more than `limit` bytes.
        """
        written = self.programs.get(request.program.name) if self.programs is not None and self.open else None
        if written is None:
            return None
        plan = plan_from(written, request.program, request.buffers, request.remats, request.scratch, page)
        if plan.arena_bytes > limit:
            what = f"the plan takes {human_bytes(plan.arena_bytes)} of device memory for managed buffers"
            fix = "raise -lms_budget, or delete the file"
            raise written.wrong(None, 0, f"{what}, {human_bytes(max(0, limit))} are there", fix)
        timed = time_plan(plan, request.costs)
        return replace(plan, seconds=timed.seconds, stall=timed.stall, rules=f"written in {self.path}")

    def separates(self, program: str) -> bool | None:
        """Return whether the file's plan of `program` has split backwards; None: it holds no plan."""
        written = self.programs.get(program) if self.programs is not None and self.open else None
        return None if written is None else any(makes_param_gradients(step.name) for step in written.message.step)

    def note(self, net: str, plans: Mapping[str, Plan | None], about: Collection[str]) -> None:
        """Check that the file holds the plans of just these training programs, or write it.

        Args:
            plans: program -> plan; None: nothing is managed. A later call may give only those that changed.
            about: comment lines for the head of the file.
        """
        if not self.open:
            return
        made = {name: plan for name, plan in plans.items() if plan is not None}
        if self.programs is not None:
            self._check(net, made, self.programs)
            return
        if not self.writes:
            return
        if not made:
            _log.warning("LMS: nothing is managed, so no plan is written to %s.", self.path)
            return
        self._notes |= {name: program_message(plan) for name, plan in made.items()}
        text = plan_text(net, self._notes.values(), about)
        atomic_write(self.path, text.encode(), error=PlanError)
        _log.info("LMS: the plans of %s are written to %s.", ", ".join(made), self.path)

    def _check(self, net: str, made: Mapping[str, Plan], written: Mapping[str, FileProgram]) -> None:
        """Raise PlanError unless the file and `made` name the same programs."""
        for name in made:
            if name not in written:
                raise PlanError(
                    f'there is no plan of program "{name}", which net "{net}" runs',
                    where=Where(file=self.path),
                    fix=ANEW,
                )
        for name, entry in written.items():
            if name not in made:
                raise entry.wrong(None, 0, f'program "{name}" is planned, and net "{net}" does not run it')


def _read(path: str) -> str:
    """Return the text of the file. Raises PlanError."""
    try:
        size = os.stat(path).st_size
        if size > MOST_BYTES:
            raise PlanError(
                f"not a plan: a file of {human_bytes(size)}, more than {human_bytes(MOST_BYTES)}",
                where=Where(file=path),
                fix=ANEW,
            )
        return Path(path).read_bytes().decode("utf-8")
    except OSError as failure:
        raise could_not_open(path, failure, PlanError) from None
    except UnicodeDecodeError:
        raise PlanError("not a plan: it is not UTF-8 text", where=Where(file=path), fix=ANEW) from None
