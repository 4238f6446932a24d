"""Updates all parameters in one step and one launch, where Large Model Support manages none of their memory.

`ops/update_table.py` describes the table that the launch reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import AnyArray
from ..backend.device import Span
from ..lms.program import Access, Mode, Step
from ..memory.states import Ask
from ..net.build.graph import Param
from ..net.net import Net
from ..net.program.programs import HostedStep
from ..ops import ops_of
from ..ops.update_rules import UpdateNumbers
from ..ops.update_table import table_words
from .rules import Rule
from .slots import Slots

_NUMBERS = len(UpdateNumbers._fields)


class UpdateAll:
    """Make the step, and own its table, whose buffer is `table`.

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
        self._words = table_words(sizes)
        self.table = net.memory.store.add(f"solver.table{int(apart)}", 8 * self._words)
        self._plan: Any = None  # what `ops.solver_update_all_plan` returned
        self._spans: Sequence[Span | None] = ()  # where the arrays were then

    def step(self, pieces: Sequence[tuple[Param, Slots]], has_gradient: Sequence[bool]) -> HostedStep:
        """Return the step for the net as it is now.

        Args:
            pieces: what is updated, with its histories.
            has_gradient: for each piece; False where no backward writes the gradient, which is zero.
        """
        self._plan = None
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
        table = self._array(self.table, (self._words,), np.int64)
        numbers = self._array(self._numbers, (_NUMBERS,), np.float64)
        ops_of(net.device).solver_update_all(self._rule.operation, self._plan, table, numbers)

    def _make_plan(self, has_gradient: Sequence[bool]) -> Any:
        net, params = self._net, self._params

        def arrays(buffers: Iterable[int]) -> list[AnyArray]:
            return [self._array(b, p.shape, net.dtype) for b, p in zip(buffers, params, strict=True)]

        return ops_of(net.device).solver_update_all_plan(
            arrays(p.data for p in params),
            arrays(p.diff for p in params),
            [arrays(h) for h in self._histories],
            [p.lr_mult for p in params],
            [p.decay_mult for p in params],
            has_gradient,
        )

    def _array(self, buffer: int, shape: Sequence[int], dtype: DTypeLike) -> AnyArray:
        return self._net.memory.executor.array(buffer, tuple(shape), np.dtype(dtype), False)
