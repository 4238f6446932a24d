"""Stochastic gradient descent with momentum, weight decay and gradient clipping.

Source: BVLC/caffe, sgd_solver.cpp (formulas and their order).
"""

from __future__ import annotations

import logging
import math

import numpy as np

from ..blob import Blob
from ..layers.base import count
from ..lms.program import Access, Mode, Step
from ..memory.states import Ask
from ..net.build.graph import Param
from ..net.memory.fit import fitted
from ..net.program.programs import HostedStep, sequence
from ..ops import ops_of
from ..ops.update_rules import UpdateNumbers
from . import debug
from .base import Solver, number
from .lr_policy import learning_rate
from .rules import RULES
from .slots import Histories, Slots
from .update_all import UpdateAll

_log = logging.getLogger(__name__)
_NUMBERS = len(UpdateNumbers._fields)
_PARTIALS = 1024  # doubles of workspace that a sum of squares needs on a device


class SGDSolver(Solver):
    """h = momentum * h + rate * lr_mult * (g + decay); W -= h, with g clipped and divided by iter_size first.

    The decay is weight_decay * decay_mult times W (L2) or sign(W) (L1). Parameters with lr_mult 0 do not move. Where
    their gradients are made all the same, they count in the norm: under force_backward, in RNN and LSTM, and where a
    layer shares the parameter whose own lr_mult is not 0.
    """

    rule = RULES["SGD"]

    def _set_up(self) -> None:
        net = self.net
        self._together: dict[bool, UpdateAll] = {}
        self._reached = self._gradients_that_backward_writes()
        self._moving = [p for p in net.graph.learnable if p.lr_mult != 0 or self._is_reached(p)]
        self._histories = Histories(net, self.rule.slots)
        self._pieces: list[tuple[Param, Slots]] = []  # of `_moving`, with their histories
        self._squares: list[int] = []
        self._numbers = net.memory.store.add("solver.numbers", 8 * _NUMBERS)  # they change between two runs
        self._make_steps()

    def _make_steps(self) -> None:
        memory = self._made_for = self.net.memory
        self._reached = self._gradients_that_backward_writes()
        anew = self._histories.follow(self._moving)
        self._pieces = list(self._histories.pieces(self._moving))
        possible = UpdateAll.possible(self.net)
        if anew or possible is not bool(self._together):
            memory.store.drop(update.table for update in self._together.values())
            self._together = {}
        if possible and not self._together:
            more = (self._numbers, [count(p.shape) for p, _ in self._pieces])
            self._together = {apart: UpdateAll(self.net, self.rule, *more, apart) for apart in (False, True)}
        self._tail, self._apart = self._update_steps(False), self._update_steps(True)
        pieces = [p for p, _ in self._pieces]
        self._clears = [self._clear_step(p) for p in pieces if p.diff not in self._reached]
        self._clips = self.param.clip_gradients >= 0
        if self._clips and (anew or not self._squares):
            memory.store.drop(self._squares)
            sizes = {"squares": max(1, len(pieces)), "partials": _PARTIALS}
            self._squares = [memory.store.add(f"solver.{name}", 8 * n) for name, n in sizes.items()]
        self._norms = [self._norm_step(i, p) for i, p in enumerate(pieces) if self._clips]

    def _update_steps(self, apart: bool) -> list[HostedStep]:
        """apart: every gradient has a value, if only zeros; else those that no backward writes have none."""
        has = [apart or p.diff in self._reached for p, _ in self._pieces]
        if self._together:
            return [self._together[apart].step(self._pieces, has)]
        return [self._update_step(p, slots, h) for (p, slots), h in zip(self._pieces, has, strict=True)]

    def _set_numbers(self, rate: float, clip_scale: float) -> None:
        """What the next updates use."""
        p, memory = self.param, self.net.memory.memories[self._numbers]
        memory.ask(Ask.OVERWRITE_CPU)
        memory.host_array((_NUMBERS,), np.float64)[...] = UpdateNumbers(
            self.rule.rate(rate, self.iter, p),
            clip_scale / p.iter_size,
            p.weight_decay,
            float(p.regularization_type == "L1"),
            *self.rule.numbers(p),
        )

    def _follow_net(self) -> None:
        """After a reshape the net's buffers are others (the history's stay): make the steps anew; likewise where
        clipping has been turned on or off."""
        self.net.refresh_shapes()
        if self._made_for is not self.net.memory or self._clips != (self.param.clip_gradients >= 0):
            self._make_steps()

    def _is_reached(self, param: Param) -> bool:
        return any(piece.diff in self._reached for piece in self.net.arrangement.pieces(param))

    def _gradients_that_backward_writes(self) -> set[int]:
        builder, n = self.net.arrangement.builder, len(self.net.graph.nodes) - 1
        steps = builder.backward(n, 0, builder.loss_diffs(), accumulate=False)
        return {a.buffer for s in steps for a in s.step.accesses if a.mode is not Mode.READ}

    # -- one iteration --------------------------------------------------------------------------------------
    @property
    def _fused(self) -> bool:
        """Whether updates follow the backward in one program: nobody looks at the gradients in between."""
        return not (self._norms or self.callbacks)

    def _kinds(self):
        """(key, first, tail) of every program with a backward that an iteration runs."""
        n, tail = self.param.iter_size, self._tail if self._fused else ()
        kinds = [("train" if n == 1 else "train first", True, tail if n == 1 else ())]
        if n > 2:
            kinds.append(("train more", False, ()))
        if n > 1:
            kinds.append(("train last", False, tail))
        if not tail:
            kinds = [(f"{key}, update apart", first, ()) for key, first, _ in kinds]
        return kinds

    def _reduces(self, key: str) -> bool:
        """Whether this program of `_kinds` ends with the gradients' means over all ranks: the last of an iteration."""
        return key == self._kinds()[-1][0]

    def _prepare_programs(self) -> None:
        def prepare() -> None:
            self._follow_net()
            self.net.prepare_iterations(self._kinds())
            if not self._fused:
                for key, build in self._apart_programs().items():
                    self.net.memory.programs.bind(key, build)

        def seconds() -> float:
            self._follow_net()
            return self.net.predicted_seconds(self._kinds())

        def updates() -> list[HostedStep]:
            self._follow_net()
            return self._tail if self._fused else [*self._norms, *self._apart]

        fitted(self.net, prepare, seconds=seconds, updates=updates)

    def _replan(self) -> list[str]:
        said = []
        for key, first, tail in self._kinds():
            found = self.net.replan(key, first, tail, self._reduces(key))
            if found is not None:
                before, after = (f"{1e3 * seconds:.1f} ms" for seconds in found)
                kept = "it stays" if before == after else f"another takes {after}"
                said.append(f"with measured times the plan of {key} takes {before}; {kept}")
        return said

    def _apart_programs(self):
        """The programs of an update of its own: key -> how to make it."""
        squares = {a.buffer for s in self._norms for a in s.step.accesses}
        return {
            "clear": lambda: sequence("clear", self._clears, None),
            "norms": lambda: sequence("norms", self._norms, squares),
            "update": lambda: sequence("update", self._apart, None),
        }

    def _iterate(self) -> None:
        self._follow_net()
        fused, n, loss = self._fused, self.param.iter_size, 0.0
        if fused:  # the step of a policy is noted below, where Caffe does
            self._set_numbers(learning_rate(self.param, self.iter, self.current_step).rate, 1.0)
        else:
            self._run_apart("clear")
        for i in range(n):
            self._follow_net()  # every batch may have its shape
            kinds = self._kinds()
            key, first, tail = kinds[0] if i == 0 else kinds[-1] if i == n - 1 else kinds[1]
            if self.param.debug_info:
                find_nan, reduce = not self._nan, i == n - 1
                done = debug.iteration(self.net, first, tail, show=self._displays, find_nan=find_nan, reduce=reduce)
            else:
                done = self.net.iteration(first, tail, key=key, reduce=i == n - 1)
            if tail and not done:  # shapes changed in the middle, so the update's steps must be made anew
                self._follow_net()
                self.net.memory.run("update after a reshape", lambda: sequence("update", self._tail, None))
            self._note_pass()
            if self._loss_counts:
                loss += self.net.loss()
        if self._loss_counts:
            self._nan = math.isnan(loss)
            self._note_loss(loss / n)
        if fused:
            self._log_rate(self._rate())
            return
        for _, on_gradients_ready in self.callbacks:
            on_gradients_ready()
        self._update()

    def apply_update(self) -> None:
        """One update with the gradients that are there now."""
        self._follow_net()
        self._update()
        self.iter += 1

    def _update(self) -> None:
        rate = self._rate()
        self._log_rate(rate)
        clip_scale = 1.0
        if self._norms:
            self._run_apart("norms")
            clip_scale = self._clip()
        self._set_numbers(rate, clip_scale)
        self._run_apart("update")

    def _run_apart(self, key: str) -> None:
        self.net.memory.run(key, self._apart_programs()[key])

    def _clip(self) -> float:
        """What gradients are multiplied by."""
        squares = Blob(
            "solver.squares", (len(self._pieces),), np.float64, (self.net.memory.memories[self._squares[0]], None)
        )
        norm = math.sqrt(float(squares.read_data().sum()))
        limit = self.param.clip_gradients
        if not norm > limit:
            return 1.0
        _log.info(
            "Gradient clipping: scaling down gradients (L2 norm %s > %s) by scale factor %s",
            number(norm),
            number(limit),
            number(limit / norm),
        )
        return limit / norm

    # -- steps ------------------------------------------------------------------------------------------------
    def _update_step(self, param: Param, history: Slots, has_gradient: bool) -> HostedStep:
        """has_gradient: False where the gradient is zero because no backward gets there: the buffer may hold the last
        update, and is cleared."""
        accesses = tuple(Access(b, Mode.UPDATE) for b in (param.data, *history))
        accesses += (Access(param.diff, Mode.UPDATE if has_gradient else Mode.OVERWRITE),)
        accesses += (Access(self._numbers, Mode.READ),)
        name = f"update:{self.net.run_graph.param_name(param)}"
        return HostedStep(Step(name, accesses), lambda: self._run_update(param, history, has_gradient), repeatable=True)

    def _clear_step(self, param: Param) -> HostedStep:
        step = Step(f"clear:{self.net.run_graph.param_name(param)}", (Access(param.diff, Mode.OVERWRITE),))
        return HostedStep(step, lambda: self._fill_zero(self._array(param.diff, param.shape, self.net.dtype)))

    def _fill_zero(self, array) -> None:
        ops_of(self.net.device).fill(array, 0.0)

    def _run_update(self, param: Param, history: Slots, has_gradient: bool) -> None:
        weight, diff, *slots = (self._array(b, param.shape, self.net.dtype) for b in (param.data, param.diff, *history))
        if not has_gradient:
            self._fill_zero(diff)
        numbers = self._array(self._numbers, (_NUMBERS,), np.float64)
        ops_of(self.net.device).solver_update(
            self.rule.operation, weight, diff, slots, numbers, param.lr_mult, param.decay_mult
        )

    def _norm_step(self, i: int, param: Param) -> HostedStep:
        accesses = (
            Access(param.diff, Mode.READ),
            Access(self._squares[0], Mode.UPDATE),
            Access(self._squares[1], Mode.OVERWRITE),
        )
        name = f"norm:{self.net.run_graph.param_name(param)}"
        return HostedStep(Step(name, accesses), lambda: self._run_norm(i, param), repeatable=True)

    def _run_norm(self, i: int, param: Param) -> None:
        squares, partials = self._squares
        out = self._array(squares, (max(1, len(self._pieces)),), np.float64)
        work = self._array(partials, (_PARTIALS,), np.float64)
        ops_of(self.net.device).sum_squares(self._array(param.diff, param.shape, self.net.dtype), out, i, work)

    def _array(self, buffer: int, shape, dtype):
        return self.net.memory.executor.array(buffer, tuple(shape), np.dtype(dtype), self.net.device.is_host)

    # -- history ----------------------------------------------------------------------------------------------
    def history_blobs(self) -> list[Blob | tuple[int, ...]]:
        """Blobs in file order; where a parameter does not move there is only its shape (zeros in a file)."""
        every = ((p, slot) for slot in range(self.rule.slots) for p in self.net.graph.learnable)
        return [self._histories.blob(p, slot) or p.shape for p, slot in every]
