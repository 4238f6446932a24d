"""Numbers of a net against plain NumPy, in place against apart, sharing, loss weights, repeated passes, two threads."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from .nets import conv, inputs, ip, layer, loss, make_net, make_solver, relu

N, C = 24, 40  # large enough for Large Model Support to manage some blobs, while `b` stays
SMALL = inputs(data=(N, C), label=(N,)) + ip("a", "data", 30) + relu("r", "a") + ip("b", "a", 3) + loss("b")
IMAGES = inputs(data=(4, 3, 8, 8), label=(4,))
UNIT = (
    conv("x", "data", 4)
    + layer("bn", "BatchNorm", "x", "x")
    + layer("scale", "Scale", "x", "x", "scale_param { bias_term: true }")
    + relu("relu", "x")
    + layer("drop", "Dropout", "x", "x")
)


def feed(net, seed=0):
    """Random values for `data`, classes 0, 1, 2 for `label`; returns both."""
    rng = np.random.default_rng(seed)
    data, label = net.blobs["data"], net.blobs["label"]
    data.data[...] = rng.normal(size=data.shape)
    label.data[...] = np.arange(label.shape[0]) % 3
    return data.data.copy(), label.data.astype(int)


def gradients(net):
    return [b.diff.copy() for b in net.learnable_params]


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def reference(net, x, labels, weight=1.0):
    """(loss, gradients) of SMALL in float64, by hand."""
    w1, b1, w2, b2 = (p.data.astype(np.float64) for p in net.learnable_params)
    h = x @ w1.T + b1
    y = np.maximum(h, 0)
    p = softmax(y @ w2.T + b2)
    rows = np.arange(len(x))
    value = -np.log(p[rows, labels]).mean() * weight
    d = p.copy()
    d[rows, labels] -= 1
    d *= weight / len(x)
    dy = d @ w2 * (h > 0)
    return value, [dy.T @ x, dy.sum(0), d.T @ y, d.sum(0)]


def close(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


# -- numbers ---------------------------------------------------------------------------------------------------------
def test_forward_and_backward_are_what_numpy_says(place):
    net = make_net(SMALL, place)
    x, labels = feed(net)
    value, expected = reference(net, x, labels)
    assert net.forward_range() == pytest.approx(value, rel=1e-5)
    net.backward_range()
    close(gradients(net), expected)


def test_losses_are_summed_with_their_weights(place):
    """Two losses on one blob with weights 0.5 and 2: loss and gradients are 2.5 times those of one."""
    text = SMALL.replace(loss("b"), loss("b", "l1", "l1", "loss_weight: 0.5") + loss("b", "l2", "l2", "loss_weight: 2"))
    net = make_net(text, place)
    x, labels = feed(net)
    value, expected = reference(net, x, labels, 2.5)
    assert net.forward_range() == pytest.approx(value, rel=1e-5)
    assert float(net.blobs["l1"].data) == pytest.approx(value / 2.5, rel=1e-5)  # a blob shows the unweighted loss
    net.backward_range()
    close(gradients(net), expected)


def test_a_loss_that_is_read_again_still_counts(place):
    """Its weight sits on the Split then; the reader's own path adds nothing without a loss."""
    text = SMALL.replace(loss("b"), loss("b", text="loss_weight: 3") + relu("again", "loss", "out"))
    net = make_net(text, place)
    x, labels = feed(net)
    value, expected = reference(net, x, labels, 3)
    assert net.forward_range() == pytest.approx(value, rel=1e-5)
    assert net.outputs == ["loss_loss_0_split_0", "out"]
    net.backward_range()
    close(gradients(net), expected)


def test_a_loss_weight_of_zero_trains_nothing(place):
    net = make_net(SMALL.replace(loss("b"), loss("b", text="loss_weight: 0")), place)
    feed(net)
    assert net.forward_range() == 0
    assert float(net.blobs["loss"].data) > 0
    net.backward_range()
    assert not any(g.any() for g in gradients(net))


def test_a_weighted_sum_of_any_blob_is_a_loss(place):
    """loss = weight * sum of the elements; its gradient is the weight everywhere."""
    net = make_net(inputs(data=(N, C), label=(N,)) + ip("a", "data", 2, "loss_weight: -0.5"), place)
    x, _ = feed(net)
    assert net.forward_range() == pytest.approx(-0.5 * float(net.blobs["a"].data.sum(dtype=np.float64)), rel=1e-5)
    net.backward_range()
    close(gradients(net), [-0.5 * np.tile(x.sum(0), (2, 1)), [-N / 2, -N / 2]])


def _apart(text):
    """The same net with a name for every version of `x`."""
    names = {"bn": ("x", "x1"), "scale": ("x1", "x2"), "relu": ("x2", "x3"), "drop": ("x3", "x4")}
    for name, (bottom, top) in names.items():
        head, _, tail = text.partition(f'name: "{name}"')
        tail = tail.replace('bottom: "x" top: "x"', f'bottom: "{bottom}" top: "{top}"', 1)
        text = f'{head}name: "{name}"{tail}'
    return text.replace('name: "y" type: "InnerProduct" bottom: "x"', 'name: "y" type: "InnerProduct" bottom: "x4"')


def test_in_place_equals_distinct_names_to_the_bit(place):
    text = IMAGES + UNIT + ip("y", "x", 3) + loss("y")
    results = []
    for each in (text, _apart(text)):
        net = make_net(each, place)
        feed(net)
        values = [net.forward_range() for _ in range(2)]  # the second with other dropout and moved statistics
        net.backward_range()
        running = [b.data.tobytes() for b in net.params["bn"]]
        results.append((values, [g.tobytes() for g in gradients(net)], net.blobs["y"].data.tobytes(), running))
    assert results[0] == results[1]
    assert "x4" in net.blobs and results[0][0][0] != results[0][0][1]


# -- passes ----------------------------------------------------------------------------------------------------------
def test_gradients_add_up_until_cleared(place):
    net = make_net(SMALL, place)
    feed(net)
    net.forward_range()
    net.backward_range()
    once = gradients(net)
    net.backward_range()
    close(gradients(net), [2 * g for g in once])
    net.clear_param_diffs()
    assert not any(g.any() for g in gradients(net))
    net.forward_range()
    net.backward_range()
    assert [g.tobytes() for g in gradients(net)] == [g.tobytes() for g in once]


def test_gradients_of_blobs_do_not_add_up(place):
    net = make_net("force_backward: true\n" + IMAGES + UNIT + ip("y", "x", 3) + loss("y"), place)
    feed(net)
    net.forward_range()
    seen = []
    for _ in range(2):
        net.backward_range()
        seen.append([net.blobs[n].diff.tobytes() for n in ("data", "x", "y")])
    assert seen[0] == seen[1] and np.frombuffer(seen[0][0], np.float32).any()


def test_two_batches_add_their_gradients(place):
    net = make_net(SMALL, place)
    total = None
    for seed in (1, 2):
        x, labels = feed(net, seed)
        net.forward_range()
        net.backward_range()
        _, expected = reference(net, x, labels)
        total = expected if total is None else [a + b for a, b in zip(total, expected, strict=True)]
    close(gradients(net), total)


def test_gradients_written_by_the_user_are_added_to(place):
    net = make_net(SMALL, place)
    x, labels = feed(net)
    net.forward_range()
    net.params["b"][1].diff[...] = 10
    net.backward_range()
    np.testing.assert_allclose(net.params["b"][1].diff, reference(net, x, labels)[1][3] + 10, rtol=1e-5)


# -- shared parameters -----------------------------------------------------------------------------------------------
TWINS = (
    inputs(data=(N, C), other=(N, C), label=(N,))
    + ip("a", "data", 3, 'param { name: "w" } param { name: "b" }')
    + ip("b", "other", 3, 'param { name: "w" } param { name: "b" }')
    + layer("sum", "Eltwise", "a b")
    + loss("sum")
)


def test_shared_parameters_are_one_memory_and_add_their_gradients(place):
    net = make_net(TWINS, place)
    x, labels = feed(net)
    other = np.random.default_rng(8).normal(size=(N, C)).astype(np.float32)
    net.blobs["other"].data[...] = other
    a, b = net.params["a"], net.params["b"]
    assert np.shares_memory(a[0].data, b[0].data) and np.shares_memory(a[1].diff, b[1].diff)
    assert len(net.learnable_params) == 2
    w, bias = (p.data.astype(np.float64) for p in a)
    net.forward_range()
    net.backward_range()
    d = softmax((x + other) @ w.T + 2 * bias)
    d[np.arange(N), labels] -= 1
    d /= N
    close([b[0].diff, b[1].diff], [d.T @ (x + other), 2 * d.sum(0)])
    b[0].data[...] = 0
    b[1].data[...] = 0
    assert net.forward_range() == pytest.approx(np.log(3), rel=1e-6)


def test_share_with_shares_values_but_not_gradients(place):
    """By layer name; what the other net lacks stays its own."""
    first = make_net(SMALL, place)
    runtime = {"runtime": first.runtime, "device": None, "lms": None}
    second = make_net(SMALL + ip("c", "a", 2), seed=99, **runtime)
    assert (first.params["a"][0].data != second.params["a"][0].data).any()
    own = second.params["c"][0].data.copy()
    second.share_with(first)
    x, labels = feed(second)
    feed(first)
    assert first.forward_range() == second.forward_range()
    first.backward_range()
    assert not any(b.diff.any() for b in second.learnable_params)
    first.params["b"][1].data[...] = 7
    assert (second.params["b"][1].data == 7).all() and (second.params["c"][0].data == own).all()
    value, _ = reference(first, x, labels)
    assert second.forward_range() == pytest.approx(value, rel=1e-5)


def test_share_with_another_shape_is_refused():
    net = make_net(SMALL)
    with pytest.raises(RuntimeError, match=r'layer "b".*shapes \(4, 30\) and \(3, 30\)'):
        net.share_with(make_net(SMALL.replace("num_output: 3 ", "num_output: 4 ")))


# -- corners ---------------------------------------------------------------------------------------------------------
def test_a_batch_of_none(place):
    net = make_net((IMAGES + UNIT + ip("y", "x", 3) + loss("y")).replace("dim: 4", "dim: 0"), place)
    assert net.forward_range() == 0
    net.backward_range()
    assert net.blobs["y"].data.shape == (0, 3)
    assert all(np.isfinite(g).all() for g in gradients(net))


def test_layers_of_one_name_each_have_their_parameters():
    text = inputs(data=(N, C), label=(N,)) + ip("a", "data", 4) + ip("a", "a", 3, tops="b") + loss("b")
    net = make_net(text)
    feed(net)
    assert [p.shape for p in net.learnable_params] == [(4, C), (4,), (3, 4), (3,)]
    assert all(p.data.any() for p in net.learnable_params)
    assert [b.shape for b in net.params["a"]] == [(3, 4), (3,)]  # by name: the last one


def test_two_nets_in_two_threads():
    """Each gives what it gives alone."""
    text = IMAGES + UNIT + ip("y", "x", 3) + loss("y")

    def run(seed, out):
        net = make_net(text, seed=seed)
        feed(net, seed)
        values = []
        for _ in range(20):
            values.append(net.forward_range())
            net.backward_range()
        out[seed] = (values, [g.tobytes() for g in gradients(net)])

    alone, together = {}, {}
    for seed in (1, 2):
        run(seed, alone)
    threads = [threading.Thread(target=run, args=(seed, together)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert alone[1] != alone[2] and together == alone


def test_solver_iterations_equal_hand_made_ones(place):
    """W -= rate * gradient, momentum 0: two steps by the solver, by hand in NumPy."""
    solver = make_solver(SMALL, place, momentum=0)
    net = solver.net
    x, labels = feed(net)
    for _ in range(2):
        expected = [p.data - 0.1 * g for p, g in zip(net.learnable_params, reference(net, x, labels)[1], strict=True)]
        solver.step(1)
        close([p.data for p in net.learnable_params], expected)


@pytest.mark.parametrize("weight, counts", [("", 0), ("loss_weight: 1", 1), ("loss_weight: 2", 2)])
def test_of_an_implicit_loss_that_is_read_the_loss_is_right_and_the_gradient_the_readers(weight, counts):
    """e = sum of x^2 / 4, and half of e^2 is a loss, too. Caffe writes the reader's gradient, e, over the weight 1 that
    nobody wrote: of w e + e^2 / 2 it gives e times the slope of e, in place of w + e times."""
    text = inputs(x=(2, 3), zero=(2, 3)) + layer("loss", "EuclideanLoss", "x zero", "e", text=weight)
    text += layer("half", "Power", "e", "p", text="power_param { power: 2 } loss_weight: 0.5")
    net = make_net("force_backward: true\n" + text)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    net.blobs["x"].data[...] = x
    e = (x**2).sum() / 4
    for _ in range(3):
        assert net.forward_range() == pytest.approx((counts or 1) * e + e * e / 2)
        net.backward_range()
        np.testing.assert_allclose(net.blobs["x"].diff, (counts + e) * x / 2, rtol=1e-6)
