"""Coordinate maps: layers against brute force, chains by arithmetic, crops, and what has no map."""

from __future__ import annotations

import numpy as np
import pytest

from pycaffe_lms import coord_map as cm
from pycaffe_lms import layers as L
from pycaffe_lms import params as P
from pycaffe_lms.errors import GraphError, LayerParamError
from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.proto import caffe_pb2

pytestmark = pytest.mark.pure


def source(size=(2, 1, 100, 100)):
    return L.Input(shape={"dim": list(size)})


def fcn(ks=3, stride=1, pad=0, pool=2, dilation=1, up=2):
    """conv -> relu -> pool -> deconv, as segmentation nets go down and up again."""
    n = NetSpec()
    n.data = source()
    n.conv = L.Convolution(n.data, num_output=4, kernel_size=ks, stride=stride, pad=pad, dilation=dilation)
    n.relu = L.ReLU(n.conv, in_place=True)
    n.pool = L.Pooling(n.relu, pool=P.Pooling.MAX, kernel_size=pool, stride=pool)
    n.deconv = L.Deconvolution(n.pool, num_output=4, kernel_size=pool, stride=up)
    return n


def middle_by_hand(kernel, stride, pad, dilation, x):
    """Return the middle of output x's window in the input, from the list of pixels it reads."""
    return np.mean([x * stride - pad + k * dilation for k in range(kernel)])


@pytest.mark.parametrize("window", [(3, 1, 0, 1), (5, 2, 2, 1), (2, 2, 0, 1), (4, 3, 1, 2)], ids=str)
@pytest.mark.parametrize("kind", [L.Convolution, L.Im2col])
def test_a_window_maps_its_middle(kind, window):
    kernel, stride, pad, dilation = window
    top = kind(source(), kernel_size=kernel, stride=stride, pad=pad, dilation=dilation)
    axis, scale, shift = cm.coord_map(top.fn)
    assert axis == 1
    for x in (0, 3, 10):  # the input's coordinate goes to x
        assert scale * middle_by_hand(*window, x) + shift == pytest.approx(x)


def test_pooling_and_its_explicit_messages():
    plain = L.Pooling(source(), kernel_size=3, stride=2, pad=1)
    spelled = L.Pooling(source(), pooling_param={"kernel_size": 3, "stride": 2, "pad": 1})
    message = L.Pooling(source(), pooling_param=caffe_pb2.PoolingParameter(kernel_size=3, stride=2, pad=1))
    for top in (plain, spelled, message):
        axis, scale, shift = cm.coord_map(top.fn)
        assert (axis, scale, shift) == (1, 0.5, 0)


def test_deconvolution_is_the_convolution_backwards():
    deconv = L.Deconvolution(source(), convolution_param={"num_output": 1, "kernel_size": 4, "stride": 2, "pad": 1})
    conv = L.Convolution(source(), kernel_size=4, stride=2, pad=1)
    assert cm.coord_map(deconv.fn) == cm.inverse(cm.coord_map(conv.fn)) == (1, 2, 0.5)


@pytest.mark.parametrize("kind", cm.PASS_THROUGH_LAYERS)
def test_pointwise_layers_change_no_coordinates(kind):
    assert cm.coord_map(getattr(L, kind)(source()).fn) == (None, 1, 0)


def test_crop_shifts():
    top = L.Crop(source(), source(), axis=2, offset=[3, 5])
    axis, scale, shift = cm.coord_map(top.fn)
    assert (axis, scale, list(shift)) == (1, 1, [-3, -5])


def test_rectangles_have_one_value_per_axis():
    top = L.Convolution(source(), kernel_size=[3, 5], stride=[1, 2], pad=[0, 2])
    _, scale, shift = cm.coord_map(top.fn)
    assert list(scale) == [1, 0.5] and list(shift) == [-1, 0]


def test_chains_multiply():
    n = fcn(ks=3, pad=1, pool=2)
    # The pool's window of 2 has its middle between two pixels: (0 - 0.5) / 2.
    axis, scale, shift = cm.coord_map_from_to(n.pool, n.data)
    assert (axis, scale, shift) == (1, 2, 0.5)
    assert cm.coord_map_from_to(n.data, n.pool) == (1, 0.5, -0.25)
    # Down and up again ends where it began.
    assert cm.coord_map_from_to(n.deconv, n.data) == (1, 1, 0)
    assert cm.coord_map_from_to(n.relu, n.conv) == (None, 1, 0)


def test_blobs_of_two_branches_meet_at_their_ancestor():
    n = fcn()
    n.left = L.Convolution(n.pool, kernel_size=1)
    n.right = L.Convolution(n.pool, kernel_size=3)
    assert cm.coord_map_from_to(n.left, n.right) == (1, 1, -1)
    n.sum = L.Eltwise(n.left, n.left)
    assert cm.coord_map_from_to(n.sum, n.pool)[1:] == (1, 0)


def test_very_deep_and_very_wide_nets():
    top = start = source()
    for _ in range(400):  # ways to the start: 2^400
        top = L.Eltwise(L.ReLU(top), L.Convolution(top, kernel_size=3, pad=1))
    assert cm.coord_map_from_to(top, start) == (None, 1, 0) or cm.coord_map_from_to(top, start) == (1, 1, 0)


# -- crop --------------------------------------------------------------------------------------------------------------
def test_crop_aligns():
    n = fcn(ks=3, pad=10, pool=2)
    n.cropped = cm.crop(n.deconv, n.data)
    layer = n.to_proto().layer[-1]
    assert layer.type == "Crop" and list(layer.bottom) == ["deconv", "data"]
    assert layer.crop_param.axis == 2 and list(layer.crop_param.offset) == [9]
    # Cut once more, it lies where it should: nothing is left to cut, and its second bottom is no ancestor.
    assert cm.coord_map_from_to(n.cropped, n.data)[1:] == (1, 0)
    assert list(cm.crop(n.cropped, n.data).fn.params["crop_param"]["offset"]) == [0]


def test_crop_of_three_spatial_axes():
    conv = L.Convolution(data := source((1, 1, 9, 9, 9)), kernel_size=[3, 5, 1], pad=[2, 4, 3], axis=1)
    assert cm.crop(conv, data).fn.params["crop_param"] == {"axis": 2, "offset": [1, 2, 3]}


def test_crop_of_tops_that_nothing_lies_between():
    data = source()
    assert cm.crop(L.ReLU(data), data).fn.params["crop_param"] == {"axis": 2, "offset": [0]}


def test_what_cannot_be_cropped():
    n = fcn(ks=3)
    with pytest.raises(AssertionError, match="cannot crop negative offset"):
        cm.crop(n.deconv, n.data)
    with pytest.raises(AssertionError, match="scale mismatch on crop"):
        cm.crop(n.pool, n.data)
    with pytest.raises(AssertionError, match="cannot crop noninteger offset"):
        n.even = L.Convolution(n.data, kernel_size=2, pad=1)
        cm.crop(n.even, n.data)
    with pytest.raises(AssertionError, match=r"does not support legacy _h/_w params: kernel_h"):
        cm.crop(L.Convolution(n.data, kernel_h=3, kernel_w=3), n.data)
    with pytest.raises(AssertionError, match="stride_w"):
        cm.crop(L.Convolution(n.data, convolution_param={"kernel_size": 3, "stride_w": 2}), n.data)
    with pytest.raises(LayerParamError, match="no kernel_size"):
        cm.coord_map(L.Pooling(n.data, global_pooling=True).fn)


def test_what_has_no_map():
    n = fcn()
    with pytest.raises(cm.UndefinedMapException, match="InnerProduct"):
        cm.coord_map(L.InnerProduct(n.data).fn)
    n.ip = L.InnerProduct(n.data, num_output=3)
    with pytest.raises(RuntimeError, match="are they connected by spatial layers"):
        cm.coord_map_from_to(n.ip, n.data)
    with pytest.raises(GraphError, match="Could not compute map between tops"):
        cm.crop(source(), source())


def test_axes_must_agree():
    data = source((1, 1, 9, 9, 9))
    planes = L.Convolution(L.Convolution(data, kernel_size=3, axis=2), kernel_size=3, axis=1)
    with pytest.raises(cm.AxisMismatchException, match="axis 1 does not join one over axis 2"):
        cm.coord_map_from_to(planes, data)


def _residual(blocks=1):
    """data -> conv -> relu -> conv, plus data: `blocks` times."""
    top = data = source()
    for _ in range(blocks):
        inner = L.ReLU(L.Convolution(top, num_output=1, kernel_size=3, pad=1))
        top = L.Eltwise(top, L.Convolution(inner, num_output=1, kernel_size=3, pad=1))
    return data, top


def test_a_residual_block_has_its_convolutions_axis():
    """BVLC's coord_map gives (1, 1.0, 0.0) from the sum to the data, whichever bottom of the sum comes first."""
    data, top = _residual()
    swapped = L.Eltwise(*reversed(top.fn.inputs))
    for start, total in ((data, top), (data, swapped), (data, L.ReLU(top)), _residual(3)):
        assert cm.coord_map_from_to(total, start) == (1, 1, 0) == cm.coord_map_from_to(start, total)
    assert cm.coord_map_from_to(L.ReLU(data), L.Sigmoid(data)) == (None, 1, 0)  # no way has an axis


def test_maps_behind_the_common_ancestor_are_not_needed():
    """The axes of a Crop above it and of a convolution below it differ, which has no effect."""
    crop = L.Crop(source(), source(), crop_param={"axis": 3, "offset": 1})
    conv = L.Convolution(crop, num_output=1, kernel_size=1)
    assert cm.coord_map_from_to(crop, conv) == (1, 1, 0)


def test_many_residual_blocks_take_steps_not_ways():
    """200 blocks have 2^200 paths."""
    data, top = _residual(200)
    assert cm.coord_map_from_to(top, data) == (1, 1, 0)
