"""Every layer that takes channels-last arrays computes from them what it computes from plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms.backend import cuda, cuda_available
from pycaffe_lms.ops.axes import around_axis, memory_axis, memory_shape

from .all_cases import as_params, device_cases
from .cases import Case
from .harness import CudaArrays, HostArrays, LayerBench

POINTWISE = (
    *("AbsVal", "BNLL", "Clip", "ELU", "Exp", "Log", "Power", "Sigmoid", "Swish", "TanH", "Threshold"),
    *("ReLU", "ReLU6", "Eltwise", "Split", "Silence"),
)
EXACT = {*POINTWISE, "Concat", "Slice", "Crop", "Pooling"}  # the same additions in the same order
TYPES = {*EXACT, "BatchNorm", "BN", "Scale", "Bias", "PReLU", "LRN"}


def _pool(fields, shape, n_top=1):
    return Case("Pooling", f"pooling_param {{ {fields} }}", (shape,), n_top=n_top)


# numbers of channels that vectors of 16 bytes divide and do not, more of them than a block holds, long sums
EXTRA = [
    *(
        _pool(f"pool: {method} {fields}", shape)
        for method in ("MAX", "AVE")
        for fields, shape in (
            ("kernel_size: 3 stride: 2", (2, 8, 9, 8)),
            ("kernel_size: 3 stride: 1 pad: 1", (2, 12, 5, 7)),
            ("kernel_size: 3 stride: 2 pad: 1", (1, 6, 7, 7)),
            ("kernel_size: 2 stride: 3", (2, 4, 6, 7)),
            ("kernel_h: 1 kernel_w: 9 stride_h: 1 stride_w: 2 pad_h: 0 pad_w: 3", (1, 4, 3, 14)),
            ("kernel_size: 9 stride: 2 pad: 4", (1, 4, 12, 11)),
            ("global_pooling: true", (3, 20, 7, 7)),
            ("global_pooling: true", (1, 4, 16, 17)),  # more places than a byte counts
        )
    ),
    _pool("kernel_size: 3 stride: 2", (2, 4, 7, 7), n_top=2),
    _pool("kernel_size: 16 stride: 2", (1, 4, 17, 19), n_top=2),
    Case("LRN", "lrn_param { local_size: 5 alpha: 0.3 }", ((2, 96, 3, 3),)),
    Case("LRN", "lrn_param { local_size: 3 alpha: 0.3 beta: 0.6 k: 2 }", ((2, 8, 9, 9),)),
    Case("LRN", "lrn_param { local_size: 63 alpha: 3 }", ((1, 70, 3, 2),)),
    Case("LRN", "lrn_param { local_size: 21 alpha: 3 }", ((1, 300, 3, 1),)),
    Case("Concat", "", ((2, 8, 3, 5), (2, 4, 3, 5), (2, 12, 3, 5))),
    Case("Concat", "concat_param { axis: 3 }", ((2, 4, 3, 5), (2, 4, 3, 2))),
    Case("Concat", "concat_param { axis: 0 }", ((2, 3, 3, 5), (1, 3, 3, 5))),
    Case("Slice", "slice_param { slice_point: 4 slice_point: 5 }", ((2, 12, 3, 5),), n_top=3),
    Case("Slice", "slice_param { axis: 2 }", ((2, 3, 4, 5),), n_top=2),
    Case("Crop", "crop_param { offset: 1 }", ((2, 8, 7, 9), (2, 8, 5, 6))),
    Case("Crop", "crop_param { axis: 1 offset: 4 offset: 2 offset: 0 }", ((2, 12, 7, 9), (2, 4, 5, 9))),
    Case("Eltwise", "eltwise_param { operation: MAX }", ((2, 8, 3, 5),) * 3),
    Case("Scale", "scale_param { bias_term: true }", ((3, 8, 20, 20),)),
    Case("Scale", "scale_param { num_axes: 0 bias_term: true }", ((2, 8, 3, 3),)),
    Case("Scale", "scale_param { bias_term: true }", ((2, 260, 4, 3),), in_place=False),
    Case("Bias", "", ((2, 7, 3, 3, 2),)),
    Case("BatchNorm", "", ((4, 8, 20, 20),)),
    Case("BatchNorm", "", ((2, 260, 4, 3),)),
    Case("BatchNorm", "batch_norm_param { scale_bias: true }", ((4, 12, 9, 9),)),
    Case("BatchNorm", "batch_norm_param { scale_bias: true }", ((2, 3, 4, 4),), phase=1),
    Case("PReLU", "", ((2, 8, 9, 9),)),
    Case("Split", "", ((2, 3, 4, 5),), n_top=3),
    Case("Silence", "", ((2, 3, 4, 5), (3, 2)), n_top=0),
]


class Last:
    """A device whose arrays of four or more axes have their channels behind the other axes. kept: shapes that stay."""

    def __init__(self, device, kept):
        self.device, self.kept, self.ops = device, kept, device.ops

    def put(self, array):
        moves = np.ndim(array) >= 4 and np.shape(array) not in self.kept
        return self.device.put(np.moveaxis(array, 1, -1) if moves else array)

    def get(self, array):
        moves = array.ndim >= 4 and array.shape not in self.kept
        return np.moveaxis(self.device.get(array), -1, 1) if moves else self.device.get(array)


class LastBench(LayerBench):
    """A bench that shows plain arrays, while its layer sees them channels-last."""

    def reshape(self, bottom_shapes):
        self.layer.update_context(channels_last=True)
        super().reshape(bottom_shapes)

    def _moved(self, call, *args, **options):
        plain, self.device = self.device, Last(self.device, {p.shape for p in self.params})
        try:
            return call(*args, **options)
        finally:
            self.device = plain

    def forward(self, bottoms):
        return self._moved(super().forward, bottoms)

    def backward(self, top_diffs, **options):
        return self._moved(super().backward, top_diffs, **options)


def _bench(case, dtype, device, last):
    options = {"n_top": case.n_top, "dtype": dtype, "phase": case.phase, "in_place": case.in_place, "device": device}
    return (LastBench if last else LayerBench)(case.type, case.text, case.shapes, **options)


def _takes(case):
    bench = _bench(case, np.float32, HostArrays(), False)
    shared = bench.layer.shares()  # one array with two names: nothing to compute
    return not shared and bench.layer.takes_channels_last(bench.bottom_shapes, bench.top_shapes, bench.device.ops)


CASES = [(n, c) for n, c in device_cases() if c.type in TYPES and len(c.shapes[0]) >= 4 and _takes(c)]
CASES += [(f"extra{i}-{c.type}", c) for i, c in enumerate(EXTRA)]
every_case = pytest.mark.parametrize("case", as_params(CASES))


def results(case, dtype, device, last):
    """Return every array that forward and backward compute; parameters' gradients are added to given ones."""
    bench = _bench(case, dtype, device, last)
    bench.params = [np.abs(p) + np.asarray(0.25, dtype) for p in bench.params]  # a running variance is positive
    start = [np.array(p) for p in bench.params]
    rng = np.random.default_rng(case.seed)
    tops = bench.forward(case.make_bottoms(rng))
    found = [] if bench.layer.shares_data() else [*tops]
    found += [np.array(p) for p in bench.params]
    if any(bench.propagate_down) or any(bench.param_propagate):
        diffs = [rng.normal(size=s) for s in bench.top_shapes]
        bottoms, params = bench.backward(diffs)
        found += [g for g in (*bottoms, *params) if g is not None]
        if params:
            bench.forward(case.make_bottoms(np.random.default_rng(case.seed)))
            added = bench.backward(diffs, accumulate=[True] * len(start), param_diffs=start)[1]
            found += [g for g in added if g is not None]
    return found


def close(found, expected, tolerance):
    assert len(found) == len(expected)
    for i, (a, b) in enumerate(zip(found, expected, strict=True)):
        scale = max(1.0, float(np.abs(b).max(initial=0)))
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale, err_msg=f"array {i}")


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@every_case
def test_equals_the_plain_layer(case, dtype):
    plain, last = (results(case, dtype, HostArrays(), last) for last in (False, True))
    close(last, plain, 0 if case.type in EXACT else 1e-12 if dtype is np.float64 else 1e-4)


def test_there_is_a_case_for_every_type():
    assert {case.type for _, case in CASES} == TYPES


@pytest.mark.parametrize(
    "layer, text, shapes",
    [
        ("Dropout", "", [(2, 3, 4, 5)]),  # random numbers belong to places
        ("Softmax", "", [(2, 3, 4, 5)]),
        ("Flatten", "", [(2, 3, 4, 5)]),
        ("InnerProduct", "inner_product_param { num_output: 2 }", [(2, 3, 4, 5)]),
        ("Scale", "scale_param { axis: 2 }", [(2, 3, 4, 5)]),
        ("Scale", "scale_param { num_axes: 2 }", [(2, 3, 4, 5)]),
        ("Scale", "scale_param { axis: 0 }", [(2, 3, 4, 5), (2, 3)]),
        ("Bias", "bias_param { axis: 3 }", [(2, 3, 4, 5)]),
        ("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }", [(2, 3, 4, 5)]),
        ("LRN", "lrn_param { local_size: 65 }", [(2, 90, 4, 5)]),
        ("Pooling", "pooling_param { pool: STOCHASTIC kernel_size: 2 }", [(2, 3, 4, 5)]),
        ("Pooling", "pooling_param { kernel_size: 2 }", [(2, 3, 4, 5, 6)]),
        ("Pooling", "pooling_param { kernel_size: 2 }", [(2, 3, 4)]),
    ],
)
def test_what_is_refused(layer, text, shapes):
    bench = LayerBench(layer, text, shapes)
    assert not bench.layer.takes_channels_last(bench.bottom_shapes, bench.top_shapes, bench.device.ops)


def test_a_wide_window_over_few_channels_is_narrow():
    bench = LayerBench("LRN", "lrn_param { local_size: 65 }", [(2, 32, 1, 1)])
    assert bench.layer.takes_channels_last(bench.bottom_shapes, bench.top_shapes, bench.device.ops)


def test_ties_and_nan_choose_as_plain_pooling_does():
    nan = np.nan
    x = np.tile(np.array([[[[1, 3, nan, nan, nan, 2], [3, 3, nan, nan, 1, nan]]]]), (1, 4, 1, 1))
    case = _pool("kernel_size: 2 stride: 2", x.shape, n_top=2)
    benches = [_bench(case, np.float32, HostArrays(), last) for last in (False, True)]
    for ours, theirs in zip(*(b.forward([x]) for b in benches), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    ours, theirs = (b.backward([np.ones((1, 4, 1, 3)), None])[0][0] for b in benches)
    np.testing.assert_array_equal(ours, theirs)


def test_a_small_window_saves_bytes():
    layer = _bench(_pool("kernel_size: 3", (1, 4, 8, 8)), np.float32, HostArrays(), True).layer
    assert layer.scratches["mask"].dtype == np.uint8
    layer = _bench(_pool("kernel_size: 16", (1, 4, 17, 17)), np.float32, HostArrays(), True).layer
    assert layer.scratches["mask"].dtype == np.uint16


def test_where_axes_lie():
    shape = (2, 3, 4, 5)
    assert memory_shape(shape, True) == (2, 4, 5, 3)
    assert memory_shape(shape, False) == shape
    assert memory_shape((2, 3, 4), True) == (2, 3, 4)
    for axis in range(4):
        assert memory_shape(shape, True)[memory_axis(axis, 4, True)] == shape[axis]
        assert memory_axis(axis, 4, False) == axis
    assert around_axis(shape, 1, True) == (40, 3, 1)
    assert around_axis(shape, 1, False) == (2, 3, 20)
    assert around_axis((2, 3), 1, True) == (2, 3, 1)


# -- on a GPU ------------------------------------------------------------------------------------------------------
gpu_only = [pytest.mark.gpu, pytest.mark.skipif(not cuda_available(), reason="no GPU")]


@pytest.fixture(scope="module")
def gpu():
    cuda.set_math("fp32")
    yield CudaArrays()
    cuda.set_math("tf32")


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("case", [pytest.param(*p.values, id=p.id, marks=gpu_only) for p in as_params(CASES)])
def test_gpu_equals_cpu_and_the_plain_gpu_layer(case, dtype, gpu):
    found = results(case, dtype, gpu, True)
    close(found, results(case, dtype, HostArrays(), False), 1e-9 if dtype is np.float64 else 2e-4)
    exact = case.type in EXACT and "AVE" not in case.text  # a plane's average is added up by many threads there
    close(found, results(case, dtype, gpu, False), 0 if exact else 1e-11 if dtype is np.float64 else 1e-4)
