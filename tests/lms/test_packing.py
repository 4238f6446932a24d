"""Offsets: checked pair by pair, against a bound counted step by step."""

from __future__ import annotations

import pytest

from pycaffe_lms.lms.layout.packing import Lifetime, max_live_bytes, pack

from ..seeds import seeded

pytestmark = pytest.mark.pure


def _random_lifetimes(seed):
    rng = seeded(seed)
    steps = rng.randint(1, 40)
    lives = []
    for _ in range(rng.randint(1, 60)):
        start = rng.randrange(steps)
        lives.append(Lifetime(start, min(steps - 1, start + rng.choice([0, 1, 2, 5, steps])), 512 * rng.randint(1, 20)))
    return lives


def _nested_lifetimes(seed):
    """As forward and backward keep data: whoever comes first leaves last."""
    rng = seeded(seed)
    n = rng.randint(1, 30)
    return [Lifetime(i, 2 * n - i, 512 * rng.randint(1, 20)) for i in range(n)]


def _live_bytes(lives):
    """Most bytes alive in one step, counted step by step."""
    return max(sum(a.size for a in lives if a.start <= s <= a.end) for s in range(max(a.end for a in lives) + 1))


@pytest.mark.parametrize("make", [_random_lifetimes, _nested_lifetimes])
def test_what_is_alive_together_lies_apart(make):
    for seed in range(200):
        lives = make(seed)
        packing = pack(lives)
        places = list(zip(lives, packing.offsets, strict=True))
        for i, (a, at) in enumerate(places):
            assert 0 <= at <= packing.peak - a.size
            for b, bt in places[:i]:
                together = a.start <= b.end and b.start <= a.end
                assert not together or at + a.size <= bt or bt + b.size <= at, (seed, a, b)
        assert max(at + a.size for a, at in places) == packing.peak


def test_the_bound_is_what_is_alive_at_once_and_no_peak_is_below_it():
    for seed in range(200):
        lives = _random_lifetimes(seed)
        packing = pack(lives)
        assert packing.max_live == max_live_bytes(lives) == _live_bytes(lives) <= packing.peak
        assert packing.loss == pytest.approx(packing.peak / packing.max_live - 1)


def test_nested_lifetimes_waste_nothing():
    for seed in range(200):
        packing = pack(_nested_lifetimes(seed))
        assert packing.peak == packing.max_live and packing.loss == 0


def test_one_after_the_other_share_their_place():
    lives = [Lifetime(0, 1, 1024), Lifetime(2, 3, 512), Lifetime(4, 9, 1024)]
    assert pack(lives).offsets == (0, 0, 0) and pack(lives).peak == 1024


def test_ends_are_included():
    assert pack([Lifetime(0, 2, 512), Lifetime(2, 4, 512)]).peak == 1024


def test_a_gap_is_filled():
    """Between two that live long, one of 2,048 bytes dies early and another one is born late: one place serves both."""
    lives = [Lifetime(0, 9, 4096), Lifetime(0, 4, 2048), Lifetime(0, 9, 1024), Lifetime(5, 9, 2048)]
    packing = pack(lives)
    assert packing.peak == packing.max_live == 7168
    assert packing.offsets[1] == packing.offsets[3]


def test_nothing_needs_nothing():
    packing = pack([])
    assert (packing.offsets, packing.peak, packing.max_live, packing.loss) == ((), 0, 0, 0.0)


def test_little_is_wasted_over_many_random_programs():
    losses = sorted(pack(_random_lifetimes(seed)).loss for seed in range(200))
    assert losses[100] < 0.02 and losses[-1] < 0.25


def test_a_thousand_steps_with_a_thousand_residences_are_packed():
    rng = seeded(5)
    lives = []
    for _ in range(1000):
        start = rng.randrange(1000)
        lives.append(Lifetime(start, min(999, start + rng.randint(0, 30)), 512 * rng.randint(1, 400)))
    packing = pack(lives)
    assert packing.max_live == _live_bytes(lives) <= packing.peak <= 1.5 * packing.max_live
