"""Check page-locked memory: locked once, unlocked with the last array over it, refused with a fix."""

from __future__ import annotations

import gc
import re
from pathlib import Path

import numpy as np
import pytest

from pycaffe_lms.backend.cpu import CpuDevice
from pycaffe_lms.backend.cuda.pinned import nothing_unlocked, pinned_bytes
from pycaffe_lms.errors import OutOfHostMemory
from pycaffe_lms.memory.host import HostSlab


class Driver:
    """Stand in for CUDA: remember what is locked."""

    class CUDARuntimeError(Exception):
        pass

    def __init__(self, fails=False):
        self.locked: dict[int, int] = {}
        self.fails = fails
        self.synchronized = 0

    def hostRegister(self, address, nbytes, flags):
        if self.fails:
            raise self.CUDARuntimeError("memlock")
        self.locked[address] = nbytes

    def hostUnregister(self, address):
        del self.locked[address]

    def deviceSynchronize(self):
        self.synchronized += 1


@pytest.mark.parametrize("nbytes", [1, 4096, 70 << 20])
def test_lives_as_long_as_any_view(nbytes):
    driver = Driver()
    memory = pinned_bytes(nbytes, driver)
    assert memory.nbytes == nbytes and list(driver.locked.values()) == [nbytes]
    assert not memory.any()  # touched, so every page is allocated
    view = memory[-1:]
    view[0] = 7
    del memory
    gc.collect()
    assert driver.locked and view[0] == 7
    del view
    gc.collect()
    assert not driver.locked and driver.synchronized == 1


def test_while_a_capture_runs_nothing_is_unlocked_and_no_address_is_used_again():
    driver = Driver()
    with nothing_unlocked():
        with nothing_unlocked():
            first = pinned_bytes(4096, driver)
            address = first.ctypes.data
            del first
            assert not gc.isenabled()
        again = [pinned_bytes(4096, driver) for _ in range(8)]
        assert address not in [memory.ctypes.data for memory in again]
        assert address in driver.locked and len(driver.locked) == 9 and not driver.synchronized
    assert gc.isenabled() and address not in driver.locked and len(driver.locked) == 8
    del again
    assert not driver.locked


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="no /proc/self/smaps")
def test_memory_is_private_in_huge_pages_and_not_copied_by_a_fork():
    memory = pinned_bytes(8 << 20, Driver())
    flags = flags_at(memory.ctypes.data)
    assert "sh" not in flags, "Linux gives huge pages to private memory"
    assert "dc" in flags, "do not copy on fork"
    if Path("/sys/kernel/mm/transparent_hugepage").exists():
        assert "hg" in flags


def flags_at(address):
    """Return the VmFlags of the mapping at an address: proc(5)."""
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match("([0-9a-f]+)-([0-9a-f]+) ", line):
            here = int(found[1], 16) <= address < int(found[2], 16)
        elif here and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise AssertionError(f"no mapping at {address:#x}")


def test_nothing_is_locked_for_nothing():
    driver = Driver()
    assert pinned_bytes(0, driver).size == 0 and not driver.locked


def test_a_host_that_refuses():
    with pytest.raises(OutOfHostMemory, match="page-locked memory: memlock\n  fix: .*ulimit -l"):
        pinned_bytes(4096, Driver(fails=True))


def test_a_slab_gives_back_what_nobody_uses_any_more():
    driver = Driver()

    class Device(CpuDevice):
        def host_take(self, nbytes, *, pinned=False):
            assert pinned
            return pinned_bytes(nbytes, driver)

    slab = HostSlab(Device(), limit=1 << 20)
    slots = slab.take({1: 1000, 2: 2000})
    slab.close()
    gc.collect()
    assert slab.nbytes == 0 and driver.locked, "the slots are still there"
    np.copyto(slots[1], 1)
    slots.clear()
    gc.collect()
    assert not driver.locked
