"""NetSpec: names, order, keywords and errors of nets written in Python."""

import numpy as np
import pytest

from pycaffe_lms.errors import LayerParamError, UnknownLayerError
from pycaffe_lms.net_spec import Function, NetSpec, Top, assign_proto, param_name_dict, to_proto
from pycaffe_lms.net_spec import layers as L
from pycaffe_lms.net_spec import params as P
from pycaffe_lms.proto import caffe_pb2

pytestmark = pytest.mark.pure

XAVIER = {"type": "xavier"}


def names(net):
    return [layer.name for layer in net.layer]


def input_top():
    return L.Input(input_param={"shape": {"dim": [1, 2]}})


def lenet_layers(data, label):
    """The tops of LeNet after its data layer, by name."""
    conv1 = L.Convolution(data, kernel_size=5, num_output=20, weight_filler=XAVIER)
    pool1 = L.Pooling(conv1, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    conv2 = L.Convolution(pool1, kernel_size=5, num_output=50, weight_filler=XAVIER)
    pool2 = L.Pooling(conv2, kernel_size=2, stride=2, pool=P.Pooling.MAX)
    ip1 = L.InnerProduct(pool2, num_output=500, weight_filler=XAVIER)
    relu1 = L.ReLU(ip1, in_place=True)
    ip2 = L.InnerProduct(relu1, num_output=10, weight_filler=XAVIER)
    loss = L.SoftmaxWithLoss(ip2, label)
    return dict(conv1=conv1, pool1=pool1, conv2=conv2, pool2=pool2, ip1=ip1, relu1=relu1, ip2=ip2, loss=loss)


def dummy_data():
    return L.DummyData(shape=[{"dim": [4, 1, 28, 28]}, {"dim": [4]}], transform_param={"scale": 1 / 255}, ntop=2)


def test_named_lenet():
    n = NetSpec()
    n.data, n.label = dummy_data()
    for name, top in lenet_layers(n.data, n.label).items():
        n[name] = top
    net = n.to_proto()
    assert names(net) == ["data", "conv1", "pool1", "conv2", "pool2", "ip1", "relu1", "ip2", "loss"]
    by_name = {layer.name: layer for layer in net.layer}
    assert list(by_name["data"].top) == ["data", "label"]
    assert by_name["data"].transform_param.scale == pytest.approx(1 / 255)
    assert [list(s.dim) for s in by_name["data"].dummy_data_param.shape] == [[4, 1, 28, 28], [4]]
    assert list(by_name["conv1"].convolution_param.kernel_size) == [5]
    assert by_name["conv1"].convolution_param.weight_filler.type == "xavier"
    assert by_name["pool1"].pooling_param.pool == caffe_pb2.PoolingParameter.MAX
    assert list(by_name["relu1"].bottom) == list(by_name["relu1"].top) == ["ip1"]
    assert list(by_name["ip2"].bottom) == ["ip1"]
    assert list(by_name["loss"].bottom) == ["ip2", "label"]


def test_anonymous_lenet_counts_names_per_type():
    data, label = dummy_data()
    net = to_proto(lenet_layers(data, label)["loss"])
    assert names(net) == [
        "DummyData1",
        "Convolution1",
        "Pooling1",
        "Convolution2",
        "Pooling2",
        "InnerProduct1",
        "ReLU1",
        "InnerProduct2",
        "SoftmaxWithLoss1",
    ]
    assert list(net.layer[0].top) == ["DummyData1", "DummyData2"]
    assert list(net.layer[-1].bottom) == ["InnerProduct2", "DummyData2"]


def test_counters_start_anew_for_each_call():
    top = L.ReLU(input_top())
    assert names(top.to_proto()) == names(top.to_proto()) == ["Input1", "ReLU1"]


def test_automatic_names_avoid_given_ones():
    n = NetSpec()
    n.ReLU1 = L.ReLU(L.ReLU(input_top()))
    assert names(n.to_proto()) == ["Input1", "ReLU2", "ReLU1"]


def test_layer_without_tops():
    n = NetSpec()
    n.data = input_top()
    n.quiet = L.Silence(n.data, ntop=0)
    assert isinstance(n.quiet, Function)
    net = n.to_proto()
    assert names(net) == ["data", "quiet"]
    assert list(net.layer[1].bottom) == ["data"] and not net.layer[1].top
    assert names(to_proto(L.Silence(input_top(), ntop=0))) == ["Input1", "Silence1"]


def test_input_must_be_a_top():
    with pytest.raises(TypeError, match=r"^Silence input 1 is not a Top \(type is <class 'str'>\)$"):
        L.Silence(input_top(), "data", ntop=0)
    with pytest.raises(TypeError, match=r"input 0 is not a Top \(type is <class 'tuple'>\)"):
        L.ReLU(dummy_data())


def test_ntop_gives_a_tuple_and_unpacked_names():
    tops = L.Slice(input_top(), ntop=3, slice_point=[1, 2])
    assert isinstance(tops, tuple) and [t.n for t in tops] == [0, 1, 2]
    assert all(isinstance(t, Top) and t.fn is tops[0].fn for t in tops)
    n = NetSpec()
    n.pair = tops
    with pytest.raises(TypeError, match='"pair" is not a Top'):
        n.to_proto()


def test_order_is_dependencies_then_assignment():
    n = NetSpec()
    a, b = input_top(), input_top()
    n.sum = L.Eltwise(a, b)
    n.b, n.a = b, a
    n.late = L.ReLU(a)
    assert names(n.to_proto()) == ["a", "b", "sum", "late"]


def test_very_deep_anonymous_net():
    top = input_top()
    for _ in range(3000):
        top = L.ReLU(top)
    assert len(top.to_proto().layer) == 3001


def test_shared_dependency_is_written_once():
    x = input_top()
    a, b = L.ReLU(x), L.TanH(x)
    assert names(to_proto(a, b, L.Eltwise(b, a))) == ["Input1", "ReLU1", "TanH1", "Eltwise1"]


def test_in_place_takes_the_first_bottoms():
    n = NetSpec()
    n.x, n.s = input_top(), input_top()
    n.scaled = L.Scale(n.x, n.s, in_place=True)
    layer = n.to_proto().layer[-1]
    assert (layer.name, list(layer.bottom), list(layer.top)) == ("scaled", ["x", "s"], ["x"])
    with pytest.raises(LayerParamError, match="every top needs a bottom"):
        L.Slice(n.x, ntop=2, in_place=True)


def test_name_keyword_names_the_layer_not_the_blob():
    n = NetSpec()
    n.x = L.Input(name="source", shape={"dim": [2]})
    layer = n.to_proto().layer[0]
    assert (layer.name, list(layer.top)) == ("source", ["x"])


def test_netspec_as_mapping_and_as_object():
    n = NetSpec()
    n["res2a/conv"] = x = input_top()
    assert n["res2a/conv"] is x and "res2a/conv" in n and list(n.tops) == ["res2a/conv"]
    n.y = x
    assert "y" in dir(n)
    del n.y
    del n["res2a/conv"]
    assert not n.tops
    with pytest.raises(AttributeError, match="no top"):
        n.missing  # noqa: B018
    with pytest.raises(AttributeError, match="no top"):
        del n.missing


@pytest.mark.parametrize(
    ("type_name", "keywords", "message", "field"),
    [
        ("Deconvolution", {"num_output": 3}, "convolution_param", "num_output"),
        ("Im2col", {"stride": 2}, "convolution_param", "stride"),
        ("LSTM", {"num_output": 3}, "recurrent_param", "num_output"),
        ("RNN", {"expose_hidden": True}, "recurrent_param", "expose_hidden"),
        ("SoftmaxWithLoss", {"ignore_label": 255}, "loss_param", "ignore_label"),
        ("SoftmaxWithLoss", {"axis": 2}, "softmax_param", "axis"),
        ("InfogainLoss", {"axis": 2}, "infogain_loss_param", "axis"),
        ("InfogainLoss", {"normalization": "FULL"}, "loss_param", "normalization"),
        ("SigmoidCrossEntropyLoss", {"normalize": True}, "loss_param", "normalize"),
        ("HingeLoss", {"norm": P.HingeLoss.L2}, "hinge_loss_param", "norm"),
        ("ArgMax", {"top_k": 2}, "argmax_param", "top_k"),
        ("Python", {"param_str": "{}"}, "python_param", "param_str"),
    ],
)
def test_keyword_finds_its_message(type_name, keywords, message, field):
    layer = to_proto(getattr(L, type_name)(input_top(), **keywords)).layer[-1]
    assert layer.HasField(message)
    filled = {f.name for f, _ in getattr(layer, message).ListFields()}
    assert filled == {field}


def test_layer_fields_are_the_fallback():
    top = L.SoftmaxWithLoss(input_top(), loss_weight=0.5, propagate_down=[True, False], include={"phase": "TEST"})
    layer = top.to_proto().layer[-1]
    assert list(layer.loss_weight) == [0.5]
    assert list(layer.propagate_down) == [True, False]
    assert layer.include[0].phase == caffe_pb2.TEST
    assert names(to_proto(L.Silence(input_top(), ntop=0, name="mine")))[-1] == "mine"


def test_explicit_messages_still_work():
    param = [{"lr_mult": 1}, {"lr_mult": 2, "decay_mult": 0}]
    top = L.Deconvolution(input_top(), convolution_param={"num_output": 4, "bias_term": False}, param=param)
    layer = top.to_proto().layer[-1]
    assert layer.convolution_param.num_output == 4 and not layer.convolution_param.bias_term
    assert [(p.lr_mult, p.decay_mult) for p in layer.param] == [(1, 1), (2, 0)]


def test_unknown_keyword_names_type_keyword_and_near_names():
    with pytest.raises(LayerParamError, match=r'L\.Convolution.*no keyword "num_outputs"; did you mean "num_output"'):
        L.Convolution(input_top(), num_outputs=3)
    with pytest.raises(LayerParamError, match=r'no keyword "convolutoin_param"; did you mean "convolution_param"'):
        L.Convolution(input_top(), convolutoin_param={})
    with pytest.raises(LayerParamError, match=r'no keyword "zzz".*its messages: convolution_param'):
        L.Deconvolution(input_top(), zzz=3)


def test_wrong_values_name_the_layer():
    n = NetSpec()
    n.x = input_top()
    n.ip = L.InnerProduct(n.x, num_output="ten")
    with pytest.raises(LayerParamError, match=r'layer "ip" \(InnerProduct\): keyword "num_output"'):
        n.to_proto()
    n.ip = L.InnerProduct(n.x, weight_filler={"typ": "xavier"})
    with pytest.raises(LayerParamError, match=r'layer "ip".*FillerParameter has no field "typ"; did you mean "type"'):
        n.to_proto()
    n.ip = L.InnerProduct(n.x, weight_filler="xavier")
    with pytest.raises(LayerParamError, match="takes a dict of FillerParameter fields"):
        n.to_proto()
    n.ip = L.Pooling(n.x, pool="MAXX")
    with pytest.raises(LayerParamError, match='"pool" has no value "MAXX"; did you mean "MAX"'):
        n.to_proto()


def test_assign_proto():
    layer = caffe_pb2.LayerParameter()
    assign_proto(layer, "name", "x")
    assign_proto(layer, "bottom", "a")
    assign_proto(layer, "bottom", ("b", "c"))
    assign_proto(layer, "loss_weight", np.float32(0.25))
    assign_proto(layer, "param", {"lr_mult": 3})
    assign_proto(layer, "param", [caffe_pb2.ParamSpec(name="w"), {"decay_mult": np.float64(0)}])
    assign_proto(layer, "input_param", {"shape": [{"dim": np.array([2, 3])}, {"dim": [np.int64(4), 5]}]})
    assign_proto(layer, "pooling_param", {"pool": "AVE", "kernel_size": np.int32(3)})
    assign_proto(layer, "convolution_param", caffe_pb2.ConvolutionParameter(num_output=7))
    assign_proto(layer, "relu_param", {})
    assert layer.name == "x" and list(layer.bottom) == ["a", "b", "c"] and list(layer.loss_weight) == [0.25]
    assert [p.lr_mult for p in layer.param] == [3, 1, 1] and layer.param[1].name == "w"
    assert [list(s.dim) for s in layer.input_param.shape] == [[2, 3], [4, 5]]
    assert layer.pooling_param.pool == caffe_pb2.PoolingParameter.AVE and layer.pooling_param.kernel_size == 3
    assert layer.convolution_param.num_output == 7 and layer.HasField("relu_param")
    with pytest.raises(LayerParamError, match='LayerParameter has no field "nmae"; did you mean "name"'):
        assign_proto(layer, "nmae", "y")


def test_parameters_are_the_messages_constants():
    assert (P.Pooling.MAX, P.Data.LMDB, P.Loss.VALID, P.Eltwise.SUM) == (0, 1, 1, 1)
    with pytest.raises(AttributeError, match='no message "PolingParameter"; did you mean "Pooling"'):
        P.Poling  # noqa: B018


def test_param_name_dict():
    known = param_name_dict()
    assert known["Convolution"] == "convolution" and known["ArgMax"] == "argmax" and known["LRN"] == "lrn"
    assert known["Transformation"] == "transform" and "Deconvolution" not in known


def test_layers_has_no_private_names():
    with pytest.raises(AttributeError):
        L._repr_html_  # noqa: B018


def test_an_unknown_type_is_said_at_once_with_what_is_near():
    with pytest.raises(UnknownLayerError, match='no layer type "Convolutionn"; did you mean "Convolution"'):
        L.Convolutionn(input_top(), num_output=1)
    assert hasattr(L, "Convolution") and not hasattr(L, "Convolutionn")


def test_a_type_of_another_caffe_is_written_by_function():
    top = Function("MultiBoxLoss", [input_top()], {"loss_weight": 2}).tops[0]
    assert [(x.type, list(x.loss_weight)) for x in to_proto(top).layer] == [("Input", []), ("MultiBoxLoss", [2.0])]
