"""Check the tables of the memory state machine: which rows exist, and that each ends in a true state."""

from __future__ import annotations

import itertools

import pytest

from pycaffe_lms.memory.states import MANAGED, RESIDENT, Ask, Do, State

pytestmark = pytest.mark.pure
U, C, G, S, D = State
HOST_STATES = {U, C, D}
HOST_ASKS = {Ask.READ_CPU, Ask.WRITE_CPU, Ask.OVERWRITE_CPU}
GPU_ASKS = {Ask.READ_GPU, Ask.WRITE_GPU, Ask.OVERWRITE_GPU}
# Which copies are current in a state: (host, device). In UNINITIALIZED nothing was written, so neither is.
CURRENT = {U: (False, False), C: (True, False), G: (False, True), S: (True, True)}
TABLES = pytest.mark.parametrize("table", [RESIDENT, MANAGED], ids=["resident", "managed"])


def test_resident_is_caffes_table_and_drops_no_value():
    whole = {(D, Ask.OVERWRITE_CPU), (D, Ask.OVERWRITE_GPU)}  # of a value that was dropped while it was managed
    assert set(RESIDENT) == set(itertools.product((U, C, G, S), HOST_ASKS | GPU_ASKS)) | whole
    assert all(state is not D for _, state in RESIDENT.values())
    assert all(Do.GIVE_GPU not in actions and Do.SPOIL_GPU not in actions for actions, _ in RESIDENT.values())


def test_managed_overrides_only_host_asks_of_a_buffer_on_the_device():
    changed = {pair for pair in RESIDENT if MANAGED[pair] != RESIDENT[pair]}
    assert changed == set(itertools.product((G, S), HOST_ASKS))
    added = set(MANAGED) - set(RESIDENT)
    living = set(itertools.product((U, C, G, S), (Ask.SAVE, Ask.EVICT, Ask.DISCARD)))
    dropped = {(D, ask) for ask in (Ask.EVICT, Ask.DISCARD)}
    assert added == living | dropped


def test_a_dropped_value_can_be_replaced_but_never_read():
    assert {ask for state, ask in MANAGED if state is D and ask in HOST_ASKS | GPU_ASKS} == {
        Ask.OVERWRITE_CPU,
        Ask.OVERWRITE_GPU,
    }
    assert {ask for (_, ask), (_, state) in MANAGED.items() if state is D} == {Ask.DISCARD, Ask.EVICT}
    assert {state for (state, ask) in MANAGED if ask is Ask.EVICT and MANAGED[state, ask][1] is D} == {D}


@TABLES
def test_every_row_keeps_the_truth(table):
    """Follow the actions of each row with two flags (which copies are current), and compare them with the state."""
    for (before, ask), (actions, after) in table.items():
        if D in (before, after):
            continue
        host, device = CURRENT[before]
        row = f"{before}, {ask}"
        for action in actions:
            if action is Do.COPY_UP:
                assert host, row
                device = True
            elif action is Do.COPY_DOWN:
                assert device, row
                host = True
            elif action in (Do.ZERO_CPU, Do.ZERO_GPU):
                assert before is U, row
                host, device = action is Do.ZERO_CPU, action is Do.ZERO_GPU
            elif action is Do.GIVE_GPU:
                assert host or ask is Ask.OVERWRITE_CPU, row
                device = False
        if ask in HOST_ASKS:
            assert host or ask is Ask.OVERWRITE_CPU, row
            host, device = True, device and ask is Ask.READ_CPU
        elif ask in GPU_ASKS:
            assert device or ask is Ask.OVERWRITE_GPU, row
            host, device = host and ask is Ask.READ_GPU, True
        assert (host, device) == CURRENT[after], row


@TABLES
def test_memory_is_taken_before_it_is_used(table):
    for (before, ask), (actions, after) in table.items():
        row = f"{before}, {ask}"
        held = {Do.TAKE_CPU: before in (C, S), Do.TAKE_GPU: before in (G, S)}
        for action in actions:
            if action in held:
                held[action] = True
            elif action in (Do.COPY_UP, Do.COPY_DOWN):
                assert all(held.values()), row
            elif action is Do.ZERO_CPU:
                assert held[Do.TAKE_CPU], row
            elif action in (Do.ZERO_GPU, Do.SPOIL_GPU):
                assert held[Do.TAKE_GPU], row
            elif action is Do.GIVE_GPU:
                assert held[Do.TAKE_GPU], row
                held[Do.TAKE_GPU] = False
        assert held[Do.TAKE_CPU] or after not in (C, S), row
        assert held[Do.TAKE_GPU] or after not in (G, S), row


def test_under_managed_no_chunk_is_held_in_a_host_state():
    for (before, ask), (actions, after) in MANAGED.items():
        gives = actions[-1:] == (Do.GIVE_GPU,)
        assert gives == (before in (G, S) and after in HOST_STATES), f"{before}, {ask}"
