"""Turn what layers declare into steps with accesses. Pure.

`look_step`, `prepare_step`, `forward_step`, `finish_step`, `backward_steps` and `remat_step` each make the steps of one
layer or group; `programs.py` puts them in order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ...errors import CaffeError
from ...formats.types import SPLIT
from ...layers.base import Gradients, Lives, Runs
from ...lms.program import PARAM_GRADIENTS, Access, Mode, Step, merge_accesses
from ..build.graph import Graph, Node
from ..passes.order_copies import differs

READ, UPDATE, OVERWRITE = Mode
_FORWARD_MODES = {Lives.STATE: UPDATE, Lives.STEP_SCALAR: READ, Lives.PREPARED: READ}  # other scratch: OVERWRITE


@dataclass(frozen=True)
class LayerStep:
    """Hold a step of a layer and what is needed to run it.

    Args:
        node: index of the layer; of a group, of its last layer.
        top_diffs: per top, False where its diff is all zeros because no step wrote it.
        accumulate: per parameter, whether its gradient is added rather than overwritten.
        zero: all top diffs are zero, so the step only clears the gradients.
        look: a step before the forward that shows the layer the values that its shapes depend on.
        prepares: a step before a forward on the host that prepares it on the device.
        finishes: a step after a forward on the host that finishes it on the device.
        group: index of the group that runs in place of its layers.
        again: a forward that is rematerialized.
        joins: per bottom, the value to whose gradient the bottom's is added; None: it is written by itself.
        without_views: the step as it would be without buffer views; None: `step` is that.
        makes: which gradients a backward makes.
        refused: why no program may run the step; memory is planned as if one could.
    """

    step: Step
    node: int
    forward: bool
    top_diffs: tuple[bool, ...] = ()
    accumulate: tuple[bool, ...] = ()
    zero: bool = False
    look: bool = False
    prepares: bool = False
    finishes: bool = False
    group: int | None = None
    again: bool = False
    joins: tuple[int | None, ...] = ()
    without_views: Step | None = None
    makes: Gradients = Gradients.ALL
    refused: CaffeError | None = None


def node_of(graph: Graph, step: LayerStep) -> Node:
    """Return the layer, or the group of layers, that a step runs."""
    return graph.nodes[step.node] if step.group is None else graph.groups[step.group]


def layer_of(graph: Graph, step: LayerStep) -> int:
    """Return the index of the user's layer that a step belongs to; of a group, its last layer."""
    return graph.nodes[step.node].origin


def wants(node: Node, makes: Gradients) -> tuple[Sequence[bool], Sequence[bool]]:
    """Return, per bottom and per parameter, whether a backward restricted to `makes` computes its gradient."""
    bottoms = [makes is not Gradients.PARAMS and wanted for wanted in node.propagate]
    return bottoms, [makes is not Gradients.BOTTOMS and wanted for wanted in node.param_propagate]


def look_step(graph: Graph, node: Node) -> LayerStep | None:
    """Return the step before a layer's forward that reads what its shapes depend on, None where they do not."""
    read = node.layer.declares.dynamic_shape_bottoms
    if not read:
        return None
    parts = [Access(graph.values[node.bottoms[i]].data, READ) for i in sorted(read)]
    return LayerStep(Step(f"look:{node.name}", merge_accesses(parts), host=True), node.index, True, look=True)


def prepare_step(graph: Graph, node: Node) -> LayerStep | None:
    """Return the step that prepares a layer's forward on the device, None where there is none."""
    needs = node.layer.prepare_needs()
    if needs is None:
        return None
    parts = [Access(graph.values[node.bottoms[i]].data, READ) for i in sorted(needs.bottoms)]
    parts += [Access(graph.params[node.params[i]].data, READ) for i in sorted(needs.params)]
    parts += [Access(node.scratch[s.name], OVERWRITE) for s in node.layer.scratches.values() if s.forward]
    return LayerStep(Step(f"prepare:{node.name}", merge_accesses(parts)), node.index, True, prepares=True)


def forward_step(graph: Graph, node: Node) -> LayerStep | None:
    """Return the forward of one layer, None where it does nothing."""
    layer = node.layer
    if layer.declares.runs_on is Runs.NOWHERE:
        return None
    needs, apart = layer.forward_needs(), {*layer.shares_data(), *layer.finished_tops()}
    parts = [Access(graph.values[node.bottoms[i]].data, READ) for i in sorted(needs.bottoms)]
    parts += [Access(graph.params[node.params[i]].data, READ) for i in sorted(needs.params)]
    parts += [Access(graph.params[node.params[i]].data, UPDATE) for i in sorted(layer.forward_updates())]
    for j, t in enumerate(node.tops):
        if j not in apart and layer.rewrites(j):
            parts.append(Access(graph.values[t].data, _writes(graph, node, t, first=0)))
    host = layer.declares.runs_on is Runs.HOST
    for scratch in layer.scratches.values():
        if scratch.used_in_forward(layer.prepare_needs() is not None, host):
            parts.append(Access(node.scratch[scratch.name], _FORWARD_MODES.get(scratch.lives, OVERWRITE)))
    if host and not parts:
        return None
    step = Step(f"forward:{node.name}", merge_accesses(parts), host, () if host else _reuses(graph, node, True))
    return LayerStep(step, node.index, True, group=node.group)


def finish_step(graph: Graph, node: Node, *, again: bool = False) -> LayerStep | None:
    """Return the step that finishes a layer's forward on the device, None without one. again: rematerialized."""
    layer, finished = node.layer, node.layer.finished_tops()
    if not finished:
        return None
    parts = [Access(node.scratch[s.name], READ) for s in layer.scratches.values() if s.lives is Lives.MADE]
    parts += [Access(graph.values[node.tops[j]].data, OVERWRITE) for j in sorted(finished)]
    step = Step(f"{'again' if again else 'finish'}:{node.name}", merge_accesses(parts))
    return LayerStep(step, node.index, True, finishes=True, again=again)


def remat_step(graph: Graph, forward: LayerStep) -> LayerStep | None:
    """Return the step that rematerializes what a forward made, None where the layer cannot."""
    node = node_of(graph, forward)
    layer = node.layer
    if forward.finishes:
        return finish_step(graph, node, again=True)
    needs = None if forward.look or not forward.forward else layer.remat_needs()
    if needs is None or any(graph.values[t].whole is not None for t in node.tops):
        return None  # the top is some images of a whole: the other images would have to be rematerialized, too
    if any(s.remat_reads and s.lives is Lives.CALL for s in layer.scratches.values()):
        return None  # a layer without a backward does not keep what it would read
    parts = [Access(graph.values[node.bottoms[i]].data, READ) for i in sorted(needs.bottoms)]
    parts += [Access(graph.params[node.params[i]].data, READ) for i in sorted(needs.params)]
    shared = layer.shares_data()
    parts += [
        Access(graph.values[t].data, OVERWRITE)
        for j, t in enumerate(node.tops)
        if j not in shared and layer.rewrites(j)
    ]
    for scratch in layer.scratches.values():
        if scratch.forward:
            reads = scratch.remat_reads or scratch.lives is Lives.STEP_SCALAR
            parts.append(Access(node.scratch[scratch.name], READ if reads else OVERWRITE))
    step = Step(f"again:{node.name}", merge_accesses(parts), False, _reuses(graph, node, True))
    return LayerStep(step, node.index, True, group=node.group, again=True)


def backward_steps(
    graph: Graph,
    node: Node,
    present: Collection[int],
    touched: Collection[int],
    accumulate: bool,
    join: Collection[int] | None,
    split_backward: bool,
) -> list[LayerStep]:
    """Return the backward of one layer as steps: none where it has no backward, two for a split backward.

    Args (the others are those of `backward_step`):
        split_backward: split the backward of a `separable` layer: first the gradients of its parameters, then
            those of its bottoms. What only the first step reads may be freed between them.
    """
    given = graph, node, present, touched, accumulate, join
    step = backward_step(*given)
    if step is None:
        return []
    if not split_backward or step.zero or not separable(graph, node):
        return [step]
    both = (backward_step(*given, makes) for makes in (Gradients.PARAMS, Gradients.BOTTOMS))
    return [one for one in both if one is not None]


def separable(graph: Graph, node: Node) -> bool:
    """Return whether the backward of a layer can be split: it makes gradients of parameters and of bottoms, runs by
    itself on the device, and leaves the gradients of its tops unchanged."""
    layer, values = node.layer, graph.values
    own = layer.declares
    if not own.split_backward or own.overwrites_top_diffs or node.group is not None or own.runs_on is not Runs.DEVICE:
        return False
    apart = {values[b].diff for b in node.bottoms}.isdisjoint(values[t].diff for t in node.tops)
    return apart and any(node.propagate) and any(node.param_propagate)


def backward_step(
    graph: Graph,
    node: Node,
    present: Collection[int],
    touched: Collection[int],
    accumulate: bool,
    join: Collection[int] | None,
    makes: Gradients = Gradients.ALL,
) -> LayerStep | None:
    """Return the backward of one layer as a step, None where it has none.

    Args:
        present: diff buffers that hold a gradient before this step.
        touched: parameter diff buffers written earlier in this program.
        accumulate: add to parameter gradients even at their first write in the program.
        join: let readers of one value add to the same gradient where they can, so that its Split has less to sum: what
            `joinable` returns; None: each makes its own.
        makes: which gradients to make.
    """
    layer = node.layer
    propagate, param_propagate = wants(node, makes)
    wanted = any(propagate) or any(param_propagate)
    shared = layer.shares()
    if not node.need_backward or not wanted or (shared and len(shared) == len(node.tops)):
        return None
    top_diffs = tuple(v.takes_gradient and v.diff in present for v in (graph.values[t] for t in node.tops))
    zero = bool(node.tops) and not any(top_diffs) and not layer.declares.gradients_without_top_diffs
    zero |= any(which == "diff" and graph.values[v].diff not in present for v, which in node.later)
    if zero and node.adds and all(node.adds):
        return None  # zeros would be added to what later slabs wrote
    parts = [] if zero else _backward_reads(graph, node, top_diffs, makes)
    joins = tuple(
        _joined(graph, node, i, present, join) if propagates and not zero else None
        for i, propagates in enumerate(propagate)
    )
    for i, (b, propagates, other) in enumerate(zip(node.bottoms, propagate, joins, strict=True)):
        if zero and node.adds and node.adds[i]:
            continue
        if other is not None:
            parts.append(Access(graph.values[other].diff, UPDATE))
        elif propagates:
            last = node.part[1] - 1 if node.part else 0
            parts.append(Access(graph.values[b].diff, _writes(graph, node, b, first=last)))
    adds = []
    for p, wanted in zip(node.params, param_propagate, strict=True):
        diff = graph.params[p].diff
        adds.append(accumulate or diff in touched)
        if wanted and not zero:
            parts.append(Access(diff, UPDATE if adds[-1] else OVERWRITE))
    host = layer.declares.runs_on is Runs.HOST
    reuses = () if host or zero or makes is Gradients.PARAMS else _reuses(graph, node, False)
    name = f"backward:{node.name}{PARAM_GRADIENTS if makes is Gradients.PARAMS else ''}"
    step = Step(name, merge_accesses(parts), host, reuses)
    return LayerStep(
        step,
        node.index,
        False,
        top_diffs,
        tuple(adds),
        zero,
        group=node.group,
        joins=joins,
        makes=makes,
        refused=_refused(graph, node, propagate),
    )


def _refused(graph: Graph, node: Node, propagate: Sequence[bool]) -> CaffeError | None:
    """Return the error for a gradient that is wanted for a bottom that can have none, None if all can."""
    blocked = node.layer.declares.no_backward
    for i, propagates in enumerate(propagate):
        if propagates and (blocked is None or i in blocked):
            return node.layer.error(
                f"has no gradient for bottom {i}",
                blob=graph.values[node.bottoms[i]].name,
                fix="set propagate_down: false for it; under force_backward, end the backward before this layer",
            )
    return None


def _joined(graph: Graph, node: Node, i: int, present: Collection[int], join: Collection[int] | None) -> int | None:
    """Return the value to whose gradient that of bottom i is added: the bottom itself, to which a later slab of the
    layer wrote, or, with `join`, another top of the bottom's Split. None if there is none."""
    own = graph.values[node.bottoms[i]]
    if node.adds and node.adds[i]:
        return own.id
    if join is None:
        return None
    split = graph.nodes[own.producer]
    if i not in node.layer.accumulates_into or split.layer.type != SPLIT or own.whole is not None:
        return None
    if differs(graph, node, own.id):
        return None
    for t in split.tops:
        other = graph.values[t]
        alike = (other.channels_last, other.half) == (own.channels_last, own.half)
        alike = alike and other.whole is None and other.takes_gradient and not other.loss_weight
        if alike and other.diff != own.diff and other.diff in present and t in join:
            return t
    return None


def joinable(graph: Graph) -> frozenset[int]:
    """Return the values to whose gradient another may be added: no other gradient is made in the same memory.

    Where a layer works in place, the gradient of its top may be there still. Splits that the net inserts have no such
    readers.
    """
    made = defaultdict[int, set[int]](set)  # buffer -> values whose gradient a backward makes there
    for v in graph.values:
        if v.top not in graph.nodes[v.producer].layer.shares():
            made[v.diff].add(v.id)
    return frozenset(v.id for v in graph.values if made[v.diff] <= {v.id})


def _writes(graph: Graph, node: Node, v: int, *, first: int) -> Mode:
    """Return how a step writes a value or its gradient. Of the micro-batches of a whole value, the one numbered `first`
    runs first and overwrites the buffer; the others update it."""
    return OVERWRITE if graph.values[v].whole is None or (node.part and node.part[0] == first) else UPDATE


def _reuses(graph: Graph, node: Node, forward: bool) -> tuple[tuple[int, int], ...]:
    """Return pairs (read buffer, written buffer) for in-place reuse: the second may take the memory of the first."""
    if any(differs(graph, node, v) for v in (*node.bottoms, *node.tops)):
        return ()  # the layer works on copies in its own memory order or type
    if any(graph.values[v].whole is not None for v in (*node.bottoms, *node.tops)):
        return ()  # the images of a micro-batch start inside a buffer
    values, pairs = graph.values, []
    for kind, index, output in node.layer.in_place_reuse(forward):
        old = values[node.bottoms[index]].data if kind == "bottom" else values[node.tops[index]].diff
        new = values[node.tops[output]].data if forward else values[node.bottoms[output]].diff
        pairs.append((old, new))
    return tuple(pairs)


def _backward_reads(graph: Graph, node: Node, top_diffs: tuple[bool, ...], makes: Gradients) -> list[Access]:
    """Return the accesses of a backward to all but the gradients that it makes."""
    layer = node.layer
    needs = layer.backward_needs(*wants(node, makes))
    parts = [Access(graph.values[node.bottoms[i]].data, READ) for i in sorted(needs.bottoms)]
    parts += [Access(graph.values[node.tops[i]].data, READ) for i in sorted(needs.tops)]
    parts += [Access(graph.params[node.params[i]].data, READ) for i in sorted(needs.params)]
    parts += [Access(getattr(graph.values[v], which), READ) for v, which in node.later]
    mode = UPDATE if layer.declares.overwrites_top_diffs else READ
    parts += [Access(graph.values[t].diff, mode) for t, here in zip(node.tops, top_diffs, strict=True) if here]
    for scratch in layer.scratches.values():
        if scratch.used_for(makes):
            mode = OVERWRITE if scratch.lives is Lives.CALL else READ
            parts.append(Access(node.scratch[scratch.name], mode))
    return parts


def written_diffs(graph: Graph, step: LayerStep) -> set[int]:
    """Return the diff buffers of values that a backward step writes."""
    node = node_of(graph, step)
    joins = step.joins or (None,) * len(node.bottoms)
    wanted = zip(node.bottoms, wants(node, step.makes)[0], joins, strict=True)
    return {graph.values[b].diff for b, propagates, other in wanted if propagates and other is None}
