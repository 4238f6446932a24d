"""The memory state machine as two tables: (state, ask) -> (actions, next state). Standard library only.

RESIDENT is Caffe's: a chunk of device memory, once taken, stays. MANAGED is RESIDENT with Large Model Support's rows
overridden: the host is home and the device chunk is on loan, so a read on the host gives the chunk back, and EVICT and
DISCARD exist. A pair without a row is a bug (or a user's read of a dropped value) and is raised as such.
A copy in flight is an event on the buffer, not a state.
"""

from __future__ import annotations

from enum import Enum


class _Key(Enum):
    """Hashed by identity, in C: the tables are asked thousands of times in an iteration."""

    __hash__ = object.__hash__


class State(_Key):
    """Where the newest value is."""

    UNINITIALIZED = "uninitialized"  # nobody wrote yet: reads as zeros
    HEAD_AT_CPU = "head at cpu"
    HEAD_AT_GPU = "head at gpu"
    SYNCED = "synced"  # both copies are current
    DISCARDED = "discarded"  # dropped: nothing in the plan reads it again


class Ask(_Key):
    """What somebody wants of a buffer."""

    READ_CPU = "read cpu"
    WRITE_CPU = "write cpu"  # read and change
    OVERWRITE_CPU = "overwrite cpu"  # every element will be written: nothing is downloaded first
    READ_GPU = "read gpu"
    WRITE_GPU = "write gpu"
    OVERWRITE_GPU = "overwrite gpu"  # every element will be written: nothing is uploaded first
    SAVE = "save"  # copy the newest value to the host, keep the device copy
    EVICT = "evict"
    DISCARD = "discard"


class Do(_Key):
    """What a transition makes happen, in order."""

    TAKE_CPU = "take cpu"
    ZERO_CPU = "zero cpu"
    TAKE_GPU = "take gpu"
    ZERO_GPU = "zero gpu"
    COPY_UP = "copy up"
    COPY_DOWN = "copy down"
    SPOIL_GPU = "spoil gpu"  # nobody may read this device copy again
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
    # dropped while it was managed: that stays true until somebody writes it whole
    (_D, Ask.OVERWRITE_CPU): ((Do.TAKE_CPU,), _C),
    (_D, Ask.OVERWRITE_GPU): ((Do.TAKE_GPU,), _G),
}

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
    # no row for (DISCARDED, READ_* or WRITE_*): such a read is an error, found at once
}

# Host memory that a managed buffer holds outlives a state in which it is stale, so after a GIVE_GPU no device chunk
# is ever held in a host state: in UNINITIALIZED, HEAD_AT_CPU and DISCARDED under MANAGED the chunk is back home. While
# a copy in is made in parts, the state is HEAD_AT_CPU, and the chunk is there from the first of them on.
HOST_STATES = frozenset({State.UNINITIALIZED, State.HEAD_AT_CPU, State.DISCARDED})
