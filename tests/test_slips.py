"""Slips of Python users: each is one exception that names what it was about and what to do; nothing is half done."""

from __future__ import annotations

import copy
import pickle
import re
import sys

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda_available
from pycaffe_lms.errors import ArrayError, GraphError, LayerParamError, MissingDependency, MissingName, UsageError
from pycaffe_lms.memory.states import State
from pycaffe_lms.net.inspect.named import missing

from .net.nets import inputs, ip, layer, loss, relu


@pytest.fixture
def files(tmp_path):
    net, solver = tmp_path / "net.prototxt", tmp_path / "solver.prototxt"
    net.write_text(
        'name: "n" '
        + inputs(x=(2, 3), label=(2,))
        + ip("ip1", "x", 4)
        + relu("r", "ip1", "ip1")
        + ip("ip2", "ip1", 3)
        + loss("ip2")
    )
    solver.write_text(
        f'net: "{net}" base_lr: 0.1 lr_policy: "fixed" max_iter: 7 random_seed: 1 '
        f'snapshot_prefix: "{tmp_path}/s" test_iter: 1 test_interval: 100'
    )
    return str(net), str(solver)


@pytest.fixture
def net(files):
    return caffe.Net(files[0], caffe.TEST)


# -- names ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "table, name, words",
    [
        (
            "blobs",
            "ip3",
            r'net "n" has no blob "ip3"\n  fix: did you mean .*"ip2".*blobs are: x, label, ip1, ip2, loss',
        ),
        ("params", "r", r'has no layer with parameters "r"\n  fix: layers with parameters are: ip1, ip2'),
        ("layer_dict", "ipx", r'has no layer "ipx"\n  fix: did you mean .*layers are: x, label, ip1, r, ip2, loss'),
    ],
)
def test_a_name_that_is_not_there(net, table, name, words):
    found = getattr(net, table)
    with pytest.raises(KeyError, match=words) as caught:
        found[name]
    assert isinstance(caught.value, GraphError)
    assert name not in found and found.get(name) is None and list(found.copy()) == list(found)


def test_of_many_names_the_near_ones_are_listed():
    error = str(missing("n", "blob", "b77x", [f"b{i}" for i in range(500)]))
    assert 'did you mean "b77"' in error and "b29, ... (500 in all)" in error and "b30," not in error
    assert str(missing("n", "layer", "a", [])).endswith("it has no layers at all")


def test_an_array_in_place_of_a_blob(net):
    before = net.blobs["x"], net.params["ip1"][0]
    for table, name in (("blobs", "x"), ("params", "ip1")):
        with pytest.raises(
            UsageError, match=rf'"{name}" of net "n" cannot become a ndarray\n.*data\[\.\.\.\] = values'
        ):
            getattr(net, table)[name] = np.zeros((2, 3))
    with pytest.raises(TypeError, match=r"NetBlobVec holds blobs, not ndarray: write to blob.data"):
        net.params["ip1"][0] = np.zeros((4, 3))
    assert (net.blobs["x"], net.params["ip1"][0]) == before


def test_nobody_reads_blobs_to_put_them_in_a_vector(files):
    net = caffe.Net(files[0], caffe.TRAIN)
    assert [blob.diff_memory.state for blobs in net.params.values() for blob in blobs] == [State.UNINITIALIZED] * 4
    assert len(net._blobs) == len(net.blobs)
    assert {blob.diff_memory.state for blob in net.blobs.values() if blob.name != "loss"} == {State.UNINITIALIZED}


def test_keep_takes_names(net):
    with pytest.raises(MissingName, match="blobs are"):
        net.keep(["ip1"])


# -- running --------------------------------------------------------------------------------------------------------
def test_one_name_in_place_of_a_list(net):
    for call in (lambda: net.forward(blobs="ip1"), lambda: net.backward(diffs="ip1")):
        with pytest.raises(UsageError, match=r"'ip1' is one name.*\n  fix: give a list: \['ip1'\]"):
            call()


def test_nothing_to_run(net):
    with pytest.raises(UsageError, match='nothing to run from layer "ip2" to layer "ip1"'):
        net.forward(start="ip2", end="ip1")
    with pytest.raises(UsageError, match='goes down: it has nothing to run from layer "ip1" to layer "ip2"'):
        net.backward(start="ip1", end="ip2")
    assert net.forward(start="r", end="r").keys() == {"ip1"}


def test_no_items(net):
    for run in (net.forward_all, net.forward_backward_all):
        for arrays in ({}, {"x": np.zeros((0, 3)), "label": np.zeros(0)}):
            with pytest.raises(UsageError, match="was given no items"):
                run(**arrays)


@pytest.mark.parametrize("side", ["data", "diff"])
def test_values_that_do_not_fit_change_nothing(net, side):
    blob = net.blobs["ip1"]
    setattr(blob, side, np.arange(8).reshape(2, 4))
    for values, words in (
        (np.zeros((4, 2)), r'blob "ip1": values of shape \(4, 2\) do not fit the blob.s shape \(2, 4\)'),
        (np.zeros((2, 2, 4)), "do not fit"),
        ("text", "are no real numbers"),
        (1j, "are no real numbers"),
    ):
        with pytest.raises(ArrayError, match=words):
            setattr(blob, side, values)
        assert getattr(blob, side).tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    setattr(blob, side, np.ones((1, 1, 2, 4)))  # NumPy's assignment takes leading ones
    assert (getattr(blob, side) == 1).all()
    setattr(blob, side, [5, 6, 7, 8])
    assert getattr(blob, side).tolist() == [[5, 6, 7, 8]] * 2


# -- copies -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nets_solvers_and_blobs_are_one_of_a_kind(files, net, make):
    solver = caffe.SGDSolver(files[1])
    for thing, fix in ((net, "share_with|copy_from"), (solver, "snapshot"), (net.blobs["x"], r"blob\.data\.copy")):
        with pytest.raises(UsageError, match=f"(?s)cannot be copied or pickled.*fix: .*(?:{fix})"):
            make(thing)
    if make is not copy.copy:
        with pytest.raises(UsageError, match="a Blob cannot be copied"):
            make(net.params)


# -- making -----------------------------------------------------------------------------------------------------------
def test_what_a_net_is_made_of(files, net):
    spec = caffe.NetSpec()
    spec.x = caffe.layers.Input(shape={"dim": [2, 3]})
    for wrong in (None, spec, 3, net):
        with pytest.raises(UsageError, match=rf"{type(wrong).__name__} is not a prototxt.*\n.*to_proto\(\)"):
            caffe.Net(wrong, caffe.TEST)
        with pytest.raises(UsageError, match="is not a solver prototxt"):
            caffe.get_solver(wrong)
        with pytest.raises(UsageError, match="is not a solver prototxt"):
            caffe.AdamSolver(wrong)
    assert caffe.Net(spec.to_proto(), caffe.TEST).blobs["x"].shape == (2, 3)


def test_an_unknown_keyword_is_named(files):
    for make, cls in (
        (lambda: caffe.Net(files[0], caffe.TEST, weight="w"), "Net"),
        (lambda: caffe.get_solver(files[1], weights="w"), "Solver"),
    ):
        with pytest.raises(TypeError, match=f"'weights?' is not a keyword of a {cls}; it takes: .*device.*lms"):
            make()


@pytest.mark.skipif(cuda_available(), reason="there is a GPU")
def test_gpu_mode_without_a_gpu_says_how_to_go_on(files):
    caffe.set_mode_gpu()
    try:
        with pytest.raises(Exception, match=re.escape("caffe.set_mode_cpu()")) as caught:
            caffe.Net(files[0], caffe.TEST)
        assert isinstance(caught.value, RuntimeError)
        assert isinstance(caught.value, MissingDependency) or "GPU" in str(caught.value)
    finally:
        caffe.set_mode_cpu()
    caffe.Net(files[0], caffe.TEST).forward()


def test_sharing_with_what_is_no_net(files, net):
    with pytest.raises(UsageError, match="None is no net"):
        net.share_with(None)
    with pytest.raises(UsageError, match="None is no net"):
        caffe.SGDSolver(files[1]).share_weights(None)


def test_a_class_that_is_no_layer(tmp_path, monkeypatch):
    """Nothing of it is called: a prototxt may name any class, subprocess.Popen too."""
    (tmp_path / "slips_layers.py").write_text(
        "class Plain:\n"
        "    def __new__(cls, *args): raise AssertionError('called')\n"
        "    def setup(self, bottom, top): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        message = 'python_param { module: "slips_layers" layer: "Plain" }'
        (tmp_path / "p.prototxt").write_text(inputs(x=(1, 1)) + layer("p", "Python", "x", text=message))
        with pytest.raises(LayerParamError, match=r'layer "p" \(Python\).*"Plain".*is no caffe.Layer') as caught:
            caffe.Net(str(tmp_path / "p.prototxt"), caffe.TEST)
        assert "class Plain(caffe.Layer):" in str(caught.value)
    finally:
        sys.modules.pop("slips_layers", None)


# -- solvers --------------------------------------------------------------------------------------------------------
def test_what_a_solver_shows(files):
    solver = caffe.get_solver(files[1])
    assert repr(solver) == "<SGDSolver of net 'n': iteration 0 of 7>"
    solver.step(2)
    assert repr(solver) == "<SGDSolver of net 'n': iteration 2 of 7>"
    assert type(solver.test_nets) is caffe._caffe.NetVec and len(solver.test_nets) == 1
    assert solver.test_nets[0].forward().keys() == {"loss"}


# -- pictures -------------------------------------------------------------------------------------------------------
PICTURE = np.linspace(0, 1, 5 * 6 * 3, dtype=np.float32).reshape(5, 6, 3)


@pytest.fixture
def transformer():
    return caffe.io.Transformer({"data": (1, 3, 5, 6)})


@pytest.mark.parametrize(
    "set_it, words",
    [
        (lambda t: t.set_transpose("data", (0, 0, 1)), r"\(0, 0, 1\) is no order of axes"),
        (lambda t: t.set_transpose("data", (2, 0, 5)), r"\(2, 0, 5\) is no order of axes"),
        (lambda t: t.set_channel_swap("data", (3, 1, 0)), r"names channels that are not there\n  fix: .*0 to 2"),
        (lambda t: t.set_raw_scale("data", "255"), "'255' is no factor"),
        (lambda t: t.set_input_scale("data", None), "None is no factor"),
        (lambda t: t.set_mean("data", "mean.npy"), r"mean.npy is no mean.*\n.*np\.load"),
        (lambda t: t.set_mean("data", None), "None is no mean"),
    ],
)
def test_setters_refuse_and_keep_nothing(transformer, set_it, words):
    with pytest.raises(RuntimeError, match=f'blob "data": .*{words}'):
        set_it(transformer)
    assert not any(
        (
            transformer.transpose,
            transformer.channel_swap,
            transformer.raw_scale,
            transformer.mean,
            transformer.input_scale,
        )
    )
    assert (transformer.preprocess("data", PICTURE) == PICTURE).all()


def test_channels_may_be_repeated(transformer):
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_channel_swap("data", (0, 0, 2))
    assert (transformer.preprocess("data", PICTURE) == PICTURE.transpose(2, 0, 1)[[0, 0, 2]]).all()


def test_a_gray_picture_has_no_colours_to_swap(transformer):
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_channel_swap("data", (2, 1, 0))
    with pytest.raises(ArrayError, match=r"needs 3 channels first, the picture has shape \(1, 5, 6\)\n.*color=True"):
        transformer.preprocess("data", PICTURE[..., :1])


def test_a_file_name_is_no_picture(transformer):
    for call in (lambda: transformer.preprocess("data", "cat.jpg"), lambda: caffe.io.resize_image("cat.jpg", (2, 2))):
        with pytest.raises(ArrayError, match=r"'cat.jpg' is no picture\n  fix: .*load_image\('cat.jpg'\)"):
            call()
    with pytest.raises(ArrayError, match="NoneType of object is no picture"):
        transformer.preprocess("data", None)
    for wrong in ({"data": None}, ["data"], None, {"data": "abc"}):
        with pytest.raises(Exception, match="does not say the inputs' shapes"):
            caffe.io.Transformer(wrong)


def test_one_picture_in_place_of_a_list():
    with pytest.raises(ArrayError, match=r"one picture of shape \(5, 6, 3\)"):
        caffe.io.oversample(PICTURE, (2, 2))
    assert caffe.io.oversample(PICTURE[None], (2, 2)).shape == (10, 2, 2, 3)


@pytest.fixture
def deploy(tmp_path):
    model, weights = str(tmp_path / "deploy.prototxt"), str(tmp_path / "w.caffemodel")
    (tmp_path / "deploy.prototxt").write_text(inputs(data=(2, 3, 4, 4)) + ip("ip", "data", 2))
    caffe.Net(model, caffe.TEST).save(weights)
    return model, weights


def test_what_a_classifier_is_given(deploy):
    with pytest.raises(UsageError, match="image_dims 8 is not a pair"):
        caffe.Classifier(*deploy, image_dims=8)
    for face in (caffe.Classifier, caffe.Detector):
        with pytest.raises(UsageError, match="needs weights"):
            face(deploy[0], None)
    classifier = caffe.Classifier(*deploy)
    refused = {"one picture": PICTURE, "not a list": "cat.jpg", "is no picture": ["cat.jpg"], "no pictures": []}
    for words, wrong in refused.items():
        with pytest.raises(RuntimeError, match=words):
            classifier.predict(wrong)
    assert (classifier.predict(iter([PICTURE, PICTURE])) == classifier.predict([PICTURE] * 2)).all()


def test_what_a_detector_is_given(deploy):
    detector = caffe.Detector(*deploy)
    with pytest.raises(ArrayError, match=r"\(0, 0, 3\) is not a window"):
        detector.crop(PICTURE, (0, 0, 3))
    for wrong in ("a.png", ("a.png", [], 3)):
        with pytest.raises(UsageError, match="is not a file with windows"):
            detector.detect_windows([wrong])


def test_bytes_are_no_message():
    with pytest.raises(UsageError, match=r"bytes is no BlobProto\n.*FromString"):
        caffe.io.blobproto_to_array(b"\x08\x01")


# -- nets written in Python -------------------------------------------------------------------------------------------
def test_what_is_no_top():
    from pycaffe_lms import coord_map, draw

    top = caffe.layers.Input(shape={"dim": [1, 1, 4, 4]})
    with pytest.raises(TypeError, match="'data' is no Top"):
        coord_map.crop(top, "data")
    for wrong in ("net.prototxt", top):
        with pytest.raises(UsageError, match="is no NetParameter"):
            draw.get_pydot_graph(wrong, "LR")
    for ntop in (-1, "2", 1.5):
        with pytest.raises(LayerParamError, match=r'layer "L.Data": ntop .* is no number of tops'):
            caffe.layers.Data(ntop=ntop)


def test_lms_takes_no_truth_value_for_a_size():
    with pytest.raises(UsageError, match="threshold_kb cannot be True"):
        caffe.LMS(True)
    assert caffe.LMS(1, recompute=True).recompute is True


@pytest.mark.parametrize(("name", "said"), [("budgett", "did you mean budget?"), ("x", "settings are threshold_kb, ")])
def test_a_setting_that_lms_does_not_have(name, said):
    with pytest.raises(TypeError, match=f"caffe.LMS has no setting '{name}'; ") as caught:
        caffe.LMS(1000, **{name: 1})
    assert said in str(caught.value)
