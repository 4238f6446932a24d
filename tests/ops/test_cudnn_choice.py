"""Which engine of cuDNN runs: order, measuring, what is kept in the process and in the file. No GPU."""

import contextlib
import ctypes
import itertools
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda
from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.backend.child import child_environment
from pycaffe_lms.errors import CaffeError, DeviceError
from pycaffe_lms.formats import cache_folder as cache
from pycaffe_lms.ops import WORKSPACE_LIMIT
from pycaffe_lms.ops.cuda import bias_relu
from pycaffe_lms.ops.cuda.conv import conv
from pycaffe_lms.ops.cuda.cudnn import build, choice, convolution
from pycaffe_lms.ops.cuda.cudnn.graph import Fused, strides
from pycaffe_lms.ops.cuda.cudnn.store import Choice, Store, open_store

from .fake_cudnn import NotSupported, array, geometry

LARGE = geometry(16, 64, 64, (28, 28), 3, pad=1)
SMALL = geometry(2, 6, 8, (9, 7), 3)
FLOAT = np.dtype(np.float32)


@pytest.fixture
def measured(monkeypatch):
    """Times that measuring will find, in the order of the candidates; every call's arguments are kept."""
    here = SimpleNamespace(times=None, calls=[])

    def measure(runs, inputs, result, work_bytes, refusals):
        here.calls.append((runs, inputs, result, work_bytes))
        return None if here.times is None else here.times[: len(runs)]

    monkeypatch.setattr(choice, "measure", measure)
    return here


def engine(*args, **kwargs):
    return convolution.plan(LARGE, "float32", *args, directions=["forward"], **kwargs).engines["forward"]


def folder():
    return open_store("GPU 9/x", 91900, "1.99").folder


def forget(monkeypatch):
    """What a new process does not know."""
    for name in ("_graphs", "_candidates", "_stores"):
        monkeypatch.setattr(build, name, {})


@pytest.mark.parametrize(
    "times, best",
    [([3.0, 2.0, 1.0], 2), ([1.0, 0.98], 0), ([1.0, 0.96], 1), ([None, 2.0], 1), ([2.0, None, 1.99], 0), ([None], 0)],
)
def test_a_later_candidate_must_be_clearly_faster(times, best):
    assert choice.fastest(times) == best


def test_candidates_keep_cudnns_order_and_limits(frontend, monkeypatch):
    monkeypatch.setenv("PYCAFFE_LMS_CUDNN", "heuristic")
    frontend.engines = {"a": 900, "b": 0, "c": 5000, "d": 10}
    frontend.broken = {"b"}
    assert engine(1000) == "a"
    frontend.broken = {"a", "b"}
    assert engine(1001) == "d"
    frontend.broken = set("abcd")
    with pytest.raises(convolution.CudnnUnsupported, match="no engine within 1002 bytes"):
        engine(1002)
    frontend.broken = set()
    with pytest.raises(convolution.CudnnUnsupported, match="no engine within 1002 bytes"):
        engine(1002)


def test_the_engine_that_does_everything_is_the_last_resort(frontend, measured):
    frontend.engines, measured.times = {"eng0": 0, "slow": 64, "fast": 128}, [3.0, 1.0]
    assert engine(None) == "fast" and [graph.built for graph in frontend.graphs] == [[1, 2]]
    frontend.engines = {"eng0": 0, "large": 5000}
    assert engine(1000) == "eng0"


def test_candidates_whose_turn_is_taken_are_built_last(frontend):
    """The order of the candidates stays cuDNN's. eng3 cannot be built; eng5 is one too many."""
    frontend.engines = {"eng0": 0, "eng1": 1, "eng2": 2, "eng3": 3, "eng4": 4, "eng5": 5}
    frontend.broken = {"eng3"}
    turns = []

    @contextlib.contextmanager
    def turn(name, wait):
        turns.append((name, wait))
        yield wait or name not in ("eng1", "eng2")

    graph = frontend.pygraph()
    candidates = choice.Candidates(graph, (NotSupported,), None)
    candidates.build(4, turn)
    assert turns == [("eng1", False), ("eng2", False), ("eng3", False), ("eng4", False), ("eng1", True), ("eng2", True)]
    assert graph.built == [4, 1, 2]
    assert [engine.name for engine in candidates.first(3)] == ["eng1", "eng2", "eng4"] and graph.built == [4, 1, 2]


def test_turns_of_processes(tmp_path):
    """The other process asks for a name's turn that this one has, for another's, and waits for the first."""
    program = """if True:
        import sys
        from pathlib import Path
        from pycaffe_lms.ops.cuda.cudnn.store import Store
        store = Store(Path(sys.argv[1]))
        for name in ("eng1", "eng2"):
            with store.turn(name, False) as mine:
                print(mine, flush=True)
        with store.turn("eng1", True) as mine:
            print(mine)
    """
    with Store(tmp_path).turn("eng1", False) as mine:
        assert mine
        command = [sys.executable, "-c", program, str(tmp_path)]
        other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment())
        assert [other.stdout.readline() for _ in range(2)] == ["False\n", "True\n"]
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
    assert other.communicate(timeout=60)[0] == "True\n"


def test_where_files_cannot_be_locked_all_have_their_turn(tmp_path):
    with Store(tmp_path / "no such folder").turn("eng1", False) as mine:
        assert mine


def test_the_fastest_runs_and_is_measured_once(frontend, measured, monkeypatch):
    frontend.engines = {"slow": 64, "fast": 128, "other": 32}
    measured.times = [3.0, 1.0, 2.0]
    plan = convolution.plan(LARGE, "float32", None)
    assert set(plan.engines.values()) == {"fast"} and len(measured.calls) == 3
    assert measured.calls[0][1:] == ([(16 * 64 * 784, FLOAT), (64 * 64 * 9, FLOAT)], (16 * 64 * 784, FLOAT), 128)
    plan.forward(array(16), array(32), None, array(48), array(64, 1 << 20))
    assert frontend.graphs[0].runs == [({1: 16, 2: 32, 3: 48}, 64, 1)]
    convolution.plan(LARGE, "float32", None)
    assert len(measured.calls) == 3
    forget(monkeypatch)
    frontend.graphs.clear()
    again = convolution.plan(LARGE, "float32", None)
    assert again.engines == plan.engines and again.workspace_bytes == plan.workspace_bytes and len(measured.calls) == 3
    assert [graph.loaded for graph in frontend.graphs] == ["fast"] * 3 and not any(g.built for g in frontend.graphs)
    again.backward_data(array(16), array(32), array(48), array(64, 1 << 20))
    assert [graph.runs for graph in frontend.graphs].count([({1: 16, 2: 32, 3: 48}, 64, 0)]) == 1


def test_who_waits_for_another_process_takes_its_choice(frontend, measured, monkeypatch):
    frontend.engines, measured.times = {"slow": 64, "fast": 128}, [3.0, 1.0]
    engine(None)
    (path,) = folder().glob("*.engine")
    content, found = path.read_bytes(), []
    path.unlink()
    forget(monkeypatch)
    waiting = threading.Thread(target=lambda: found.append(engine(None)))
    with open_store("GPU 9/x", 91900, "1.99").alone():  # what another process would have open
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive() and not found
        path.write_bytes(content)
    waiting.join()
    assert found == ["fast"] and len(measured.calls) == 1


def test_an_engine_that_cannot_be_written_is_found_by_name(frontend, measured, monkeypatch):
    frontend.engines, frontend.writes, measured.times = {"slow": 64, "fast": 128}, False, [3.0, 1.0]
    assert engine(None) == "fast"
    forget(monkeypatch)
    frontend.engines = {"other": 32, "slow": 64, "fast": 128}
    assert engine(None) == "fast" and len(measured.calls) == 1
    assert frontend.graphs[-1].built == [2], "no other engine is built"


def test_a_refusal_is_kept(frontend, monkeypatch):
    frontend.failure = NotSupported("no such convolution")
    for _ in range(2):
        with pytest.raises(convolution.CudnnUnsupported, match="no such convolution"):
            engine(None)
        assert len(frontend.graphs) == 1, "the second time cuDNN is not asked"
        forget(monkeypatch)
    frontend.failure = RuntimeError("no memory now")
    for n in (2, 3):
        with pytest.raises(convolution.CudnnUnsupported, match="no memory now"):
            engine(1 << 20)
        assert len(frontend.graphs) == n
        forget(monkeypatch)


def test_who_waits_is_told(caplog, tmp_path):
    """4 + 4 seconds are told of, the two passes after them take 2 and are not."""
    caplog.set_level("INFO")
    measured = build._Measured()
    for seconds in (4.0, 2.0, 2.0, 1.0, 1.0):
        measured.add(seconds, tmp_path / "store.json")
    first, second = (record.getMessage() for record in caplog.records)
    assert "1 passes of convolutions in 4 s" in first and str(tmp_path / "store.json") in first
    assert "3 passes of convolutions in 8 s" in second


def test_what_is_measured_is_at_most_so_many(frontend, measured):
    frontend.engines = {f"eng{i + 1}": 0 for i in range(20)}
    measured.times = [1.0] * 20
    assert engine(None) == "eng1"
    assert len(measured.calls[0][0]) == choice.CANDIDATES


def test_a_choice_that_is_gone_is_made_again(frontend, measured, monkeypatch):
    frontend.engines = {"a": 0, "b": 0}
    measured.times = [2.0, 1.0]
    assert engine(None) == "b"
    forget(monkeypatch)
    frontend.broken = {"b"}
    assert engine(None) == "a"
    forget(monkeypatch)
    frontend.engines, frontend.broken = {"c": 0, "d": 0}, set()
    assert engine(None) == "d" and len(measured.calls) == 2


def test_choices_differ_by_all_they_depend_on(frontend, measured):
    frontend.engines = {"a": 0, "b": 0}
    measured.times = [2.0, 1.0]
    for g, limit in itertools.product((LARGE, last(LARGE)), (None, 1 << 20, 1 << 21)):
        convolution.plan(g, "float32", limit)
    assert len(measured.calls) == len([*folder().glob("*.engine")]) == 18


def test_no_memory_to_measure_in(frontend, measured, monkeypatch):
    frontend.engines = {"a": 0, "b": 0}
    assert engine(None) == "a" and measured.calls
    measured.times = [2.0, 1.0]
    assert engine(None) == "a", "the choice holds within the process"
    forget(monkeypatch)
    assert engine(None) == "b", "and not for longer"


def test_asking_whether_cudnn_can_measures_nothing_and_loses_nothing(frontend, measured, monkeypatch):
    """One engine is built for each direction; what is measured later goes on with the same graphs and engines."""
    monkeypatch.setattr(cuda, "knows_bfloat16", lambda: True)
    frontend.engines = {f"eng{i + 1}": 0 for i in range(20)}
    measured.times = [3.0, 1.0] + [2.0] * 18
    assert conv.conv_channels_last_plan(LARGE, "float32") and not measured.calls
    assert [graph.built for graph in frontend.graphs] == [[0]] * 3
    plan = conv.conv_plan(last(LARGE), "float32", WORKSPACE_LIMIT["cuda"]).cudnn
    assert set(plan.engines.values()) == {"eng2"} and len(measured.calls) == 3
    counts = choice.CANDIDATES, choice.TF32_GRADIENTS, choice.TF32_GRADIENTS
    assert [graph.built for graph in frontend.graphs] == [[*range(n)] for n in counts]
    forget(monkeypatch)
    frontend.graphs.clear()
    assert conv.conv_channels_last_plan(LARGE, "float32")
    conv.conv_plan(last(LARGE), "float32", WORKSPACE_LIMIT["cuda"])
    assert [graph.loaded for graph in frontend.graphs] == ["eng2"] * 3, "what was kept, and only for what runs"
    assert conv.conv_half_plan(LARGE, "float32") and len(measured.calls) == 3


def test_what_runs_seldom_is_not_measured(frontend, measured, monkeypatch):
    frontend.engines = {"a": 0, "b": 0}
    measured.times = [2.0, 1.0, 3.0]
    seldom = {"backward_data", "backward_filter", "ending"}
    plan = conv.conv_plan(LARGE, "float32", 1 << 20, bias=True, relu=True, seldom=seldom).cudnn
    assert plan.engines == {"forward": "b", "backward_data": "a", "backward_filter": "a"}
    assert len(measured.calls) == 1 and not any(graph.after for graph in frontend.graphs)
    plan = conv.conv_plan(LARGE, "float32", 1 << 20, bias=True).cudnn
    assert set(plan.engines) == {"forward", "backward_data", "backward_filter", convolution.FUSED}
    assert len(measured.calls) == 4 and plan.engines["backward_data"] == "b"
    forget(monkeypatch)
    plan = conv.conv_plan(LARGE, "float32", 1 << 20, seldom=seldom).cudnn
    assert set(plan.engines.values()) == {"b"} and len(measured.calls) == 4, "what others measured is used"


def test_not_measured(frontend, measured, monkeypatch):
    measured.times = [2.0, 1.0]
    assert set(convolution.plan(SMALL, "float32", None).engines.values()) == {"eng1"}
    monkeypatch.setenv("PYCAFFE_LMS_CUDNN", "heuristic")
    assert engine(None) == "eng1" and not measured.calls
    monkeypatch.setenv("PYCAFFE_LMS_CUDNN", "Measure")
    with pytest.raises(DeviceError, match='PYCAFFE_LMS_CUDNN is "Measure"') as caught:
        engine(None)
    assert '"heuristic"' in caught.value.fix


# --- channels last, bias and ReLU -------------------------------------------------------------------------------------


def last(g):
    return replace(g, channels_last=True)


def test_strides_of_both_orders():
    assert strides([2, 3, 5, 7], False) == [105, 35, 7, 1]
    assert strides([2, 3, 5, 7], True) == [105, 1, 21, 3]
    assert strides([2, 3, 4, 5, 7], True) == [420, 1, 105, 21, 3]


def test_channels_last_is_a_matter_of_strides(frontend):
    g = geometry(4, 6, 8, (9, 7), 3, stride=2, pad=1, group=2)
    convolution.plan(g, "float32", None)
    convolution.plan(last(g), "float32", None)
    for first, other in zip(frontend.graphs[:3], frontend.graphs[3:], strict=True):
        for a, b in zip([*first.inputs, first.output], [*other.inputs, other.output], strict=True):
            assert a.known["dim"] == b.known["dim"]
            assert a.known["stride"] == strides(a.known["dim"], False)
            assert b.known["stride"] == strides(a.known["dim"], True)


def test_channels_last_never_falls_back(frontend):
    assert conv.conv_channels_last_plan(SMALL, "float32")
    assert not conv.conv_channels_last_plan(SMALL, "float64")
    assert conv.conv_channels_last_plan(geometry(2, 6, 6, (9, 9), 3, group=6), "float32"), "has kernels of its own"
    assert conv.conv_plan(last(SMALL), "float32", 0).cudnn is not None
    with pytest.raises(convolution.CudnnUnsupported) as caught:
        conv.conv_plan(last(SMALL), "float64", 0)
    assert isinstance(caught.value, CaffeError)
    frontend.broken = set(frontend.engines)
    with pytest.raises(convolution.CudnnUnsupported):
        conv.conv_plan(last(SMALL), "float32", 1)
    assert conv.conv_plan(SMALL, "float32", 1).columns is not None
    assert conv.conv_plan(last(geometry(0, 6, 8, (9, 7), 3)), "float32", 1).cudnn is None, "nothing to do"


@pytest.mark.parametrize("fused", [Fused(True, False), Fused(False, True), Fused(True, True)])
def test_one_graph_does_it_all(frontend, fused):
    plan = conv.conv_plan(SMALL, "float32", 4096, bias=fused.bias, relu=fused.relu)
    graph = frontend.graphs[-1]
    assert graph.after == ["bias"] * fused.bias + ["relu"] * fused.relu
    for tensor in graph.between:
        assert tensor.known["dim"] == [2, 8, 7, 5] and "output" not in tensor.known
    if fused.bias:
        assert graph.inputs[2].known["dim"] == [1, 8, 1, 1]
    b = array(0x400) if fused.bias else None
    conv.conv_forward(plan, array(0x100), array(0x200), b, array(0x300), array(0x500, 4096), relu=fused.relu)
    bias = {4: 0x400} if fused.bias else {}
    assert graph.runs == [({1: 0x100, 2: 0x200, 3: 0x300, **bias}, 0x500, 0)]


@pytest.mark.parametrize("fuses, asked", [(False, (True, True)), (True, (True, False)), (True, (False, True))])
def test_a_kernel_does_what_the_graph_does_not(frontend, monkeypatch, fuses, asked):
    """No fused engine, or another ending than was planned."""
    kernels = []
    monkeypatch.setattr(bias_relu, "forward", lambda *args: kernels.append(args))
    frontend.fuses = fuses
    plan = conv.conv_plan(last(SMALL), "float32", 4096, bias=True, relu=True)
    y, b = array(0x300), array(0x400) if asked[0] else None
    conv.conv_forward(plan, array(0x100), array(0x200), b, y, array(0x500, 4096), relu=asked[1])
    assert frontend.graphs[0].runs == [({1: 0x100, 2: 0x200, 3: 0x300}, 0x500, 0)]
    assert kernels == [(y, b, asked[1], (2 * 35, 8, 1))]


def test_a_fused_graph_must_beat_the_kernel(frontend, measured, monkeypatch):
    frontend.engines = {"a": 0, "b": 256}
    for times, name in (([1.0, 1.0, 2.0], None), ([1.0, 0.9, 0.5], "b")):
        forget(monkeypatch)
        measured.times = [1.0, 2.0]
        engine(len(times) * 1000)
        measured.times = times
        plan = engine_of_fused(times)
        assert plan == name
        calls = len(measured.calls)
        forget(monkeypatch)
        assert engine_of_fused(times) == name and len(measured.calls) == calls, "kept in the file"
        shutil.rmtree(folder())
    assert measured.calls[-1][1] == [(16 * 64 * 784, FLOAT), (64 * 64 * 9, FLOAT), (64, FLOAT)]


def engine_of_fused(times):
    plan = convolution.plan(LARGE, "float32", len(times) * 1000, directions=["forward"], fused=Fused(True, True))
    return plan.engines.get(convolution.FUSED)


# --- the file ---------------------------------------------------------------------------------------------------------


ONE = Choice("eng 1", 99, bytes(range(256)) + b"\n\n")


def test_store_keeps_what_others_wrote(tmp_path):
    one, other = Store(tmp_path), Store(tmp_path)
    one.put("x", ONE)
    other.put("y", Choice("separate"))
    one.put("x", replace(ONE, name="3"))
    again = Store(tmp_path)
    assert (again.get("x"), again.get("y"), again.get("z")) == (replace(ONE, name="3"), Choice("separate"), None)
    again.forget("x")
    assert Store(tmp_path).get("x") is None and len([*tmp_path.iterdir()]) == 1, "no temporary file stays"


@pytest.mark.parametrize("cut", [0, 1, 64, 66, 200, -1])
def test_damaged_stores_are_made_anew(tmp_path, cut, caplog):
    Store(tmp_path).put("x", ONE)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:cut])
    store = Store(tmp_path)
    assert store.get("x") is None and f"{path} is damaged" in caplog.text
    store.put("x", ONE)
    assert Store(tmp_path).get("x") == ONE


def test_a_store_that_cannot_be_written_still_remembers(tmp_path, caplog):
    store = Store(tmp_path / "absent")
    for key in "xy":
        store.put(key, ONE)
    assert store.get("x") == ONE and caplog.text.count("not kept for later runs") == 1


def test_without_a_folder_choices_last_as_long_as_the_process(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cache, "_chosen", None)
    monkeypatch.setattr(cache, "_temporary", None)
    store = open_store("x", 1, "1.18")
    assert store.folder.is_dir() and not store.folder.is_relative_to(tmp_path)
    assert "-cache DIR names a folder" in caplog.text
    store.put("x", ONE)
    cache._temporary.cleanup()
    assert not store.folder.exists()


def test_where_the_store_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    name = "nvidia-h200-a-b-91900-1-18-0"
    assert open_store("NVIDIA H200 (a/b)", 91900, "1.18.0").folder == tmp_path / "pycaffe_lms/engines" / name
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for unusable in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", unusable)
        assert open_store("x", 1, "2").folder == tmp_path / "home/.cache/pycaffe_lms/engines/x-1-2"


# --- measuring --------------------------------------------------------------------------------------------------------


class Clock:
    """A device on which time passes as the runs say; what they write is right or wrong as they say."""

    def __init__(self, room=1 << 40):
        self.now, self.freed, self.room, self.values = 0.0, 0, room, {}
        clock = self

        class Event:
            def record(self):
                self.at = clock.now

            def synchronize(self):
                pass

        self.cuda = SimpleNamespace(
            MemoryPool=lambda: SimpleNamespace(malloc=self._malloc, free_all_blocks=self._free),
            Event=Event,
            get_elapsed_time=lambda a, b: b.at - a.at,
            get_current_stream=lambda: SimpleNamespace(ptr=7),
            runtime=SimpleNamespace(deviceSynchronize=lambda: None, memsetAsync=self._memset, memcpy=self._memcpy),
        )

    def _malloc(self, size):
        if size > self.room:
            raise MemoryError
        return SimpleNamespace(ptr=1 << 20)

    def _free(self):
        self.freed += 1

    def _memset(self, address, value, size, stream):
        self.values[address] = float("nan") if value else 0.0

    def _memcpy(self, to, source, size, kind):
        expected, result = (self.values[a] for a in self.compared)
        found = (ctypes.c_float * 2)(abs(expected - result), abs(expected))
        ctypes.memmove(to, found, size)

    def launch(self, source, name, dtype, threads, *args):
        if name == "differ":
            self.compared = args[:2]

    def run(self, ms, value=1.0, load=0.0):
        """A run of `ms` whose first call takes `load` more; `call.times` counts its calls."""

        def call(inputs, result, work):
            if ms is None:
                raise ValueError("does not run")
            self.now += ms + load * (call.times == 0)
            self.values[result] = value
            call.times += 1

        call.times = 0
        return call


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(cuda, "require", lambda: clock)
    monkeypatch.setattr(cuda, "launch", clock.launch)
    return clock


@pytest.mark.parametrize(
    "runs, expected",
    [
        ([(2.0, 1.0), (1.0, 1.001)], [2.0, 1.0]),
        ([(1.0, 1.0), (0.5, 1.1), (0.7, 0.0)], [1.0, None, None]),
        ([(1.0, 1.0), (2.5, 1.0)], [1.0, 2.5]),
        ([(1.0, 1.0), (0.5, 1.0, 90.0)], [1.0, 0.5]),
        ([(1.0, 1.0), (0.5, 1.0, 110.0)], [1.0, 110.5]),
        ([(None, 1.0), (1.0, 5.0), (0.9, 5.0), (0.1, 1.0)], [None, 1.0, 0.9, None]),
        ([(1.0, float("nan")), (3.0, 1.0)], [None, 3.0]),
        ([(None, 1.0)], [None]),
    ],
    ids=[
        "faster",
        "wrong",
        "slow",
        "slow to load",
        "either",
        "first does not run",
        "first is no number",
        "nothing runs",
    ],
)
def test_times(clock, runs, expected):
    times = choice.measure(
        [clock.run(*run) for run in runs], [(10, FLOAT), (20, FLOAT)], (30, FLOAT), 64, (ValueError,)
    )
    assert times == [t if t is None else pytest.approx(t) for t in expected] and clock.freed == 1


def test_slow_runs_are_timed_less_often(clock):
    """One call, of more than a second; or a first call and a second; three more up to twice the best time; then rounds
    of two (2 ms), the last two for runs up to 1.25 times the best."""
    runs = [clock.run(ms) for ms in (1500.0, 1.0, 1.2, 1.5, 2.5)]
    choice.measure(runs, [(10, FLOAT), (20, FLOAT)], (30, FLOAT), 64, (ValueError,))
    assert [run.times for run in runs] == [1, 2 + 3 + 6, 2 + 3 + 6, 2 + 3 + 2, 2]


def test_scratch_memory_is_kept_for_the_next(clock):
    with choice.keeping_scratch():
        for _ in range(2):
            choice.measure([clock.run(1.0)], [(10, FLOAT), (20, FLOAT)], (30, FLOAT), 64, (ValueError,))
        assert clock.freed == 0
    assert clock.freed == 1


def test_times_without_room(clock):
    clock.room = 1 << 12
    assert choice.measure([clock.run(1.0)], [(1000, FLOAT), (20, FLOAT)], (30, FLOAT), 64, (ValueError,)) is None


def test_scratch_arrays_do_not_overlap(clock):
    seen = []

    def run(inputs, result, work):
        seen.append((*inputs, result, work))

    choice.measure([run, run], [(1000, FLOAT), (3, BFLOAT16)], (300, FLOAT), 64, (ValueError,))
    sizes = (4000, 6, 1200, 64)
    for addresses in set(seen):
        spans = sorted(zip(addresses, sizes, strict=True))
        assert all(a + n <= b for (a, n), (b, _) in itertools.pairwise(spans))
        assert not any(a % 512 for a in addresses)
