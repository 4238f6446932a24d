"""bfloat16: how values are rounded, operations on such arrays, and the same on a GPU."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.backend.bfloat16 import BFLOAT16
from pycaffe_lms.backend.cuda import prelude
from pycaffe_lms.ops import attention_plan, load_ops
from pycaffe_lms.ops.axes import memory_shape
from pycaffe_lms.ops.cpu.activation.relu import relu_forward
from pycaffe_lms.ops.cpu.widened import round_into, widened, widened_copy
from pycaffe_lms.ops.cuda.cudnn import attention as fused_attention
from pycaffe_lms.ops.geometry import PoolGeometry
from pycaffe_lms.ops.product_plan import product_plan
from pycaffe_lms.ops.records import (
    Affine,
    AffineGradients,
    AttentionShape,
    BatchNorm,
    FusedNormGradients,
    Grid,
    LinearGradients,
    LinearLoss,
    LinearLossInputs,
    LocalResponse,
    LossRows,
    Moments,
    QueryKeyValue,
    Rectified,
    Rotation,
    RowMoments,
    RowNorm,
    RowNormGradients,
    RunningSums,
)
from pycaffe_lms.ops.sum_parts import fused_norm_work, reduction_parts

from .fake_cudnn import geometry


def half(values) -> np.ndarray:
    values = np.asarray(values, np.float32)
    result = np.empty(values.shape, BFLOAT16)
    round_into(values, result)
    return result


def exactly_rounded(value: float) -> int:
    """The bfloat16 nearest to a float32, ties to the even one, by comparing distances."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    low = bits >> 16
    below, above = (struct.unpack("<f", struct.pack("<I", n << 16))[0] for n in (low, low + 1))
    if abs(value - below) == abs(above - value):
        return low + low % 2
    return low if abs(value - below) < abs(above - value) else low + 1


@pytest.mark.parametrize(
    "value, bits",
    [
        (1.0, 0x3F80),
        (-2.0, 0xC000),
        (0.0, 0),
        (-0.0, 0x8000),
        (1.00390625, 0x3F80),
        (1.01171875, 0x3F82),
        (3.141592653589793, 0x4049),
        (float("inf"), 0x7F80),
        (3.4028234663852886e38, 0x7F80),
        (1e-40, 0x0001),
    ],
)
def test_known_values(value, bits):
    assert half([value])[0] == bits


def test_nearest_and_even():
    rng = np.random.default_rng(3)
    values = (rng.standard_normal(2000) * 10.0 ** rng.integers(-30, 30, 2000)).astype(np.float32)
    ties = (rng.integers(0x0080, 0x7F00, 500, np.uint32) << 16 | 0x8000).view(np.float32)
    for array in (values, ties):
        assert half(array).tolist() == [exactly_rounded(float(v)) for v in array]


def test_widening_is_exact_and_rounding_undoes_it():
    every = np.arange(1 << 16, dtype=BFLOAT16)
    wide = widened_copy(every)
    numbers = ~np.isnan(wide)
    assert np.array_equal(wide.view(np.uint32)[numbers] >> 16, every[numbers]) and numbers.sum() == 65536 - 2 * 127
    again = half(wide)
    assert np.array_equal(again[numbers], every[numbers]) and np.isnan(widened_copy(again)[~numbers]).all()


def test_operations_compute_in_float32_and_round_once():
    def add_twice(xs, y, mask):
        assert mask.dtype == np.uint16 and all(a.dtype == np.float32 for a in (*xs, y))
        y[...] = xs[0] + xs[1]
        y[...] += np.float32(1 / 512)
        mask += 1

    x, y, mask = half([1.0, 3.0]), half([9.0, 9.0]), np.array([7, 8], np.uint16)
    widened(add_twice)([x, half([1 / 512, 1.0])], y, mask)
    assert widened_copy(y).tolist() == [1.0, 4.0]  # 1.00390625 lies between 1 and 1.0078125: to even
    assert mask.tolist() == [8, 9] and widened_copy(x).tolist() == [1.0, 3.0]


def test_an_operation_is_wrapped_once_for_all_devices():
    one, other = load_ops("cpu").functions(), load_ops("cpu").functions()
    assert one["relu_forward"] is not relu_forward and one == other


def test_arrays_in_the_same_memory_stay_so():
    x = half([[1.0, -2.0]])
    load_ops("cpu").relu.forward(x, x.reshape(2), 0.0)
    assert widened_copy(x).tolist() == [[1.0, 0.0]]


def test_float32_arrays_and_places_of_maxima_are_left_alone():
    ops, g = load_ops("cpu"), PoolGeometry(1, (20, 20), (1, 1), (20, 20), (1, 1), (0, 0))
    x, mask, y = np.zeros((1, 1, 20, 20), np.float32), np.empty((1, 1, 1, 1), np.uint16), np.empty((1, 1, 1, 1))
    x[0, 0, 17, 3] = 1.00390625
    ops.max_pool.forward(x, y, mask, None, g)
    assert (mask.item(), y.item()) == (343, 1.00390625)


def test_sources_of_other_types_have_no_bfloat16():
    assert "struct bf16" not in prelude("float32") + prelude("float64") and "bf16 T;" in prelude("uint16")


# --- on a GPU ---------------------------------------------------------------------------------------------------------
RNG = np.random.default_rng(1)


def h(*shape):
    return half(RNG.standard_normal(shape))


def f(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape):
    return (RNG.random(shape) + 0.5).astype(np.float32)


def _norm_cases(n, c, s):
    size, work = Grid(n, c, s), np.zeros(max(1000, fused_norm_work(n, c, s)), np.float32)
    bits = np.zeros(-(-n * c * s // 32), np.uint32)
    yield (
        "batch_norm_statistics",
        h(n, c, s),
        Moments(f(c), f(c)),
        RunningSums(f(c), f(c), f(1)),
        work,
        BatchNorm(size, 1e-5, 0.9),
    )
    yield "batch_norm_apply", h(n, c, s), h(n, c, s), Moments(f(c), positive(c)), size
    yield "batch_norm_backward", h(n, c, s), h(n, c, s), h(n, c, s), positive(c), work, size
    yield "scale_forward", h(n, c, s), Affine(f(c), f(c)), h(n, c, s), size
    sums = AffineGradients(f(c), f(c), False, True)
    yield "scale_backward", h(n, c, s), f(c), h(n, c, s), h(n, c, s), sums, work, size
    yield "conv_bias_relu_backward", h(n, c, s), h(n, c, s), h(n, c, s), f(c), True, work, size
    yield "conv_add_bias", h(n, c, s), f(c), size
    affine = Moments(f(c), positive(c)), Affine(f(c), f(c))
    for r in (None, h(n, c, s)):
        yield "fused_norm_forward", h(n, c, s), r, h(n, c, s), *affine, True, size, bits
        y, dr = (None, None) if r is None else (h(n, c, s), h(n, c, s))
        gradients = FusedNormGradients(h(n, c, s), dr, AffineGradients(f(c), f(c), False, True))
        for relu, use_global in ((Rectified(y), False), (None, True)):
            rule = BatchNorm(size, 1e-5, use_global=use_global)
            yield "fused_norm_backward", h(n, c, s), h(n, c, s), gradients, relu, *affine, work, rule


def _cases():
    for size in ((50, 64, 1), (3, 8, 49), (3, 64, 64), (40, 3, 1)):
        yield from _norm_cases(*size)
    shape = (2, 24, 9, 9)
    for name in ("absval", "sigmoid", "tanh", "bnll"):
        yield f"{name}_forward", h(*shape), h(*shape)
        yield f"{name}_backward", h(*shape), h(*shape), h(*shape)
    yield "relu_forward", h(*shape), h(*shape), 0.1
    yield "relu_backward", h(*shape), h(*shape), h(*shape), 0.1
    yield "drop_path_forward", h(*shape), h(*shape), 0.4, np.array([3, 4, 0], np.uint64), 1 / 0.6
    yield "dropout_forward", h(*shape), h(*shape), 0.4, np.array([3, 4, 0], np.uint64), 1 / 0.6
    yield "eltwise_sum", [h(*shape), h(*shape)], [1.0, 0.1], h(*shape)
    yield "eltwise_sum_backward", h(*shape), [h(*shape), h(*shape)], [1.0, 0.1]
    yield "eltwise_max", [h(*shape), h(*shape)], h(*shape), np.zeros(shape, np.uint8)
    yield "sum_arrays", [h(*shape), h(*shape), h(*shape)], h(*shape)
    yield "fill", h(*shape), 0.1
    for x, y in ((h(*shape), h(*shape)), (h(*shape), f(*shape)), (f(*shape), h(*shape))):
        yield "copy", x, y
        yield "transpose", x, y, (2, 24, 81), (0, 2, 1)
        yield "transpose", x.reshape(2, 3, 8, 81), y, (6, 8, 81), (1, 0, 2)
        yield "transpose", x, y, (48, 3, 27), (0, 2, 1)
    for s in (1, 81):
        work = np.zeros(4000, np.float32)
        yield "prelu_forward", h(4, 24, s), f(24), h(4, 24, s), Grid(4, 24, s)
        yield "prelu_backward", h(4, 24, s), f(24), h(4, 24, s), h(4, 24, s), f(24), True, work, Grid(4, 24, s)
    yield "lrn_last_forward", h(81, 24), h(81, 24), Grid(81, 24, 1), LocalResponse(5, 0.5, 0.75, 1.0)
    yield "lrn_last_backward", h(81, 24), h(81, 24), h(81, 24), Grid(81, 24, 1), LocalResponse(5, 0.5, 0.75, 1.0)
    yield "copy_block_in", h(*shape), h(2, 30, 9, 9), 2, 24 * 81, 30 * 81, 81
    yield "copy_block_out", h(2, 30, 9, 9), h(*shape), 2, 24 * 81, 30 * 81, 81
    yield "copy_columns", h(*shape), h(2, 30, 9, 9), 2, 24 * 81, 24 * 81, 0, 30 * 81, 81
    yield "add_columns", h(*shape), h(2, 30, 9, 9), 2, 20 * 81, 24 * 81, 3 * 81, 30 * 81, 81
    g = PoolGeometry(48, (9, 9), (4, 4), (3, 3), (2, 2), (0, 0))
    for tail, more in (("", ()), ("_last", (24,))):
        x, y, mask = h(*shape), h(2, 24, 4, 4), np.zeros((2, 24, 4, 4), np.uint8)
        yield f"max_pool{tail}_forward", x, y, mask, None, *more, g
        yield f"max_pool{tail}_backward", y, mask, x, *more, g
        yield f"average_pool{tail}_forward", x, y, *more, g
        yield f"average_pool{tail}_backward", y, x, *more, g


def _sync_cases():
    for n, c, s in ((50, 64, 1), (3, 8, 49), (40, 3, 1)):
        size, work = Grid(n, c, s), np.zeros(max(1000, fused_norm_work(n, c, s)), np.float32)
        moments, items = Moments(f(c), positive(c)), np.full(1, 2.0 * n * s, np.float32)
        yield "sync_norm_moments", h(n, c, s), f(2 * c + 1), work, size
        gathered, running = positive(3 * (2 * c + 1)), RunningSums(f(c), f(c), f(1))
        yield "sync_norm_statistics", gathered, Moments(f(c), f(c)), f(1), running, BatchNorm(size, 1e-5, 0.9)
        yield "sync_norm_sums", h(n, c, s), h(n, c, s), moments, f(2 * c), work, size
        for scale in (None, f(c)):
            yield "sync_norm_gradient", h(n, c, s), h(n, c, s), h(n, c, s), moments, scale, f(2 * c), items, size


def _transformer_cases():
    for rows, dim in ((50, 64), (3, 1504), (40, 33)):
        norm, work = RowNorm(rows, dim, 1e-5), np.zeros(8000, np.float32)
        for mean in (f(rows), None):
            moments = RowMoments(mean, positive(rows))
            yield "layer_norm_forward", h(rows, dim), Affine(f(dim), f(dim)), h(rows, dim), moments, norm
            for add in (False, True):
                gradients = RowNormGradients(h(rows, dim), AffineGradients(f(dim), f(dim), False, True), add)
                yield "layer_norm_backward", h(rows, dim), f(dim), h(rows, dim), gradients, moments, work, norm
    for tanh in (False, True):
        yield "gelu_forward", h(30, 65), h(30, 65), tanh
        yield "gelu_backward", h(30, 65), h(30, 65), h(30, 65), tanh
    for activation in ("SILU", "GELU", "GELU_TANH", "SIGMOID"):
        yield "gated_unit_forward", h(30, 130), None, h(30, 65), activation, 30, 65
        yield "gated_unit_backward", *(h(30, 64) for _ in range(5)), activation, 1, 30 * 64
    yield (
        "matmul",
        h(4, 16, 24),
        h(4, 24, 8),
        h(4, 16, 8),
        product_plan((4, 16, 24), (4, 24, 8), (4, 16, 8), False, False),
    )
    for interleaved in (False, True):
        yield (
            "rotary_forward",
            h(2, 9, 48),
            h(2, 9, 48),
            None,
            Rotation(18, 9, 2, 24, 16, 1e4, interleaved),
            interleaved,
        )
    size = 40, 24, 16
    for transpose in (False, True):
        w = h(16, 24) if transpose else h(24, 16)
        yield "inner_product_forward", h(40, 16), w, None, h(40, 24), *size, transpose
        for accumulate in (False, True):
            yield "inner_product_backward_data", h(40, 24), w, h(40, 16), *size, transpose, accumulate
        dw = f(16, 24) if transpose else f(24, 16)
        yield "inner_product_backward_weight", h(40, 16), h(40, 24), dw, *size, transpose, transpose
    yield "inner_product_backward_bias", h(40, 24), f(24), 40, 24, True
    for rows, columns in ((40, 24), (3000, 130)):
        work = f(1, columns * reduction_parts(rows, columns, 1))  # two axes: not compared
        yield "inner_product_backward_bias", h(rows, columns), f(columns), rows, columns, True, work
    for columns in (24, 33):
        index = np.array([3, 0, 4, 3, 9, 3], np.float32)
        for b in (None, f(columns)):
            yield "embed_forward", index, f(10, columns), b, h(6, columns), 6, columns, 10
        yield "embed_backward", index, h(6, columns), f(10, columns), True, 6, columns, 10


CASES = [*_cases(), *_sync_cases(), *_transformer_cases()]


def _arrays(argument):
    """The arrays of an argument."""
    if isinstance(argument, (list, tuple)):
        return [array for inside in argument for array in _arrays(inside)]
    return [argument] if hasattr(argument, "shape") else []


def _placed(argument, put):
    """An argument with its arrays on a device."""
    if isinstance(argument, np.ndarray):
        return put(argument)
    if isinstance(argument, (list, tuple)):
        inside = [_placed(a, put) for a in argument]
        return type(argument)(*inside) if hasattr(argument, "_fields") else type(argument)(inside)
    return argument


@pytest.mark.parametrize("case", range(len(CASES)), ids=lambda i: f"{i}-{CASES[i][0]}")
@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_a_gpu_rounds_as_the_cpu(case):
    """But for sums in another order, which may round to the neighbour."""
    cupy, (name, *args) = cuda.require(), CASES[case]
    found = []
    for ops, put, get in ((load_ops("cpu"), np.array, np.array), (load_ops("cuda"), cupy.array, cupy.asnumpy)):
        placed = [_placed(arg, put) for arg in args]
        ops.functions()[name](*placed)
        found.append([get(a) for a in _arrays(placed)])
    for ours, theirs in zip(*found, strict=True):
        if ours.dtype == BFLOAT16:
            ours, theirs = widened_copy(ours), widened_copy(theirs)
            np.testing.assert_allclose(theirs, ours, rtol=2**-6, atol=2**-8)
            # cuBLAS may round a product before it adds it to what is there
            adds = name == "inner_product_backward_data" and args[-1]
            assert (ours != theirs).mean() < (0.4 if adds else 0.01)
        elif ours.dtype.kind == "f" and ours.ndim == 1 and ours.size < 1000:
            np.testing.assert_allclose(theirs, ours, rtol=2e-3, atol=2e-3)
        elif ours.dtype == np.uint8:
            np.testing.assert_array_equal(theirs, ours)


GEOMETRIES = {
    "3x3": geometry(4, 16, 32, (9, 9), 3, pad=1),
    "1x1": geometry(4, 64, 16, (8, 8), 1),
    "1x1, stride 2": geometry(4, 32, 64, (8, 8), 1, stride=2),
    "pictures": geometry(2, 3, 16, (31, 31), 7, stride=2, pad=3),
    "groups": geometry(4, 16, 16, (9, 9), 3, pad=1, group=2),
    "a channel each": geometry(4, 24, 24, (9, 9), 3, pad=1, group=24),
}


@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_a_product_with_a_bias_rounds_at_most_twice_on_a_gpu():
    x, w, b = h(40, 16), h(24, 16), f(24)
    exact = widened_copy(x).astype(np.float64) @ widened_copy(w).T.astype(np.float64)
    put, y = cuda.require().array, cuda.require().array(h(40, 24))
    load_ops("cuda").inner_product.forward(put(x), put(w), put(b), y, 40, 24, 16, False)
    found = widened_copy(cuda.require().asnumpy(y))
    most = 2**-8 * (np.abs(exact) + np.abs(exact + b)) + 1e-5  # half a unit in the last of 8 digits, each time
    assert (np.abs(found - (exact + b)) <= most).all() and (found != half(exact).astype(np.float32)).any()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_scores_in_chunks_on_a_gpu(transpose):
    """Beside the CPU's float32 products of the same values, and the same bits twice."""
    n, classes, width, rows = 70, 333, 48, 32
    rng, cupy, found = np.random.default_rng(7), cuda.require(), []
    x, w = half(rng.standard_normal((n, width))), half(0.3 * rng.standard_normal((classes, width)))
    labels, b = rng.integers(0, classes, n).astype(np.float32), rng.standard_normal(classes).astype(np.float32)
    if transpose:
        w = np.ascontiguousarray(w.T)
    shape = LinearLoss(n, classes, width, transpose, rows, True, int(labels[3]), -1.0)
    for device, put, get in (("cpu", np.array, np.array), *[("cuda", cupy.array, cupy.asnumpy)] * 2):
        loss_of = load_ops(device).linear_softmax_loss
        inputs = LinearLossInputs(put(x), put(labels), put(w), put(b))
        saved = LossRows(put(np.zeros(n, np.float32)), put(np.zeros(1)))
        loss, scores = put(np.zeros(1, np.float32)), put(np.zeros(rows * classes * 3 // 2, np.float32))
        loss_of.forward(inputs, loss, saved, scores, put(np.zeros(n, np.float32)), shape)
        gradients = LinearGradients(*(put(np.zeros_like(a)) for a in (x, w.astype(np.float32), b)))
        loss_of.backward(inputs, put(np.array([0.5], np.float32)), gradients, saved, scores, shape)
        found.append([get(a) for a in (loss, saved.lse, gradients.weight, gradients.bias, gradients.x)])
    ours, theirs, again = found
    for a, b in zip(theirs, again, strict=True):
        np.testing.assert_array_equal(a, b)
    for i, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        a, b = (widened_copy(v) if v.dtype == BFLOAT16 else v for v in (a, b))
        assert np.linalg.norm(a - b) <= (1e-5 if i < 2 else 1e-2) * np.linalg.norm(b)


ATTENTIONS = {  # items, queries, keys, heads, kv_heads, dim, causal, window
    "causal": (2, 200, 200, 3, 3, 64, True, 0),
    "all keys": (2, 96, 160, 2, 2, 32, False, 0),
    "shared keys": (1, 128, 128, 8, 2, 64, True, 0),
    "wide heads": (1, 160, 160, 2, 1, 128, True, 0),
    "a window": (1, 192, 192, 2, 2, 64, True, 40),
    "packed": (2, 160, 160, 4, 2, 64, True, 0),
}


@pytest.mark.parametrize("unwanted", [None, 0, 2])
@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_attention_on_a_gpu(name, unwanted):
    """cuDNN's fused kernels beside float32 products of the same values, and the same bits twice."""
    *sizes, causal, window = ATTENTIONS[name]
    n, t, s, heads, kv_heads, dim = sizes
    packed = name == "packed"
    if packed and unwanted is not None:
        pytest.skip("a packed array has one gradient")
    shape = AttentionShape(*sizes, dim**-0.5, causal, window, 64, packed)
    rng, wide, narrow = np.random.default_rng(4), (n, t, heads * dim), (n, s, kv_heads * dim)
    q, dy = (half(rng.standard_normal(wide)) for _ in range(2))
    k, v = (half(rng.standard_normal(narrow)) for _ in range(2))
    cupy, found = cuda.require(), []
    for device, put, get in (("cpu", np.array, np.array), *[("cuda", cupy.array, cupy.asnumpy)] * 2):
        ops = load_ops(device)
        assert ops.attention_half_plan(shape, np.float32)
        plan = ops.attention.plan(shape, np.float32, True)
        assert (plan.fused is not None) == (device == "cuda")
        forward, backward = (put(np.zeros(size, np.uint8)) for size in (plan.forward_bytes, plan.backward_bytes))
        given = (np.concatenate((q, k, v), axis=2), None, None) if packed else (q, k, v)
        inputs, gradients = (QueryKeyValue(*(None if a is None else put(np.array(a)) for a in given)) for _ in range(2))
        if unwanted is not None:
            gradients = gradients._replace(**{("query", "key", "value")[unwanted]: None})
        y, lse = put(np.zeros_like(q)), put(np.zeros((n, heads, t), np.float32))
        ops.attention.forward(plan, inputs, y, lse, forward, None)
        ops.attention.backward(plan, inputs, y, put(dy), gradients, lse, backward, None)
        found.append([get(a) for a in (y, *(g for g in gradients if g is not None), lse)])
    ours, theirs, again = found
    for a, b in zip(theirs, again, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_allclose(theirs.pop(), ours.pop(), rtol=1e-4, atol=1e-4)
    for a, b in zip(ours, theirs, strict=True):
        a, b = widened_copy(a), widened_copy(b)
        np.testing.assert_allclose(b, a, rtol=2**-5, atol=2**-6 * np.abs(a).max())


@pytest.mark.parametrize("packed, unwanted", [(False, None), (False, 0), (False, 1), (True, None)])
@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_attention_backward_in_parts_on_a_gpu(packed, unwanted, monkeypatch):
    """The same bits as that of all items at once, in workspace for a part of them."""
    shape = AttentionShape(6, 160, 160, 4, 2, 64, 0.125, True, 0, 64, packed)
    rng, (wide, narrow), cupy = np.random.default_rng(4), (4 * 64, 2 * 64), cuda.require()
    widths = (wide + 2 * narrow,) if packed else (wide, narrow, narrow)
    given = [half(rng.standard_normal((6, 160, width))) for width in widths] + [None, None] * packed
    dy, found = cupy.array(half(rng.standard_normal((6, 160, wide)))), []
    for most in (1 << 40, None):
        if most is None:  # two items
            most = -(-found[0][0].fused.backward.workspace_bytes * 2 // 6)
        monkeypatch.setattr(attention_plan, "BACKWARD_BYTES", most)
        monkeypatch.setattr(fused_attention, "_plans", {})
        plan = load_ops("cuda").attention.plan(shape, np.float32, True)
        inputs, gradients = (QueryKeyValue(*(None if a is None else cupy.array(a) for a in given)) for _ in range(2))
        if unwanted is not None:
            gradients = gradients._replace(**{("query", "key")[unwanted]: None})
        y, lse = cupy.zeros_like(dy), cupy.zeros((6, 4, 160), np.float32)
        forward, backward = (cupy.zeros(size, np.uint8) for size in (plan.forward_bytes, plan.backward_bytes))
        load_ops("cuda").attention.forward(plan, inputs, y, lse, forward, None)
        load_ops("cuda").attention.backward(plan, inputs, y, dy, gradients, lse, backward, None)
        found.append((plan, [cupy.asnumpy(g) for g in gradients if g is not None]))
    (whole, one), (parts, other) = found
    assert whole.fused.part == 6 and parts.fused.part == 2 and parts.backward_bytes < whole.backward_bytes
    for a, b in zip(one, other, strict=True):
        assert widened_copy(a).any()
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.gpu
@pytest.mark.skipif(not cuda_available(), reason="no GPU")
def test_convolutions_on_a_gpu(name, last):
    """Each direction as on the CPU, whose sums are those of float32 products of the same values."""
    g = replace(GEOMETRIES[name], channels_last=last)
    kind = "depthwise" if g.depthwise else "conv"
    shapes = [
        (g.batch, g.channels, *g.in_spatial),
        (g.out_channels, g.group_channels, *g.kernel),
        (g.batch, g.out_channels, *g.out_spatial),
    ]
    rng = np.random.default_rng(2)
    x, w, dy = (half(rng.standard_normal(memory_shape(s, last)) / 3) for s in shapes)
    b, y, dx, dw = rng.standard_normal(g.out_channels).astype(np.float32), dy.copy(), x.copy(), np.ones(w.shape, "f4")
    if g.depthwise:
        w = widened_copy(w)
    found = []
    for device, put, get in (("cpu", np.array, np.array), ("cuda", cuda.require().array, cuda.require().asnumpy)):
        ops = load_ops(device)
        fused = {} if g.depthwise else {"bias": True, "relu": True}
        plan = getattr(ops, kind).plan(g, "float32", 1 << 28, **({"half": True} | fused))
        work = put(np.zeros(max(plan.workspace_bytes, 1), np.uint8))
        a = [put(v) for v in (x, w, b, y, dy, dx, dw)]
        getattr(ops, kind).forward(plan, a[0], a[1], a[2], a[3], work, *([True] if fused else []))
        getattr(ops, kind).backward_data(plan, a[4], a[1], a[5], work)
        getattr(ops, kind).backward_filter(plan, a[0], a[4], a[6], work, True)
        adds = ops.conv_add.backward_data_plan(plan) if fused else None
        if adds is not None:
            ops.conv_add.backward_data(plan, a[4], a[1], a[5], put(np.zeros(max(adds, 1), np.uint8)))
        found.append([get(v) for v in (a[3], a[5], a[6])])
    for ours, theirs in zip(*found, strict=True):
        ours, theirs = (widened_copy(v) if v.dtype == BFLOAT16 else v for v in (ours, theirs))
        np.testing.assert_allclose(theirs, ours, rtol=2**-6, atol=2**-6 * np.abs(ours).max())
