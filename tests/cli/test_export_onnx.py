"""`pycaffe-lms export_onnx`: the model that it writes, what it says, what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.cli.main import main
from pycaffe_lms.net import weights
from pycaffe_lms.net.net import Net

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

NET = """name: "small"
layer { name: "in" type: "Input" top: "data" input_param { shape { dim: 2 dim: 3 dim: 6 dim: 6 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" include { stage: "head" }
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
"""


@pytest.fixture
def files(tmp_path):
    """A prototxt and the weights of its whole net."""
    model = tmp_path / "net.prototxt"
    model.write_text(NET)
    net = Net(model, 1, stages=["head"], seed=1)
    weights.save(net, tmp_path / "net.caffemodel")
    return model, tmp_path / "net.caffemodel"


@pytest.fixture
def said(capsys):
    def run(*argv):
        code = main(["export_onnx", *map(str, argv)])
        done = capsys.readouterr()
        return code, done.out, done.err

    return run


def run_model(path, data):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"data": data})[0]


def test_a_model(files, said, tmp_path):
    model, trained = files
    out = tmp_path / "net.onnx"
    code, text, err = said("-model", model, "-weights", trained, "-stage", "head", "-o", out)
    assert (code, err) == (0, "")
    assert text == f"{out}: net 'small', opset 17, 1.7 KiB of parameters\n"
    net = Net(model, 1, stages=["head"])
    weights.copy_from(net, trained)
    data = np.random.default_rng(0).normal(size=(2, 3, 6, 6)).astype(np.float32)
    net.blobs["data"].data = data
    net.forward_range()
    np.testing.assert_allclose(run_model(out, data), net.blobs["ip"].data, rtol=1e-5, atol=1e-6)


def test_flags_reach_the_model(files, said, tmp_path):
    model, trained = files
    out = tmp_path / "net.onnx"
    code, text, _ = said(f"--model={model}", f"--weights={trained}", f"--output={out}", "--opset=13", "--dynamic_batch")
    assert code == 0 and "opset 13" in text
    made = onnx.load(out)
    assert made.opset_import[0].version == 13 and [o.name for o in made.graph.output] == ["conv"]
    assert run_model(out, np.zeros((7, 3, 6, 6), np.float32)).shape == (7, 4, 4, 4)


def test_weights_of_several_files(files, said, tmp_path):
    """The later one wins, as in `test`."""
    model, trained = files
    net = Net(model, 1)
    net.params["conv"][0].data = 0
    net.params["conv"][1].data = 3
    weights.save(net, tmp_path / "three.caffemodel")
    out = tmp_path / "net.onnx"
    assert said("-model", model, "-weights", f"{trained},{tmp_path / 'three.caffemodel'}", "-o", out)[0] == 0
    np.testing.assert_array_equal(run_model(out, np.ones((2, 3, 6, 6), np.float32)), np.full((2, 4, 4, 4), 3))


def test_layers_without_weights_are_not_exported_with_random_ones(files, said, tmp_path):
    model, _ = files
    weights.save(Net(model, 1), tmp_path / "conv.caffemodel")  # without the stage there is no ip
    out = tmp_path / "net.onnx"
    code, _, err = said("-model", model, "-weights", tmp_path / "conv.caffemodel", "-stage", "head", "-o", out)
    assert code == 1 and not out.exists()
    assert f"error: {tmp_path / 'conv.caffemodel'}: there are no weights for layer ip" in err and "fix:" in err


def test_a_layer_that_shares_its_parameters_needs_no_weights_of_its_own(said, tmp_path):
    shared = 'param { name: "w" } inner_product_param { num_output: 3 bias_term: false axis: 3 }'
    lines = ['layer { name: "i" type: "Input" top: "data" input_param { shape { dim: 1 dim: 1 dim: 1 dim: 3 } } }']
    lines += [
        f'layer {{ name: "{n}" type: "InnerProduct" bottom: "{b}" top: "{n}" {shared} }}'
        for n, b in (("a", "data"), ("b", "a"))
    ]
    model = tmp_path / "net.prototxt"
    model.write_text("\n".join(lines[:2]))
    weights.save(Net(model, 1), tmp_path / "a.caffemodel")
    model.write_text("\n".join(lines))
    assert said("-model", model, "-weights", tmp_path / "a.caffemodel", "-o", tmp_path / "net.onnx")[0] == 0


def test_a_net_for_training_whose_data_is_not_there(files, said, tmp_path):
    model = tmp_path / "train.prototxt"
    data = 'layer { name: "d" type: "Data" top: "data" data_param { source: "no_lmdb" backend: LMDB batch_size: 2 } }'
    model.write_text("\n".join([data, *NET.splitlines()[2:]]))
    code, _, err = said("-model", model, "-weights", files[1], "-o", tmp_path / "net.onnx")
    assert code == 1 and 'layer "d" (Data)' in err and "give the deploy prototxt" in err


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["-opset", "7"], 2, "opset 7 is not one of 11 to 2"),
        (["-opset", "x"], 2, "-opset 'x' is not a whole number"),
        (["-weights", " , "], 2, "-weights names no file"),
        (["-weights", "none.caffemodel"], 1, "none.caffemodel"),
        (["-model", "none.prototxt"], 1, "none.prototxt"),
        (["-o", "no/such/folder/net.onnx"], 2, "-o no/such/folder/net.onnx: no file can be written there"),
    ],
)
def test_what_is_refused(argv, code, words, files, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"-model": "net.prototxt", "-weights": "net.caffemodel", "-o": "net.onnx"} | {argv[0]: argv[1]}
    found, out, err = said(*(word for pair in given.items() for word in pair))
    assert found == code and not out and words in err
    assert not list(tmp_path.glob("*.onnx"))


@pytest.mark.parametrize("missing", ["model", "weights", "o"])
def test_required_flags(missing, said):
    argv = [word for name in ("model", "weights", "o") if name != missing for word in (f"-{name}", "x")]
    code, _, err = said(*argv)
    assert code == 2 and f"{'MODEL' if missing == 'model' else f'-{missing}'} is missing" in err


# -- -check -----------------------------------------------------------------------------------------------------------
def test_check_prints_the_differences(files, said, tmp_path):
    model, trained = files
    out = tmp_path / "net.onnx"
    code, text, err = said("-model", model, "-weights", trained, "-stage", "head", "-o", out, "-check")
    assert (code, err) == (0, "")
    head, columns, row = text.splitlines()[1:]
    assert head == f"checked with onnxruntime {onnxruntime.__version__}; largest differences:"
    assert columns.split() == ["output", "absolute", "relative", "on"]
    name, absolute, relative, *where = row.split()
    assert name == "ip" and float(absolute) < 1e-3 and float(relative) < 1e-5 and " ".join(where).startswith("random")


def test_check_on_files(files, said, tmp_path, monkeypatch):
    """A picture, what the net sees with and without the batch axis, and arrays by name."""
    cv2 = pytest.importorskip("cv2")
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    cv2.imwrite("a.png", rng.integers(0, 255, (9, 9, 3), np.uint8))
    np.save("one.npy", rng.normal(size=(3, 6, 6)))
    np.save("two.npy", rng.normal(size=(2, 3, 6, 6)) * 1e4)
    np.savez("by_name.npz", data=rng.normal(size=(1, 3, 6, 6)))
    common = ["net.prototxt", "-weights", files[1], "-o", "net.onnx", "-check_on"]
    code, text, _ = said(*common, "a.png, one.npy,two.npy,by_name.npz", "-mean_file", "", "-dynamic_batch")
    assert code == 0 and "conv" in text.splitlines()[-1]
    np.save("bad.npy", np.zeros((3, 6, 7)))
    np.savez("bad.npz", dta=np.zeros(3))
    for name, words in (
        ("bad.npy", 'bad.npy: has shape (3, 6, 7), but input "data" is (2, 3, 6, 6)'),
        ("bad.npz", "bad.npz: holds dta, but the net has no such input"),
        ("none.png", "Could not open file none.png"),
    ):
        code, _, err = said(*common, name)
        assert code == 1 and words in err and "fix:" in err


def test_a_difference_above_the_tolerance_exits_with_1(files, said, tmp_path, monkeypatch):
    from pycaffe_lms.cli.commands import export_onnx as command

    def wrong(net, path, **options):
        net.params["conv"][1].data = 1
        written = command_export(net, path, **options)
        net.params["conv"][1].data = 0
        return written

    command_export = command.export_onnx
    monkeypatch.setattr(command, "export_onnx", wrong)
    out = tmp_path / "net.onnx"
    argv = ("-model", files[0], "-weights", files[1], "-o", out, "-check")
    code, text, err = said(*argv)
    assert (
        code == 1 and "conv    1.00e+00" in text and f"{out}: conv: further from the net than -tolerance 0.0001" in err
    )
    assert said(*argv, "-tolerance", "2")[0] == 0


def test_check_without_onnxruntime(files, said, tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    code, _, err = said("-model", files[0], "-weights", files[1], "-o", tmp_path / "net.onnx", "-check")
    assert code == 1 and "pip install onnxruntime" in err and not (tmp_path / "net.onnx").exists()


def test_a_tolerance_without_a_check(files, said, tmp_path):
    code, _, err = said("-model", files[0], "-weights", files[1], "-o", tmp_path / "n.onnx", "-tolerance", "0.1")
    assert code == 2 and "-tolerance has no effect without -check" in err


# -- float16 and int8 -------------------------------------------------------------------------------------------------
def test_float16_by_flag(files, said, tmp_path):
    out = tmp_path / "net.onnx"
    code, text, _ = said("-model", files[0], "-weights", files[1], "-o", out, "-math", "fp16", "-check")
    assert code == 0 and "conv" in text
    assert {t.data_type for t in onnx.load(out).graph.initializer} == {onnx.TensorProto.FLOAT16}


def test_int8_from_a_list(files, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for i in range(3):
        np.save(f"{i} a.npy", rng.normal(size=(3, 6, 6)))
    (tmp_path / "list.txt").write_text("0 a.npy 7\n1 a.npy\n\n2 a.npy 0\n")
    argv = ("-model", files[0], "-weights", files[1], "-o", "net.onnx", "-int8", "list.txt")
    code, text, _ = said(*argv, "-check")
    assert code == 0 and text.splitlines()[-1].endswith("a.npy")
    assert "QuantizeLinear" in {n.op_type for n in onnx.load("net.onnx").graph.node}
    for more, words in (
        (["-math", "fp16"], "-int8 and -math fp16 exclude each other"),
        (["-opset", "12"], "-int8 needs -opset 13 or more"),
    ):
        code, _, err = said(*argv, *more)
        assert code == 2 and words in err
    (tmp_path / "list.txt").write_text("none.npy\n")
    code, _, err = said(*argv)
    assert code == 1 and "none.npy" in err
    (tmp_path / "list.txt").write_text("\n")
    code, _, err = said(*argv)
    assert code == 2 and "list.txt names no file" in err


@pytest.mark.parametrize("kind", ["no zip", "a torn zip", "one array", "words"])
def test_damaged_arrays_to_check_on(files, said, tmp_path, kind):
    model, trained = files
    path = tmp_path / "given.npz"
    np.savez(path, data=np.full((2, 3, 6, 6), "x" if kind == "words" else 0))
    if kind == "one array":
        with open(path, "wb") as file:
            np.save(file, np.zeros(3))
    elif kind != "words":
        path.write_bytes(b"rubbish" if kind == "no zip" else path.read_bytes()[:-30])
    code, _, err = said("-model", model, "-weights", trained, "-o", tmp_path / "net.onnx", "-check_on", path)
    assert code == 1 and "given.npz: " in err and "fix: write it with numpy.savez" in err and "Traceback" not in err
