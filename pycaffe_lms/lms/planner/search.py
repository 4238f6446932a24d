"""Propose the next set of eviction rules: given ones first, then neighbours of the best. Pure.

Neighbours differ from the best rules in one number (`SearchBudget.ladders`). `optimise.py` makes a plan of each
proposal and reports it with `tell`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ..plan.plan import Plan
from ..rules import SEARCH, Rules, SearchBudget


class Search:
    """Search over rules: `next` proposes rules, `tell` takes the plan made by them.

    given: rules to try first. Ends where all given rules failed."""

    def __init__(self, given: Sequence[Rules], budget: SearchBudget = SEARCH):
        self._budget = budget
        self._given = list(given)
        self._first = max(0, len(self._given) - budget.given_first)
        self._tried: list[Rules] = []
        self._near: Iterator[Rules] = iter(())
        self.best: Plan | None = None
        self._rules = Rules()  # of `best`

    def next(self) -> Rules | None:
        """Return the rules to try next; None: the search is over."""
        if len(self._given) <= self._first and (rules := self._next_neighbour()) is not None:
            return rules
        while self._given and not (self.best is None and len(self._tried) >= self._budget.failures):
            rules = self._given.pop(-1 if self.best is None and len(self._tried) == self._budget.copies_after else 0)
            if (rules.remats or self.best is None) and rules not in self._tried:
                return rules  # copies alone: only where nothing else gave a plan
        return self._next_neighbour()

    def _next_neighbour(self) -> Rules | None:
        """Return an untried neighbour of the best rules; None: there is none, or these only copy."""
        untried = (rules for rules in self._near if rules not in self._tried)
        return next(untried, None) if self._rules.remats else None

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
