"""`plan`: needs no GPU, no database; its totals agree with what a run of the same net on the simulated device takes."""

from __future__ import annotations

import gc
import json
import re
import sys
from pathlib import Path

import pytest

from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.cli.main import main
from pycaffe_lms.cli.views.plan_answers import Answers
from pycaffe_lms.data.feed.batches import DatumBatches
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.lms.cost.machine import find_machine
from pycaffe_lms.lms.cost.network import Cluster, all_reduce
from pycaffe_lms.net.tuning import Tuning
from pycaffe_lms.proto import caffe_pb2
from pycaffe_lms.solvers import SGDSolver

from ..data.helpers import numbered_lmdb
from .nets import DATA_NET, NET, write

MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(autouse=True)
def no_answers_of_before(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def model(tmp_path):
    return str(write(tmp_path, NET))


def _plan(capsys, *argv):
    code = main(["plan", *argv])
    return code, capsys.readouterr().out


def test_the_page_and_the_table_of_steps(model, capsys):
    code, page = _plan(capsys, "-model", model, "-lms", "1")
    assert code == 0 and "FITS in 139.0 GiB without Large Model Support" in page
    assert "with -lms 1 " in page and "Least budget with layers whole: " in page and "update:" not in page
    assert len(page.splitlines()) <= 50
    assert _plan(capsys, "-model", model, "-lms", "1", "-summary") == (0, page)
    _, out = _plan(capsys, "-model", model, "-lms", "1", "-steps")
    assert out.startswith(page) and "forward:" in out and "backward:" in out and "update:" in out
    assert _plan(capsys, "-model", model, "-lms", "1", "-steps", "-summary") == (0, page)


@pytest.mark.parametrize(("budget", "code"), [("1GB", 0), ("1KB", 1)])
def test_python_collects_less_often_only_while_it_plans(budget, code, model, monkeypatch):
    before, during, real = gc.get_threshold(), [], Answers.page

    def page(self, **more):
        during.append(gc.get_threshold())
        return real(self, **more)

    monkeypatch.setattr(Answers, "page", page)
    assert main(["plan", model, "-lms_budget", budget]) == code
    assert during[0][0] > before[0] and gc.get_threshold() == before


def test_the_solver_type_decides_how_many_histories(model, capsys):
    """Two weights are larger than 1 KB: Adam has two histories more than SGD."""
    found = []
    for kind in ("SGD", "Nesterov", "Adam", "AdaDelta"):
        plan = _json(Path(model).parent, "-model", model, "-lms", "1", "-solver_type", kind)["plan"]
        found.append(plan["buffers"]["managed"]["count"])
    assert found == [found[0], found[0], found[0] + 2, found[0] + 2]
    assert main(["plan", "-model", model, "-lms", "1", "-solver_type", "adam"]) == 2


def test_phase_test_has_no_backward(model, capsys):
    _, out = _plan(capsys, "-model", model, "-lms", "1", "-phase", "TEST", "-steps")
    assert "forward:" in out and "backward:" not in out


@pytest.mark.parametrize("argv", [("plan", "-lms", "auto", "-sweep", "batch=2..8"), ("summarize",)])
def test_no_data_is_read(argv, tmp_path, monkeypatch, capsys):
    """Of a database that is there the first record alone, for its shape; batches for a search would be millions."""
    monkeypatch.chdir(tmp_path)
    numbered_lmdb("db", 3, shape=(1, 2, 5))
    write(tmp_path, DATA_NET)
    made = []
    monkeypatch.setattr(DatumBatches, "produce", lambda self, batch: made.append(batch))
    assert main([*argv, "-model", "net.prototxt"]) == 0
    assert ("largest batch" if argv[0] == "plan" else "data (2 1 2 5)") in capsys.readouterr().out
    assert made == []


def test_without_the_flag_it_is_planned_for_auto(model, capsys):
    assert _plan(capsys, "-model", model, "-budget", "1MB") == _plan(
        capsys, "-model", model, "-lms", "auto", "-lms_budget", "1MB"
    )


def test_data_layers_need_only_a_shape(tmp_path, capsys):
    text = """
    layer { name: "d" type: "Data" top: "data" top: "label"
            data_param { source: "nowhere" batch_size: 1 backend: LMDB } }
    layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 3 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
    """
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    assert main(["plan", "-model", str(path), "-lms", "1"]) == 1
    assert "-shape" in capsys.readouterr().err
    argv = ["-model", str(path), "-lms", "1", "-steps"]
    code, out = _plan(capsys, *argv, "-shape", "data=8,3,16,16")  # the label's shape follows
    # 8 x 768 floats are 24 KiB, and the weight of 3 x 768 is 9 KiB, as are its gradient and momentum
    assert code == 0 and "in data.data (24.0 KiB)" in out and "fc.param0.data (9.0 KiB)" in out


def test_drawn_data_are_planned_on_the_device(tmp_path, capsys):
    """With a shape in place of the file's too. What stands for layers that read data runs on the host, as they do."""
    text = """
    layer { name: "d" type: "DummyData" top: "data" top: "label"
            dummy_data_param { shape { dim: 1 dim: 3 } shape { dim: 1 } data_filler { type: "gaussian" } } }
    layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 3 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
    """
    path = tmp_path / "net.prototxt"
    for told in (text, text.replace("DummyData", "MemoryData")):
        path.write_text(told)
        code, out = _plan(capsys, "-model", str(path), "-lms", "1", "-steps", "-shape", "data=8,3,16,16")
        assert code == 0 and ("in data.data (24.0 KiB)" in out) == ("MemoryData" in told)


@pytest.mark.parametrize("shape", ["data", "data=", "data=a,b", "data=1,-3", "=1,2"])
def test_bad_shapes(model, shape, capsys):
    assert main(["plan", "-model", model, "-lms", "1", "-shape", shape]) == 2
    assert "BLOB=N,C,H,W" in capsys.readouterr().err


def test_a_budget_that_is_too_small(model, capsys):
    assert main(["plan", "-model", model, "-lms", "1", "-lms_budget", "4KB"]) == 1
    err = capsys.readouterr().err
    assert "fix:" in err and "net.prototxt" in err


def _dummy(tmp_path, batch=8):
    text = f"""name: "dummy"
    layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
      shape {{ dim: {batch} dim: 3 dim: 24 dim: 24 }} shape {{ dim: {batch} }} data_filler {{ type: "uniform" }} }} }}
    """ + NET.split('layer { name: "label"')[1].split("\n", 1)[1]
    path = tmp_path / f"dummy{batch}.prototxt"
    path.write_text(text)
    return str(path)


def _json(tmp_path, *argv, code=0):
    path = tmp_path / "plan.json"
    assert main(["plan", *argv, "-json", str(path)]) == code
    return json.loads(path.read_text())


def _solver(model, device, lms):
    param = caffe_pb2.SolverParameter(base_lr=0.01, momentum=0.9, lr_policy="fixed", net=model, random_seed=1)
    param.snapshot_after_train = False
    return SGDSolver(param, device=device, lms=lms, tuning=Tuning(channels_last=True, fuse=True, pack=True))


@pytest.mark.parametrize("lms", [["-lms", "0"], ["-lms", "auto"], ["-lms", "1"]], ids="_".join)
def test_bytes_are_those_that_a_solver_takes(tmp_path, lms, capsys):
    """With nothing on the device but what the solver takes, its use is what was said."""
    model = _dummy(tmp_path)
    said = _json(tmp_path, "-model", model, *lms, "-lms_budget", "8MB")
    threshold = int(lms[1]) if lms[1] != "auto" else 0
    config = LMSConfig(threshold_kb=threshold, auto=lms[1] == "auto", budget=8 << 20, pages=False)
    device = SimDevice(64 << 20)
    solver = _solver(model, device, config)
    solver.step(1)
    # the solver's own table of updates, a buffer of a few words per parameter, is not planned for
    assert 0 <= device.in_use() - said["device_bytes"] <= 4096
    solver.close()


@pytest.mark.parametrize("policy", ["AUTO", "SWAP", "RECOMPUTE"])
def test_the_least_budget_is_the_least(tmp_path, capsys, policy):
    model = Path(_dummy(tmp_path))
    text = model.read_text()
    assert 'name: "conv"' in text
    model.write_text(
        text.replace('name: "conv"', f'name: "conv" lms_param {{ policy: {policy} }}').replace(
            'name: "relu"', f'name: "relu" lms_param {{ policy: {policy} }}'
        )
    )
    for lms in ("1", "auto"):
        argv = ["-model", str(model), "-lms", lms, "-lms_split", "off", "-lms_budget"]
        least = _json(tmp_path, *argv, "8MB")["least"]
        assert _json(tmp_path, *argv, f"{least['nbytes']}B")["fits"]
        assert not _json(tmp_path, *argv, f"{int(0.98 * least['nbytes'])}B", code=1)["fits"]
        assert sum(b["bytes"] for b in least["blobs"]) >= least["nbytes"] - least["fixed"]


def test_predicted_times_follow_the_machine(tmp_path, capsys):
    """A GPU with half of every rate, and twice the time of a launch and of a copy, takes twice as long."""
    model, found = _dummy(tmp_path), []
    for factor in (1, 2):
        file = tmp_path / f"gpu{factor}.json"
        rates = {"memory_rate": 1e11, "product_rate": 1e12, "link_in": 1e9, "link_out": 1e9, "link_both": 2e9}
        rates = {name: rate / factor for name, rate in rates.items()}
        file.write_text(json.dumps(rates | {"memory": 8 << 20, "copy_s": 1e-6 * factor, "launch_s": 1e-6 * factor}))
        found.append(
            _json(tmp_path, "-model", model, "-lms", "1", "-lms_ahead", "0", "-gpu", str(file), "-workspace", "8KB")
        )
    slow, fast = found[1], found[0]
    assert slow["ms"] == pytest.approx(2 * fast["ms"]) and slow["stall_ms"] == pytest.approx(2 * fast["stall_ms"])
    assert slow["in_core"]["ms"] == pytest.approx(2 * fast["in_core"]["ms"])
    assert fast["images_per_s"] == pytest.approx(8 / fast["ms"] * 1e3)
    assert fast["stall_ms"] == pytest.approx(sum(s["stall_ms"] for s in fast["steps"])) and fast["stall_ms"] > 0
    assert fast["ms"] == pytest.approx(fast["stall_ms"] + sum(s["ms"] for s in fast["steps"]))


def test_a_sweep_is_what_single_plans_say(tmp_path, capsys):
    lms = ["-lms", "auto", "-lms_budget", "2MB", "-lms_split", "off"]
    swept = _json(tmp_path, "-model", _dummy(tmp_path), *lms, "-sweep", "batch=4..16")
    assert [row["batch"] for row in swept["sweep"]] == [4, 8, 16]
    for row in swept["sweep"]:
        alone = _json(tmp_path, "-model", _dummy(tmp_path, row["batch"]), *lms)
        assert {k: alone[k] for k in row} == row
    largest = swept["largest_batch"]
    assert f"largest batch that fits: {largest} " in capsys.readouterr().out and largest >= 16
    assert largest == alone["largest_batch"]
    for batch, fits in ((largest, True), (largest + 1, False)):
        argv = ["-model", _dummy(tmp_path, batch), *lms]
        assert _json(tmp_path, *argv, code=0 if fits else 1)["fits"] is fits


def test_host_memory_may_be_what_does_not_fit(tmp_path, capsys):
    argv = ["-model", _dummy(tmp_path), "-lms", "1", "-lms_budget", "700KB", "-lms_ahead", "0"]
    needed = _json(tmp_path, *argv)["host_bytes"]
    assert _json(tmp_path, *argv, "-lms_host", f"{needed}B")["fits"]
    assert not _json(tmp_path, *argv, "-lms_host", f"{needed - 1}B", code=1)["fits"]
    assert "raise -lms_host" in capsys.readouterr().err


def test_without_lms_it_says_whether_the_net_fits(tmp_path, capsys):
    argv = ["-model", _dummy(tmp_path), "-lms", "0"]
    needed = _json(tmp_path, *argv, "-lms_budget", "8MB")["in_core"]["bytes"]
    code, out = _plan(capsys, *argv, "-lms_budget", f"{needed}B")
    assert code == 0 and "FITS in" in out and "with -lms" not in out
    code, out = _plan(capsys, *argv, "-lms_budget", f"{needed - 512}B")
    assert code == 1 and "DOES NOT FIT in" in out and "* -lms auto" in out


def test_workspace_is_an_assumption(tmp_path, capsys):
    argv = ["-model", _dummy(tmp_path), "-lms", "0", "-lms_budget", "64MB"]
    little = _json(tmp_path, *argv, "-workspace", "1MB")["in_core"]["bytes"]
    assert _json(tmp_path, *argv, "-workspace", "5MB")["in_core"]["bytes"] - little == 4 << 20
    assert "assumed workspace (-workspace): every convolution uses 5MB" in capsys.readouterr().out
    assert _json(tmp_path, *argv[:4], "-gpu", "v100")["workspace_assumed"] == "36MB"


@pytest.mark.parametrize(
    "argv, said",
    [
        (["-gpu", "0"], "name the kind"),
        (["-gpu", "h300"], "h200"),
        (["-sweep", "batch=0..4"], "-sweep"),
        (["-sweep", "batch=8..4"], "-sweep"),
        (["-sweep", "8,16"], "-sweep"),
        (["-json", "/no/such/x"], "-json"),
    ],
)
def test_wrong_flags(model, argv, said, capsys):
    assert main(["plan", "-model", model, "-lms", "1", *argv]) == 2
    assert said in capsys.readouterr().err


def test_the_memory_of_a_named_gpu(tmp_path, capsys):
    for name, gib in (("v100", 16), ("rtx4090", 23)):
        assert _json(tmp_path, "-model", _dummy(tmp_path), "-gpu", name)["device_bytes_there"] == gib << 30
    code, out = _plan(capsys, "-model", _dummy(tmp_path), "-gpu", "v100", "-lms_budget", "8GB", "-lms", "auto")
    assert "planned for: v100, 8.0 GiB" in out


@pytest.mark.thorough
def test_vgg_16_by_hand(tmp_path, capsys):
    """conv1_2 at batch 32 has its bottom and two gradients of 32 x 64 x 224 x 224 floats; of its top, bits."""
    argv = ["-model", str(MODELS / "vgg-16" / "train_dummy.prototxt"), "-gpu", "v100", "-summary"]
    found = _json(tmp_path, *argv, "-workspace", "100MB")
    value = 32 * 64 * 224 * 224 * 4
    least = found["least"]
    assert least["layer"] == "conv1_2+relu1_2" and [b["bytes"] for b in least["blobs"][:3]] == 3 * [value]
    assert 3 * value + (100 << 20) + value // 32 <= least["nbytes"] < 1.2 * (3 * value + (100 << 20))
    assert found["fits"] and found["in_core"]["fits"] and found["host_bytes"] == 0 and found["stall_ms"] == 0
    # 15.5 billion products per image and direction, three times, at 10 TFLOP/s
    assert found["ms"] == pytest.approx(1e3 * 3 * 32 * 2 * 15.47e9 / 10e12, rel=0.1)
    assert least["nbytes"] * found["largest_batch"] / 32 < 18 * 2**30  # about what 16 GiB hold, fetched on demand


def test_layers_that_do_not_fit_whole_are_planned_in_parts(tmp_path, capsys):
    """Three convolutions' worth of 16 images: the largest pass needs 3 x 1 MB and workspace, 2 MB are there."""
    conv = "convolution_param { num_output: 16 kernel_size: 1 }"
    text = f"""
    layer {{ name: "data" type: "DummyData" top: "data" top: "label"
            dummy_data_param {{ shape {{ dim: 16 dim: 4 dim: 32 dim: 32 }} shape {{ dim: 16 }} }} }}
    layer {{ name: "c1" type: "Convolution" bottom: "data" top: "c1" {conv} }}
    layer {{ name: "c2" type: "Convolution" bottom: "c1" top: "c2" {conv} }}
    layer {{ name: "fc" type: "InnerProduct" bottom: "c2" top: "fc" inner_product_param {{ num_output: 4 }} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }}
    """
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    budget = ["-lms_budget", "2MB", "-lms_split", "auto"]
    code, out = _plan(capsys, "-model", str(path), "-lms", "1", *budget, "-steps")
    found = re.search(r'^layers "c1" \.\. "fc" run in (\d+) parts of ', out, re.M)
    assert code == 0 and found
    for i in range(int(found[1])):
        assert f"backward:c2 [{i + 1}/{found[1]}]:" in out
    assert main(["plan", "-model", str(path), "-lms", "1", "-lms_budget", "2MB", "-lms_split", "off"]) != 0
    assert "-lms_split" in capsys.readouterr().err
    _, whole = _plan(capsys, "-model", str(path), "-lms", "1", "-lms_budget", "64MB", "-steps")
    assert not re.search(r"run in \d+ parts", whole) and "backward:c2:" in whole
    _, said = _plan(capsys, "-model", str(path), "-lms", "1", "-lms_split", "4", "-summary")
    assert 'layers "c1" .. "fc" run in 4 parts of 4 images' in said


def test_parameters_that_do_not_fit_are_planned_in_blocks(tmp_path, capsys):
    """A weight of 1 MiB, with gradient and momentum 3 MiB: its update sets the least budget, until it is cut."""
    text = """
    layer { name: "data" type: "DummyData" top: "data" top: "label"
            dummy_data_param { shape { dim: 4 dim: 512 } shape { dim: 4 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 512 } }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
    """
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    budget = ["-lms_budget", "2MB", "-lms_split", "auto"]
    code, out = _plan(capsys, "-model", str(path), "-lms", "1", *budget, "-steps")
    found = re.search(r'^layer "ip" runs in (\d) blocks of ', out, re.M)
    assert code == 0 and found and 2 <= int(found[1]) <= 4
    for i in range(int(found[1])):
        assert f"update:ip [outputs {i + 1}/{found[1]}]:" in out
    least = {}
    for blocks in ("off", "8"):
        _plan(
            capsys,
            "-model",
            str(path),
            "-lms",
            "1",
            "-lms_budget",
            "8MB",
            "-lms_split_outputs",
            blocks,
            "-json",
            str(tmp_path / "plan.json"),
            "-summary",
        )
        least[blocks] = json.loads((tmp_path / "plan.json").read_text())["least"]["nbytes"]
    assert 3 << 20 <= least["off"] < 3.1 * 2**20
    assert 3 << 17 <= least["8"] < 3.3 * 2**17 + 4 * 512 * 4
    assert main(["plan", "-model", str(path), "-lms", "1", "-lms_budget", "2MB", "-lms_split_outputs", "off"]) != 0
    assert "-lms_split_outputs" in capsys.readouterr().err


def test_slabs_of_one_volume(capsys, tmp_path):
    """A batch of one has no parts: -lms_split auto cuts the volume into slabs, and steps, budgets and JSON say so."""
    conv = "convolution_param {{ num_output: {} kernel_size: 3 pad: 1 }}"
    text = f"""
    layer {{ name: "data" type: "DummyData" top: "data" top: "label"
            dummy_data_param {{ shape {{ dim: 1 dim: 2 dim: 24 dim: 16 dim: 16 }}
                               shape {{ dim: 1 dim: 1 dim: 24 dim: 16 dim: 16 }} }} }}
    layer {{ name: "a" type: "Convolution" bottom: "data" top: "a" {conv.format(32)} }}
    layer {{ name: "bn" type: "BatchNorm" bottom: "a" top: "a" }}
    layer {{ name: "b" type: "Convolution" bottom: "a" top: "b" {conv.format(2)} }}
    layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" top: "loss" }}
    """
    path, found = tmp_path / "net.prototxt", tmp_path / "plan.json"
    path.write_text(text)
    argv = ["-model", str(path), "-lms", "1", "-workspace", "1KB", "-json", str(found)]
    _, whole = _plan(capsys, *argv, "-lms_budget", "8MB", "-summary")
    [least] = re.findall(r"^Least budget with layers whole: .* -lms_budget (\d+)KB", whole, re.M)
    [parts] = re.findall(r"^Least budget with layers in parts or slabs: .* -lms_budget (\d+)KB", whole, re.M)
    assert int(least) >= 24 * 16 * 16 * 32 * 4 * 2 >> 10 and int(parts) <= int(least) // 2
    code, out = _plan(capsys, *argv, "-lms_budget", f"{int(least) // 2}KB", "-lms_split", "auto", "-steps")
    [said] = re.findall(r'^(3 layers, "a" .. "b", run in (\d+) slabs of up to \d+ rows)$', out, re.M)
    assert code == 0 and json.loads(found.read_text())["parts"] == [said[0]]
    for i in range(int(said[1])):
        for step in ("forward:a [slab ", "forward:bn [moments ", "backward:b [slab "):
            assert f"{step}{i + 1}/{said[1]}]" in out


def test_activations_in_16_bits(capsys):
    """About half the bytes, and products that take half the time."""
    model, found = str(MODELS / "resnet-50/train_dummy.prototxt"), []
    for math in ("tf32", "bf16"):
        argv = ("-model", model, "-gpu", "h200", "-lms", "0", "-summary", "-math", math)
        code, out = _plan(capsys, *argv)
        assert code == 0 and (" of bfloat16," in out) == (math == "bf16")
        size, unit, ms = re.search(r"^without LMS +([\d.]+) (\w+) .* ([\d.]+) ms", out, re.M).groups()
        found.append((float(size) * {"MiB": 1, "GiB": 1024}[unit], float(ms)))
    assert found[1][0] < 0.65 * found[0][0] and found[1][1] < 0.75 * found[0][1]


PYTHON_NET = """layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 8 dim: 500 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 500 } }
layer { name: "mine" type: "Python" bottom: "ip" top: "y" python_param { module: "a_users_layers" layer: "Half" } }
layer { name: "same" type: "Python" bottom: "y" top: "y" python_param { module: "a_users_layers" layer: "Same" } }
layer { name: "loss" type: "Reduction" bottom: "y" top: "loss" loss_weight: 1 }
"""
HALF = """
import pycaffe_lms as caffe
class Half(caffe.Layer):
    def reshape(self, bottom, top): top[0].reshape(bottom[0].shape[0], bottom[0].shape[1] // 2)
class Same(caffe.Layer):
    def reshape(self, bottom, top): pass
"""


@pytest.fixture
def python_net(tmp_path, monkeypatch):
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "a_users_layers.py").write_text(HALF)
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    yield str(write(tmp_path, PYTHON_NET))
    sys.modules.pop("a_users_layers", None)


@pytest.mark.parametrize("action", ["plan", "summarize"])
def test_python_layers_run_only_if_they_are_asked_to(action, python_net, capsys):
    """What is given by -shape in place of their code makes the same plan, and the same table."""
    lms = ("-lms", "4", "-lms_budget", "10MB") if action == "plan" else ()
    assert main([action, "-model", python_net, *lms]) == 1
    said = capsys.readouterr().err
    assert 'layer "mine" (Python)' in said and 'its top "y" is not known' in said
    assert "-shape y=" in said and "-python on" in said
    assert main([action, "-model", python_net, "-shape", "y=8,250", *lms]) == 0
    stand_in = capsys.readouterr().out
    assert "a_users_layers" not in sys.modules
    assert main([action, "-model", python_net, "-python", "on", *lms]) == 0
    assert capsys.readouterr().out == stand_in and "a_users_layers" in sys.modules


def test_shapes_of_python_layers_follow_the_batch(python_net, capsys):
    argv = ["-model", python_net, "-sweep", "batch=8,16", "-lms_budget", "20MB"]
    found = []
    for more in (["-shape", "y=8,250"], ["-python", "on"]):
        code, out = _plan(capsys, *argv, *more)
        assert code == 0
        found.append(out)
    assert found[0] == found[1]


def test_a_shape_for_a_python_layer_that_runs_is_refused(python_net, capsys):
    assert main(["plan", "-model", python_net, "-python", "on", "-shape", "y=8,250"]) == 2
    assert "no data layer makes y" in capsys.readouterr().err


# -- many GPUs ---------------------------------------------------------------------------------------------------------
def test_ranks_are_rows_of_a_table(model, capsys):
    argv = ["-model", model, "-gpu", "v100", "-ranks", "1,4,8,16", "-node_gpus", "4", "-network", "10GB/s"]
    code, out = _plan(capsys, *argv)
    assert code == 0 and "nodes of 4 GPUs, NVLink 120 GB/s, network 10 GB/s a node" in out
    rows = _json(Path(model).parent, *argv)["ranks"]
    assert [(r["ranks"], r["nodes"]) for r in rows] == [(1, 1), (4, 1), (8, 2), (16, 4)]
    alone = _json(Path(model).parent, "-model", model, "-gpu", "v100")
    batch = alone["batch"]
    for row in rows:
        assert row["efficiency"] == pytest.approx(alone["ms"] / row["ms"])
        assert row["images_per_s"] == pytest.approx(row["ranks"] * batch * 1e3 / row["ms"])
        assert re.search(rf"^ +{row['ranks']} .* {row['efficiency']:.1%} .* {row['limit']}$", out, re.M)
    assert rows[0]["sums_ms"] == 0 and rows[1]["sums_ms"] < rows[2]["sums_ms"] < rows[3]["sums_ms"]
    assert _plan(capsys, *argv)[1].endswith(out), "from the cache"


def test_ranks_sum_the_same_bytes_with_lms_and_without(model):
    argv = ["-model", model, "-gpu", "t4", "-ranks", "4", "-workspace", "0KB"]
    core = _json(Path(model).parent, *argv, "-lms", "off")
    lms = _json(Path(model).parent, *argv, "-lms", "1", "-lms_budget", "40KB")
    assert not lms["in_core"]["fits"] and lms["plan"]["bytes_in"] > 0
    assert lms["ranks"][0]["sums_ms"] == pytest.approx(core["ranks"][0]["sums_ms"]) and core["ranks"][0]["sums_ms"] > 0


def test_one_of_several_ranks_copies_what_one_alone_copies(model):
    """Also where the net would fit without: -lms 1 manages all the same."""
    found = _json(Path(model).parent, "-model", model, "-gpu", "h200", "-lms", "1", "-ranks", "1,2")
    assert found["in_core"]["fits"] and found["plan"]["bytes_in"] > 0
    one, two = found["ranks"]
    assert one["ms"] == pytest.approx(found["ms"]) and two["efficiency"] < 1


SYNC = """
layer { name: "data" type: "DummyData" top: "x" dummy_data_param { shape { dim: 4 dim: 3 dim: 9 dim: 9 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "y" convolution_param { num_output: 500 kernel_size: 1 } }
layer { name: "norm" type: "BatchNorm" bottom: "y" top: "z" batch_norm_param { sync: SYNC } }
layer { name: "pool" type: "Pooling" bottom: "z" top: "p" pooling_param { pool: AVE global_pooling: true } }
layer { name: "ip" type: "InnerProduct" bottom: "p" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "loss" }
"""


@pytest.mark.parametrize("lms", [["-lms", "off", "-budget", "64MB"], ["-lms", "1", "-lms_budget", "3MB"]])
def test_ranks_count_what_a_synchronised_norm_exchanges(tmp_path, lms):
    """Among 8 GPUs: 2 x 500 + 1 numbers of each are gathered in forward, 2 x 500 summed in backward."""

    def ranks(sync):
        name = write(tmp_path, SYNC.replace("SYNC", sync), name=f"{sync}.prototxt")
        argv = ["-model", str(name), "-gpu", "h200", "-ranks", "8", "-workspace", "0KB", *lms]
        return _json(tmp_path, *argv)["ranks"][0]

    plain, sync = ranks("false"), ranks("true")
    cluster, machine = Cluster(8, 8, 0), find_machine("h200")
    more = all_reduce(8 * 4 * 1001, cluster, machine, gather=True).seconds + all_reduce(4000, cluster, machine).seconds
    assert sync["sums_ms"] - plain["sums_ms"] == pytest.approx(1e3 * more)
    assert sync["waiting_ms"] >= 1e3 * more and sync["ms"] > plain["ms"]


@pytest.mark.parametrize(
    "argv, said",
    [
        (["-ranks", "16"], "needs -network"),
        (["-ranks", "12", "-network", "50GB/s"], "does not fill nodes of 8"),
        (["-ranks", "x"], "-ranks"),
        (["-ranks", "8", "-node_gpus", "0"], "at least one GPU"),
        (["-ranks", "16", "-network", "50"], "is no rate"),
        (["-network", "50GB/s"], "add -ranks"),
        (["-node_gpus", "4"], "add -ranks"),
        (["-ranks", "8", "-phase", "TEST"], "exclude each other"),
        (["-ranks", "8", "-sweep", "batch=1..2"], "exclude each other"),
    ],
)
def test_ranks_that_cannot_be(model, argv, said, capsys):
    assert main(["plan", "-model", model, *argv]) == 2
    assert said in capsys.readouterr().err
