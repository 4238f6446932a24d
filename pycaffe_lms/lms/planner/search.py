"""Propose the next set of eviction rules: given ones first, then neighbours of the best. Pure and deterministic.

Neighbours differ from the best rules in one number (`LADDERS`). After those come random changes to the prices of single
values: up for values whose copies steps waited for or that were rematerialized more than once, and a few at random.
`optimise.py` makes a plan of each proposal and reports it with `tell`.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..cost.machine import Costs
from ..cost.timing import time_plan
from ..plan.plan import OpKind, Plan
from ..plan.rules import Rules
from ..remat.candidates import RematCandidates

FIRST = 4  # given rules tried before neighbours of the best
HARD = 2  # failures after which the last given rules (copies alone, least memory) are next
HOPELESS = 5  # failures after which no more are tried
LADDERS = {
    "density": (0.0, 1.0, 2.0, 2.75, 3.5, 4.5, 6.0, 8.0, 12.0),
    "copies": (True, False),
    "room": (1.0, 0.98, 0.96, 0.93),
    "excess": (1.0, 0.3, 0.1, 0.0),
    "chain": (0.1, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0),
}
SECONDS = (1e-4, 1e-3, 1e-2)  # that may be added to the cost of bringing one value back


class Search:
    """Search over rules: `next` proposes rules, `tell` takes the plan made by them.

    given: rules to try first. Ends where all given rules failed."""

    def __init__(self, given: Sequence[Rules], can: RematCandidates, costs: Costs):
        self._can, self._costs = can, costs
        self._rng = random.Random(0)
        self._given = list(given)
        self._first = len(self._given) - FIRST
        self._tried: list[Rules] = []
        self._near: Iterator[Rules] = iter(())
        self.best: Plan | None = None
        self._rules: Rules | None = None

    def next(self) -> Rules | None:
        """Return the rules to try next; None: the search is over."""
        if self.best is not None and len(self._given) <= self._first and self._rules.remats:
            for rules in self._near:
                if rules not in self._tried:
                    return rules
        while self._given and not (self.best is None and len(self._tried) >= HOPELESS):
            rules = self._given.pop(-1 if self.best is None and len(self._tried) == HARD else 0)
            if (rules.remats or self.best is None) and rules not in self._tried:
                return rules  # copies alone: only where nothing else gave a plan
        return self._moved() if self.best is not None and self._rules.remats else None

    def tell(self, rules: Rules, plan: Plan | None) -> None:
        """Take the plan made by `rules`; None: they gave none."""
        self._tried.append(rules)
        if plan is not None and (self.best is None or plan.seconds < self.best.seconds):
            self.best, self._rules = plan, rules
            self._near = self._neighbours(rules)

    def _neighbours(self, rules: Rules) -> Iterator[Rules]:
        """Yield rules with one number moved one rung of its ladder."""
        for name, ladder in LADDERS.items():
            value = getattr(rules, name)
            at = min(range(len(ladder)), key=lambda i: abs(ladder[i] - value))
            for near in (at + 1, at - 1):
                if 0 <= near < len(ladder):
                    yield replace(rules, **{name: ladder[near]})

    def _moved(self) -> Rules:
        """Return the best rules with changed prices of some values."""
        rng, dear = self._rng, dict(self._rules.dear)
        waited, chains = self._blamed()
        kind = rng.randrange(3)
        if kind == 0 and waited:
            for b in sorted(waited):
                if rng.random() < 0.7:
                    dear[b, False] = dear.get((b, False), 0.0) + waited[b] * rng.choice((0.5, 1, 2))
        elif kind == 1 and chains:
            for b in sorted(chains):
                if rng.random() < 0.5:
                    dear[b, True] = dear.get((b, True), 0.0) + chains[b] * rng.choice((0.25, 0.5, 1, 2))
        else:
            values = sorted({*waited, *chains, *(b for b, _ in dear)})
            for b in rng.sample(values, -(-len(values) // rng.choice((4, 10, 30)))):
                way = rng.random() < 0.5
                if (b, way) in dear and rng.random() < 0.6:
                    del dear[b, way]
                else:
                    dear[b, way] = rng.choice(SECONDS)
        return replace(self._rules, dear=dear)

    def _blamed(self) -> tuple[Counter[int], Counter[int]]:
        """Return, for the best plan, (buffer -> seconds that steps waited for its copies, buffer -> seconds of its
        rematerializations after the first, with those of their inputs)."""
        plan, can = self.best, self._can
        times, waited = time_plan(plan, self._costs), Counter()
        for op in plan.ops:
            if op.kind is OpKind.COMPUTE and op.waits and times.stalls[op.step] > 1e-5:
                last = max(op.waits, key=lambda w: times.end[w])
                waited[plan.ops[last].place.buffer] += times.stalls[op.step]
        took, maker, above = defaultdict(list), {}, {}
        for s, again in plan.order:
            if not again:
                maker, above = {}, {}
                continue
            above[s] = {s}.union(*(above[maker[x]] for x in can.reads[s] if x in maker))
            maker.update(dict.fromkeys(can.makes[s], s))
            took[s].append(sum(self._costs.again[u] for u in above[s]))
        chains = Counter({b: sum(t[1:]) for s, t in took.items() for b in can.makes[s] if b in plan.buffers})
        return waited, chains
