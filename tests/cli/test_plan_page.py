"""What `plan` prints: the page's sentences and columns, the sweep, the GPUs, refused flags, prices of -math."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.cli.views.plan_text import WIDTH, flag_size
from pycaffe_lms.lms.config import parse_size
from pycaffe_lms.lms.cost.machine import MACHINES

MODELS = Path(__file__).parents[2] / "models"
LONG = "a_layer_with_a_name_of_forty_characters_"
NET = "\n".join(
    [
        """layer { name: "data" type: "DummyData" top: "data" top: "label"
        dummy_data_param { shape { dim: 16 dim: 8 dim: 32 dim: 32 } shape { dim: 16 } } }""",
        *(
            f"""layer {{ name: "{LONG}{i}" type: "Convolution" bottom: "{f"c{i - 1}" if i else "data"}" top: "c{i}"
        convolution_param {{ num_output: 16 kernel_size: 1 }} }}
        layer {{ name: "{LONG}relu{i}" type: "ReLU" bottom: "c{i}" top: "c{i}" }}"""
            for i in range(6)
        ),
        """layer { name: "fc" type: "InnerProduct" bottom: "c5" top: "fc" inner_product_param { num_output: 4 } }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }""",
    ]
)


@pytest.fixture(autouse=True)
def no_answers_of_before(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def net(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    return str(tmp_path / "net.prototxt")


def _numbers(net, *argv, code=0):
    path = Path(net).with_name("found.json")
    assert main(["plan", "-model", net, *argv, "-json", str(path)]) == code
    return json.loads(path.read_text())


def _flags(out, name):
    """The values that a page proposes for a flag."""
    return re.findall(rf"{name} (\S+?)[,;:]?(?:\s|$)", out)


@pytest.mark.parametrize("budget, fits", [("3MB", True), ("2500KB", False), ("64MB", True)])
@pytest.mark.parametrize("more", [[], ["-lms", "1"], ["-lms", "0"], ["-steps"], ["-phase", "TEST"]], ids="_".join)
def test_a_page_has_at_most_100_columns_and_50_lines(net, budget, fits, more, capsys):
    code = main(["plan", "-model", net, "-budget", budget, *more])
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= WIDTH == 100
    assert len(out.split("\nSteps in order")[0].splitlines()) <= 50
    assert ("\nFITS in " in out) == (code == 0) and ("\nDOES NOT FIT in " in out) == (code == 1)


def test_a_net_that_cannot_fit_is_told_what_would(net, capsys):
    """Every flag that the page proposes is tried: what it promises holds."""
    argv = ["plan", "-model", net, "-lms", "1", "-budget"]
    assert main([*argv, "2MB"]) == 1
    out = capsys.readouterr().out
    assert "DOES NOT FIT in 2.0 MiB, not even with Large Model Support (-lms 1)" in out
    said = " ".join(out.split())  # a convolution's bottom and top and their gradients are of 1 MiB each
    assert re.search(
        r"\* memory: layer \S+ \.\. \S+ \(2 layers run as one\) needs 4\.0 MiB at once, 2\.0 MiB are", said
    )
    whole, *others = _flags(said, "-lms_budget")
    assert main([*argv, whole]) == 0
    capsys.readouterr()
    core = others[-1]
    assert main([*argv[:3], "-lms", "0", "-budget", core]) == 0
    without = int(re.search(r"a batch of (\d+): fits without", said)[1])
    shape = ["-shape", f"data={without},8,32,32", "-shape", f"label={without}"]
    assert main([*argv[:3], "-lms", "0", "-budget", "2MB", *shape]) == 0
    assert "-lms_split auto: runs layers in parts or slabs, which fits" in said
    assert main([*argv, "2MB", "-lms_split", "auto"]) == 0
    capsys.readouterr()
    batch = int(re.search(r"a batch of (\d+): the largest that fits so", said)[1])
    shape = ["-shape", f"data={batch},8,32,32", "-shape", f"label={batch}"]
    assert main([*argv, "2MB", *shape]) == 0
    assert main([*argv, "2MB", *[s.replace(str(batch), str(batch + 1), 1) for s in shape]]) == 1


def test_the_least_budget_in_parts_fits_and_is_below_that_of_whole_layers(net, capsys):
    found = _numbers(net, "-lms", "1", "-budget", "8MB")
    parts, whole = found["least_in_parts"], found["least"]["nbytes"]
    assert 0 < parts <= whole / 2
    argv = ["plan", "-model", net, "-lms", "1", "-budget"]
    assert main([*argv, f"{parts}B", "-lms_split", "auto"]) == 0
    assert main([*argv, f"{parts}B", "-lms_split", "off"]) == 1


def test_the_time_is_that_of_layers_of_rematerialization_and_of_waiting(net, capsys):
    found = _numbers(net, "-lms", "auto", "-budget", "5MB")
    steps = found["steps"]
    assert found["remat_ms"] == pytest.approx(sum(s["ms"] for s in steps if s["again"]))
    assert found["ms"] == pytest.approx(sum(s["ms"] + s["stall_ms"] for s in steps))
    out = capsys.readouterr().out
    shares = [int(n) for n in re.findall(r" ms +(\d+)%", out)]
    assert len(shares) == 3 and 99 <= sum(shares) <= 101


def test_auto_copies_nothing_where_everything_fits(tmp_path, capsys):
    """One item and large parameters, which automatic mode would manage."""
    product = """layer { name: "fc%d" type: "InnerProduct" bottom: "x%d" top: "x%d"
        inner_product_param { num_output: 1024 } }"""
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "x0" type: "Input" top: "x0" input_param { shape { dim: 1 dim: 1024 } } }'
        + "".join(product % (i, i, i + 1) for i in range(3))
        + 'layer { name: "loss" type: "Reduction" bottom: "x3" top: "loss" loss_weight: 1 }'
    )
    found = _numbers(str(tmp_path / "net.prototxt"), "-lms", "auto", "-budget", "50MB")
    assert found["in_core"]["fits"] and found["ms"] == found["in_core"]["ms"]
    page = capsys.readouterr().out
    assert "the same: nothing is managed" in page
    assert page.partition("What to change\n")[2].partition("\n\n")[0].split() == ["*", "nothing"]
    assert _numbers(str(tmp_path / "net.prototxt"), "-lms", "auto", "-budget", "30MB")["stall_ms"] > 0


def test_sizes_of_flags_are_enough_and_hardly_more():
    for nbytes in (1, 1023, 102_400, 5 << 20, 2_512_680_960, (41 << 30) + 1, 200 << 30):
        assert nbytes <= parse_size(flag_size(nbytes), "-lms_budget") <= 1.01 * nbytes


def test_a_sweep_says_how_each_batch_runs(net, capsys):
    assert main(["plan", "-model", net, "-lms", "auto", "-budget", "7MB", "-sweep", "batch=4..64"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= WIDTH
    rows = dict(re.findall(r"^ +(\d+)  (without LMS|with LMS|no) ", out, re.M))
    core = {b: parse_size(re.sub(" ", "", n), "x") for b, n in re.findall(r"^ +(\d+)  .* ([\d.]+ [KM]iB)$", out, re.M)}
    assert list(rows) == ["4", "8", "16", "32", "64"] and list(core) == list(rows)
    assert {b: runs == "without LMS" for b, runs in rows.items()} == {b: n <= 7 << 20 for b, n in core.items()}
    assert rows["64"] == "no" and "with LMS" in rows.values() and "needs" in out
    largest = int(re.search(r"largest batch that fits: (\d+)", out)[1])
    assert max(int(b) for b, runs in rows.items() if runs != "no") <= largest < 64


def test_gpu_list_has_every_gpu_with_its_memory(capsys):
    assert main(["plan", "-gpu", "list"]) == 0
    out = capsys.readouterr().out
    for name, machine in MACHINES.items():
        assert re.search(rf"^{name} +{machine.memory >> 30} GiB +{machine.memory_rate / 1e12:.2f} TB/s ", out, re.M)
    assert max(map(len, out.splitlines())) <= WIDTH


def test_the_file_that_gpu_list_shows_is_read(net, tmp_path, capsys):
    assert main(["plan", "-gpu", "list"]) == 0
    text = capsys.readouterr().out
    (tmp_path / "mine.json").write_text(text[text.index("{") :])
    quick = ("-budget", "64MB", "-lms", "1")  # a small largest batch
    mine, known = (_numbers(net, "-gpu", gpu, *quick) for gpu in (str(tmp_path / "mine.json"), "v100"))
    assert mine["machine"] == known["machine"]


@pytest.mark.parametrize("flag", ["-backend", "-sim_order", "-sim_seed", "-lms_sync"])
def test_flags_that_mean_nothing_to_plan_are_refused(net, flag, capsys):
    for words in ([flag, "1"], [f"{flag}=1"], [f"-{flag}", "1"]):
        assert main(["plan", "-model", net, *words]) == 2
        err = capsys.readouterr().err
        assert err.startswith(f"error: {flag}: plan ") and f"fix: leave {flag} out" in err


def test_products_without_tf32_take_longer_where_the_gpu_has_tf32(capsys):
    """VGG-16 is bound by products: 255 against 43 TFLOP/s on an H200; a V100 has no TF32."""
    vgg = ["plan", "-model", str(MODELS / "vgg-16/train_dummy.prototxt"), "-lms", "0"]
    found = {}
    for gpu, math in (("h200", "tf32"), ("h200", "fp32"), ("v100", "tf32"), ("v100", "fp32")):
        assert main([*vgg, "-gpu", gpu, "-math", math]) == 0
        found[gpu, math] = float(re.search(r"^without LMS .* ([\d.]+) ms", capsys.readouterr().out, re.M)[1])
    assert 3 < found["h200", "fp32"] / found["h200", "tf32"] < 255 / 43
    assert found["v100", "fp32"] == found["v100", "tf32"]


def test_a_gpu_without_bfloat16_is_named(net, capsys):
    assert main(["plan", "-model", net, "-gpu", "t4", "-math", "bf16"]) == 2
    assert "the t4 has no bfloat16" in capsys.readouterr().err
    assert main(["plan", "-model", net, "-gpu", "a100", "-math", "bf16"]) == 0


def test_rematerialization_below_the_least_budget_is_no_contradiction(capsys):
    """The least budget is that of copies alone; where values are made again in place of others, less may do."""
    argv = [
        "plan",
        "-model",
        str(MODELS / "cifar10_resnet-20/train_val.prototxt"),
        "-shape",
        "data=4,3,32,32",
        "-budget",
    ]
    path = "-lms", "auto"
    assert main([*argv, "16GB", *path]) == 0
    whole = parse_size(_flags(capsys.readouterr().out, "-lms_budget")[0], "x")
    code = main([*argv, f"{int(0.95 * whole)}B", *path])
    out = capsys.readouterr().out
    assert ("if values are only copied; this plan needs less" in " ".join(out.split())) == (code == 0)


def test_the_page_in_the_docs_is_what_is_printed(monkeypatch, capsys):
    """A net that does not fit: its page depends on the layers' bytes, not on how plans are searched for."""
    monkeypatch.chdir(MODELS.parent)
    text = Path("docs/lms.md").read_text()
    command, *shown = text.split("<!-- page of plan -->\n```text\n")[1].split("\n```\n")[0].splitlines()
    words = command.removeprefix("$ pycaffe-lms ").split()
    assert main(words) == 1
    assert capsys.readouterr().out.splitlines() == shown, "copy the output of the command to docs/lms.md"
