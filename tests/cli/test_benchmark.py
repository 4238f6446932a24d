"""`pycaffe-lms benchmark`: what is trained, what is counted, what does not fit, its table, chart and files."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pycaffe_lms.backend import get_device
from pycaffe_lms.cli.bench import measure, table
from pycaffe_lms.cli.bench.model import average_all, find, parse_image, resized
from pycaffe_lms.cli.commands import benchmark
from pycaffe_lms.cli.flags import parse
from pycaffe_lms.errors import OutOfDeviceMemory, UsageError
from pycaffe_lms.lms.config import parse_size
from pycaffe_lms.lms.plan.plan import OpKind

from .command import caffe, complaint
from .nets import DATA_NET, NET, SOLVER, write

MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, NET, name="train_val.prototxt")
    return tmp_path


def _cases(folder, *words):
    """The cases of a command, in its order."""
    args = parse(benchmark.build_parser(), [str(folder), "-warmup", "1", "-iterations", "3", *words])
    return list(benchmark._cases(find(args.model, args.shape, args.set), args))


# -- what is counted ---------------------------------------------------------------------------------------------------
def test_images_per_second_are_the_batch_over_the_median_time(folder):
    ticks = iter([10.0, 11.0, 20.0, 25.0, 30.0, 32.0])  # iterations of 1, 5 and 2 seconds; none while warming up
    (case,) = _cases(folder, "-batch", "6", "-backend", "cpu", "-lms", "off")
    row = measure.measure(case, clock=lambda: next(ticks))
    assert row["seconds"] == [1.0, 5.0, 2.0] and row["median_s"] == 2.0
    assert row["images_per_s"] == 6 / 2.0 and row["shapes"] == ["data=6,3,8,8", "label=6"]
    assert not list(ticks)
    # values and gradients of all but the data; parameters, their gradients and histories
    blobs, parameters = 6 * (16 * 36 * 2 + 16 * 9 * 2 + 10 * 2), 16 * 27 + 16 + 10 * 144 + 10
    assert row["memory"] >= 4 * (blobs + 6 * 3 * 64 + 3 * parameters) and row["memory_by"] == "package"


def test_copied_bytes_are_those_of_the_plan_and_of_the_device(folder):
    (case,) = _cases(folder, "-batch", "8", "-backend", "sim", "-lms", "1")
    device = get_device("sim")
    solver = measure.build(case, device)
    measure.timed(solver, 1, 4, device.model_seconds)
    before = device.bytes_in, device.bytes_out
    found = measure.timed(solver, 3, 0, device.model_seconds)
    plan = solver.net.memory.plans()["train"]
    copied, most = (found.bytes_in, found.bytes_out), (plan.bytes_in, plan.bytes_out)
    for kind, mine, planned in zip((OpKind.IN, OpKind.OUT), copied, most, strict=True):
        buffers = [op.placed.buffer for op in plan.ops if op.kind is kind and op not in plan.carried_over]
        assert mine == sum(solver.net.memory.memories[b].nbytes for b in buffers)
        assert 0 < mine <= planned < mine + 512 * len(buffers)  # a plan counts sizes as they are aligned
    for now, then, mine in zip((device.bytes_in, device.bytes_out), before, copied, strict=True):
        assert 0 <= now - then - 3 * mine < 3 * 100  # beside them, numbers of the update and the loss


@pytest.mark.parametrize("setting", ["off", "1", "auto"])
@pytest.mark.parametrize("batch", ["64", "100"])
def test_the_least_budget_is_enough_and_nine_tenths_are_not(folder, setting, batch):
    """It is found without running anything, and tried here."""
    words = ["-batch", batch, "-backend", "sim", "-lms", setting, "-budget"]
    (case,) = _cases(folder, *words, "100KB")
    with pytest.raises(OutOfDeviceMemory):
        measure.measure(case)
    row = measure._guarded(case)
    assert row["fits"] is False and row["capacity"] == 100 << 10
    least = parse_size(table.budget(measure.needed(case, row)), "-budget")
    (case,) = _cases(folder, *words, f"{least}B")
    assert measure.measure(case)["memory"] <= least
    (case,) = _cases(folder, *words, f"{least * 9 // 10}B")
    with pytest.raises(OutOfDeviceMemory):
        measure.measure(case)


# -- what is trained ---------------------------------------------------------------------------------------------------
def test_a_folder_with_shapes_in_place_of_data():
    model = find(str(MODELS / "resnet-152"), [])
    assert Path(model.net).name == "train_dummy.prototxt" and Path(model.solver).name == "solver_dummy.prototxt"
    assert model.shapes(()) == {"data": (32, 3, 224, 224), "label": (32,)}


def test_a_folder_whose_net_reads_databases():
    model = find(str(MODELS / "lenet"), [])
    assert Path(model.net).name == "train_val.prototxt" and Path(model.solver).name == "solver.prototxt"
    assert model.shapes(()) == {"data": (64, 1, 28, 28), "label": (64,)}  # one colour, as deploy.prototxt has it


def test_the_solver_beside_the_model_says_how_to_update(folder):
    param = find(str(folder), []).solver_param()
    assert param.type == "SGD"
    assert (param.base_lr, param.momentum, param.weight_decay) == pytest.approx((0.01, 0.9, 1e-4))
    more = 'type: "Adam" momentum: 0.8 iter_size: 4 test_iter: 1 test_interval: 5 snapshot: 3 display: 1\n'
    write(folder, SOLVER + more, name="solver.prototxt")
    param = find(str(folder / "train_val.prototxt"), []).solver_param()
    assert (param.type, param.momentum, param.weight_decay) == ("Adam", pytest.approx(0.8), 0)
    assert (param.iter_size, len(param.test_iter), param.snapshot, param.display) == (1, 0, 0, 0)


def test_names_of_the_zoo(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYCAFFE_LMS_CACHE", str(folder / "cache"))
    assert find("resnet-152", []).shapes(()) == {"data": (32, 3, 224, 224), "label": (32,)}
    lenet = find("lenet", [])
    assert lenet.net.startswith(str(folder / "cache")) and lenet.net.endswith("lenet/train_val.prototxt")
    assert lenet.solver == lenet.net.replace("train_val", "solver")
    shutil.copytree(MODELS / "lenet", folder / "models" / "lenet")
    assert find("lenet", []).net == str(Path("models", "lenet", "train_val.prototxt")), "a folder here comes first"
    with pytest.raises(UsageError, match="resnet-152"):
        find("resnet-153", [])


def test_set_changes_the_net_that_is_measured(folder):
    (case,) = _cases(folder, "-batch", "6", "-backend", "cpu", "-set", "layer.ip.inner_product_param.num_output=7")
    solver = measure.build(case, get_device("cpu"))
    assert solver.net.params["ip"][0].data.shape[0] == 7
    solver.close()


def test_sizes():
    unet = {"data": (1, 3, 192, 192, 192), "label": (1, 1, 192, 192, 192)}
    assert resized(unet, 4, (96, 64, 32)) == {"data": (4, 3, 96, 64, 32), "label": (4, 1, 96, 64, 32)}
    assert resized(unet, None, (96,)) == {"data": (1, 3, 96, 96, 96), "label": (1, 1, 96, 96, 96)}
    picture = {"data": (32, 3, 224, 224), "label": (32,)}
    assert resized(picture, 2, (3900,)) == {"data": (2, 3, 3900, 3900), "label": (2,)}
    assert resized(picture, None, ()) == picture
    with pytest.raises(UsageError, match="-image 192x192x192: an item of data has 2 axes of size"):
        resized(picture, 1, (192, 192, 192))
    assert parse_image("480x640") == (480, 640) and parse_image("3900") == (3900,)


def test_a_resnet_keeps_its_parameters_at_any_size(monkeypatch):
    """Of resnet-18: 512 values behind the average pooling, 1000 classes."""
    monkeypatch.chdir(MODELS.parent)
    sizes = {}
    for image in ("224", "448", "300x320"):
        (case,) = _cases("models/resnet-18", "-image", image, "-batch", "1", "-lms", "off", "-backend", "cpu")
        net, updates = measure.nets_of(case, "cpu", 1 << 34, None).build(case.lms)
        sizes[image] = [p.shape for p in net.params["fc1000"]]
        (pool,) = [layer.pooling_param for layer in case.net()[0].message.layer if layer.name == "pool5"]
        assert pool.global_pooling == (image != "224") and pool.kernel_size == (7 if image == "224" else 0)
    assert {str(shapes) for shapes in sizes.values()} == {"[(1000, 512), (1000,)]"}


@pytest.mark.parametrize(
    ("model", "found"),
    [("googlenet", ["pool5/7x7_s1"]), ("resnet-50", ["pool5"]), ("alexnet", []), ("cifar10_full", []), ("unet-2d", [])],
)
def test_poolings_that_take_the_whole_image(model, found):
    assert average_all(find(str(MODELS / model), []).parsed().message) == found


def test_a_net_of_unknown_shape_takes_it_from_flags(tmp_path):
    write(tmp_path, DATA_NET)
    with pytest.raises(UsageError, match='no file says which shape "data"'):
        find(str(tmp_path / "net.prototxt"), []).shapes(())
    assert find(str(tmp_path / "net.prototxt"), []).shapes((32,)) == {"data": (2, 3, 32, 32), "label": (2,)}
    given = find(str(tmp_path / "net.prototxt"), ["data=2,1,5,5"]).shapes(())
    assert given == {"data": (2, 1, 5, 5), "label": (2,)}


# -- the command -------------------------------------------------------------------------------------------------------
def test_a_run_on_the_simulated_device(folder):
    """Batches one after the other; the last does not fit without Large Model Support, and is a line all the same."""
    words = ["-batch", "4,64", "-image", "8", "-backend", "sim", "-lms", "off,1", "-budget", "300KB"]
    done = caffe("benchmark", ".", *words, "-iterations", "2", "-warmup", "1", "-json", "x.json", cwd=folder)
    assert done.code == 0, done.stderr
    found = json.loads((folder / "x.json").read_text())
    rows = found["results"]
    assert [(r["batch"], r["lms"], r["fits"]) for r in rows] == [
        *((4, "off", True), (4, "1", True), (64, "off", False), (64, "1", True))
    ]
    assert found["budget"] == 300 << 10 and all(r["memory"] <= 300 << 10 for r in rows if r["fits"])
    assert rows[0]["bytes_in"] == 0 and rows[1]["bytes_in"] > 0 and rows[2]["least"] > 300 << 10
    assert "simulated device" in rows[0]["versions"] and "NumPy" in rows[0]["versions"]
    assert f"64     off  does not fit: needs -budget {table.budget(rows[2]['least'])}" in done.out
    for said in ("SGD with momentum 0.9", "median of 2 iterations after 1", "as pycaffe-lms counts it", "model clock"):
        assert said in done.out
    for row in rows:
        if row["fits"]:
            assert row["images_per_s"] == pytest.approx(row["batch"] / row["median_s"])


KILLS = """
import os
from pycaffe_lms import Layer

class Kills(Layer):
    def setup(self, bottom, top):
        pass

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        if bottom[0].shape[0] == 5:
            os._exit(9)
        top[0].data[...] = bottom[0].data

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff
"""


def test_a_process_that_dies_leaves_nothing_behind(folder, monkeypatch):
    kills = 'layer { name: "k" type: "Python" bottom: "pool" top: "k" python_param { module: "kills" layer: "Kills" } }'
    write(
        folder,
        NET,
        ('layer {\n  name: "ip"', f'{kills}\nlayer {{\n  name: "ip"'),
        ('bottom: "pool" top: "ip"', 'bottom: "k" top: "ip"'),
    )
    (folder / "kills.py").write_text(KILLS)
    monkeypatch.syspath_prepend(str(folder))
    words = ["-backend", "cpu", "-iterations", "1", "-json", "x.json"]
    done = caffe("benchmark", "net.prototxt", "-batch", "5,4", *words, cwd=folder)
    first, second = json.loads((folder / "x.json").read_text())["results"]
    assert done.code == 1 and "its process was ended" in first["error"] and "failed: its process" in done.out
    assert second["batch"] == 4 and second["images_per_s"] > 0


def test_an_interrupt_ends_the_case_that_runs(folder):
    words = ["benchmark", str(folder), "-backend", "sim", "-iterations", str(10**8), "-lms", "off"]
    command = subprocess.Popen(
        [sys.executable, "-m", "pycaffe_lms", *words],
        env={**os.environ, "PYTHONPATH": str(MODELS.parent)},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert "Batch 4, -lms off" in command.stderr.readline()
    command.send_signal(signal.SIGINT)  # to the command alone; a terminal sends it to both
    _, rest = command.communicate(timeout=60)  # the pipe is open as long as one of them lives
    assert command.returncode == 130 and rest.endswith("interrupted\n")


def test_an_interrupt_waits_until_the_process_has_all_that_it_starts_with():
    done = []
    with pytest.raises(KeyboardInterrupt), measure._interrupt_waits():
        signal.raise_signal(signal.SIGINT)
        done.append("start")
    assert done == ["start"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    "words, said",
    {
        ("-batch", "8,0"): "-batch '8,0' is no list",
        ("-batch", "x"): "-batch 'x' is no list",
        ("-image", "0"): "-image '0' is no size",
        ("-image", "8x"): "-image '8x' is no size",
        ("-image", "8x8x8"): "an item of data has 2 axes",
        ("-lms", "off,autoo"): "'autoo' is not a number of KB",
        ("-budget", "much"): "-lms_budget 'much' is not a size",
        ("-iterations", "0"): "-iterations must be 1 or more",
        ("-shape", "dat=1,2"): "-shape dat=...: no data layer",
        ("-plot", "x.txt"): "-plot x.txt: pictures are",
        ("-json", "no/x.json"): "-json no/x.json: no file can be written",
        ("-image", "2"): "layer",
    }.items(),
    ids=str,
)
def test_wrong_words_are_refused_before_anything_runs(folder, words, said):
    message, _ = complaint(caffe("benchmark", ".", "-backend", "sim", *words, cwd=folder), 1 if said == "layer" else 2)
    assert said in message


def test_the_cpu_has_no_memory_to_manage(folder):
    for words in (("-lms", "auto"), ("-budget", "1GB")):
        message, fix = complaint(caffe("benchmark", ".", "-backend", "cpu", *words, cwd=folder), 2)
        assert "the CPU has no device memory" in message and "-backend sim" in fix


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", '"nothing" is neither a file nor a model of the zoo'),
        ("resnet152", "did you mean resnet-152"),
        ("nothing.prototxt", "'nothing.prototxt' is no file"),
        ("", "MODEL is missing"),
        ("empty", "empty has no train_val.prototxt"),
    ],
)
def test_a_model_that_is_not_there(folder, name, said):
    (folder / "empty").mkdir()
    message, _ = complaint(caffe("benchmark", name, "-backend", "cpu", cwd=folder), 2)
    assert said in message


# -- what is shown -----------------------------------------------------------------------------------------------------
ROWS = [
    {"batch": 8, "lms": "off", "images_per_s": 400.0, "seconds": [0.02, 0.019, 0.03], "median_s": 0.02}
    | {"memory": 3 << 30, "memory_by": "driver", "bytes_in": 0, "bytes_out": 0, "fits": True},
    {"batch": 8, "lms": "auto", "images_per_s": 100.0, "seconds": [0.08], "median_s": 0.08}
    | {"memory": 1 << 30, "memory_by": "driver", "bytes_in": 2 << 20, "bytes_out": 3 << 20, "fits": True},
    {"batch": 64, "lms": "off", "fits": False, "error": "no memory", "least": (5 << 30) + 1},
    {"batch": 64, "lms": "auto", "error": "the driver failed"},
]


def test_lines():
    cells = table.line(ROWS[0]).split()
    assert cells == ["8", "off", "400", "20.00", "19.00-30.00", "3.0", "GiB", "-", "-"]
    assert table.line(ROWS[1]).split()[-4:] == ["2.0", "MiB", "3.0", "MiB"]
    assert table.line(ROWS[2]).strip() == "64     off  does not fit: needs -budget 5120.1MB"
    assert table.line(ROWS[3]).endswith("failed: the driver failed")


def test_a_chart_of_plain_characters():
    lines = list(table.chart(ROWS))
    assert [line.count("#") for line in lines] == [0, 50, 12, 0, 0]
    assert lines[3].startswith("batch 64 ") and lines[3].endswith("(does not fit)") and lines[4].endswith("(failed)")
    assert list(table.chart(ROWS[2:]))[1].endswith("(does not fit)")
    assert list(table.chart([ROWS[0] | {"images_per_s": 303260.4}]))[1].endswith(" 303260")


def test_a_budget_can_be_typed_and_is_enough():
    for nbytes in (1, 1023, 5000, (10 << 20) - 1, 123456789, (16 << 30) + 1, 999 << 30):
        assert nbytes <= parse_size(table.budget(nbytes), "-budget") <= 1.02 * nbytes + 1023


def test_a_picture(tmp_path, monkeypatch):
    path = tmp_path / "x.png"
    table.plot(ROWS, "net", 16 << 30, str(path))
    assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000
    real = importlib.import_module

    def absent(name, *more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(Exception, match=r"-plot needs the package matplotlib"):
        table.check_plot(str(path))
