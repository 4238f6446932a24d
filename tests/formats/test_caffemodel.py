"""Binary weights of every generation, and files that are none."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pycaffe_lms.errors import CaffeError, WeightsError
from pycaffe_lms.formats import rawfile
from pycaffe_lms.formats.weights.blobproto import array_to_blobproto
from pycaffe_lms.formats.weights.caffemodel import read_weights, write_weights
from pycaffe_lms.formats.weights.hdf5_weights import write_hdf5_weights
from pycaffe_lms.proto.caffe_pb2 import NetParameter, V1LayerParameter


def small_net():
    net = NetParameter(name="n")
    net.layer.add(name="data", type="Data")
    layer = net.layer.add(name="c", type="Convolution")
    layer.blobs.append(array_to_blobproto(np.arange(6, dtype="f4").reshape(2, 3), diff=np.ones((2, 3), "f4")))
    layer.blobs.append(array_to_blobproto(np.array(5.0)))
    return net


def test_round_trip(tmp_path):
    path = tmp_path / "n.caffemodel"
    bare = NetParameter(name="n", layer=[{"name": "data", "type": "Data"}, {"name": "c", "type": "Convolution"}])
    values = np.arange(6, dtype="f4").reshape(2, 3)
    write_weights(path, bare, [[], [(values, np.ones((2, 3), "f4")), (np.array(5.0), None)]])
    data, conv = read_weights(path)
    assert (data.name, data.type, data.blobs) == ("data", "Data", ())
    assert (conv.name, conv.type) == ("c", "Convolution")
    assert conv.blobs[0].data.tolist() == [[0, 1, 2], [3, 4, 5]] and conv.blobs[0].diff.sum() == 6
    assert conv.blobs[1].shape == () and conv.blobs[1].data.dtype == np.float64 and conv.blobs[1].diff is None
    assert NetParameter.FromString(path.read_bytes()) == small_net()


def test_older_generations(tmp_path):
    path = tmp_path / "old.caffemodel"
    blob = {"num": 1, "channels": 1, "height": 1, "width": 2, "data": [3, 4]}
    v1 = NetParameter(layers=[{"name": "ip", "type": V1LayerParameter.INNER_PRODUCT, "blobs": [blob]}])
    v0 = NetParameter(layers=[{"layer": {"name": "ip", "type": "innerproduct", "blobs": [blob]}}])
    for net in (v1, v0):
        path.write_bytes(net.SerializeToString())
        (weights,) = read_weights(path)
        assert (weights.name, weights.type) == ("ip", "InnerProduct")
        assert (
            weights.blobs[0].legacy and weights.blobs[0].fits((2,)) and weights.blobs[0].data.ravel().tolist() == [3, 4]
        )


def test_hdf5_is_known_by_its_content(tmp_path):
    path = tmp_path / "n.caffemodel"
    write_hdf5_weights(path, [("a", [np.ones(2)])])
    assert read_weights(path)[0].name == "a"
    shifted = tmp_path / "shifted"
    shifted.write_bytes(b"\0" * 1024 + path.read_bytes())
    assert rawfile.is_hdf5(shifted)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b'name: "x"\nlayer { }', "not a caffemodel: .*fix: this is a text file"),
        (b"<html><body>404</body></html>", "this is a text file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"\x00\x01\x02\x03" * 99, r"396 bytes that begin with b'\\x00\\x01.*damaged or cut short"),
        (NetParameter(name="only a name").SerializeToString(), "not a caffemodel"),
        (b"\x89HDF\r\n\x1a\n" + b"\0" * 99, "not a readable HDF5 file"),
    ],
)
def test_files_that_are_none(tmp_path, content, message):
    path = tmp_path / "n.caffemodel"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match="(?s)" + message) as caught:
        read_weights(path)
    assert caught.value.where.file == str(path)


def test_missing_and_unreadable(tmp_path):
    with pytest.raises(WeightsError, match="Could not open file .*absent"):
        read_weights(tmp_path / "absent")
    with pytest.raises(WeightsError, match="Is a directory"):
        read_weights(tmp_path)


def test_every_truncation_is_an_error_or_whole_layers(tmp_path):
    path, content = tmp_path / "n.caffemodel", small_net().SerializeToString()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        try:
            names = [layer.name for layer in read_weights(path)]
        except WeightsError:
            continue
        assert names == ["data"], length


def test_a_blob_that_does_not_fill_its_shape_is_named(tmp_path):
    net = small_net()
    net.layer[1].blobs[1].double_data.append(1)
    (tmp_path / "n").write_bytes(net.SerializeToString())
    with pytest.raises(
        WeightsError, match=r'n: layer "c" \(Convolution\), blob "1": .* needs 1 values, the file has 2'
    ):
        read_weights(tmp_path / "n")


def test_an_upgrade_that_fails_is_an_error_of_the_weights(tmp_path):
    (tmp_path / "n").write_bytes(NetParameter(layers=[{"layer": {"name": "x", "type": "zz"}}]).SerializeToString())
    with pytest.raises(WeightsError, match=r'n: layer "x": no layer type "zz"'):
        read_weights(tmp_path / "n")


def test_sizes_over_the_limit_are_refused_before_reading(tmp_path, monkeypatch):
    path = tmp_path / "n.caffemodel"
    with open(path, "wb") as file:
        file.truncate(2**31)
    with pytest.raises(WeightsError, match=r"2.0 GiB; protobuf files hold at most 2 GiB - 1"):
        read_weights(path)
    monkeypatch.setattr(rawfile, "MAX_BYTES", 10)
    with pytest.raises(WeightsError, match="snapshot_format: HDF5"):
        write_weights(tmp_path / "m", NetParameter(name="larger than that"), [])
    assert not (tmp_path / "m").exists()


def test_no_more_memory_is_taken_than_the_file_has(tmp_path):
    net = NetParameter(name="x")
    net.layer.add(name="ip", type="InnerProduct").blobs.add(num=1, channels=1, height=1, width=1, data=[1])
    (tmp_path / "x.caffemodel").write_bytes(net.SerializeToString())
    tracemalloc.start()
    try:
        read_weights(tmp_path / "x.caffemodel")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20  # where memory is limited, 2 GiB are not there for a small file


def test_required_fields_are_asked_for_when_writing(tmp_path):
    with pytest.raises(WeightsError, match="cannot be written: .*min"):
        rawfile.serialize(NetParameter(layer=[{"clip_param": {"max": 1}}]), tmp_path / "m", WeightsError)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
@given(st.data())
def test_damaged_files_give_errors_of_ours(tmp_path, data):
    content = bytearray(small_net().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "n"
    path.write_bytes(content)
    try:
        assert all(isinstance(layer.name, str) for layer in read_weights(path))
    except CaffeError as error:
        assert str(path) in str(error)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_random_bytes(tmp_path, content):
    path = tmp_path / "n"
    path.write_bytes(content)
    try:
        read_weights(path)
    except WeightsError as error:
        assert str(path) in str(error)
