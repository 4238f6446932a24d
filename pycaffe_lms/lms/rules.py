"""Define every number that planning chooses by: `Rules` of one eviction pass, and `SearchBudget` of a whole search.

Pure. `planner/optimise.py` tries several rules; all other numbers are the same for every program. What each of them
gains over the zoo is in docs/plan_search.md; `tools/bench/ablation.py` changes them one at a time.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Rules:
    """Set how an eviction pass chooses what leaves the device and how it comes back.

    Attributes:
        copies: allow copying values that could also be rematerialized.
        remats: allow rematerialization.
        linked_weight: weight, in the price of a rematerialized step, of the seconds of the rematerialized steps linked
            to it; no unit.
        checkpoint_density: forward segments per hundred rematerializable steps; the values alive at the narrowest point
            of each segment are checkpoints, preferably kept or copied: see `remat/candidates.py`.
        surplus_weight: weight of bytes freed beyond the shortfall; no unit.
        displacement: count the copies of gradients that rematerializing a large value displaces: see `remat/cost.py`.
        memory_share: share of the memory that the pass may fill; the rest is for copies that begin early.
        marginal: count what a choice adds: of a copy in that comes late its own seconds at most, not those of the
            copies that it waits for; for a step that runs again those that would have to run for it alone, too.
    """

    copies: bool = True
    remats: bool = True
    linked_weight: float = 0.5
    checkpoint_density: float = 0.0
    surplus_weight: float = 1.0
    displacement: bool = True
    memory_share: float = 1.0
    marginal: bool = False

    def __str__(self) -> str:
        """Return what the rules allow, as the log and reports have it."""
        if not self.remats:
            return "copies"
        return "copies and rematerialization" if self.copies else "rematerialization where possible, else copies"


SWAP = (Rules(remats=False),)  # copies only
AUTO = (
    Rules(copies=False, checkpoint_density=2.75, surplus_weight=0.3),
    Rules(checkpoint_density=2.75, surplus_weight=0.0, displacement=False),
    Rules(copies=False, checkpoint_density=12.0, surplus_weight=0.3, memory_share=0.85),
    Rules(copies=False, checkpoint_density=20.0, surplus_weight=0.3, memory_share=0.85),
    Rules(copies=False, checkpoint_density=8.0, surplus_weight=0.3, memory_share=0.85),
    Rules(linked_weight=0.1, surplus_weight=0.3),
    Rules(copies=False, checkpoint_density=2.75, surplus_weight=0.0),
    Rules(copies=False, linked_weight=0.1, checkpoint_density=2.75, surplus_weight=0.3),
    Rules(copies=False, linked_weight=0.1, checkpoint_density=4.5),
    Rules(checkpoint_density=4.5, surplus_weight=0.0),
    Rules(linked_weight=0.1, checkpoint_density=2.75),
    Rules(copies=False, checkpoint_density=3.5),
    Rules(copies=False, linked_weight=0.3, checkpoint_density=4.5, surplus_weight=0.0),
    Rules(checkpoint_density=2.75, surplus_weight=0.0, memory_share=0.85),
    Rules(remats=False),
)
LONG = (
    Rules(linked_weight=0.1, surplus_weight=0.3, memory_share=0.85, marginal=True),
    Rules(linked_weight=0.1, surplus_weight=0.6, memory_share=0.7, marginal=True),
    AUTO[4],
)


@dataclass(frozen=True)
class SearchBudget:
    """Hold the numbers by which plans are searched for.

    Attributes:
        auto: sets of rules tried, in this order: each next one is that of 145 which, with those before it, gives the
            fastest plans over the cases of `tools/bench/ablation.py`; those with `memory_share` were added for
            transformers and small programs, the one with `linked_weight` 0.3 for small budgets. Those that only copy
            come last: they are tried where no other gave a plan.
        long: sets tried before these where a program has at least `long_steps` steps, of which the work allows a few
            sets only: the fastest for transformers of 1.3 to 6.7 billion parameters.
        long_steps: steps.
        work: sum of (eviction passes x steps squared) after which no more rules are tried: a bound of the planning
            time, counted rather than timed, so that every run finds the same plan.
        steps_per_second: steps followed, over all passes, per second that a better plan could save in a run: a program
            that runs for a millisecond is planned at once.
        passes: eviction passes for one set of rules, with less memory each, until packing fits.
        memory_factor: factor on the memory from pass to pass.
        copy_margin: factor on predicted copy times when memory is held for copies, since measured ones vary.
        evict_in_place: a value that the running step can overwrite may be dropped for that, and rematerialized.
        checkpoint_seconds: seconds added to the price of rematerializing a checkpoint: more than any step takes.
        large_parts: a value is large if it takes more than one of so many parts of the memory limit. Rematerializing
            large values may displace gradients, which is priced (`remat/cost.py`); 0: never.
        dwarf_factor: a value is not rematerialized if a large one of so many times its bytes is needed for that.
        reorder_work: tasks whose times are computed before the reordering of copies ends; 0: none is reordered.
        reordered_share: share of a plan's time that is left at least when its copies are reordered: a plan is not
            searched for where another one takes less than that.
        piece: bytes: copies are cut at multiples of it, since each piece costs the latency of a copy; 1 << 62: never.
        packing_tries: tries of one order of lifetimes; what found no place goes first in the next.
        packing_hopeless: share of the lifetimes beside pages; where two tries leave more without a place, the required
            lifetimes are packed instead: a packing that succeeds has placed most of them by then.
        extension_shares: shares of a wanted extension of a lifetime that are tried.
        large_lifetime_parts: a lifetime is large if it takes at least one of so many parts of the memory; these go
            first in the second order.
        segment_orders_up_to: lifetimes on the host beyond which only one order is tried.
        ahead_tries: memory sizes tried by fixed look-ahead until packing fits.
        ahead_factor: factor on that memory from try to try.
        split_slow: a split backward is tried for a plan that takes more than so many times the seconds of its steps.
        params_share: share of the device; parameters, gradients and history that take less stay on it if they leave
            what the largest step needs.
        first_params_share: share of the device; where not all parameters stay, the first ones do, with their history,
            up to this share and to half of what the largest step leaves.
        page_waste_parts: a buffer lies in pages if its last page wastes at most one of so many parts of it.
        least_page_waste_parts: the same where memory is to be as small as can be: without a limit, and on demand.
        few_pages: pages; an arena of fewer is contiguous.
        replan: a new plan replaces the old one if it is predicted to take at most this share of its time.
    """

    auto: tuple[Rules, ...] = AUTO
    long: tuple[Rules, ...] = LONG
    long_steps: int = 850
    work: int = 11_000_000
    steps_per_second: int = 6_000_000
    passes: int = 6
    memory_factor: float = 0.95
    copy_margin: float = 1.1
    evict_in_place: bool = True
    checkpoint_seconds: float = 1.0
    large_parts: int = 12
    dwarf_factor: int = 8
    reorder_work: int = 500_000
    reordered_share: float = 0.85
    piece: int = 4 << 20
    packing_tries: int = 5
    packing_hopeless: float = 1 / 3
    extension_shares: tuple[float, ...] = (1.0, 0.6, 0.3, 0.0)
    large_lifetime_parts: int = 40
    segment_orders_up_to: int = 2000
    ahead_tries: int = 12
    ahead_factor: float = 0.94
    split_slow: float = 1.15
    params_share: float = 0.4
    first_params_share: float = 0.375
    page_waste_parts: int = 2
    least_page_waste_parts: int = 8
    few_pages: int = 16
    replan: float = 0.97

    def rules_for(self, steps: int) -> tuple[Rules, ...]:
        """Return the sets of rules for a program of so many steps, in the order in which they are tried."""
        return (*self.long, *self.auto) if steps >= self.long_steps else self.auto


SEARCH = SearchBudget()
