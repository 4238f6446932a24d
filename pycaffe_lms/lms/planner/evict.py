"""Choose which buffers leave the device when memory is short, and how each value comes back. Pure.

`EvictionPass` follows the program step by step with a memory of `limit` bytes. When the next step does not fit, it
evicts the buffer with the least cost per byte and second until its next use: Belady's rule with prices, since all next
uses are known. A value comes back by a copy or by rematerialization. A copy costs the seconds that the link cannot
hide: out, if the copies queued before it are not done by now; in, if other copies fill the link until the value is
needed. Rematerialization costs its step; a share (`Rules.linked_weight`) of the other dropped steps that depend on it
or that it depends on, since their values would have to be alive together again; and, for a large value, the copies of
gradients that it displaces (`remat/cost.py`). A value that the running step may reuse in place competes too: dropped
after the step and rematerialized later, it leaves its memory to the new value.

See also: `cost/link_queue.py` (cost of copies), `optimise.py` (makes plans of the result), `search.py` (which rules).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from ...errors import PlanError
from ..cost.link_queue import NEVER, LinkQueue
from ..cost.machine import Costs
from ..layout.inplace_reuse import Pair, possible
from ..program import Buffer, Mode, Program, Step
from ..remat.candidates import RematCandidates
from ..remat.cost import RematCost
from ..rules import SEARCH, Rules, SearchBudget

_ON_DEVICE, _ON_HOST, _GONE = range(3)  # _GONE: unwritten, dead, or to be rematerialized


class DoesNotFit(Exception):
    """Signal that the program cannot run within the memory limit under these rules."""


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
        stall: predicted seconds by which copies are late.
        evicted: number of evictions.
    """

    order: list[tuple[int, bool]] = field(default_factory=list)
    left: set[tuple[int, int]] = field(default_factory=set)
    stall: float = 0.0
    evicted: int = 0


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
        self.constraints, self.checkpoints, self.remat_cost = constraints, checkpoints, remat_cost
        self.program, self.limit, self.costs, self.rules, self.can = program, limit, costs, rules, can
        self.size = sizes or {b: buffer.nbytes for b, buffer in buffers.items()}
        self.copied = {b: buffer.copied for b, buffer in buffers.items()}  # bytes over the link
        self.n = len(program.steps)
        self.times = [0.0, *accumulate(costs.steps)]  # seconds: start of each step, without stalls and remat
        self.uses: dict[int, list[tuple[int, Mode, bool]]] = {b: [] for b in buffers}
        for s, step in enumerate(program.steps):
            for a in step.accesses:
                if a.buffer in self.uses:
                    self.uses[a.buffer].append((s, a.mode, step.host))
        self.buffers = buffers
        self.cursor = dict.fromkeys(buffers, 0)  # index of the next use in `uses`
        self.where = dict.fromkeys(buffers, _GONE)
        self.clean: dict[int, bool] = {}
        self.maker: dict[int, int] = {}
        self.last_at = dict.fromkeys(buffers, -1)  # position in `order` of the last use
        self.remat_readers: dict[int, set[int]] = {b: set() for b in buffers}  # dropped steps whose remat reads it
        self.dropped: dict[int, int] = {}  # step -> the step before which it is rematerialized at the latest
        self.on: set[int] = set()
        self.used = 0
        self.reusing: dict[int, int] = {}  # in-place reuse in the running step: old buffer -> new one
        self.needed_soon: set[int] = set()  # values being restored and their inputs: evicted last
        self.parent: dict[int, int] = {}  # union-find over dropped steps that depend on each other
        self.weight: dict[int, float] = {}  # root of such a set -> seconds to rematerialize its steps
        self.found = Evictions()
        self.links = LinkQueue(costs, self.times, self.times[self._peak()] if search.copies_in_after_peak else 0.0)
        for b, uses in self.uses.items():
            if uses and uses[0][1] is not Mode.OVERWRITE:
                self.where[b], self.clean[b] = _ON_HOST, True

    def _peak(self) -> int:
        """Return the step with the most live bytes if nothing were evicted."""
        change = [0] * (self.n + 1)
        for b, uses in self.uses.items():
            if uses:
                change[uses[0][0]] += self.size[b]
                change[uses[-1][0] + 1] -= self.size[b]
        loads = list(accumulate(change))
        return max(range(len(loads)), key=loads.__getitem__)

    # -- the future ------------------------------------------------------------------------------------------------
    def wanted(self, b: int, skip: int = 0, but: int | None = None) -> int:
        """Return the step that reads the value of `b` next.

        Args:
            skip: number of further uses to take as done.
            but: a dropped step whose rematerialization does not count as a read.

        Returns:
            The program's length if the value is only needed after the program, NEVER if it is dead.
        """
        uses, at = self.uses[b], self.cursor[b] + skip
        if at < len(uses):
            soon = uses[at][0] if uses[at][1] is not Mode.OVERWRITE else NEVER
        else:
            soon = self.n if b in self.program.live_out else NEVER
        for s in self.remat_readers[b]:
            if s != but:
                soon = min(soon, self.dropped[s])
        return soon

    # -- the pass ----------------------------------------------------------------------------------------------------
    def run(self) -> Evictions:
        """Follow all steps and return the decisions. Raises DoesNotFit."""
        for s, step in enumerate(self.program.steps):
            mine = [a for a in step.accesses if a.buffer in self.uses]
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
                self.cursor[a.buffer] += 1
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
        self.last_at[b] = at
        if mode is not Mode.READ:
            self.maker[b], self.clean[b] = s, False

    def _host_step(self, s: int, mine) -> None:
        """Run a host step: its buffers leave the device before it."""
        at = self._append(s, False)
        for a in mine:
            b = a.buffer
            if self.where[b] == _ON_DEVICE:
                self._take_off(b, _ON_HOST)
                self.found.left.add((b, self.last_at[b]))
            self.cursor[b] += 1
            self.last_at[b] = at
            self.where[b], self.clean[b] = _ON_HOST, True
            self.maker.pop(b, None)
            if self.wanted(b) == NEVER:
                self.where[b] = _GONE

    def _take_off(self, b: int, to: int) -> None:
        self.where[b] = to
        self.on.discard(b)
        self.used -= self.size[b]

    def _leave_if_dead(self, b: int) -> None:
        if self.where[b] == _ON_DEVICE and self.wanted(b) == NEVER:
            self._take_off(b, _GONE)

    def _pairs(self, step: Step, s: int, again: int | None, skip: int) -> list[tuple[Pair, int]]:
        """Return pairs (old, new) of possible in-place reuse, each with the next step that reads the old value.

        Args:
            again: the dropped step that this one rematerializes.
            skip: 1 where the cursors still point at the step's own uses, else 0.
        """
        pairs = [
            p for p in possible(step, self.buffers) if self.where[p[1]] != _ON_DEVICE and p[0] not in self.needed_soon
        ]
        return [((old, new), self.wanted(old, skip, again)) for old, new in pairs]

    def _admit(self, ids: list[int], pinned: set[int], s: int, pairs: Sequence[tuple[Pair, int]]) -> None:
        """Put the buffers `ids` on the device for step `s`, with in-place reuse for those of `pairs` that allow it."""
        for (old, new), wanted in pairs:
            if wanted == NEVER and self._may_reuse(old, new):
                self.reusing[old] = new
        new = [b for b in dict.fromkeys(ids) if self.where[b] != _ON_DEVICE]
        self._make_room(sum(self.size[b] for b in new), pinned, s, pairs)
        for b in new:
            if self.where[b] == _ON_HOST:
                self.links.arrived(self.times[min(self.wanted(b), self.n)], self.copied[b])
            self.where[b] = _ON_DEVICE
            self.on.add(b)
            self.used += self.size[b]

    def _may_reuse(self, old: int, new: int) -> bool:
        """Return whether neither buffer takes part in another in-place reuse of this step."""
        return not {old, new} & {*self.reusing, *self.reusing.values()}

    def _finish_reuse(self) -> None:
        """Remove the old buffers of in-place reuse after the step."""
        for b in self.reusing:
            if self.wanted(b) != NEVER:
                self.found.left.add((b, self.last_at[b]))
            self._take_off(b, _GONE)
        self.reusing.clear()

    def _gone(self, b: int) -> bool:
        return self.where.get(b) == _GONE or b in self.reusing

    def _restore(self, reads: list[int], s: int, pinned: set[int]) -> None:
        """Rematerialize the values of `reads` that were dropped, and their dropped inputs, before step `s`."""
        tries = 0
        todo = [self._maker_of(b, s) for b in reads if self.where[b] == _GONE]
        while todo:
            r = todo[-1]
            if all(self.where.get(b) != _GONE for b in self.can.makes[r] if b in reads or self._read_by_remat(b)):
                todo.pop()  # done already, for another value
                continue
            missing = {self._maker_of(x, s) for x in self.can.reads[r] if x in self.uses and self.where[x] == _GONE}
            tries += 1
            if tries > 4 * self.n:
                raise DoesNotFit  # values are dropped again before they are read
            if missing:
                todo += sorted(missing, reverse=True)
                continue
            todo.pop()
            self.needed_soon = {*reads, *(b for t in todo for b in self.can.reads[t])}
            self._rematerialize(r, s, pinned)
            self.needed_soon = set()

    def _read_by_remat(self, b: int) -> bool:
        """Return whether the rematerialization of a dropped step reads `b`."""
        return bool(self.remat_readers.get(b))

    def _maker_of(self, b: int, s: int) -> int:
        maker = self.maker.get(b)
        if maker is None or maker not in self.can.valid_until:
            raise PlanError(
                f"step {self.program.steps[s].name} reads a value that no step wrote", fix="this is a planner bug"
            )
        return maker

    def _rematerialize(self, r: int, s: int, pinned: set[int]) -> None:
        """Run step `r` again before step `s`, once its inputs are restored. pinned: buffers that must not leave."""
        mine = [a for a in self.can.remats[r].accesses if a.buffer in self.uses]
        ids = {a.buffer for a in mine}
        pairs = [p for p in self._pairs(self.can.remats[r], s, r, 0) if p[0][0] not in pinned]
        self._admit([a.buffer for a in mine], ids | {b for b in pinned if self.where[b] == _ON_DEVICE}, s, pairs)
        at = self._append(r, True)
        for a in mine:
            self._used(a.buffer, a.mode, r, at)
        self._note_rematerialized(r)
        self._finish_reuse()
        for b in ids - pinned:
            self._leave_if_dead(b)

    def _note_rematerialized(self, r: int) -> None:
        """Take step `r` off the dropped steps, and remove inputs that nothing else reads."""
        if self.dropped.pop(r, None) is None:
            return
        root = self._root(r)
        self.weight[root] -= self.costs.again[r]
        for x in self.can.reads[r]:
            if x in self.remat_readers:
                self.remat_readers[x].discard(r)
                if self.where[x] == _ON_DEVICE and x not in {a.buffer for a in self.can.remats[r].accesses}:
                    self._leave_if_dead(x)

    # -- eviction ------------------------------------------------------------------------------------------------------
    def _make_room(self, nbytes: int, pinned: set[int], s: int, pairs: Sequence[tuple[Pair, int]]) -> None:
        """Evict until `nbytes` more fit. An old buffer of `pairs` may be dropped after the step for in-place reuse."""
        while (short := self.used + nbytes - sum(self.size[b] for b in self.reusing.values()) - self.limit) > 0:
            now = self.times[s] + self.links.late
            choice = self._cheapest(pinned, s, now, pairs, short)
            if choice is None:
                raise DoesNotFit
            self._evict(*choice, s, now)

    def _cheapest(self, pinned: set[int], s: int, now: float, pairs, short: int):
        """Return the cheapest eviction: (buffer, way, cost in seconds, next step that reads it, successor in place).

        short: bytes that are missing. Returns None where nothing can leave."""
        best, choice, starts = None, None, self.times[s] - 1e-6
        candidates = (b for b in self.on if b not in pinned)
        found = [(b, None, wanted := self.wanted(b), *self._price(b, now, wanted)) for b in candidates]
        for (old, new), wanted in pairs if self.search.evict_in_place else ():
            if wanted < self.n and self.rules.remats and self._may_reuse(old, new) and self.where[old] == _ON_DEVICE:
                price = self._remat_price(old, wanted)
                found.append((old, new, wanted, price, None if price is None else _GONE))
        for b, successor, wanted, price, way in found:
            if way is None:
                continue
            useful = min(self.size[b], short + self.rules.surplus_weight * (self.size[b] - short))
            area = useful * (self.times[min(wanted, self.n)] - starts)
            score = (b in self.needed_soon, price / area, -area)
            if best is None or score < best:
                best, choice = score, (b, way, price, wanted, successor)
        return choice

    def _price(self, b: int, now: float, wanted: int) -> tuple[float, int | None]:
        """Return (seconds that it costs to bring `b` back, `_ON_HOST` or `_GONE`; None: it must stay)."""
        late = self.links.late
        if b in self.constraints.uncopied:
            again = self._remat_price(b, wanted) if b not in self.needed_soon else None
            return (0.0, None) if again is None else (again, _GONE)
        made = self.times[self.maker[b] + 1] if b in self.maker else 0.0
        price = self.links.price(
            self.copied[b], self.clean[b], made + late, now, self.times[min(wanted, self.n)] + late
        )
        price += self.rules.surcharges.get((b, False), 0.0)
        may = self.rules.remats and wanted < self.n and b not in self.needed_soon
        if may and (price > 0 or not self.rules.copies):
            again = self._remat_price(b, wanted)
            if again is not None and (again < price or not (self.rules.copies or b in self.checkpoints)):
                return again, _GONE
        return price, _ON_HOST

    def _remat_price(self, b: int, wanted: int) -> float | None:
        """Return seconds that rematerializing `b` before step `wanted` costs; None: it cannot, or it must not."""
        r = self.maker.get(b)
        if not self._can_remat(b, wanted):
            return None
        if self.remat_cost is not None and self.remat_cost.dwarfed(b, r, self.limit):
            return None
        price = self.costs.again[r]
        price += self.rules.surcharges.get((b, True), 0.0) + (
            self.search.checkpoint_seconds if b in self.checkpoints else 0.0
        )
        near = {self.maker[x] for x in self.can.reads[r] if self._gone(x) and x in self.maker}
        near.update(*(self.remat_readers[m] for m in self.can.makes[r] if m in self.remat_readers))
        if near:
            price += self.rules.linked_weight * sum(
                self.weight.get(root, 0.0) for root in {self._root(h) for h in near}
            )
        if self.remat_cost is not None and wanted < self.n and self.remat_cost.large(b, self.limit):
            price += self.remat_cost.price(b, self._chain(r), wanted, self.limit)
        return price

    def _chain(self, r: int) -> list[int]:
        """Return, in order, the steps to run again to rematerialize step `r` with the values that are gone now."""
        found, todo = set(), [r]
        while todo:
            q = todo.pop()
            if q not in found:
                found.add(q)
                gone = (x for x in self.can.reads[q] if x in self.uses and self._gone(x) and x in self.maker)
                todo += [self.maker[x] for x in gone if self.maker[x] != q]
        return sorted(found)

    def _can_remat(self, b: int, wanted: int) -> bool:
        """Return whether `b`, and every input that is gone, can be rematerialized before step `wanted`."""
        seen, todo = {b}, [b]
        while todo:
            value = todo.pop()
            r = self.maker.get(value)
            if r is None or self.can.valid_until.get(r, -1) < wanted or value not in self.can.makes[r]:
                return False
            for x in self.can.reads[r]:
                if x in seen or x not in self.uses or not self._gone(x) or self.maker.get(x) == r:
                    continue
                if self.dropped.get(self.maker.get(x), -1) < wanted:
                    seen.add(x)
                    todo.append(x)
        return True

    def _evict(self, b: int, way: int, price: float, wanted: int, successor: int | None, s: int, now: float) -> None:
        """Carry out an eviction that `_cheapest` returned. A successor reuses the memory in place."""
        self.found.evicted += 1
        if successor is not None:
            self._drop(b, wanted)
            self.reusing[b] = successor
            return
        self.found.left.add((b, self.last_at[b]))
        if way == _ON_HOST:
            late = self.links.late
            made = self.times[self.maker[b] + 1] if b in self.maker else 0.0
            self.links.book(self.copied[b], self.clean[b], made + late, now, self.times[min(wanted, self.n)])
            self.found.stall += price
            self.clean[b] = True
        else:
            self._drop(b, wanted)
        self._take_off(b, way)

    def _drop(self, b: int, wanted: int) -> None:
        """Drop the value of `b`, to be rematerialized before step `wanted`, and join its step to dropped neighbours."""
        r = self.maker[b]
        self.dropped[r] = min(wanted, self.dropped.get(r, NEVER))
        if r not in self.parent:
            self.parent[r], self.weight[r] = r, 0.0
        self.weight[self._root(r)] += self.costs.again[r]
        for x in self.can.reads[r]:
            if x not in self.uses:
                continue
            self.remat_readers[x].add(r)
            if self._gone(x) and x in self.maker and self.maker[x] != r:
                if self.maker[x] not in self.dropped:  # it was dead; now it must be rematerialized too
                    self._drop(x, wanted)
                self._join(r, self.maker[x])
        for m in self.can.makes[r]:
            for h in self.remat_readers.get(m, ()):
                if h in self.parent:
                    self._join(r, h)

    def _root(self, s: int) -> int:
        """Return the root of the set of dropped steps that `s` belongs to, or `s` itself."""
        if s not in self.parent:
            return s
        while self.parent[s] != s:
            self.parent[s] = self.parent[self.parent[s]]
            s = self.parent[s]
        return s

    def _join(self, a: int, b: int) -> None:
        """Unite the sets of two dropped steps."""
        a, b = self._root(a), self._root(b)
        if a != b and a in self.weight and b in self.weight:
            self.parent[b] = a
            self.weight[a] += self.weight[b]
