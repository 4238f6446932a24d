"""Check the arena: memory that plans use in turn, and freeing it while plans are in use."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import POISON, SimDevice
from pycaffe_lms.backend.sim.pages import SimPages
from pycaffe_lms.lms.layout.paging import Paging
from pycaffe_lms.lms.runtime.arena import Arena

PAGE = 4096


def _linear(nbytes):
    return SimpleNamespace(paging=None, arena_bytes=nbytes)


def _paged(linear, count):
    """Return a plan of `linear` pages in order, and a live range in the pages behind them, in reverse order."""
    pages = {linear * PAGE: tuple(reversed(range(count)))}
    paging = Paging(PAGE, linear * PAGE, count, (linear + count) * PAGE, pages)
    return SimpleNamespace(paging=paging, arena_bytes=(linear + count) * PAGE)


def _fill(device, span, value):
    device.queue(np.ndarray.fill, device.array(span, (span.nbytes,), np.uint8), value)


def _all(device, span):
    device.synchronize()
    return set(device.array(span, (span.nbytes,), np.uint8).tolist())


@pytest.fixture
def device():
    return SimDevice(1 << 20, page=PAGE)


def test_one_piece_is_given_back_whole_and_taken_smaller(device):
    arena, large, small = Arena(device), _linear(8192), _linear(2560)
    arena.prepare(large)
    arena.prepare(small)
    assert arena.of(small) is arena.of(large) and device.in_use() == arena.nbytes == 8192
    arena.shrink(8192)
    assert arena.holds(large) and device.in_use() == 8192  # prepared already
    arena.shrink(8191)
    assert not arena.holds(large) and not arena.holds(small) and device.in_use() == arena.nbytes == 0
    arena.prepare(small)
    assert arena.holds(small) and not arena.holds(large) and device.in_use() == 2560


def test_what_is_queued_on_it_is_done_first(device):
    """Check that freed memory is poisoned, so that a copy that is too late is found."""
    arena, plan, home = Arena(device), _linear(4096), device.host_take(4096)
    arena.prepare(plan)
    _fill(device, arena.of(plan), 7)
    device.wait(device.copy_out, device.record(device.compute))
    device.copy_down(home, arena.of(plan), device.copy_out)
    arena.shrink(0)
    assert set(home.tolist()) == {7}


def test_pages_beyond_the_limit_go_with_the_plans_that_use_them(device):
    arena, large, small = Arena(device), _paged(1, 6), _paged(2, 3)
    arena.prepare(large)
    arena.prepare(small)
    assert device.in_use() == arena.nbytes == 7 * PAGE and arena.unit == PAGE
    there = arena.of(small)
    _fill(device, there.at(0, 5 * PAGE), 9)
    arena.shrink(6 * PAGE - 1)
    assert device.in_use() == arena.nbytes == 5 * PAGE
    assert not arena.holds(large) and arena.holds(small) and arena.of(small) is there
    assert _all(device, there.at(0, 5 * PAGE)) == {9}  # its pages were kept
    arena.prepare(large)
    assert device.in_use() == 7 * PAGE and arena.holds(large) and arena.of(small) is there
    arena.shrink(-512)  # a negative limit frees all
    assert device.in_use() == arena.nbytes == 0 and not arena.holds(small)
    arena.close()
    assert device.in_use() == 0


def test_plans_that_never_run_are_not_mapped(device, monkeypatch):
    mapped, dropped = [], []
    view, drop = SimPages.view, SimPages.drop
    monkeypatch.setattr(SimPages, "view", lambda pages, *args: mapped.append(view(pages, *args)) or mapped[-1])
    monkeypatch.setattr(SimPages, "drop", lambda pages, span: dropped.append(span) or drop(pages, span))
    arena, never, runs = Arena(device), _paged(0, 6), _paged(1, 3)
    arena.prepare(never)
    assert arena.holds(never) and device.in_use() == 6 * PAGE
    arena.prepare(runs)
    assert arena.of(runs) is arena.of(runs) is mapped[0] and len(mapped) == 1
    arena.shrink(0)
    assert dropped == mapped and not arena.holds(never) and not arena.holds(runs)


def test_one_piece_in_pages(device):
    """Check that a contiguous plan stays prepared where it fits, and not when the arena gets pages."""
    arena, linear, paged = Arena(device), _linear(PAGE + 512), _paged(1, 3)
    arena.prepare(linear)
    arena.prepare(paged)
    assert not arena.holds(linear) and device.in_use() == 4 * PAGE
    arena.prepare(linear)
    there = arena.of(linear)
    arena.shrink(2 * PAGE)
    assert not arena.holds(paged) and arena.of(linear) is there and device.in_use() == 2 * PAGE
    arena.shrink(2 * PAGE - 1)
    assert not arena.holds(linear) and device.in_use() == PAGE


def test_pages_that_come_back_are_poison(device):
    arena, plan = Arena(device), _paged(0, 4)
    arena.prepare(plan)
    _fill(device, arena.of(plan), 1)
    arena.shrink(2 * PAGE)
    arena.prepare(plan)
    found = arena.of(plan)  # pages 3, 2, 1, 0
    assert _all(device, found.at(0, 2 * PAGE)) == {POISON} and _all(device, found.at(2 * PAGE, 2 * PAGE)) == {1}
