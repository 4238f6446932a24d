"""Python layers: what pycaffe's own tests and tutorials do, shapes that change, exceptions, Large Model Support."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import LayerParamError, ReadOnlyValue, ShapeError
from pycaffe_lms.lms.config import LMSConfig

from . import user_layers


def layer(name, cls, bottoms="", tops=None, more="", python="", module="tests.layers.user_layers"):
    lines = "".join(f' bottom: "{b}"' for b in bottoms.split())
    lines += "".join(f' top: "{t}"' for t in (tops or name).split())
    return (
        f'layer {{ name: "{name}" type: "Python"{lines} {more} '
        f'python_param {{ module: "{module}" layer: "{cls}" {python} }} }}\n'
    )


def inputs(**shapes):
    names = "".join(f' top: "{n}"' for n in shapes)
    dims = " ".join("shape { " + " ".join(f"dim: {d}" for d in s) + " }" for s in shapes.values())
    return f'layer {{ name: "in" type: "Input"{names} input_param {{ {dims} }} }}\n'


def inner(name, bottom, n, more=""):
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {more} inner_product_param {{ '
        f'num_output: {n} weight_filler {{ type: "xavier" }} }} }}\n'
    )


@pytest.fixture
def net(tmp_path):
    def make(text, phase=caffe.TRAIN, **options):
        (tmp_path / "net.prototxt").write_text(text)
        return caffe.Net(tmp_path / "net.prototxt", phase, **options)

    return make


def test_forward_backward_and_reshape(net):
    """Three layers in a row multiply by 1000, in both directions, at every shape."""
    n = net(
        "force_backward: true\n"
        + inputs(data=(10, 9, 8))
        + layer("one", "Tenfold", "data")
        + layer("two", "Tenfold", "one")
        + layer("three", "Tenfold", "two")
    )
    for shape in ((10, 9, 8), (4,), (2, 5)):
        n.blobs["data"].reshape(*shape)
        n.blobs["data"].data[...] = 3
        out = n.forward()["three"]
        assert out.shape == shape
        np.testing.assert_array_equal(out, 3000)
        n.blobs["three"].diff[...] = 7
        n.backward()
        np.testing.assert_array_equal(n.blobs["data"].diff, 7000)
    assert isinstance(n.layers[1], user_layers.Tenfold) and n.layers[1].type == "Python"
    assert n.layer_dict["two"] is n.layers[2]


@pytest.mark.parametrize("phase", [caffe.TRAIN, caffe.TEST])
def test_param_str_and_phase(net, phase):
    n = net(layer("s", "Settings", python="param_str: '{ \"value\": 5 }'"), phase)
    np.testing.assert_array_equal(n.forward()["s"], [5, phase])


def test_parameters_are_saved_loaded_and_shared(net, tmp_path):
    text = inputs(x=(2, 3)) + layer("w", "Weight", "x")
    n = net(text)
    np.testing.assert_array_equal(n.params["w"][0].data, [1, 2, 3])
    n.blobs["x"].data[...] = [[1, 1, 1], [2, 0, 1]]
    np.testing.assert_array_equal(n.forward()["w"], [[1, 2, 3], [2, 0, 3]])
    n.forward()
    assert n.params["w"][1].data[0] == 2
    assert n.layers[1].blobs[1].data[0] == 2
    n.params["w"][0].data[...] = [5, 6, 7]
    n.save(tmp_path / "w.caffemodel")
    other = net(text, weights=tmp_path / "w.caffemodel")
    np.testing.assert_array_equal(other.params["w"][0].data, [5, 6, 7])
    third = net(text)
    third.share_with(other)
    other.params["w"][0].data[...] = 1
    np.testing.assert_array_equal(third.params["w"][0].data, 1)


LOSSES = {
    "built in": 'layer { name: "loss" type: "EuclideanLoss" bottom: "fc" bottom: "y" top: "loss" }',
    "python": layer("loss", "Euclidean", "fc y", more="loss_weight: 1"),
    "early": layer("loss", "EarlyGradient", "fc y", more="loss_weight: 1"),
}


def train(tmp_path, body, steps, feed=None, device=None, lms=None, more=""):
    (tmp_path / "net.prototxt").write_text(body)
    (tmp_path / "solver.prototxt").write_text(
        f'net: "{tmp_path}/net.prototxt" base_lr: 0.001 momentum: 0.9 lr_policy: "fixed" max_iter: 100 random_seed: 3 '
        f"snapshot_after_train: false {more}"
    )
    solver = caffe.SGDSolver(tmp_path / "solver.prototxt", device=device, lms=lms)
    rng, seen = np.random.default_rng(1), []
    for _ in range(steps):
        for name in feed or ():
            solver.net.blobs[name].data = rng.normal(size=solver.net.blobs[name].shape)
        solver.step(1)
        seen.append(solver.net.loss())
    return seen, [b.read_data().tobytes() for b in solver.net.learnable_params]


@pytest.mark.parametrize("kind", ["python", "early"])
def test_a_loss_layer_trains_like_the_built_in_one(tmp_path, kind):
    body = inputs(x=(4, 6), y=(4, 3)) + inner("fc", "x", 3)
    expected, _ = train(tmp_path, body + LOSSES["built in"], 5, feed=("x", "y"))
    got, _ = train(tmp_path, body + LOSSES[kind], 5, feed=("x", "y"))
    np.testing.assert_allclose(got, expected, rtol=1e-5)


MIDDLE = (
    inner("a", "x", 400)
    + layer("ten", "Tenfold", "a")
    + 'layer { name: "power" type: "Power" bottom: "ten" top: "power" power_param { scale: 0.0001 } }\n'
    + layer("w", "Weight", "power")
    + layer("plus", "PlusOneInPlace", "w", "w")
    + 'layer { name: "drop" type: "Dropout" bottom: "w" top: "drop" }\n'
)
NETS = {
    "shapes that stay": inputs(x=(4, 300), y=(4, 2)) + MIDDLE + inner("fc", "drop", 2) + LOSSES["python"],
    "batches shaped in reshape": layer("d", "Ragged", tops="x y") + MIDDLE + inner("fc", "drop", 2) + LOSSES["python"],
    "batches shaped in forward": layer("d", "Ragged", tops="x y", python='param_str: "forward"')
    + MIDDLE
    + inner("fc", "drop", 2)
    + LOSSES["built in"],
    "rows chosen in forward": inputs(x=(6, 300), y=(6, 2))
    + MIDDLE
    + layer("keep", "Positive", "drop y", "kept ky")
    + inner("fc", "kept", 2)
    + LOSSES["python"].replace('"y"', '"ky"'),
}


@pytest.mark.parametrize(
    ("more", "orders"),
    [
        ("", ("latest", "earliest", "random")),
        pytest.param("iter_size: 2", ("random",), marks=pytest.mark.thorough),
        ("clip_gradients: 0.5", ("earliest",)),
        pytest.param("debug_info: true display: 1", ("latest",), marks=pytest.mark.thorough),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", NETS)
def test_the_same_bits_with_large_model_support(tmp_path, kind, more, orders):
    """In the middle of a net whose shapes change anywhere: CPU, device, and LMS in several stream orders."""
    feed = ("x", "y") if "Input" in NETS[kind] else ()
    expected = train(tmp_path, NETS[kind], 7, feed=feed, more=more)
    assert len(set(expected[0])) == 7
    assert train(tmp_path, NETS[kind], 7, feed=feed, more=more, device=SimDevice(64 << 20)) == expected
    for order in orders:
        device = SimDevice(64 << 20, order=order, seed=5)
        assert train(tmp_path, NETS[kind], 7, feed, device, LMSConfig(threshold_kb=1), more) == expected
        assert device.bytes_out > 0


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("kind", NETS)
def test_on_a_gpu(tmp_path, kind):
    feed = ("x", "y") if "Input" in NETS[kind] else ()
    expected, _ = train(tmp_path, NETS[kind], 5, feed=feed)
    plain = train(tmp_path, NETS[kind], 5, feed=feed, device=get_device("cuda"))
    np.testing.assert_allclose(plain[0], expected, rtol=2e-2)
    assert train(tmp_path, NETS[kind], 5, feed, get_device("cuda"), LMSConfig(threshold_kb=1)) == plain


@pytest.mark.parametrize("where", ["setup", "reshape", "forward", "backward"])
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=1)])
def test_exceptions_arrive_whole_and_the_net_lives_on(tmp_path, where, lms, monkeypatch):
    body = inputs(x=(4, 300), y=(4, 2)) + inner("a", "x", 400)
    body += layer("f", "Failing", "a", python=f'param_str: "{where}"') + inner("fc", "f", 2) + LOSSES["python"]
    with pytest.raises(user_layers.SpecialError, match=f"^{where}$") as caught:
        train(tmp_path, body, 1, device=SimDevice(64 << 20), lms=lms)
    assert "user_layers.py" in "".join(traceback.format_tb(caught.value.__traceback__))
    if where in ("forward", "backward"):
        (tmp_path / "net.prototxt").write_text(body)
        solver = caffe.SGDSolver(tmp_path / "solver.prototxt", device=SimDevice(64 << 20), lms=lms)
        with pytest.raises(user_layers.SpecialError):
            solver.step(1)
        monkeypatch.setattr(user_layers.Failing, "mended", True)
        solver.step(1)
        mended = solver.net.loss(), [b.read_data().tobytes() for b in solver.net.learnable_params]
        other = caffe.SGDSolver(tmp_path / "solver.prototxt")
        other.step(1)
        assert mended == (other.net.loss(), [b.read_data().tobytes() for b in other.net.learnable_params])


def test_what_is_wrong_is_named(net, tmp_path, monkeypatch):
    for text, message in (
        (layer("p", "Tenfold", module="no_such_module"), r'"p" \(Python\).*no Python module "no_such_module"'),
        (layer("p", "Tenfold", module="tests.layers.nowhere"), 'no Python module "tests.layers.nowhere"'),
        (layer("p", "Nothing"), 'has no class "Nothing"'),
        (layer("p", "not_a_class"), 'has no class "not_a_class"'),
        ('layer { name: "p" type: "Python" top: "p" }', "python_param.module is not set"),
    ):
        with pytest.raises(LayerParamError, match=message):
            net(text)
    (tmp_path / "broken_layers.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="a_package_that_is_not_there"):
        net(layer("p", "X", module="broken_layers"))
    with pytest.raises(Exception, match="^Inputs must have the same dimension.$"):
        net(inputs(x=(2, 3), y=(2, 4)) + layer("loss", "Euclidean", "x y"))


WRITES = [
    "bottom[0].data[...] = 0",
    "bottom[0].data[0] *= 2",
    "np.exp(bottom[0].data, out=bottom[0].data)",
    "top[0].data[...] = 0  # backward",
    "bottom[0].data.fill(1)  # backward",
]


@pytest.mark.parametrize("statement", WRITES)
@pytest.mark.parametrize("where", ["cpu", "sim", "lms"])
def test_a_write_to_a_bottom_says_what_to_do(net, statement, where):
    device = None if where == "cpu" else SimDevice(64 << 20)
    text = "force_backward: true\n" + inputs(x=(2, 300))
    text += layer("p", "WritesItsBottom", "x", python=f'param_str: "{statement}"')
    n = net(text, device=device, lms=LMSConfig(1) if where == "lms" else None)
    with pytest.raises(ReadOnlyValue, match=r'layer "p" \(Python\): wrote to a read-only array') as caught:
        n.forward()
        n.backward()
    assert isinstance(caught.value, ValueError) and "put the layer in place" in caught.value.fix
    assert "read-only" in str(caught.value.__cause__)
    assert any("user_layers.py" in line for line in traceback.format_tb(caught.value.__cause__.__traceback__))


@pytest.mark.parametrize("where", ["cpu", "sim", "lms"])
def test_a_forward_in_place_may_write_to_its_bottom(net, where):
    """Later layers read what it wrote. Its backward may not write to the value, in place either."""
    device = None if where == "cpu" else SimDevice(64 << 20)
    text = "force_backward: true\n" + inputs(x=(2, 300)) + inner("a", "x", 300)
    text += layer("p", "WritesItsBottom", "a", "a", python=f'param_str: "{WRITES[1]}"') + layer("q", "Tenfold", "a")
    n = net(text, device=device, lms=LMSConfig(1) if where == "lms" else None)
    x = np.random.default_rng(0).normal(size=(2, 300)).astype(np.float32)
    expected = 10 * (x @ n.params["a"][0].data.T) * [[2], [1]]  # bottom[0].data[0] *= 2
    found = n.forward(blobs=["a"], x=x)
    np.testing.assert_allclose(found["a"], expected, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found["q"], 10 * expected, rtol=1e-3, atol=1e-3)
    with pytest.raises(ReadOnlyValue, match=r'layer "p" \(Python\): wrote to a read-only array'):
        n.backward()


@pytest.mark.parametrize("where", ["cpu", "sim", "lms"])
@pytest.mark.parametrize("phase", [caffe.TRAIN, caffe.TEST])
def test_what_people_write(net, where, phase):
    """See user_layers.Habits: values and gradients by formula, in both phases, wherever the net runs, twice."""
    body = inputs(x=(3, 300), s=(4, 2), t=(3, 300)) + inner("a", "x", 300) + layer("h", "Habits", "a s", "h total")
    body += inner("fc", "h", 300) + 'layer { name: "quiet" type: "Silence" bottom: "total" }\n'
    body += 'layer { name: "loss" type: "EuclideanLoss" bottom: "fc" bottom: "t" top: "loss" }\n'
    device = None if where == "cpu" else SimDevice(64 << 20)
    n = net(body, phase, device=device, lms=LMSConfig(1) if where == "lms" else None)
    rng = np.random.default_rng(0)
    for repeat in (1, 2):
        x, s, t = rng.normal(size=(3, 300)), rng.normal(size=(4, 2)), 9 * rng.normal(size=(3, 300))
        a = x @ n.params["a"][0].data.T + n.params["a"][1].data
        m, w = np.full(300, 1.0 + repeat), n.params["fc"][0].data.copy()
        n.params["h"][0].data[...] = m
        out = n.forward(blobs=["h", "total", "fc"], x=x, s=s, t=t)
        expected = np.where(a > 0, m * a, 0) + s.mean()
        np.testing.assert_allclose(out["h"], expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(out["total"], [a.sum()], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(out["fc"], expected @ w.T, rtol=1e-2, atol=1e-3)
        n.clear_param_diffs()
        n.backward()
        d = (expected @ w.T - t) / 3
        dh = np.where(a > 0, np.clip(d @ w, -1, 1), 0)
        np.testing.assert_allclose(n.params["h"][0].diff, (dh * a).sum(0), rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(n.blobs["a"].diff, dh * m, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(n.params["a"][1].diff, (dh * m).sum(0), rtol=1e-2, atol=1e-3)
        np.testing.assert_allclose(n.blobs["h"].diff, dh, rtol=1e-3, atol=1e-4)  # as the layer left it


@pytest.mark.parametrize("where", ["cpu", "sim", "lms"])
def test_a_gradient_out_of_nothing(net, where):
    """A loss layer without loss_weight that ignores its top's gradient runs under force_backward, as in Caffe:
    the gradient of half the mean squared distance is the difference over the number of items."""
    device = None if where == "cpu" else SimDevice(64 << 20)
    text = "force_backward: true\n" + inputs(x=(2, 300), y=(2, 300)) + layer("ten", "Tenfold", "x")
    n = net(text + layer("loss", "Euclidean", "ten y"), device=device, lms=LMSConfig(1) if where == "lms" else None)
    x, y = np.full((2, 300), 3.0), np.arange(600.0).reshape(2, 300)
    n.forward(x=x, y=y)
    n.backward()
    np.testing.assert_allclose(n.blobs["ten"].diff, (30 - y) / 2)
    np.testing.assert_allclose(n.blobs["x"].diff, 10 * (30 - y) / 2)
    np.testing.assert_allclose(n.blobs["y"].diff, (y - 30) / 2)


def detector(more=""):
    """A net as py-faster-rcnn's end-to-end ones: Python layers make data, targets and regions of sizes that change."""
    conv = "convolution_param {{ num_output: {} kernel_size: 3 pad: 1 weight_filler {{ type: 'gaussian' std: 0.2 }} }}"
    return (
        layer("in", "Pictures", tops="data im_info", python="param_str: '{ \"channels\": 3 }'")
        + f'layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv" {conv.format(6)} }}\n'
        + f'layer {{ name: "score" type: "Convolution" bottom: "conv" top: "score" {conv.format(2)} }}\n'
        + layer("targets", "AnchorLabels", "score im_info", "labels weights", python=more)
        + 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "score" bottom: "labels" top: "loss" '
        "propagate_down: 1 propagate_down: 0 loss_param { ignore_label: -1 normalize: true } }\n"
        'layer { name: "l1" type: "SmoothL1Loss" bottom: "score" bottom: "weights" bottom: "weights" top: "l1" '
        "propagate_down: [true, false, false] }\n"
        + layer("regions", "SomeRegions", "score im_info", "rois values")
        + 'layer { name: "mute" type: "Silence" bottom: "values" }\n'
        'layer { name: "pool" type: "ROIPooling" bottom: "conv" bottom: "rois" top: "pool" '
        "roi_pooling_param { pooled_h: 2 pooled_w: 2 spatial_scale: 1 } }\n"
        + inner("fc", "pool", 2)
        + 'layer { name: "sum" type: "Reduction" bottom: "fc" top: "sum" loss_weight: 0.1 }\n'
    )


def trained(tmp_path, **options):
    (tmp_path / "net.prototxt").write_text(detector())
    text = (
        f"net: '{tmp_path / 'net.prototxt'}' base_lr: 0.1 lr_policy: 'fixed' random_seed: 3 max_iter: 9 momentum: 0.9"
    )
    (tmp_path / "solver.prototxt").write_text(text)
    solver, shapes, losses = caffe.SGDSolver(str(tmp_path / "solver.prototxt"), **options), set(), []
    for _ in range(4):
        solver.step(1)
        blobs = solver.net.blobs
        shapes.add((blobs["labels"].data.shape, len(blobs["rois"].data)))
        losses += [float(blobs[name].data) for name in ("loss", "l1", "sum")]
    weights = [blob.data.copy() for blobs in solver.net.params.values() for blob in blobs]
    return shapes, losses, weights


def test_layers_of_a_detector_train_alike_everywhere(tmp_path):
    shapes, losses, weights = trained(tmp_path)
    assert {s[0] for s in shapes} == {(1, 1, *size) for size in user_layers.Pictures.SIZES} and len(shapes) == 3
    for order in ("latest", "random"):
        for lms in (None, LMSConfig(threshold_kb=0.1)):
            again = trained(tmp_path, device=SimDevice(64 << 20, order=order), lms=lms)
            assert again[:2] == (shapes, losses) and all(map(np.array_equal, again[2], weights))


def test_the_phase_has_a_name_for_old_layers(net):
    n = net(detector(), caffe.TEST)
    assert n.layers[0]._settings == 2 and n.layers[0].param_str_ == n.layers[0].param_str
    assert f"{n.layers[0].phase:d}" == "1" and n.layers[0].phase == caffe.TEST == 1
    n.forward()
    n.forward()
    assert n.blobs["labels"].data.shape == (1, 1, 5, 6)


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=0.1)])
def test_targets_that_never_fit_are_refused(net, lms):
    n = net(detector("param_str: '{ \"wrong\": 1 }'"), device=SimDevice(64 << 20), lms=lms)
    with pytest.raises(ShapeError, match='(?s)layer "loss" .SoftmaxWithLoss., blob "labels".*42 labels.* 63 positions'):
        n.forward()
