"""Check HostSlab: slots in few segments, and a refusal before any memory is allocated."""

from __future__ import annotations

from weakref import ref

import numpy as np
import pytest

from pycaffe_lms.backend.device import ALIGN
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import OutOfHostMemory
from pycaffe_lms.memory import host
from pycaffe_lms.memory.host import HostSlab
from pycaffe_lms.memory.states import Ask
from pycaffe_lms.memory.synced import SyncedMemory


class CountingDevice(SimDevice):
    """Remember what was allocated on the host."""

    def __init__(self):
        super().__init__(1 << 20)
        self.taken: list[tuple[np.ndarray, bool]] = []

    def host_take(self, nbytes, *, pinned=False):
        raw = super().host_take(nbytes, pinned=pinned)
        self.taken.append((raw, pinned))
        return raw


def _start(array):
    return array.ctypes.data


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(host, "SEGMENT", 4096)
    return CountingDevice()


def test_slots_have_their_size_and_lie_apart_on_aligned_places_of_one_segment(device):
    sizes = {7: 100, 3: 512, 9: 3000, 1: 1, 4: 2048, 8: 1500}
    slots = HostSlab(device, 1 << 20).take(sizes)
    assert {k: s.nbytes for k, s in slots.items()} == sizes
    for k, slot in slots.items():
        inside = [
            (_start(slot) - _start(raw)) for raw, _ in device.taken if 0 <= _start(slot) - _start(raw) < raw.nbytes
        ]
        assert len(inside) == 1 and inside[0] % ALIGN == 0, k
        segment = next(raw for raw, _ in device.taken if 0 <= _start(slot) - _start(raw) < raw.nbytes)
        assert _start(slot) + slot.nbytes <= _start(segment) + segment.nbytes
    ranges = sorted((_start(s), _start(s) + s.nbytes) for s in slots.values())
    assert all(a[1] <= b[0] for a, b in zip(ranges, ranges[1:], strict=False))


def test_a_segment_goes_back_with_its_last_slot(device):
    """Check that other views of a slot, such as an array that a user holds, keep its segment."""
    slab = HostSlab(device, 8192)
    slots = slab.take({0: 1024, 1: 512})
    more = slab.take({2: 4096})
    slab.rehouse([], [512])
    device.taken.clear()
    assert (slab.segments, slab.nbytes) == (3, 1536 + 4096 + 512)
    with pytest.raises(OutOfHostMemory):
        slab.take({3: 4096})
    held = more.pop(2)[100:200].view(np.float32).reshape(5, 5)
    del slots[0]
    assert (slab.segments, slab.nbytes) == (3, 1536 + 4096 + 512)
    del slots[1]
    assert (slab.segments, slab.nbytes) == (2, 4096 + 512)
    del held
    assert (slab.segments, slab.nbytes) == (1, 512)
    assert slab.take({3: 4096})[3].nbytes == 4096  # within the limit again


def test_segments_are_page_locked_and_as_few_as_their_size_allows(device):
    slab = HostSlab(device, 1 << 20)
    slab.take({0: 2048, 1: 2048, 2: 2048, 3: 2049})  # two fill the first segment; 2048 and 2560 do not share one
    assert [raw.nbytes for raw, _ in device.taken] == [4096, 2048, 2560]
    assert all(pinned for _, pinned in device.taken)
    assert (slab.segments, slab.nbytes) == (3, 4096 + 2048 + 2560)


def test_a_slot_larger_than_a_segment_gets_one_of_its_own(device):
    slots = HostSlab(device, 1 << 20).take({0: 100, 1: 10_000, 2: 100})
    assert [raw.nbytes for raw, _ in device.taken] == [512, 10_240, 512]
    assert slots[1].nbytes == 10_000


def test_it_refuses_before_taking(device):
    slab = HostSlab(device, 5000)
    with pytest.raises(OutOfHostMemory) as caught:
        slab.take({0: 512, 1: 4096, 2: 600})  # 512 + 4096 + 1024, aligned
    assert (caught.value.needed, caught.value.free) == (5632, 5000)
    assert "5.5 KiB" in str(caught.value) and "4.9 KiB" in str(caught.value) and "-lms_host" in caught.value.fix
    assert not device.taken and (slab.nbytes, slab.segments) == (0, 0)


def test_the_limit_counts_what_was_taken_before(device):
    slab = HostSlab(device, 2048)
    slab.take({0: 1536})
    slab.take({1: 512})
    with pytest.raises(OutOfHostMemory) as caught:
        slab.take({2: 1})
    assert (caught.value.needed, caught.value.free) == (512, 0)
    assert slab.take({}) == {} and slab.nbytes == 2048


def test_without_a_limit_the_host_says_what_is_there(device, monkeypatch):
    monkeypatch.setattr(host, "available_host_bytes", lambda: 1024)
    with pytest.raises(OutOfHostMemory):
        HostSlab(device).take({0: 1025})
    monkeypatch.setattr(host, "available_host_bytes", lambda: None)
    assert HostSlab(device).take({0: 1025})[0].nbytes == 1025


def test_what_the_host_has_is_a_sensible_number():
    available = host.available_host_bytes()
    assert available is None or 0 < available < 1 << 50


@pytest.fixture
def values(device):
    """Return eight memories of 2048 bytes, two to a segment, of which the even ones have a host copy."""
    found = [SyncedMemory(2048, f"value{k}", device) for k in range(8)]
    for k, memory in enumerate(found):
        memory.manage(True)
        if not k % 2:
            memory.ask(Ask.OVERWRITE_CPU)
            memory.host_bytes[:] = k + 1
    device.taken.clear()
    return found


def test_values_move_segment_by_segment_and_free_what_they_had(device, values, monkeypatch):
    old = [ref(memory.host) for memory in values if memory.host is not None]
    alive = []

    def host_take(nbytes, *, pinned=False):
        alive.append(sum(array() is not None for array in old))
        return SimDevice.host_take(device, nbytes, pinned=pinned)

    monkeypatch.setattr(device, "host_take", host_take)
    slab = HostSlab(device)
    slab.rehouse(values, [1024])
    assert alive == [4, 2, 0, 0, 0], "before each segment of two values, and before the shared one"
    assert [memory.host[0] for memory in values[::2]] == [1, 3, 5, 7]
    assert all(memory.locked and memory.host.nbytes == 2048 for memory in values)
    assert (slab.nbytes, slab.segments, slab.shared_bytes) == (8 * 2048 + 1024, 5, 1024)


def test_what_moving_frees_counts_as_available(device, values, monkeypatch):
    monkeypatch.setattr(host, "available_host_bytes", lambda: 4 * 2048)
    HostSlab(device).rehouse(values)  # eight values, of which four free as much
    assert [memory.host[0] for memory in values[::2]] == [1, 3, 5, 7]
    more = [SyncedMemory(2048, "value", device) for _ in range(5)]
    with pytest.raises(OutOfHostMemory) as caught:
        HostSlab(device).rehouse(more)
    assert (caught.value.needed, caught.value.free) == (5 * 2048, 4 * 2048)
    assert not any(memory.locked for memory in more)


def test_a_limit_of_page_locked_memory_counts_it_alone(device, values):
    with pytest.raises(OutOfHostMemory):
        HostSlab(device, 7 * 2048).rehouse(values)
    assert not device.taken and [memory.host[0] for memory in values[::2]] == [1, 3, 5, 7]


def test_if_somebody_takes_the_memory_meanwhile_values_stay(device, values, monkeypatch):
    monkeypatch.setattr(host, "available_host_bytes", lambda: 8 * 2048 if len(device.taken) < 1 else 100)
    with pytest.raises(OutOfHostMemory) as caught:
        HostSlab(device).rehouse(values)
    assert caught.value.free == 100
    assert [memory.locked for memory in values] == [True, False, True, False, *[False] * 4]
    assert [memory.host[0] for memory in values[::2]] == [1, 3, 5, 7]
