"""What a net of a fork asks for and is missing here: all of it in one error, and only of layers that are built."""

import pytest

from pycaffe_lms import TEST, TRAIN, Net
from pycaffe_lms.cli.main import main
from pycaffe_lms.errors import PrototxtError, UnknownLayerError
from pycaffe_lms.formats.prototxt.forks import forks_of
from pycaffe_lms.formats.prototxt.parser import parse_net, parse_solver, read_net
from pycaffe_lms.layers.registry import LAYERS, missing_type

DATA = """layer { name: "data" type: "CustomData" top: "data" top: "label"
  transform_param { flow: true pad: 1 } reader_param { source: "x" batch_size: 2 } include { phase: TRAIN } }
layer { name: "data" type: "DummyData" top: "data" include { phase: TEST }
  dummy_data_param { shape { dim: [1, 2, 8, 8] } } }
"""
BODY = """layer { name: "c" type: "Convolution" bottom: "data" top: "c"
  convolution_param { num_output: 2 kernel_size: 1 } }
"""
HEADS = """layer { name: "b1" type: "LpqLoss" bottom: "c" top: "b1"
  lpq_loss_param { field_w: 1 } }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { kernel_size: 2 torch_pooling: true } }
layer { name: "b2" type: "LpqLoss" bottom: "p" top: "b2" lpq_loss_param { field_w: 1 } }
"""


def test_everything_is_in_one_error(tmp_path):
    file = tmp_path / "n.prototxt"
    file.write_text(DATA + BODY + HEADS)
    with pytest.raises(UnknownLayerError) as caught:
        Net(str(file), TRAIN)
    assert str(caught.value) == (
        f"{file}: 3 things that it asks for are missing here:\n"
        '  line 1: layer "data" (CustomData): no layer type "CustomData": it belongs to FlowNet 2; '
        'give its values another way: -shape data=32,3,224,224, a "Python" layer, or a layer of docs/supported.md\n'
        '  line 7: layer "b1" (LpqLoss): no layer type "LpqLoss": it belongs to FlowNet 2, Synopsys '
        'Caffe (also line 10); leave the layer out, or write it as a "Python" layer\n'
        '  line 9: layer "p" (Pooling): PoolingParameter has no field "torch_pooling": it belongs to NVIDIA Caffe '
        "(not supported: a field of that name); write round_mode: FLOOR\n"
        "  fix: change every line above; docs/supported.md lists what there is"
    )
    with pytest.raises(PrototxtError) as caught:  # a reader that builds no net knows no types, but all fields
        read_net(file)
    assert [line.split(":")[0] for line in str(caught.value).splitlines()[1:-1]] == [
        "  line 2", "  line 2", "  line 2", "  line 8", "  line 9",
    ]  # fmt: skip


def test_only_layers_of_the_phase_are_judged(tmp_path):
    file = tmp_path / "n.prototxt"
    file.write_text(DATA + BODY)
    assert Net(str(file), TEST).blobs["c"].data.shape == (1, 2, 8, 8)
    with pytest.raises(UnknownLayerError, match='n.prototxt:1: layer "data" .CustomData.: no layer type'):
        Net(str(file), TRAIN)


@pytest.mark.parametrize("command", [["summarize"], ["plan", "-gpu", "h200", "-model"]])
def test_a_layer_that_is_replaced_is_not_judged(command, tmp_path, capsys):
    file = tmp_path / "n.prototxt"
    file.write_text(DATA + BODY)
    assert main([*command, str(file), "-shape", "data=2,3,5,6"]) == 0
    assert "c" in capsys.readouterr().out
    assert main([*command, str(file)]) == 1
    assert "it belongs to FlowNet 2" in capsys.readouterr().err


def test_a_picture_needs_no_types(tmp_path):
    pytest.importorskip("pydot")
    file, picture = tmp_path / "n.prototxt", tmp_path / "n.dot"
    file.write_text(DATA + BODY + HEADS)
    assert main(["draw_net", str(file), str(picture)]) == 0
    assert "LpqLoss" in picture.read_text()


def test_a_rewritten_text_loses_nothing_silently(tmp_path, capsys):
    file = tmp_path / "n.prototxt"
    file.write_text(DATA + BODY)
    assert main(["upgrade_net_proto_text", str(file), str(tmp_path / "new")]) == 1
    assert 'LayerParameter has no field "reader_param": it belongs to FlowNet 2' in capsys.readouterr().err


def test_values_of_enums_and_fields_of_nets():
    text = 'layer { name: "l" type: "SoftmaxWithLoss" loss_param { normalization: BATCH_SIZE }\nresize_blob_param { } }'
    parsed = parse_net('layers { name: "v"\ntype: VIDEO_SEGMENTATION_DATA }', judge=False)
    (field,) = parsed.message.layer[0].unsupported
    assert (field.message, field.name, field.line) == ("V1LayerParameter.LayerType", "VIDEO_SEGMENTATION_DATA", 2)
    with pytest.raises(
        PrototxtError, match="line 2: .*VIDEO_SEGMENTATION_DATA is not a value of LayerType: it belongs to C3D"
    ):
        parse_net('layers { name: "v"\ntype: VIDEO_SEGMENTATION_DATA }')
    with pytest.raises(PrototxtError, match='no field "resize_blob_param": no fork that we know has it'):
        parse_net(text)
    with pytest.raises(PrototxtError, match='has no field "per_fla_fuse": it belongs to Intel Caffe'):
        parse_net('layer { name: "l"\nconcat_param { per_fla_fuse: true } }')


def test_nets_inside_solvers_keep_what_they_lack():
    net = parse_solver("net_param {\n" + DATA + "}\nbase_lr: 1").message.net_param
    assert [(f.name, f.line) for f in net.layer[0].unsupported] == [
        ("flow", 3), ("pad", 3), ("reader_param", 3),
    ]  # fmt: skip
    assert not net.layer[1].unsupported


@pytest.mark.parametrize(
    ("where", "name", "forks"),
    [  # read in the forks' own schemas and sources
        ("type", "AnnotatedData", "SSD's Caffe"),
        ("type", "DetectNetTransformation", "NVIDIA Caffe"),
        ("type", "DenseImageData", "SegNet's Caffe, ENet's Caffe"),
        ("type", "BoxAnnotatorOHEM", "Intel Caffe, R-FCN's Caffe"),
        ("SolverParameter", "larc_eta", "NVIDIA Caffe"),
        ("SolverParameter", "plateau_winsize", "SSD's Caffe"),
        ("LayerParameter", "quantization_param", "Ristretto"),
        ("LossParameter.NormalizationMode", "PRE_FIXED", "R-FCN's Caffe"),
        ("V1LayerParameter.LayerType", "VIDEO_DATA", "C3D"),
    ],
)
def test_the_table_of_forks(where, name, forks):
    found = forks_of(where, name)
    assert found is not None and set(forks.split(", ")) <= set(found.split(", "))


def test_types_that_resemble_nothing_get_no_suggestion():
    for name in ("HigherOrderField", "MaskSpreading", "LossOHEM"):
        error = missing_type(name)
        assert error is not None and "did you mean" not in error.message
    slip = missing_type("Convolutoin")
    assert slip is not None and 'did you mean "Convolution"' in slip.message
    assert all(missing_type(name) is None for name in LAYERS)
