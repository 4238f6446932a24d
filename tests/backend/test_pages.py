"""Check pages: mapped to several addresses, in any order, within the budget, and freed."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.device import runs
from pycaffe_lms.backend.sim.device import POISON, SimDevice
from pycaffe_lms.errors import OutOfDeviceMemory

gpu = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]


@pytest.fixture(params=["sim", pytest.param("cuda", marks=gpu)])
def device(request):
    if request.param == "sim":
        return SimDevice(64 << 20)
    gc.collect()
    device = get_device("cuda")
    device.set_budget(64 << 20)
    request.addfinalizer(lambda: device.set_budget(None))
    return device


def write(device, span, values):
    host = device.host_take(values.nbytes, pinned=True)
    host.view(values.dtype)[:] = values
    device.copy_up(span.at(0, values.nbytes), host)
    device.synchronize()


def read(device, span, count):
    host = device.host_take(4 * count, pinned=True)
    device.copy_down(host, span.at(0, 4 * count))
    device.synchronize()
    return host.view(np.float32).copy()


def test_a_page_stands_in_many_places(device):
    page, per = device.page, device.page // 4
    pages = device.pages()
    pages.grow(5)
    assert pages.count == 5
    there = pages.view(5 * page, [(0, [4, 2, 3, 0]), (4 * page, [1])])
    back = pages.view(5 * page, [(page, [0, 3]), (3 * page, [2, 4])])  # its first page is not mapped
    values = np.arange(5 * per, dtype=np.float32)
    write(device, there, values)
    by_page = values.reshape(5, per)  # as 4, 2, 3, 0, 1 hold it
    found = read(device, back.at(page, 4 * page), 4 * per).reshape(4, per)
    np.testing.assert_array_equal(found, by_page[[3, 2, 1, 0]])
    write(device, back.at(3 * page, page), np.full(per, 7, np.float32))  # page 2
    np.testing.assert_array_equal(read(device, there.at(page, page), per), np.full(per, 7, np.float32))
    pages.drop(back)
    np.testing.assert_array_equal(read(device, there, per), by_page[0])
    pages.close()


def test_pages_count_against_the_budget(device):
    page, before = device.page, device.in_use()
    pages = device.pages()
    most = (device.capacity() - before) // page
    pages.grow(most - 1)
    assert device.in_use() == before + (most - 1) * page
    with pytest.raises(OutOfDeviceMemory, match="in pages"):
        pages.grow(most + 1)
    with pytest.raises(OutOfDeviceMemory):
        device.take(
            (most - 1) * page
        )  # would fit if pages were not counted; less may fit in the blocks that the pool keeps
    assert pages.count == most - 1 and device.in_use() == before + (most - 1) * page
    pages.grow(2)  # no change
    assert pages.count == most - 1
    pages.close()
    assert device.in_use() == before
    device.give(device.take(2 * page))


def test_the_last_pages_can_be_given_back(device):
    page, before, per = device.page, device.in_use(), device.page // 4
    pages = device.pages()
    pages.grow(4)
    first, all_of_them = pages.view(2 * page, [(0, [1, 0])]), pages.view(4 * page, [(0, range(4))])
    write(device, first, np.arange(2 * per, dtype=np.float32))
    pages.drop(all_of_them)
    pages.shrink(2)
    assert pages.count == 2 and device.in_use() == before + 2 * page
    np.testing.assert_array_equal(read(device, first, 2 * per), np.arange(2 * per, dtype=np.float32))
    pages.shrink(3)  # no change
    assert pages.count == 2 and device.in_use() == before + 2 * page
    pages.grow(3)
    write(device, pages.view(page, [(0, [2])]), np.full(per, 5, np.float32))
    np.testing.assert_array_equal(read(device, first, 2 * per), np.arange(2 * per, dtype=np.float32))
    pages.close()
    assert device.in_use() == before


def test_new_pages_of_the_simulated_device_are_poison_and_old_views_outlive_them():
    device = SimDevice(1 << 20)
    pages = device.pages()
    pages.grow(2)
    array = device.array(pages.view(2 * device.page, [(0, [1, 0])]), (2 * device.page,), np.uint8)
    assert (array == POISON).all()
    array[:] = 3
    pages.grow(3)
    pages.close()
    del pages
    gc.collect()
    assert (array == 3).all()


def test_runs():
    assert runs([]) == []
    assert runs([4, 5, 6, 2, 0, 1]) == [(0, 4, 3), (3, 2, 1), (4, 0, 2)]
