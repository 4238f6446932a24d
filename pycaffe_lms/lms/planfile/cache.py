"""The file of `-lms_plan`: plans that a run replays where it is there, and writes where it is not."""

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
from ..cost.machine import Costs
from ..cost.timing import time_plan
from ..plan.plan import Plan
from ..program import Buffer, Program, Step, is_params_half
from .read import ANEW, FileProgram, parse_plan, plan_from
from .write import plan_text, program_message

_log = logging.getLogger(__name__)
MOST_BYTES = 256 << 20  # of a file: some hundred times what a net of a thousand layers takes


class PlanCache:
    """path: of the file. A file that is there now is replayed, and never changed; else it is written.

    open: whether plans are replayed and written; not until several ranks, which make one each, are joined, for then
    other programs run, and all have seen whether there is a file. writes: whether this is the rank that writes.
    Raises PlanError for a file that is no plan."""

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        self.open = self.writes = True
        self._notes: dict[str, caffe_pb2.LMSProgramPlan] = {}
        self.programs: dict[str, FileProgram] | None = None
        if os.path.lexists(self.path):
            self.programs = parse_plan(_read(self.path), self.path)
            _log.info("LMS: plans of %s are replayed from %s.", ", ".join(self.programs), self.path)

    def replay(
        self,
        program: Program,
        buffers: Mapping[int, Buffer],
        costs: Costs,
        replays: Mapping[int, Step],
        scratch: frozenset[int],
        limit: int,
        page: int | None,
    ) -> Plan | None:
        """The plan of a program that the file holds, proved; None where it holds none. Arguments as of `optimise`, and
        as of `plan_from`.

        Raises PlanError for one of another net, an unsafe one, and one that needs more than `limit` bytes."""
        written = self.programs.get(program.name) if self.programs is not None and self.open else None
        if written is None:
            return None
        plan = plan_from(written, program, buffers, replays, scratch, page)
        if plan.arena_bytes > limit:
            what = f"the plan takes {human_bytes(plan.arena_bytes)} of device memory for managed buffers"
            fix = "raise -lms_budget, or delete the file"
            raise written.wrong(None, 0, f"{what}, {human_bytes(max(0, limit))} are there", fix)
        timed = time_plan(plan, costs)
        return replace(plan, seconds=timed.seconds, stall=timed.stall, rules=f"written in {self.path}")

    def separates(self, program: str) -> bool | None:
        """Whether the file's plan of a program is of one that makes gradients in two steps; None: it holds no plan."""
        written = self.programs.get(program) if self.programs is not None and self.open else None
        return None if written is None else any(is_params_half(step.name) for step in written.message.step)

    def note(self, net: str, plans: Mapping[str, Plan | None], about: Collection[str]) -> None:
        """The training programs and their plans: check that the file holds just these, or write it. `plans` may be
        some of those of the last call, made anew."""
        if not self.open:
            return
        made = {name: plan for name, plan in plans.items() if plan is not None}
        if self.programs is not None:
            self._check(net, made)
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

    def _check(self, net: str, made: Mapping[str, Plan]) -> None:
        for name in made:
            if name not in self.programs:
                raise PlanError(
                    f'there is no plan of program "{name}", which net "{net}" runs', where=Where(file=self.path),
                    fix=ANEW,
                )  # fmt: skip
        for name, entry in self.programs.items():
            if name not in made:
                raise entry.wrong(None, 0, f'program "{name}" is planned, and net "{net}" does not run it')


def _read(path: str) -> str:
    try:
        size = os.stat(path).st_size
        if size > MOST_BYTES:
            raise PlanError(f"{human_bytes(size)} are no plan", where=Where(file=path), fix=ANEW)
        return Path(path).read_bytes().decode("utf-8")
    except OSError as failure:
        raise could_not_open(path, failure, PlanError) from None
    except UnicodeDecodeError:
        raise PlanError("not a plan: it is no text", where=Where(file=path), fix=ANEW) from None
