"""Define the memory state machine as two tables: (state, ask) -> (actions, next state). Standard library only.

RESIDENT is Caffe's: device memory, once taken, is kept. MANAGED replaces rows for Large Model Support: device memory
is lent, so a read on the host gives it back, and there are SAVE, EVICT and DISCARD. A pair without a row raises: it is
a bug, or a user's read of a dropped value. A copy in flight is an event of the buffer, not a state. `synced.py` runs
the actions.
"""

from __future__ import annotations

from enum import Enum


class _Key(Enum):
    """Hash members by identity, in C: an iteration looks up the tables thousands of times."""

    __hash__ = object.__hash__


class State(_Key):
    """Name where the newest value is."""

    UNINITIALIZED = "uninitialized"  # never written: reads as zeros
    HEAD_AT_CPU = "head at cpu"
    HEAD_AT_GPU = "head at gpu"
    SYNCED = "synced"  # both copies are current
    DISCARDED = "discarded"  # dropped: the plan does not read it again


class Ask(_Key):
    """Name what a caller requests of a buffer."""

    READ_CPU = "read cpu"
    WRITE_CPU = "write cpu"  # read and change
    OVERWRITE_CPU = "overwrite cpu"  # every element will be written: nothing is copied to the host first
    READ_GPU = "read gpu"
    WRITE_GPU = "write gpu"
    OVERWRITE_GPU = "overwrite gpu"  # every element will be written: nothing is copied to the device first
    SAVE = "save"  # copy the newest value to the host, keep the device copy
    EVICT = "evict"  # move the value to the host, give the device memory back
    DISCARD = "discard"  # drop the value, give the device memory back


class Do(_Key):
    """Name the actions of a transition."""

    TAKE_CPU = "take cpu"
    ZERO_CPU = "zero cpu"
    TAKE_GPU = "take gpu"
    ZERO_GPU = "zero gpu"
    COPY_UP = "copy up"  # host to device
    COPY_DOWN = "copy down"  # device to host
    SPOIL_GPU = "spoil gpu"  # the device copy must not be read again; the simulated device overwrites it
    GIVE_GPU = "give gpu"


_U, _C, _G, _S, _D = State
_Row = tuple[tuple[Do, ...], State]

# TAKE_CPU and TAKE_GPU do nothing where the memory is already held.
RESIDENT: dict[tuple[State, Ask], _Row] = {
    (_U, Ask.READ_CPU): ((Do.TAKE_CPU, Do.ZERO_CPU), _C),
    (_U, Ask.WRITE_CPU): ((Do.TAKE_CPU, Do.ZERO_CPU), _C),
    (_U, Ask.OVERWRITE_CPU): ((Do.TAKE_CPU,), _C),
    (_U, Ask.READ_GPU): ((Do.TAKE_GPU, Do.ZERO_GPU), _G),
    (_U, Ask.WRITE_GPU): ((Do.TAKE_GPU, Do.ZERO_GPU), _G),
    (_U, Ask.OVERWRITE_GPU): ((Do.TAKE_GPU,), _G),
    (_C, Ask.READ_CPU): ((), _C),
    (_C, Ask.WRITE_CPU): ((), _C),
    (_C, Ask.OVERWRITE_CPU): ((), _C),
    (_C, Ask.READ_GPU): ((Do.TAKE_GPU, Do.COPY_UP), _S),
    (_C, Ask.WRITE_GPU): ((Do.TAKE_GPU, Do.COPY_UP), _G),
    (_C, Ask.OVERWRITE_GPU): ((Do.TAKE_GPU,), _G),
    (_G, Ask.READ_CPU): ((Do.TAKE_CPU, Do.COPY_DOWN), _S),
    (_G, Ask.WRITE_CPU): ((Do.TAKE_CPU, Do.COPY_DOWN), _C),
    (_G, Ask.OVERWRITE_CPU): ((Do.TAKE_CPU,), _C),
    (_G, Ask.READ_GPU): ((), _G),
    (_G, Ask.WRITE_GPU): ((), _G),
    (_G, Ask.OVERWRITE_GPU): ((), _G),
    (_S, Ask.READ_CPU): ((), _S),
    (_S, Ask.WRITE_CPU): ((), _C),
    (_S, Ask.OVERWRITE_CPU): ((), _C),
    (_S, Ask.READ_GPU): ((), _S),
    (_S, Ask.WRITE_GPU): ((), _G),
    (_S, Ask.OVERWRITE_GPU): ((), _G),
    # dropped while it was managed: it stays dropped until it is overwritten
    (_D, Ask.OVERWRITE_CPU): ((Do.TAKE_CPU,), _C),
    (_D, Ask.OVERWRITE_GPU): ((Do.TAKE_GPU,), _G),
}

# Here a buffer has no device memory while it is UNINITIALIZED, HEAD_AT_CPU or DISCARDED, but for a copy in that is made
# in parts: the device memory is lent with the first part, and the state stays HEAD_AT_CPU until the last.
MANAGED: dict[tuple[State, Ask], _Row] = RESIDENT | {
    (_G, Ask.READ_CPU): ((Do.TAKE_CPU, Do.COPY_DOWN, Do.GIVE_GPU), _C),
    (_G, Ask.WRITE_CPU): ((Do.TAKE_CPU, Do.COPY_DOWN, Do.GIVE_GPU), _C),
    (_G, Ask.OVERWRITE_CPU): ((Do.TAKE_CPU, Do.GIVE_GPU), _C),
    (_S, Ask.READ_CPU): ((Do.GIVE_GPU,), _C),
    (_S, Ask.WRITE_CPU): ((Do.GIVE_GPU,), _C),
    (_S, Ask.OVERWRITE_CPU): ((Do.GIVE_GPU,), _C),
    (_U, Ask.SAVE): ((), _U),
    (_C, Ask.SAVE): ((), _C),
    (_G, Ask.SAVE): ((Do.TAKE_CPU, Do.COPY_DOWN), _S),
    (_S, Ask.SAVE): ((), _S),
    (_U, Ask.EVICT): ((), _U),
    (_C, Ask.EVICT): ((), _C),
    (_G, Ask.EVICT): ((Do.TAKE_CPU, Do.COPY_DOWN, Do.GIVE_GPU), _C),
    (_S, Ask.EVICT): ((Do.GIVE_GPU,), _C),  # clean: the host copy is current, nothing moves
    (_D, Ask.EVICT): ((), _D),
    (_U, Ask.DISCARD): ((), _D),
    (_C, Ask.DISCARD): ((), _D),
    (_G, Ask.DISCARD): ((Do.SPOIL_GPU, Do.GIVE_GPU), _D),
    (_S, Ask.DISCARD): ((Do.SPOIL_GPU, Do.GIVE_GPU), _D),
    (_D, Ask.DISCARD): ((), _D),
    # no row for (DISCARDED, READ_* or WRITE_*): such a read raises at once
}
