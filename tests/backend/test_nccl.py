"""Check the communicator with a stand-in for NCCL: names of groups, refused ranks, ranks that never come.

tests/parallel/test_gpu.py uses the real library.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from types import SimpleNamespace

import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda, get_device
from pycaffe_lms.backend.cuda import communicator
from pycaffe_lms.errors import DeviceError, LostRank, MissingDependency, UsageError

from ..net.nets import inputs, ip, loss


class NcclError(RuntimeError):
    pass


@pytest.fixture
def library(monkeypatch):
    """Stand in for CuPy's module. `made`: arguments of communicators."""
    made = []

    class NcclCommunicator:
        def __init__(self, count, uid, rank):
            if any(not low <= b <= low + 255 for low in [found.lowest] for b in uid):
                raise OverflowError("value too large to convert to char")
            if found.wait:
                found.wait.wait(30)
            if rank == 3:
                raise NcclError("NCCL_ERROR_INVALID_USAGE: invalid usage")
            made.append((count, uid, rank))

    found = SimpleNamespace(
        NcclCommunicator=NcclCommunicator,
        NcclError=NcclError,
        NCCL_FLOAT32=7,
        NCCL_FLOAT64=8,
        made=made,
        lowest=-128,
        wait=None,
        get_unique_id=lambda: tuple(range(-128, 0)),
    )
    monkeypatch.setattr(communicator, "nccl", lambda: found)
    return found


class Gpu:
    name = "cuda"

    def active(self):
        return threading.Lock()


def meet(uid, size=4, rank=1, timeout=30.0, warn=30.0, beats=None):
    made = communicator.NcclCommunicator.__new__(communicator.NcclCommunicator)
    made._warn, made._beats = warn, beats
    made._nccl, made._device, made.size, made.rank, made._timeout = communicator.nccl(), Gpu(), size, rank, timeout
    return made._meet(uid)


@pytest.mark.parametrize("lowest", [-128, 0])
def test_names_survive_as_bytes_whether_char_has_a_sign_or_not(library, lowest):
    uid = communicator.unique_id()
    assert uid == bytes(range(128, 256)) and caffe.NCCL.new_uid() == uid
    library.lowest = lowest
    meet(uid)
    assert library.made == [(4, tuple(range(lowest if lowest else 128, 256 if not lowest else 0)), 1)]


def test_who_never_comes(library):
    library.wait = threading.Event()
    try:
        with pytest.raises(LostRank, match=r"rank 1 of 4: not all ranks came within 0.1 s"):
            meet(bytes(128), timeout=0.1)
    finally:
        library.wait.set()


def test_who_never_comes_is_named_where_ranks_share_their_counts(library, caplog):
    """Check the message after a while, again each time the wait has doubled, and in the error."""
    library.wait = threading.Event()
    beats = [1, 0, 0, 1]
    try:
        with pytest.raises(LostRank, match=f"within 0.5 s; missing: rank 2 of 4 on {re.escape(socket.gethostname())}"):
            meet(bytes(128), timeout=0.5, warn=0.1, beats=beats)
    finally:
        library.wait.set()
    assert beats == [1, 1, 0, 1]
    said = [r.getMessage() for r in caplog.records]
    assert len(said) == 3 and all(re.match(r"Rank 1 of 4 has waited 0 s for rank 2 of 4 on ", s) for s in said)


@pytest.mark.parametrize(("rank", "said"), [(0, False), (1, True)])
def test_rank_0_does_not_excuse_itself(library, caplog, rank, said):
    """Check that only other ranks suggest a test or a snapshot of rank 0 as the reason of a wait."""
    library.wait = threading.Event()
    try:
        with pytest.raises(LostRank):
            meet(bytes(128), rank=rank, timeout=0.3, warn=0.1)
    finally:
        library.wait.set()
    texts = [r.getMessage() for r in caplog.records]
    assert texts and all(("rank 0 may be testing or writing a snapshot" in text) is said for text in texts)


class Broken:
    """Make a communicator whose events never end until it is aborted."""

    def __init__(self):
        self.done, self.aborted = False, threading.Event()

    def abort(self):
        self.aborted.set()


def test_a_rank_that_stops_is_named_before_and_when_the_others_give_up():
    made = communicator.NcclCommunicator.__new__(communicator.NcclCommunicator)
    made.rank, made.size, made._beats = 0, 3, [7, 7, 5]
    comm, waits = Broken(), []
    watch = communicator._Watch(comm, 0.8, 0.1, waits.append, made._missing)
    watch.expect(comm)
    assert comm.aborted.wait(30) and watch.gave_up and watch.missing.startswith("rank 2 of 3 on ")
    assert [w > low for w, low in zip(waits, (0.1, 0.2, 0.4), strict=True)] == [True] * 3
    made._beats = [7, 7, 7]
    assert made._missing().startswith("another rank of 3 on ")


class Graphs:
    """Stand for NCCL's communicator that recorded graphs use: an abort waits until they are freed. No event ends."""

    done = False

    def __init__(self):
        self.aborts, self.freed, self.ended = 0, threading.Event(), threading.Event()

    def abort(self):
        self.aborts += 1
        assert self.freed.wait(30)
        self.ended.set()


def joined_to(comm, timeout: float = 30.0):
    """Return a communicator, and its watch."""
    made = communicator.NcclCommunicator.__new__(communicator.NcclCommunicator)
    made.rank, made.size, made._beats, made._timeout, made._comm = 0, 2, None, timeout, comm
    made._at_exit = SimpleNamespace(detach=lambda: None)
    made._watch = communicator._Watch(comm, timeout, 30.0, lambda seconds: None, made._missing)
    return made, made._watch


@pytest.mark.parametrize("watch_first", [True, False])
def test_an_abort_does_not_wait_for_graphs_that_only_its_caller_can_free(monkeypatch, watch_first):
    """Neither that of the watch, nor that of the thread which holds them, nor both; and NCCL is asked once."""
    monkeypatch.setattr(communicator, "_ABORT_S", 0.05)
    comm = Graphs()
    made, watch = joined_to(comm, timeout=0.2 if watch_first else 30.0)
    if watch_first:
        watch.expect(comm)
        until = time.monotonic() + 30
        while not watch.gave_up and time.monotonic() < until:
            time.sleep(0.01)
        assert watch.gave_up
    made.abort()
    made.abort()
    with pytest.raises(LostRank, match="did not answer within 0.2 s" if watch_first else "it has left the others"):
        made.check()
    assert comm.aborts == 1 and not comm.ended.is_set()
    comm.freed.set()
    assert comm.ended.wait(30)


@pytest.mark.parametrize(("capture", "value"), [(False, None), (None, "0"), (True, "0")])
def test_ranks_that_record_keep_nccl_from_registering_the_graphs_buffers(monkeypatch, library, capture, value):
    """Where they did, a rank that runs step by step could not take part."""
    monkeypatch.delenv("NCCL_GRAPH_REGISTER", raising=False)
    made = communicator.NcclCommunicator.__new__(communicator.NcclCommunicator)
    with pytest.raises(UsageError, match="rank 5 of 2"):
        made.__init__(Gpu(), bytes(128), 2, 5, timeout=1, capture=capture)
    assert os.environ.get("NCCL_GRAPH_REGISTER") == value and made.can_capture is (value == "0")


def test_ranks_that_record_cannot_if_the_environment_wants_buffers_registered(monkeypatch, library):
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "1")
    with pytest.raises(UsageError, match="NCCL_GRAPH_REGISTER=1"):
        communicator.NcclCommunicator(Gpu(), bytes(128), 2, 0, timeout=1, capture=True)


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_may_record_run_step_by_step_there_and_rank_0_says_so(monkeypatch, library, caplog, rank):
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "1")
    caplog.set_level("INFO", communicator.__name__)
    made = communicator.NcclCommunicator.__new__(communicator.NcclCommunicator)
    with pytest.raises(UsageError, match="the uid is none"):
        made.__init__(Gpu(), b"", 2, rank, timeout=1)
    (said,) = caplog.records
    assert made.can_capture is False and os.environ["NCCL_GRAPH_REGISTER"] == "1"
    assert said.levelname == ("INFO" if rank else "WARNING")
    assert "not recorded as CUDA graphs" in said.getMessage() and "NCCL_GRAPH_REGISTER=1" in said.getMessage()


def test_what_nccl_refuses(library):
    with pytest.raises(DeviceError, match="rank 3 of 4: NCCL_ERROR_INVALID_USAGE") as caught:
        meet(bytes(128), rank=3)
    assert "a GPU of its own" in str(caught.value) and isinstance(caught.value.__cause__, NcclError)


def test_what_is_no_group(library):
    for uid in (b"", bytes(127), "a" * 128, None, tuple(range(128))):
        with pytest.raises(UsageError, match="uid") as caught:
            communicator.NcclCommunicator(Gpu(), uid, 2, 0, timeout=1)
        assert "NCCL.new_uid()" in str(caught.value)
    for rank in (-1, 2):
        with pytest.raises(UsageError, match=f"rank {rank} of 2"):
            communicator.NcclCommunicator(Gpu(), bytes(128), 2, rank, timeout=1)
    with pytest.raises(UsageError, match="solver is on the CPU") as caught:
        communicator.NcclCommunicator(get_device("cpu"), bytes(128), 2, 0, timeout=1)
    assert "set_mode_gpu" in str(caught.value)


def test_the_class_is_there_without_nccl(tmp_path, monkeypatch):
    """Check that the error says what to install: CuPy, or NCCL if CuPy is there."""
    net = inputs(x=(2, 3), label=(2,)) + ip("ip", "x", 3) + loss("ip")
    (tmp_path / "solver.prototxt").write_text(f'net_param {{ {net} }} base_lr: 0.1 lr_policy: "fixed"')
    solver = caffe.SGDSolver(str(tmp_path / "solver.prototxt"))
    if cuda.cupy is None:
        for use in (lambda: caffe.NCCL(solver, bytes(128)), caffe.NCCL.new_uid):
            with pytest.raises(MissingDependency, match=r"pycaffe-lms\[cuda13\]"):
                use()
    runtime = SimpleNamespace(runtimeGetVersion=lambda: 13000)
    monkeypatch.setattr(cuda, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    monkeypatch.setattr(cuda, "nccl_available", lambda: False)
    for use in (lambda: caffe.NCCL(solver, bytes(128)), caffe.NCCL.new_uid):
        with pytest.raises(MissingDependency, match="pip install nvidia-nccl-cu13; or train on one GPU"):
            use()


class Array(SimpleNamespace):
    """Stand for an array of float32 at an address of the device."""

    def __init__(self, ptr: int, size: int):
        super().__init__(data=SimpleNamespace(ptr=ptr), size=size, nbytes=4 * size, dtype="float32")


@pytest.mark.parametrize(
    ("parts", "summed", "gathered"),
    [
        (
            [Array(100, 8), Array(132, 8)],
            [("reduceScatter", 100, 132, 8, 7, 0, 5)],
            [("allGather", 132, 100, 8, 7, 5)],
        ),
        (
            [Array(100, 8), Array(132, 9)],
            ["start", ("reduce", 100, 100, 8, 7, 0, 0, 5), ("reduce", 132, 132, 9, 7, 0, 1, 5), "end"],
            ["start", ("broadcast", 100, 100, 8, 7, 0, 5), ("broadcast", 132, 132, 9, 7, 1, 5), "end"],
        ),
        (
            [Array(100, 0), Array(100, 9)],
            ["start", ("reduce", 100, 100, 9, 7, 0, 1, 5), "end"],
            ["start", ("broadcast", 100, 100, 9, 7, 1, 5), "end"],
        ),
    ],
    ids=["equal", "unequal", "empty"],
)
def test_calls_of_shares_and_exchanges(monkeypatch, parts, summed, gathered):
    """One call where shares are equal and follow each other, else one for each in a group; rank 1 of 2."""
    calls = []

    class Comm:
        def __getattr__(self, name):
            return lambda *args: calls.append((name, *args))

    ranks = object.__new__(communicator.NcclCommunicator)
    ranks.rank, ranks._types = 1, {"float32": 7}
    ranks._nccl = SimpleNamespace(
        NCCL_SUM=0, groupStart=lambda: calls.append("start"), groupEnd=lambda: calls.append("end")
    )
    monkeypatch.setattr(communicator, "_current_stream", lambda: 5)
    monkeypatch.setattr(communicator.NcclCommunicator, "_open", lambda self: Comm())
    ranks.reduce_scatter(parts)
    assert calls == summed
    calls.clear()
    ranks.all_gather(parts)
    assert calls == gathered
    calls.clear()
    ranks.exchange(0, Array(64, 3), Array(96, 3))
    assert calls == ["start", ("send", 64, 3, 7, 0, 5), ("recv", 96, 3, 7, 0, 5), "end"]
