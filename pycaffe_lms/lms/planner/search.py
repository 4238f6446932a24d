"""Propose the next set of eviction rules: given ones first, then neighbours of the best. Pure and deterministic.

Neighbours differ from the best rules in one number (`SearchBudget.ladders`). After those come random changes to the
prices of single values: up for values whose copies steps waited for or that were rematerialized more than once, and a
few at random.
`optimise.py` makes a plan of each proposal and reports it with `tell`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..cost.machine import Costs
from ..cost.timing import time_plan
from ..plan.plan import OpKind, Plan
from ..remat.candidates import RematCandidates
from ..rules import SEARCH, Rules, SearchBudget


class Search:
    """Search over rules: `next` proposes rules, `tell` takes the plan made by them.

    given: rules to try first. Ends where all given rules failed."""

    def __init__(self, given: Sequence[Rules], can: RematCandidates, costs: Costs, budget: SearchBudget = SEARCH):
        self._can, self._costs, self._budget = can, costs, budget
        self._rng = random.Random(0)
        self._given = list(given)
        self._first = len(self._given) - budget.given_first
        self._tried: list[Rules] = []
        self._near: Iterator[Rules] = iter(())
        self.best: Plan | None = None
        self._rules = Rules()  # of `best`

    def next(self) -> Rules | None:
        """Return the rules to try next; None: the search is over."""
        if self.best is not None and len(self._given) <= self._first and self._rules.remats:
            for rules in self._near:
                if rules not in self._tried:
                    return rules
        while self._given and not (self.best is None and len(self._tried) >= self._budget.failures):
            rules = self._given.pop(-1 if self.best is None and len(self._tried) == self._budget.copies_after else 0)
            if (rules.remats or self.best is None) and rules not in self._tried:
                return rules  # copies alone: only where nothing else gave a plan
        return self._moved(self.best) if self.best is not None and self._rules.remats and self._budget.moves else None

    def tell(self, rules: Rules, plan: Plan | None) -> None:
        """Take the plan made by `rules`; None: they gave none."""
        self._tried.append(rules)
        if plan is not None and (self.best is None or plan.seconds < self.best.seconds):
            self.best, self._rules = plan, rules
            self._near = self._neighbours(rules)

    def _neighbours(self, rules: Rules) -> Iterator[Rules]:
        """Yield rules with one number moved one rung of its ladder."""
        for name, ladder in self._budget.ladders:
            value = getattr(rules, name)
            at = min(range(len(ladder)), key=lambda i: abs(ladder[i] - value))
            for near in (at + 1, at - 1):
                if 0 <= near < len(ladder):
                    change: dict[str, Any] = {name: ladder[near]}
                    yield replace(rules, **change)

    def _moved(self, best: Plan) -> Rules:
        """Return the best plan's rules with changed prices of some values."""
        rng, extra = self._rng, dict(self._rules.surcharges)
        waited, chains = self._blamed(best)
        kind = rng.choice(self._budget.moves)
        if kind == "waited" and waited:
            for b in sorted(waited):
                if rng.random() < 0.7:
                    extra[b, False] = extra.get((b, False), 0.0) + waited[b] * rng.choice((0.5, 1, 2))
        elif kind == "again" and chains:
            for b in sorted(chains):
                if rng.random() < 0.5:
                    extra[b, True] = extra.get((b, True), 0.0) + chains[b] * rng.choice((0.25, 0.5, 1, 2))
        else:
            values = sorted({*waited, *chains, *(b for b, _ in extra)})
            for b in rng.sample(values, -(-len(values) // rng.choice((4, 10, 30)))):
                way = rng.random() < 0.5
                if (b, way) in extra and rng.random() < 0.6:
                    del extra[b, way]
                else:
                    extra[b, way] = rng.choice(self._budget.surcharges)
        return replace(self._rules, surcharges=extra)

    def _blamed(self, plan: Plan) -> tuple[dict[int, float], dict[int, float]]:
        """Return (buffer -> seconds that steps waited for its copies, buffer -> seconds of its
        rematerializations after the first, with those of their inputs)."""
        can = self._can
        times, waited = time_plan(plan, self._costs), dict[int, float]()
        for op in plan.ops:
            if op.kind is OpKind.COMPUTE and op.waits and times.stalls[op.step] > self._budget.least_wait:
                last = max(op.waits, key=lambda w: times.end[w])
                blamed = plan.ops[last].placed.buffer
                waited[blamed] = waited.get(blamed, 0.0) + times.stalls[op.step]
        took = defaultdict[int, list[float]](list)
        maker: dict[int, int] = {}
        above: dict[int, set[int]] = {}
        for s, again in plan.order:
            if not again:
                maker, above = {}, {}
                continue
            above[s] = {s}.union(*(above[maker[x]] for x in can.reads[s] if x in maker))
            maker.update(dict.fromkeys(can.makes[s], s))
            took[s].append(sum(self._costs.again[u] for u in above[s]))
        chains = {b: sum(t[1:]) for s, t in took.items() for b in can.makes[s] if b in plan.buffers}
        return waited, chains
