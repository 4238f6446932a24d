"""caffe.Net as pycaffe users know it: constructors, names, views, weights in and out."""

from __future__ import annotations

import numpy as np
import pytest

import pycaffe_lms as caffe
from pycaffe_lms.errors import UsageError, WeightsError
from pycaffe_lms.net import weights
from pycaffe_lms.proto import caffe_pb2

from .nets import conv, inputs, ip, layer, loss, relu

TEXT = (
    inputs(data=(4, 3, 6, 6), label=(4,))
    + conv("conv", "data", 2)
    + relu("relu", "conv")
    + ip("ip", "conv", 3)
    + loss("ip", text="loss_weight: 2")
    + layer("prob", "Softmax", "ip")
)
X = np.random.default_rng(0).normal(size=(4, 3, 6, 6)).astype(np.float32)
FED = {"data": X, "label": np.array([0, 1, 2, 0])}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def net(file):
    caffe.set_random_seed(3)
    return caffe.Net(file, caffe.TRAIN)


# -- constructors ----------------------------------------------------------------------------------------------------
STATES = (
    inputs(data=(1, 1))
    + relu("always", "data", "a")
    + relu("high", "data", "b", "include { min_level: 2 }")
    + relu("deep", "data", "c", 'include { stage: "deep" }')
    + relu("test", "data", "d", "include { phase: TEST }")
)


def test_phase_level_stages(tmp_path):
    """Arguments replace the file's phase and level and add to its stages."""
    path = tmp_path / "net.prototxt"
    path.write_text('state { phase: TEST level: 5 stage: "other" }\n' + STATES)

    def outputs(*args, **kwargs):
        return caffe.Net(str(path), *args, **kwargs).outputs

    assert outputs(caffe.TRAIN) == ["a"]
    assert outputs(caffe.TEST) == ["a", "d"]
    assert outputs(caffe.TRAIN, 2) == outputs(caffe.TRAIN, level=2) == ["a", "b"]
    assert outputs(caffe.TRAIN, 0, ["deep"]) == outputs(phase=caffe.TRAIN, stages=["deep", "x"]) == ["a", "c"]
    assert outputs(caffe.TEST, stages=["deep"], level=3) == ["a", "b", "c", "d"]


def test_the_older_order_of_arguments(file, net, tmp_path, caplog):
    path = str(tmp_path / "w.caffemodel")
    net.save(path)
    named = caffe.Net(file, caffe.TEST, weights=path)
    older = caffe.Net(file, path, caffe.TEST)
    assert "deprecated" in caplog.text
    for each in (named, older):
        assert each.phase == caffe.TEST
        assert (each.params["ip"][0].data == net.params["ip"][0].data).all()


def test_missing_files(file, tmp_path):
    gone = str(tmp_path / "gone")
    for call in (
        lambda: caffe.Net(gone, caffe.TEST),
        lambda: caffe.Net(file, caffe.TEST, weights=gone),
        lambda: caffe.Net(file, gone, caffe.TEST),
        lambda: caffe.Net(file, caffe.TEST).copy_from(gone),
        lambda: caffe.SGDSolver(gone),
        lambda: caffe.get_solver(gone),
    ):
        with pytest.raises(RuntimeError, match=f"Could not open file {gone}"):
            call()


def test_a_net_needs_a_phase(file):
    with pytest.raises(UsageError, match="phase"):
        caffe.Net(file)


# -- names -----------------------------------------------------------------------------------------------------------
def test_names(net):
    split = [f"ip_ip_0_split_{k}" for k in (0, 1)]
    assert list(net.blobs) == ["data", "label", "conv", "ip", *split, "loss", "prob"]
    assert net.inputs == ["data", "label"] and net.outputs == ["loss", "prob"]
    assert list(net.params) == ["conv", "ip"] and [b.shape for b in net.params["ip"]] == [(3, 72), (3,)]
    assert dict(net.top_names)["relu"] == ["conv"] and dict(net.bottom_names)["loss"] == [split[0], "label"]
    assert dict(net.top_names)["ip_ip_0_split"] == split
    layers = ["data", "label", "conv", "relu", "ip", "ip_ip_0_split", "loss", "prob"]
    assert list(net.layer_dict) == list(net.top_names) == list(net.bottom_names) == layers
    assert [x.type for x in net.layers] == [
        "Input",
        "Input",
        "Convolution",
        "ReLU",
        "InnerProduct",
        "Split",
        "SoftmaxWithLoss",
        "Softmax",
    ]
    assert net.layer_dict["conv"] is net.layers[2]
    assert net.layers[4].blobs[0].data is not None and len(net.layers[4].blobs) == 2 and not net.layers[3].blobs


def test_blob_loss_weights(net):
    assert dict(net.blob_loss_weights) == {name: 2.0 if name == "loss" else 0.0 for name in net.blobs}


def test_layer_type_list():
    names = caffe.layer_type_list()
    assert names == sorted(names) and {"Convolution", "Split", "Data"} <= set(names)


# -- forward and backward --------------------------------------------------------------------------------------------
def test_forward_returns_views_of_the_outputs(net):
    out = net.forward(**FED)
    assert list(out) == ["loss", "prob"]
    assert np.shares_memory(out["prob"], net.blobs["prob"].data)
    np.testing.assert_allclose(out["prob"].sum(axis=1), 1, rtol=1e-6)
    rows = out["prob"][np.arange(4), FED["label"]]
    np.testing.assert_allclose(out["loss"], -np.log(rows).mean(), rtol=1e-6)
    assert out["loss"].shape == () and out["prob"].dtype == np.float32


def test_forward_with_further_blobs_and_part_of_the_net(net):
    out = net.forward(blobs=["conv", "prob"], **FED)
    assert list(out) == ["loss", "prob", "conv"]
    assert list(net.forward(end="conv")) == ["conv"]
    assert list(net.forward(["ip"], end="conv")) == ["conv", "ip"]
    first = net.forward()["prob"].copy()
    net.blobs["ip"].data[...] = 0
    assert (net.forward(start="prob")["prob"] == np.float32(1 / 3)).all()
    assert (net.forward(start="ip")["prob"] == first).all()


@pytest.mark.parametrize("given", [{"data": X}, {**FED, "more": X}, {"dat": X, "label": X}])
def test_forward_wants_exactly_the_inputs(net, given):
    with pytest.raises(UsageError) as caught:
        net.forward(**given)
    assert caught.value.message == "Input blob arguments do not match net inputs."


@pytest.mark.parametrize("rows", [0, 3, 5])
def test_forward_wants_the_batch_size(net, rows):
    with pytest.raises(UsageError) as caught:
        net.forward(data=np.zeros((rows, 3, 6, 6)), label=FED["label"])
    assert caught.value.message == "Input is not batch sized"


def test_backward_returns_views_of_gradients(net):
    net.forward(**FED)
    out = net.backward(diffs=["ip"])
    assert list(out) == ["data", "label", "ip"]
    assert np.shares_memory(out["ip"], net.blobs["ip"].diff)
    expected = net.blobs["prob"].data.copy()
    expected[np.arange(4), FED["label"]] -= 1
    np.testing.assert_allclose(out["ip"], 2 * expected / 4, rtol=1e-5, atol=1e-7)


def test_backward_errors(net):
    net.forward(**FED)
    with pytest.raises(UsageError) as caught:
        net.backward(loss=1)
    assert caught.value.message == "Top diff arguments do not match net outputs."
    with pytest.raises(UsageError) as caught:
        net.backward(loss=np.float32(1), prob=np.zeros((3, 3)))
    assert caught.value.message == "Diff is not batch sized"


def test_backward_with_gradients_given(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text("force_backward: true\n" + inputs(data=(4, 3)) + ip("ip", "data", 2))
    net = caffe.Net(str(path), caffe.TRAIN)
    d = np.array([[1, 0], [0, 1], [0, 0], [2, -1]], np.float32)
    net.forward(data=np.ones((4, 3)))
    out = net.backward(ip=d)
    np.testing.assert_allclose(out["data"], d @ net.params["ip"][0].data, rtol=1e-6)
    np.testing.assert_allclose(net.params["ip"][1].diff, [3, 0])


def test_private_forward_and_backward_take_indices(net):
    for name, values in FED.items():
        net.blobs[name].data[...] = values
    whole = net._forward(0, 7)
    assert whole == pytest.approx(2 * float(net.blobs["loss"].data))
    assert net._forward(0, 5) == 0
    net._backward(7, 0)
    assert net.params["conv"][0].diff.any()
    net.clear_param_diffs()
    assert not net.params["conv"][0].diff.any()


def test_blobs_outlive_the_net(net):
    data = net.blobs["data"].data
    blob = net.params["ip"][0]
    before = blob.data.copy()
    data[...] = 3
    del net
    assert (data == 3).all() and (blob.data == before).all()


# -- weights ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("form", ["caffemodel", "h5"])
def test_save_and_load(file, net, tmp_path, form):
    if form == "h5":
        pytest.importorskip("h5py")
    path = str(tmp_path / f"w.{form}")
    (net.save if form == "caffemodel" else net.save_hdf5)(path)
    caffe.set_random_seed(4)
    other = caffe.Net(file, caffe.TRAIN)
    assert (other.params["ip"][0].data != net.params["ip"][0].data).any()
    (other.copy_from if form == "caffemodel" else other.load_hdf5)(path)
    for name, blobs in net.params.items():
        for ours, theirs in zip(other.params[name], blobs, strict=True):
            assert ours.data.tobytes() == theirs.data.tobytes()
    assert net.forward(**FED)["loss"] == other.forward(**FED)["loss"]


def test_what_a_saved_file_says(net, tmp_path):
    """As Caffe writes it: Split layers, phases, a loss's weight; no state and no inputs of older forms."""
    path = tmp_path / "w.caffemodel"
    net.save(path)
    message = caffe_pb2.NetParameter.FromString(path.read_bytes())
    assert [m.name for m in message.layer] == list(net.layer_dict)
    assert {m.phase for m in message.layer} == {caffe.TRAIN}
    assert not message.HasField("state") and not message.input and not message.layers
    assert list(message.layer[6].loss_weight) == [2]
    weight = message.layer[4].blobs[0]
    assert list(weight.shape.dim) == [3, 72] and not weight.HasField("num") and not weight.diff
    np.testing.assert_array_equal(np.reshape(weight.data, (3, 72)), net.params["ip"][0].data)


@pytest.mark.parametrize("tops", ["loss", "loss p"])
def test_a_saved_net_builds_again(tmp_path, tops):
    """The message itself is a net: same layers, same weights, no Split twice; a loss's implied weight is written."""
    text = inputs(data=(4, 3), label=(4,)) + ip("ip", "data", 3) + loss("ip", tops) + relu("r", "ip", "s")
    text += layer("bn", "BatchNorm", "s", "s")
    path = tmp_path / "net.prototxt"
    path.write_text(text)
    net = caffe.Net(str(path), caffe.TRAIN)
    net.save(tmp_path / "w")
    message = caffe_pb2.NetParameter.FromString((tmp_path / "w").read_bytes())
    again = caffe.pycaffe.PycaffeNet(message, caffe.TRAIN)
    assert list(again.layer_dict) == list(net.layer_dict)
    assert dict(again.blob_loss_weights) == dict(net.blob_loss_weights)
    assert net.blob_loss_weights["loss"] == 1
    assert (again.params["ip"][0].data == net.params["ip"][0].data).all()
    assert [p.lr_mult for p in message.layer[-1].param] == [0, 0, 0]


def test_layers_by_name(file, net, tmp_path, caplog):
    """What the file lacks keeps its values, what the net lacks is passed over; both are said."""
    net.save(tmp_path / "w")
    path = tmp_path / "other.prototxt"
    path.write_text(TEXT.replace('"ip"', '"fc"'))
    other = caffe.Net(str(path), caffe.TRAIN)
    before = other.params["fc"][0].data.copy()
    with caplog.at_level("INFO"):
        other.copy_from(tmp_path / "w")
    assert [r.getMessage() for r in caplog.records if r.levelname == "WARNING"] == [
        f"{tmp_path / 'w'} has nothing for 1 of 2 layers with parameters, which keep their values: fc"
    ]
    assert "Ignoring source layer ip" in caplog.text
    assert (other.params["fc"][0].data == before).all()
    assert (other.params["conv"][0].data == net.params["conv"][0].data).all()


def test_weights_of_another_net_are_refused_where_the_net_must_match(file, net, tmp_path, caplog):
    """pycaffe's `copy_from` and constructor go on, as Caffe's do, with a warning; a net without parameters is fine."""
    net.save(tmp_path / "w")
    path = tmp_path / "other.prototxt"
    path.write_text(TEXT.replace('"ip"', '"fc"').replace('name: "conv"', 'name: "first"'))
    caffe.Net(str(path), caffe.TEST, weights=tmp_path / "w")
    assert "has nothing for 2 of 2 layers with parameters" in caplog.text
    other = caffe.Net(str(path), caffe.TRAIN)
    before = other.params["fc"][0].data.copy()
    with pytest.raises(WeightsError) as refused:
        weights.copy_from(other, tmp_path / "w", must_match=True)
    assert str(refused.value) == (
        f"{tmp_path / 'w'}: no layer of this file has the name of a layer with parameters of the net {path}, "
        "so nothing would be copied: the file has conv, ip; the net has first, fc\n  fix: give weights that were "
        "trained with this net, or give the net's layers the names they have in the file"
    )
    assert (other.params["fc"][0].data == before).all()
    (tmp_path / "bare.prototxt").write_text(inputs(data=(4, 3)))
    weights.copy_from(caffe.Net(str(tmp_path / "bare.prototxt"), caffe.TEST), tmp_path / "w", must_match=True)
    (tmp_path / "empty").write_bytes(
        caffe_pb2.NetParameter(layer=[{"name": "relu", "type": "ReLU"}]).SerializeToString()
    )
    with pytest.raises(WeightsError, match="there are no weights in this file\n  fix: give weights for the net"):
        weights.copy_from(other, tmp_path / "empty", must_match=True)


def test_a_file_that_has_all_is_not_warned_of(tmp_path, caplog):
    """Not even where one of two layers that share parameters is missing: the other one's are its own."""
    names = 'param { name: "w" } param { name: "b" }'
    shared = [ip(name, "data", 3, names) for name in ("a", "b")]
    path = tmp_path / "net.prototxt"
    path.write_text(inputs(data=(4, 3)) + "".join(shared))
    net = caffe.Net(str(path), caffe.TRAIN)
    net.save(tmp_path / "w")
    message = caffe_pb2.NetParameter.FromString((tmp_path / "w").read_bytes())
    assert message.layer.pop().name == "b"
    (tmp_path / "w").write_bytes(message.SerializeToString())
    net.params["a"][0].data[...] = 7
    with caplog.at_level("WARNING"):
        net.copy_from(tmp_path / "w")
    assert not caplog.records and (net.params["b"][0].data != 7).all()


def test_a_warning_names_ten_layers(tmp_path, caplog):
    path = tmp_path / "net.prototxt"
    path.write_text(inputs(data=(4, 3)) + "".join(ip(f"l{i}", "data", 3) for i in range(12)))
    other = caffe_pb2.NetParameter(layer=[caffe_pb2.LayerParameter(name="another", type="ReLU")])
    (tmp_path / "w").write_bytes(other.SerializeToString())
    with caplog.at_level("WARNING"):
        caffe.Net(str(path), caffe.TRAIN).copy_from(tmp_path / "w")
    assert caplog.messages[-1].endswith(
        "12 of 12 layers with parameters, which keep their values: l0, l1, l2, l3, l4, l5, l6, l7, l8, l9 and 2 more"
    )


def test_weights_of_another_shape(net, tmp_path):
    net.save(tmp_path / "w")
    path = tmp_path / "other.prototxt"
    for change, said in (
        (("num_output: 3 weight", "num_output: 4 weight"), r"shape \(3, 72\) in the file and \(4, 72\) in the net"),
        (("inner_product_param {", "inner_product_param { bias_term: false"), "2 parameter blobs .* the net has 1"),
    ):
        assert change[0] in TEXT
        path.write_text(TEXT.replace(*change))
        with pytest.raises(RuntimeError, match=said) as caught:
            caffe.Net(str(path), caffe.TRAIN, weights=str(tmp_path / "w"))
        assert caught.value.where.layer == "ip" and "rename the layer" in caught.value.fix
        assert caught.value.where.file == str(tmp_path / "w")


def test_weights_in_the_prototxt(tmp_path):
    path = tmp_path / "net.prototxt"
    blobs = "blobs { shape { dim: 2 dim: 1 } data: 3 data: 4 } blobs { shape { dim: 2 } data: 5 data: 6 }"
    path.write_text(inputs(data=(1, 1)) + ip("ip", "data", 2, blobs))
    net = caffe.Net(str(path), caffe.TEST)
    assert net.params["ip"][0].data.tolist() == [[3], [4]] and net.params["ip"][1].data.tolist() == [5, 6]


def test_old_shapes_fit(tmp_path):
    """A (1, 1, 1, N) bias and a (1, 1, N, K) weight, as old files have them."""
    message = caffe_pb2.NetParameter()
    source = message.layer.add(name="ip", type="InnerProduct")
    for values, (num, channels, height, width) in (([1, 2, 3, 4, 5, 6], (1, 1, 2, 3)), ([7, 8], (1, 1, 1, 2))):
        source.blobs.add(data=values, num=num, channels=channels, height=height, width=width)
    (tmp_path / "w").write_bytes(message.SerializeToString())
    path = tmp_path / "net.prototxt"
    path.write_text(inputs(data=(1, 3)) + ip("ip", "data", 2))
    net = caffe.Net(str(path), caffe.TEST, weights=str(tmp_path / "w"))
    assert net.params["ip"][0].data.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert net.params["ip"][1].data.tolist() == [7, 8]
