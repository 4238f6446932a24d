"""Who leaves the device when memory ends, and how a value comes back: by a copy, or by making it again. Pure.

The program is followed step by step with a memory of `limit` bytes. When the next step does not fit, the buffer goes
whose way back costs least for the memory and time that it sets free: seconds per (byte x second until its next use).
All next uses are known, so this is Belady's rule with prices. A copy costs what the link cannot hide: out, if the queue
of copies behind its making is not through by now; in, if what is wanted back before it already fills the link. Making
it again costs its step, and a share of the steps that must run before or after it for the same reason (a long chain of
dropped values would have to be alive together again), and, for a large value, the copies that gradients would have to
make way by where both do not fit (`crowding.py`). A value that the running step may write another in the place of
competes too: dropped behind the step, to be made again, it hands its memory over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate

from ...errors import PlanError
from ..cost.link_queue import NEVER, LinkQueue
from ..cost.machine import Costs
from ..layout.inplace_reuse import Pair, possible
from ..plan.rules import Constraints, DoesNotFit, Evictions, Rules
from ..program import Buffer, Mode, Program, Step
from ..remat.candidates import RematCandidates
from ..remat.cost import RematCost

CHECKPOINT = 1.0  # seconds that making one again is taken to cost more
_ON, _HOME, _GONE = range(3)  # on the device; on the host only; nowhere: unwritten, dead, or to be made again


class EvictionPass:
    """One pass over a program. `run` once. What may not be copied leaves only to be made again. sizes: what buffers
    take from the memory, where that is not their bytes."""

    def __init__(self, program: Program, buffers: Mapping[int, Buffer], limit: int, costs: Costs, can: RematCandidates,
                 rules: Rules, constraints: Constraints, sizes: Mapping[int, int] | None = None,
                 checkpoints: Collection[int] = (), remat_cost: RematCost | None = None):  # fmt: skip
        self.constraints, self.checkpoints, self.remat_cost = constraints, checkpoints, remat_cost
        self.program, self.limit, self.costs, self.rules, self.can = program, limit, costs, rules, can
        self.size = sizes or {b: buffer.nbytes for b, buffer in buffers.items()}
        self.copied = {b: buffer.copied for b, buffer in buffers.items()}  # over the link
        self.n = len(program.steps)
        self.times = [0.0, *accumulate(costs.steps)]  # when a step starts, without what this adds
        self.uses: dict[int, list[tuple[int, Mode, bool]]] = {b: [] for b in buffers}
        for s, step in enumerate(program.steps):
            for a in step.accesses:
                if a.buffer in self.uses:
                    self.uses[a.buffer].append((s, a.mode, step.host))
        self.buffers = buffers
        self.cursor = dict.fromkeys(buffers, 0)  # the next of `uses`
        self.where = dict.fromkeys(buffers, _GONE)
        self.clean: dict[int, bool] = {}
        self.maker: dict[int, int] = {}
        self.last_at = dict.fromkeys(buffers, -1)  # position in `order` of the last use
        self.holders: dict[int, set[int]] = {b: set() for b in buffers}  # dropped steps whose replay reads it
        self.dropped: dict[int, int] = {}  # step -> before which step it is made again at the latest
        self.on: set[int] = set()
        self.used = 0
        self.giving: dict[int, int] = {}  # whose memory the running step gives on -> to whom
        self.soon: set[int] = set()  # what is being brought back, and what that takes: dropped, it would be in vain
        self.parent: dict[int, int] = {}  # dropped steps that hang together
        self.weight: dict[int, float] = {}
        self.found = Evictions()
        self.links = LinkQueue(costs, self.times, self.times[self._peak()])
        for b, uses in self.uses.items():
            if uses and uses[0][1] is not Mode.OVERWRITE:
                self.where[b], self.clean[b] = _HOME, True

    def _peak(self) -> int:
        """The step where most would be alive if everything stayed."""
        change = [0] * (self.n + 1)
        for b, uses in self.uses.items():
            if uses:
                change[uses[0][0]] += self.size[b]
                change[uses[-1][0] + 1] -= self.size[b]
        loads = list(accumulate(change))
        return max(range(len(loads)), key=loads.__getitem__)

    # -- the future ------------------------------------------------------------------------------------------------
    def wanted(self, b: int, skip: int = 0, but: int | None = None) -> int:
        """Before which step its value is read next; the program's length: it must survive; NEVER: dead. skip: so many
        uses more are over. but: a dropped step that does not count."""
        uses, at = self.uses[b], self.cursor[b] + skip
        if at < len(uses):
            soon = uses[at][0] if uses[at][1] is not Mode.OVERWRITE else NEVER
        else:
            soon = self.n if b in self.program.live_out else NEVER
        for s in self.holders[b]:
            if s != but:
                soon = min(soon, self.dropped[s])
        return soon

    # -- the pass ----------------------------------------------------------------------------------------------------
    def run(self) -> Evictions:
        for s, step in enumerate(self.program.steps):
            mine = [a for a in step.accesses if a.buffer in self.uses]
            if step.host:
                self._host_step(s, mine)
                continue
            ids = {a.buffer for a in mine}
            reads = [a.buffer for a in mine if a.mode is not Mode.OVERWRITE]
            self._bring_back(reads, s, set())  # what the step reads may have to leave for that
            self._bring_back(reads, s, ids)
            self._enter([a.buffer for a in mine], ids, s, self._pairs(step, s, self.constraints.again.get(s), 1))
            at = self._append(s, False)
            for a in mine:
                self._used(a.buffer, a.mode, s, at)
                self.cursor[a.buffer] += 1
            if s in self.constraints.again:
                self._made_again(self.constraints.again[s])
            self._give()
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
        at = self._append(s, False)
        for a in mine:
            b = a.buffer
            if self.where[b] == _ON:
                self._off(b, _HOME)
                self.found.left.add((b, self.last_at[b]))
            self.cursor[b] += 1
            self.last_at[b] = at
            self.where[b], self.clean[b] = _HOME, True
            self.maker.pop(b, None)
            if self.wanted(b) == NEVER:
                self.where[b] = _GONE

    def _off(self, b: int, to: int) -> None:
        self.where[b] = to
        self.on.discard(b)
        self.used -= self.size[b]

    def _leave_if_dead(self, b: int) -> None:
        if self.where[b] == _ON and self.wanted(b) == NEVER:
            self._off(b, _GONE)

    def _pairs(self, step: Step, s: int, again: int | None, skip: int) -> list[tuple[Pair, int]]:
        """Which buffers of a step may be born where others lie, and before which step those are wanted then. again: the
        dropped step that this one repeats. skip: 1 where the step's own uses are not over yet."""
        pairs = [p for p in possible(step, self.buffers) if self.where[p[1]] != _ON and p[0] not in self.soon]
        return [((old, new), self.wanted(old, skip, again)) for old, new in pairs]

    def _enter(self, ids: list[int], pinned: set[int], s: int, pairs: Sequence[tuple[Pair, int]]) -> None:
        """Get these buffers onto the device for a step; pairs: of those, which may be born where others end."""
        for (old, new), wanted in pairs:
            if wanted == NEVER and self._may_give(old, new):
                self.giving[old] = new
        new = [b for b in dict.fromkeys(ids) if self.where[b] != _ON]
        self._make_room(sum(self.size[b] for b in new), pinned, s, pairs)
        for b in new:
            if self.where[b] == _HOME:
                self.links.arrived(self.times[min(self.wanted(b), self.n)], self.copied[b])
            self.where[b] = _ON
            self.on.add(b)
            self.used += self.size[b]

    def _may_give(self, old: int, new: int) -> bool:
        """A buffer gives and takes at most once per step."""
        return not {old, new} & {*self.giving, *self.giving.values()}

    def _give(self) -> None:
        """The step is over: whose memory was given on is nowhere."""
        for b in self.giving:
            if self.wanted(b) != NEVER:
                self.found.left.add((b, self.last_at[b]))
            self._off(b, _GONE)
        self.giving.clear()

    def _gone(self, b: int) -> bool:
        return self.where.get(b) == _GONE or b in self.giving

    def _bring_back(self, reads: list[int], s: int, pinned: set[int]) -> None:
        """Make again what was dropped of `reads`, with what that needs."""
        tries = 0
        todo = [self._maker_of(b, s) for b in reads if self.where[b] == _GONE]
        while todo:
            r = todo[-1]
            if all(self.where.get(b) != _GONE for b in self.can.makes[r] if b in reads or self._held(b)):
                todo.pop()  # somebody else needed it too
                continue
            missing = {self._maker_of(x, s) for x in self.can.reads[r] if x in self.uses and self.where[x] == _GONE}
            tries += 1
            if tries > 4 * self.n:
                raise DoesNotFit  # what is made again is dropped before it is read
            if missing:
                todo += sorted(missing, reverse=True)
                continue
            todo.pop()
            self.soon = {*reads, *(b for t in todo for b in self.can.reads[t])}
            self._replay(r, s, pinned)
            self.soon = set()

    def _held(self, b: int) -> bool:
        """Whether some dropped step needs it."""
        return bool(self.holders.get(b))

    def _maker_of(self, b: int, s: int) -> int:
        maker = self.maker.get(b)
        if maker is None or maker not in self.can.valid_until:
            raise PlanError(f"step {self.program.steps[s].name} reads what nobody made", fix="this is a planner bug")
        return maker

    def _replay(self, r: int, s: int, pinned: set[int]) -> None:
        mine = [a for a in self.can.replays[r].accesses if a.buffer in self.uses]
        ids = {a.buffer for a in mine}
        pairs = [p for p in self._pairs(self.can.replays[r], s, r, 0) if p[0][0] not in pinned]
        self._enter([a.buffer for a in mine], ids | {b for b in pinned if self.where[b] == _ON}, s, pairs)
        at = self._append(r, True)
        for a in mine:
            self._used(a.buffer, a.mode, r, at)
        self._made_again(r)
        self._give()
        for b in ids - pinned:
            self._leave_if_dead(b)

    def _made_again(self, r: int) -> None:
        if self.dropped.pop(r, None) is None:
            return
        root = self._root(r)
        self.weight[root] -= self.costs.again[r]
        for x in self.can.reads[r]:
            if x in self.holders:
                self.holders[x].discard(r)
                if self.where[x] == _ON and x not in {a.buffer for a in self.can.replays[r].accesses}:
                    self._leave_if_dead(x)

    # -- eviction ------------------------------------------------------------------------------------------------------
    def _make_room(self, nbytes: int, pinned: set[int], s: int, pairs: Sequence[tuple[Pair, int]]) -> None:
        """Somebody leaves, or one of `pairs`, wanted as said, is dropped behind the step and gives its memory on."""
        while (short := self.used + nbytes - sum(self.size[b] for b in self.giving.values()) - self.limit) > 0:
            now = self.times[s] + self.links.late
            choice = self._choice(pinned, s, now, pairs, short)
            if choice is None:
                raise DoesNotFit
            self._evict(*choice, s, now)

    def _choice(self, pinned: set[int], s: int, now: float, pairs, short: int):
        """(who leaves, how, its price, when it is wanted, its heir), where so many bytes are short."""
        best, choice, starts = None, None, self.times[s] - 1e-6
        stays = (b for b in self.on if b not in pinned)
        found = [(b, None, wanted := self.wanted(b), *self._price(b, now, wanted)) for b in stays]
        for (old, new), wanted in pairs:
            if wanted < self.n and self.rules.replays and self._may_give(old, new) and self.where[old] == _ON:
                price = self._replay_price(old, wanted)
                found.append((old, new, wanted, price, None if price is None else _GONE))
        for b, heir, wanted, price, way in found:
            if way is None:
                continue
            useful = min(self.size[b], short + self.rules.excess * (self.size[b] - short))
            area = useful * (self.times[min(wanted, self.n)] - starts)
            score = (b in self.soon, price / area, -area)
            if best is None or score < best:
                best, choice = score, (b, way, price, wanted, heir)
        return choice

    def _price(self, b: int, now: float, wanted: int) -> tuple[float, int | None]:
        """(seconds that b's way back costs, which way; None: it must stay)."""
        late = self.links.late
        if b in self.constraints.uncopied:
            again = self._replay_price(b, wanted) if b not in self.soon else None
            return (0.0, None) if again is None else (again, _GONE)
        made = self.times[self.maker[b] + 1] if b in self.maker else 0.0
        price = self.links.price(
            self.copied[b], self.clean[b], made + late, now, self.times[min(wanted, self.n)] + late
        )
        price += self.rules.dear.get((b, False), 0.0)
        may = self.rules.replays and wanted < self.n and b not in self.soon
        if may and (price > 0 or not self.rules.copies):
            again = self._replay_price(b, wanted)
            if again is not None and (again < price or not (self.rules.copies or b in self.checkpoints)):
                return again, _GONE
        return price, _HOME

    def _replay_price(self, b: int, wanted: int) -> float | None:
        r = self.maker.get(b)
        if not self._can_replay(b, wanted):
            return None
        if self.remat_cost is not None and self.remat_cost.dwarfed(b, r, self.limit):
            return None
        price = self.costs.again[r]
        price += self.rules.dear.get((b, True), 0.0) + (CHECKPOINT if b in self.checkpoints else 0.0)
        near = {self.maker[x] for x in self.can.reads[r] if self._gone(x) and x in self.maker}
        near.update(*(self.holders[m] for m in self.can.makes[r] if m in self.holders))
        if near:
            price += self.rules.chain * sum(self.weight.get(root, 0.0) for root in {self._root(h) for h in near})
        if self.remat_cost is not None and wanted < self.n and self.remat_cost.large(b, self.limit):
            price += self.remat_cost.price(b, self._chain(r), wanted, self.limit)
        return price

    def _chain(self, r: int) -> list[int]:
        """The steps that run again to repeat step r, as things are, in order."""
        found, todo = set(), [r]
        while todo:
            q = todo.pop()
            if q not in found:
                found.add(q)
                gone = (x for x in self.can.reads[q] if x in self.uses and self._gone(x) and x in self.maker)
                todo += [self.maker[x] for x in gone if self.maker[x] != q]
        return sorted(found)

    def _can_replay(self, b: int, wanted: int) -> bool:
        """Whether b can be made again, with all that this takes: each value is looked at once, by however many ways it
        is reached."""
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

    def _evict(self, b: int, way: int, price: float, wanted: int, heir: int | None, s: int, now: float) -> None:
        self.found.evicted += 1
        if heir is not None:
            self._drop(b, wanted)
            self.giving[b] = heir
            return
        self.found.left.add((b, self.last_at[b]))
        if way == _HOME:
            late = self.links.late
            made = self.times[self.maker[b] + 1] if b in self.maker else 0.0
            self.links.book(self.copied[b], self.clean[b], made + late, now, self.times[min(wanted, self.n)])
            self.found.stall += price
            self.clean[b] = True
        else:
            self._drop(b, wanted)
        self._off(b, way)

    def _drop(self, b: int, wanted: int) -> None:
        r = self.maker[b]
        self.dropped[r] = min(wanted, self.dropped.get(r, NEVER))
        if r not in self.parent:
            self.parent[r], self.weight[r] = r, 0.0
        self.weight[self._root(r)] += self.costs.again[r]
        for x in self.can.reads[r]:
            if x not in self.uses:
                continue
            self.holders[x].add(r)
            if self._gone(x) and x in self.maker and self.maker[x] != r:
                if self.maker[x] not in self.dropped:  # dead until now: it will be made again too
                    self._drop(x, wanted)
                self._join(r, self.maker[x])
        for m in self.can.makes[r]:
            for h in self.holders.get(m, ()):
                if h in self.parent:
                    self._join(r, h)

    def _root(self, s: int) -> int:
        if s not in self.parent:
            return s
        while self.parent[s] != s:
            self.parent[s] = self.parent[self.parent[s]]
            s = self.parent[s]
        return s

    def _join(self, a: int, b: int) -> None:
        a, b = self._root(a), self._root(b)
        if a != b and a in self.weight and b in self.weight:
            self.parent[b] = a
            self.weight[a] += self.weight[b]
