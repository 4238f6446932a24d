"""Read texts: dialect, lines through every upgrade, solvers with inline nets, binary nets."""

import logging
import os
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from pycaffe_lms.errors import PrototxtError
from pycaffe_lms.formats.prototxt.parser import parse_net, parse_solver, read_net, read_net_binary, read_solver
from pycaffe_lms.formats.rawfile import read_bytes
from pycaffe_lms.proto.caffe_pb2 import ConvolutionParameter, NetParameter, PoolingParameter, SolverParameter

V0 = """\
name: "old"
input: "data"
input_dim: 1 input_dim: 3
input_dim: 8 input_dim: 8
layers { bottom: "data" top: "pad1"
  layer { name: "pad1" type: "padding" pad: 2 } }
layers {
  layer { name: "conv1" type: "conv" num_output: 4 kernelsize: 5 }
  bottom: "pad1" top: "conv1"
}
layers { layer { name: "relu1" type: "relu" } bottom: "conv1" top: "conv1" }
"""


def test_the_dialect():
    text = """
    # a comment { "
    name: 'a' "b"   # adjacent strings are one
    state: { phase: 0, level: 3; stage: "x" }
    input_dim: [1, 2]
    layer < name: "c" type: 'Convolution' convolution_param: < kernel_size: 3, engine: CAFFE > >
    layer: { pooling_param { pool: 1 } }
    layer: [ { name: "p" }, { name: "q" } ],
    """
    net = parse_net(text).message
    assert net.name == "ab"
    assert (net.state.phase, net.state.level, list(net.state.stage)) == (0, 3, ["x"])
    assert list(net.input_dim) == [1, 2]
    assert net.layer[0].convolution_param.engine == ConvolutionParameter.CAFFE
    assert net.layer[1].pooling_param.pool == PoolingParameter.AVE
    assert [layer.name for layer in net.layer] == ["c", "", "p", "q"]


def test_lines_follow_the_folding_of_padding_and_the_added_input():
    parsed = parse_net(V0, "old.prototxt")
    assert [(layer.name, parsed.lines.layer(k)) for k, layer in enumerate(parsed.message.layer)] == [
        ("input", 2),
        ("conv1", 7),
        ("relu1", 11),
    ]
    assert parsed.message.layer[1].convolution_param.pad == [2]
    assert parsed.message.layer[1].bottom == ["data"]


def test_lines_of_top_level_fields():
    parsed = parse_net(V0)
    assert parsed.lines.field("name") == 1
    assert [parsed.lines.field("input_dim", k) for k in range(5)] == [3, 3, 4, 4, None]
    assert parsed.lines.field("layer") is None
    assert parsed.lines.layer(99) is None


def test_what_an_upgrade_drops_is_warned_about_with_its_line(caplog):
    with caplog.at_level(logging.WARNING):
        parse_net('name: "n"\nlayers {\n layer { name: "r" type: "relu" stride: 2 } }', "f.prototxt")
    assert caplog.messages == ['f.prototxt:2: `stride` has no meaning in layer "r" of type "relu" and is ignored']


def test_a_solver_and_its_lines():
    parsed = parse_solver('net: "n.prototxt"\nbase_lr: 1e-2\nstepvalue: 5\nstepvalue: 9\nsolver_type: ADAM\n', "s")
    assert parsed.message.type == "Adam" and not parsed.message.HasField("solver_type")
    assert parsed.lines.field("stepvalue", 1) == 4


def test_inline_nets_of_a_solver_are_upgraded_and_keep_their_lines():
    text = """base_lr: 1
net_param {
  layers { name: "c" type: CONVOLUTION }
}
test_net_param { layer { name: "x" } }
test_net_param {
  name: "second"

  layer { name: "y" } }
"""
    parsed = parse_solver(text)
    net = parsed.message.net_param
    assert [(layer.name, layer.type) for layer in net.layer] == [("c", "Convolution")] and not net.layers
    assert parsed.lines.net("net_param").layer(0) == 3
    assert parsed.lines.net("test_net_param", 0).layer(0) == 5
    assert parsed.lines.net("test_net_param", 1).layer(0) == 9
    assert parsed.lines.net("test_net_param", 1).field("name") == 7
    assert parsed.lines.net("train_net_param").layer(0) is None
    assert not parsed.message.HasField("train_net_param")


def test_files(tmp_path):
    net, solver, binary = tmp_path / "n.prototxt", tmp_path / "s.prototxt", tmp_path / "n.pb"
    net.write_text('layer { name: "a" }', encoding="utf-8")
    solver.write_text(f'net: "{net.name}"', encoding="utf-8")
    binary.write_bytes(NetParameter(name="b", input=["d"], input_dim=[1, 2, 3, 4]).SerializeToString())
    assert read_net(net).message.layer[0].name == "a"
    assert read_net(str(net)).filename == str(net)
    assert isinstance(read_solver(solver).message, SolverParameter)
    parsed = read_net_binary(binary)
    assert parsed.message.layer[0].input_param.shape[0].dim == [1, 2, 3, 4]
    assert (parsed.filename, parsed.lines.layer(0)) == (str(binary), None)


@pytest.mark.parametrize("comment", ["卷积".encode("gbk"), "größe".encode("latin-1"), "é".encode(), b"\xef\xbb\xbf"])
def test_comments_in_any_encoding_and_a_byte_order_mark(tmp_path, comment):
    path = tmp_path / "n.prototxt"
    mark = comment.startswith(b"\xef\xbb\xbf")
    path.write_bytes((comment if mark else b"# " + comment) + b'\r\nlayer {\r\n name: "a" }\r\n')
    parsed = read_net(path)
    assert parsed.message.layer[0].name == "a" and parsed.lines.layer(0) == 2


def test_unknown_fields_of_a_binary_net_are_skipped(tmp_path):
    path = tmp_path / "n.pb"
    path.write_bytes(NetParameter(name="b").SerializeToString() + b"\xfa\x3f\x02hi")
    assert read_net_binary(path).message.name == "b"


@pytest.mark.parametrize("reader", [read_net, read_solver, read_net_binary])
def test_files_that_cannot_be_opened(tmp_path, reader):
    with pytest.raises(PrototxtError, match="Could not open file .*absent"):
        reader(tmp_path / "absent.prototxt")
    with pytest.raises(PrototxtError, match="Could not open file .*: Is a directory"):
        reader(tmp_path)
    (tmp_path / "empty").touch()
    with pytest.raises(PrototxtError, match="the file is empty"):
        reader(tmp_path / "empty")


def test_a_binary_file_in_place_of_a_text(tmp_path):
    path = tmp_path / "n.caffemodel"
    path.write_bytes(b"\x0a\x03abc\x00\x01")
    with pytest.raises(PrototxtError, match="not a text file"):
        read_net(path)


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no /dev/zero")
def test_a_device_without_an_end_is_not_read_to_its_limit():
    assert read_bytes("/dev/zero", PrototxtError, head=100) == bytes(100)
    tracemalloc.start()
    try:
        with pytest.raises(PrototxtError, match="not a text file"):
            read_net("/dev/zero")
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 100_000])
def test_a_pipe_is_read_whole(tmp_path, size):
    content, path = bytes(range(1, 201)) * (size // 200 + 1), tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(path.write_bytes, content[:size])
        assert read_bytes(path, PrototxtError, head=4096) == content[:size]
        assert written.result() == size


def test_a_text_in_place_of_a_binary(tmp_path):
    path = tmp_path / "n.prototxt"
    path.write_text('name: "a"', encoding="utf-8")
    with pytest.raises(PrototxtError, match=r"begin with b'name: \"a\"'.*\n  fix: this is a text file"):
        read_net_binary(path)
