"""Embed and BatchReindex against plain loops."""

from __future__ import annotations

import re

import numpy as np
import pytest
from google.protobuf import text_format

from pycaffe_lms import Net
from pycaffe_lms.backend import cuda_available, get_device
from pycaffe_lms.backend.sim.device import SimDevice
from pycaffe_lms.errors import BlobCountError, DataError, LayerParamError, ShapeError
from pycaffe_lms.layers.base import Needs
from pycaffe_lms.lms.config import LMSConfig
from pycaffe_lms.proto import caffe_pb2
from pycaffe_lms.solvers import SGDSolver

from .cases import Case
from .harness import CudaArrays, HostArrays, LayerBench, check_gradient


def _text(n, k, more=""):
    return f"embed_param {{ num_output: {n} input_dim: {k} {more} }}"


EMBED: list[Case] = [
    Case("Embed", _text(4, 5), ((3, 2),), integer_bottoms=((0, 5),)),
    Case("Embed", _text(3, 5, "bias_term: false"), ((7,),), integer_bottoms=((0, 5),)),
    Case("Embed", _text(300, 6), ((2, 30),), integer_bottoms=((0, 6),)),  # more columns than a block has threads
    Case("Embed", _text(1, 3), ((2, 400),), integer_bottoms=((0, 3),)),  # more places than a block looks at
    Case("Embed", _text(20, 40), ((1500,),), integer_bottoms=((0, 2),)),  # rows that nobody uses
    Case("Embed", _text(4, 5), ((0, 2),), integer_bottoms=((0, 5),)),
    Case("Embed", _text(2, 3), ((),), integer_bottoms=((0, 3),)),
]
REINDEX: list[Case] = [
    Case("BatchReindex", "", ((5, 3, 2), (4,)), integer_bottoms=((1, 5),)),
    Case("BatchReindex", "", ((3, 300), (600,)), integer_bottoms=((1, 3),)),
    Case("BatchReindex", "", ((4,), (9,)), integer_bottoms=((1, 2),)),
    Case("BatchReindex", "", ((5, 2), (0,)), integer_bottoms=((1, 5),)),
    Case("BatchReindex", "", ((0, 2), (0,)), integer_bottoms=((1, 5),)),
    Case("BatchReindex", "", ((5, 0), (3,)), integer_bottoms=((1, 5),)),
]
CASES = EMBED + REINDEX


def lookup(index, table):
    return np.array([table[int(i)] for i in index.reshape(-1)]).reshape(index.size, *table.shape[1:])


def gather(index, dy, table):
    dw = np.zeros(table.shape)
    for i, row in zip(index.reshape(-1), dy.reshape(index.size, *table.shape[1:]), strict=True):
        dw[int(i)] += row
    return dw


@pytest.mark.parametrize("dtype, tol", [(np.float32, 1e-4), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", EMBED, ids=str)
def test_embed(case, dtype, tol):
    bench, rng = case.bench(dtype), np.random.default_rng(1)
    (index,) = case.make_bottoms(rng)
    index = np.asarray(index)
    (y,) = bench.forward([index])
    w, bias = bench.params[0], bench.params[1] if len(bench.params) > 1 else 0
    assert y.shape == (*case.shapes[0], w.shape[1])
    np.testing.assert_array_equal(y.reshape(index.size, -1) if index.size else y.reshape(0, 4), lookup(index, w) + bias)
    dy = rng.normal(size=y.shape).astype(dtype)
    start = [rng.normal(size=p.shape).astype(dtype) for p in bench.params]
    for add in (False, True):
        diffs, (dw, *db) = bench.backward([dy], accumulate=[add] * len(start), param_diffs=start)
        assert diffs == [None]
        np.testing.assert_allclose(dw, gather(index, dy, w) + add * start[0], rtol=tol, atol=tol)
        for b in db:
            np.testing.assert_allclose(
                b, dy.reshape(-1, w.shape[1]).sum(axis=0, dtype=np.float64) + add * start[1], rtol=tol, atol=tol
            )


@pytest.mark.parametrize("dtype, tol", [(np.float32, 1e-4), (np.float64, 1e-12)], ids=["f32", "f64"])
@pytest.mark.parametrize("case", REINDEX, ids=str)
def test_batch_reindex(case, dtype, tol):
    bench, rng = case.bench(dtype), np.random.default_rng(1)
    x, index = case.make_bottoms(rng)
    x = x.astype(dtype)
    (y,) = bench.forward([x, index])
    assert y.shape == (*case.shapes[1], *case.shapes[0][1:])
    np.testing.assert_array_equal(y, lookup(index, x) if y.size else y)
    dy = rng.normal(size=y.shape).astype(dtype)
    (dx, none), _ = bench.backward([dy])
    assert none is None
    np.testing.assert_allclose(dx, gather(index, dy, x), rtol=tol, atol=tol)


@pytest.mark.parametrize("case", [EMBED[0], EMBED[1], REINDEX[0], REINDEX[2]], ids=str)
def test_gradient(case):
    check_gradient(case.bench(), case.make_bottoms(np.random.default_rng(2)))


OUTSIDE = [-0.5, 1.9, -1, 3, np.nan, np.inf, -np.inf, 2]
OPS = [
    "cpu",
    pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]),
]


@pytest.fixture(params=OPS)
def arrays(request):
    return HostArrays() if request.param == "cpu" else CudaArrays()


def test_indices_are_cut_and_one_out_of_range_gives_nan_and_teaches_nothing(arrays):
    """The operations themselves, on every device."""
    put, get, ops = arrays.put, arrays.get, arrays.ops
    index, w, b = (put(np.array(a, float)) for a in (OUTSIDE, [[1, 2], [3, 4], [5, 6]], [10, 20]))
    y, dw = put(np.zeros((8, 2))), put(np.zeros((3, 2)))
    for bias in (b, None):
        ops.embed.forward(index, w, bias, y, 8, 2, 3)
        nan, add = [np.nan] * 2, [0, 0] if bias is None else [10, 20]
        rows = {0: [1, 2], 1: [3, 4], 7: [5, 6]}
        expected = [np.add(rows[i], add) if i in rows else nan for i in range(8)]
        np.testing.assert_array_equal(get(y), expected)
    ops.embed.backward(index, put(np.arange(16.0).reshape(8, 2)), dw, False, 8, 2, 3)
    assert get(dw).tolist() == [[0, 1], [2, 3], [14, 15]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [v for v in OUTSIDE if not -1 < v < 3], ids=str)
def test_an_index_out_of_range_is_found(arrays, bad, dtype):
    index = np.full(1000, 2.9, dtype)
    found = arrays.ops.outside_plan()
    arrays.ops.find_outside(arrays.put(index), found, 1000, 3)
    arrays.get(arrays.put(index))  # what was queued is done
    assert found.tolist() == [0, 0, 0]
    index[777] = bad
    arrays.ops.find_outside(arrays.put(index), found, 1000, 3)
    arrays.get(arrays.put(index))
    np.testing.assert_array_equal(found, [1, 777, bad])


@pytest.mark.parametrize(
    "kind, text, bottoms, message",
    [
        ("Embed", _text(2, 3), [[[0, 1], [2, 3]]], 'blob "b0": index 3 at position 3 is not in 0..2'),
        ("Embed", _text(2, 3), [[[0, -1], [2, 2]]], 'blob "b0": index -1 at position 1 is not in 0..2'),
        ("Embed", _text(2, 3), [[[0, np.nan], [2, 2]]], 'blob "b0": index nan at position 1 is not in 0..2'),
        ("BatchReindex", "", [[[5], [6]], [1, 2, 1]], 'blob "b1": index 2 at position 1 is not in 0..1'),
        ("BatchReindex", "", [np.zeros((0, 2)), [0]], "index 0 at position 0 is not possible: there are no rows"),
    ],
)
def test_on_the_cpu_an_index_out_of_range_is_an_error(kind, text, bottoms, message):
    """As in Caffe's batch_reindex_layer.cpp; for Embed only Caffe's debug build checks."""
    bench = LayerBench(kind, text, tuple(np.shape(b) for b in bottoms))
    with pytest.raises(DataError) as caught:
        bench.forward(bottoms)
    assert message in str(caught.value) and f'layer "l" ({kind})' in str(caught.value) and caught.value.fix
    right = [np.zeros(np.shape(b)) for b in bottoms]
    if np.size(right[0]):
        bench.forward(right)  # nothing of it stays


NET = """layer { name: "in" type: "Input" top: "x" top: "i" input_param { shape { dim: 3 dim: 2 } shape { dim: 4 } } }
layer { name: "words" type: "Embed" bottom: "i" top: "e" embed_param { num_output: 2 input_dim: 5 } }
layer { name: "some" type: "BatchReindex" bottom: "x" bottom: "i" top: "y" }
layer { name: "more" type: "BatchReindex" bottom: "x" bottom: "i" top: "z" }"""
DEVICES = [
    pytest.param(lambda: SimDevice(order="latest"), id="sim"),
    pytest.param(lambda: get_device("cuda"), id="cuda", marks=OPS[1].marks),
]


@pytest.mark.parametrize("device", DEVICES)
def test_on_a_device_one_warning_names_each_layer(device, caplog):
    net = Net(text_format.Parse(NET, caffe_pb2.NetParameter()), phase=0, device=device())
    net.blobs["x"].data[...] = np.arange(6).reshape(3, 2)
    said = []
    for _ in range(4):  # from the third on recorded, where the device records
        net.blobs["i"].data[...] = [0, 4, 3, 2]
        out = net.forward()
        np.testing.assert_array_equal(out["y"], [[0, 1], [np.nan] * 2, [np.nan] * 2, [4, 5]])
        assert np.isfinite(out["e"]).all()
        said.append([r.getMessage() for r in caplog.records if r.levelname == "WARNING"])
    assert said[0] == said[-1]
    assert sorted(m.split(" (BatchReindex)")[0] for m in said[0]) == ['layer "more"', 'layer "some"']
    for message in said[0]:
        assert re.search(r'blob "i": index [34] at position [12] is not in 0..2: what it should name is NaN', message)
        assert "fix: correct the data" in message


def test_on_the_cpu_the_error_names_the_users_blob():
    net = Net(text_format.Parse(NET, caffe_pb2.NetParameter()), phase=0)
    net.blobs["i"].data[...] = [0, 1, 2, 5]
    with pytest.raises(DataError, match=r'layer "words" \(Embed\), blob "i": index 5 at position 3 is not in 0..4'):
        net.forward()


def test_large_indices_are_exact_in_float32():
    bench = LayerBench("Embed", _text(1, (1 << 24) + 1, "bias_term: false"), ((2,),), dtype=np.float32)
    bench.params[0][-1] = 42
    assert bench.forward([[1 << 24, 0]])[0][0] == 42


def test_needs():
    layer = EMBED[0].bench().layer
    assert layer.declares.no_backward is None
    assert layer.backward_needs([False], [True, True]) == Needs(bottoms=frozenset({0}))
    assert layer.backward_needs([False], [False, True]) == Needs()
    layer = REINDEX[0].bench().layer
    assert layer.backward_needs([True, False], []) == Needs(bottoms=frozenset({1}))
    assert layer.backward_needs([False, False], []) == Needs()


@pytest.mark.parametrize("wants", [(False, True), (True, False), (False, False)])
def test_parameters_that_do_not_learn(wants):
    bench = LayerBench("Embed", _text(2, 3), ((2,),), param_propagate=wants)
    (y,) = bench.forward([[0, 1]])
    assert [g is not None for g in bench.backward([y])[1]] == list(wants)


@pytest.mark.parametrize(
    "type_, text, shapes, error, message",
    [
        ("Embed", "embed_param { input_dim: 3 }", ((2,),), LayerParamError, "num_output is 0"),
        ("Embed", "embed_param { num_output: 3 }", ((2,),), LayerParamError, "input_dim is 0"),
        ("Embed", _text(2, 3), ((2,), (2,)), BlobCountError, "takes 1 bottom"),
        ("BatchReindex", "", ((2,),), BlobCountError, "takes 2 bottom"),
        ("BatchReindex", "", ((2, 3), (2, 1)), ShapeError, r'blob "b1": has shape \(2, 1\)'),
        ("BatchReindex", "", ((), (2,)), ShapeError, 'blob "b0": has no axes'),
    ],
)
def test_refused(type_, text, shapes, error, message):
    with pytest.raises(error, match=f'layer "l".*{message}'):
        LayerBench(type_, text, shapes)


FORCED = """force_backward: true
layer { name: "in" type: "Input" top: "i" input_param { shape { dim: 3 } } }
layer { name: "words" type: "Embed" bottom: "i" top: "e" embed_param { num_output: 2 input_dim: 5 } }
layer { name: "out" type: "Power" bottom: "e" top: "y" power_param { scale: 3 } }"""


@pytest.mark.parametrize("lms", [False, True], ids=["", "lms"])
def test_under_force_backward_only_a_backward_that_reaches_the_indices_is_an_error(lms):
    """In Caffe force_backward applies to Embed's bottom, and Backward fails if that gradient is wanted."""
    more = {"device": SimDevice(1 << 20), "lms": LMSConfig(threshold_kb=0)} if lms else {}
    net = Net(text_format.Parse(FORCED, caffe_pb2.NetParameter()), phase=0, **more)
    net.forward()
    net.blobs["y"].diff[...] = np.arange(6).reshape(3, 2)
    got = net.backward(end="out")
    np.testing.assert_array_equal(got["e"], 3 * np.arange(6).reshape(3, 2))
    for _ in range(2):
        with pytest.raises(LayerParamError, match=r'layer "words" \(Embed\), blob "i": has no gradient for bottom 0'):
            net.backward()
    assert np.isfinite(net.forward()["y"]).all()


def test_a_solver_refuses_it_before_the_first_iteration():
    head = FORCED.replace('name: "out" type: "Power"', 'name: "out" type: "Reduction" loss_weight: 1')
    text = head.replace("power_param { scale: 3 }", "").replace("force_backward", "net_param { force_backward") + "}"
    solver = text_format.Parse("base_lr: 0.1 lr_policy: 'fixed' " + text, caffe_pb2.SolverParameter())
    with pytest.raises(LayerParamError, match=r'layer "words" \(Embed\), blob "i": has no gradient for bottom 0'):
        SGDSolver(solver).step(1)
