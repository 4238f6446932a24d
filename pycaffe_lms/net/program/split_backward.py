"""Split backward: a training program in which layers make gradients of parameters and of bottoms in two steps.

`../memory/program_planner.py` plans a program with whole and with split backwards, and chooses. Results are
bit-identical. See also: `steps.py` (which layers, which steps), `programs.SplitBackward`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from ...layers.base import Gradients
from ...lms.plan.plan import Plan
from ...lms.program import Program, layer_of, makes_param_gradients
from ..build.graph import Graph
from .programs import Sequenced
from .steps import LayerStep

_log = logging.getLogger(__name__)


def with_least_memory(sequenced: Sequenced) -> Sequenced:
    """Return the variant with split backwards, whose steps need less memory; the program itself if there is none."""
    return sequenced.split_backward() if sequenced.split_backward is not None else sequenced


def in_same_form(sequenced: Sequenced, ran: Sequenced) -> Sequenced:
    """Return the program with split backwards if `ran` has any, else without."""
    split = any(isinstance(step, LayerStep) and step.makes is not Gradients.ALL for step in ran.steps)
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
