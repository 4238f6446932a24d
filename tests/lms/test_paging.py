"""Places in pages: as many as are alive at once, never two residences in one, wishes as far as there is room."""

from __future__ import annotations

import dataclasses

import pytest

from pycaffe_lms.errors import PlanError
from pycaffe_lms.lms.layout.packing import Lifetime, Stretch, pack
from pycaffe_lms.lms.layout.paging import paged, paged_within, pages_of, taken_bytes
from pycaffe_lms.lms.plan.verify import verify
from pycaffe_lms.lms.planner.lookahead import make_plan

from ..sampling import sample
from ..seeds import seeded
from .programs import net_program

pytestmark = pytest.mark.pure
PAGE = 1000


def lifetimes(seed, n=60, steps=40):
    rng = seeded(seed)
    found = []
    for _ in range(n):
        start = rng.randrange(steps)
        size = rng.choice((10, 300, 1000, 2900, 5000, 7800, 12_345, 24_000))
        found.append(Lifetime(start, min(steps - 1, start + rng.randrange(12)), size))
    return found


def check(lives, packing):
    """By step and byte of memory: nobody shares. Bytes of a page are told by its number, of the rest by themselves."""
    paging = packing.paging
    for step in range(max(life.end for life in lives) + 1):
        taken, ends = set(), []
        for life, offset in zip(lives, packing.offsets, strict=True):
            if not life.start <= step <= life.end:
                continue
            if offset >= paging.linear:
                mine = set(paging.pages[offset])
                assert len(mine) * PAGE >= life.size and not mine & taken and mine <= set(range(paging.count))
                taken |= mine
            else:
                ends.append((offset, offset + life.size))
        ends.sort()
        assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:], strict=False))
        assert not ends or ends[-1][1] <= paging.linear
    assert packing.peak == paging.linear + paging.count * PAGE


@pytest.mark.parametrize("seed", range(30))
def test_no_more_pages_than_are_alive_at_once(seed):
    lives = lifetimes(seed)
    packing = paged(lives, PAGE)
    check(lives, packing)
    large = [life for life in lives if pages_of(life.size, PAGE)]
    most = max(sum(-(-x.size // PAGE) for x in large if x.start <= s <= x.end) for s in range(40))
    assert packing.paging.count == most
    small = pack([life for life in lives if not pages_of(life.size, PAGE)])
    assert packing.paging.linear == -(-small.peak // PAGE) * PAGE


def test_what_lies_in_pages():
    """Where the last page wastes at most an eighth of the size, or as much as is asked for."""
    sizes = {10: 0, 888: 0, 889: 1, 1000: 1, 1001: 0, 1777: 0, 1778: 2, 7112: 8, 8001: 9}
    assert {n: pages_of(n, PAGE) for n in sizes} == sizes
    assert [pages_of(n, PAGE, 2) for n in (666, 667, 1001, 1333, 1334, 2001)] == [0, 1, 0, 0, 2, 3]
    assert [taken_bytes(n, PAGE) for n in (10, 889, 1001)] == [10, 1000, 1001] and taken_bytes(889, None) == 889


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_wishes_within_a_limit(seed, full):
    lives, rng = lifetimes(seed), seeded(seed)
    constraints = [Stretch(x, max(0, x.start - rng.randrange(4)), min(39, x.end + rng.randrange(4))) for x in lives]
    least = paged(lives, PAGE).peak
    for extra in (0, 7, 50):
        limit = least + extra * PAGE + 123
        found, packing = paged_within(constraints, limit, PAGE, full)
        check(found, packing)
        assert packing.peak <= limit
        for life, wish in zip(found, constraints, strict=True):
            assert wish.start <= life.start <= wish.must.start and wish.must.end <= life.end <= wish.end
    roomy, packing = paged_within(constraints, 1 << 40, PAGE, full=False)
    assert [(x.start, x.end) for x in roomy] == [(w.start, w.end) for w in constraints]
    assert packing.peak < 1 << 24  # no more than it needs
    assert paged_within(constraints, least - 12 * PAGE, PAGE, full) >= PAGE


def _paged_plan(seed):
    program, buffers = net_program(seed)
    return make_plan(program, buffers, limit=None, ahead=2, page=1024)


@sample("seeds", range(8), 2)
def test_the_verifier_looks_behind_the_addresses(seeds):
    """A page that two residences have at once, one that does not exist, addresses given twice, too few pages."""
    caught = {"shared": 0, "outside": 0, "twice": 0, "short": 0}
    for seed in seeds:
        plan = _paged_plan(seed)
        paging = plan.paging
        verify(plan)
        for offset, pages in paging.pages.items():
            others = [p for o, other in paging.pages.items() if o != offset for p in other if p not in pages]
            changes = {
                "outside": (*pages[:-1], paging.count),
                "short": pages[:-1],
                "twice": (*pages, pages[0]),
            }
            for what, changed in changes.items():
                broken = dataclasses.replace(paging, pages={**paging.pages, offset: changed})
                with pytest.raises(PlanError):
                    verify(dataclasses.replace(plan, paging=broken))
                caught[what] += 1
            for other in others:
                broken = dataclasses.replace(paging, pages={**paging.pages, offset: (other, *pages[1:])})
                try:
                    verify(dataclasses.replace(plan, paging=broken))
                except PlanError:
                    caught["shared"] += 1
    assert min(caught.values()) > 7 * len(seeds)
