"""Build nets for planning, with several settings and batch sizes: nothing gets memory, nothing runs.

The device is the simulated one with the memory of a GPU that the user names; `lms/cost/machine.py` has its speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import asdict, dataclass, replace
from itertools import accumulate
from typing import Any

from ...backend import get_device
from ...backend.device import ALIGN
from ...errors import CaffeError, DataError, OutOfDeviceMemory, OutOfHostMemory, UsageError, human_bytes
from ...formats.prototxt.parser import Parsed
from ...lms.config import LMSConfig
from ...lms.cost.machine import Machine
from ...lms.cost.network import Sum, Timeline
from ...lms.cost.timing import PlanTimes, step_seconds
from ...lms.layout.inplace_reuse import step_needs
from ...lms.plan.plan import OpKind, Plan
from ...lms.planner.host_slots import with_host_slots
from ...lms.program import Access, Mode, Step, merge_accesses
from ...lms.runtime.runtime import RESERVE, Runtime
from ...log import only_warnings
from ...net.build.graph import Param
from ...net.inspect.account import predicted
from ...net.memory.forecast import InCore, Least, device_bytes, in_core, least, needed
from ...net.memory.micro_batch_choice import Shortage, Splitting
from ...net.memory.program_planner import ProgramPlanner
from ...net.net import Net
from ...net.program.programs import HostedStep, Sequenced
from ...net.program.reduction import REDUCE, REDUCED, Reduction
from ...net.tuning import Tuning
from ...ops import WORKSPACE_LIMIT, ops_of
from ...proto.caffe_pb2 import TEST, TRAIN, NetParameter, SolverParameter
from ...solvers import settings, solver_class
from ...solvers.nets import NetRequest, test_requests, train_request
from ...solvers.rules import Rule
from ...solvers.update.slots import Histories
from . import batches, shapes

Tail = Callable[[], Sequence[HostedStep]] | None  # makes the updates of an iteration; None: a test forward
_UNLIMITED = 1 << 46  # bytes: more than any device has
_UNIT = 1 << 20  # of budgets in parts that are tried
_HALVES = 6  # of them, at most
_ARRANGED = 17_000  # layers in slabs, over all numbers of slabs that are tried for one such budget: some seconds
PAGE = 2 << 20  # of a GPU's memory
_GUESSES = 3  # of the largest batch, before any is planned
_TUNING = Tuning(channels_last=True, fuse=True, pack=True)  # as on a GPU


@dataclass(frozen=True)
class Outcome:
    """Tell what planning found for one net with one setting.

    Attributes:
        plan: None also if nothing is managed.
        device, host: bytes.
        seconds, stall: predicted seconds of one run, and those of them in which layers wait for copies.
        times, steps: predictions for the plan's operations and steps.
        refused: why it does not fit; then the plan and what follows from it are None or zero.
        core: needs without LMS; core_fits: they are within the memory. Both are of `Nets.with_core`, as are the seconds
            of a run that manages nothing.
    """

    batch: int | None
    net: Net
    plan: Plan | None = None
    device: int = 0
    host: int = 0
    seconds: float = 0.0
    stall: float = 0.0
    times: PlanTimes | None = None
    steps: Sequence[float] = ()
    refused: CaffeError | None = None
    core: InCore = InCore(0, 0.0)
    core_fits: bool = False

    @property
    def managed(self) -> bool:
        """Return whether Large Model Support manages buffers."""
        return self.plan is not None and self.net.runtime.active

    @property
    def rate(self) -> float | None:
        """Return the items per second; None if the net has no batch or no time is predicted."""
        return self.batch / self.seconds if self.batch and self.seconds else None


class Nets:
    """Build one prototxt's net again and again, to plan it.

    Args:
        parsed, shape: the net and the user's -shape.
        rule: of the solver whose histories count; None: phase TEST.
        machine: with the memory that is planned for.
        workspace: bytes that every convolution is assumed to use; None: what the simulated device's use, within a
            GPU's limit.
        half: hidden activations are stored as bfloat16.
        python: the code of Python layers may run.
        tuning: how the net is rearranged, `half` apart.
        page: bytes of a page of the device's memory; None: it has no pages.

    Attributes:
        batch: items per iteration; None: no layer says.
        keeps_gradients: the solver needs those of parameters after their updates.
    """

    def __init__(
        self,
        parsed: Parsed[NetParameter],
        shape: Sequence[str],
        *,
        level: int,
        stages: Sequence[str],
        rule: Rule | None,
        machine: Machine,
        lms: LMSConfig,
        workspace: int | None,
        half: bool = False,
        python: bool = False,
        tuning: Tuning = _TUNING,
        page: int | None = PAGE,
    ):
        self.parsed, self.rule, self.machine, self.lms, self._workspace = parsed, rule, machine, lms, workspace
        self.phase = TEST if rule is None else TRAIN
        self.half, self._tuning = half, replace(tuning, half=half)
        self._level, self._stages = level, stages
        self.message = shapes.with_shapes(parsed.message, shape, python)
        self._shape, self.python, self._page = shape, python, page
        self._layers = shapes.layers_in_state(self.message, self.phase, level, stages)
        self.batch = batches.batch_of(self.message, self._layers)
        self.keeps_gradients = False

    def with_memory(self, lms: LMSConfig, machine: Machine) -> Nets:
        """Return the same, to be planned with other settings of memory."""
        other = copy(self)
        other.lms, other.machine = lms, machine
        return other

    def described(self) -> dict[str, Any]:
        """Return, ready for JSON, all settings that the plans depend on besides the net's message."""
        rule = None if self.rule is None else asdict(self.rule)
        return {
            "level": self._level,
            "stages": list(self._stages),
            "rule": rule,
            "machine": asdict(self.machine),
            "lms": asdict(self.lms),
            "workspace": self._workspace,
            "tuning": asdict(self._tuning),
            "shape": list(self._shape),
            "page": self._page,
            "keeps_gradients": self.keeps_gradients,
        }

    @property
    def capacity(self) -> int:
        """Return the bytes of device memory that may be used."""
        budget = self.lms.budget_of(self.machine.memory)
        return self.machine.memory if budget is None else min(budget, self.machine.memory)

    def build(
        self, lms: LMSConfig, batch: int | None = None, memory: int | None = None, ranks: int = 1
    ) -> tuple[Net, Tail]:
        """Return the net and its solver's updates. memory: bytes of the device; None: the machine's. ranks: as it is on
        one of so many."""
        message, sizes = self.message, None
        if batch is not None and batch != self.batch:
            message = batches.with_batch(message, self._layers, batch)
            sizes = None if self.batch is None else (self.batch, batch)
        device = get_device("sim", capacity=memory or self.machine.memory)
        device.page = self._page
        _assume_workspace(ops_of(device), self._workspace)
        runtime = Runtime(device, lms, machine=self.machine)
        try:
            stand_ins = shapes.of_python_layers(message, self._shape, self.python, sizes)
            with only_warnings(), stand_ins, shapes.of_data_layers(self.parsed.message, message):
                net = Net(
                    message,
                    self.phase,
                    runtime=runtime,
                    fill=False,
                    forward_only=self.phase == TEST,
                    tuning=self._tuning,
                    level=self._level,
                    stages=self._stages,
                    lines=self.parsed.lines,
                    file=self.parsed.filename,
                    solver_count=ranks,
                )
        except DataError as error:
            raise shapes.or_a_shape(error) from None
        return net, None if self.rule is None else updates(net, self.rule, self.keeps_gradients)

    def without_lms(self, batch: int | None = None, ranks: int = 1) -> tuple[Net, Tail]:
        """Return the net and its updates as they are without Large Model Support, on a device of unlimited memory.
        ranks: see `build`."""
        names = ("pages", "split", "split_outputs", "split_slabs")
        whole = LMSConfig(**{name: getattr(self.lms, name) for name in names})
        return self.build(whole, batch, _UNLIMITED, ranks)

    def in_core(self, batch: int | None = None) -> InCore:
        """Return what the net needs without Large Model Support, whatever the machine's memory."""
        net, tail = self.without_lms(batch)
        plan = net.plan_only(tail)
        return in_core(*_program(net, tail), plan)

    def timeline(self) -> Timeline:
        """Return the iteration of one of several ranks, which sums gradients beside the backward.

        Raises OutOfDeviceMemory if it does not fit.
        """
        net, tail = self.build(self.lms, ranks=2)
        net.reduction = Reduction(net.runtime, _NoSums(), layer_wise=True)
        plan = net.plan_only(tail)
        if plan is None or not net.runtime.active:
            net, tail = self.without_lms(ranks=2)
            net.reduction = Reduction(net.runtime, _NoSums(), layer_wise=True)
            net.plan_only(tail)
            planner, sequenced = _program(net, tail)
            ends = list(accumulate(planner.costs_of(sequenced, {}, {}).steps, initial=0.0))
            return _timeline(sequenced.program.steps, ends[:-1], ends[1:], net, set())
        times, steps = predicted(net, plan), plan.program.steps
        ops = {op.step: op.id for op in plan.ops if op.kind in (OpKind.COMPUTE, OpKind.HOST)}
        starts, ends = ([at[ops[s]] for s in range(len(steps))] for at in (times.start, times.end))
        found = _timeline(steps, starts, ends, net, set(plan.buffers))
        copies = sorted((times.start[op.id], times.end[op.id]) for op in plan.ops if op.id not in ops.values())
        return replace(found, copies=copies, busy=max(times.busy_in, times.busy_out))

    def fits(self, core: InCore) -> bool:
        """Tell whether needs without Large Model Support are within the memory."""
        return core.nbytes <= self._room

    def outcome(self, batch: int | None = None, core: InCore | None = None) -> Outcome:
        """Return what planning finds for the settings and a batch size (None: the net's own).

        core: `in_core` of that batch, if it is known.
        """
        return self.with_core(self.planned(batch), core or self.in_core(batch))

    def with_core(self, found: Outcome, core: InCore) -> Outcome:
        """Return an outcome of `planned` with what the net needs without Large Model Support."""
        alike = found.refused is None and not found.managed  # it runs as it does without
        return replace(found, core=core, core_fits=self.fits(core), seconds=core.seconds if alike else found.seconds)

    def planned(self, batch: int | None = None, built: tuple[Net, Tail] | None = None) -> Outcome:
        """Return what `outcome` does, but for what `with_core` adds. built: `build(self.lms, batch)`, if known."""
        net, tail = built or self.build(self.lms, batch)
        found = Outcome(batch or self.batch, net)
        try:
            plan = net.plan_only(tail)
        except OutOfDeviceMemory as error:
            return replace(found, refused=error)
        found = replace(found, device=device_bytes(net.runtime, plan), plan=plan)
        if plan is None or not found.managed:
            return replace(found, plan=None)
        times, steps = predicted(net, plan), step_seconds(plan, net.memory.planner.requests[plan.program.name].costs)
        return replace(
            found,
            host=plan.host_bytes,
            seconds=times.seconds,
            stall=times.stall,
            times=times,
            steps=steps,
            refused=self._host_refuses(plan.host_bytes),
        )

    def _host_refuses(self, nbytes: int) -> OutOfHostMemory | None:
        """Return the error of a plan that needs so much host memory; None: it is within -lms_host."""
        limit = self.lms.host_limit
        if limit is None or nbytes <= limit:
            return None
        return OutOfHostMemory(
            f"the plan needs {human_bytes(nbytes)} of page-locked host memory, -lms_host allows {human_bytes(limit)}",
            needed=nbytes,
            free=limit,
            fix="raise -lms_host, or lower batch_size",
        )

    def least(self, core: int | None = None) -> Least:
        """Return the least -lms_budget with which the net runs, at most what it takes without Large Model Support.

        Layers are whole unless -lms_split and similar flags give numbers. The net is built again to see what is
        managed with that budget. core: bytes of `in_core`, if they are known.
        """
        return self._least(replace(self._whole(), exclude=None), self.in_core().nbytes if core is None else core)

    @property
    def gives_parts(self) -> bool:
        """Return whether a flag gives the number of parts, blocks or slabs."""
        given = self.lms.split, self.lms.split_outputs, self.lms.split_slabs
        return any(value not in (None, "auto") for value in given)

    def least_in_parts(self, whole: int) -> int | None:
        """Return a budget below `whole`, the least with whole layers, with which the net runs under `-lms_split auto`.

        Half of it is tried, then half of that, as long as it fits, and at last one budget between the least that fits
        and the one that does not. A smaller one may fit with many more slabs: looking for them takes minutes. None: not
        even half fits, or the number of parts is given.
        """
        if self.gives_parts:
            return None
        found, step = None, whole // 2
        for _ in range(_HALVES):
            budget = step // _UNIT * _UNIT if step > 64 * _UNIT else step // ALIGN * ALIGN
            if budget <= 0 or not self._fits_in_parts(budget):
                break
            found, step = budget, budget // 2
        if found is not None and found > 2 * _UNIT:
            between = found * 3 // 4 // _UNIT * _UNIT if found > 64 * _UNIT else found * 3 // 4 // ALIGN * ALIGN
            found = between if self._fits_in_parts(between) else found
        return found

    def _fits_in_parts(self, budget: int) -> bool:
        lms = replace(self.lms, budget=budget, exclude=None, split="auto", split_outputs="auto", split_slabs="auto")
        net, tail = self.build(lms, memory=_UNLIMITED)
        net.splitting.layers_left = _ARRANGED
        try:
            if not _parts_may_help(net, tail, budget):
                return False
            net.plan_only(tail, on_demand=True)
            return True
        except OutOfDeviceMemory:
            return False

    def _least(self, lms: LMSConfig, core: int) -> Least:
        found = least(*_program(*_all_managed(*self.build(lms, memory=self.capacity))))
        for _ in range(8):
            built = self.build(replace(lms, budget=found.nbytes), memory=_UNLIMITED)
            again = least(*_program(*_all_managed(*built)))
            if 0.99 * found.nbytes <= again.nbytes <= found.nbytes:
                break
            found = again
        return found if found.nbytes < core else Least(core, core, "", ())

    def largest_without_lms(self, core: int) -> int:
        """Return a batch that fits without Large Model Support, about the largest; 0: none was found.

        core: bytes of `in_core` for the net's own batch, which do not fit.
        """
        assert self.batch is not None, "a net without a batch has no larger one"
        best, seen = 0, [(self.batch, core)]
        guess = max(1, self.batch * self._room // core)
        for _ in range(_GUESSES + 1):
            seen.append((guess, self.in_core(guess).nbytes))
            if seen[-1][1] <= self._room:
                best = max(best, guess)
            (a, one), (b, two) = seen[-2:]
            if two == one:
                break
            guess = max(1, b + (self._room - two) * (b - a) // (two - one))
            if guess in dict(seen):
                break
        return best

    def largest(self, start: int) -> tuple[int, str]:
        """Return the largest batch that fits, 0 if none does, and why a larger one does not.

        The search begins at `start`. Layers are whole unless -lms_split and similar flags give numbers.
        """
        good, bad, why = 0, None, ""
        tried, step = self._guess(start), 1
        while bad is None or bad - good > 1:
            refused = self._refuses(tried)
            if refused is None:
                good = tried
                if good >= batches.MOST:
                    return good, "larger ones were not tried"
            else:
                bad, why = tried, refused
            if bad is not None and good:
                tried = (good + bad) // 2
            else:  # the guess is close, mostly
                tried = min(good + step, batches.MOST) if bad is None else max(bad // 2, bad - step)
                step *= 4
        return good, why

    def _guess(self, start: int) -> int:
        """Return the largest batch that might fit: the largest step would just fit if what is needed grew on as between
        the last two batches that were tried."""
        seen: list[tuple[int, int]] = []
        guess = start
        try:
            for batch in (start, 2 * start):
                seen.append((batch, needed(*_program(*self.build(self._whole(), batch)))))
            for _ in range(_GUESSES):
                (a, one), (b, two) = seen[-2:]
                if (two - one) * (b - a) <= 0:
                    break
                guess = min(max(1, b + (self._room - two) * (b - a) // (two - one)), batches.MOST)
                if guess == b:
                    break
                seen.append((guess, needed(*_program(*self.build(self._whole(), guess)))))
        except CaffeError:  # too large to be planned at all
            return guess
        return guess

    @property
    def _room(self) -> int:
        """Return the bytes of `capacity` that are planned for."""
        return self.capacity - (int(self.capacity * RESERVE) if self.lms.budget is None else 0)

    def _whole(self) -> LMSConfig:
        """Return the settings without what would be chosen by the memory there is."""
        lms = self.lms
        return replace(lms, split=lms.parts or 0, split_outputs=lms.blocks or 0, split_slabs=lms.slabs or 0)

    def _refuses(self, batch: int) -> str | None:
        """Return why a batch does not fit; None: it does."""
        try:
            net, tail = self.build(self._whole(), batch)
            plan = net.plan_only(tail, on_demand=True)
            if plan is not None and self.lms.host_limit is not None:
                host_bytes = with_host_slots(plan, net.runtime.slab.segment).host_bytes
                if self._host_refuses(host_bytes):
                    plan = net.plan_only(tail)  # on demand copies most, so another plan may need less
                    refused = self._host_refuses(plan.host_bytes) if plan is not None else None
                    return None if refused is None else str(refused)
        except CaffeError as error:
            return str(error)
        return None


def _all_managed(net: Net, tail: Tail) -> tuple[Net, Tail]:
    """Return the net and its updates with no parameter left on the device only because there is room for it."""
    runtime = net.runtime
    if runtime.config.auto and not runtime.keeps_params():
        runtime.keeps_first_params = False
        net.rearrange()
    return net, tail


def _program(net: Net, tail: Tail) -> tuple[ProgramPlanner, Sequenced]:
    """Return the net's planner and its program with the updates of `tail`."""
    return net.memory.planner, net.program_of(tail)


def _parts_may_help(net: Net, tail: Tail, limit: int) -> bool:
    """Tell whether every step that needs more than `limit` bytes might run in parts: of the batch, of outputs, slabs.

    The net is one with whole layers that may choose parts. Quick: planning finds out whether it helps.
    """
    planner, sequenced = _program(net, tail)
    buffers = planner.request_of(sequenced).buffers
    need = step_needs(sequenced.program, buffers)
    short = Shortage(net.graph, net.arrangement.micro_batched, sequenced.steps, need, buffers, limit)
    return max(need, default=0) <= limit or Splitting(asked_slabs=None).widen(short)


class _NoSums:
    """Stand for the communicator of a net that is only planned."""

    size = 1
    can_capture = True

    def average(self, arrays: Sequence[Any]) -> float:
        raise AssertionError("nothing runs")


def _timeline(
    steps: Sequence[Step],
    starts: Sequence[float],
    ends: Sequence[float],
    net: Net,
    managed: AbstractSet[int],
) -> Timeline:
    """Return the iteration of these steps without the seconds of the sums among them, with exchanges of layers."""
    sums, joined, apart = list[Sum](), 0.0, 0.0
    buffers, exchanged = net.memory.buffers, _exchanged(net)
    for step, start, end in zip(steps, starts, ends, strict=True):
        if step.name.startswith(REDUCE):
            ids = [a.buffer for a in step.accesses]
            beside = not managed & set(ids)
            sums.append(Sum(sum(buffers[b].nbytes for b in ids), start - apart, end - start, beside))
            apart += end - start
        elif step.name == REDUCED:
            joined = start - apart
            apart += end - start
        elif step.name in exchanged:
            forward = step.name.startswith("forward:")
            sums.append(Sum(exchanged[step.name], end - apart, 0.0, False, layer=True, gathered=forward))
    return Timeline(sums, joined, max(ends) - apart)


def _exchanged(net: Net) -> dict[str, int]:
    """Return {name of a step: bytes that each rank gives to the others in it} of the steps of layers that exchange."""
    found = {}
    for node in net.run_graph.exchanging:
        for name, numbers, passes in zip(
            ("forward", "backward"), node.layer.exchanged(), (True, node.propagate[0]), strict=True
        ):
            if passes:
                found[f"{name}:{node.name}"] = numbers * net.dtype.itemsize
    return found


class _Assumed:
    """Stand for the plan of a convolution, with another workspace."""

    def __init__(self, plan: Any, nbytes: int):
        self._plan, self.workspace_bytes = plan, nbytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)


def _assume_workspace(ops: Any, nbytes: int | None) -> None:
    """Set the workspace of convolutions planned from now on; None: what they ask for, within a GPU's limit."""
    plan_one = ops.conv.plan

    def conv_plan(*args: Any, **kwargs: Any) -> _Assumed:
        plan = plan_one(*args, **kwargs)
        return _Assumed(plan, min(plan.workspace_bytes, WORKSPACE_LIMIT["cuda"]) if nbytes is None else nbytes)

    ops.bind("conv_plan", conv_plan)


def updates(net: Net, rule: Rule, keeps_gradients: bool = False) -> Callable[[], list[HostedStep]]:
    """Add a solver's histories to the net; return what makes its update steps, for planning only: they do nothing.

    keeps_gradients: they are needed after the updates."""
    histories = Histories(net, rule.slots)
    moving = [p for p in net.graph.learnable if p.lr_mult != 0]
    histories.follow(moving)
    return lambda: _update_steps(net, histories, moving, keeps_gradients)


def _update_steps(net: Net, histories: Histories, moving: Sequence[Param], keeps_gradients: bool) -> list[HostedStep]:
    histories.follow(moving)
    drops = net.tuning.pack and not keeps_gradients and net.reduction is None
    steps: list[HostedStep] = []
    for p, slots in histories.pieces(moving):
        accesses = tuple(Access(b, Mode.UPDATE) for b in (p.data, p.diff, *slots))
        ended = frozenset({p.diff}) if drops else frozenset()
        step = Step(f"update:{net.run_graph.param_name(p)}", accesses)
        steps.append(HostedStep(step, lambda: None, last_uses=ended))
    if steps and (net.runtime.keeps_params() or not net.runtime.active):  # then it is one step
        together = tuple(a for step in steps for a in step.step.accesses)
        return [HostedStep(Step("update:all", merge_accesses(together)), lambda: None)]
    return steps


def nets_of(
    solver: Parsed[SolverParameter],
    given: Sequence[str],
    level: int,
    stages: Sequence[str],
    make: Callable[..., Nets],
) -> Nets:
    """Return the train net of a solver file, after checking that `train` would begin with it.

    Its settings, train net and test nets are checked; the device's memory and the file system are not looked at.

    Args:
        given: each -shape, for the nets that have its blob.
        make: makes Nets of (parsed, shape, level=, rule=).

    Raises:
        CaffeError: what `train` raises before its first iteration.
        UsageError: no net has the blob of a shape.
    """
    param, file, lines = solver.message, solver.filename, solver.lines
    param.train_state.level = level
    param.train_state.stage.extend(stages)
    rule = solver_class(param, file, lines).rule
    settings.check_file(param, rule, file, lines)
    request = train_request(param, file, lines)
    unused = set(given)

    def made(request: NetRequest, rule: Rule | None) -> Nets:
        tops = {top for layer in request.message.layer for top in layer.top}
        shapes = [shape for shape in given if "=" not in shape or shape.partition("=")[0] in tops]
        unused.difference_update(shapes)
        level = request.message.state.level
        nets = make(Parsed(request.message, request.lines, request.file), shapes, level=level, rule=rule)
        nets.keeps_gradients = param.snapshot_diff or param.debug_info
        nets.build(nets.lms)
        return nets

    train = made(request, rule)
    for test in test_requests(param, file, lines):
        made(test, None)
    if unused:
        raise UsageError(f"-shape {min(unused)}: no net of {file} has that blob", fix="name a top of a data layer")
    return train
