"""Split backward: a training program in which layers make gradients of parameters and of bottoms in two steps.

`../memory/program_planner.py` plans a program with whole and with split backwards, and chooses. Results are
bit-identical. See also: `steps.py` (which layers, which steps), `programs.SplitBackward`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from ...layers.base import Makes
from ...lms.plan.plan import Plan
from ...lms.program import Program, layer_of, makes_param_gradients
from ..build.graph import Graph
from .programs import Sequenced
from .steps import LayerStep

_log = logging.getLogger(__name__)


def planned(memory: NetMemory, sequenced: Sequenced) -> tuple[Sequenced, Plan | None]:
    """Return the program to run and its plan, None where nothing is managed.

    Raises:
        OutOfDeviceMemory: neither program fits.
        CaffeError: as `NetMemory.plan_of`.
    """
    whole, other, name = replace(sequenced, split_backward=None), with_least_memory(sequenced), sequenced.program.name
    if len(other.steps) == len(whole.steps):  # no backward is split
        return whole, memory.plan_of(whole)
    cache = memory.runtime.plan_cache
    cached_split = cache.separates(name) if cache is not None else None
    if cached_split is not None:
        chosen = other if cached_split else whole
        return chosen, memory.plan_of(chosen)
    plan, fits = _plan_if_it_fits(memory, whole)
    if not fits:
        return other, memory.plan_of(other)
    if plan is None:
        return whole, None
    costs, search = memory.planned_with[name], memory.runtime.search
    if plan.seconds <= search.split_slow * sum(costs.steps) or plan.stall <= search.split_waits * plan.seconds:
        return whole, plan
    found, _ = _plan_if_it_fits(memory, other)  # may not fit, though its steps are smaller: offsets differ
    if found is not None and found.seconds < plan.seconds:
        return other, found
    memory.planned_with[name] = costs
    return whole, plan


def _plan_if_it_fits(memory: NetMemory, sequenced: Sequenced) -> tuple[Plan | None, bool]:
    """Return the plan of a program, None where nothing is managed, and whether the program fits."""
    try:
        return memory.plan_of(sequenced), True
    except OutOfDeviceMemory:
        return None, False


def with_least_memory(sequenced: Sequenced) -> Sequenced:
    """Return the variant with split backwards, whose steps need less memory; the program itself if there is none."""
    return sequenced.split_backward() if sequenced.split_backward is not None else sequenced


def in_same_form(sequenced: Sequenced, ran: Sequenced) -> Sequenced:
    """Return the program with split backwards if `ran` has any, else without."""
    split = any(isinstance(step, LayerStep) and step.makes is not Makes.ALL for step in ran.steps)
    return with_least_memory(sequenced) if split else replace(sequenced, split_backward=None)


def split_backward_count(graph: Graph, program: Program) -> int:
    """Return how many of the user's layers have a split backward."""
    origins = {node.name: node.origin for node in graph.nodes}
    return len({origins[layer_of(step.name)] for step in program.steps if makes_param_gradients(step.name)})


def describe_split_backward(graph: Graph, program: Program) -> list[str]:
    """Return a line about the split backwards of a program, or no line if it has none."""
    n = split_backward_count(graph, program)
    layers = f"{n} layers" if n > 1 else "1 layer"
    return [f"gradients of {layers} as two steps each, of parameters and then of bottoms"] if n else []


def log_split_backward(graph: Graph, plans: Mapping[str, Plan | None]) -> None:
    """Log which training programs, by name, have split backwards."""
    for name, plan in plans.items():
        for line in describe_split_backward(graph, plan.program) if plan is not None else ():
            _log.info("Program %s makes %s: predicted to take less time, or to fit", name, line)
