"""Who leaves the device when memory ends, and how a value comes back: by a copy, or by making it again. Pure.

The program is followed step by step with a memory of `limit` bytes. When the next step does not fit, the buffer goes
whose way back costs least for the memory and time that it sets free: seconds per (byte x second until its next use).
All next uses are known, so this is Belady's rule with prices. A copy costs what the link cannot hide: out, if the queue
of copies behind its making is not through by now; in, if what is wanted back before it already fills the link. Making
it again costs its step, and a share of the steps that must run before or after it for the same reason (a long chain of
dropped values would have to be alive together again).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from ..errors import PlanError
from .handover import handovers
from .machine import Costs
from .replays import Replayable
from .schedule import Buffer, Mode, Program

NEVER = 1 << 60
_ON, _HOME, _GONE = range(3)  # on the device; on the host only; nowhere: unwritten, dead, or to be made again


class DoesNotFit(Exception):
    """The program cannot run in this memory in this way."""


@dataclass(frozen=True)
class Rules:
    """copies: values that could be made again may leave by a copy instead. replays: they may be made again. chain:
    which share of the steps that would be made again together counts in a step's price."""

    copies: bool = True
    replays: bool = True
    chain: float = 0.5

    def __str__(self) -> str:
        if not self.replays:
            return "copies"
        return f"{'copies and replays' if self.copies else 'replays where they can be'}, chain {self.chain:g}"


@dataclass(frozen=True)
class Wishes:
    """What is not the follower's to choose. uncopied: buffers that are never copied. again: steps of the program that
    make values again -> the forward they repeat."""

    uncopied: Collection[int] = ()
    again: Mapping[int, int] = field(default_factory=dict)


@dataclass
class Evictions:
    """What was found. order: steps and replays as they run. left: (buffer, position in `order` of its last use) of the
    stays that end there although the value is wanted again. stall: seconds that copies were predicted to be late.
    evicted: how often memory was short."""

    order: list[tuple[int, bool]] = field(default_factory=list)
    left: set[tuple[int, int]] = field(default_factory=set)
    stall: float = 0.0
    evicted: int = 0


class _Links:
    """What copies cost that are not hidden."""

    def __init__(self, costs: Costs, times: list[float], turn: float):
        self._machine, self._times, self._turn = costs.machine, times, turn
        self._out_free = 0.0
        self._back: list[tuple[float, float]] = []  # (when wanted, seconds of its copy in)
        self._busy: list[float] = [0.0]  # seconds of the first k of them
        self.late = 0.0

    def price(self, nbytes: int, clean: bool, made: float, now: float, wanted: float) -> float:
        m = self._machine
        out = 0.0
        if not clean:
            out = max(0.0, max(self._out_free, made) + m.copy_seconds(nbytes, True) - now - self.late)
        busy, start = self._busy[bisect_right(self._back, (wanted, NEVER))], max(now, self._turn)
        return out + max(0.0, busy + m.copy_seconds(nbytes, False) - max(0.0, wanted - start))

    def book(self, nbytes: int, clean: bool, made: float, now: float, wanted: float) -> None:
        m = self._machine
        if not clean:
            self._out_free = max(self._out_free, made) + m.copy_seconds(nbytes, True)
            self.late += max(0.0, self._out_free - now - self.late)
        insort(self._back, (wanted, m.copy_seconds(nbytes, False)))
        self._busy = list(accumulate((seconds for _, seconds in self._back), initial=0.0))

    def arrived(self, wanted: float, nbytes: int) -> None:
        at = bisect_right(self._back, (wanted, self._machine.copy_seconds(nbytes, False))) - 1
        if at >= 0:
            self._back.pop(at)
            self._busy = list(accumulate((seconds for _, seconds in self._back), initial=0.0))


class Follower:
    """One pass over a program. `run` once. What may not be copied leaves only to be made again. sizes: what buffers
    take from the memory, where that is not their bytes."""

    def __init__(self, program: Program, buffers: Mapping[int, Buffer], limit: int, costs: Costs, can: Replayable,
                 rules: Rules, wishes: Wishes, sizes: Mapping[int, int] | None = None):  # fmt: skip
        self.wishes = wishes
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
        self.pairs = handovers(program, buffers)
        self.cursor = dict.fromkeys(buffers, 0)  # the next of `uses`
        self.where = dict.fromkeys(buffers, _GONE)
        self.clean: dict[int, bool] = {}
        self.maker: dict[int, int] = {}
        self.last_at = dict.fromkeys(buffers, -1)  # position in `order` of the last use
        self.holders: dict[int, set[int]] = {b: set() for b in buffers}  # dropped steps whose replay reads it
        self.dropped: dict[int, int] = {}  # step -> before which step it is made again at the latest
        self.on: set[int] = set()
        self.used = 0
        self.soon: set[int] = set()  # what is being brought back, and what that takes: dropped, it would be in vain
        self.parent: dict[int, int] = {}  # dropped steps that hang together
        self.weight: dict[int, float] = {}
        self.found = Evictions()
        self.links = _Links(costs, self.times, self.times[self._peak()])
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
    def wanted(self, b: int) -> int:
        """Before which step its value is read next; the program's length: it must survive; NEVER: dead."""
        uses, at = self.uses[b], self.cursor[b]
        if at < len(uses):
            soon = uses[at][0] if uses[at][1] is not Mode.OVERWRITE else NEVER
        else:
            soon = self.n if b in self.program.live_out else NEVER
        for s in self.holders[b]:
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
            self._enter([a.buffer for a in mine], ids, s, self.pairs.get(s, ()))
            at = self._append(s, False)
            for a in mine:
                self._used(a.buffer, a.mode, s, at)
                self.cursor[a.buffer] += 1
            if s in self.wishes.again:
                self._made_again(self.wishes.again[s])
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

    def _enter(self, ids: list[int], pinned: set[int], s: int, pairs=()) -> None:
        """Get these buffers onto the device for a step; pairs: of those, which are born where others end."""
        new = [b for b in dict.fromkeys(ids) if self.where[b] != _ON]
        shared = sum(self.size[b] for old, b in pairs if b in new and not self.holders[old])
        self._make_room(sum(self.size[b] for b in new) - shared, pinned, s)
        for b in new:
            if self.where[b] == _HOME:
                self.links.arrived(self.times[min(self.wanted(b), self.n)], self.copied[b])
            self.where[b] = _ON
            self.on.add(b)
            self.used += self.size[b]

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
            self.soon = {*reads, *(b for t in (r, *todo) for b in self.can.reads[t])}
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
        self._enter([a.buffer for a in mine], ids | {b for b in pinned if self.where[b] == _ON}, s)
        at = self._append(r, True)
        for a in mine:
            self._used(a.buffer, a.mode, r, at)
        self._made_again(r)
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
    def _make_room(self, nbytes: int, pinned: set[int], s: int) -> None:
        while self.used + nbytes > self.limit:
            best, choice = None, None
            now = self.times[s] + self.links.late
            for b in self.on:
                if b in pinned:
                    continue
                price, way = self._price(b, s, now)
                if way is None:
                    continue
                span = self.times[min(self.wanted(b), self.n)] - self.times[s] + 1e-6
                score = (b in self.soon, price / (self.size[b] * span), -self.size[b] * span)
                if best is None or score < best:
                    best, choice = score, (b, way, price)
            if choice is None:
                raise DoesNotFit
            self._evict(*choice, s, now)

    def _price(self, b: int, s: int, now: float) -> tuple[float, int | None]:
        """(seconds that b's way back costs, which way; None: it must stay)."""
        wanted, late = self.wanted(b), self.links.late
        if b in self.wishes.uncopied:
            again = self._replay_price(b, wanted) if b not in self.soon else None
            return (0.0, None) if again is None else (again, _GONE)
        made = self.times[self.maker[b] + 1] if b in self.maker else 0.0
        price = self.links.price(
            self.copied[b], self.clean[b], made + late, now, self.times[min(wanted, self.n)] + late
        )
        may = self.rules.replays and wanted < self.n and b not in self.soon
        if may and (price > 0 or not self.rules.copies):
            again = self._replay_price(b, wanted)
            if again is not None and (again < price or not self.rules.copies):
                return again, _GONE
        return price, _HOME

    def _replay_price(self, b: int, wanted: int) -> float | None:
        r = self.maker.get(b)
        if not self._can_replay(b, wanted):
            return None
        price = self.costs.again[r]
        roots = {self._root(self.maker[x]) for x in self.can.reads[r] if self.where.get(x) == _GONE and x in self.maker}
        roots |= {self._root(h) for m in self.can.makes[r] for h in self.holders.get(m, ())}
        return price + self.rules.chain * sum(self.weight.get(root, 0.0) for root in roots)

    def _can_replay(self, b: int, wanted: int) -> bool:
        r = self.maker.get(b)
        if r is None or self.can.valid_until.get(r, -1) < wanted or b not in self.can.makes[r]:
            return False
        for x in self.can.reads[r]:
            if x not in self.uses or self.where[x] != _GONE or self.maker.get(x) == r:
                continue
            if self.dropped.get(self.maker.get(x), -1) < wanted and not self._can_replay(x, wanted):
                return False
        return True

    def _evict(self, b: int, way: int, price: float, s: int, now: float) -> None:
        wanted = self.wanted(b)
        self.found.evicted += 1
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
            if self.where[x] == _GONE and x in self.maker and self.maker[x] != r:
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
