"""What making a large value again costs beside gradients: by hand on small programs, and what it is good for."""

from __future__ import annotations

import dataclasses

import pytest

from pycaffe_lms.lms.cost.machine import MACHINES, Costs
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.lms.planner.optimise import optimise
from pycaffe_lms.lms.program import Access, Buffer, Mode, Program, Step
from pycaffe_lms.lms.remat.candidates import RematCandidates
from pycaffe_lms.lms.remat.cost import RematCost
from pycaffe_lms.lms.rules import SEARCH, Rules

pytestmark = pytest.mark.pure
R, U, O = Mode.READ, Mode.UPDATE, Mode.OVERWRITE  # noqa: E741
MB = 1 << 20
MACHINE = MACHINES["h200"]


class Stage:
    """Residual blocks as at the front of a ResNet: y = relu(wide(narrow(x)) + x), with wide values four times as large
    as narrow ones and the data, and one bit kept for backward of every element of y."""

    def __init__(self, blocks: int, wide: int):
        self.ids: dict[str, int] = {}
        self.buffers: dict[int, Buffer] = {}
        self.steps: list[Step] = []
        self.remats: dict[int, Step] = {}
        self.seconds: list[float] = []
        self.wide = wide
        self.forward("first", "data", "x0")
        for i in range(blocks):
            self.forward(f"narrow{i}", f"x{i}", f"a{i}")
            self.forward(f"wide{i}", f"a{i}", f"w{i}")
            self.forward(f"sum{i}", f"w{i} x{i}", f"x{i + 1} bits{i}", reuses=((f"w{i}", f"x{i + 1}"),))
        self.add("loss", f"x{blocks}", f"dx{blocks}", 1e-4)
        for i in reversed(range(blocks)):
            self.add(
                f"backward sum{i}",
                f"w{i} dx{i + 1} bits{i}",
                f"dw{i} dx{i}",
                1.2e-3,
                ((f"w{i}", f"dw{i}"), (f"dx{i + 1}", f"dx{i}")),
            )
            self.add(f"backward wide{i} [params]", f"a{i} dw{i}", "", 3e-4)
            self.add(f"backward wide{i}", f"dw{i}", f"da{i}", 3e-4)
            self.add(f"backward narrow{i}", f"x{i} da{i}", "", 8e-4, updates=f"dx{i}")
        self.program = Program("stage", tuple(self.steps), frozenset())
        again = {s: self.seconds[s] for s in self.remats}
        self.costs = Costs(self.seconds, again, MACHINE)
        self.can = RematCandidates(self.program, self.remats, frozenset())

    def id(self, name: str) -> int:
        share = 4 if name[0] == "a" or name[:2] == "da" else 32 if name[0] == "b" else 1
        if name not in self.ids:
            b = self.ids[name] = len(self.ids)
            self.buffers[b] = Buffer(b, name, self.wide // share)
        return self.ids[name]

    def add(self, name: str, reads: str, makes: str, seconds: float, reuses=(), updates: str = "") -> None:
        accesses = [
            Access(self.id(b), mode) for part, mode in ((reads, R), (updates, U), (makes, O)) for b in part.split()
        ]
        pairs = tuple((self.id(old), self.id(new)) for old, new in reuses)
        self.steps.append(Step(name, tuple(accesses), False, pairs))
        self.seconds.append(seconds)

    def forward(self, name: str, reads: str, makes: str, seconds: float = 4e-4, reuses=()) -> None:
        self.add(name, reads, makes, seconds, reuses)
        s = len(self.steps) - 1
        self.remats[s] = Step(f"again:{name}", self.steps[s].accesses, False, self.steps[s].reuses)

    def step(self, name: str) -> int:
        return [s.name for s in self.steps].index(name)

    def remat_cost(self) -> RematCost:
        return RematCost(self.can, self.buffers, {b: x.nbytes for b, x in self.buffers.items()}, self.costs)


def test_what_a_chain_needs_beside_gradients():
    stage = Stage(2, 64 * MB)
    remat_cost = stage.remat_cost()
    x1, wanted = stage.ids["x1"], stage.step("backward narrow1")
    # beside dx1 (64) and da1 (16), x0 (64) is there; narrow0 makes a0 (16), wide0 w0 (64), sum0 x1 where w0 lay, and
    # bits (2): most is there in sum0, when a0 is gone
    chain = [stage.step("narrow0"), stage.step("wide0"), stage.step("sum0")]
    need = (64 + 16 + 64 + 16 + 64) * MB
    assert remat_cost.price(x1, chain, wanted, need) == 0
    # one byte too much: the least of the gradients that are alive has to leave and come back
    price = MACHINE.copy_seconds(16 * MB, True) + MACHINE.copy_seconds(16 * MB, False)
    assert remat_cost.price(x1, chain, wanted, need - 1) == pytest.approx(price)
    price = MACHINE.copy_seconds(64 * MB, True) + MACHINE.copy_seconds(64 * MB, False)
    assert remat_cost.price(x1, chain, wanted, need - 16 * MB - 1) == pytest.approx(price)
    # more than any of them has: so many bytes
    price = MACHINE.copy_seconds(80 * MB, True) + MACHINE.copy_seconds(80 * MB, False)
    assert remat_cost.price(x1, chain, wanted, need - 80 * MB) == pytest.approx(price)
    # from the front on x0 is made first, from data (64), which nobody reads later
    longer = [stage.step("first"), *chain]
    assert remat_cost.price(x1, longer, wanted, need) == 0


def test_before_gradients_only_the_chain_counts():
    stage = Stage(2, 64 * MB)
    chain = [stage.step("narrow0"), stage.step("wide0"), stage.step("sum0")]
    assert stage.remat_cost().price(stage.ids["x1"], chain, stage.step("narrow1"), (64 + 16 + 64) * MB) == 0


def test_who_is_large_and_who_is_dwarfed():
    stage = Stage(1, 64 * MB)
    remat_cost, made = stage.remat_cost(), stage.step("sum0")
    assert remat_cost.large(stage.ids["x1"], 64 * MB * SEARCH.large_parts - 1)
    assert not remat_cost.large(stage.ids["x1"], 64 * MB * SEARCH.large_parts)
    assert remat_cost.dwarfed(stage.ids["bits0"], made, 256 * MB)  # 2 MB, of a step that needs 64 twice
    assert not remat_cost.dwarfed(stage.ids["bits0"], made, 64 * MB * SEARCH.large_parts)  # where 64 MB are little
    assert not remat_cost.dwarfed(stage.ids["x1"], made, 256 * MB)


@pytest.mark.parametrize("blocks", [3, 4])
def test_a_stage_of_wide_values_waits_less_for_gradients(blocks):
    """In 3.4 times a wide value. A block's backward needs 3.25 of them at once, if its bottom is still there; made
    again when the gradients are there, it drives one of them out, which takes as long as 15 steps. By one set of rules:
    others may be found that come around it."""
    rules = (Rules(copies=False, checkpoint_density=2.75, surplus_weight=0.0),)
    stage = Stage(blocks, 512 * MB)
    more = {"costs": stage.costs, "remats": stage.remats, "scratch": frozenset(), "page": 2 * MB}
    more["search"] = dataclasses.replace(SEARCH, work=0)
    limit = int(3.4 * 512 * MB)
    plan = optimise(stage.program, stage.buffers, limit=limit, rules=rules, **more)
    verify(plan)
    uncounted = tuple(dataclasses.replace(one, displacement=False) for one in rules)
    without = optimise(stage.program, stage.buffers, limit=limit, rules=uncounted, **more)
    assert plan.seconds < 0.85 * without.seconds
