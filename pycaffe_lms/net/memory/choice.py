"""Chooses, before any memory is taken, which memory each buffer of a net gets.

`choose_memory` turns a net's graph and the settings of Large Model Support into a `MemoryChoice`, from which
`buffer_store.py` makes the memory. Pure, but for the runtime's decision whether parameters are resident, which the
first net makes for all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...lms.layout.inplace_reuse import step_needs
from ...lms.program import Buffer, Mode, Program, Step
from ...lms.runtime.runtime import Runtime
from ..build.graph import Graph
from ..passes.masks import bits_of
from ..passes.micro_batch import SplitValue
from ..program.buffers import BufferTable, inside_groups, parts_to_manage
from ..program.lms_requests import asked_by_layers

HISTORIES = 2  # most histories that a solver keeps per parameter


@dataclass(frozen=True)
class MemoryChoice:
    """Say which memory the buffers of a net get.

    Args:
        table: all buffers of the graph.
        used: ids of the buffers that the net's widest program touches; the others get no memory before a pass by hand.
        packed: ids of buffers with a short live range in a solver's program; they share one arena where LMS is off.
        asked: buffer -> whether LMS manages it, whatever its size.
        by_hand: ids of buffers that only passes by hand touch; LMS manages them, for no memory is left beside the
            arena.
        dropped: ids of buffers whose values a solver's iteration does not make: inside fused chains, or buffer views.
        split_values: values that lie in several buffers, or as bfloat16.
        first_params: names, as "conv1.param0", of the parameters that are resident while others are managed; so are
            their histories, but not their gradients.
    """

    table: BufferTable
    used: frozenset[int]
    packed: frozenset[int] = frozenset()
    asked: Mapping[int, bool] = field(default_factory=dict)
    by_hand: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()
    split_values: Sequence[SplitValue] = ()
    first_params: frozenset[str] = frozenset()


def choose_memory(
    graph: Graph,
    table: BufferTable,
    runtime: Runtime,
    used: frozenset[int],
    packed: frozenset[int],
    lasting: frozenset[int],
    steps: Sequence[Step],
    split_values: Sequence[SplitValue],
) -> MemoryChoice:
    """Choose the memory of a net's buffers.

    Args:
        used, packed, split_values: as of `MemoryChoice`; packed counts where LMS is off only.
        lasting: ids of buffers that automatic mode leaves on the device where they fit: they outlive an iteration or
            the host touches them.
        steps: the steps of an iteration, from which automatic mode estimates whether parameters can be resident.
    """
    config = runtime.config
    asked = parts_to_manage(graph, table, config.min_bytes)
    if not config.frac:  # a mask is managed where the values that it replaces would be
        asked |= dict.fromkeys(bits_of(graph, table.buffers, config.min_bytes), True)
    by_layers, first = asked_by_layers(graph, config), frozenset[int]()
    asked |= by_layers
    if runtime.active and config.auto:
        touched = [b for b in table.buffers if b.id in used]
        resident, step = residency_estimate(graph, touched, lasting, steps, config.min_bytes)
        if runtime.decide_params(resident, step):
            params = {b for p in graph.params for b in (p.data, p.diff)}
            fits = resident + step <= runtime.device.capacity()  # the first net decided, a test net may be larger
            lasting |= params
            asked |= dict.fromkeys(lasting if fits else params, False) | by_layers
        elif runtime.keeps_first_params:
            first = _first_params(graph, steps, {b.id: b.nbytes for b in touched}, resident, step, runtime)
            asked |= dict.fromkeys(first - by_layers.keys(), False)
    elsewhere, first = used | lasting, first - by_layers.keys()
    return MemoryChoice(
        table,
        used,
        frozenset() if runtime.active or runtime.device.is_host else packed & used,
        asked,
        frozenset(b.id for b in table.buffers if b.id not in elsewhere) if runtime.active else frozenset(),
        frozenset((inside_groups(graph) | graph.views.keys()) - used),
        split_values,
        frozenset(b.name.removesuffix(".data") for b in table.buffers if b.id in first),
    )


def _first_params(
    graph: Graph, steps: Sequence[Step], sizes: Mapping[int, int], resident: int, step: int, runtime: Runtime
) -> frozenset[int]:
    """Return the buffers of the first parameters that training changes, as many as have room with their histories.

    None where parameters do not stay because of the largest step, not because they are large: then memory is short.
    sizes: of the buffers that are used; resident, step: see `residency_estimate`.
    """
    capacity, search = runtime.device.capacity(), runtime.search
    if resident <= search.params_share * capacity:
        return frozenset()
    lasting = sum(sizes.get(p.diff, 0) + (1 + HISTORIES) * sizes.get(p.data, 0) for p in graph.learnable)
    room = min(search.first_params_share * capacity, (capacity - step - (resident - lasting)) / 2)
    written, found = {a.buffer for one in steps for a in one.accesses if a.mode is not Mode.READ}, set[int]()
    for p in graph.learnable:
        room -= (1 + HISTORIES) * sizes.get(p.data, 0)
        if room < 0:
            break
        if p.diff in written:
            found.add(p.data)
    return frozenset(found)


def residency_estimate(
    graph: Graph, used: Iterable[Buffer], lasting: Collection[int], steps: Sequence[Step], least: int
) -> tuple[int, int]:
    """Estimate the residency of automatic mode.

    Args:
        used: buffers that the program touches.
        lasting: ids of buffers that outlive an iteration.
        least: buffers of at most this many bytes are resident.

    Returns:
        (bytes of the resident buffers: parameters, gradients, histories, `lasting` and small ones; most bytes of other
        buffers that one step needs).
    """
    used = list(used)
    sizes = {b.id: b.nbytes for b in used}
    params = {b for p in graph.params for b in (p.data, p.diff)}
    moving = {b.id: b for b in used if b.nbytes > least and b.id not in lasting and b.id not in params}
    resident = sum(b.nbytes for b in used if b.id not in moving and not b.call_scratch)
    resident += max((b.nbytes for b in used if b.id not in moving and b.call_scratch), default=0)
    resident += HISTORIES * sum(sizes.get(p.data, 0) for p in graph.learnable)
    return resident, max(step_needs(Program("all", tuple(steps), frozenset()), moving), default=0)
