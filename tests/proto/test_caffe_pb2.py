"""The generated classes against proto/caffe.proto, read independently, and against recorded facts of Caffe's schema."""

import hashlib
import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor as F

from pycaffe_lms.proto import caffe_pb2

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "proto" / "caffe.proto"
GENERATED = ROOT / "pycaffe_lms" / "proto" / "caffe_pb2.py"

OURS = {"LMSParameter", "ResumeState", "SourceState", "CarriedState", "NetWeights", "LayerBlobs"}
OURS |= {"LMSPlan", "LMSProgramPlan", "LMSPlanBuffer", "LMSPlanStep", "LMSResidence", "LMSPlanPages", "LMSPlanAddress"}
OURS |= {"LMSPlanPiece", "BestScore", "UnsupportedField"}
OURS |= {"C3DWeights", "C3DLayerBlobs", "C3DBlob"}
OURS |= {
    f"{name}Parameter"
    for name in (
        "LayerNorm",
        "RMSNorm",
        "GELU",
        "GatedUnit",
        "MatMul",
        "Attention",
        "RotaryEmbedding",
        "TokenData",
        "DropPath",
    )
}  # layers of transformers
OUR_NUMBERS = range(7000, 7200)
# What forks brought: messages, and numbers in Caffe's own messages.
FORK_MESSAGES = {
    *("PermuteParameter", "NormalizeParameter", "UpsampleParameter", "InterpParameter", "ShuffleChannelParameter"),
    *("ROIPoolingParameter", "SmoothL1LossParameter", "ReLU6Parameter", "BNParameter", "PriorBoxParameter"),
    *("ReorgParameter", "PSROIPoolingParameter", "MultiBoxLossParameter", "DetectionOutputParameter"),
    *("BoxAnnotatorOHEMParameter", "ProposalParameter", "ROIAlignParameter", "PSROIAlignParameter"),
    *(
        "EvalDetectionParameter",
        "YoloDetectionOutputParameter",
        "Yolov3DetectionOutputParameter",
        "RegionLossParameter",
        "Yolov3Parameter",
    ),
    *("DetectionEvaluateParameter", "NonMaximumSuppressionParameter", "SaveOutputParameter"),
    *("NormalizedBBox", "Annotation", "AnnotationGroup", "AnnotatedDatum", "LabelMapItem", "LabelMap"),
    *("Sampler", "SampleConstraint", "BatchSampler", "EmitConstraint", "AnnotatedDataParameter"),
    *("CTCLossParameter", "CTCDecoderParameter", "LabelsequenceAccuracyParameter", "ContinuationIndicatorParameter"),
    *("ReverseParameter", "TripletLossParameter", "CorrelationParameter", "SpatialTransformerParameter"),
    *("ResizeParameter", "SaltPepperParameter", "NoiseParameter", "DistortionParameter", "ExpansionParameter"),
    *("BBoxRegParameter", "BoxOutputParameter", "BoxGroupParameter", "BoxGroupOutputParameter"),
    *("DecodeBBoxParameter", "ScaleRouteParameter", "CenterLossParameter", "RandVecParameter"),
    *("MultiStageMeanfieldParameter", "GuidedDropoutParameter", "FlowWarpParameter"),
    *("UpsampleDarknetParameter", "DenseBlockParameter"),
    *("DeephiResizeParameter", "LocallyConnectedParameter", "VideoDataParameter", "DetectionLossParameter"),
    *(
        "DetectionAccuracyParameter",
        "ProposalTargetParameter",
        "ImageGtDataParameter",
        "PadParameter",
        "SqueezeParameter",
        "TransposeParameter",
        "LstmParameter",
    ),
    *("DetectionDataParameter", "EvalDataParameter", "DetectionGroupLossParameter", "FrcnnOutputParameter"),
    *("DetectionGroupAccuracyParameter", "HardMiningParameter", "ROIWarpingParameter", "MaskResizeParameter"),
    *("DenseImageDataParameter", "SegAccuracyParameter", "RandomResizeParameter", "RandomAspectRatioParameter"),
}
FORK_NUMBERS = {
    "FillerParameter": {9},  # FlowNet 2
    "BlobProto": {10, 11, 12, 13},
    "LayerParameter": {164, 200, 201, 202, 203, 204, 205, 206, 209, 301, 601, 602, 603, 100000, 8266711, 8266712},
    "BatchNormParameter": {5, 6, 7},
    "TransformationParameter": {8, 9, 10, 11, 12, 13, 14},
}
# Every message of Caffe and the numbers of its fields.
NUMBERS = {
    "BlobShape": "1",
    "BlobProto": "1-9",
    "BlobProtoVector": "1",
    "Datum": "1-7",
    "FillerParameter": "1-8",
    "NetParameter": "1-8 100",
    "SolverParameter": "1-42",
    "SolverState": "1-4",
    "NetState": "1-3",
    "NetStateRule": "1-5",
    "ParamSpec": "1-4",
    "LayerParameter": "1-11 100-148",
    "TransformationParameter": "1-7",
    "LossParameter": "1-3",
    "AccuracyParameter": "1-3",
    "ArgMaxParameter": "1-3",
    "BatchNormParameter": "1-3",
    "BiasParameter": "1-3",
    "ClipParameter": "1-2",
    "ConcatParameter": "1-2",
    "ContrastiveLossParameter": "1-2",
    "ConvolutionParameter": "1-18",
    "CropParameter": "1-2",
    "DataParameter": "1-10",
    "DropoutParameter": "1",
    "DummyDataParameter": "1-6",
    "EltwiseParameter": "1-3",
    "ELUParameter": "1",
    "EmbedParameter": "1-5",
    "ExpParameter": "1-3",
    "FlattenParameter": "1-2",
    "HDF5DataParameter": "1-3",
    "HDF5OutputParameter": "1",
    "HingeLossParameter": "1",
    "ImageDataParameter": "1-12",
    "InfogainLossParameter": "1-2",
    "InnerProductParameter": "1-6",
    "InputParameter": "1",
    "LogParameter": "1-3",
    "LRNParameter": "1-6",
    "MemoryDataParameter": "1-4",
    "MVNParameter": "1-3",
    "ParameterParameter": "1",
    "PoolingParameter": "1-13",
    "PowerParameter": "1-3",
    "PReLUParameter": "1-2",
    "PythonParameter": "1-4",
    "RecurrentParameter": "1-5",
    "ReductionParameter": "1-3",
    "ReLUParameter": "1-2",
    "ReshapeParameter": "1-3",
    "ScaleParameter": "1-5",
    "SigmoidParameter": "1",
    "SliceParameter": "1-3",
    "SoftmaxParameter": "1-2",
    "SPPParameter": "1-2 6",
    "SwishParameter": "1",
    "TanHParameter": "1",
    "ThresholdParameter": "1",
    "TileParameter": "1-2",
    "WindowDataParameter": "1-13",
    "V1LayerParameter": "1-27 29-42 1001-1002",
    "V0LayerParameter": "1-22 50-56 58-65 1001",
}

_FIELD = re.compile(r"(optional|required|repeated) ([\w.]+) (\w+) = (\d+)(?: \[(.*)\])?;")
_SCALARS = {
    F.TYPE_INT32: "int32",
    F.TYPE_UINT32: "uint32",
    F.TYPE_INT64: "int64",
    F.TYPE_UINT64: "uint64",
    F.TYPE_FLOAT: "float",
    F.TYPE_DOUBLE: "double",
    F.TYPE_BOOL: "bool",
    F.TYPE_STRING: "string",
    F.TYPE_BYTES: "bytes",
}


def written():
    """(messages, enums) as the text of caffe.proto has them: a line reader that knows nothing of protobuf."""
    messages, enums, stack = {}, {}, []
    text = re.sub(r"//.*", "", SOURCE.read_text(encoding="utf-8"))
    for line in re.sub(r"\s*([{}])\s*", r"\n\1\n", text.replace(";", ";\n")).splitlines():
        line = line.strip()
        if match := re.fullmatch(r"(message|enum) (\w+)", line):
            stack.append(match.groups())
            path = ".".join(name for _, name in stack)
            (messages if match[1] == "message" else enums)[path] = {}
        elif line == "}":
            stack.pop()
        elif stack and (match := _FIELD.fullmatch(line)):
            options = dict(part.split(" = ") for part in (match[5] or "").split(", ") if part)
            kind = match[2].rpartition(".")[2]  # an enum of another message is written with its name
            messages[".".join(name for _, name in stack)][match[3]] = (int(match[4]), kind, match[1], options)
        elif stack and (match := re.fullmatch(r"(\w+) = (\d+);", line)):
            enums[".".join(name for _, name in stack)][match[1]] = int(match[2])
    return messages, enums


def described(field):
    """A descriptor's field as `written` gives it, without the options."""
    if field.message_type is not None:
        kind = field.message_type.name
    elif field.enum_type is not None:
        kind = field.enum_type.name
    else:
        kind = _SCALARS[field.type]
    repeated = field.is_repeated if hasattr(type(field), "is_repeated") else field.label == F.LABEL_REPEATED
    required = field.is_required if hasattr(type(field), "is_required") else field.label == F.LABEL_REQUIRED
    return field.number, kind, "repeated" if repeated else "required" if required else "optional"


MESSAGES, ENUMS = written()


def test_generated_code_is_up_to_date():
    first = GENERATED.read_text(encoding="utf-8").split("\n", 1)[0]
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    assert first == f"# sha256 of proto/caffe.proto: {digest}", "run python tools/gen_proto.py"


def test_generated_code_asks_for_no_particular_runtime():
    assert "runtime_version" not in GENERATED.read_text(encoding="utf-8")


def test_the_descriptor_has_a_file_name_of_its_own():
    assert caffe_pb2.DESCRIPTOR.name == "pycaffe_lms/proto/caffe.proto"
    assert caffe_pb2.DESCRIPTOR.package == "caffe"


def test_no_message_and_no_enum_is_missing():
    descriptors = caffe_pb2.DESCRIPTOR.message_types_by_name
    assert set(MESSAGES) == set(descriptors)
    nested = {f"{m}.{e}" for m, d in descriptors.items() for e in d.enum_types_by_name}
    assert set(ENUMS) == nested | set(caffe_pb2.DESCRIPTOR.enum_types_by_name)


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_are_what_the_file_says(name):
    descriptor = caffe_pb2.DESCRIPTOR.message_types_by_name[name]
    assert {f.name: described(f) for f in descriptor.fields} == {k: v[:3] for k, v in MESSAGES[name].items()}
    for field in descriptor.fields:
        options = MESSAGES[name][field.name][3]
        assert field.GetOptions().packed == (options.get("packed") == "true"), field.name
        assert field.has_default_value == ("default" in options), field.name
        if "default" in options:
            assert default_text_equals(field, options["default"]), field.name


def default_text_equals(field, text):
    if field.enum_type is not None:
        return field.enum_type.values_by_number[field.default_value].name == text
    if field.type == F.TYPE_STRING:
        return f'"{field.default_value}"' == text
    if field.type == F.TYPE_BOOL:
        return field.default_value == (text == "true") and text in ("true", "false")
    return field.default_value == pytest.approx(float(text), rel=1e-7)


@pytest.mark.parametrize("name", ENUMS)
def test_enums_are_what_the_file_says(name):
    *outer, last = name.split(".")
    scope = caffe_pb2.DESCRIPTOR.message_types_by_name[outer[0]] if outer else caffe_pb2.DESCRIPTOR
    assert {v.name: v.number for v in scope.enum_types_by_name[last].values} == ENUMS[name]


def test_counts_of_caffes_own_part():
    own = {
        name: [f for f in d.fields if f.number not in OUR_NUMBERS and f.number not in FORK_NUMBERS.get(name, ())]
        for name, d in caffe_pb2.DESCRIPTOR.message_types_by_name.items()
        if name not in OURS | FORK_MESSAGES
    }
    assert len(own) == 63
    assert sum(map(len, own.values())) == 423
    assert set(own) == set(NUMBERS)
    assert list(caffe_pb2.DESCRIPTOR.enum_types_by_name) == ["Phase"]


@pytest.mark.parametrize("name", NUMBERS)
def test_field_numbers_are_caffes(name):
    numbers = set()
    for part in NUMBERS[name].split():
        first, _, last = part.partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    fields = caffe_pb2.DESCRIPTOR.message_types_by_name[name].fields
    found = {f.number for f in fields if f.number not in OUR_NUMBERS}
    assert found == numbers | FORK_NUMBERS.get(name, set())


def test_our_own_fields_are_the_documented_ones():
    ours = {
        f.full_name: f.number
        for name, d in caffe_pb2.DESCRIPTOR.message_types_by_name.items()
        for f in d.fields
        if f.number in OUR_NUMBERS
    }
    states = {"caffe.SolverState.resume": 7001, "caffe.SolverState.sha256": 7002}
    kept = {f"caffe.{name}Parameter.unsupported": 7006 for name in ("Net", "Layer", "V1Layer")}
    forks = {name: number for name, number in ours.items() if number > 7001 and name not in states | kept}
    assert ours == {"caffe.LayerParameter.lms_param": 7000} | states | kept | forks
    head = SOURCE.read_text(encoding="utf-8").split("syntax", 1)[0]
    ranges = [range(int(a), int(b or a) + 1) for a, b in re.findall(r"\b(7[01]\d\d)(?:-(7[01]\d\d))?\b", head)]
    assert all(any(number in r for r in ranges if len(r) < 200) for number in ours.values())
    assert set(forks) and all(
        MESSAGES[name.split(".")[1]][name.split(".")[2]][2] in ("optional", "repeated") for name in forks
    )
    assert caffe_pb2.LMSParameter().policy == caffe_pb2.LMSParameter.AUTO


def test_only_clip_has_required_fields():
    required = [f"{m}.{f}" for m, fields in MESSAGES.items() for f, spec in fields.items() if spec[2] == "required"]
    assert required == ["ClipParameter.min", "ClipParameter.max"]


def test_only_blob_arrays_and_dims_are_packed():
    packed = {f"{m}.{f}" for m, fields in MESSAGES.items() for f, spec in fields.items() if "packed" in spec[3]}
    arrays = {f"BlobProto.{f}" for f in ("data", "diff", "double_data", "double_diff")} | {
        "C3DBlob.data",
        "C3DBlob.diff",
    }
    assert packed == {"BlobShape.dim"} | arrays


@pytest.mark.parametrize(
    ("message", "field", "number", "default"),
    [
        ("NetParameter", "layer", 100, None),
        ("NetParameter", "input_shape", 8, None),
        ("LayerParameter", "batch_norm_param", 139, None),
        ("LayerParameter", "clip_param", 148, None),
        ("LayerParameter", "window_data_param", 129, None),
        ("V1LayerParameter", "loss_param", 42, None),
        ("V1LayerParameter", "blob_share_mode", 1002, None),
        ("V0LayerParameter", "hdf5_output_param", 1001, None),
        ("V0LayerParameter", "det_crop_mode", 59, "warp"),
        ("FillerParameter", "type", 1, "constant"),
        ("FillerParameter", "sparse", 7, -1),
        ("BatchNormParameter", "moving_average_fraction", 2, pytest.approx(0.999)),
        ("BatchNormParameter", "eps", 3, pytest.approx(1e-5)),
        ("ConvolutionParameter", "dilation", 18, None),
        ("CropParameter", "axis", 1, 2),
        ("DataParameter", "backend", 8, caffe_pb2.DataParameter.LEVELDB),
        ("DataParameter", "prefetch", 10, 4),
        ("EltwiseParameter", "operation", 1, caffe_pb2.EltwiseParameter.SUM),
        ("LossParameter", "normalization", 3, caffe_pb2.LossParameter.VALID),
        ("LRNParameter", "beta", 3, 0.75),
        ("MVNParameter", "eps", 3, pytest.approx(1e-9)),
        ("NetState", "phase", 1, caffe_pb2.TEST),
        ("PoolingParameter", "round_mode", 13, caffe_pb2.PoolingParameter.CEIL),
        ("SPPParameter", "engine", 6, caffe_pb2.SPPParameter.DEFAULT),
        ("SolverParameter", "solver_mode", 17, caffe_pb2.SolverParameter.GPU),
        ("SolverParameter", "delta", 31, pytest.approx(1e-8)),
        ("SolverParameter", "clip_gradients", 35, -1),
        ("SolverParameter", "snapshot_format", 37, caffe_pb2.SolverParameter.BINARYPROTO),
        ("SolverParameter", "rms_decay", 38, pytest.approx(0.99)),
        ("SolverParameter", "type", 40, "SGD"),
        ("SolverParameter", "weights", 42, None),
    ],
)
def test_recorded_facts(message, field, number, default):
    descriptor = caffe_pb2.DESCRIPTOR.message_types_by_name[message].fields_by_name[field]
    assert descriptor.number == number
    assert descriptor.has_default_value == (default is not None)
    if default is not None:
        assert descriptor.default_value == default


def test_unpacked_arrays_are_read_too():
    unpacked = b"\x2d" + b"\x00\x00\x80\x3f" + b"\x2d" + b"\x00\x00\x00\x40"
    assert list(caffe_pb2.BlobProto.FromString(unpacked).data) == [1.0, 2.0]
