"""Tests that a rank which hangs ends all, and that one which is merely slow does not."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from pycaffe_lms import activity as activity_module
from pycaffe_lms.activity import Activity
from pycaffe_lms.parallel import pulse
from pycaffe_lms.parallel.pulse import SETTLING, Heart, Listener

from .mpi_ranks import TRAIN, environment, finish, mpiexec, needs_mpi
from .test_launch import alive
from .test_mpi_faults import LONG, begin, gone
from .test_mpi_train import NET, filled

HOST = socket.gethostname()
FAST_S = 0.01  # between two looks
PATIENT_S = 60.0  # the machine may be busy


@pytest.fixture
def activity(monkeypatch):
    """An activity of this test alone, watched every `FAST_S` seconds."""
    made = Activity()
    for module in (activity_module, pulse):
        monkeypatch.setattr(module, "activity", made)
    monkeypatch.setattr(pulse, "TICK_S", FAST_S)
    return made


class Watched:
    """A heart of this process, and what it said."""

    def __init__(self, limit: float, idle: bool = True):
        self.slots, self.said, self.spoke = [0.0] * 3, [], threading.Event()
        self.heart = Heart(self.slots, "rank 2 on node7", limit, idle=lambda: idle, end=self.end)
        self.heart.start()

    def end(self, what: str) -> None:
        self.said.append(what)
        self.spoke.set()

    def settle(self) -> None:
        for i in range(SETTLING):
            with self.heart.iteration(i):
                pass

    def stop(self) -> list[str]:
        self.heart.stop()
        return self.said


def test_a_main_thread_without_progress_is_named_with_its_place(activity):
    watched = Watched(0.2)
    watched.settle()
    with watched.heart.iteration(57):
        activity.layer = "data"
        assert watched.spoke.wait(PATIENT_S)  # "here"
    said = watched.stop()[0]
    assert said.startswith('rank 2 on node7 has made no progress for 0 s in iteration 57, layer "data"')
    assert "test_pulse.py" in said and "in test_a_main_thread_without_progress" in said and '# "here"' in said
    assert "-hang_timeout" in said and watched.slots[2] == 1.0


@pytest.mark.parametrize(
    "kind", ["not in an iteration", "progress", "passes", "exempt", "first", "long before", "device"]
)
def test_what_is_no_hang(activity, kind):
    """Each lasts several times as long as the limit."""
    limit = 0.2
    watched = Watched(limit, idle=kind != "device")
    if kind == "not in an iteration":
        time.sleep(1)
        assert watched.stop() == []
        return
    if kind != "first":
        watched.settle()
    if kind == "long before":
        with watched.heart.iteration(4), activity.doing("an exchange", bounded=False):
            time.sleep(0.2)
        assert watched.heart.allowed > 3
    with watched.heart.iteration(5):
        for _ in range(10):
            if kind == "passes":
                activity.passes += 1
                time.sleep(0.1)
            elif kind == "progress":
                with activity.doing("a part", bounded=True):
                    time.sleep(0.05)
            elif kind == "exempt":
                with activity.doing("planning", bounded=False):
                    time.sleep(0.1)
            else:
                time.sleep(0.1)
    assert watched.stop() == []


def test_other_threads_do_not_change_what_the_main_thread_does(activity):
    def work():
        with activity.doing("something else", bounded=True):
            found.append(activity.now.what)

    found = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["the start"]


def test_an_error_is_told_where_the_end_hangs(activity):
    watched = Watched(0.2)
    watched.heart.ending("gamma is odd")
    assert watched.spoke.wait(PATIENT_S)
    assert watched.stop()[0] == "rank 2 on node7 cannot end by itself after an error: gamma is odd"


def test_silence_is_counted_in_seconds_of_the_listener(monkeypatch):
    """A machine that stands still for an hour, listeners included, is no silence."""
    now = [0.0]
    monkeypatch.setattr(pulse.time, "monotonic", lambda: now[0])
    slots = [5.0, 10.0, 0.0]
    listener = Listener(slots, os.getpid())

    def look(seconds: float) -> str:
        now[0] += seconds
        return listener.look()

    assert [look(3600), *(look(1) for _ in range(9))] == [""] * 10
    assert "has not run for 11 s" in look(1)
    slots[0] += 1
    assert look(1) == ""
    slots[1] = 0.0
    assert [look(1) for _ in range(30)] == [""] * 30, "it is not watched"


def test_the_state_of_a_stopped_process_is_told():
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    process.start()
    os.kill(process.pid, signal.SIGSTOP)
    until = time.monotonic() + PATIENT_S
    while "stopped" not in pulse._state(process.pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert pulse._state(process.pid) == "it is stopped (SIGSTOP, or a debugger)"
    process.kill()
    process.join()
    assert "keeps Python's lock" in pulse._state(process.pid)


@needs_mpi
def test_ranks_hear_their_neighbours(tmp_path):
    """The last says nothing any more: the first, which comes after it, notices. Then all say goodbye."""
    code, said = mpiexec(3, [sys.executable, "-m", "tests.parallel.mpi_work", "neighbours", str(tmp_path)], tmp_path)
    assert code == 0, said
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(3)]
    assert re.fullmatch(rf"rank 2 \(process \d+ on {HOST}\) has not been heard of for 4 s\n  fix: .*", found[0])
    assert found[1:] == ["", ""]


# -- whole runs --------------------------------------------------------------------------------------------------------
HANGS = """
import multiprocessing
import os
import time

import pycaffe_lms as caffe


class Hangs(caffe.Layer):
    passes = 0

    def setup(self, bottom, top): pass

    def reshape(self, bottom, top): top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        Hangs.passes += 1
        rank = os.environ.get("PMI_RANK") or multiprocessing.current_process().name[5:]
        {what}
        top[0].data[...] = bottom[0].data

    def backward(self, top, propagate_down, bottom): bottom[0].diff[...] = top[0].diff
"""
LAYER = """
layer { name: "hangs" type: "Python" bottom: "ip" top: "hangs" python_param { module: "hangs" layer: "Hangs" } }
"""
PICTURES = """
layer { name: "in" type: "ImageData" top: "x" top: "label" image_data_param { source: "list.txt" batch_size: 1 } }
"""


def with_layer(folder, what: str):
    filled(folder)
    net = NET.replace('bottom: "ip" bottom: "label"', 'bottom: "hangs" bottom: "label"')
    (folder / "net.prototxt").write_text(net.replace('layer { name: "loss"', f'{LAYER}\nlayer {{ name: "loss"'))
    (folder / "hangs.py").write_text(HANGS.replace("{what}", what))
    return folder


def with_pictures(folder, count: int = 40):
    """Let a picture be a pipe into which nobody writes: who opens it waits for ever."""
    image = pytest.importorskip("PIL.Image")
    filled(folder)
    for i in range(count):
        image.new("RGB", (8, 8), (i, 2 * i, 3 * i)).save(folder / f"{i}.png")
    (folder / f"{count - 1}.png").unlink()
    os.mkfifo(folder / f"{count - 1}.png")
    (folder / "list.txt").write_text("".join(f"{i}.png {i % 5}\n" for i in range(count)))
    (folder / "net.prototxt").write_text(re.sub(r'(?s)layer \{ name: "in".*?\} \}\n', PICTURES, NET, count=1))
    return folder


def by_gpu_flag(folder, *words: str, until: str = "Iteration 2 "):
    """Start two ranks by -gpu; return them with their process numbers, and what was said until a text came."""
    command = [*TRAIN, "-solver", "s.prototxt", *words]
    ranks = subprocess.Popen(
        command,
        cwd=folder,
        env=environment(PYTHONPATH=os.pathsep.join([str(folder), environment()["PYTHONPATH"]])),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said = ""
    while until not in said:
        line = ranks.stdout.readline()
        assert line, said
        said += line
    found = subprocess.run(["ps", "-ww", "-o", "pid=,args=", "--ppid", str(ranks.pid)], capture_output=True, text=True)
    pids = [int(line.split()[0]) for line in found.stdout.splitlines() if "spawn_main" in line]
    assert len(pids) == 2
    return ranks, pids, said


@pytest.fixture(params=[pytest.param("mpiexec -n 4", marks=[needs_mpi, pytest.mark.thorough]), "-gpu 0,1"])
def start(request):
    """Start ranks; return them with their process numbers and how errors begin."""

    def by_mpi(folder, *words, **more):
        path = f"{folder}{os.pathsep}{environment()['PYTHONPATH']}"
        ranks, pids, _ = begin(folder, 4, *words, PYTHONPATH=path, **more)
        return ranks, pids, rf"error: rank {{rank}}(?: of 4)? on {HOST}:? "

    def by_flag(folder, *words, **more):
        ranks, pids, _ = by_gpu_flag(folder, *SIM, *words, **more)
        return ranks, pids, r"error: rank {rank} of 2 \(sim {rank}\) failed: "

    return by_flag if request.param == "-gpu 0,1" else by_mpi


SIM = ["-backend", "sim", "-gpu", "0,1"]
SOON = ["-hang_timeout", "3"]


def test_a_rank_that_is_stopped(tmp_path, start):
    ranks, pids, begins = start(filled(tmp_path), *LONG, *SOON)
    rank = random.randrange(len(pids))
    os.kill(pids[rank], signal.SIGSTOP)
    code, said = finish(ranks)
    assert code != 0 and said.count("error:") == 1, said
    wanted = begins.format(rank=rank) + rf"its process {pids[rank]} has not run for \d+ s: it is stopped"
    assert re.search(wanted, said) or len(pids) == 2, said  # `ps` does not say which rank is which
    assert f"its process {pids[rank]} has not run for" in said and gone(pids)


@pytest.mark.parametrize(
    "what",
    [
        "while Hangs.passes > 9: pass",
        pytest.param(  # ctypes.PyDLL keeps Python's lock in a call
            "__import__('ctypes').PyDLL(None).sleep(600) if Hangs.passes > 9 else None", marks=pytest.mark.thorough
        ),
    ],
    ids=["loop", "lock"],
)
def test_a_layer_that_does_not_return(tmp_path, start, what):
    what = what.replace("Hangs.passes > 9", 'Hangs.passes > 9 and rank == "1"')
    ranks, pids, begins = start(with_layer(tmp_path, what), *LONG, *SOON)
    code, said = finish(ranks)
    assert code != 0 and said.count("error:") == 1, said
    if "PyDLL" in what:
        assert re.search(begins.format(rank=1) + r"its process \d+ has not run for \d+ s: a library keeps", said), said
    else:
        wanted = begins.format(rank=1) + r'(it )?has made no progress for \d+ s in iteration (\d+), layer "hangs"'
        found = re.search(wanted, said)
        assert found and int(found[2]) >= 4 and "hangs.py" in said and "in forward" in said, said
    assert gone(pids)


@pytest.mark.thorough
def test_a_source_of_data_that_does_not_answer(tmp_path, start):
    """A picture that is a pipe. The rank whose turn it is says so, and where it waits."""
    ranks, pids, _ = start(with_pictures(tmp_path), *LONG, *SOON)
    code, said = finish(ranks)
    assert code != 0 and said.count("error:") == 1, said
    assert re.search(r'has made no progress for \d+ s in iteration \d+, layer "in"', said), said
    assert gone(pids)


@pytest.mark.thorough
def test_who_is_slow_is_left_alone(tmp_path, start):
    """Every iteration takes longer than the limit."""
    folder = with_layer(tmp_path, "time.sleep(3.5)")
    ranks, _, _ = start(folder, *SOON, "-set", "display=1", "-set", "max_iter=7", until="Iteration 0")
    code, said = finish(ranks)
    assert code == 0 and "error:" not in said, said


@pytest.mark.thorough
def test_a_job_that_is_suspended_as_a_whole_goes_on(tmp_path):
    ranks, pids, _ = by_gpu_flag(filled(tmp_path), *SIM, *LONG, *SOON)
    for pid in (ranks.pid, *pids):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(8)
    for pid in (*pids, ranks.pid):
        os.kill(pid, signal.SIGCONT)
    for _ in range(30):
        assert ranks.stdout.readline().startswith("I")
    ranks.send_signal(signal.SIGINT)
    code, said = finish(ranks)
    assert code == 130 and "error:" not in said, said
    assert not any(map(alive, pids))


@pytest.mark.parametrize("text", ["-1", "1", "nan", "soon"])
def test_times_that_are_refused(tmp_path, text):
    command = [*TRAIN, "-solver", "s.prototxt", "-hang_timeout", text]
    done = subprocess.run(command, cwd=filled(tmp_path), env=environment(), capture_output=True, text=True)
    assert done.returncode == 2 and "-hang_timeout" in done.stderr and repr(text) in done.stderr
