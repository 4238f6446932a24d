"""Compare SyncedMemory with a model of one number: every read sees the last write, whatever was asked in between."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DiscardedRead, InvalidTransition, OutOfDeviceMemory
from pycaffe_lms.memory.states import MANAGED, RESIDENT, Ask, State
from pycaffe_lms.memory.synced import SyncedMemory

from ..seeds import seeded

SHAPE, NBYTES = (5, 20), 400
READS = {Ask.READ_CPU, Ask.READ_GPU}
READS_OR_CHANGES = READS | {Ask.WRITE_CPU, Ask.WRITE_GPU, Ask.SAVE}
ON_HOST = {Ask.READ_CPU, Ask.WRITE_CPU, Ask.OVERWRITE_CPU}
ON_DEVICE = {Ask.READ_GPU, Ask.WRITE_GPU, Ask.OVERWRITE_GPU}
HOST_STATES = {State.UNINITIALIZED, State.HEAD_AT_CPU, State.DISCARDED}
ORDERS = [("latest", 0), ("earliest", 0)] + [("random", seed) for seed in range(4)]


@contextmanager
def _ordered(device, stream):
    """Within: order work on `stream` between the compute stream's work before and after."""
    device.wait(stream, device.record(device.compute))
    yield
    device.wait(device.compute, device.record(stream))


class Walk:
    """Make random asks of one buffer. `value`: its expected value; device reads are queued and compared at the end."""

    def __init__(self, table, order, seed):
        self.rng = seeded(seed)
        self.device = SimDevice(1 << 20, order=order, seed=seed)
        self.memory = SyncedMemory(NBYTES, "conv1.data", self.device)
        if table is not MANAGED and seed % 2:  # it was managed before, and dropped
            self.memory.manage(True)
            self.memory.ask(Ask.DISCARD)
        self.memory.manage(table is MANAGED)
        self.table, self.value, self.next = table, 0, 1
        self.sinks: list[tuple[np.ndarray, int]] = []
        self.rows: set = set()

    def leave(self):
        """Copy the value to other memory, concurrently with later work."""
        memory, device = self.memory, self.device
        if memory.state in (State.HEAD_AT_GPU, State.SYNCED):
            raw = np.full(NBYTES, 0xFF, np.uint8)
            self.sinks.append((raw.view(np.int32).reshape(SHAPE), self.value))
            device.wait(device.copy_out, device.record(device.compute))
            memory.leaving = device.copy_down(raw, memory.span, device.copy_out)

    def step(self):
        ask, before, memory = self.rng.choice(list(Ask)), self.memory.state, self.memory
        if (before, ask) not in self.table:
            with pytest.raises(InvalidTransition):
                memory.ask(ask)
            assert memory.state is before
            return
        self.rows.add((before, ask))
        if ask in ON_HOST:
            memory.ask(ask)
            self._on_host(ask)
        else:
            stream = self.rng.choice([None, self.device.copy_in, self.device.copy_out])
            if stream is None:
                memory.ask(ask)
            else:
                with _ordered(self.device, stream):
                    memory.ask(ask, stream=stream)
            if ask in ON_DEVICE:
                self._on_device(ask)
        assert memory.state is self.table[before, ask][1]
        if memory.managed and memory.state in HOST_STATES:
            assert memory.span is None and self.device.in_use() == 0

    def _on_host(self, ask):
        array = self.memory.host_array(SHAPE, np.int32)
        if ask is not Ask.OVERWRITE_CPU:
            assert (array == self.value).all()
        if ask is not Ask.READ_CPU:
            array[...] = self._new()

    def _on_device(self, ask):
        array = self.memory.device_array(SHAPE, np.int32)
        if ask is not Ask.OVERWRITE_GPU:
            sink = np.full(SHAPE, -7, np.int32)
            self.sinks.append((sink, self.value))
            self.device.queue(np.copyto, sink, array)
        if ask is not Ask.READ_GPU:
            self.device.queue(np.copyto, array, self._new())

    def _new(self):
        self.value, self.next = self.next, self.next + 1
        return self.value

    def check(self):
        self.device.synchronize()
        for sink, value in self.sinks:
            assert (sink == value).all()


@pytest.mark.parametrize("leaves", [False, True])
@pytest.mark.parametrize("table", [RESIDENT, MANAGED], ids=["resident", "managed"])
def test_every_read_sees_the_last_write(table, leaves):
    rows = set()
    for order, seed in ORDERS:
        for walk_seed in range(60):
            walk = Walk(table, order, 100 * seed + walk_seed)
            for _ in range(60):
                walk.step()
                if leaves and walk.rng.random() < 0.3:
                    walk.leave()
            walk.check()
            rows |= walk.rows
    assert rows == set(table)  # every row was used


def _memory_in(state, device, table):
    """Return a buffer that asks brought to `state`."""
    memory = SyncedMemory(NBYTES, "conv1.data", device)
    memory.manage(table is MANAGED)
    path = {
        State.UNINITIALIZED: [],
        State.HEAD_AT_CPU: [Ask.OVERWRITE_CPU],
        State.HEAD_AT_GPU: [Ask.OVERWRITE_GPU],
        State.SYNCED: [Ask.OVERWRITE_CPU, Ask.READ_GPU],
        State.DISCARDED: [Ask.WRITE_GPU, Ask.DISCARD],
    }
    for ask in path[state]:
        memory.ask(ask)
    assert memory.state is state
    return memory


@pytest.mark.parametrize("state", [s for s in State if s is not State.DISCARDED])
@pytest.mark.parametrize("ask", [Ask.SAVE, Ask.EVICT, Ask.DISCARD])
def test_a_pair_without_a_row_tells_the_story(state, ask):
    memory = _memory_in(state, SimDevice(1 << 20), RESIDENT)
    with pytest.raises(InvalidTransition) as caught:
        memory.ask(ask)
    text = str(caught.value)
    assert '"conv1.data"' in text and state.value in text and f'"{ask.value}"' in text
    assert all(f"{a.value} --{b.value}--> {c.value}" in text for a, b, c in memory.history)
    assert bool(memory.history) == (state is not State.UNINITIALIZED)
    assert not isinstance(caught.value, DiscardedRead)


def test_the_story_ends_with_the_last_sixteen_transitions():
    memory = SyncedMemory(NBYTES, "x.data", SimDevice(1 << 20))
    for _ in range(20):
        memory.ask(Ask.WRITE_CPU)
        memory.ask(Ask.WRITE_GPU)
    with pytest.raises(InvalidTransition) as caught:
        memory.ask(Ask.EVICT)
    assert str(caught.value).count(" --") == 16
    assert "uninitialized" not in str(caught.value)


@pytest.mark.parametrize("ask", sorted(READS_OR_CHANGES, key=lambda a: a.value))
@pytest.mark.parametrize("name, blob", [("conv1.data", "conv1"), ("conv1(relu1).diff", "conv1")])
def test_reading_a_dropped_value_names_the_blob_and_the_remedy(ask, name, blob):
    memory = _memory_in(State.DISCARDED, SimDevice(1 << 20), MANAGED)
    memory.name = name
    with pytest.raises(DiscardedRead) as caught:
        memory.ask(ask)
    assert caught.value.where.blob == blob
    assert f'net.keep("{blob}")' in caught.value.fix
    assert memory.state is State.DISCARDED


def test_before_the_first_write_everything_reads_as_zeros():
    for table in (RESIDENT, MANAGED):
        device = SimDevice(1 << 20)
        on_host, on_device = (SyncedMemory(NBYTES, n, device) for n in "ab")
        for memory in (on_host, on_device):
            memory.manage(table is MANAGED)
        on_host.ask(Ask.READ_CPU)
        assert not on_host.host_array(SHAPE, np.float32).any()
        on_device.ask(Ask.READ_GPU)
        on_device.ask(Ask.READ_CPU)
        assert not on_device.host_array(SHAPE, np.float32).any()


def test_overwritten_memory_is_not_copied():
    device = SimDevice(1 << 20)
    memory = SyncedMemory(NBYTES, "x.data", device)
    for ask in (Ask.OVERWRITE_CPU, Ask.OVERWRITE_GPU, Ask.OVERWRITE_CPU, Ask.OVERWRITE_GPU):
        memory.ask(ask)
    assert (device.bytes_in, device.bytes_out) == (0, 0)
    memory.ask(Ask.READ_CPU)
    memory.ask(Ask.WRITE_GPU)
    assert (device.bytes_in, device.bytes_out) == (
        0,
        NBYTES,
    )  # both copies were current: nothing is copied to the device


@pytest.mark.parametrize(
    "asks",
    [[], [Ask.READ_GPU], [Ask.WRITE_GPU], [Ask.READ_GPU, Ask.WRITE_CPU], [Ask.WRITE_GPU, Ask.WRITE_CPU]],
    ids=lambda asks: "then ".join(a.value + " " for a in asks) or "host only",
)
def test_a_buffer_that_becomes_managed_gives_its_memory_back_and_keeps_its_value(asks):
    device = SimDevice(1 << 20)
    memory = SyncedMemory(NBYTES, "x.data", device)
    memory.ask(Ask.WRITE_CPU)
    memory.host_array(SHAPE, np.int32)[...] = 9
    for ask in asks:
        memory.ask(ask)
    memory.manage(True)
    assert memory.state in HOST_STATES and memory.span is None and device.in_use() == 0
    memory.ask(Ask.READ_CPU)
    assert (memory.host_array(SHAPE, np.int32) == 9).all()


def test_lent_memory_is_the_plans_to_give_back():
    device = SimDevice(1 << 20)
    arena = device.take(4096)
    memory = SyncedMemory(NBYTES, "x.data", device)
    memory.manage(True)
    memory.ask(Ask.OVERWRITE_GPU, span=arena.at(1024, 512))
    assert (memory.span.base is arena.base, memory.span.offset) == (True, 1024)
    memory.ask(Ask.EVICT)
    assert memory.span is None and device.in_use() == 4096


def test_no_memory_leaves_the_buffer_as_it_was():
    device = SimDevice(256)
    memory = SyncedMemory(NBYTES, "x.data", device)
    memory.ask(Ask.WRITE_CPU)
    memory.host_array(SHAPE, np.int32)[...] = 3
    with pytest.raises(OutOfDeviceMemory):
        memory.ask(Ask.WRITE_GPU)
    assert memory.state is State.HEAD_AT_CPU
    memory.ask(Ask.READ_CPU)
    assert (memory.host_array(SHAPE, np.int32) == 3).all()
