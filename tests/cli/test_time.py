"""`pycaffe-lms time`: Caffe's log lines, the table behind them, shapes that change in the middle."""

from __future__ import annotations

import math
import re

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli.views import roofline
from pycaffe_lms.cli.views.time_table import by_type, row, text, together

from .command import caffe, complaint, process
from .nets import NET, write


def _tables(out: str) -> list[list[list[str]]]:
    """Tables of stdout as lists of cells; columns are at least two blanks apart."""
    return [[re.split(r" {2,}", line) for line in table.splitlines()] for table in out.strip().split("\n\n")]


def _time(folder, *argv):
    done = caffe("time", "-model", "net.prototxt", *argv, cwd=folder)
    assert done.code == 0, done.stderr
    return done


def test_the_log_stays_as_parsers_know_it(tmp_path):
    write(tmp_path, NET)
    log = _time(tmp_path, "-backend", "cpu", "-iterations", "2").log
    start = log.index("*** Benchmark begins ***")
    number = r"[\d.e+-]+"
    expected = [
        "Testing for 2 iterations.",
        *(rf"Iteration: {i} forward-backward time: {number} ms\." for i in (1, 2)),
        "Average time per layer: ",
    ]
    for name in ("data", "label", "conv", "relu", "pool", "ip", "loss"):
        expected += [rf" *{name}\tforward: {number} ms\.", rf" *{name}\tbackward: {number} ms\."]
    expected += [rf"Average {p}: {number} ms\." for p in ("Forward pass", "Backward pass", "Forward-Backward")]
    expected += [rf"Total Time: {number} ms\.", r"\*\*\* Benchmark ends \*\*\*"]
    got = log[start + 1 : start + 1 + len(expected)]
    assert all(re.fullmatch(e, g) for e, g in zip(expected, got, strict=True)), got


def test_the_table_has_every_pass_with_its_bytes_and_operations(tmp_path):
    write(tmp_path, NET)
    done = _time(tmp_path, "-backend", "cpu", "-iterations", "2")
    layers, types = _tables(done.out)
    assert layers[0] == ["layer", "type", "pass", "ms", "share", "MB", "GB/s", "GFLOP", "TFLOP/s", "of limit"]
    cells = {(c[0], c[2]): c for c in layers[1:]}
    assert {name for name, _ in cells} == {"conv", "relu", "pool", "ip", "loss"}
    x, w, y = 4 * 3 * 64, 16 * 27, 4 * 16 * 36
    assert float(cells["conv", "forward"][5]) == pytest.approx(4 * (x + w + 16 + y) / 1e6, abs=6e-4)
    assert float(cells["conv", "forward"][7]) == pytest.approx(2 * y * 27 / 1e9, abs=6e-5)
    assert cells["relu", "forward"][7:] == ["-", "-", "-"]  # moves data only; no limits are known on a CPU
    assert "No limits to compare with: only a GPU's are measured, and this is the CPU." in done.log
    assert {c[1] for c in types[1:-2]} == {"Convolution", "ReLU", "Pooling", "InnerProduct", "SoftmaxWithLoss"}
    assert [c[0] for c in types[-2:]] == ["all layers"] * 2


def test_the_simulated_device_is_timed_by_its_model_clock(tmp_path):
    write(tmp_path, NET)
    done = _time(tmp_path, "-backend", "sim", "-iterations", "3")
    layers, types = _tables(done.out)
    relu = next(c for c in layers if c[0] == "relu" and c[2] == "forward")
    nbytes = 2 * 4 * 4 * 16 * 36
    assert float(relu[3]) == pytest.approx(1e3 * (SimDevice.launch_s + nbytes / SimDevice.memory_bytes_per_s), rel=0.02)
    sums = [sum(float(c[3]) for c in layers[1:] if c[2] == d) for d in ("forward", "backward")]
    assert [float(c[3]) for c in types[-2:]] == pytest.approx(sums, abs=1e-3)
    names = ["layer", "type", "pass", "model ms", "share", "MB", "model GB/s", "GFLOP", "model TFLOP/s", "of limit"]
    assert layers[0] == types[0] == names
    # Caffe's lines are by the same clock: the passes make up the iteration; the wall's is apart
    timed = (re.fullmatch(r"(.*?)(?::| that took) ([\d.e+-]+) ms.*", line) for line in done.log)
    found = {m[1]: float(m[2]) for m in timed if m}
    passes = found["Average Forward pass"] + found["Average Backward pass"]
    assert passes == pytest.approx(sum(sums), rel=0.01)
    assert found["Average Forward-Backward"] == pytest.approx(passes, rel=0.01)
    assert found["Total Time"] == pytest.approx(3 * found["Average Forward-Backward"], rel=1e-4)
    each = [float(m[1]) for line in done.log if (m := re.fullmatch(r"Iteration: .* time: (.*) ms\.", line))]
    assert sum(each) == pytest.approx(found["Total Time"], rel=1e-4)
    assert found["Simulating"] > found["Total Time"], "what a host takes to simulate some microseconds"
    assert any("model clock" in line and "none is measured" in line for line in done.log)


def test_layers_that_run_as_one_are_one_row_under_all_their_names(tmp_path):
    chain = "".join(
        f'layer {{ name: "{n}" type: "{t}" bottom: "conv" top: "conv" }}\n'
        for n, t in (("norm", "BatchNorm"), ("scale", "Scale"), ("relu", "ReLU"))
    )
    write(tmp_path, NET, ('layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }\n', chain))
    done = _time(tmp_path, "-backend", "sim", "-iterations", "1", "-fuse", "on")
    layers, _ = _tables(done.out)
    assert ["norm+scale+relu", "BatchNorm+Scale+ReLU", "forward"] in [c[:3] for c in layers]
    assert "Groups of layers that run as one, their time logged for the last one: 1." in done.log
    assert sum("\tforward: " in line for line in done.log) == 9  # Caffe's lines: every layer


def test_a_net_without_backward(tmp_path):
    write(tmp_path, "\n".join(NET.splitlines()[:-1]) + "\n")
    layers, _ = _tables(_time(tmp_path, "-backend", "cpu", "-iterations", "1", "-phase", "TEST").out)
    assert "forward" in {c[2] for c in layers}


GROWS = """
from pycaffe_lms import Layer

class Grows(Layer):
    seen = 0

    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(1 + type(self).seen)

    def forward(self, bottom, top):
        if type(self).seen < LAST:
            type(self).seen += 1
        top[0].reshape(1 + type(self).seen)
        top[0].data[...] = 1

    def backward(self, top, propagate_down, bottom):
        pass
"""
GROWING = """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } }
layer { name: "g" type: "Python" bottom: "x" top: "g" python_param { module: "grows" layer: "Grows" } }
layer { name: "p" type: "Power" bottom: "g" top: "p" }
"""


def _time_growing(folder, last, *argv):
    write(folder, GROWING)
    (folder / "grows.py").write_text(GROWS.replace("LAST", str(last)))
    return process("time", "-model", "net.prototxt", "-backend", "cpu", *argv, cwd=folder, path=folder)


def test_an_iteration_whose_shapes_changed_is_timed_again(tmp_path):
    layers, _ = _tables(_time_growing(tmp_path, 2, "-iterations", "2").out)
    assert [c[0] for c in layers[1:]] == ["g", "p"]


def test_shapes_that_change_every_time_are_refused(tmp_path):
    message, fix = complaint(_time_growing(tmp_path, 10**6), 2)
    assert "shapes change in the middle of every iteration" in message and "same shapes" in fix


# -- the pure parts ------------------------------------------------------------------------------------------------
LIMITS = roofline.Roofline(bytes_per_s=1e12, flops_per_s=1e14)


def test_the_limit_is_the_longer_of_moving_and_computing():
    assert LIMITS.ms(1e9, 0) == pytest.approx(1.0)
    assert LIMITS.ms(1e9, 1e12) == LIMITS.ms(1e9, 1e12, half=True) == pytest.approx(10.0)
    both = roofline.Roofline(bytes_per_s=1e12, flops_per_s=1e14, half_flops_per_s=2e14)
    assert (both.ms(1e9, 1e12), both.ms(1e9, 1e12, half=True)) == pytest.approx((10.0, 5.0))


def test_rates_and_shares():
    rows = [
        row("c", "Convolution", "forward", 20.0, 2_000_000_000, 10**12, LIMITS),
        row("r", "ReLU", "forward", 5.0, 4_000_000_000, 0, LIMITS),
        row("h", "Data", "forward", 0.0, 0, 0, None),
    ]
    cells = _tables(text(rows, 25.0))[0]
    assert cells[1][3:] == ["20.0000", "80.0%", "2000.000", "100.0", "1000.0000", "50.000", "50%"]
    assert cells[2][3:] == ["5.0000", "20.0%", "4000.000", "800.0", "-", "-", "80%"]
    assert cells[3][3:] == ["0.0000", "0.0%", "-", "-", "-", "-", "-"]


def test_types_are_sums_slowest_first():
    rows = [
        row(n, t, d, ms, 100, 0, LIMITS)
        for n, t, d, ms in (
            ("a", "ReLU", "forward", 1.0),
            ("b", "ReLU", "forward", 2.0),
            ("c", "Pooling", "forward", 1.0),
            ("c", "Pooling", "backward", 4.0),
        )
    ]
    found = [(r.name, r.type, r.direction, r.ms, r.nbytes) for r in by_type(rows)]
    assert found == [
        ("1 layer", "Pooling", "forward", 1.0, 100),
        ("1 layer", "Pooling", "backward", 4.0, 100),
        ("2 layers", "ReLU", "forward", 3.0, 200),
        ("all layers", "-", "forward", 4.0, 300),
        ("all layers", "-", "backward", 4.0, 100),
    ]
    assert together(rows, "", "", "").limit_ms == pytest.approx(4 * LIMITS.ms(100, 0))
    assert together([row("h", "Data", "forward", 1, 0, 0, None)], "", "", "").limit_ms is None


def test_limits_are_measured_with_the_devices_own_clock():
    device = SimDevice()
    limits = roofline.measure(device, copy_bytes=1 << 20, matrix=64)
    copy = device.launch_s + 2 * (1 << 20) / device.memory_bytes_per_s
    assert limits.bytes_per_s == pytest.approx(2 * (1 << 20) / copy)
    product = device.launch_s + 3 * 4 * 64 * 64 / device.memory_bytes_per_s
    assert limits.flops_per_s == pytest.approx(2 * 64**3 / product)
    assert device.in_use() == 0 and math.isfinite(limits.ms(1, 1)) and limits.half_flops_per_s is None
    both = roofline.measure(device, copy_bytes=1 << 20, matrix=64, half=True)
    half = device.launch_s + 3 * 2 * 64 * 64 / device.memory_bytes_per_s
    assert both.flops_per_s == pytest.approx(limits.flops_per_s)
    assert both.half_flops_per_s == pytest.approx(2 * 64**3 / half)


def test_no_limits_where_there_is_no_memory_to_measure_them():
    device = SimDevice(capacity=1 << 20)
    assert roofline.measure(device, copy_bytes=1 << 20, matrix=64) is None
    assert device.in_use() == 0


def test_parts_of_layers_are_timed_one_by_one(tmp_path):
    """Each moves its images, and the weights."""
    write(tmp_path, NET)
    done = _time(tmp_path, "-backend", "cpu", "-iterations", "1", "-lms_split", "2")
    parts, _ = _tables(done.out)
    cells = {(c[0], c[2]): c for c in parts[1:]}
    assert {"conv [1/2]", "conv [2/2]", "pool [1/2]", "loss"} < {name for name, _ in cells}
    x, w, y = 4 * 3 * 64, 16 * 27, 4 * 16 * 36
    for i in (1, 2):
        assert float(cells[f"conv [{i}/2]", "forward"][5]) == pytest.approx(
            4 * (x / 2 + w + 16 + y / 2) / 1e6, abs=6e-4
        )
    assert any(re.fullmatch(r" *conv \[2/2\]\tbackward: [\d.e+-]+ ms\.", line) for line in done.log)
