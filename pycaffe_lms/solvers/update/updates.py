"""Updates the parameters of a net: owns the histories, the scalars, the steps and the programs that do it.

An update is the tail of an iteration's program. Where callbacks or clipping read the gradients first, it consists of
programs of its own: "clear" before the forward, "norms" and "update" after the backward. `slots.py` makes the
histories. `UpdateAll` makes one step of all updates where Large Model Support manages none of their memory.
Source: BVLC/caffe, sgd_solver.cpp (formulas and their order).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ...arrays import AnyArray
from ...backend.device import Span
from ...blob import Blob
from ...layers.base import count
from ...lms.program import Access, BufferId, Mode, Step
from ...memory.states import Ask
from ...net.build.graph import Param
from ...net.memory.fit import Need
from ...net.net import Net
from ...net.program.programs import HostedStep, Sequenced, sequence
from ...net.program.tree_reduction import kept_level
from ...ops import ops_of
from ...ops.update_rules import UpdateNumbers
from ...ops.update_table import table_words
from ...proto.caffe_pb2 import SolverParameter
from .. import local_rates
from ..display import number
from ..lr_policy import momentum, weight_decay
from ..rules import Rule
from .divided import DividedHistory
from .sharing import Gathers, Shares
from .slots import Histories, Slots
from .virtual_ranks import VirtualRanks

_log = logging.getLogger(__name__)
_NUMBERS = len(UpdateNumbers._fields)
_PARTIALS = 1024  # doubles of workspace that a sum of squares needs on a device
Kind = tuple[str, bool, Sequence[HostedStep]]  # of a program with a backward: its key, whether the first, its tail


class Updates:
    """Make and run the updates of one net's parameters.

    Args:
        param: the settings, read anew for every update.
        callbacks: what the solver calls between backward and update; the list may change.
        virtual: the virtual ranks that this process computes; None: it is one rank.
        shares: of which this rank keeps and updates its own; None: it keeps and updates all.
    """

    def __init__(
        self,
        net: Net,
        rule: Rule,
        param: SolverParameter,
        callbacks: Sequence[object],
        virtual: VirtualRanks | None = None,
        shares: Shares | None = None,
    ):
        self._net, self._rule, self._param, self._callbacks = net, rule, param, callbacks
        self._virtual, self._shares = virtual, shares
        self._said_clipping: int | None = None  # in which stretch of `display` iterations it was logged last
        self._together: dict[bool, UpdateAll] = {}  # by whether the update is a program of its own
        reached = self._gradients_that_backward_writes()
        pieces = net.arrangement.pieces
        self._moving = [
            p for p in net.graph.learnable if p.lr_mult != 0 or any(piece.diff in reached for piece in pieces(p))
        ]
        self._histories = Histories(net, rule.slots, shares=shares)
        self.divided = DividedHistory(net, self._histories, rule.slots, shares) if shares is not None else None
        self._squares: list[BufferId] = []  # buffers: sums of squares, and workspace for them
        self._rows: BufferId | None = None  # buffer: `UpdateNumbers` of each piece, where parameters have own rates
        self._numbers = net.memory.store.add(
            "solver.numbers", 8 * _NUMBERS
        )  # `UpdateNumbers`, which change between runs
        self._make_steps()

    def _make_steps(self) -> None:
        net = self._net
        memory = self._made_for = net.memory
        self._reached = self._gradients_that_backward_writes()
        if self._virtual is not None:
            self._virtual.follow(self._reached)
        anew = self._histories.follow(self._moving)
        self.pieces = list(self._histories.pieces(self._moving))  # parameters, or blocks of them, with their histories
        sizes = [n for p, _ in self.pieces if (n := self._own(p)[1])]
        self._local = local_rates.asked(self._param)
        possible = UpdateAll.possible(net) and bool(sizes) and not self._local
        if anew or possible is not bool(self._together):
            memory.store.drop(update.table for update in self._together.values())
            self._together = {}
        if possible and not self._together:
            self._together = {apart: UpdateAll(net, self._rule, self._numbers, sizes, apart) for apart in (False, True)}
        params = [p for p, _ in self.pieces]
        if self._local and (anew or self._rows is None):
            memory.store.drop(() if self._rows is None else (self._rows,))
            self._rows = memory.store.add("solver.local_numbers", 8 * _NUMBERS * max(1, len(params)))
        self.tail, self._apart = self._update_steps(False), self._update_steps(True)
        self._clears = [self._clear_step(p) for p in params if p.diff not in self._reached]
        self._clips = self._param.clip_gradients >= 0
        if (self._clips or self._local) and (anew or not self._squares):
            memory.store.drop(self._squares)
            sizes_of = {"squares": 2 * max(1, len(params)), "partials": _PARTIALS}
            self._squares = [memory.store.add(f"solver.{name}", 8 * n) for name, n in sizes_of.items()]
        self._norms = [self._norm_step(i, p, p.diff) for i, p in enumerate(params) if self._clips or self._local]
        self._norms += [self._norm_step(len(params) + i, p, p.data) for i, p in enumerate(params) if self._local]

    def follow_net(self) -> None:
        """Make the steps anew where a reshape gave the net other buffers, or settings need other steps."""
        self._net.refresh_shapes()
        made = (self._clips, self._local)
        wanted = (self._param.clip_gradients >= 0, local_rates.asked(self._param))
        if self._made_for is not self._net.memory or made != wanted:
            self._make_steps()

    def _gradients_that_backward_writes(self) -> set[int]:
        steps = self._net.arrangement.whole_backward(accumulate=False)
        return {a.buffer for s in steps for a in s.step.accesses if a.mode is not Mode.READ}

    # -- programs ---------------------------------------------------------------------------------------------
    @property
    def fused(self) -> bool:
        """Return whether updates follow the backward in one program, since nothing reads the gradients in between, and
        no rate depends on the loss."""
        return not (self._norms or self._callbacks or self._param.lr_policy == "plateau")

    @property
    def passes(self) -> int:
        """Return the number of passes of an iteration: iter_size for each virtual rank of this process."""
        return self._param.iter_size * (self._virtual.inside if self._virtual is not None else 1)

    def kind(self, i: int) -> Kind:
        """Return the program of pass `i` of an iteration. The last pass averages gradients over ranks."""
        n = self._param.iter_size
        rank, of_rank = divmod(i, n)
        apart = "" if self.fused and self.tail else ", update apart"
        key, steps = "train first" if of_rank == 0 else "train more", list[HostedStep]()
        if i == self.passes - 1:
            key, steps = "train" if n == 1 else "train last", [] if apart else self.tail
        elif of_rank == n - 1 and self._virtual is not None:
            key, steps = f"train, sum {kept_level(rank)}", self._virtual.keep_steps(rank)
        return f"{key}{apart}", of_rank == 0, steps

    def kinds(self) -> list[Kind]:
        """Return the programs with a backward that an iteration runs; the last one averages gradients over ranks."""
        return list({kind[0]: kind for kind in map(self.kind, range(self.passes))}.values())

    def _programs_apart(self) -> Mapping[str, Callable[[], Sequenced]]:
        """Return the programs of an update of its own: key -> how to make it."""
        squares = {a.buffer for s in self._norms for a in s.step.accesses}
        return {
            "clear": lambda: sequence("clear", self._clears, None),
            "norms": lambda: sequence("norms", self._norms, squares),
            "update": lambda: sequence("update", self._apart, None),
        }

    def need(self) -> Need:
        """Return what an iteration will run, as `fit` plans it."""

        def plan() -> None:
            self.follow_net()
            self._net.prepare_iterations(self.kinds())
            if not self.fused:
                for key, build in self._programs_apart().items():
                    self._net.memory.programs.bind(key, build)

        def seconds() -> float:
            self.follow_net()
            return self._net.predicted_seconds(self.kinds())

        def updates() -> list[HostedStep]:
            self.follow_net()
            return self.tail if self.fused else [*self._norms, *self._apart]

        return Need(self._net, plan, seconds, updates)

    def replan(self) -> list[str]:
        """Plan the programs again, now that times were measured; return what the log says about it."""
        said = []
        kinds = self.kinds()
        for key, first, tail in kinds:
            found = self._net.replan(key, first, tail, reduce=key == kinds[-1][0])
            if found is not None:
                before, after = (f"{1e3 * seconds:.1f} ms" for seconds in found)
                kept = "it stays" if before == after else f"another takes {after}"
                said.append(f"with measured times the plan of {key} takes {before}; {kept}")
        return said

    # -- one iteration ----------------------------------------------------------------------------------------
    def set_numbers(self, rate: float, iteration: int, clip_scale: float = 1.0) -> UpdateNumbers:
        """Set the scalars of the next update, and return them.

        Args:
            rate: that of the policy.
            clip_scale: factor of gradients.
        """
        p, rule, memory = self._param, self._rule, self._net.memory.memories[self._numbers]
        keep, keep2, delta = rule.numbers(p)
        if rule.keep == "momentum":
            keep = momentum(p, iteration, rate)
        numbers = UpdateNumbers(
            rule.rate(rate, iteration, p),
            clip_scale / p.iter_size,
            weight_decay(p, iteration),
            float(p.regularization_type == "L1"),
            keep,
            keep2,
            delta,
            rate,
        )
        memory.ask(Ask.OVERWRITE_CPU)
        memory.host_array((_NUMBERS,), np.float64)[...] = numbers
        return numbers

    def _set_local_numbers(self, rate: float, numbers: UpdateNumbers) -> None:
        """Set the scalars of each piece, whose rate follows from the norms of its whole parameter."""
        assert self._rows is not None
        gradients, weights = self._norms_found()
        rows, at = np.tile(numbers, (len(self.pieces), 1)), 0
        for param in self._moving:
            own = slice(at, at + len(self._net.arrangement.pieces(param)))
            weight = math.sqrt(float(weights[own].sum()))
            gradient = numbers.scale * math.sqrt(float(gradients[own].sum()))
            rows[own, 0] = local_rates.local_rate(self._param, rate, numbers.keep, param.lr_mult, weight, gradient)
            at = own.stop
        memory = self._net.memory.memories[self._rows]
        memory.ask(Ask.OVERWRITE_CPU)
        memory.host_array(rows.shape, np.float64)[...] = rows

    def _norms_found(self) -> tuple[AnyArray, AnyArray]:
        """Return the sums of squares of the pieces: of gradients, and of values where those were asked for."""
        memory = self._net.memory.memories[self._squares[0]]
        n = len(self.pieces)
        squares = Blob("solver.squares", (2 * n,), np.float64, (memory, None)).read_data()
        return squares[:n], squares[n:]

    def clear(self) -> None:
        """Clear gradients that no backward writes, before a forward whose update is a program of its own."""
        self._run_apart("clear")

    def run_tail(self, i: int) -> None:
        """Run what shapes changing within pass `i` of an iteration kept from running behind its backward."""
        self.follow_net()
        key, _, steps = self.kind(i)
        self._net.memory.run(f"tail of {key} after a reshape", lambda: sequence("update", steps, None))

    def run_apart(self, rate: float, iteration: int) -> None:
        """Clip the gradients that are there now, where that is set, and update. rate: that of the policy."""
        clip_scale = 1.0
        if self._norms:
            self._run_apart("norms")
            clip_scale = self._clip(iteration) if self._clips else 1.0
        numbers = self.set_numbers(rate, iteration, clip_scale)
        if self._local:
            self._set_local_numbers(rate, numbers)
        self._run_apart("update")

    def _run_apart(self, key: str) -> None:
        self._net.memory.run(key, self._programs_apart()[key])

    def _clip(self, iteration: int) -> float:
        """Return by what gradients are multiplied; log the first time of every `display` iterations."""
        norm = math.sqrt(float(self._norms_found()[0].sum()))
        limit: float = self._param.clip_gradients
        if not norm > limit:
            return 1.0
        display = iteration // self._param.display if self._param.display else 0
        said, self._said_clipping = self._said_clipping == display, display
        _log.log(
            logging.DEBUG if said else logging.INFO,
            "Gradient clipping: scaling down gradients (L2 norm %s > %s) by scale factor %s",
            number(norm),
            number(limit),
            number(limit / norm),
        )
        return limit / norm

    # -- steps ------------------------------------------------------------------------------------------------
    def _update_steps(self, apart: bool) -> list[HostedStep]:
        """Return the steps that update. apart: in a program of their own, where every gradient has a value, if only
        zeros; else those that no backward writes have none."""
        pieces = [(p, slots) for p, slots in self.pieces if self._own(p)[1]]
        has = [apart or p.diff in self._reached for p, _ in pieces]
        gathers = [self._gather_step(p) for p, _ in self.pieces] if self._shares is not None else []
        if self._together:
            return [self._together[apart].step(pieces, has, [self._own(p) for p, _ in pieces]), *gathers]
        at = [i for i, (p, _) in enumerate(self.pieces) if self._own(p)[1]]
        steps = (self._update_step(i, *piece, h) for i, piece, h in zip(at, pieces, has, strict=True))
        return [*steps, *gathers]

    def _own(self, param: Param) -> tuple[int, int]:
        """Return where this rank's share of a parameter begins, and its elements."""
        n = count(param.shape)
        return self._shares.own(n) if self._shares is not None else (0, n)

    def _gather_step(self, param: Param) -> HostedStep:
        """Return the step that fills a parameter with the shares that the ranks have updated."""
        shares = self._shares
        assert shares is not None
        step = Step(f"gather:{self._net.run_graph.param_name(param)}", (Access(param.data, Mode.UPDATE),))

        def run() -> None:
            shares.gather(_array(self._net, param.data, (count(param.shape),), self._net.dtype))

        captures = shares.communicator is not None and shares.communicator.can_capture
        return HostedStep(step, run, repeatable=captures)

    def join(self, communicator: Gathers) -> None:
        """Gather what the ranks have updated through this communicator from now on."""
        if self._shares is not None:
            self._shares.communicator = communicator
            self._make_steps()

    def _update_step(self, i: int, param: Param, history: Slots, has_gradient: bool) -> HostedStep:
        """Return the update of piece `i`. has_gradient: False where no backward writes the gradient: it is zero, but
        the buffer may hold the last update and must be cleared."""
        numbers, row = (self._numbers, 0) if not self._local or self._rows is None else (self._rows, i)
        accesses = tuple(Access(b, Mode.UPDATE) for b in (param.data, *history))
        accesses += (Access(param.diff, Mode.UPDATE if has_gradient else Mode.OVERWRITE),)
        accesses += (Access(numbers, Mode.READ),)
        name = f"update:{self._net.run_graph.param_name(param)}"
        lr_mult = param.lr_mult if numbers == self._numbers else 1.0  # in the row's own rate already

        def run() -> None:
            own = _array(self._net, numbers, (_NUMBERS,), np.float64, row * _NUMBERS)
            self._run_update(param, history, has_gradient, own, lr_mult)

        ended = frozenset({param.diff}) if self._drops_gradients else frozenset()
        return HostedStep(Step(name, accesses), run, repeatable=True, last_uses=ended)

    @property
    def _drops_gradients(self) -> bool:
        """Return whether nobody needs a gradient after its update: no snapshot, no log, no other rank."""
        asked = self._param.snapshot_diff or self._param.debug_info
        return self._net.tuning.pack and not asked and self._net.solver_count == 1

    def _run_update(self, param: Param, history: Slots, has_gradient: bool, numbers: AnyArray, lr_mult: float) -> None:
        dtype = self._net.dtype
        start, n = self._own(param)
        weight, diff = (_array(self._net, b, (n,), dtype, start) for b in (param.data, param.diff))
        slots = [_array(self._net, b, (n,), dtype) for b in history]
        ops = ops_of(self._net.device)
        if not has_gradient:
            ops.fill(diff, 0.0)
        ops.solver_update(self._rule.operation, weight, diff, slots, numbers, lr_mult, param.decay_mult)

    def _clear_step(self, param: Param) -> HostedStep:
        step = Step(f"clear:{self._net.run_graph.param_name(param)}", (Access(param.diff, Mode.OVERWRITE),))

        def clear() -> None:
            ops_of(self._net.device).fill(_array(self._net, param.diff, param.shape, self._net.dtype), 0.0)

        return HostedStep(step, clear)

    def _norm_step(self, i: int, param: Param, buffer: int) -> HostedStep:
        """Return the step that writes sum of squares `i`: of a piece's gradient, or of its values."""
        accesses = (
            Access(buffer, Mode.READ),
            Access(self._squares[0], Mode.UPDATE),
            Access(self._squares[1], Mode.OVERWRITE),
        )
        name = f"{'norm' if buffer == param.diff else 'weight norm'}:{self._net.run_graph.param_name(param)}"
        return HostedStep(Step(name, accesses), lambda: self._run_norm(i, param, buffer), repeatable=True)

    def _run_norm(self, i: int, param: Param, buffer: int) -> None:
        squares, partials = self._squares
        out = _array(self._net, squares, (2 * max(1, len(self.pieces)),), np.float64)
        work = _array(self._net, partials, (_PARTIALS,), np.float64)
        ops_of(self._net.device).sum_squares(_array(self._net, buffer, param.shape, self._net.dtype), out, i, work)

    # -- history ----------------------------------------------------------------------------------------------
    def history_blobs(self) -> list[Blob | tuple[int, ...]]:
        """Return histories in file order: slot by slot, parameters in learnable order; of a parameter that is never
        updated only the shape (a file has zeros)."""
        kept, params = self._histories, self._net.graph.learnable
        here = self._shares is None  # else only shapes
        return [
            kept.blob(p, slot) if here and kept.has(p) else p.shape for slot in range(self._rule.slots) for p in params
        ]


class UpdateAll:
    """Make one step, and one launch, of all updates. `table` is the buffer of its table: see `ops/update_table.py`.

    Args:
        numbers: buffer of the `UpdateNumbers`, as float64.
        sizes: numbers of elements of the parameters, or blocks of them, that are updated.
        apart: whether the update is a program of its own; it gives the table its name.
    """

    @staticmethod
    def possible(net: Net) -> bool:
        """Return whether all updates of `net` can be one launch: on a device where no parameter is managed."""
        return not net.device.is_host and (not net.runtime.active or net.runtime.keeps_params())

    def __init__(self, net: Net, rule: Rule, numbers: int, sizes: Sequence[int], apart: bool):
        self._net, self._rule, self._numbers = net, rule, numbers
        self._params: Sequence[Param] = ()
        self._histories: Sequence[Slots] = ()
        self._own: Sequence[tuple[int, int]] = ()
        self._words = table_words(sizes)
        self.table = net.memory.store.add(f"solver.table{int(apart)}", 8 * self._words)
        self._plan: Any = None  # what `ops.solver_update_all_plan` returned
        self._spans: Sequence[Span | None] = ()  # where the arrays were then

    def step(
        self, pieces: Sequence[tuple[Param, Slots]], has_gradient: Sequence[bool], own: Sequence[tuple[int, int]]
    ) -> HostedStep:
        """Return the step for the net as it is now.

        Args:
            pieces: what is updated, with its histories.
            has_gradient: for each piece; False where no backward writes the gradient, which is zero.
            own: for each piece, where what is updated begins, and its elements.
        """
        self._plan, self._own = None, own
        self._params, self._histories = [p for p, _ in pieces], list(zip(*(slots for _, slots in pieces), strict=True))
        accesses = [Access(b, Mode.UPDATE) for p, slots in pieces for b in (p.data, *slots)]
        accesses += [
            Access(p.diff, Mode.UPDATE if has else Mode.OVERWRITE)
            for p, has in zip(self._params, has_gradient, strict=True)
        ]
        accesses += [Access(self._numbers, Mode.READ), Access(self.table, Mode.READ)]
        step = Step("update:all", tuple(accesses))
        return HostedStep(step, lambda: self._run(step, has_gradient), repeatable=True)

    def _run(self, step: Step, has_gradient: Sequence[bool]) -> None:
        net = self._net
        memories = net.memory.memories
        spans = [memories[a.buffer].span for a in step.accesses]
        if self._plan is None or any(a is not b for a, b in zip(spans, self._spans, strict=True)):
            self._plan, self._spans = self._make_plan(has_gradient), spans
            memory = memories[self.table]
            memory.ask(Ask.OVERWRITE_CPU)
            memory.host_array((self._words,), np.int64)[...] = self._plan.table
            memory.ask(Ask.READ_GPU)
        table = _array(self._net, self.table, (self._words,), np.int64)
        numbers = _array(self._net, self._numbers, (_NUMBERS,), np.float64)
        ops_of(net.device).solver_update_all(self._rule.operation, self._plan, table, numbers)

    def _make_plan(self, has_gradient: Sequence[bool]) -> Any:
        net, params = self._net, self._params

        def arrays(buffers: Iterable[int], *, part: bool) -> list[AnyArray]:
            found = zip(buffers, self._own, strict=True)
            return [_array(net, b, (n,), net.dtype, start if part else 0) for b, (start, n) in found]

        return ops_of(net.device).solver_update_all_plan(
            arrays((p.data for p in params), part=True),
            arrays((p.diff for p in params), part=True),
            [arrays(h, part=False) for h in self._histories],
            [p.lr_mult for p in params],
            [p.decay_mult for p in params],
            has_gradient,
        )


def _array(net: Net, buffer: int, shape: Sequence[int], dtype: DTypeLike, start: int = 0) -> AnyArray:
    """Return a buffer from element `start` on as an array where the net runs. Its memory must have been asked for."""
    return net.memory.executor.array(buffer, tuple(shape), np.dtype(dtype), net.device.is_host, start)
