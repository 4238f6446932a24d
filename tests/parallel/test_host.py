"""Tests the communicator over sockets: sums in the order of the ranks, and errors instead of endless waits."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

import numpy as np
import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LostRank, UsageError
from pycaffe_lms.parallel import communicator
from pycaffe_lms.parallel.host import HostCommunicator
from pycaffe_lms.parallel.meeting import Meeting

from .ranks import TIMEOUT_S, in_threads


def meet(rank, path, count, *, device=None, timeout=TIMEOUT_S):
    return HostCommunicator(device or get_device("cpu"), path, count, rank, timeout=timeout)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_are_formed_in_the_order_of_the_ranks(dtype):
    """So they are the same on every rank, to the bit, even where rounding depends on the order."""
    given = [np.random.default_rng(r).normal(size=(3, 5)).astype(dtype) * 10.0 ** (4 * r) for r in range(4)]
    given = [g.astype(dtype) for g in given]
    expected = ((given[0] + given[1]) + given[2]) + given[3]
    assert not np.array_equal(expected, given[0] + (given[1] + (given[2] + given[3])))

    def work(rank, path):
        arrays = [given[rank][0].copy(), given[rank][1:].copy(), np.empty((0,), dtype)]
        communicator = meet(rank, path, 4)
        communicator.sum(arrays)
        communicator.sum([np.empty((0,), dtype)])
        communicator.close()
        return np.concatenate([a.reshape(-1) for a in arrays])

    for found in in_threads(4, work):
        assert np.array_equal(found, expected.reshape(-1))


def test_averages_are_sums_and_a_factor():
    def work(rank, path):
        communicator, values = meet(rank, path, 3), np.full(4, rank, np.float32)
        missing = communicator.average([values])
        communicator.close()
        return values.tolist(), missing

    assert in_threads(3, work) == [([3, 3, 3, 3], 1 / 3)] * 3


def test_broadcasts_and_maxima():
    def work(rank, path):
        communicator = meet(rank, path, 3)
        values = np.full(4, rank, np.float32)
        communicator.broadcast([values])
        numbers = [communicator.maximum(v).read() for v in (10 * rank, -rank, 2**40 + rank)]
        communicator.close()
        return values.tolist(), numbers

    assert in_threads(3, work) == [([0, 0, 0, 0], [20, 0, 2**40 + 2])] * 3


def test_exchanges_between_pairs():
    def work(rank, path):
        communicator = meet(rank, path, 4)
        mine, found = np.array([rank, rank + 0.5]), []
        for distance in (1, 2):
            theirs = np.zeros(2)
            communicator.exchange(rank ^ distance, mine, theirs)
            found.append(theirs.tolist())
        communicator.close()
        return found

    expected = [[[a, a + 0.5], [b, b + 0.5]] for a, b in ((1, 2), (0, 3), (3, 0), (2, 1))]
    assert in_threads(4, work) == expected


def test_exchanges_that_are_not_mutual():
    def work(rank, path):
        communicator = meet(rank, path, 3)
        with pytest.raises(LostRank, match="they do not train the same" if rank == 0 else "rank 0 is gone"):
            communicator.exchange((rank + 1) % 3, np.zeros(2), np.zeros(2))

    in_threads(3, work)


def test_parts_are_summed_for_one_rank_and_gathered_from_all():
    """Parts may differ in size, and be empty."""
    sizes = (3, 0, 2)

    def work(rank, path):
        communicator = meet(rank, path, 3)
        parts = [np.full(n, 10.0**rank) for n in sizes]
        communicator.reduce_scatter(parts)
        own = parts[rank].tolist()
        given = [np.full(n, float(rank)) for n in sizes]
        communicator.all_gather(given)
        communicator.close()
        return own, [g.tolist() for g in given]

    gathered = [[0, 0, 0], [], [2, 2]]
    assert in_threads(3, work) == [([111] * 3, gathered), ([], gathered), ([111] * 2, gathered)]


def test_on_a_simulated_device_they_wait_in_its_stream():
    def work(rank, path):
        device = SimDevice(1 << 20)
        communicator = meet(rank, path, 2, device=device)
        values = np.full(2, float(rank + 1))
        communicator.sum([values])
        before = values.tolist()  # the stream runs at the latest moment
        ticket = communicator.maximum(rank)
        found = ticket.read()
        communicator.close()
        return before, values.tolist(), found

    assert in_threads(2, work) == [([1, 1], [3, 3], 1), ([2, 2], [3, 3], 1)]


def test_one_rank_alone():
    with Meeting() as meeting:
        communicator = meet(0, meeting.path, 1)
        values = np.arange(3.0)
        communicator.sum([values])
        assert values.tolist() == [0, 1, 2] and communicator.maximum(7).read() == 7
        communicator.close()


def test_a_rank_that_never_comes():
    with Meeting() as meeting, pytest.raises(LostRank, match=r"rank 0 of 2: rank 1 did not come within 0.2 s"):
        meet(0, meeting.path, 2, timeout=0.2)
    with Meeting() as meeting, pytest.raises(LostRank, match=r"rank 1 of 2: rank 0 did not come within 0.2 s"):
        meet(1, meeting.path, 2, timeout=0.2)
    with Meeting() as meeting, pytest.raises(UsageError, match="rank 2 of 2"):
        meet(2, meeting.path, 2)


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_rank_that_goes_ends_the_others(gone):
    """All of them end at once, whichever rank goes; later calls raise the same error."""

    def work(rank, path):
        communicator = meet(rank, path, 3)
        communicator.sum([np.zeros(2)])
        if rank == gone:
            communicator.abort()
            return "gone"
        start = time.monotonic()
        with pytest.raises(LostRank, match=r"rank \d is gone") as caught:
            for _ in range(3):
                communicator.sum([np.zeros(2)])
        with pytest.raises(LostRank) as again:
            communicator.maximum(1)
        assert again.value is caught.value and time.monotonic() - start < TIMEOUT_S / 2
        return "told"

    assert sorted(in_threads(3, work)) == ["gone", "told", "told"]


def test_a_rank_that_does_not_answer():
    done = threading.Event()

    def work(rank, path):
        communicator = meet(rank, path, 2, timeout=0.3)
        if rank:
            done.wait(TIMEOUT_S)
            communicator.abort()
            return
        try:
            with pytest.raises(LostRank, match=r"rank 1 did not answer within 0.3 s"):
                communicator.sum([np.zeros(2)])
        finally:
            done.set()
        return

    in_threads(2, work)


def test_the_rank_that_does_not_answer_is_named_by_the_rank_that_waits_for_it(monkeypatch, caplog):
    """Rank 0 waits for rank 2 and logs it; rank 1, which waits for rank 0, is told that rank 0 lives."""
    monkeypatch.setattr(communicator, "WARN_S", 0.1)
    done = threading.Event()
    here = f"process {os.getpid()} on {socket.gethostname()}"

    def work(rank, path):
        ranks = meet(rank, path, 3, timeout=1.5)
        ranks.sum([np.zeros(2)])
        if rank == 2:
            done.wait(TIMEOUT_S)
            ranks.abort()
            return
        try:
            with pytest.raises(LostRank) as caught:
                ranks.sum([np.zeros(2)])
        finally:
            done.set() if rank == 0 else None
        blamed = f"rank 2 did not answer within 1.5 s ({here})" if rank == 0 else "rank 0 is gone"
        assert blamed in caught.value.message

    in_threads(3, work)
    said = [r.getMessage() for r in caplog.records if "has waited" in r.getMessage()]
    assert len(said) >= 3 and all(s.startswith("Rank 0 of 3 has waited ") for s in said)
    assert all(s.endswith(f"s for rank 2 to answer ({here}). It waits up to 1.5 s.") for s in said)


def test_a_large_message_to_a_rank_that_does_not_read():
    """It exceeds the system's buffers: the sender waits as long as for an answer, and names the rank."""
    done = threading.Event()

    def work(rank, path):
        ranks = meet(rank, path, 2, timeout=0.5)
        if rank == 0:
            done.wait(TIMEOUT_S)
            ranks.abort()
            return
        try:
            with pytest.raises(LostRank, match=r"rank 0 did not answer within 0.5 s \(process \d+ on "):
                ranks.sum([np.zeros(4 << 20)])
        finally:
            done.set()

    in_threads(2, work)


@pytest.mark.parametrize("other", ["size", "operation"])
def test_ranks_that_do_not_do_the_same(other):
    def work(rank, path):
        communicator = meet(rank, path, 2)
        with pytest.raises(LostRank, match="they do not train the same" if rank == 0 else "rank 0 is gone"):
            if other == "size" or rank == 0:
                communicator.sum([np.zeros(2 + rank)])
            else:
                communicator.broadcast([np.zeros(2)])

    in_threads(2, work)


def test_a_stranger_at_the_door():
    """Data that is not a message, and a rank that claims another's number, end the meeting with an error."""
    for said in (b"GET / HTTP/1.1\r\n" + 30 * b" ", None):

        def work(rank, path, said=said):
            if rank == 0:
                with pytest.raises(LostRank, match="not a message" if said else "connected twice, or is not below"):
                    meet(0, path, 2)
                return
            if said is None:
                with pytest.raises(LostRank):
                    meet(5, path, 6).sum([np.zeros(1)])
                return
            with socket.socket(socket.AF_UNIX) as stranger:
                while True:
                    try:
                        stranger.connect(path)
                        break
                    except (FileNotFoundError, ConnectionRefusedError):
                        time.sleep(0.01)
                stranger.sendall(said)
                with contextlib.suppress(ConnectionResetError):
                    while stranger.recv(100):
                        pass

        in_threads(2, work)
