"""Own the memory of all nets of one solver: the arena, the workspace and the host slots; make plans and run them.

A net first registers its buffers (`register`), then plans its programs (`plan`, or `pack` without LMS), takes the
memory (`prepare`) and runs them (`run`). Between programs no managed buffer needs the device, so train and test nets
use the same arena in turn. `executor.py` issues a plan's operations, `memory_owners.py` words out-of-memory errors.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import ReferenceType

from ...activity import activity
from ...backend import cuda
from ...backend.device import Device, Span
from ...errors import OutOfDeviceMemory, PlanError, human_bytes
from ...memory.host import HostSlab
from ...memory.synced import SyncedMemory
from ..config import LMSConfig
from ..cost.machine import Machine, machine_of
from ..managed import Managed, choose_managed
from ..plan.plan import Plan
from ..plan.verify import verify
from ..planfile.cache import PlanCache
from ..planfile.kept_plans import kept_plan
from ..planner.choose import choose_plan
from ..planner.host_slots import with_host_slots
from ..planner.lookahead import make_plan
from ..program import Buffer, Program, layer_of
from ..remat.requested import check_uncopied
from ..request import PlanRequest
from ..rules import SEARCH, SearchBudget
from .arena import Arena
from .carry_over import CarryOver
from .compression import Compression
from .counters import Counters, Stats, statistics
from .executor import PlanRun, bring_to_host, first_uses
from .memory_owners import WITH_LMS, MemoryOwners, refuse_residents
from .recorder import Recorder

_log = logging.getLogger(__name__)
RESERVE = 0.02  # share of a GPU without a budget, left to what libraries allocate


@dataclass(eq=False)
class Runtime:
    """Own the memory of all nets of one solver on one device.

    Attributes:
        resident_bytes: bytes of unmanaged buffers of all nets.
        workspace_bytes: bytes of call scratch, which layers use in turn.
        demanded: bytes of all buffers so far, in creation order, which `-lms_frac` is compared with.
        asked: the settings that were given; config: those in force.
        idle: LMS manages nothing, since everything fits without it.
        arena: device memory that managed buffers use in turn.
        recorder: set while an iteration is recorded, see `recorder.py`.
        machine: rates of the device, for predictions; None: by the device's name and the mode of `set_math`.
        measured: measured seconds by step name, which replace predictions of `machine`.
        search: the numbers by which plans are searched for.
        on_demand: programs for which no set of rules gives a plan may copy when a step needs a value.
    """

    device: Device
    config: LMSConfig = field(default_factory=LMSConfig)
    stats: Stats = field(default_factory=Stats)
    resident_bytes: int = 0
    workspace_bytes: int = 0
    demanded: int = 0
    recorder: Recorder | None = None
    machine: Machine | None = None
    measured: dict[str, float] = field(default_factory=dict)
    search: SearchBudget = field(default_factory=lambda: SEARCH)
    on_demand: bool = True

    def __post_init__(self) -> None:
        self.asked, self.idle = self.config, False  # see `net/memory/fit.py`
        self.nets: list[ReferenceType[Any]] = []  # in the order of their creation
        self._keeps_params: bool | None = None
        self.keeps_first_params = True  # in automatic mode, where not all are resident
        self.arena = Arena(self.device)
        self.compression: Compression | None = None  # for `-lms_compress`
        self._idle_compression: Compression | None = None  # kept while LMS is idle
        self._workspace: Span | None = None
        self.memory_owners, self.carry_over = MemoryOwners(self), CarryOver()
        file = self.config.plan_file
        self.plan_cache = PlanCache(file) if file is not None else None
        if not self.device.is_host:
            budget = self.config.budget_of(self.device.capacity())
            if budget is not None:
                self.device.set_budget(budget)
            if self.machine is None:
                machine = machine_of(self.device.describe(), self.device.capacity())
                self.machine = machine.with_math(cuda.math())
            self.slab = HostSlab(self.device, self.config.host_limit)
            if self.config.compress:
                self.compression = Compression(self.device, self.config.compress)
                self.resident_bytes += self.compression.nbytes
                _log.info(
                    "Copies of activations and their gradients are lossy: they are made in %s", self.config.compress
                )

    @property
    def active(self) -> bool:
        """Return whether buffers may be managed: LMS is on, does not rest, and there is device memory."""
        return self.config.enabled and not self.device.is_host

    def set_idle(self, on: bool) -> None:
        """Turn management off, or back to what the settings say. All nets must be planned again afterwards."""
        if on == self.idle:
            return
        off = replace(self.asked, threshold_kb=0, auto=False, recompute=None, plan_file=None, compress=None)
        self.idle, self.config = on, off if on else self.asked
        self.compression, self._idle_compression = self._idle_compression, self.compression
        self.resident_bytes += sum(
            h.nbytes * sign for h, sign in ((self.compression, 1), (self._idle_compression, -1)) if h
        )
        self.workspace_bytes = 0
        self._give_workspace()

    def keeps_params(self) -> bool:
        """Return whether parameters, their gradients and history are resident although LMS is on."""
        return bool(self._keeps_params)

    def decide_params(self, lasting: int, step: int) -> bool:
        """Decide whether parameters, their gradients and history are resident, and return it.

        Only the automatic mode keeps them resident: if they take a small part of the device and leave enough for every
        step. The first net decides for all nets.

        Args:
            lasting: bytes of parameters, gradients and history.
            step: most bytes that one step needs of other buffers.
        """
        if self._keeps_params is None and self.active:
            capacity = self.device.capacity()
            fits = lasting <= self.search.params_share * capacity and lasting + step <= capacity
            self._keeps_params = self.config.auto and fits
        return self.keeps_params()

    def set_keeps_params(self, on: bool) -> None:
        """Replace what `decide_params` decided. All nets must be planned again afterwards."""
        self._keeps_params = on

    def page(self, buffers: Mapping[int, Buffer]) -> int | None:
        """Return the bytes of an arena page for a plan of these buffers; None if its arena is contiguous."""
        page = self._page_here()
        if page is None or min(self.limit(), sum(b.nbytes for b in buffers.values())) < self.search.few_pages * page:
            return None
        return page

    def _page_here(self) -> int | None:
        return self.device.page if self.config.pages else None

    def register(self, buffers: Iterable[Buffer], asked: Mapping[int, bool] | None = None) -> Managed:
        """Choose a net's managed buffers, and count the bytes of the others, which are resident."""
        if self.device.is_host:
            return Managed(frozenset(), 0, 0)
        capacity = self.device.capacity()
        managed = choose_managed(buffers, self.config, capacity, demanded=self.demanded, asked=asked)
        self.demanded += managed.demanded
        self.resident_bytes += managed.resident_bytes
        return managed

    def need_workspace(self, nbytes: int) -> None:
        """Count bytes of unmanaged call scratch; all nets and layers use the same workspace in turn."""
        if not self.device.is_host:
            self.workspace_bytes = max(self.workspace_bytes, nbytes)

    def unregister(self, managed: Managed) -> None:
        """Forget the buffers of a net that was reshaped or deleted."""
        self.resident_bytes -= managed.resident_bytes
        self.demanded -= managed.demanded

    def limit(self) -> int:
        """Return the bytes left for managed buffers by resident buffers, the workspace and the reserve."""
        capacity = self.device.capacity()
        reserve = int(capacity * RESERVE) if self.config.budget is None else 0
        unit = self.arena.unit
        return (capacity - reserve - self.resident_bytes - self.workspace_bytes) // unit * unit

    def make_room(self) -> None:
        """Shrink the arena to `limit`, after resident bytes were counted and before they are allocated.

        Call it between runs of programs. Plans that need more must be made again: see `keeps`.
        """
        if self.arena.nbytes:
            with self.device.lock, self.device.active():
                self.arena.shrink(self.limit())

    def free_arena(self) -> None:
        """Free the arena. Plans prepare it again where they run. Call it between runs of programs."""
        with self.device.lock, self.device.active():
            self.arena.shrink(0)

    def keeps(self, plan: Plan | None) -> bool:
        """Return whether a prepared plan may run: its memory is allocated, or fits beside the resident buffers."""
        return plan is None or self.arena.holds(plan) or plan.arena_bytes <= self.limit()

    @property
    def workspace_lacks(self) -> int:
        """Return the bytes that `workspace` is yet to allocate."""
        return max(0, self.workspace_bytes - (self._workspace.nbytes if self._workspace is not None else 0))

    def workspace(self) -> Span:
        """Return the device memory that all unmanaged call scratch uses in turn; grow it first if needed."""
        if self._workspace is None or self._workspace.nbytes < self.workspace_bytes:
            self._give_workspace()
            self._workspace = self.device.take(self.workspace_bytes)
        return self._workspace

    def _give_workspace(self) -> None:
        if self._workspace is not None:
            self.device.synchronize()
            self.device.give(self._workspace)
            self._workspace = None

    def plan(self, request: PlanRequest) -> Plan:
        """Plan a program, or read its plan from the file of -lms_plan or the cache folder; verify it.

        Raises:
            OutOfDeviceMemory: the program cannot fit.
            PlanError: the plan in the file is wrong or belongs to another program.
            CannotRemat: as in `choose_plan`.
        """
        with activity.doing("planning", bounded=False):
            return self._plan(request)

    def _plan(self, request: PlanRequest) -> Plan:
        plan, limit = None, self.limit()
        if self.plan_cache is not None:
            plan = self.plan_cache.find(request, limit, self._page_here())
        if plan is None:
            choose = choose_plan if self.measured else kept_plan  # no two runs measure the same
            plan = choose(
                request, self.config, limit, self.page(request.buffers), self.search, on_demand=self.on_demand
            )
        plan = with_host_slots(plan, self.slab.segment, self.search)
        verify(plan)
        check_uncopied(plan, request.requested)
        return plan

    def expect_ranks(self, count: int, *, root: bool) -> None:
        """Let the root alone of several ranks write the file of -lms_plan, not before `open_plan_file`."""
        if self.plan_cache is not None:
            self.plan_cache.open, self.plan_cache.writes = count == 1, root

    def open_plan_file(self) -> bool:
        """Allow use of the plan file: programs are final from now on. Return whether all plans must be made again."""
        if self.plan_cache is None or self.plan_cache.open:
            return False
        self.plan_cache.open = True
        return True

    def note_plans(self, net: str, plans: Mapping[str, Plan | None]) -> None:
        """Keep the plans of a solver's training programs for the file of -lms_plan."""
        if self.plan_cache is not None and self.idle:
            _log.warning("-lms_plan %s: not written, for nothing is managed", self.plan_cache.path)
        elif self.plan_cache is not None:
            self.plan_cache.note(net, plans, [f"Made on {self.device.describe()}."])

    def pack(self, program: Program, buffers: Mapping[int, Buffer]) -> Plan:
        """Plan a program, none of whose values outlives it, without copies: offsets in one arena.

        Raises:
            OutOfDeviceMemory: its buffers do not fit beside the resident ones.
        """
        plan = make_plan(
            program, buffers, limit=None, ahead=len(program.steps), page=self.page(buffers), search=self.search
        )
        if plan.bytes_in or plan.bytes_out:
            raise PlanError(f"program {program.name} copies values that should not outlive it", fix="this is a bug")
        verify(plan)
        limit = self.limit()
        if plan.arena_bytes > limit:
            fixed, needed = self.resident_bytes + self.workspace_bytes, self.resident_bytes + plan.arena_bytes
            raise OutOfDeviceMemory(
                f"the net needs {human_bytes(fixed + plan.arena_bytes)} of device memory without Large Model Support, "
                f"{human_bytes(fixed)} of it all the time and {human_bytes(plan.arena_bytes)} while {program.name} "
                f"runs; {human_bytes(self.device.capacity())} are there, "
                f"{human_bytes(plan.arena_bytes - limit)} too few",
                needed=needed,
                free=limit,
                fix=WITH_LMS,
            ).at(layer=layer_of(plan.largest_step.name))
        return plan

    def prepare(self, plan: Plan, memories: Mapping[int, SyncedMemory]) -> None:
        """Allocate the arena and the host slots that a plan needs, so that runs allocate nothing."""
        missing = [memories[b] for b in sorted(plan.host_buffers) if memories[b].wants_lock]
        self.slab.rehouse(missing, plan.host_segments)
        self.arena.prepare(plan)
        if self.compression is not None:
            self.compression.prepare(
                {memories[b]: plan.buffers[b].compressed_bytes for b in sorted(plan.compressed)}, self.slab
            )

    def check_resident(self) -> None:
        """Raise before the first iteration if the nets cannot fit: see `memory_owners.refuse_residents`."""
        if not self.device.is_host:
            refuse_residents(self)

    @property
    def held(self) -> int:
        """Return the device bytes allocated here for all nets; what each net allocated itself is not counted."""
        held = self.arena.nbytes + (self.compression.held if self.compression is not None else 0)
        return held + (self._workspace.nbytes if self._workspace is not None else 0)

    def close(self) -> None:
        """Free the arena, the workspace and the host slots. The nets of this runtime cannot run any more."""
        if self.device.is_host:
            return
        self.device.synchronize()
        self.arena.close()
        self._give_workspace()
        if self.compression is not None:
            self.compression.close()
        self.slab.close()

    def run(self, plan: Plan, memories: Mapping[int, SyncedMemory], execute: Callable[[int], None]) -> Counters:
        """Run a prepared plan; `execute(step)` runs a layer pass. Return what was counted."""
        bring_to_host(self.device, first_uses(plan), memories)
        with nullcontext() if self.recorder is None else self.recorder.run(plan):
            return PlanRun(self, plan, memories).run(execute)

    def statistics(self) -> dict[str, Any]:
        """Return counts and sizes so far: see `counters.statistics`."""
        return statistics(self)
