"""Who is managed: the meaning of -lms N and -lms_frac f, each sentence with numbers worked out by hand."""

from __future__ import annotations

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.managed import choose_managed
from pycaffe_lms.lms.program import Buffer
from pycaffe_lms.lms.runtime.runtime import Runtime

pytestmark = pytest.mark.pure
KB = 1024


def _buffers(*sizes, scratch=()):
    return [Buffer(i, f"b{i}", n, i in scratch) for i, n in enumerate(sizes)]


def _ids(buffers, capacity=1 << 30, **config):
    return choose_managed(buffers, LMSConfig(**config), capacity).ids


def test_managed_is_what_is_strictly_larger_than_n_kb_of_1024_bytes():
    buffers = _buffers(100 * KB - 1, 100 * KB, 100 * KB + 1, 100_001, 200 * KB)
    assert _ids(buffers, threshold_kb=100) == {2, 4}


@pytest.mark.parametrize("threshold", [0, -1, -(10**12)])
def test_zero_or_negative_manages_nothing(threshold):
    managed = choose_managed(_buffers(5 * KB, 7 * KB), LMSConfig(threshold_kb=threshold), 1 << 30)
    assert (managed.ids, managed.resident_bytes, managed.demanded) == (frozenset(), 12 * KB, 12 * KB)


def test_a_threshold_of_any_size_is_obeyed():
    buffers = _buffers(4 << 40, 9_999_999_999 * KB, 10_000_000_000 * KB, 10_000_000_000 * KB + 1)
    assert _ids(buffers, threshold_kb=10_000_000_000) == {3}


def test_frac_begins_with_the_buffer_that_exceeds_the_share():
    """0.4 of 1,000 KB are 400 KB: 100, 250, 400 are not more than that; with the fourth it is 401."""
    buffers = _buffers(100 * KB, 150 * KB, 150 * KB, 2 * KB, 300 * KB)
    assert _ids(buffers, 1000 * KB, threshold_kb=1, frac=0.4) == {3, 4}


def test_small_buffers_count_towards_the_share_but_are_not_managed():
    """Half of 100 KB: 30 + 30 pass it with the second one, which is below the threshold of 40 KB."""
    buffers = _buffers(30 * KB, 30 * KB, 41 * KB, 40 * KB, 50 * KB)
    assert _ids(buffers, 100 * KB, threshold_kb=40, frac=0.5) == {2, 4}


def test_the_order_is_that_of_creation():
    assert _ids(_buffers(90 * KB, 20 * KB), 100 * KB, threshold_kb=1, frac=0.9) == {1}
    assert _ids(_buffers(20 * KB, 90 * KB), 100 * KB, threshold_kb=1, frac=0.9) == {1}
    assert _ids(_buffers(91 * KB, 20 * KB), 100 * KB, threshold_kb=1, frac=0.9) == {0, 1}


def test_frac_0_manages_from_the_first_and_frac_1_only_what_exceeds_the_memory():
    buffers = _buffers(*[10 * KB] * 5)
    assert _ids(buffers, 30 * KB, threshold_kb=1, frac=0.0) == {0, 1, 2, 3, 4}
    assert _ids(buffers, 30 * KB, threshold_kb=1, frac=1.0) == {3, 4}
    assert _ids(buffers, 50 * KB, threshold_kb=1, frac=1.0) == set()


def test_what_stays_on_the_device_is_added_up_without_call_scratch():
    buffers = _buffers(10 * KB, 1 * KB, 2 * KB, 8 * KB, scratch=(2, 3))
    managed = choose_managed(buffers, LMSConfig(threshold_kb=5), 1 << 30)
    assert (managed.ids, managed.resident_bytes, managed.demanded) == ({0, 3}, 1 * KB, 21 * KB)


def test_nets_before_count_towards_the_share():
    """0.5 of 100 KB; an earlier net demanded 45 KB, so 5 KB more are not above it and one byte more is."""
    config = LMSConfig(threshold_kb=1, frac=0.5)
    managed = choose_managed(_buffers(5 * KB, 2 * KB), config, 100 * KB, demanded=45 * KB)
    assert (managed.ids, managed.demanded) == ({1}, 7 * KB)


def test_the_budget_is_the_base_of_the_share():
    buffers = _buffers(30 * KB, 30 * KB, 30 * KB)
    whole = Runtime(SimDevice(100 * KB), LMSConfig(threshold_kb=1, frac=0.5))
    assert whole.register(buffers).ids == {1, 2}
    budget = Runtime(SimDevice(100 * KB), LMSConfig(threshold_kb=1, frac=0.5, budget=40 * KB))
    assert budget.register(buffers).ids == {0, 1, 2}
    assert (budget.resident_bytes, whole.resident_bytes) == (0, 30 * KB)
