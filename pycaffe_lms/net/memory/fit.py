"""Makes nets fit their device: under Large Model Support; where that refuses them, as without it; where that does not
do either, and only where it was asked for, with layers in parts of the batch or of outputs.

Without Large Model Support everything that lives for a while shares memory, and nothing is copied. So what fits without
it fits with any of its settings, to the same bits.

See also: `splitting.py` (which layers, how many parts), `unfold.py` (the graph that runs then).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from ...errors import OutOfDeviceMemory, PlanError, Where
from ...lms.planner.lookahead import refuse_impossible
from ...lms.program import Program
from ...lms.runtime.runtime import Runtime
from ...memory.exported_views import alive
from ...memory.states import Ask, State
from ...memory.synced import SyncedMemory
from ..program.programs import HostedStep, SplitBackward
from .micro_batch_choice import describe, needs

if TYPE_CHECKING:
    from ..built import BuiltNet
    from ..net import Net

_log = logging.getLogger(__name__)
T = TypeVar("T")


ROUNDED = "sums are rounded otherwise so: results equal those of whole layers to rounding, not to the bit"
MORE = (1.5, 2.0)  # times the fewest parts that fit: with smaller steps there is more room for what is to stay


Updates = Callable[[], Sequence[HostedStep]]


def fit(runtime: Runtime, attempt: Callable[[], T]) -> T:
    """What `attempt()` makes, which plans nets of this runtime: whole, under Large Model Support or without it; else in
    parts, where some net is asked to choose them. All buffers of the nets are others then.

    Raises OutOfDeviceMemory where nothing helps: what Large Model Support says of it. Within another `fit`, and where
    Large Model Support is off, it just attempts."""
    file = runtime.plan_cache is not None and runtime.plan_cache.programs is not None
    if runtime.fitting or file or runtime.device.is_host or not runtime.asked.enabled:
        return attempt()
    nets = [net for known in runtime.nets if (net := known()) is not None]
    runtime.fitting, rested = True, runtime.rests
    try:
        return _whole_or_in_parts(runtime, nets, attempt)
    finally:
        runtime.fitting = runtime.whole = False
        if runtime.rests and not rested:
            _log.info("LMS: nothing is managed: everything fits the device as without Large Model Support")


def _whole_or_in_parts(runtime: Runtime, nets: Sequence[BuiltNet], attempt: Callable[[], T]) -> T:
    refused, runtime.whole = None, True
    for rests in (runtime.rests, not runtime.rests):
        try:
            _let_rest(runtime, nets, rests)
            return attempt()
        except OutOfDeviceMemory as error:
            refused = error if refused is None or not rests else refused
        if any(net.ran and not net.forward_only for net in nets):
            break  # what a forward left for its backward would be lost
    else:
        _let_rest(runtime, nets, False)
    runtime.whole = False
    if runtime.active and any(net.splitting.chooses for net in nets):
        return attempt()
    raise refused


def _let_rest(runtime: Runtime, nets: Sequence[BuiltNet], rests: bool) -> None:
    """Lay all nets out as without Large Model Support, or with it again."""
    if rests is not runtime.rests:
        runtime.rest(rests)
        for net in nets:
            follow(net)
            net.ran = False


def fitted(net: Net, plan: Callable[[], T], *, seconds: Callable[[], float] | None = None, by_hand: bool = False,
           updates: Updates | None = None) -> T:  # fmt: skip
    """What `plan()` makes, as `fit` makes it fit. Where parts may be chosen, they become more and it is asked again, as
    long as that can help.

    seconds(): of what is to be planned, as predicted, without taking memory; then up to twice as many parts count where
    they are faster. updates(): of the parameters, where they are to fit, too. by_hand: every pass that a user may start
    must fit. Once something ran nothing is split any more: what a forward left for its backward would be lost. Raises
    OutOfDeviceMemory where nothing helps."""
    return fit(net.runtime, lambda: _fitted(net, plan, seconds, by_hand, updates))


def _fitted(net: Net, plan: Callable[[], T], seconds: Callable[[], float] | None, by_hand: bool,
            updates: Updates | None) -> T:  # fmt: skip
    said = describe(net.graph, net.unfolded)
    while True:
        try:
            with net.placed():
                if by_hand and net.runtime.active:
                    _refuse_whole_layers(net)
                made = plan()
            break
        except OutOfDeviceMemory as error:
            if net.ran or net.runtime.whole or not net.runtime.active or not _widen(net, error, by_hand, updates):
                with net.placed():
                    net.runtime.check_resident()  # says more, where nothing is left beside what stays for good
                raise
            if seconds is not None:
                _choose_fastest(net, seconds)
    say_parts(net, said)
    return made


def say_parts(net: BuiltNet, said: Collection[str] = ()) -> None:
    """Log which layers run in parts, but for what was said before."""
    lines = [line for line in describe(net.graph, net.unfolded) if line not in said]
    for line in lines:
        _log.info("%s", line)
    if lines:
        _log.info("%s", ROUNDED)
    if (net.splitting.asked or 0) > 1 and not net.unfolded.starts:
        _log.warning(
            "-lms_split %d: no layers of net %s can run in parts of its batch", net.splitting.asked, net.graph.name
        )
    if (net.splitting.asked_blocks or 0) > 1 and not net.unfolded.cuts:
        _log.warning("-lms_split_outputs %d: no layer of net %s can run in blocks of its outputs",
                     net.splitting.asked_blocks, net.graph.name)  # fmt: skip


def refuse_chosen_parts(net: BuiltNet) -> None:
    """Raises PlanError where training is to follow a plan file, but how many parts layers run in was chosen here: the
    file does not hold the number."""
    splitting, unfolded = net.splitting, net.unfolded
    chosen = []
    if splitting.asked is None and unfolded.starts:
        chosen.append("-lms_split 4")
    if splitting.asked_blocks is None and unfolded.cuts:
        chosen.append(f"-lms_split_outputs {max(len(cuts) - 1 for cuts in unfolded.cuts.values())}")
    if net.runtime.plan_cache is not None and chosen:
        raise PlanError(
            "; ".join(describe(net.graph, unfolded)) + ", and a plan file does not say so",
            where=Where(file=net.runtime.plan_cache.path),
            fix=f"give a number of parts, for example {' '.join(chosen)}, both times; or -lms_split off and a larger "
            "-lms_budget or a smaller batch_size; or leave -lms_plan out",
        )


def _refuse_whole_layers(net: Net) -> None:
    """Raises OutOfDeviceMemory where some layer's pass does not fit, be it one of a later program."""
    steps = tuple(s.step for s in net.all_steps(fused=False))
    refuse_impossible(Program("passes", steps, frozenset()), net.memory.managed(), net.runtime.limit())


def _widen(net: Net, error: OutOfDeviceMemory, by_hand: bool, updates: Updates | None) -> bool:
    """Run layers in more parts, until all fit one by one. Returns whether anything could be done."""
    if error.free != net.runtime.limit() or not net.splitting.chooses:
        return False  # not said by the planner: somebody else uses the device; or all is given
    helped = False
    while True:
        passes = net.all_steps(fused=not by_hand, separate=SplitBackward.NONE if by_hand else net.split_backward)
        steps = [*passes, *(updates() if updates is not None else ())]
        managed, limit = net.memory.managed(), net.runtime.limit()
        need = needs(steps, managed)
        if helped and max(need) <= limit:
            return True
        if not helped and error.where.layer is not None and max(need, default=0) < error.needed:
            return False  # the step that did not fit is none of these
        if not net.splitting.widen(net.graph, net.unfolded, need, steps, managed, limit):
            return helped
        follow(net)
        helped = True


def _choose_fastest(net: Net, seconds: Callable[[], float]) -> None:
    """Of the fewest parts that fit, and somewhat more."""

    def time() -> float:
        follow(net)
        try:
            return seconds()
        except OutOfDeviceMemory:
            return math.inf  # offsets do not fit

    fewest, best = net.splitting.chosen, time()
    candidates = [net.splitting.more(net.graph, factor) for factor in MORE]
    found = fewest
    for chosen in candidates:
        net.splitting.chosen = chosen
        if chosen != found and (predicted := time()) < best:
            found, best = chosen, predicted
    net.splitting.chosen = found
    follow(net)


def follow(net: BuiltNet) -> None:
    """Lay the net out as it is split now, and those that share its parameters. What the user filled in stays, in other
    buffers; arrays of it that he holds are of these."""
    blobs = [*net.blobs.values(), *(blob for vector in net.params.values() for blob in vector)]
    before = [(blob, blob.data_memory, blob.diff_memory) for blob in blobs]
    for _, *memories in before:
        for memory in memories:
            if memory.state is State.HEAD_AT_GPU:
                memory.ask(Ask.READ_CPU)  # device memory of what will lie elsewhere goes
    net.reshape()
    for blob, data, diff in before:
        move_value(data, blob.data_memory)
        move_value(diff, blob.diff_memory)
    for sharer in list(net.sharers):
        sharer.share_with(net)


def move_value(old: SyncedMemory, new: SyncedMemory) -> None:
    """What a memory holds is another's from now on, and so are the NumPy views of it."""
    if old is new or old.nbytes != new.nbytes or old.state in (State.UNINITIALIZED, State.DISCARDED):
        return
    old.ask(Ask.WRITE_CPU if alive(old.host_held) else Ask.READ_CPU)
    if alive(old.host_held) and new.host is None and not old.locked:
        new.host, new.host_held = old.host, old.host_held
    new.ask(Ask.OVERWRITE_CPU)
    if new.host is not old.host:
        new.host[: new.nbytes] = old.host[: old.nbytes]
