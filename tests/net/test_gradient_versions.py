"""Gradients of a blob with several versions: which one a name shows and a backward reads, as if they shared memory.

Compared with the formula, and with the same net under a name for each version."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import DiscardedRead
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.net.tuning import Tuning

from .nets import Place, conv, inputs, ip, layer, loss, make_net, make_solver, relu
from .test_net import feed, softmax

UNIFORM = 'filler { type: "uniform" min: 0.5 max: 2 }'
XAVIER = 'weight_filler { type: "xavier" }'
LAYERS = {  # that keep the shape
    "Softmax": "",
    "Scale": f"scale_param {{ bias_term: true {UNIFORM} }}",
    "BatchNorm": "",
    "LRN": "",
    "Normalize": "",
    "Convolution": f"convolution_param {{ num_output: 4 kernel_size: 3 pad: 1 {XAVIER} }}",
    "Tile": "tile_param { tiles: 1 }",
    "Concat": "",
    "ReLU": "",
    "Power": "power_param { power: 2 scale: 0.5 shift: 1 }",
    "TanH": "",
}
FLAT = {
    "Softmax": "",
    "InnerProduct": f"inner_product_param {{ num_output: 64 {XAVIER} }}",
    "Scale": LAYERS["Scale"],
    "Tile": LAYERS["Tile"],
    "ReLU": "",
}
FROZEN = "param { lr_mult: 0 } param { lr_mult: 0 }"


def chain(types, flat=(), *, without_views=False, head="", frozen=False, end=True) -> tuple[str, dict[str, str]]:
    """A net whose layers of these types run in place on x, then, behind a Flatten, on f; or each under a name of its
    own. And {name of a blob: the memory that it is in Caffe}."""
    text = head + inputs(data=(3, 2, 4, 4), label=(3,)) + conv("x", "data", 4, FROZEN if frozen else "")
    memory, now = {"x": "x"}, "x"

    def add(name, type, own, fields, now):
        top = name if without_views else own
        memory[top] = "x"
        return layer(name, type, now, top, fields), top

    for i, type in enumerate(types):
        more, now = add(f"{type}{i}", type, "x", LAYERS[type], now)
        text += more
    if flat:
        text += layer("f", "Flatten", now)
        memory["f"], now = "x", "f"
        for i, type in enumerate(flat):
            more, now = add(f"flat{type}{i}", type, "f", FLAT[type], now)
            text += more
    return text + (ip("y", now, 3) + loss("y") if end else ""), memory


def alike(first, second):
    """Both with the same parameters and inputs, after a forward."""
    for name, blobs in first.params.items():
        for a, b in zip(blobs, second.params[name], strict=True):
            b.data = a.data
    for net in (first, second):
        feed(net)
        net.forward()


class Caffe:
    """Backward of a net with a name for each version, where versions have one gradient in turn: layer by layer."""

    def __init__(self, net, memory):
        self.net, self.memory = net, memory
        self.diffs = {self.of(name): blob.diff.ravel().copy() for name, blob in net.blobs.items()}

    def of(self, name):
        return self.memory.get(name, name)

    def backward(self, start, end):
        for i in range(start, end - 1, -1):
            node = self.net.graph.nodes[i]
            if not node.need_backward:
                continue
            for t in self.net.top_names[node.name]:
                blob = self.net.blobs[t]
                blob.diff = self.diffs[self.of(t)].reshape(blob.shape)
            self.net._backward(i, i)
            for b, wanted in zip(self.net.bottom_names[node.name], node.propagate, strict=True):
                if wanted:
                    self.diffs[self.of(b)] = self.net.blobs[b].diff.ravel().copy()


def same(net, caffe, rounding=0.0):
    """rounding: what is allowed, of the largest value or 1."""
    pairs = [(name, blob.diff.ravel(), caffe.diffs[caffe.of(name)]) for name, blob in net.blobs.items()]
    params = zip(net.learnable_params, caffe.net.learnable_params, strict=True)
    for name, ours, theirs in [*pairs, *((p.name, p.diff, q.diff) for p, q in params)]:
        largest = np.abs(theirs).max(initial=1)
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=rounding * largest, err_msg=name)


def pair(place, types, flat=(), options=None, **how):
    """The net with layers in place, and what Caffe does with it."""
    net = make_net(chain(types, flat, **options or {})[0], place, **how)
    text, memory = chain(types, flat, without_views=True, **options or {})
    without_views = make_net(text)
    alike(net, without_views)
    return net, Caffe(without_views, memory)


# -- against formulas --------------------------------------------------------------------------------------------------
FC = "force_backward: true " + inputs(data=(4, 300)) + ip("fc", "data", 300) + layer("prob", "Softmax", "fc", "fc")


def forward(net):
    """Of random data, which it returns."""
    x = np.random.default_rng(6).normal(size=net.blobs["data"].shape).astype(np.float32)
    net.forward(data=x)
    return x


@pytest.mark.parametrize("before", [False, True])
def test_one_hot_below_a_softmax_in_place(place, before):
    """fc.diff[...] = one_hot; net.backward(start="fc"), on a fresh net or after other passes."""
    net = make_net(FC, place)
    forward(net)
    if before:
        net.backward(fc=np.ones((4, 300)))
    for k in (3, 7):
        one_hot = np.zeros((4, 300), np.float32)
        one_hot[:, k] = 1
        net.blobs["fc"].diff[...] = one_hot
        net.clear_param_diffs()
        out = net.backward(start="fc")
        np.testing.assert_array_equal(out["data"], np.tile(net.params["fc"][0].data[k], (4, 1)))
        np.testing.assert_array_equal(net.params["fc"][1].diff, one_hot.sum(0))
        np.testing.assert_array_equal(net.blobs["fc"].diff, one_hot)


def test_a_softmax_in_place_reads_what_the_user_wrote_and_leaves_its_bottoms_gradient(place):
    net = make_net(FC, place)
    x = forward(net)
    held = net.blobs["fc"].diff
    w, b = (p.data.astype(np.float64) for p in net.params["fc"])
    y = softmax(x @ w.T + b)
    for seed in range(2):
        dy = np.random.default_rng(seed).normal(size=y.shape)
        held[...] = dy
        net.backward()
        expected = y * (dy - (dy * y).sum(1, keepdims=True))
        np.testing.assert_allclose(net.blobs["fc"].diff, expected, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(held, net.blobs["fc"].diff, rtol=0)
        np.testing.assert_allclose(net.blobs["data"].diff, expected @ w, rtol=1e-4, atol=1e-5)
        net.forward()


def test_a_softmax_in_place_has_no_memory_of_its_own(place):
    net = make_net(FC, place)
    old, new = (v for v in net.graph.values if v.name == "fc")
    assert (old.data, old.diff) == (new.data, new.diff)


@pytest.mark.parametrize("over", ["BatchNorm", "Scale"])
@pytest.mark.parametrize("under", ["Power", "TanH"])
def test_power_and_tanh_in_place_under_a_layer_in_place(under, over, place):
    """Their slopes are those at the values that they saw and made."""
    net = make_net(chain([under, over])[0], place)
    feed(net)
    net.forward(end="x")
    x = net.blobs["x"].data.astype(np.float64)
    net.forward()
    d = np.random.default_rng(2).normal(size=x.shape)
    net.blobs["x"].diff[...] = d
    net.backward(start=f"{over}1")
    y = (1 + 0.5 * x) ** 2 if under == "Power" else np.tanh(x)
    if over == "BatchNorm":
        axes = (0, 2, 3)
        std = np.sqrt(y.var(axes, keepdims=True) + 1e-5)
        z = (y - y.mean(axes, keepdims=True)) / std
        d = (d - d.mean(axes, keepdims=True) - z * (d * z).mean(axes, keepdims=True)) / std
    else:
        d = d * net.params["Scale1"][0].data[:, None, None]
    slope = (1 + 0.5 * x) if under == "Power" else 1 - y**2
    np.testing.assert_allclose(net.blobs["x"].diff, d * slope, rtol=1e-3, atol=1e-5)


# -- against a name for each version -------------------------------------------------------------------------------
@pytest.mark.parametrize("types", [["BatchNorm", "Scale"], *([t] for t in LAYERS)], ids="-".join)
def test_what_a_name_shows_after_a_backward(types, place):
    net, caffe = pair(place, types)
    n = len(net.graph.nodes) - 1
    net.backward()
    caffe.backward(n, 0)
    same(net, caffe)
    without_views = caffe.net.blobs["x"]  # the lowest version
    np.testing.assert_array_equal(net.blobs["x"].diff, without_views.diff)


@pytest.mark.parametrize("types", [["BatchNorm", "Scale"], *([t] for t in LAYERS)], ids="-".join)
def test_a_backward_starts_with_what_the_name_shows(types, place):
    """Wherever it starts, and whatever ran before."""
    net, caffe = pair(place, types)
    first, n = net.layer_index("x"), len(net.graph.nodes) - 1
    for start in (*range(first, first + len(types) + 1), n, *range(first, first + len(types) + 1)):
        d = np.random.default_rng(start).normal(size=net.blobs["x"].shape).astype(np.float32)
        net.blobs["x"].diff[...] = d
        caffe.diffs["x"] = d.ravel()
        net._backward(start, 0)
        caffe.backward(start, 0)
        same(net, caffe)


BY_HAND = {"fuse": False, "masks": False}
WAYS = {  # device, LMS, tuning, rounding
    "cpu": (lambda: get_device("cpu"), None, Tuning(**BY_HAND), 0),
    "step by step": (lambda: SimDevice(64 << 20), None, Tuning(**BY_HAND, graph=False), 0),
    "recorded": (lambda: SimDevice(64 << 20, order="latest"), None, Tuning(**BY_HAND), 0),
    "lms": (lambda: SimDevice(64 << 20, order="random"), LMSConfig(threshold_kb=0, ahead=1), Tuning(**BY_HAND), 0),
    "channels last": (lambda: SimDevice(64 << 20), None, Tuning(**BY_HAND, channels_last=True), 1e-5),
    "lms last": (lambda: SimDevice(64 << 20), LMSConfig(threshold_kb=0), Tuning(**BY_HAND, channels_last=True), 1e-5),
    "parts": (lambda: SimDevice(64 << 20), LMSConfig(threshold_kb=0, split=2), Tuning(**BY_HAND), 1e-5),
}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("way", WAYS)
def test_any_chain_any_passes(way, seed):
    rng = np.random.default_rng(seed)
    types, flat = ([str(t) for t in rng.choice(list(known), size=rng.integers(0, 4))] for known in (LAYERS, FLAT))
    options = {
        "frozen": bool(rng.integers(2)),
        "head": str(rng.choice(["", "force_backward: true "])),
        "end": bool(rng.integers(4)),
    }
    device, lms, tuning, rounding = WAYS[way]
    net, caffe = pair(Place(way), types, flat, options, device=device(), lms=lms, tuning=tuning)
    n, memory = len(net.graph.nodes) - 1, caffe.memory
    for turn in range(12):
        act = ("whole", "part", "write", "forward")[turn if turn < 4 else rng.integers(4)]
        if act == "whole":
            net.backward()
            caffe.backward(n, 0)
        elif act == "part":
            end, start = sorted(int(i) for i in rng.integers(0, n + 1, size=2))
            net._backward(start, end)
            caffe.backward(start, end)
        elif act == "write":
            name = str(rng.choice([b for b in net.blobs if b in memory]))
            d = rng.normal(size=net.blobs[name].shape).astype(np.float32)
            net.blobs[name].diff[...] = d
            caffe.diffs[caffe.of(name)] = d.ravel()
        else:
            net.forward()
            caffe.net.forward()
        same(net, caffe, rounding)


def recorded_passes(device, lms):
    """Passes that repeat, so that they are recorded: the whole one, and one from the middle of a written gradient."""
    how = {"device": device, "lms": lms, "tuning": Tuning(**BY_HAND)}
    net, caffe = pair(Place("recorded"), ["Convolution", "LRN", "Scale", "Convolution", "TanH"], **how)
    middle, n = net.layer_index("Scale2"), len(net.graph.nodes) - 1
    for turn in range(7):
        net.forward()
        net.backward()
        caffe.backward(n, 0)
        d = np.random.default_rng(turn).normal(size=net.blobs["x"].shape).astype(np.float32)
        net.blobs["x"].diff[...] = d
        caffe.diffs["x"] = d.ravel()
        net._backward(middle, 0)
        caffe.backward(middle, 0)
        yield net, caffe
    backwards = [
        key for key, bound in net.memory.programs.bound.items() if bound.replay is not None and bound.replay.ready
    ]
    assert len({key.rsplit(" ", 1)[0] for key in backwards if key.startswith("backward")}) == 2


@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=0)], ids=str)
def test_recorded_passes_bring_and_show_the_same(lms):
    for net, caffe in recorded_passes(SimDevice(64 << 20, order="latest"), lms):
        same(net, caffe)


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
@pytest.mark.parametrize("lms", [None, LMSConfig(threshold_kb=0)], ids=str)
def test_recorded_passes_bring_and_show_the_same_on_a_gpu(lms):
    device = get_device("cuda")
    device.set_budget(None)
    for net, caffe in recorded_passes(device, lms):
        same(net, caffe, 3e-3)  # TF32
    net.runtime.close()


# -- a solver's iterations, callbacks, reshapes ------------------------------------------------------------------------
NORM = layer("bn", "BatchNorm", "c", "x") + layer("scale", "Scale", "x", "x", LAYERS["Scale"]) + relu("relu", "x")
SOLVED = {  # what is inside a chain that runs as one: nothing that x shows, or the gradient that it shows
    "conv": conv("x", "data", 4) + relu("relu", "x"),
    "conv bn": conv("x", "data", 4) + NORM.replace('"c"', '"x"'),
    "bn": conv("c", "data", 4) + NORM,
    "softmax": conv("x", "data", 4) + layer("s", "Softmax", "x", "x"),
    "lrn": conv("x", "data", 4) + layer("s", "LRN", "x", "x") + relu("relu", "x"),
    "sum": conv("c", "data", 4) + layer("bn", "BatchNorm", "c", "x") + layer("sum", "Eltwise", "x data", "x"),
}


def solved(name, place, keep):
    """A solver's net after an iteration, and the gradient of x by hand at the parameters before it."""
    text = inputs(data=(4, 4, 8, 8), label=(4,)) + SOLVED[name] + ip("y", "x", 3) + loss("y")
    solver = make_solver(text, place)
    by_hand = make_net(text)
    alike(solver.net, by_hand)
    by_hand.backward()
    if keep:
        solver.net.keep("x")
    for _ in range(2):
        solver.step(1)
        yield solver.net, by_hand.blobs["x"].diff
        alike(solver.net, by_hand)
        by_hand.backward()


@pytest.mark.parametrize("name", SOLVED)
def test_after_an_iteration_a_kept_name_shows_the_lowest_version(name, place):
    for net, expected in solved(name, place, keep=True):
        np.testing.assert_allclose(net.blobs["x"].diff, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", SOLVED)
def test_after_an_iteration_a_name_shows_the_lowest_version_or_nothing(name, place):
    """Of a chain that runs as one the gradient between its layers is not made, and no other one is shown for it."""
    for net, expected in solved(name, place, keep=False):
        if place.manages or name in ("bn", "sum"):
            with pytest.raises(DiscardedRead, match='net.keep."x"'):
                net.blobs["x"].read_diff()
        else:
            np.testing.assert_allclose(net.blobs["x"].diff, expected, rtol=1e-4, atol=1e-6)


def test_functions_between_layers_see_and_write_the_versions(place):
    """The gradient that the layer before left, also where one is written in its stead."""
    net, caffe = pair(place, ["Softmax", "LRN"], ["Softmax"])
    seen, written = [], {}

    def after(i):
        seen.append((i, net.blobs["x"].diff.ravel().copy()))
        if i == net.layer_index("LRN1"):
            written["x"] = np.random.default_rng(1).normal(size=net.blobs["x"].shape).astype(np.float32)
            net.blobs["x"].diff[...] = written["x"]

    net.after_backward(after)
    net.backward()
    assert len(seen) == len(net.graph.nodes)
    for i, shown in seen:
        caffe.backward(i, i)
        np.testing.assert_array_equal(shown, caffe.diffs["x"])
        if i == net.layer_index("LRN1"):
            caffe.diffs["x"] = written["x"].ravel()
    same(net, caffe)


def test_functions_between_a_solvers_layers_see_the_lowest_version(place):
    """The layers run one by one then, so nothing is left out."""
    text = inputs(data=(4, 4, 8, 8), label=(4,)) + SOLVED["bn"] + ip("y", "x", 3) + loss("y")
    solver, by_hand, seen = make_solver(text, place), make_net(text), {}
    solver.net.after_backward(lambda i: seen.update({i: solver.net.blobs["x"].diff.copy()}))
    for _ in range(3):
        alike(solver.net, by_hand)
        by_hand.backward()
        solver.step(1)
        assert len(seen) == len(by_hand.graph.nodes)
        np.testing.assert_array_equal(seen[by_hand.layer_index("scale")], by_hand.blobs["x"].diff)
        np.testing.assert_array_equal(solver.net.blobs["x"].diff, by_hand.blobs["x"].diff)


def test_a_view_that_is_held_shows_the_lowest_version_of_every_pass(place):
    net, caffe = pair(place, ["LRN", "Normalize"])
    held = net.blobs["x"].diff
    for _ in range(3):
        net.forward()
        net.backward()
        caffe.backward(len(net.graph.nodes) - 1, 0)
        np.testing.assert_array_equal(held.ravel(), caffe.diffs["x"])


def test_a_reshape_that_keeps_the_shape_keeps_what_is_shown(place):
    net, caffe = pair(place, ["Softmax", "LRN"])
    n = len(net.graph.nodes) - 1
    net.backward()
    caffe.backward(n, 0)
    net.reshape()
    same(net, caffe)
    middle = net.layer_index("LRN1")
    for start, end in ((middle, middle), (middle, 0)):
        net._backward(start, end)
        caffe.backward(start, end)
        net.reshape()
        same(net, caffe)


def test_another_batch_size(place):
    net, _ = pair(place, ["Softmax", "LRN"])
    net.backward()
    net.blobs["data"].reshape(5, 2, 4, 4)
    net.blobs["label"].reshape(5)
    text, memory = chain(["Softmax", "LRN"], without_views=True)
    without_views = make_net(text.replace("dim: 3", "dim: 5", 1).replace("shape { dim: 3 }", "shape { dim: 5 }"))
    net.clear_param_diffs()
    alike(net, without_views)
    caffe = Caffe(without_views, memory)
    net.backward()
    caffe.backward(len(net.graph.nodes) - 1, 0)
    same(net, caffe)


def test_versions_of_two_shapes(place):
    """The blob has the shape of the last one: it shows gradients of that shape."""
    text = inputs(data=(3, 2, 4, 4), label=(3,)) + conv("x", "data", 4)
    text += layer("t", "Tile", "x", "%s", "tile_param { tiles: 2 }") + ip("y", "%s", 3) + loss("y")
    net, without_views = (make_net(text.replace("%s", name), place) for name in ("x", "z"))
    alike(net, without_views)
    for one in (net, without_views):
        one.forward(start="t")  # reads what the convolution made
        one.backward()
    np.testing.assert_array_equal(net.blobs["x"].diff, without_views.blobs["z"].diff)
    for a, b in zip(net.learnable_params, without_views.learnable_params, strict=True):
        np.testing.assert_array_equal(a.diff, b.diff)


def test_stored_as_bfloat16(place):
    how = {"tuning": Tuning(**BY_HAND, half=True)}
    (net, _), (plain, _) = (pair(place, ["Convolution", "LRN", "ReLU"], **more) for more in (how, {}))
    assert any(value.half for value in net.graph.values if value.name == "x")
    for start in ("loss", "LRN1", "x"):
        for one in (net, plain):
            d = np.random.default_rng(3).normal(size=one.blobs["x"].shape)
            one.blobs["x"].diff[...] = d
            one.backward(start=start)
        largest = np.abs(plain.blobs["x"].diff).max()
        np.testing.assert_allclose(net.blobs["x"].diff, plain.blobs["x"].diff, rtol=0.03, atol=0.03 * largest)
