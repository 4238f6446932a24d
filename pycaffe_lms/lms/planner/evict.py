"""Choose which buffers leave the device when memory is short, and how each value comes back. Pure.

`EvictionPass` follows the program step by step with a memory of `limit` bytes. When the next step does not fit, it
evicts the buffer with the least cost per byte and second until its next use: Belady's rule with prices, since all next
uses are known. A value comes back by a copy or by rematerialization. A copy costs the seconds that the link cannot
hide: out, if the copies queued before it are not done by now; in, if other copies fill the link until the value is
needed. Rematerialization costs its step; a share (`Rules.linked_weight`) of the other dropped steps that depend on it
or that it depends on, since their values would have to be alive together again; and, for a large value, the copies of
gradients that it displaces (`remat/cost.py`). A value that the running step may reuse in place competes too: dropped
after the step and rematerialized later, it leaves its memory to the new value.

See also: `cost/link_queue.py` (cost of copies), `optimise.py` (makes plans of the result).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ...errors import PlanError
from ..cost.link_queue import NEVER, LinkQueue
from ..cost.machine import Costs
from ..layout.inplace_reuse import Pair, possible
from ..program import Access, Buffer, Mode, Program, Step, uses_of
from ..remat.candidates import RematCandidates
from ..remat.cost import RematCost
from ..rules import SEARCH, Rules, SearchBudget
from .dropped_steps import DroppedSteps

_ON_DEVICE, _ON_HOST, _GONE = range(3)  # _GONE: unwritten, dead, or to be rematerialized


class DoesNotFit(Exception):
    """Signal that the program cannot run within the memory limit under these rules, or not as fast as is asked for."""


@dataclass(frozen=True)
class Constraints:
    """Fix what an eviction pass may not change.

    Attributes:
        uncopied: buffers that are never copied.
        again: steps of the program that rematerialize values -> the forward step that they repeat.
    """

    uncopied: Collection[int] = ()
    again: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Evictions:
    """Collect the result of an eviction pass.

    Attributes:
        order: (step, whether it rematerializes) in the order of execution.
        left: (buffer, position in `order` of its last use) of live ranges that end before the value's next use.
        evicted: number of evictions.
    """

    order: list[tuple[int, bool]] = field(default_factory=list)
    left: set[tuple[int, int]] = field(default_factory=set)
    evicted: int = 0


@dataclass(slots=True, eq=False)
class Tracked:
    """Follow one buffer through a pass.

    Attributes:
        size: bytes that it takes from memory (whole pages, say).
        seconds_in, seconds_out: of a copy of it over the link.
        uses: (step, mode, whether on the host), in order; `cursor`: index of the next one.
        next_read: the step that reads it next; None: something has changed since.
        outlives: its last value must survive the program.
        where: on the device, on the host, or gone.
        clean: the host has its value.
        maker: the step that made its value; None: it is from before the program, or from a host step.
        made: seconds at which its value is complete.
        last_at: position of its last use in `Evictions.order`.
        readers: dropped steps whose rematerialization reads it.
    """

    size: int
    seconds_in: float
    seconds_out: float
    outlives: bool
    uses: list[tuple[int, Mode, bool]]
    cursor: int = 0
    next_read: int | None = None
    where: int = _GONE
    clean: bool = False
    maker: int | None = None
    made: float = 0.0
    last_at: int = -1
    readers: set[int] = field(default_factory=set)

    def pass_use(self) -> None:
        """Move the cursor to the next use."""
        self.cursor += 1
        self.next_read = None


_Choice = tuple[int, int, int, int | None]  # buffer, `_ON_HOST` or `_GONE`, step that reads it next, successor


class EvictionPass:
    """Follow a program once (`run`) and decide evictions.

    Args:
        limit: bytes of device memory for managed buffers.
        can: which steps can be rematerialized.
        constraints: buffers that are never copied, and steps that rematerialize by request.
        sizes: buffer -> bytes that it takes from memory (whole pages, say); None: its own bytes.
        checkpoints: buffers whose rematerialization costs `SearchBudget.checkpoint_seconds` more.
        remat_cost: cost of rematerializing large values; None: not counted.
    """

    def __init__(
        self,
        program: Program,
        buffers: Mapping[int, Buffer],
        limit: int,
        costs: Costs,
        can: RematCandidates,
        rules: Rules,
        constraints: Constraints,
        sizes: Mapping[int, int] | None = None,
        checkpoints: Collection[int] = (),
        remat_cost: RematCost | None = None,
        search: SearchBudget = SEARCH,
    ):
        self.search = search
        self.constraints, self.checkpoints = constraints, checkpoints
        self.remat_cost = remat_cost if rules.displacement else None
        self.program, self.limit, self.costs, self.rules, self.can = program, limit, costs, rules, can
        self.n = len(program.steps)
        self.times = [0.0, *accumulate(costs.steps)]  # seconds: start of each step, without stalls and remat
        self.buffers = buffers
        size = sizes or {b: buffer.nbytes for b, buffer in buffers.items()}
        uses = uses_of(program, buffers)
        link = costs.machine
        self.tracked = {
            b: Tracked(
                size[b],
                link.copy_seconds(x.copied, False),
                link.copy_seconds(x.copied, True),
                b in program.live_out,
                uses[b],
            )
            for b, x in buffers.items()
        }
        self.dropped = DroppedSteps(costs.again)
        self.on: set[int] = set()  # buffers on the device, `used` bytes in all
        self.used = 0
        self.extra, self.most_extra = 0.0, math.inf  # seconds of rematerialization
        self.copying = {False: 0.0, True: 0.0}  # seconds of copies in and out that evictions cause
        self.below = math.inf  # seconds that they may take, each
        self.gone = set(self.tracked)  # buffers whose value is gone, or will be after the running step: `reusing`
        self.reusing: dict[int, int] = {}  # in-place reuse in the running step: old buffer -> new one
        self.needed_soon: set[int] = set()  # values being restored and their inputs: evicted last
        self.found = Evictions()
        self.links = LinkQueue(rules.marginal)
        for b, x in self.tracked.items():
            if x.uses and x.uses[0][1] is not Mode.OVERWRITE:
                self._put(b, _ON_HOST)
                x.clean = True
                self.links.book(None, x.seconds_in, 0.0, 0.0, self.times[x.uses[0][0]])

    # -- the future ------------------------------------------------------------------------------------------------
    def next_read(self, b: int) -> int:
        """Return the step that reads the value of `b` next, as `_find_next_read` does, but remember it."""
        x = self.tracked[b]
        if x.next_read is None:
            x.next_read = self._find_next_read(x)
        return x.next_read

    def _find_next_read(self, x: Tracked, skip: int = 0, but: int | None = None) -> int:
        """Return the step that reads the value of `x` next.

        Args:
            skip: number of further uses to take as done.
            but: a dropped step whose rematerialization does not count as a read.

        Returns:
            The program's length if the value is only needed after the program, NEVER if it is dead.
        """
        at = x.cursor + skip
        if at < len(x.uses):
            soon = x.uses[at][0] if x.uses[at][1] is not Mode.OVERWRITE else NEVER
        else:
            soon = self.n if x.outlives else NEVER
        for s in x.readers:
            if s != but and self.dropped.wanted[s] < soon:
                soon = self.dropped.wanted[s]
        return soon

    # -- the pass ----------------------------------------------------------------------------------------------------
    def run(self, below: float = math.inf) -> Evictions:
        """Follow all steps and return the decisions.

        Raises:
            DoesNotFit: also where the steps, rematerialization included, or the copies of one direction take more than
                `below` seconds.
        """
        self.below = below * (1 + 1e-9)
        self.most_extra = self.below - self.times[self.n]
        for s, step in enumerate(self.program.steps):
            mine = [a for a in step.accesses if a.buffer in self.tracked]
            if step.host:
                self._host_step(s, mine)
                continue
            ids = {a.buffer for a in mine}
            reads = [a.buffer for a in mine if a.mode is not Mode.OVERWRITE]
            self._restore(reads, s, set())  # may evict other reads of the step
            self._restore(reads, s, ids)
            self._admit([a.buffer for a in mine], ids, s, self._pairs(step, s, self.constraints.again.get(s), 1))
            at = self._append(s, False)
            for a in mine:
                self._used(a.buffer, a.mode, s, at)
                self.tracked[a.buffer].pass_use()
            if s in self.constraints.again:
                self._note_rematerialized(self.constraints.again[s])
            self._finish_reuse()
            for a in mine:
                self._leave_if_dead(a.buffer)
        return self.found

    def _append(self, s: int, again: bool) -> int:
        self.found.order.append((s, again))
        return len(self.found.order) - 1

    def _used(self, b: int, mode: Mode, s: int, at: int) -> None:
        x = self.tracked[b]
        x.last_at = at
        if mode is not Mode.READ:
            x.maker, x.made, x.clean = s, self.times[s + 1], False

    def _host_step(self, s: int, mine: Iterable[Access]) -> None:
        """Run a host step: its buffers leave the device before it."""
        at = self._append(s, False)
        for a in mine:
            b, x = a.buffer, self.tracked[a.buffer]
            if x.where == _ON_DEVICE:
                self._take_off(b, _ON_HOST)
                self.found.left.add((b, x.last_at))
            x.pass_use()
            x.last_at, x.clean, x.maker, x.made = at, True, None, 0.0
            self._put(b, _GONE if self.next_read(b) == NEVER else _ON_HOST)

    def _take_off(self, b: int, to: int) -> None:
        self._put(b, to)
        self.on.discard(b)
        self.used -= self.tracked[b].size

    def _put(self, b: int, where: int) -> None:
        """Note where the value of `b` is now."""
        self.tracked[b].where = where
        if where == _GONE:
            self.gone.add(b)
        else:
            self.gone.discard(b)

    def _leave_if_dead(self, b: int) -> None:
        if b in self.on and self.next_read(b) == NEVER:
            self._take_off(b, _GONE)

    def _pairs(self, step: Step, s: int, again: int | None, skip: int) -> list[tuple[Pair, int]]:
        """Return pairs (old, new) of possible in-place reuse, each with the next step that reads the old value.

        Args:
            again: the dropped step that this one rematerializes.
            skip: 1 where the cursors still point at the step's own uses, else 0.
        """
        pairs = [
            (old, new)
            for old, new in possible(step, self.buffers)
            if self.tracked[new].where != _ON_DEVICE and old not in self.needed_soon
        ]
        return [((old, new), self._find_next_read(self.tracked[old], skip, again)) for old, new in pairs]

    def _admit(self, ids: list[int], pinned: set[int], s: int, pairs: Sequence[tuple[Pair, int]]) -> None:
        """Put the buffers `ids` on the device for step `s`, with in-place reuse for those of `pairs` that allow it."""
        for (old, new), wanted in pairs:
            if wanted == NEVER and self._may_reuse(old, new):
                self._reuse(old, new)
        added = [(b, x) for b in dict.fromkeys(ids) if (x := self.tracked[b]).where != _ON_DEVICE]
        self._make_room(sum(x.size for _, x in added), pinned, s, pairs)
        for b, x in added:
            if x.where == _ON_HOST:
                self.links.arrived(self.times[min(self.next_read(b), self.n)], x.seconds_in)
            self._put(b, _ON_DEVICE)
            self.on.add(b)
            self.used += x.size

    def _may_reuse(self, old: int, new: int) -> bool:
        """Return whether neither buffer takes part in another in-place reuse of this step."""
        return not {old, new} & {*self.reusing, *self.reusing.values()}

    def _reuse(self, old: int, new: int) -> None:
        """Let the running step write `new` over `old`."""
        self.reusing[old] = new
        self.gone.add(old)

    def _finish_reuse(self) -> None:
        """Remove the old buffers of in-place reuse after the step."""
        for b in self.reusing:
            if self.next_read(b) != NEVER:
                self.found.left.add((b, self.tracked[b].last_at))
            self._take_off(b, _GONE)
        self.reusing.clear()

    def _gone(self, b: int) -> bool:
        return b in self.gone

    def _restore(self, reads: list[int], s: int, pinned: set[int]) -> None:
        """Rematerialize the values of `reads` that were dropped, and their dropped inputs, before step `s`."""
        tries, tracked = 0, self.tracked
        todo = [self._maker_of(b, s) for b in reads if tracked[b].where == _GONE]
        while todo:
            r = todo[-1]
            made = (b for b in self.can.makes[r] if b in tracked and (b in reads or tracked[b].readers))
            if all(tracked[b].where != _GONE for b in made):
                todo.pop()  # done already, for another value
                continue
            missing = {self._maker_of(b, s) for b in self.can.reads[r] if b in tracked and tracked[b].where == _GONE}
            tries += 1
            if tries > 4 * self.n:
                raise DoesNotFit  # values are dropped again before they are read
            if missing:
                todo += sorted(missing, reverse=True)
                continue
            todo.pop()
            self.needed_soon = {*reads, *(b for t in todo for b in self.can.reads[t])}
            self.extra += self.costs.again[r]
            if self.extra > self.most_extra:
                raise DoesNotFit
            self._rematerialize(r, s, pinned)
            self.needed_soon = set()

    def _maker_of(self, b: int, s: int) -> int:
        maker = self.tracked[b].maker
        if maker is None or maker not in self.can.valid_until:
            raise PlanError(
                f"step {self.program.steps[s].name} reads a value that no step wrote", fix="this is a planner bug"
            )
        return maker

    def _rematerialize(self, r: int, s: int, pinned: set[int]) -> None:
        """Run step `r` again before step `s`, once its inputs are restored. pinned: buffers that must not leave."""
        mine = [a for a in self.can.remats[r].accesses if a.buffer in self.tracked]
        ids = {a.buffer for a in mine}
        pairs = [p for p in self._pairs(self.can.remats[r], s, r, 0) if p[0][0] not in pinned]
        self._admit(
            [a.buffer for a in mine], ids | {b for b in pinned if self.tracked[b].where == _ON_DEVICE}, s, pairs
        )
        at = self._append(r, True)
        for a in mine:
            self._used(a.buffer, a.mode, r, at)
        self._note_rematerialized(r)
        self._finish_reuse()
        for b in ids - pinned:
            self._leave_if_dead(b)

    def _note_rematerialized(self, r: int) -> None:
        """Take step `r` off the dropped steps, and remove inputs that nothing else reads."""
        if not self.dropped.remove(r):
            return
        touched = {a.buffer for a in self.can.remats[r].accesses}
        for b in self.can.reads[r]:
            if b in self.tracked:
                self.tracked[b].readers.discard(r)
                self.tracked[b].next_read = None
                if b not in touched:
                    self._leave_if_dead(b)

    # -- eviction ------------------------------------------------------------------------------------------------------
    def _make_room(self, nbytes: int, pinned: set[int], s: int, pairs: Sequence[tuple[Pair, int]]) -> None:
        """Evict until `nbytes` more fit. An old buffer of `pairs` may be dropped after the step for in-place reuse."""
        while (short := self.used + nbytes - sum(self.tracked[b].size for b in self.reusing.values()) - self.limit) > 0:
            now = self.times[s] + self.links.late
            choice = self._cheapest(pinned, s, now, pairs, short)
            if choice is None:
                raise DoesNotFit
            self._evict(*choice, s, now)

    def _cheapest(
        self, pinned: set[int], s: int, now: float, pairs: Sequence[tuple[Pair, int]], short: int
    ) -> _Choice | None:
        """Return the cheapest eviction, None where nothing can leave. short: bytes that are missing."""
        times, n, tracked, needed_soon = self.times, self.n, self.tracked, self.needed_soon
        starts, surplus = times[s] - 1e-6, self.rules.surplus_weight
        best: tuple[bool, float, float] | None = None
        choice: _Choice | None = None
        for b, successor, wanted in self._candidates(pinned, pairs):
            x, soon = tracked[b], b in needed_soon
            if best is not None and soon > best[0]:
                continue
            size = x.size
            useful = short + surplus * (size - short)
            area = (useful if useful < size else size) * (times[wanted if wanted < n else n] - starts)
            most = math.inf  # a higher price per area cannot win
            if best is not None and soon is best[0]:
                most = best[1]
                if most <= 0.0 and area <= -best[2]:
                    continue  # no price is below zero
            if successor is None:
                price, way = self._price(b, x, now, wanted, area, most)
            else:
                price, way = self._remat_price(b, wanted), _GONE
            if price is None:
                continue
            score = (soon, price / area, -area)
            if best is None or score < best:
                best, choice = score, (b, way, wanted, successor)
        return choice

    def _candidates(self, pinned: set[int], pairs: Sequence[tuple[Pair, int]]) -> list[tuple[int, int | None, int]]:
        """Return (buffer, successor in place, next reader) of what might leave."""
        tracked = self.tracked
        found: list[tuple[int, int | None, int]] = []
        for b in self.on:
            if b not in pinned:
                wanted = tracked[b].next_read
                found.append((b, None, self.next_read(b) if wanted is None else wanted))
        for (old, new), at in pairs if self.search.evict_in_place else ():
            if at < self.n and self.rules.remats and self._may_reuse(old, new) and old in self.on:
                found.append((old, new, at))
        return found

    def _price(self, b: int, x: Tracked, now: float, wanted: int, area: float, most: float) -> tuple[float | None, int]:
        """Return the seconds that it costs to bring `b` back, and whether by a copy (`_ON_HOST`) or not (`_GONE`).

        The price is None if `b` must stay, or if it is found early that the price per `area` would exceed `most`.
        """
        if b in self.constraints.uncopied:
            return (self._remat_price(b, wanted) if b not in self.needed_soon else None), _GONE
        r, until = x.maker, self.times[wanted if wanted < self.n else self.n]
        price = self.links.price(None if x.clean else x.seconds_out, x.seconds_in, x.made, now, until)
        if r is None or r not in self.costs.again or not self.rules.remats or wanted >= self.n or b in self.needed_soon:
            return price, _ON_HOST
        if price <= 0 and self.rules.copies:
            return price, _ON_HOST
        too_much = self._step_price(b, r) / area > most  # whatever else rematerialization costs
        if not self.rules.copies and b not in self.checkpoints:
            if too_much:
                return (None, _GONE) if self._may_remat(b, r, wanted) else (price, _ON_HOST)
            again = self._remat_price(b, wanted)
            return (price, _ON_HOST) if again is None else (again, _GONE)
        if too_much:
            return price, _ON_HOST
        again = self._remat_price(b, wanted)
        return (price, _ON_HOST) if again is None or again >= price else (again, _GONE)

    def _remat_price(self, b: int, wanted: int) -> float | None:
        """Return seconds that rematerializing `b` before step `wanted` costs; None: it cannot, or it must not."""
        r = self.tracked[b].maker
        if r is None or not self._may_remat(b, r, wanted):
            return None
        price = self._step_price(b, r)
        near = {m for x in self.can.reads[r] if x in self.gone and (m := self.tracked[x].maker) is not None}
        near.update(*(self.tracked[b].readers for b in self.can.makes[r] if b in self.tracked))
        if near:
            price += self.rules.linked_weight * self.dropped.group_seconds(near)
        if self.rules.marginal:
            price += self._dead_seconds(r)
        if self.remat_cost is not None and wanted < self.n and self.remat_cost.large(b, self.limit):
            price += self.remat_cost.price(b, self._chain(r), wanted, self.limit)
        return price

    def _dead_seconds(self, r: int) -> float:
        """Return the seconds of the steps that would have to run again for step `r` alone: nothing else reads what they
        made, and it is gone."""
        seconds, seen, todo = 0.0, {r}, [r]
        while todo:
            for x in self.can.reads[todo.pop()]:
                if x in self.gone and (m := self.tracked[x].maker) is not None and m not in seen:
                    seen.add(m)
                    if m not in self.dropped.wanted and m in self.costs.again:
                        seconds += self.costs.again[m]
                        todo.append(m)
        return seconds

    def _step_price(self, b: int, r: int) -> float:
        """Return the seconds that running step `r` again for `b` costs by itself."""
        return self.costs.again[r] + (self.search.checkpoint_seconds if b in self.checkpoints else 0.0)

    def _may_remat(self, b: int, r: int, wanted: int) -> bool:
        """Return whether step `r` can make `b` again before step `wanted`, and needs nothing much larger for that."""
        return self._can_remat(b, wanted) and not (
            self.remat_cost is not None and self.remat_cost.dwarfed(b, r, self.limit)
        )

    def _chain(self, r: int) -> list[int]:
        """Return, in order, the steps to run again to rematerialize step `r` with the values that are gone now."""
        found, todo = set[int](), [r]
        while todo:
            q = todo.pop()
            if q not in found:
                found.add(q)
                makers = (self.tracked[b].maker for b in self.can.reads[q] if self._gone(b))
                todo += [m for m in makers if m is not None and m != q]
        return sorted(found)

    def _can_remat(self, b: int, wanted: int) -> bool:
        """Return whether `b`, and every input that is gone, can be rematerialized before step `wanted`."""
        seen, todo, can = {b}, [b], self.can
        while todo:
            value = todo.pop()
            r = self.tracked[value].maker
            if r is None or can.valid_until.get(r, -1) < wanted or value not in can.makes[r]:
                return False
            if self.gone.isdisjoint(can.reads[r]):
                continue
            for x in can.reads[r]:
                if x in seen or not self._gone(x) or (maker := self.tracked[x].maker) == r:
                    continue
                if maker is None or self.dropped.wanted.get(maker, -1) < wanted:
                    seen.add(x)
                    todo.append(x)
        return True

    def _evict(self, b: int, way: int, wanted: int, successor: int | None, s: int, now: float) -> None:
        """Carry out an eviction that `_cheapest` returned. A successor reuses the memory in place."""
        self.found.evicted += 1
        if successor is not None:
            self._drop(b, wanted)
            self._reuse(b, successor)
            return
        x = self.tracked[b]
        self.found.left.add((b, x.last_at))
        if way == _ON_HOST:
            out = None if x.clean else x.seconds_out
            self.links.book(out, x.seconds_in, x.made, now, self.times[min(wanted, self.n)])
            self.copying[True] += out or 0.0
            self.copying[False] += x.seconds_in if wanted < self.n else 0.0
            if max(self.copying.values()) > self.below:
                raise DoesNotFit
            x.clean = True
        else:
            self._drop(b, wanted)
        self._take_off(b, way)

    def _drop(self, b: int, wanted: int) -> None:
        """Drop the value of `b`, to be rematerialized before step `wanted`, and join its step to dropped neighbours."""
        r = self.tracked[b].maker
        assert r is not None  # `_can_remat`
        self.dropped.add(r, wanted)
        for read in self.can.reads[r]:
            x = self.tracked.get(read)
            if x is None:
                continue
            x.readers.add(r)
            x.next_read = None
            if self._gone(read) and x.maker is not None and x.maker != r:
                if x.maker not in self.dropped.wanted:  # it was dead; now it must be rematerialized too
                    self._drop(read, wanted)
                self.dropped.join(r, x.maker)
        for made in self.can.makes[r]:
            for reader in self.tracked[made].readers if made in self.tracked else ():
                self.dropped.join(r, reader)
