"""Compare a value in several buffers with one array: every read sees the last write, of either side."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DiscardedRead, UsageError
from pycaffe_lms.memory.split_memory import SplitMemory
from pycaffe_lms.memory.states import Ask, State
from pycaffe_lms.memory.synced import SyncedMemory
from pycaffe_lms.ops import ops_of

from ..seeds import seeded

SIZES = (4, 1, 7)  # floats
TOTAL = sum(SIZES)


def make(device):
    parts = [SyncedMemory(4 * n, f"conv1 [{i + 1}/3].data", device) for i, n in enumerate(SIZES)]
    for part in parts:
        part.manage(not device.is_host)
    return SplitMemory("conv1.data", device, parts)


def write_parts(memory, values):
    """Overwrite the parts where layers run, as a run does."""
    start = 0
    for part, n in zip(memory.parts, SIZES, strict=True):
        piece = values[start : start + n]
        if memory.device.is_host:
            part.ask(Ask.OVERWRITE_CPU)
            part.host_array((n,), np.float32)[...] = piece
        else:
            part.ask(Ask.OVERWRITE_GPU)
            part.device.ops.copy(piece.copy(), part.device_array((n,), np.float32))
        start += n
    memory.follow()


def read_parts(memory):
    found = []
    for part, n in zip(memory.parts, SIZES, strict=True):
        part.ask(Ask.READ_CPU)
        found.append(part.host_array((n,), np.float32).copy())
    return np.concatenate(found)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("place", ["cpu", "sim"])
def test_random_walk(place, seed):
    device = get_device("cpu") if place == "cpu" else SimDevice(1 << 20, order="random", seed=seed)
    ops_of(device)
    memory, value, rng = make(device), np.zeros(TOTAL, np.float32), seeded(seed)
    with device.active():
        for step in range(60):
            what = rng.choice(["read", "write", "overwrite", "run", "see"])
            if what == "read":
                memory.ask(Ask.READ_CPU)
                np.testing.assert_array_equal(memory.host_array((TOTAL,), np.float32), value)
            elif what == "write":
                memory.ask(Ask.WRITE_CPU)
                value[step % TOTAL] = step
                memory.host_array((TOTAL,), np.float32)[step % TOTAL] = step
            elif what == "overwrite":
                memory.ask(Ask.OVERWRITE_CPU)
                value = np.arange(TOTAL, dtype=np.float32) + step
                memory.host_array((TOTAL,), np.float32)[...] = value
            elif what == "run":
                memory.hand_on()
                value = value * 2 + 1
                write_parts(memory, value)
            else:
                memory.hand_on()
                np.testing.assert_array_equal(read_parts(memory), value)


def test_nobody_wrote_yet():
    memory = make(SimDevice(1 << 20))
    assert memory.state is State.UNINITIALIZED and memory.nbytes == 4 * TOTAL
    memory.ask(Ask.READ_CPU)
    assert not memory.host_array((TOTAL,), np.float32).any()


def test_a_dropped_part_is_a_dropped_value():
    memory = make(SimDevice(1 << 20))
    memory.ask(Ask.OVERWRITE_CPU)
    memory.hand_on()
    memory.parts[1].ask(Ask.DISCARD)
    memory.follow()
    with pytest.raises(DiscardedRead, match=r'net.keep\("conv1"\)'):
        memory.ask(Ask.READ_CPU)
    memory.ask(Ask.OVERWRITE_CPU)
    memory.host_array((TOTAL,), np.float32)[...] = 3
    memory.hand_on()
    assert (read_parts(memory) == 3).all()


@pytest.mark.parametrize("ask", [Ask.READ_GPU, Ask.WRITE_GPU, Ask.OVERWRITE_GPU], ids=str)
def test_there_is_no_one_place_on_the_device(ask):
    with pytest.raises(UsageError, match="3 parts") as caught:
        make(SimDevice(1 << 20)).ask(ask)
    assert "conv1.data" in str(caught.value) and "-lms_split off" in caught.value.fix
