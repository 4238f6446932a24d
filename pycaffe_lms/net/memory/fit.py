"""Gradients nets fit their device, in up to three attempts.

First under Large Model Support; if that raises OutOfDeviceMemory, without it (buffers with short live ranges share
memory and nothing is copied, so what fits without LMS fits with any of its settings, to the same bits); last, only if
the user allows it, with layers in micro-batches or in blocks of outputs. `fit` runs the attempts for all nets of a
runtime, `fitted` for one net, `follow` gives a net its new memory.

See also: `micro_batch_choice.py` (which layers, how many parts), `../passes/micro_batch.py` (the graph that then runs).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ...errors import OutOfDeviceMemory, PlanError, Where
from ...lms.layout.inplace_reuse import step_needs
from ...lms.planner.lookahead import refuse_impossible
from ...lms.program import Buffer, Program
from ...lms.runtime.runtime import Runtime
from ...memory.exported_views import alive
from ...memory.states import Ask, State
from ...memory.synced import SyncedMemory
from ..program.programs import AnyStep, HostedStep, SplitBackward
from .micro_batch_choice import Splitting, describe

if TYPE_CHECKING:
    from ...blob import Blob
    from ...lms.planfile.cache import PlanCache
    from ..arrangement import Arrangement
    from ..net import Net

_log = logging.getLogger(__name__)
T = TypeVar("T")


ROUNDED = "sums round differently in parts: results equal those of whole layers to rounding, not to the bit"
MORE = (1.5, 2.0)  # also try these multiples of the fewest parts that fit: smaller steps leave more room for prefetch
Updates = Callable[[], Sequence[HostedStep]]


def fit(runtime: Runtime, attempt: Callable[[], T]) -> T:
    """Return `attempt()`, which plans nets of this runtime, making them fit if it raises OutOfDeviceMemory.

    Attempts with whole layers, under LMS or without it, then with micro-batches or blocks if a net may choose them. A
    change of mode gives the nets new buffers. Within another `fit`, and with LMS off, `attempt` runs once.

    Raises:
        OutOfDeviceMemory: every attempt failed; the error is the one raised under LMS.
    """
    file = runtime.plan_cache is not None and runtime.plan_cache.programs is not None
    if runtime.fitting or file or runtime.device.is_host or not runtime.asked.enabled:
        return attempt()
    nets = [net for known in runtime.nets if (net := known()) is not None]
    runtime.fitting, was_idle = True, runtime.idle
    try:
        return _whole_or_in_parts(runtime, nets, attempt)
    finally:
        runtime.fitting = runtime.whole = False
        if runtime.idle and not was_idle:
            _log.info("LMS: nothing is managed: everything fits the device as without Large Model Support")


def _whole_or_in_parts(runtime: Runtime, nets: Sequence[Net], attempt: Callable[[], T]) -> T:
    refused: OutOfDeviceMemory | None = None
    runtime.whole = True
    for idle in (runtime.idle, not runtime.idle):
        try:
            _set_idle(runtime, nets, idle)
            return attempt()
        except OutOfDeviceMemory as error:
            refused = error if refused is None or not idle else refused
        if any(net.ran and not net.forward_only for net in nets):
            break  # new buffers would lose the values that a forward left for its backward
    else:
        _set_idle(runtime, nets, False)
    runtime.whole = False
    if runtime.active and any(net.splitting.chooses for net in nets):
        return attempt()
    assert refused is not None, "an attempt failed"
    raise refused


def _set_idle(runtime: Runtime, nets: Sequence[Net], idle: bool) -> None:
    """Give all nets the memory they have without Large Model Support (idle), or with it."""
    if idle is not runtime.idle:
        runtime.set_idle(idle)
        for net in nets:
            follow(net)
            net.ran = False


def fitted(
    net: Net,
    plan: Callable[[], T],
    *,
    seconds: Callable[[], float] | None = None,
    by_hand: bool = False,
    updates: Updates | None = None,
) -> T:
    """Return `plan()` for one net, run through `fit`; split layers into more parts and plan again while that can help.

    After the net ran a forward nothing is split: values left for the backward would be lost.

    Args:
        seconds: predicts the seconds of the program without taking memory. If given, up to twice the fewest parts are
            tried and the fastest adopted.
        updates: makes the steps of parameter updates, which must fit too.
        by_hand: every pass that a user may start must fit.

    Raises:
        OutOfDeviceMemory: no number of parts helps.
    """
    return fit(net.runtime, lambda: _fitted(net, plan, seconds, by_hand, updates))


def _fitted(
    net: Net, plan: Callable[[], T], seconds: Callable[[], float] | None, by_hand: bool, updates: Updates | None
) -> T:
    logged = describe(net.arrangement.graph, net.arrangement.micro_batched)
    while True:
        try:
            with net.placed():
                if by_hand and net.runtime.active:
                    _refuse_whole_layers(net.arrangement, net.memory.store.managed(), net.runtime.limit())
                made = plan()
            break
        except OutOfDeviceMemory as error:
            if net.ran or net.runtime.whole or not net.runtime.active or not _widen(net, error, by_hand, updates):
                with net.placed():
                    net.runtime.check_resident()  # raises a more specific error if resident buffers fill the device
                raise
            if seconds is not None:
                _choose_fastest(net, seconds)
    log_parts(net.splitting, net.arrangement, logged)
    return made


def log_parts(splitting: Splitting, arrangement: Arrangement, logged: Collection[str] = ()) -> None:
    """Log which layers run in parts, except for lines already in `logged`."""
    graph, micro_batched = arrangement.graph, arrangement.micro_batched
    lines = [line for line in describe(graph, micro_batched) if line not in logged]
    for line in lines:
        _log.info("%s", line)
    if lines:
        _log.info("%s", ROUNDED)
    if (splitting.asked or 0) > 1 and not micro_batched.starts:
        _log.warning("-lms_split %d: no layers of net %s can run in parts of its batch", splitting.asked, graph.name)
    if (splitting.asked_blocks or 0) > 1 and not micro_batched.cuts:
        text = "-lms_split_outputs %d: no layer of net %s can run in blocks of its outputs"
        _log.warning(text, splitting.asked_blocks, graph.name)


def refuse_chosen_parts(splitting: Splitting, arrangement: Arrangement, plans: PlanCache | None) -> None:
    """Raise PlanError if training uses a plan file and the number of parts was chosen here: the file lacks it."""
    micro_batched, chosen = arrangement.micro_batched, list[str]()
    if splitting.asked is None and micro_batched.starts:
        chosen.append("-lms_split 4")
    if splitting.asked_blocks is None and micro_batched.cuts:
        chosen.append(f"-lms_split_outputs {max(len(cuts) - 1 for cuts in micro_batched.cuts.values())}")
    if plans is not None and chosen:
        raise PlanError(
            "; ".join(describe(arrangement.graph, micro_batched)) + ", and a plan file does not say so",
            where=Where(file=plans.path),
            fix=f"give a number of parts, for example {' '.join(chosen)}, both times; or -lms_split off and a larger "
            "-lms_budget or a smaller batch_size; or leave -lms_plan out",
        )


def _refuse_whole_layers(arrangement: Arrangement, managed: Mapping[int, Buffer], limit: int) -> None:
    """Raise OutOfDeviceMemory if any layer's forward or backward does not fit, also those of later programs."""
    steps = tuple(s.step for s in arrangement.all_steps(fused=False))
    refuse_impossible(Program("passes", steps, frozenset()), managed, limit)


def _widen(net: Net, error: OutOfDeviceMemory, by_hand: bool, updates: Updates | None) -> bool:
    """Split layers into more parts until every step fits by itself. Returns whether anything could be split."""
    if error.free != net.runtime.limit() or not net.splitting.chooses:
        return False  # the error is not the planner's (the device is in use elsewhere), or the user fixed all parts
    helped = False
    while True:
        split = SplitBackward.NONE if by_hand else net.arrangement.split_backward
        passes = net.arrangement.all_steps(fused=not by_hand, split_backward=split)
        steps: list[AnyStep] = [*passes, *(updates() if updates is not None else ())]
        managed, limit = net.memory.store.managed(), net.runtime.limit()
        need = step_needs(Program("all", tuple(s.step for s in steps), frozenset()), managed)
        if helped and max(need) <= limit:
            return True
        if not helped and error.where.layer is not None and max(need, default=0) < error.needed:
            return False  # the step that did not fit is not among these
        if not net.splitting.widen(net.graph, net.arrangement.micro_batched, need, steps, managed, limit):
            return helped
        follow(net)
        helped = True


def _choose_fastest(net: Net, seconds: Callable[[], float]) -> None:
    """Adopt the fastest of the fewest parts that fit and the multiples in `MORE`."""

    def time() -> float:
        follow(net)
        try:
            return seconds()
        except OutOfDeviceMemory:
            return math.inf  # every step fits, but the packing does not

    fewest, best = net.splitting.chosen, time()
    candidates = [net.splitting.more(net.graph, factor) for factor in MORE]
    found = fewest
    for chosen in candidates:
        net.splitting.chosen = chosen
        if chosen != found and (predicted := time()) < best:
            found, best = chosen, predicted
    net.splitting.chosen = found
    follow(net)


def follow(net: Net) -> None:
    """Give the net, and the nets that share its parameters, memory for its current parts.

    Values of blobs move to the new buffers, and so do NumPy views that the user keeps of them.
    """
    before = [(blob, _memories(blob)) for blob in net.own_blobs]
    for _, memories in before:
        for memory in memories:
            if memory.state is State.HEAD_AT_GPU:
                memory.ask(Ask.READ_CPU)  # the device copy is about to be released
    net.reshape()
    for blob, memories in before:
        for old, new in zip(memories, _memories(blob), strict=True):
            move_value(old, new)
    for sharer in list(net.sharers):
        sharer.share_with(net)


def _memories(blob: Blob) -> tuple[SyncedMemory, SyncedMemory]:
    """Return the memory of a blob's data and of its gradient."""
    assert blob.diff_memory is not None, "every blob of a net has one"
    return blob.data_memory, blob.diff_memory


def move_value(old: SyncedMemory, new: SyncedMemory) -> None:
    """Move the value of one memory to another of the same size, with the NumPy views of it."""
    if old is new or old.nbytes != new.nbytes or old.state in (State.UNINITIALIZED, State.DISCARDED):
        return
    old.ask(Ask.WRITE_CPU if alive(old.host_held) else Ask.READ_CPU)
    if alive(old.host_held) and new.host is None and not old.locked:
        new.host, new.host_held = old.host, old.host_held
    new.ask(Ask.OVERWRITE_CPU)
    if new.host is not old.host:
        new.host_bytes[:] = old.host_bytes
