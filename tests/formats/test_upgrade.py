"""V1 nets, input fields, BatchNorm and solvers; expected values are stated by hand."""

import pytest
from google.protobuf import text_format

from pycaffe_lms.errors import PrototxtError, SolverError
from pycaffe_lms.formats.prototxt.upgrade import V1_TYPES, upgrade_net, upgrade_solver
from pycaffe_lms.proto.caffe_pb2 import NetParameter, SolverParameter, V1LayerParameter


def net(text):
    return text_format.Parse(text, NetParameter())


def upgraded(text):
    given = net(text)
    before = given.SerializeToString(deterministic=True)
    result = upgrade_net(given)
    assert given.SerializeToString(deterministic=True) == before
    return result


def check(old, new):
    assert upgraded(old).message == net(new)


def test_a_current_net_is_returned_itself():
    given = net('name: "n" layer { name: "a" type: "ReLU" }')
    result = upgrade_net(given)
    assert result.message is given and result.origins == (0,) and result.notes == ()


def test_v1_layers():
    check(
        """
        name: "n" force_backward: true debug_info: true state { level: 2 }
        layers {
          name: "c" type: CONVOLUTION bottom: "x" top: "y" loss_weight: 0.5
          blobs { num: 1 data: 3 }
          blobs_lr: 1 blobs_lr: 2 weight_decay: 1 weight_decay: 0
          param: "shared" blob_share_mode: PERMISSIVE
          convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } }
          include { phase: TRAIN }
        }
        layers { name: "l" type: SOFTMAX_LOSS bottom: "y" loss_param { ignore_label: 3 } exclude { stage: "s" } }
        """,
        """
        name: "n" force_backward: true debug_info: true state { level: 2 }
        layer {
          name: "c" type: "Convolution" bottom: "x" top: "y" loss_weight: 0.5
          blobs { num: 1 data: 3 }
          param { name: "shared" share_mode: PERMISSIVE lr_mult: 1 decay_mult: 1 }
          param { lr_mult: 2 decay_mult: 0 }
          convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } }
          include { phase: TRAIN }
        }
        layer { name: "l" type: "SoftmaxWithLoss" bottom: "y" loss_param { ignore_label: 3 } exclude { stage: "s" } }
        """,
    )


def test_a_share_mode_without_a_name_still_has_its_index():
    check(
        'layers { type: RELU param: "" param: "b" weight_decay: 7 blob_share_mode: STRICT }',
        'layer { type: "ReLU" param { name: "" decay_mult: 7 share_mode: STRICT } param { name: "b" } }',
    )


def test_every_message_of_v1_keeps_its_name():
    fields = [f for f in V1LayerParameter.DESCRIPTOR.fields if f.name.endswith("_param")]
    assert len(fields) == 32
    for field in fields:
        inner = {"clip_param": "min: 1 max: 2"}.get(field.name, "")
        check(f"layers {{ {field.name} {{ {inner} }} }}", f"layer {{ {field.name} {{ {inner} }} }}")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NONE", ""),
        ("ABSVAL", "AbsVal"),
        ("ARGMAX", "ArgMax"),
        ("BNLL", "BNLL"),
        ("DUMMY_DATA", "DummyData"),
        ("CONTRASTIVE_LOSS", "ContrastiveLoss"),
        ("DECONVOLUTION", "Deconvolution"),
        ("ELTWISE", "Eltwise"),
        ("HDF5_DATA", "HDF5Data"),
        ("HDF5_OUTPUT", "HDF5Output"),
        ("IM2COL", "Im2col"),
        ("INNER_PRODUCT", "InnerProduct"),
        ("IMAGE_DATA", "ImageData"),
        ("INFOGAIN_LOSS", "InfogainLoss"),
        ("LRN", "LRN"),
        ("MVN", "MVN"),
        ("RELU", "ReLU"),
        ("MULTINOMIAL_LOGISTIC_LOSS", "MultinomialLogisticLoss"),
        ("SOFTMAX", "Softmax"),
        ("TANH", "TanH"),
        ("SIGMOID_CROSS_ENTROPY_LOSS", "SigmoidCrossEntropyLoss"),
        ("SOFTMAX_LOSS", "SoftmaxWithLoss"),
    ],
)
def test_v1_types(old, new):
    check(f"layers {{ type: {old} }}", f'layer {{ type: "{new}" }}')


def test_every_v1_type_has_a_name():
    assert set(V1_TYPES) == set(V1LayerParameter.LayerType.values())
    stems = {number: name.replace("_", "").lower() for name, number in V1LayerParameter.LayerType.items()}
    changed = {stems[number] for number, name in V1_TYPES.items() if stems[number] != name.lower()}
    assert changed == {"none", "softmaxloss", "crop"}


@pytest.mark.parametrize("kind", ["data", "image_data", "window_data"])
def test_data_settings_move_in_v1_layers_only(kind):
    inner = 'source: "s" scale: 0.5 mean_file: "m" crop_size: 7 mirror: true'
    type_name = {"data": "Data", "image_data": "ImageData", "window_data": "WindowData"}[kind]
    check(
        f"layers {{ type: {kind.upper()} {kind}_param {{ {inner} }} transform_param {{ scale: 9 }} }}",
        f'layer {{ type: "{type_name}" {kind}_param {{ source: "s" }}'
        ' transform_param { scale: 0.5 mean_file: "m" crop_size: 7 mirror: true } }',
    )
    check(
        f'layer {{ type: "Data" {kind}_param {{ {inner} }} }}', f'layer {{ type: "Data" {kind}_param {{ {inner} }} }}'
    )
    check(f"layers {{ type: RELU {kind}_param {{ {inner} }} }}", f'layer {{ type: "ReLU" {kind}_param {{ {inner} }} }}')


def test_input_dims_become_an_input_layer():
    result = upgraded(
        """
        name: "n" input: "a" input: "b" force_backward: true
        input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4 input_dim: 5 input_dim: 6 input_dim: 7 input_dim: 8
        layer { name: "x" } layer { name: "y" }
        """
    )
    assert result.message == net(
        """
        name: "n" force_backward: true
        layer { name: "input" type: "Input" top: "a" top: "b" input_param {
          shape { dim: 1 dim: 2 dim: 3 dim: 4 } shape { dim: 5 dim: 6 dim: 7 dim: 8 } } }
        layer { name: "x" } layer { name: "y" }
        """
    )
    assert result.origins == (None, 0, 1)


def test_input_shapes_win_over_dims():
    check(
        'input: "a" input_shape { dim: 3 dim: 5 } input_dim: 9',
        'layer { name: "input" type: "Input" top: "a" input_param { shape { dim: 3 dim: 5 } } }',
    )


def test_inputs_without_shapes_go_with_a_note():
    result = upgraded('input: "a" layer { name: "x" }')
    assert result.message == net('layer { name: "x" }') and result.origins == (0,)
    assert [(note.text, note.field) for note in result.notes] == [
        ("`input` without input_shape or input_dim is ignored", "input")
    ]


def test_more_shapes_than_inputs_is_a_note():
    result = upgraded('input: "a" input_dim: [1, 2, 3, 4, 5]')
    assert list(result.message.layer[0].input_param.shape[0].dim) == [1, 2, 3, 4]
    assert result.notes[0].text == "5 `input_dim` for 1 `input`: only the first 4 count"


def test_batch_norm_with_three_param_specs():
    check(
        'layer { type: "BatchNorm" param { lr_mult: 1 } param {} param { decay_mult: 2 name: "s" } }',
        'layer { type: "BatchNorm" param { lr_mult: 0 decay_mult: 0 } param { lr_mult: 0 decay_mult: 0 }'
        ' param { lr_mult: 0 decay_mult: 0 name: "s" } }',
    )
    for same in ('layer { type: "BatchNorm" param {} param {} }', 'layer { type: "Scale" param {} param {} param {} }'):
        check(same, same)


def test_the_statistics_batch_of_a_net_goes_to_its_batch_norm_layers():
    check(
        'bn_stats_batch_size: 32 layer { type: "ReLU" } layer { type: "BatchNorm" batch_norm_param { eps: 0.5 '
        'stats_batch_size: 8 } } layer { type: "BatchNorm" }',
        'layer { type: "ReLU" } layer { type: "BatchNorm" batch_norm_param { eps: 0.5 stats_batch_size: 32 } } '
        'layer { type: "BatchNorm" batch_norm_param { stats_batch_size: 32 } }',
    )


def test_both_generations_in_one_net():
    with pytest.raises(PrototxtError, match="both `layer` .1. and `layers` .2. in one net"):
        upgrade_net(net("layer {} layers {} layers { layer { type: 'conv' } }"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SGD", "SGD"),
        ("NESTEROV", "Nesterov"),
        ("ADAGRAD", "AdaGrad"),
        ("RMSPROP", "RMSProp"),
        ("ADADELTA", "AdaDelta"),
        ("ADAM", "Adam"),
    ],
)
def test_solver_types(old, new):
    given = text_format.Parse(f"base_lr: 2 solver_type: {old}", SolverParameter())
    assert upgrade_solver(given) == SolverParameter(base_lr=2, type=new)
    assert given.HasField("solver_type")


def test_a_solver_with_both_types():
    with pytest.raises(SolverError, match='keep `type: "SGD"`'):
        upgrade_solver(SolverParameter(solver_type=0, type="SGD"))
    plain = SolverParameter(type="Adam")
    assert upgrade_solver(plain) is plain
