"""Whether a training program makes a layer's gradients in one step or in two: first those of its parameters, then those
of its bottoms. In two, a bottom's value may go before its gradient is born, but what tops give is read twice.

The program as it is is planned first. Where that plan leaves steps waiting, or does not fit, the other is planned, too,
in which layers that are not small beside the largest have two (`programs.Halves`), and what is predicted to take less
time counts. A plan file says which one it is of. Results are the same to the bit.
See also: `access.py` (which layers, which steps).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ...errors import OutOfDeviceMemory
from ...layers.base import Makes
from ...lms.plan.plan import Plan
from ...lms.program import Program, is_params_half, layer_of
from ..build.graph import Graph
from .programs import Sequenced
from .steps import LayerStep

if TYPE_CHECKING:
    from ..memory.net_memory import NetMemory

_log = logging.getLogger(__name__)
SLOW = 1.15  # times the seconds of its steps: a plan that takes longer may be worth another program,
WAITS = 0.1  # if it waits for copies for more than this share of its time


def planned(memory: NetMemory, sequenced: Sequenced) -> tuple[Sequenced, Plan | None]:
    """The program that is to run, and its plan. Raises as `NetMemory.plan_of`, OutOfDeviceMemory only where neither
    program fits."""
    whole, other, name = replace(sequenced, separate=None), tightest(sequenced), sequenced.program.name
    if len(other.steps) == len(whole.steps):
        return whole, memory.plan_of(whole)
    book = memory.runtime.plan_cache
    written = book.separates(name) if book is not None else None
    if written is not None:
        chosen = other if written else whole
        return chosen, memory.plan_of(chosen)
    plan, fits = _plan_if_it_fits(memory, whole)
    if not fits:
        return other, memory.plan_of(other)
    if plan is None:
        return whole, None
    costs = memory.planned_with[name]
    if plan.seconds <= SLOW * sum(costs.steps) or plan.stall <= WAITS * plan.seconds:
        return whole, plan
    found, _ = _plan_if_it_fits(memory, other)  # its steps are smaller, but its values lie otherwise
    if found is not None and found.seconds < plan.seconds:
        return other, found
    memory.planned_with[name] = costs
    return whole, plan


def _plan_if_it_fits(memory: NetMemory, sequenced: Sequenced) -> tuple[Plan | None, bool]:
    """The plan of a program, None where nothing is managed; and whether there is one."""
    try:
        return memory.plan_of(sequenced), True
    except OutOfDeviceMemory:
        return None, False


def tightest(sequenced: Sequenced) -> Sequenced:
    """Of the programs that may be planned for it, the one whose steps need least memory."""
    return sequenced.separate() if sequenced.separate is not None else sequenced


def alike(sequenced: Sequenced, ran: Sequenced) -> Sequenced:
    """Of the programs that may be planned for it, the one that is made as `ran` was."""
    halves = any(isinstance(step, LayerStep) and step.makes is not Makes.ALL for step in ran.steps)
    return tightest(sequenced) if halves else replace(sequenced, separate=None)


def separated(graph: Graph, program: Program) -> int:
    """How many of the user's layers make their gradients in two steps."""
    origins = {node.name: node.origin for node in graph.nodes}
    return len({origins[layer_of(step.name)] for step in program.steps if is_params_half(step.name)})


def describe_split_backward(graph: Graph, program: Program) -> list[str]:
    """A line that says so, where there are any."""
    n = separated(graph, program)
    layers = f"{n} layers" if n > 1 else "1 layer"
    return [f"gradients of {layers} as two steps each, of parameters and then of bottoms"] if n else []


def log_split_backward(graph: Graph, plans: Mapping[str, Plan | None]) -> None:
    """Log it of training programs, by name."""
    for name, plan in plans.items():
        for line in describe_split_backward(graph, plan.program) if plan is not None else ():
            _log.info("Program %s makes %s: predicted to take less time, or to fit", name, line)
