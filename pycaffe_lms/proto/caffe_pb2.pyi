# sha256 of proto/caffe.proto: db7eccb54011c59ea2b589077c341919b4b026306f65f94c4d09a1220364891d
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRAIN: _ClassVar[Phase]
    TEST: _ClassVar[Phase]
TRAIN: Phase
TEST: Phase

class BlobShape(_message.Message):
    __slots__ = ("dim",)
    DIM_FIELD_NUMBER: _ClassVar[int]
    dim: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dim: _Optional[_Iterable[int]] = ...) -> None: ...

class BlobProto(_message.Message):
    __slots__ = ("num", "channels", "height", "width", "data", "diff", "shape", "double_data", "double_diff", "raw_data_type", "raw_diff_type", "raw_data", "raw_diff")
    class RawType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DOUBLE: _ClassVar[BlobProto.RawType]
        FLOAT: _ClassVar[BlobProto.RawType]
        FLOAT16: _ClassVar[BlobProto.RawType]
        INT: _ClassVar[BlobProto.RawType]
        UINT: _ClassVar[BlobProto.RawType]
        BOOL: _ClassVar[BlobProto.RawType]
    DOUBLE: BlobProto.RawType
    FLOAT: BlobProto.RawType
    FLOAT16: BlobProto.RawType
    INT: BlobProto.RawType
    UINT: BlobProto.RawType
    BOOL: BlobProto.RawType
    NUM_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_DATA_FIELD_NUMBER: _ClassVar[int]
    DOUBLE_DIFF_FIELD_NUMBER: _ClassVar[int]
    RAW_DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    RAW_DIFF_TYPE_FIELD_NUMBER: _ClassVar[int]
    RAW_DATA_FIELD_NUMBER: _ClassVar[int]
    RAW_DIFF_FIELD_NUMBER: _ClassVar[int]
    num: int
    channels: int
    height: int
    width: int
    data: _containers.RepeatedScalarFieldContainer[float]
    diff: _containers.RepeatedScalarFieldContainer[float]
    shape: BlobShape
    double_data: _containers.RepeatedScalarFieldContainer[float]
    double_diff: _containers.RepeatedScalarFieldContainer[float]
    raw_data_type: BlobProto.RawType
    raw_diff_type: BlobProto.RawType
    raw_data: bytes
    raw_diff: bytes
    def __init__(self, num: _Optional[int] = ..., channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., data: _Optional[_Iterable[float]] = ..., diff: _Optional[_Iterable[float]] = ..., shape: _Optional[_Union[BlobShape, _Mapping]] = ..., double_data: _Optional[_Iterable[float]] = ..., double_diff: _Optional[_Iterable[float]] = ..., raw_data_type: _Optional[_Union[BlobProto.RawType, str]] = ..., raw_diff_type: _Optional[_Union[BlobProto.RawType, str]] = ..., raw_data: _Optional[bytes] = ..., raw_diff: _Optional[bytes] = ...) -> None: ...

class BlobProtoVector(_message.Message):
    __slots__ = ("blobs",)
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    def __init__(self, blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ...) -> None: ...

class Datum(_message.Message):
    __slots__ = ("channels", "height", "width", "data", "label", "float_data", "encoded")
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    FLOAT_DATA_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    channels: int
    height: int
    width: int
    data: bytes
    label: int
    float_data: _containers.RepeatedScalarFieldContainer[float]
    encoded: bool
    def __init__(self, channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., data: _Optional[bytes] = ..., label: _Optional[int] = ..., float_data: _Optional[_Iterable[float]] = ..., encoded: bool = ...) -> None: ...

class NormalizedBBox(_message.Message):
    __slots__ = ("xmin", "ymin", "xmax", "ymax", "label", "difficult", "score", "size")
    XMIN_FIELD_NUMBER: _ClassVar[int]
    YMIN_FIELD_NUMBER: _ClassVar[int]
    XMAX_FIELD_NUMBER: _ClassVar[int]
    YMAX_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DIFFICULT_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    xmin: float
    ymin: float
    xmax: float
    ymax: float
    label: int
    difficult: bool
    score: float
    size: float
    def __init__(self, xmin: _Optional[float] = ..., ymin: _Optional[float] = ..., xmax: _Optional[float] = ..., ymax: _Optional[float] = ..., label: _Optional[int] = ..., difficult: bool = ..., score: _Optional[float] = ..., size: _Optional[float] = ...) -> None: ...

class Annotation(_message.Message):
    __slots__ = ("instance_id", "bbox")
    INSTANCE_ID_FIELD_NUMBER: _ClassVar[int]
    BBOX_FIELD_NUMBER: _ClassVar[int]
    instance_id: int
    bbox: NormalizedBBox
    def __init__(self, instance_id: _Optional[int] = ..., bbox: _Optional[_Union[NormalizedBBox, _Mapping]] = ...) -> None: ...

class AnnotationGroup(_message.Message):
    __slots__ = ("group_label", "annotation")
    GROUP_LABEL_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_FIELD_NUMBER: _ClassVar[int]
    group_label: int
    annotation: _containers.RepeatedCompositeFieldContainer[Annotation]
    def __init__(self, group_label: _Optional[int] = ..., annotation: _Optional[_Iterable[_Union[Annotation, _Mapping]]] = ...) -> None: ...

class AnnotatedDatum(_message.Message):
    __slots__ = ("datum", "type", "annotation_group")
    class AnnotationType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BBOX: _ClassVar[AnnotatedDatum.AnnotationType]
    BBOX: AnnotatedDatum.AnnotationType
    DATUM_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ANNOTATION_GROUP_FIELD_NUMBER: _ClassVar[int]
    datum: Datum
    type: AnnotatedDatum.AnnotationType
    annotation_group: _containers.RepeatedCompositeFieldContainer[AnnotationGroup]
    def __init__(self, datum: _Optional[_Union[Datum, _Mapping]] = ..., type: _Optional[_Union[AnnotatedDatum.AnnotationType, str]] = ..., annotation_group: _Optional[_Iterable[_Union[AnnotationGroup, _Mapping]]] = ...) -> None: ...

class LabelMapItem(_message.Message):
    __slots__ = ("name", "label", "display_name")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    label: int
    display_name: str
    def __init__(self, name: _Optional[str] = ..., label: _Optional[int] = ..., display_name: _Optional[str] = ...) -> None: ...

class LabelMap(_message.Message):
    __slots__ = ("item",)
    ITEM_FIELD_NUMBER: _ClassVar[int]
    item: _containers.RepeatedCompositeFieldContainer[LabelMapItem]
    def __init__(self, item: _Optional[_Iterable[_Union[LabelMapItem, _Mapping]]] = ...) -> None: ...

class Sampler(_message.Message):
    __slots__ = ("min_scale", "max_scale", "min_aspect_ratio", "max_aspect_ratio")
    MIN_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAX_SCALE_FIELD_NUMBER: _ClassVar[int]
    MIN_ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    min_scale: float
    max_scale: float
    min_aspect_ratio: float
    max_aspect_ratio: float
    def __init__(self, min_scale: _Optional[float] = ..., max_scale: _Optional[float] = ..., min_aspect_ratio: _Optional[float] = ..., max_aspect_ratio: _Optional[float] = ...) -> None: ...

class SampleConstraint(_message.Message):
    __slots__ = ("min_jaccard_overlap", "max_jaccard_overlap", "min_sample_coverage", "max_sample_coverage", "min_object_coverage", "max_object_coverage")
    MIN_JACCARD_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    MAX_JACCARD_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    MIN_SAMPLE_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLE_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MIN_OBJECT_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    MAX_OBJECT_COVERAGE_FIELD_NUMBER: _ClassVar[int]
    min_jaccard_overlap: float
    max_jaccard_overlap: float
    min_sample_coverage: float
    max_sample_coverage: float
    min_object_coverage: float
    max_object_coverage: float
    def __init__(self, min_jaccard_overlap: _Optional[float] = ..., max_jaccard_overlap: _Optional[float] = ..., min_sample_coverage: _Optional[float] = ..., max_sample_coverage: _Optional[float] = ..., min_object_coverage: _Optional[float] = ..., max_object_coverage: _Optional[float] = ...) -> None: ...

class BatchSampler(_message.Message):
    __slots__ = ("use_original_image", "sampler", "sample_constraint", "max_sample", "max_trials")
    USE_ORIGINAL_IMAGE_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    MAX_TRIALS_FIELD_NUMBER: _ClassVar[int]
    use_original_image: bool
    sampler: Sampler
    sample_constraint: SampleConstraint
    max_sample: int
    max_trials: int
    def __init__(self, use_original_image: bool = ..., sampler: _Optional[_Union[Sampler, _Mapping]] = ..., sample_constraint: _Optional[_Union[SampleConstraint, _Mapping]] = ..., max_sample: _Optional[int] = ..., max_trials: _Optional[int] = ...) -> None: ...

class EmitConstraint(_message.Message):
    __slots__ = ("emit_type", "emit_overlap")
    class EmitType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CENTER: _ClassVar[EmitConstraint.EmitType]
        MIN_OVERLAP: _ClassVar[EmitConstraint.EmitType]
    CENTER: EmitConstraint.EmitType
    MIN_OVERLAP: EmitConstraint.EmitType
    EMIT_TYPE_FIELD_NUMBER: _ClassVar[int]
    EMIT_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    emit_type: EmitConstraint.EmitType
    emit_overlap: float
    def __init__(self, emit_type: _Optional[_Union[EmitConstraint.EmitType, str]] = ..., emit_overlap: _Optional[float] = ...) -> None: ...

class FillerParameter(_message.Message):
    __slots__ = ("type", "value", "min", "max", "mean", "std", "sparse", "variance_norm", "diag_val")
    class VarianceNorm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FAN_IN: _ClassVar[FillerParameter.VarianceNorm]
        FAN_OUT: _ClassVar[FillerParameter.VarianceNorm]
        AVERAGE: _ClassVar[FillerParameter.VarianceNorm]
    FAN_IN: FillerParameter.VarianceNorm
    FAN_OUT: FillerParameter.VarianceNorm
    AVERAGE: FillerParameter.VarianceNorm
    TYPE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_NORM_FIELD_NUMBER: _ClassVar[int]
    DIAG_VAL_FIELD_NUMBER: _ClassVar[int]
    type: str
    value: float
    min: float
    max: float
    mean: float
    std: float
    sparse: int
    variance_norm: FillerParameter.VarianceNorm
    diag_val: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, type: _Optional[str] = ..., value: _Optional[float] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., mean: _Optional[float] = ..., std: _Optional[float] = ..., sparse: _Optional[int] = ..., variance_norm: _Optional[_Union[FillerParameter.VarianceNorm, str]] = ..., diag_val: _Optional[_Iterable[float]] = ...) -> None: ...

class NetParameter(_message.Message):
    __slots__ = ("name", "layers", "input", "input_dim", "force_backward", "state", "debug_info", "input_shape", "layer", "bn_stats_batch_size", "unsupported")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    FORCE_BACKWARD_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    INPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    BN_STATS_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_FIELD_NUMBER: _ClassVar[int]
    name: str
    layers: _containers.RepeatedCompositeFieldContainer[V1LayerParameter]
    input: _containers.RepeatedScalarFieldContainer[str]
    input_dim: _containers.RepeatedScalarFieldContainer[int]
    force_backward: bool
    state: NetState
    debug_info: bool
    input_shape: _containers.RepeatedCompositeFieldContainer[BlobShape]
    layer: _containers.RepeatedCompositeFieldContainer[LayerParameter]
    bn_stats_batch_size: int
    unsupported: _containers.RepeatedCompositeFieldContainer[UnsupportedField]
    def __init__(self, name: _Optional[str] = ..., layers: _Optional[_Iterable[_Union[V1LayerParameter, _Mapping]]] = ..., input: _Optional[_Iterable[str]] = ..., input_dim: _Optional[_Iterable[int]] = ..., force_backward: bool = ..., state: _Optional[_Union[NetState, _Mapping]] = ..., debug_info: bool = ..., input_shape: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ..., layer: _Optional[_Iterable[_Union[LayerParameter, _Mapping]]] = ..., bn_stats_batch_size: _Optional[int] = ..., unsupported: _Optional[_Iterable[_Union[UnsupportedField, _Mapping]]] = ...) -> None: ...

class UnsupportedField(_message.Message):
    __slots__ = ("message", "name", "line")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    message: str
    name: str
    line: int
    def __init__(self, message: _Optional[str] = ..., name: _Optional[str] = ..., line: _Optional[int] = ...) -> None: ...

class SolverParameter(_message.Message):
    __slots__ = ("train_net", "test_net", "test_iter", "test_interval", "base_lr", "display", "max_iter", "lr_policy", "gamma", "power", "momentum", "weight_decay", "stepsize", "snapshot", "snapshot_prefix", "snapshot_diff", "solver_mode", "device_id", "test_compute_loss", "random_seed", "train_net_param", "test_net_param", "debug_info", "net", "net_param", "train_state", "test_state", "snapshot_after_train", "regularization_type", "solver_type", "delta", "test_initialization", "average_loss", "stepvalue", "clip_gradients", "iter_size", "snapshot_format", "rms_decay", "momentum2", "type", "layer_wise_reduce", "weights", "eval_type", "ap_version", "show_per_class_result", "rampup_interval", "rampup_lr", "min_lr", "momentum_policy", "max_momentum", "momentum_power", "weight_decay_policy", "weight_decay_power", "max_weight_decay", "larc", "larc_policy", "larc_eta", "stagelr", "stageiter", "warmup_iter", "warmup_start_lr", "local_lr_auto", "local_gw_ratio", "plateau_winsize")
    class SolverMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CPU: _ClassVar[SolverParameter.SolverMode]
        GPU: _ClassVar[SolverParameter.SolverMode]
    CPU: SolverParameter.SolverMode
    GPU: SolverParameter.SolverMode
    class SolverType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SGD: _ClassVar[SolverParameter.SolverType]
        NESTEROV: _ClassVar[SolverParameter.SolverType]
        ADAGRAD: _ClassVar[SolverParameter.SolverType]
        RMSPROP: _ClassVar[SolverParameter.SolverType]
        ADADELTA: _ClassVar[SolverParameter.SolverType]
        ADAM: _ClassVar[SolverParameter.SolverType]
    SGD: SolverParameter.SolverType
    NESTEROV: SolverParameter.SolverType
    ADAGRAD: SolverParameter.SolverType
    RMSPROP: SolverParameter.SolverType
    ADADELTA: SolverParameter.SolverType
    ADAM: SolverParameter.SolverType
    class SnapshotFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        HDF5: _ClassVar[SolverParameter.SnapshotFormat]
        BINARYPROTO: _ClassVar[SolverParameter.SnapshotFormat]
    HDF5: SolverParameter.SnapshotFormat
    BINARYPROTO: SolverParameter.SnapshotFormat
    TRAIN_NET_FIELD_NUMBER: _ClassVar[int]
    TEST_NET_FIELD_NUMBER: _ClassVar[int]
    TEST_ITER_FIELD_NUMBER: _ClassVar[int]
    TEST_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    BASE_LR_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_FIELD_NUMBER: _ClassVar[int]
    MAX_ITER_FIELD_NUMBER: _ClassVar[int]
    LR_POLICY_FIELD_NUMBER: _ClassVar[int]
    GAMMA_FIELD_NUMBER: _ClassVar[int]
    POWER_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    STEPSIZE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_DIFF_FIELD_NUMBER: _ClassVar[int]
    SOLVER_MODE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    TEST_COMPUTE_LOSS_FIELD_NUMBER: _ClassVar[int]
    RANDOM_SEED_FIELD_NUMBER: _ClassVar[int]
    TRAIN_NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    TEST_NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    NET_FIELD_NUMBER: _ClassVar[int]
    NET_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRAIN_STATE_FIELD_NUMBER: _ClassVar[int]
    TEST_STATE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_AFTER_TRAIN_FIELD_NUMBER: _ClassVar[int]
    REGULARIZATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    SOLVER_TYPE_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    TEST_INITIALIZATION_FIELD_NUMBER: _ClassVar[int]
    AVERAGE_LOSS_FIELD_NUMBER: _ClassVar[int]
    STEPVALUE_FIELD_NUMBER: _ClassVar[int]
    CLIP_GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    ITER_SIZE_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    RMS_DECAY_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM2_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    LAYER_WISE_REDUCE_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    EVAL_TYPE_FIELD_NUMBER: _ClassVar[int]
    AP_VERSION_FIELD_NUMBER: _ClassVar[int]
    SHOW_PER_CLASS_RESULT_FIELD_NUMBER: _ClassVar[int]
    RAMPUP_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    RAMPUP_LR_FIELD_NUMBER: _ClassVar[int]
    MIN_LR_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_POLICY_FIELD_NUMBER: _ClassVar[int]
    MAX_MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_POWER_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_POLICY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_POWER_FIELD_NUMBER: _ClassVar[int]
    MAX_WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    LARC_FIELD_NUMBER: _ClassVar[int]
    LARC_POLICY_FIELD_NUMBER: _ClassVar[int]
    LARC_ETA_FIELD_NUMBER: _ClassVar[int]
    STAGELR_FIELD_NUMBER: _ClassVar[int]
    STAGEITER_FIELD_NUMBER: _ClassVar[int]
    WARMUP_ITER_FIELD_NUMBER: _ClassVar[int]
    WARMUP_START_LR_FIELD_NUMBER: _ClassVar[int]
    LOCAL_LR_AUTO_FIELD_NUMBER: _ClassVar[int]
    LOCAL_GW_RATIO_FIELD_NUMBER: _ClassVar[int]
    PLATEAU_WINSIZE_FIELD_NUMBER: _ClassVar[int]
    train_net: str
    test_net: _containers.RepeatedScalarFieldContainer[str]
    test_iter: _containers.RepeatedScalarFieldContainer[int]
    test_interval: int
    base_lr: float
    display: int
    max_iter: int
    lr_policy: str
    gamma: float
    power: float
    momentum: float
    weight_decay: float
    stepsize: int
    snapshot: int
    snapshot_prefix: str
    snapshot_diff: bool
    solver_mode: SolverParameter.SolverMode
    device_id: int
    test_compute_loss: bool
    random_seed: int
    train_net_param: NetParameter
    test_net_param: _containers.RepeatedCompositeFieldContainer[NetParameter]
    debug_info: bool
    net: str
    net_param: NetParameter
    train_state: NetState
    test_state: _containers.RepeatedCompositeFieldContainer[NetState]
    snapshot_after_train: bool
    regularization_type: str
    solver_type: SolverParameter.SolverType
    delta: float
    test_initialization: bool
    average_loss: int
    stepvalue: _containers.RepeatedScalarFieldContainer[int]
    clip_gradients: float
    iter_size: int
    snapshot_format: SolverParameter.SnapshotFormat
    rms_decay: float
    momentum2: float
    type: str
    layer_wise_reduce: bool
    weights: _containers.RepeatedScalarFieldContainer[str]
    eval_type: str
    ap_version: str
    show_per_class_result: bool
    rampup_interval: int
    rampup_lr: float
    min_lr: float
    momentum_policy: str
    max_momentum: float
    momentum_power: float
    weight_decay_policy: str
    weight_decay_power: float
    max_weight_decay: float
    larc: bool
    larc_policy: str
    larc_eta: float
    stagelr: _containers.RepeatedScalarFieldContainer[float]
    stageiter: _containers.RepeatedScalarFieldContainer[int]
    warmup_iter: int
    warmup_start_lr: float
    local_lr_auto: bool
    local_gw_ratio: float
    plateau_winsize: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, train_net: _Optional[str] = ..., test_net: _Optional[_Iterable[str]] = ..., test_iter: _Optional[_Iterable[int]] = ..., test_interval: _Optional[int] = ..., base_lr: _Optional[float] = ..., display: _Optional[int] = ..., max_iter: _Optional[int] = ..., lr_policy: _Optional[str] = ..., gamma: _Optional[float] = ..., power: _Optional[float] = ..., momentum: _Optional[float] = ..., weight_decay: _Optional[float] = ..., stepsize: _Optional[int] = ..., snapshot: _Optional[int] = ..., snapshot_prefix: _Optional[str] = ..., snapshot_diff: bool = ..., solver_mode: _Optional[_Union[SolverParameter.SolverMode, str]] = ..., device_id: _Optional[int] = ..., test_compute_loss: bool = ..., random_seed: _Optional[int] = ..., train_net_param: _Optional[_Union[NetParameter, _Mapping]] = ..., test_net_param: _Optional[_Iterable[_Union[NetParameter, _Mapping]]] = ..., debug_info: bool = ..., net: _Optional[str] = ..., net_param: _Optional[_Union[NetParameter, _Mapping]] = ..., train_state: _Optional[_Union[NetState, _Mapping]] = ..., test_state: _Optional[_Iterable[_Union[NetState, _Mapping]]] = ..., snapshot_after_train: bool = ..., regularization_type: _Optional[str] = ..., solver_type: _Optional[_Union[SolverParameter.SolverType, str]] = ..., delta: _Optional[float] = ..., test_initialization: bool = ..., average_loss: _Optional[int] = ..., stepvalue: _Optional[_Iterable[int]] = ..., clip_gradients: _Optional[float] = ..., iter_size: _Optional[int] = ..., snapshot_format: _Optional[_Union[SolverParameter.SnapshotFormat, str]] = ..., rms_decay: _Optional[float] = ..., momentum2: _Optional[float] = ..., type: _Optional[str] = ..., layer_wise_reduce: bool = ..., weights: _Optional[_Iterable[str]] = ..., eval_type: _Optional[str] = ..., ap_version: _Optional[str] = ..., show_per_class_result: bool = ..., rampup_interval: _Optional[int] = ..., rampup_lr: _Optional[float] = ..., min_lr: _Optional[float] = ..., momentum_policy: _Optional[str] = ..., max_momentum: _Optional[float] = ..., momentum_power: _Optional[float] = ..., weight_decay_policy: _Optional[str] = ..., weight_decay_power: _Optional[float] = ..., max_weight_decay: _Optional[float] = ..., larc: bool = ..., larc_policy: _Optional[str] = ..., larc_eta: _Optional[float] = ..., stagelr: _Optional[_Iterable[float]] = ..., stageiter: _Optional[_Iterable[int]] = ..., warmup_iter: _Optional[int] = ..., warmup_start_lr: _Optional[float] = ..., local_lr_auto: bool = ..., local_gw_ratio: _Optional[float] = ..., plateau_winsize: _Optional[_Iterable[int]] = ...) -> None: ...

class SolverState(_message.Message):
    __slots__ = ("iter", "learned_net", "history", "current_step", "resume", "sha256")
    ITER_FIELD_NUMBER: _ClassVar[int]
    LEARNED_NET_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    CURRENT_STEP_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    iter: int
    learned_net: str
    history: _containers.RepeatedCompositeFieldContainer[BlobProto]
    current_step: int
    resume: ResumeState
    sha256: bytes
    def __init__(self, iter: _Optional[int] = ..., learned_net: _Optional[str] = ..., history: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., current_step: _Optional[int] = ..., resume: _Optional[_Union[ResumeState, _Mapping]] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ResumeState(_message.Message):
    __slots__ = ("source", "carried", "type", "model_sha256", "best")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    CARRIED_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MODEL_SHA256_FIELD_NUMBER: _ClassVar[int]
    BEST_FIELD_NUMBER: _ClassVar[int]
    source: _containers.RepeatedCompositeFieldContainer[SourceState]
    carried: _containers.RepeatedCompositeFieldContainer[CarriedState]
    type: str
    model_sha256: bytes
    best: BestScore
    def __init__(self, source: _Optional[_Iterable[_Union[SourceState, _Mapping]]] = ..., carried: _Optional[_Iterable[_Union[CarriedState, _Mapping]]] = ..., type: _Optional[str] = ..., model_sha256: _Optional[bytes] = ..., best: _Optional[_Union[BestScore, _Mapping]] = ...) -> None: ...

class BestScore(_message.Message):
    __slots__ = ("output", "value", "iteration")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ITERATION_FIELD_NUMBER: _ClassVar[int]
    output: str
    value: float
    iteration: int
    def __init__(self, output: _Optional[str] = ..., value: _Optional[float] = ..., iteration: _Optional[int] = ...) -> None: ...

class SourceState(_message.Message):
    __slots__ = ("net", "layer", "key", "value")
    NET_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    net: str
    layer: str
    key: str
    value: int
    def __init__(self, net: _Optional[str] = ..., layer: _Optional[str] = ..., key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...

class CarriedState(_message.Message):
    __slots__ = ("net", "layer", "key", "values")
    NET_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    net: str
    layer: str
    key: str
    values: BlobProto
    def __init__(self, net: _Optional[str] = ..., layer: _Optional[str] = ..., key: _Optional[str] = ..., values: _Optional[_Union[BlobProto, _Mapping]] = ...) -> None: ...

class NetState(_message.Message):
    __slots__ = ("phase", "level", "stage")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    level: int
    stage: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., level: _Optional[int] = ..., stage: _Optional[_Iterable[str]] = ...) -> None: ...

class NetStateRule(_message.Message):
    __slots__ = ("phase", "min_level", "max_level", "stage", "not_stage")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MIN_LEVEL_FIELD_NUMBER: _ClassVar[int]
    MAX_LEVEL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    NOT_STAGE_FIELD_NUMBER: _ClassVar[int]
    phase: Phase
    min_level: int
    max_level: int
    stage: _containers.RepeatedScalarFieldContainer[str]
    not_stage: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, phase: _Optional[_Union[Phase, str]] = ..., min_level: _Optional[int] = ..., max_level: _Optional[int] = ..., stage: _Optional[_Iterable[str]] = ..., not_stage: _Optional[_Iterable[str]] = ...) -> None: ...

class ParamSpec(_message.Message):
    __slots__ = ("name", "share_mode", "lr_mult", "decay_mult")
    class DimCheckMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STRICT: _ClassVar[ParamSpec.DimCheckMode]
        PERMISSIVE: _ClassVar[ParamSpec.DimCheckMode]
    STRICT: ParamSpec.DimCheckMode
    PERMISSIVE: ParamSpec.DimCheckMode
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARE_MODE_FIELD_NUMBER: _ClassVar[int]
    LR_MULT_FIELD_NUMBER: _ClassVar[int]
    DECAY_MULT_FIELD_NUMBER: _ClassVar[int]
    name: str
    share_mode: ParamSpec.DimCheckMode
    lr_mult: float
    decay_mult: float
    def __init__(self, name: _Optional[str] = ..., share_mode: _Optional[_Union[ParamSpec.DimCheckMode, str]] = ..., lr_mult: _Optional[float] = ..., decay_mult: _Optional[float] = ...) -> None: ...

class LayerParameter(_message.Message):
    __slots__ = ("name", "type", "bottom", "top", "loss_weight", "param", "blobs", "include", "exclude", "phase", "propagate_down", "transform_param", "loss_param", "accuracy_param", "argmax_param", "concat_param", "contrastive_loss_param", "convolution_param", "data_param", "dropout_param", "dummy_data_param", "eltwise_param", "exp_param", "hdf5_data_param", "hdf5_output_param", "hinge_loss_param", "image_data_param", "infogain_loss_param", "inner_product_param", "lrn_param", "memory_data_param", "mvn_param", "pooling_param", "power_param", "relu_param", "sigmoid_param", "softmax_param", "slice_param", "tanh_param", "threshold_param", "window_data_param", "python_param", "prelu_param", "spp_param", "reshape_param", "log_param", "flatten_param", "reduction_param", "embed_param", "tile_param", "batch_norm_param", "elu_param", "bias_param", "scale_param", "input_param", "crop_param", "parameter_param", "recurrent_param", "swish_param", "clip_param", "lms_param", "unsupported", "annotated_data_param", "permute_param", "norm_param", "upsample_param", "interp_param", "shuffle_channel_param", "prior_box_param", "multibox_loss_param", "detection_output_param", "detection_evaluate_param", "upsample_darknet_param", "bn_param", "reorg_param", "psroi_pooling_param", "box_annotator_ohem_param", "proposal_param", "psroi_align_param", "roi_align_param", "yolo_detection_output_param", "yolov3_detection_output_param", "eval_detection_param", "region_loss_param", "yolov3_param", "ctc_loss_param", "ctc_decoder_param", "labelsequence_accuracy_param", "continuation_indicator_param", "reverse_param", "triplet_loss_param", "correlation_param", "st_param", "dense_image_data_param", "bbox_reg_param", "box_output_param", "box_group_output_param", "decode_bbox_param", "scale_route_param", "detection_loss_param", "detection_accuracy_param", "proposal_target_param", "image_gt_data_param", "detection_data_param", "eval_data_param", "detection_group_loss_param", "detection_group_accuracy_param", "frcnn_output_param", "hard_mining_param", "roi_warping_param", "mask_resize_param", "guided_dropout_param", "flow_warp_param", "denseblock_param", "seg_accuracy_param", "center_loss_param", "randvec_param", "rand_vec_param", "deephi_resize_param", "locally_connected_param", "video_data_param", "multi_stage_meanfield_param", "pad_param", "squeeze_param", "transpose_param", "lstm_param", "token_data_param", "relu6_param", "roi_pooling_param", "smooth_l1_loss_param", "layer_norm_param", "rms_norm_param", "gelu_param", "gated_unit_param", "matmul_param", "attention_param", "rotary_embedding_param", "drop_path_param")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BOTTOM_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    PROPAGATE_DOWN_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    ARGMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONCAT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONTRASTIVE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONVOLUTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    DUMMY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXP_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    HINGE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    INFOGAIN_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    LRN_PARAM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MVN_PARAM_FIELD_NUMBER: _ClassVar[int]
    POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    POWER_PARAM_FIELD_NUMBER: _ClassVar[int]
    RELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    SIGMOID_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    SLICE_PARAM_FIELD_NUMBER: _ClassVar[int]
    TANH_PARAM_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_PARAM_FIELD_NUMBER: _ClassVar[int]
    WINDOW_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    PYTHON_PARAM_FIELD_NUMBER: _ClassVar[int]
    PRELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    SPP_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESHAPE_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOG_PARAM_FIELD_NUMBER: _ClassVar[int]
    FLATTEN_PARAM_FIELD_NUMBER: _ClassVar[int]
    REDUCTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    EMBED_PARAM_FIELD_NUMBER: _ClassVar[int]
    TILE_PARAM_FIELD_NUMBER: _ClassVar[int]
    BATCH_NORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    BIAS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SCALE_PARAM_FIELD_NUMBER: _ClassVar[int]
    INPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CROP_PARAM_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_PARAM_FIELD_NUMBER: _ClassVar[int]
    RECURRENT_PARAM_FIELD_NUMBER: _ClassVar[int]
    SWISH_PARAM_FIELD_NUMBER: _ClassVar[int]
    CLIP_PARAM_FIELD_NUMBER: _ClassVar[int]
    LMS_PARAM_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_FIELD_NUMBER: _ClassVar[int]
    ANNOTATED_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    PERMUTE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_PARAM_FIELD_NUMBER: _ClassVar[int]
    INTERP_PARAM_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_CHANNEL_PARAM_FIELD_NUMBER: _ClassVar[int]
    PRIOR_BOX_PARAM_FIELD_NUMBER: _ClassVar[int]
    MULTIBOX_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_EVALUATE_PARAM_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_DARKNET_PARAM_FIELD_NUMBER: _ClassVar[int]
    BN_PARAM_FIELD_NUMBER: _ClassVar[int]
    REORG_PARAM_FIELD_NUMBER: _ClassVar[int]
    PSROI_POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    BOX_ANNOTATOR_OHEM_PARAM_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_PARAM_FIELD_NUMBER: _ClassVar[int]
    PSROI_ALIGN_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROI_ALIGN_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLO_DETECTION_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLOV3_DETECTION_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    EVAL_DETECTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    REGION_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    YOLOV3_PARAM_FIELD_NUMBER: _ClassVar[int]
    CTC_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CTC_DECODER_PARAM_FIELD_NUMBER: _ClassVar[int]
    LABELSEQUENCE_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONTINUATION_INDICATOR_PARAM_FIELD_NUMBER: _ClassVar[int]
    REVERSE_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRIPLET_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_PARAM_FIELD_NUMBER: _ClassVar[int]
    ST_PARAM_FIELD_NUMBER: _ClassVar[int]
    DENSE_IMAGE_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    BBOX_REG_PARAM_FIELD_NUMBER: _ClassVar[int]
    BOX_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    BOX_GROUP_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    DECODE_BBOX_PARAM_FIELD_NUMBER: _ClassVar[int]
    SCALE_ROUTE_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_TARGET_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMAGE_GT_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    EVAL_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_GROUP_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    DETECTION_GROUP_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    FRCNN_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    HARD_MINING_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROI_WARPING_PARAM_FIELD_NUMBER: _ClassVar[int]
    MASK_RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    GUIDED_DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    FLOW_WARP_PARAM_FIELD_NUMBER: _ClassVar[int]
    DENSEBLOCK_PARAM_FIELD_NUMBER: _ClassVar[int]
    SEG_ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    CENTER_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    RANDVEC_PARAM_FIELD_NUMBER: _ClassVar[int]
    RAND_VEC_PARAM_FIELD_NUMBER: _ClassVar[int]
    DEEPHI_RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOCALLY_CONNECTED_PARAM_FIELD_NUMBER: _ClassVar[int]
    VIDEO_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MULTI_STAGE_MEANFIELD_PARAM_FIELD_NUMBER: _ClassVar[int]
    PAD_PARAM_FIELD_NUMBER: _ClassVar[int]
    SQUEEZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_PARAM_FIELD_NUMBER: _ClassVar[int]
    LSTM_PARAM_FIELD_NUMBER: _ClassVar[int]
    TOKEN_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    RELU6_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROI_POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    SMOOTH_L1_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    LAYER_NORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    RMS_NORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    GELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    GATED_UNIT_PARAM_FIELD_NUMBER: _ClassVar[int]
    MATMUL_PARAM_FIELD_NUMBER: _ClassVar[int]
    ATTENTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    ROTARY_EMBEDDING_PARAM_FIELD_NUMBER: _ClassVar[int]
    DROP_PATH_PARAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    bottom: _containers.RepeatedScalarFieldContainer[str]
    top: _containers.RepeatedScalarFieldContainer[str]
    loss_weight: _containers.RepeatedScalarFieldContainer[float]
    param: _containers.RepeatedCompositeFieldContainer[ParamSpec]
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    include: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    exclude: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    phase: Phase
    propagate_down: _containers.RepeatedScalarFieldContainer[bool]
    transform_param: TransformationParameter
    loss_param: LossParameter
    accuracy_param: AccuracyParameter
    argmax_param: ArgMaxParameter
    concat_param: ConcatParameter
    contrastive_loss_param: ContrastiveLossParameter
    convolution_param: ConvolutionParameter
    data_param: DataParameter
    dropout_param: DropoutParameter
    dummy_data_param: DummyDataParameter
    eltwise_param: EltwiseParameter
    exp_param: ExpParameter
    hdf5_data_param: HDF5DataParameter
    hdf5_output_param: HDF5OutputParameter
    hinge_loss_param: HingeLossParameter
    image_data_param: ImageDataParameter
    infogain_loss_param: InfogainLossParameter
    inner_product_param: InnerProductParameter
    lrn_param: LRNParameter
    memory_data_param: MemoryDataParameter
    mvn_param: MVNParameter
    pooling_param: PoolingParameter
    power_param: PowerParameter
    relu_param: ReLUParameter
    sigmoid_param: SigmoidParameter
    softmax_param: SoftmaxParameter
    slice_param: SliceParameter
    tanh_param: TanHParameter
    threshold_param: ThresholdParameter
    window_data_param: WindowDataParameter
    python_param: PythonParameter
    prelu_param: PReLUParameter
    spp_param: SPPParameter
    reshape_param: ReshapeParameter
    log_param: LogParameter
    flatten_param: FlattenParameter
    reduction_param: ReductionParameter
    embed_param: EmbedParameter
    tile_param: TileParameter
    batch_norm_param: BatchNormParameter
    elu_param: ELUParameter
    bias_param: BiasParameter
    scale_param: ScaleParameter
    input_param: InputParameter
    crop_param: CropParameter
    parameter_param: ParameterParameter
    recurrent_param: RecurrentParameter
    swish_param: SwishParameter
    clip_param: ClipParameter
    lms_param: LMSParameter
    unsupported: _containers.RepeatedCompositeFieldContainer[UnsupportedField]
    annotated_data_param: AnnotatedDataParameter
    permute_param: PermuteParameter
    norm_param: NormalizeParameter
    upsample_param: UpsampleParameter
    interp_param: InterpParameter
    shuffle_channel_param: ShuffleChannelParameter
    prior_box_param: PriorBoxParameter
    multibox_loss_param: MultiBoxLossParameter
    detection_output_param: DetectionOutputParameter
    detection_evaluate_param: DetectionEvaluateParameter
    upsample_darknet_param: UpsampleDarknetParameter
    bn_param: BNParameter
    reorg_param: ReorgParameter
    psroi_pooling_param: PSROIPoolingParameter
    box_annotator_ohem_param: BoxAnnotatorOHEMParameter
    proposal_param: ProposalParameter
    psroi_align_param: PSROIAlignParameter
    roi_align_param: ROIAlignParameter
    yolo_detection_output_param: YoloDetectionOutputParameter
    yolov3_detection_output_param: Yolov3DetectionOutputParameter
    eval_detection_param: EvalDetectionParameter
    region_loss_param: RegionLossParameter
    yolov3_param: Yolov3Parameter
    ctc_loss_param: CTCLossParameter
    ctc_decoder_param: CTCDecoderParameter
    labelsequence_accuracy_param: LabelsequenceAccuracyParameter
    continuation_indicator_param: ContinuationIndicatorParameter
    reverse_param: ReverseParameter
    triplet_loss_param: TripletLossParameter
    correlation_param: CorrelationParameter
    st_param: SpatialTransformerParameter
    dense_image_data_param: DenseImageDataParameter
    bbox_reg_param: BBoxRegParameter
    box_output_param: BoxOutputParameter
    box_group_output_param: BoxGroupOutputParameter
    decode_bbox_param: DecodeBBoxParameter
    scale_route_param: ScaleRouteParameter
    detection_loss_param: DetectionLossParameter
    detection_accuracy_param: DetectionAccuracyParameter
    proposal_target_param: ProposalTargetParameter
    image_gt_data_param: ImageGtDataParameter
    detection_data_param: DetectionDataParameter
    eval_data_param: EvalDataParameter
    detection_group_loss_param: DetectionGroupLossParameter
    detection_group_accuracy_param: DetectionGroupAccuracyParameter
    frcnn_output_param: FrcnnOutputParameter
    hard_mining_param: HardMiningParameter
    roi_warping_param: ROIWarpingParameter
    mask_resize_param: MaskResizeParameter
    guided_dropout_param: GuidedDropoutParameter
    flow_warp_param: FlowWarpParameter
    denseblock_param: DenseBlockParameter
    seg_accuracy_param: SegAccuracyParameter
    center_loss_param: CenterLossParameter
    randvec_param: RandVecParameter
    rand_vec_param: RandVecParameter
    deephi_resize_param: DeephiResizeParameter
    locally_connected_param: LocallyConnectedParameter
    video_data_param: VideoDataParameter
    multi_stage_meanfield_param: MultiStageMeanfieldParameter
    pad_param: PadParameter
    squeeze_param: SqueezeParameter
    transpose_param: TransposeParameter
    lstm_param: LstmParameter
    token_data_param: TokenDataParameter
    relu6_param: ReLU6Parameter
    roi_pooling_param: ROIPoolingParameter
    smooth_l1_loss_param: SmoothL1LossParameter
    layer_norm_param: LayerNormParameter
    rms_norm_param: RMSNormParameter
    gelu_param: GELUParameter
    gated_unit_param: GatedUnitParameter
    matmul_param: MatMulParameter
    attention_param: AttentionParameter
    rotary_embedding_param: RotaryEmbeddingParameter
    drop_path_param: DropPathParameter
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., bottom: _Optional[_Iterable[str]] = ..., top: _Optional[_Iterable[str]] = ..., loss_weight: _Optional[_Iterable[float]] = ..., param: _Optional[_Iterable[_Union[ParamSpec, _Mapping]]] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., include: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., exclude: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., phase: _Optional[_Union[Phase, str]] = ..., propagate_down: _Optional[_Iterable[bool]] = ..., transform_param: _Optional[_Union[TransformationParameter, _Mapping]] = ..., loss_param: _Optional[_Union[LossParameter, _Mapping]] = ..., accuracy_param: _Optional[_Union[AccuracyParameter, _Mapping]] = ..., argmax_param: _Optional[_Union[ArgMaxParameter, _Mapping]] = ..., concat_param: _Optional[_Union[ConcatParameter, _Mapping]] = ..., contrastive_loss_param: _Optional[_Union[ContrastiveLossParameter, _Mapping]] = ..., convolution_param: _Optional[_Union[ConvolutionParameter, _Mapping]] = ..., data_param: _Optional[_Union[DataParameter, _Mapping]] = ..., dropout_param: _Optional[_Union[DropoutParameter, _Mapping]] = ..., dummy_data_param: _Optional[_Union[DummyDataParameter, _Mapping]] = ..., eltwise_param: _Optional[_Union[EltwiseParameter, _Mapping]] = ..., exp_param: _Optional[_Union[ExpParameter, _Mapping]] = ..., hdf5_data_param: _Optional[_Union[HDF5DataParameter, _Mapping]] = ..., hdf5_output_param: _Optional[_Union[HDF5OutputParameter, _Mapping]] = ..., hinge_loss_param: _Optional[_Union[HingeLossParameter, _Mapping]] = ..., image_data_param: _Optional[_Union[ImageDataParameter, _Mapping]] = ..., infogain_loss_param: _Optional[_Union[InfogainLossParameter, _Mapping]] = ..., inner_product_param: _Optional[_Union[InnerProductParameter, _Mapping]] = ..., lrn_param: _Optional[_Union[LRNParameter, _Mapping]] = ..., memory_data_param: _Optional[_Union[MemoryDataParameter, _Mapping]] = ..., mvn_param: _Optional[_Union[MVNParameter, _Mapping]] = ..., pooling_param: _Optional[_Union[PoolingParameter, _Mapping]] = ..., power_param: _Optional[_Union[PowerParameter, _Mapping]] = ..., relu_param: _Optional[_Union[ReLUParameter, _Mapping]] = ..., sigmoid_param: _Optional[_Union[SigmoidParameter, _Mapping]] = ..., softmax_param: _Optional[_Union[SoftmaxParameter, _Mapping]] = ..., slice_param: _Optional[_Union[SliceParameter, _Mapping]] = ..., tanh_param: _Optional[_Union[TanHParameter, _Mapping]] = ..., threshold_param: _Optional[_Union[ThresholdParameter, _Mapping]] = ..., window_data_param: _Optional[_Union[WindowDataParameter, _Mapping]] = ..., python_param: _Optional[_Union[PythonParameter, _Mapping]] = ..., prelu_param: _Optional[_Union[PReLUParameter, _Mapping]] = ..., spp_param: _Optional[_Union[SPPParameter, _Mapping]] = ..., reshape_param: _Optional[_Union[ReshapeParameter, _Mapping]] = ..., log_param: _Optional[_Union[LogParameter, _Mapping]] = ..., flatten_param: _Optional[_Union[FlattenParameter, _Mapping]] = ..., reduction_param: _Optional[_Union[ReductionParameter, _Mapping]] = ..., embed_param: _Optional[_Union[EmbedParameter, _Mapping]] = ..., tile_param: _Optional[_Union[TileParameter, _Mapping]] = ..., batch_norm_param: _Optional[_Union[BatchNormParameter, _Mapping]] = ..., elu_param: _Optional[_Union[ELUParameter, _Mapping]] = ..., bias_param: _Optional[_Union[BiasParameter, _Mapping]] = ..., scale_param: _Optional[_Union[ScaleParameter, _Mapping]] = ..., input_param: _Optional[_Union[InputParameter, _Mapping]] = ..., crop_param: _Optional[_Union[CropParameter, _Mapping]] = ..., parameter_param: _Optional[_Union[ParameterParameter, _Mapping]] = ..., recurrent_param: _Optional[_Union[RecurrentParameter, _Mapping]] = ..., swish_param: _Optional[_Union[SwishParameter, _Mapping]] = ..., clip_param: _Optional[_Union[ClipParameter, _Mapping]] = ..., lms_param: _Optional[_Union[LMSParameter, _Mapping]] = ..., unsupported: _Optional[_Iterable[_Union[UnsupportedField, _Mapping]]] = ..., annotated_data_param: _Optional[_Union[AnnotatedDataParameter, _Mapping]] = ..., permute_param: _Optional[_Union[PermuteParameter, _Mapping]] = ..., norm_param: _Optional[_Union[NormalizeParameter, _Mapping]] = ..., upsample_param: _Optional[_Union[UpsampleParameter, _Mapping]] = ..., interp_param: _Optional[_Union[InterpParameter, _Mapping]] = ..., shuffle_channel_param: _Optional[_Union[ShuffleChannelParameter, _Mapping]] = ..., prior_box_param: _Optional[_Union[PriorBoxParameter, _Mapping]] = ..., multibox_loss_param: _Optional[_Union[MultiBoxLossParameter, _Mapping]] = ..., detection_output_param: _Optional[_Union[DetectionOutputParameter, _Mapping]] = ..., detection_evaluate_param: _Optional[_Union[DetectionEvaluateParameter, _Mapping]] = ..., upsample_darknet_param: _Optional[_Union[UpsampleDarknetParameter, _Mapping]] = ..., bn_param: _Optional[_Union[BNParameter, _Mapping]] = ..., reorg_param: _Optional[_Union[ReorgParameter, _Mapping]] = ..., psroi_pooling_param: _Optional[_Union[PSROIPoolingParameter, _Mapping]] = ..., box_annotator_ohem_param: _Optional[_Union[BoxAnnotatorOHEMParameter, _Mapping]] = ..., proposal_param: _Optional[_Union[ProposalParameter, _Mapping]] = ..., psroi_align_param: _Optional[_Union[PSROIAlignParameter, _Mapping]] = ..., roi_align_param: _Optional[_Union[ROIAlignParameter, _Mapping]] = ..., yolo_detection_output_param: _Optional[_Union[YoloDetectionOutputParameter, _Mapping]] = ..., yolov3_detection_output_param: _Optional[_Union[Yolov3DetectionOutputParameter, _Mapping]] = ..., eval_detection_param: _Optional[_Union[EvalDetectionParameter, _Mapping]] = ..., region_loss_param: _Optional[_Union[RegionLossParameter, _Mapping]] = ..., yolov3_param: _Optional[_Union[Yolov3Parameter, _Mapping]] = ..., ctc_loss_param: _Optional[_Union[CTCLossParameter, _Mapping]] = ..., ctc_decoder_param: _Optional[_Union[CTCDecoderParameter, _Mapping]] = ..., labelsequence_accuracy_param: _Optional[_Union[LabelsequenceAccuracyParameter, _Mapping]] = ..., continuation_indicator_param: _Optional[_Union[ContinuationIndicatorParameter, _Mapping]] = ..., reverse_param: _Optional[_Union[ReverseParameter, _Mapping]] = ..., triplet_loss_param: _Optional[_Union[TripletLossParameter, _Mapping]] = ..., correlation_param: _Optional[_Union[CorrelationParameter, _Mapping]] = ..., st_param: _Optional[_Union[SpatialTransformerParameter, _Mapping]] = ..., dense_image_data_param: _Optional[_Union[DenseImageDataParameter, _Mapping]] = ..., bbox_reg_param: _Optional[_Union[BBoxRegParameter, _Mapping]] = ..., box_output_param: _Optional[_Union[BoxOutputParameter, _Mapping]] = ..., box_group_output_param: _Optional[_Union[BoxGroupOutputParameter, _Mapping]] = ..., decode_bbox_param: _Optional[_Union[DecodeBBoxParameter, _Mapping]] = ..., scale_route_param: _Optional[_Union[ScaleRouteParameter, _Mapping]] = ..., detection_loss_param: _Optional[_Union[DetectionLossParameter, _Mapping]] = ..., detection_accuracy_param: _Optional[_Union[DetectionAccuracyParameter, _Mapping]] = ..., proposal_target_param: _Optional[_Union[ProposalTargetParameter, _Mapping]] = ..., image_gt_data_param: _Optional[_Union[ImageGtDataParameter, _Mapping]] = ..., detection_data_param: _Optional[_Union[DetectionDataParameter, _Mapping]] = ..., eval_data_param: _Optional[_Union[EvalDataParameter, _Mapping]] = ..., detection_group_loss_param: _Optional[_Union[DetectionGroupLossParameter, _Mapping]] = ..., detection_group_accuracy_param: _Optional[_Union[DetectionGroupAccuracyParameter, _Mapping]] = ..., frcnn_output_param: _Optional[_Union[FrcnnOutputParameter, _Mapping]] = ..., hard_mining_param: _Optional[_Union[HardMiningParameter, _Mapping]] = ..., roi_warping_param: _Optional[_Union[ROIWarpingParameter, _Mapping]] = ..., mask_resize_param: _Optional[_Union[MaskResizeParameter, _Mapping]] = ..., guided_dropout_param: _Optional[_Union[GuidedDropoutParameter, _Mapping]] = ..., flow_warp_param: _Optional[_Union[FlowWarpParameter, _Mapping]] = ..., denseblock_param: _Optional[_Union[DenseBlockParameter, _Mapping]] = ..., seg_accuracy_param: _Optional[_Union[SegAccuracyParameter, _Mapping]] = ..., center_loss_param: _Optional[_Union[CenterLossParameter, _Mapping]] = ..., randvec_param: _Optional[_Union[RandVecParameter, _Mapping]] = ..., rand_vec_param: _Optional[_Union[RandVecParameter, _Mapping]] = ..., deephi_resize_param: _Optional[_Union[DeephiResizeParameter, _Mapping]] = ..., locally_connected_param: _Optional[_Union[LocallyConnectedParameter, _Mapping]] = ..., video_data_param: _Optional[_Union[VideoDataParameter, _Mapping]] = ..., multi_stage_meanfield_param: _Optional[_Union[MultiStageMeanfieldParameter, _Mapping]] = ..., pad_param: _Optional[_Union[PadParameter, _Mapping]] = ..., squeeze_param: _Optional[_Union[SqueezeParameter, _Mapping]] = ..., transpose_param: _Optional[_Union[TransposeParameter, _Mapping]] = ..., lstm_param: _Optional[_Union[LstmParameter, _Mapping]] = ..., token_data_param: _Optional[_Union[TokenDataParameter, _Mapping]] = ..., relu6_param: _Optional[_Union[ReLU6Parameter, _Mapping]] = ..., roi_pooling_param: _Optional[_Union[ROIPoolingParameter, _Mapping]] = ..., smooth_l1_loss_param: _Optional[_Union[SmoothL1LossParameter, _Mapping]] = ..., layer_norm_param: _Optional[_Union[LayerNormParameter, _Mapping]] = ..., rms_norm_param: _Optional[_Union[RMSNormParameter, _Mapping]] = ..., gelu_param: _Optional[_Union[GELUParameter, _Mapping]] = ..., gated_unit_param: _Optional[_Union[GatedUnitParameter, _Mapping]] = ..., matmul_param: _Optional[_Union[MatMulParameter, _Mapping]] = ..., attention_param: _Optional[_Union[AttentionParameter, _Mapping]] = ..., rotary_embedding_param: _Optional[_Union[RotaryEmbeddingParameter, _Mapping]] = ..., drop_path_param: _Optional[_Union[DropPathParameter, _Mapping]] = ...) -> None: ...

class LMSParameter(_message.Message):
    __slots__ = ("policy",)
    class Policy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        AUTO: _ClassVar[LMSParameter.Policy]
        KEEP: _ClassVar[LMSParameter.Policy]
        SWAP: _ClassVar[LMSParameter.Policy]
        RECOMPUTE: _ClassVar[LMSParameter.Policy]
    AUTO: LMSParameter.Policy
    KEEP: LMSParameter.Policy
    SWAP: LMSParameter.Policy
    RECOMPUTE: LMSParameter.Policy
    POLICY_FIELD_NUMBER: _ClassVar[int]
    policy: LMSParameter.Policy
    def __init__(self, policy: _Optional[_Union[LMSParameter.Policy, str]] = ...) -> None: ...

class TransformationParameter(_message.Message):
    __slots__ = ("scale", "mirror", "crop_size", "mean_file", "mean_value", "force_color", "force_gray", "resize_param", "further_resize_param", "noise_param", "emit_constraint", "crop_h", "crop_w", "distort_param", "expand_param", "scale_factors", "crop_width", "crop_height", "random_resize_param", "random_aspect_ratio_param", "img_rand_resize_lower", "img_rand_resize_upper", "rand_resize_ratio_lower", "rand_resize_ratio_upper", "vertical_stretch_lower", "vertical_stretch_upper", "horizontal_stretch_lower", "horizontal_stretch_upper", "interpolation_algo_down", "interpolation_algo_up", "allow_upscale", "fix_crop", "more_fix_crop", "multi_scale", "scale_ratios", "max_distort", "is_flow")
    class InterpolationAlgo(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INTER_NEAREST: _ClassVar[TransformationParameter.InterpolationAlgo]
        INTER_LINEAR: _ClassVar[TransformationParameter.InterpolationAlgo]
        INTER_CUBIC: _ClassVar[TransformationParameter.InterpolationAlgo]
        INTER_AREA: _ClassVar[TransformationParameter.InterpolationAlgo]
    INTER_NEAREST: TransformationParameter.InterpolationAlgo
    INTER_LINEAR: TransformationParameter.InterpolationAlgo
    INTER_CUBIC: TransformationParameter.InterpolationAlgo
    INTER_AREA: TransformationParameter.InterpolationAlgo
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    MEAN_VALUE_FIELD_NUMBER: _ClassVar[int]
    FORCE_COLOR_FIELD_NUMBER: _ClassVar[int]
    FORCE_GRAY_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    FURTHER_RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    NOISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    EMIT_CONSTRAINT_FIELD_NUMBER: _ClassVar[int]
    CROP_H_FIELD_NUMBER: _ClassVar[int]
    CROP_W_FIELD_NUMBER: _ClassVar[int]
    DISTORT_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXPAND_PARAM_FIELD_NUMBER: _ClassVar[int]
    SCALE_FACTORS_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    RANDOM_RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    RANDOM_ASPECT_RATIO_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMG_RAND_RESIZE_LOWER_FIELD_NUMBER: _ClassVar[int]
    IMG_RAND_RESIZE_UPPER_FIELD_NUMBER: _ClassVar[int]
    RAND_RESIZE_RATIO_LOWER_FIELD_NUMBER: _ClassVar[int]
    RAND_RESIZE_RATIO_UPPER_FIELD_NUMBER: _ClassVar[int]
    VERTICAL_STRETCH_LOWER_FIELD_NUMBER: _ClassVar[int]
    VERTICAL_STRETCH_UPPER_FIELD_NUMBER: _ClassVar[int]
    HORIZONTAL_STRETCH_LOWER_FIELD_NUMBER: _ClassVar[int]
    HORIZONTAL_STRETCH_UPPER_FIELD_NUMBER: _ClassVar[int]
    INTERPOLATION_ALGO_DOWN_FIELD_NUMBER: _ClassVar[int]
    INTERPOLATION_ALGO_UP_FIELD_NUMBER: _ClassVar[int]
    ALLOW_UPSCALE_FIELD_NUMBER: _ClassVar[int]
    FIX_CROP_FIELD_NUMBER: _ClassVar[int]
    MORE_FIX_CROP_FIELD_NUMBER: _ClassVar[int]
    MULTI_SCALE_FIELD_NUMBER: _ClassVar[int]
    SCALE_RATIOS_FIELD_NUMBER: _ClassVar[int]
    MAX_DISTORT_FIELD_NUMBER: _ClassVar[int]
    IS_FLOW_FIELD_NUMBER: _ClassVar[int]
    scale: float
    mirror: bool
    crop_size: int
    mean_file: str
    mean_value: _containers.RepeatedScalarFieldContainer[float]
    force_color: bool
    force_gray: bool
    resize_param: ResizeParameter
    further_resize_param: _containers.RepeatedCompositeFieldContainer[ResizeParameter]
    noise_param: NoiseParameter
    emit_constraint: EmitConstraint
    crop_h: int
    crop_w: int
    distort_param: DistortionParameter
    expand_param: ExpansionParameter
    scale_factors: _containers.RepeatedScalarFieldContainer[float]
    crop_width: int
    crop_height: int
    random_resize_param: RandomResizeParameter
    random_aspect_ratio_param: RandomAspectRatioParameter
    img_rand_resize_lower: int
    img_rand_resize_upper: int
    rand_resize_ratio_lower: float
    rand_resize_ratio_upper: float
    vertical_stretch_lower: float
    vertical_stretch_upper: float
    horizontal_stretch_lower: float
    horizontal_stretch_upper: float
    interpolation_algo_down: TransformationParameter.InterpolationAlgo
    interpolation_algo_up: TransformationParameter.InterpolationAlgo
    allow_upscale: bool
    fix_crop: bool
    more_fix_crop: bool
    multi_scale: bool
    scale_ratios: _containers.RepeatedScalarFieldContainer[float]
    max_distort: int
    is_flow: bool
    def __init__(self, scale: _Optional[float] = ..., mirror: bool = ..., crop_size: _Optional[int] = ..., mean_file: _Optional[str] = ..., mean_value: _Optional[_Iterable[float]] = ..., force_color: bool = ..., force_gray: bool = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ..., further_resize_param: _Optional[_Iterable[_Union[ResizeParameter, _Mapping]]] = ..., noise_param: _Optional[_Union[NoiseParameter, _Mapping]] = ..., emit_constraint: _Optional[_Union[EmitConstraint, _Mapping]] = ..., crop_h: _Optional[int] = ..., crop_w: _Optional[int] = ..., distort_param: _Optional[_Union[DistortionParameter, _Mapping]] = ..., expand_param: _Optional[_Union[ExpansionParameter, _Mapping]] = ..., scale_factors: _Optional[_Iterable[float]] = ..., crop_width: _Optional[int] = ..., crop_height: _Optional[int] = ..., random_resize_param: _Optional[_Union[RandomResizeParameter, _Mapping]] = ..., random_aspect_ratio_param: _Optional[_Union[RandomAspectRatioParameter, _Mapping]] = ..., img_rand_resize_lower: _Optional[int] = ..., img_rand_resize_upper: _Optional[int] = ..., rand_resize_ratio_lower: _Optional[float] = ..., rand_resize_ratio_upper: _Optional[float] = ..., vertical_stretch_lower: _Optional[float] = ..., vertical_stretch_upper: _Optional[float] = ..., horizontal_stretch_lower: _Optional[float] = ..., horizontal_stretch_upper: _Optional[float] = ..., interpolation_algo_down: _Optional[_Union[TransformationParameter.InterpolationAlgo, str]] = ..., interpolation_algo_up: _Optional[_Union[TransformationParameter.InterpolationAlgo, str]] = ..., allow_upscale: bool = ..., fix_crop: bool = ..., more_fix_crop: bool = ..., multi_scale: bool = ..., scale_ratios: _Optional[_Iterable[float]] = ..., max_distort: _Optional[int] = ..., is_flow: bool = ...) -> None: ...

class RandomResizeParameter(_message.Message):
    __slots__ = ("min_size", "max_size", "resize_param")
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    min_size: int
    max_size: int
    resize_param: ResizeParameter
    def __init__(self, min_size: _Optional[int] = ..., max_size: _Optional[int] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class RandomAspectRatioParameter(_message.Message):
    __slots__ = ("min_area_ratio", "max_area_ratio", "aspect_ratio_change", "max_attempt", "resize_param")
    MIN_AREA_RATIO_FIELD_NUMBER: _ClassVar[int]
    MAX_AREA_RATIO_FIELD_NUMBER: _ClassVar[int]
    ASPECT_RATIO_CHANGE_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    min_area_ratio: float
    max_area_ratio: float
    aspect_ratio_change: float
    max_attempt: int
    resize_param: ResizeParameter
    def __init__(self, min_area_ratio: _Optional[float] = ..., max_area_ratio: _Optional[float] = ..., aspect_ratio_change: _Optional[float] = ..., max_attempt: _Optional[int] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class ResizeParameter(_message.Message):
    __slots__ = ("prob", "resize_mode", "height", "width", "pad_mode", "pad_value", "interp_mode", "height_scale", "width_scale")
    class Resize_mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WARP: _ClassVar[ResizeParameter.Resize_mode]
        FIT_SMALL_SIZE: _ClassVar[ResizeParameter.Resize_mode]
        FIT_LARGE_SIZE_AND_PAD: _ClassVar[ResizeParameter.Resize_mode]
    WARP: ResizeParameter.Resize_mode
    FIT_SMALL_SIZE: ResizeParameter.Resize_mode
    FIT_LARGE_SIZE_AND_PAD: ResizeParameter.Resize_mode
    class Pad_mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONSTANT: _ClassVar[ResizeParameter.Pad_mode]
        MIRRORED: _ClassVar[ResizeParameter.Pad_mode]
        REPEAT_NEAREST: _ClassVar[ResizeParameter.Pad_mode]
    CONSTANT: ResizeParameter.Pad_mode
    MIRRORED: ResizeParameter.Pad_mode
    REPEAT_NEAREST: ResizeParameter.Pad_mode
    class Interp_mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LINEAR: _ClassVar[ResizeParameter.Interp_mode]
        AREA: _ClassVar[ResizeParameter.Interp_mode]
        NEAREST: _ClassVar[ResizeParameter.Interp_mode]
        CUBIC: _ClassVar[ResizeParameter.Interp_mode]
        LANCZOS4: _ClassVar[ResizeParameter.Interp_mode]
    LINEAR: ResizeParameter.Interp_mode
    AREA: ResizeParameter.Interp_mode
    NEAREST: ResizeParameter.Interp_mode
    CUBIC: ResizeParameter.Interp_mode
    LANCZOS4: ResizeParameter.Interp_mode
    PROB_FIELD_NUMBER: _ClassVar[int]
    RESIZE_MODE_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    PAD_MODE_FIELD_NUMBER: _ClassVar[int]
    PAD_VALUE_FIELD_NUMBER: _ClassVar[int]
    INTERP_MODE_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_SCALE_FIELD_NUMBER: _ClassVar[int]
    WIDTH_SCALE_FIELD_NUMBER: _ClassVar[int]
    prob: float
    resize_mode: ResizeParameter.Resize_mode
    height: int
    width: int
    pad_mode: ResizeParameter.Pad_mode
    pad_value: _containers.RepeatedScalarFieldContainer[float]
    interp_mode: _containers.RepeatedScalarFieldContainer[ResizeParameter.Interp_mode]
    height_scale: int
    width_scale: int
    def __init__(self, prob: _Optional[float] = ..., resize_mode: _Optional[_Union[ResizeParameter.Resize_mode, str]] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., pad_mode: _Optional[_Union[ResizeParameter.Pad_mode, str]] = ..., pad_value: _Optional[_Iterable[float]] = ..., interp_mode: _Optional[_Iterable[_Union[ResizeParameter.Interp_mode, str]]] = ..., height_scale: _Optional[int] = ..., width_scale: _Optional[int] = ...) -> None: ...

class SaltPepperParameter(_message.Message):
    __slots__ = ("fraction", "value")
    FRACTION_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    fraction: float
    value: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, fraction: _Optional[float] = ..., value: _Optional[_Iterable[float]] = ...) -> None: ...

class NoiseParameter(_message.Message):
    __slots__ = ("prob", "hist_eq", "inverse", "decolorize", "gauss_blur", "jpeg", "posterize", "erode", "saltpepper", "saltpepper_param", "clahe", "convert_to_hsv", "convert_to_lab")
    PROB_FIELD_NUMBER: _ClassVar[int]
    HIST_EQ_FIELD_NUMBER: _ClassVar[int]
    INVERSE_FIELD_NUMBER: _ClassVar[int]
    DECOLORIZE_FIELD_NUMBER: _ClassVar[int]
    GAUSS_BLUR_FIELD_NUMBER: _ClassVar[int]
    JPEG_FIELD_NUMBER: _ClassVar[int]
    POSTERIZE_FIELD_NUMBER: _ClassVar[int]
    ERODE_FIELD_NUMBER: _ClassVar[int]
    SALTPEPPER_FIELD_NUMBER: _ClassVar[int]
    SALTPEPPER_PARAM_FIELD_NUMBER: _ClassVar[int]
    CLAHE_FIELD_NUMBER: _ClassVar[int]
    CONVERT_TO_HSV_FIELD_NUMBER: _ClassVar[int]
    CONVERT_TO_LAB_FIELD_NUMBER: _ClassVar[int]
    prob: float
    hist_eq: bool
    inverse: bool
    decolorize: bool
    gauss_blur: bool
    jpeg: float
    posterize: bool
    erode: bool
    saltpepper: bool
    saltpepper_param: SaltPepperParameter
    clahe: bool
    convert_to_hsv: bool
    convert_to_lab: bool
    def __init__(self, prob: _Optional[float] = ..., hist_eq: bool = ..., inverse: bool = ..., decolorize: bool = ..., gauss_blur: bool = ..., jpeg: _Optional[float] = ..., posterize: bool = ..., erode: bool = ..., saltpepper: bool = ..., saltpepper_param: _Optional[_Union[SaltPepperParameter, _Mapping]] = ..., clahe: bool = ..., convert_to_hsv: bool = ..., convert_to_lab: bool = ...) -> None: ...

class DistortionParameter(_message.Message):
    __slots__ = ("brightness_prob", "brightness_delta", "contrast_prob", "contrast_lower", "contrast_upper", "hue_prob", "hue_delta", "saturation_prob", "saturation_lower", "saturation_upper", "random_order_prob")
    BRIGHTNESS_PROB_FIELD_NUMBER: _ClassVar[int]
    BRIGHTNESS_DELTA_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_PROB_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_LOWER_FIELD_NUMBER: _ClassVar[int]
    CONTRAST_UPPER_FIELD_NUMBER: _ClassVar[int]
    HUE_PROB_FIELD_NUMBER: _ClassVar[int]
    HUE_DELTA_FIELD_NUMBER: _ClassVar[int]
    SATURATION_PROB_FIELD_NUMBER: _ClassVar[int]
    SATURATION_LOWER_FIELD_NUMBER: _ClassVar[int]
    SATURATION_UPPER_FIELD_NUMBER: _ClassVar[int]
    RANDOM_ORDER_PROB_FIELD_NUMBER: _ClassVar[int]
    brightness_prob: float
    brightness_delta: float
    contrast_prob: float
    contrast_lower: float
    contrast_upper: float
    hue_prob: float
    hue_delta: float
    saturation_prob: float
    saturation_lower: float
    saturation_upper: float
    random_order_prob: float
    def __init__(self, brightness_prob: _Optional[float] = ..., brightness_delta: _Optional[float] = ..., contrast_prob: _Optional[float] = ..., contrast_lower: _Optional[float] = ..., contrast_upper: _Optional[float] = ..., hue_prob: _Optional[float] = ..., hue_delta: _Optional[float] = ..., saturation_prob: _Optional[float] = ..., saturation_lower: _Optional[float] = ..., saturation_upper: _Optional[float] = ..., random_order_prob: _Optional[float] = ...) -> None: ...

class ExpansionParameter(_message.Message):
    __slots__ = ("prob", "max_expand_ratio")
    PROB_FIELD_NUMBER: _ClassVar[int]
    MAX_EXPAND_RATIO_FIELD_NUMBER: _ClassVar[int]
    prob: float
    max_expand_ratio: float
    def __init__(self, prob: _Optional[float] = ..., max_expand_ratio: _Optional[float] = ...) -> None: ...

class LossParameter(_message.Message):
    __slots__ = ("ignore_label", "normalize", "normalization", "weight_by_label_freqs", "class_weighting", "pre_fixed_normalizer")
    class NormalizationMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        FULL: _ClassVar[LossParameter.NormalizationMode]
        VALID: _ClassVar[LossParameter.NormalizationMode]
        BATCH_SIZE: _ClassVar[LossParameter.NormalizationMode]
        NONE: _ClassVar[LossParameter.NormalizationMode]
        PRE_FIXED: _ClassVar[LossParameter.NormalizationMode]
    FULL: LossParameter.NormalizationMode
    VALID: LossParameter.NormalizationMode
    BATCH_SIZE: LossParameter.NormalizationMode
    NONE: LossParameter.NormalizationMode
    PRE_FIXED: LossParameter.NormalizationMode
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    NORMALIZATION_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BY_LABEL_FREQS_FIELD_NUMBER: _ClassVar[int]
    CLASS_WEIGHTING_FIELD_NUMBER: _ClassVar[int]
    PRE_FIXED_NORMALIZER_FIELD_NUMBER: _ClassVar[int]
    ignore_label: int
    normalize: bool
    normalization: LossParameter.NormalizationMode
    weight_by_label_freqs: bool
    class_weighting: _containers.RepeatedScalarFieldContainer[float]
    pre_fixed_normalizer: float
    def __init__(self, ignore_label: _Optional[int] = ..., normalize: bool = ..., normalization: _Optional[_Union[LossParameter.NormalizationMode, str]] = ..., weight_by_label_freqs: bool = ..., class_weighting: _Optional[_Iterable[float]] = ..., pre_fixed_normalizer: _Optional[float] = ...) -> None: ...

class AccuracyParameter(_message.Message):
    __slots__ = ("top_k", "axis", "ignore_label")
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    top_k: int
    axis: int
    ignore_label: int
    def __init__(self, top_k: _Optional[int] = ..., axis: _Optional[int] = ..., ignore_label: _Optional[int] = ...) -> None: ...

class AnnotatedDataParameter(_message.Message):
    __slots__ = ("batch_sampler", "label_map_file", "anno_type", "yolo_data_type", "yolo_data_jitter", "train_diffcult")
    BATCH_SAMPLER_FIELD_NUMBER: _ClassVar[int]
    LABEL_MAP_FILE_FIELD_NUMBER: _ClassVar[int]
    ANNO_TYPE_FIELD_NUMBER: _ClassVar[int]
    YOLO_DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    YOLO_DATA_JITTER_FIELD_NUMBER: _ClassVar[int]
    TRAIN_DIFFCULT_FIELD_NUMBER: _ClassVar[int]
    batch_sampler: _containers.RepeatedCompositeFieldContainer[BatchSampler]
    label_map_file: str
    anno_type: AnnotatedDatum.AnnotationType
    yolo_data_type: int
    yolo_data_jitter: float
    train_diffcult: bool
    def __init__(self, batch_sampler: _Optional[_Iterable[_Union[BatchSampler, _Mapping]]] = ..., label_map_file: _Optional[str] = ..., anno_type: _Optional[_Union[AnnotatedDatum.AnnotationType, str]] = ..., yolo_data_type: _Optional[int] = ..., yolo_data_jitter: _Optional[float] = ..., train_diffcult: bool = ...) -> None: ...

class ArgMaxParameter(_message.Message):
    __slots__ = ("out_max_val", "top_k", "axis")
    OUT_MAX_VAL_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    out_max_val: bool
    top_k: int
    axis: int
    def __init__(self, out_max_val: bool = ..., top_k: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...

class BatchNormParameter(_message.Message):
    __slots__ = ("use_global_stats", "moving_average_fraction", "eps", "scale_filler", "bias_filler", "scale_bias", "add_eps_before_sqrt", "stats_batch_size", "sync")
    USE_GLOBAL_STATS_FIELD_NUMBER: _ClassVar[int]
    MOVING_AVERAGE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    SCALE_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    SCALE_BIAS_FIELD_NUMBER: _ClassVar[int]
    ADD_EPS_BEFORE_SQRT_FIELD_NUMBER: _ClassVar[int]
    STATS_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SYNC_FIELD_NUMBER: _ClassVar[int]
    use_global_stats: bool
    moving_average_fraction: float
    eps: float
    scale_filler: FillerParameter
    bias_filler: FillerParameter
    scale_bias: bool
    add_eps_before_sqrt: bool
    stats_batch_size: int
    sync: bool
    def __init__(self, use_global_stats: bool = ..., moving_average_fraction: _Optional[float] = ..., eps: _Optional[float] = ..., scale_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., scale_bias: bool = ..., add_eps_before_sqrt: bool = ..., stats_batch_size: _Optional[int] = ..., sync: bool = ...) -> None: ...

class BiasParameter(_message.Message):
    __slots__ = ("axis", "num_axes", "filler")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    FILLER_FIELD_NUMBER: _ClassVar[int]
    axis: int
    num_axes: int
    filler: FillerParameter
    def __init__(self, axis: _Optional[int] = ..., num_axes: _Optional[int] = ..., filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class ClipParameter(_message.Message):
    __slots__ = ("min", "max")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    min: float
    max: float
    def __init__(self, min: _Optional[float] = ..., max: _Optional[float] = ...) -> None: ...

class ConcatParameter(_message.Message):
    __slots__ = ("concat_dim", "axis")
    CONCAT_DIM_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    concat_dim: int
    axis: int
    def __init__(self, concat_dim: _Optional[int] = ..., axis: _Optional[int] = ...) -> None: ...

class ContrastiveLossParameter(_message.Message):
    __slots__ = ("margin", "legacy_version")
    MARGIN_FIELD_NUMBER: _ClassVar[int]
    LEGACY_VERSION_FIELD_NUMBER: _ClassVar[int]
    margin: float
    legacy_version: bool
    def __init__(self, margin: _Optional[float] = ..., legacy_version: bool = ...) -> None: ...

class ConvolutionParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "pad", "kernel_size", "group", "stride", "weight_filler", "bias_filler", "pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w", "engine", "axis", "force_nd_im2col", "dilation", "kernel_shape", "stride_shape", "pad_shape", "pad_l", "pad_r", "pad_t", "pad_b")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[ConvolutionParameter.Engine]
        CAFFE: _ClassVar[ConvolutionParameter.Engine]
        CUDNN: _ClassVar[ConvolutionParameter.Engine]
    DEFAULT: ConvolutionParameter.Engine
    CAFFE: ConvolutionParameter.Engine
    CUDNN: ConvolutionParameter.Engine
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    FORCE_ND_IM2COL_FIELD_NUMBER: _ClassVar[int]
    DILATION_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SHAPE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PAD_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PAD_L_FIELD_NUMBER: _ClassVar[int]
    PAD_R_FIELD_NUMBER: _ClassVar[int]
    PAD_T_FIELD_NUMBER: _ClassVar[int]
    PAD_B_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    pad: _containers.RepeatedScalarFieldContainer[int]
    kernel_size: _containers.RepeatedScalarFieldContainer[int]
    group: int
    stride: _containers.RepeatedScalarFieldContainer[int]
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    pad_h: int
    pad_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    engine: ConvolutionParameter.Engine
    axis: int
    force_nd_im2col: bool
    dilation: _containers.RepeatedScalarFieldContainer[int]
    kernel_shape: BlobShape
    stride_shape: BlobShape
    pad_shape: BlobShape
    pad_l: int
    pad_r: int
    pad_t: int
    pad_b: int
    def __init__(self, num_output: _Optional[int] = ..., bias_term: bool = ..., pad: _Optional[_Iterable[int]] = ..., kernel_size: _Optional[_Iterable[int]] = ..., group: _Optional[int] = ..., stride: _Optional[_Iterable[int]] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., engine: _Optional[_Union[ConvolutionParameter.Engine, str]] = ..., axis: _Optional[int] = ..., force_nd_im2col: bool = ..., dilation: _Optional[_Iterable[int]] = ..., kernel_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., stride_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., pad_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., pad_l: _Optional[int] = ..., pad_r: _Optional[int] = ..., pad_t: _Optional[int] = ..., pad_b: _Optional[int] = ...) -> None: ...

class CropParameter(_message.Message):
    __slots__ = ("axis", "offset")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    axis: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ...) -> None: ...

class DataParameter(_message.Message):
    __slots__ = ("source", "scale", "mean_file", "batch_size", "crop_size", "mirror", "rand_skip", "backend", "force_encoded_color", "prefetch")
    class DB(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LEVELDB: _ClassVar[DataParameter.DB]
        LMDB: _ClassVar[DataParameter.DB]
    LEVELDB: DataParameter.DB
    LMDB: DataParameter.DB
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    FORCE_ENCODED_COLOR_FIELD_NUMBER: _ClassVar[int]
    PREFETCH_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    mean_file: str
    batch_size: int
    crop_size: int
    mirror: bool
    rand_skip: int
    backend: DataParameter.DB
    force_encoded_color: bool
    prefetch: int
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., batch_size: _Optional[int] = ..., crop_size: _Optional[int] = ..., mirror: bool = ..., rand_skip: _Optional[int] = ..., backend: _Optional[_Union[DataParameter.DB, str]] = ..., force_encoded_color: bool = ..., prefetch: _Optional[int] = ...) -> None: ...

class DropoutParameter(_message.Message):
    __slots__ = ("dropout_ratio", "scale_train", "sample_weights_test")
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    SCALE_TRAIN_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_WEIGHTS_TEST_FIELD_NUMBER: _ClassVar[int]
    dropout_ratio: float
    scale_train: bool
    sample_weights_test: bool
    def __init__(self, dropout_ratio: _Optional[float] = ..., scale_train: bool = ..., sample_weights_test: bool = ...) -> None: ...

class DummyDataParameter(_message.Message):
    __slots__ = ("data_filler", "num", "channels", "height", "width", "shape")
    DATA_FILLER_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    data_filler: _containers.RepeatedCompositeFieldContainer[FillerParameter]
    num: _containers.RepeatedScalarFieldContainer[int]
    channels: _containers.RepeatedScalarFieldContainer[int]
    height: _containers.RepeatedScalarFieldContainer[int]
    width: _containers.RepeatedScalarFieldContainer[int]
    shape: _containers.RepeatedCompositeFieldContainer[BlobShape]
    def __init__(self, data_filler: _Optional[_Iterable[_Union[FillerParameter, _Mapping]]] = ..., num: _Optional[_Iterable[int]] = ..., channels: _Optional[_Iterable[int]] = ..., height: _Optional[_Iterable[int]] = ..., width: _Optional[_Iterable[int]] = ..., shape: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ...) -> None: ...

class EltwiseParameter(_message.Message):
    __slots__ = ("operation", "coeff", "stable_prod_grad")
    class EltwiseOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PROD: _ClassVar[EltwiseParameter.EltwiseOp]
        SUM: _ClassVar[EltwiseParameter.EltwiseOp]
        MAX: _ClassVar[EltwiseParameter.EltwiseOp]
    PROD: EltwiseParameter.EltwiseOp
    SUM: EltwiseParameter.EltwiseOp
    MAX: EltwiseParameter.EltwiseOp
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    STABLE_PROD_GRAD_FIELD_NUMBER: _ClassVar[int]
    operation: EltwiseParameter.EltwiseOp
    coeff: _containers.RepeatedScalarFieldContainer[float]
    stable_prod_grad: bool
    def __init__(self, operation: _Optional[_Union[EltwiseParameter.EltwiseOp, str]] = ..., coeff: _Optional[_Iterable[float]] = ..., stable_prod_grad: bool = ...) -> None: ...

class ELUParameter(_message.Message):
    __slots__ = ("alpha",)
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    alpha: float
    def __init__(self, alpha: _Optional[float] = ...) -> None: ...

class EmbedParameter(_message.Message):
    __slots__ = ("num_output", "input_dim", "bias_term", "weight_filler", "bias_filler")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    INPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    input_dim: int
    bias_term: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    def __init__(self, num_output: _Optional[int] = ..., input_dim: _Optional[int] = ..., bias_term: bool = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class ExpParameter(_message.Message):
    __slots__ = ("base", "scale", "shift")
    BASE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    base: float
    scale: float
    shift: float
    def __init__(self, base: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class FlattenParameter(_message.Message):
    __slots__ = ("axis", "end_axis")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    END_AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    end_axis: int
    def __init__(self, axis: _Optional[int] = ..., end_axis: _Optional[int] = ...) -> None: ...

class HDF5DataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "shuffle")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    shuffle: bool
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., shuffle: bool = ...) -> None: ...

class TokenDataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "sequence_length", "shuffle", "token_type", "vocab_size")
    class TokenType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UINT8: _ClassVar[TokenDataParameter.TokenType]
        UINT16: _ClassVar[TokenDataParameter.TokenType]
        UINT32: _ClassVar[TokenDataParameter.TokenType]
    UINT8: TokenDataParameter.TokenType
    UINT16: TokenDataParameter.TokenType
    UINT32: TokenDataParameter.TokenType
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPE_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    sequence_length: int
    shuffle: bool
    token_type: TokenDataParameter.TokenType
    vocab_size: int
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., sequence_length: _Optional[int] = ..., shuffle: bool = ..., token_type: _Optional[_Union[TokenDataParameter.TokenType, str]] = ..., vocab_size: _Optional[int] = ...) -> None: ...

class HDF5OutputParameter(_message.Message):
    __slots__ = ("file_name",)
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    file_name: str
    def __init__(self, file_name: _Optional[str] = ...) -> None: ...

class HingeLossParameter(_message.Message):
    __slots__ = ("norm",)
    class Norm(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        L1: _ClassVar[HingeLossParameter.Norm]
        L2: _ClassVar[HingeLossParameter.Norm]
    L1: HingeLossParameter.Norm
    L2: HingeLossParameter.Norm
    NORM_FIELD_NUMBER: _ClassVar[int]
    norm: HingeLossParameter.Norm
    def __init__(self, norm: _Optional[_Union[HingeLossParameter.Norm, str]] = ...) -> None: ...

class ImageDataParameter(_message.Message):
    __slots__ = ("source", "scale", "mean_file", "batch_size", "crop_size", "mirror", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "root_folder", "label_type", "ignore_label")
    class LabelType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[ImageDataParameter.LabelType]
        IMAGE: _ClassVar[ImageDataParameter.LabelType]
        PIXEL: _ClassVar[ImageDataParameter.LabelType]
    NONE: ImageDataParameter.LabelType
    IMAGE: ImageDataParameter.LabelType
    PIXEL: ImageDataParameter.LabelType
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IS_COLOR_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    LABEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    mean_file: str
    batch_size: int
    crop_size: int
    mirror: bool
    rand_skip: int
    shuffle: bool
    new_height: int
    new_width: int
    is_color: bool
    root_folder: str
    label_type: ImageDataParameter.LabelType
    ignore_label: int
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., batch_size: _Optional[int] = ..., crop_size: _Optional[int] = ..., mirror: bool = ..., rand_skip: _Optional[int] = ..., shuffle: bool = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., is_color: bool = ..., root_folder: _Optional[str] = ..., label_type: _Optional[_Union[ImageDataParameter.LabelType, str]] = ..., ignore_label: _Optional[int] = ...) -> None: ...

class DenseImageDataParameter(_message.Message):
    __slots__ = ("source", "batch_size", "rand_skip", "shuffle", "new_height", "new_width", "is_color", "mean_file", "root_folder", "mirror", "crop_width", "crop_height", "label_divide_factor")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IS_COLOR_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    LABEL_DIVIDE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    source: str
    batch_size: int
    rand_skip: int
    shuffle: bool
    new_height: int
    new_width: int
    is_color: bool
    mean_file: str
    root_folder: str
    mirror: bool
    crop_width: int
    crop_height: int
    label_divide_factor: int
    def __init__(self, source: _Optional[str] = ..., batch_size: _Optional[int] = ..., rand_skip: _Optional[int] = ..., shuffle: bool = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., is_color: bool = ..., mean_file: _Optional[str] = ..., root_folder: _Optional[str] = ..., mirror: bool = ..., crop_width: _Optional[int] = ..., crop_height: _Optional[int] = ..., label_divide_factor: _Optional[int] = ...) -> None: ...

class SegAccuracyParameter(_message.Message):
    __slots__ = ("metric", "ignore_label", "reset")
    class AccuracyMetric(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PixelAccuracy: _ClassVar[SegAccuracyParameter.AccuracyMetric]
        ClassAccuracy: _ClassVar[SegAccuracyParameter.AccuracyMetric]
        PixelIOU: _ClassVar[SegAccuracyParameter.AccuracyMetric]
    PixelAccuracy: SegAccuracyParameter.AccuracyMetric
    ClassAccuracy: SegAccuracyParameter.AccuracyMetric
    PixelIOU: SegAccuracyParameter.AccuracyMetric
    METRIC_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    metric: SegAccuracyParameter.AccuracyMetric
    ignore_label: _containers.RepeatedScalarFieldContainer[int]
    reset: bool
    def __init__(self, metric: _Optional[_Union[SegAccuracyParameter.AccuracyMetric, str]] = ..., ignore_label: _Optional[_Iterable[int]] = ..., reset: bool = ...) -> None: ...

class InfogainLossParameter(_message.Message):
    __slots__ = ("source", "axis")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    source: str
    axis: int
    def __init__(self, source: _Optional[str] = ..., axis: _Optional[int] = ...) -> None: ...

class InnerProductParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "weight_filler", "bias_filler", "axis", "transpose")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    axis: int
    transpose: bool
    def __init__(self, num_output: _Optional[int] = ..., bias_term: bool = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ..., transpose: bool = ...) -> None: ...

class InputParameter(_message.Message):
    __slots__ = ("shape",)
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    shape: _containers.RepeatedCompositeFieldContainer[BlobShape]
    def __init__(self, shape: _Optional[_Iterable[_Union[BlobShape, _Mapping]]] = ...) -> None: ...

class LogParameter(_message.Message):
    __slots__ = ("base", "scale", "shift")
    BASE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    base: float
    scale: float
    shift: float
    def __init__(self, base: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class LRNParameter(_message.Message):
    __slots__ = ("local_size", "alpha", "beta", "norm_region", "k", "engine")
    class NormRegion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACROSS_CHANNELS: _ClassVar[LRNParameter.NormRegion]
        WITHIN_CHANNEL: _ClassVar[LRNParameter.NormRegion]
    ACROSS_CHANNELS: LRNParameter.NormRegion
    WITHIN_CHANNEL: LRNParameter.NormRegion
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[LRNParameter.Engine]
        CAFFE: _ClassVar[LRNParameter.Engine]
        CUDNN: _ClassVar[LRNParameter.Engine]
    DEFAULT: LRNParameter.Engine
    CAFFE: LRNParameter.Engine
    CUDNN: LRNParameter.Engine
    LOCAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    NORM_REGION_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    local_size: int
    alpha: float
    beta: float
    norm_region: LRNParameter.NormRegion
    k: float
    engine: LRNParameter.Engine
    def __init__(self, local_size: _Optional[int] = ..., alpha: _Optional[float] = ..., beta: _Optional[float] = ..., norm_region: _Optional[_Union[LRNParameter.NormRegion, str]] = ..., k: _Optional[float] = ..., engine: _Optional[_Union[LRNParameter.Engine, str]] = ...) -> None: ...

class MemoryDataParameter(_message.Message):
    __slots__ = ("batch_size", "channels", "height", "width")
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    batch_size: int
    channels: int
    height: int
    width: int
    def __init__(self, batch_size: _Optional[int] = ..., channels: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ...) -> None: ...

class MVNParameter(_message.Message):
    __slots__ = ("normalize_variance", "across_channels", "eps")
    NORMALIZE_VARIANCE_FIELD_NUMBER: _ClassVar[int]
    ACROSS_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    normalize_variance: bool
    across_channels: bool
    eps: float
    def __init__(self, normalize_variance: bool = ..., across_channels: bool = ..., eps: _Optional[float] = ...) -> None: ...

class ParameterParameter(_message.Message):
    __slots__ = ("shape",)
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    shape: BlobShape
    def __init__(self, shape: _Optional[_Union[BlobShape, _Mapping]] = ...) -> None: ...

class PoolingParameter(_message.Message):
    __slots__ = ("pool", "kernel_size", "stride", "pad", "kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "engine", "global_pooling", "round_mode", "ceil_mode", "kernel_shape", "stride_shape", "pad_shape", "pad_l", "pad_r", "pad_t", "pad_b", "pad_type")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[PoolingParameter.PoolMethod]
        AVE: _ClassVar[PoolingParameter.PoolMethod]
        STOCHASTIC: _ClassVar[PoolingParameter.PoolMethod]
        AVE_EXC_PAD: _ClassVar[PoolingParameter.PoolMethod]
    MAX: PoolingParameter.PoolMethod
    AVE: PoolingParameter.PoolMethod
    STOCHASTIC: PoolingParameter.PoolMethod
    AVE_EXC_PAD: PoolingParameter.PoolMethod
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[PoolingParameter.Engine]
        CAFFE: _ClassVar[PoolingParameter.Engine]
        CUDNN: _ClassVar[PoolingParameter.Engine]
    DEFAULT: PoolingParameter.Engine
    CAFFE: PoolingParameter.Engine
    CUDNN: PoolingParameter.Engine
    class RoundMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CEIL: _ClassVar[PoolingParameter.RoundMode]
        FLOOR: _ClassVar[PoolingParameter.RoundMode]
    CEIL: PoolingParameter.RoundMode
    FLOOR: PoolingParameter.RoundMode
    POOL_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_H_FIELD_NUMBER: _ClassVar[int]
    KERNEL_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_H_FIELD_NUMBER: _ClassVar[int]
    STRIDE_W_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_POOLING_FIELD_NUMBER: _ClassVar[int]
    ROUND_MODE_FIELD_NUMBER: _ClassVar[int]
    CEIL_MODE_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SHAPE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PAD_SHAPE_FIELD_NUMBER: _ClassVar[int]
    PAD_L_FIELD_NUMBER: _ClassVar[int]
    PAD_R_FIELD_NUMBER: _ClassVar[int]
    PAD_T_FIELD_NUMBER: _ClassVar[int]
    PAD_B_FIELD_NUMBER: _ClassVar[int]
    PAD_TYPE_FIELD_NUMBER: _ClassVar[int]
    pool: PoolingParameter.PoolMethod
    kernel_size: int
    stride: int
    pad: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    pad_h: int
    pad_w: int
    engine: PoolingParameter.Engine
    global_pooling: bool
    round_mode: PoolingParameter.RoundMode
    ceil_mode: bool
    kernel_shape: BlobShape
    stride_shape: BlobShape
    pad_shape: BlobShape
    pad_l: int
    pad_r: int
    pad_t: int
    pad_b: int
    pad_type: int
    def __init__(self, pool: _Optional[_Union[PoolingParameter.PoolMethod, str]] = ..., kernel_size: _Optional[int] = ..., stride: _Optional[int] = ..., pad: _Optional[int] = ..., kernel_h: _Optional[int] = ..., kernel_w: _Optional[int] = ..., stride_h: _Optional[int] = ..., stride_w: _Optional[int] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., engine: _Optional[_Union[PoolingParameter.Engine, str]] = ..., global_pooling: bool = ..., round_mode: _Optional[_Union[PoolingParameter.RoundMode, str]] = ..., ceil_mode: bool = ..., kernel_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., stride_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., pad_shape: _Optional[_Union[BlobShape, _Mapping]] = ..., pad_l: _Optional[int] = ..., pad_r: _Optional[int] = ..., pad_t: _Optional[int] = ..., pad_b: _Optional[int] = ..., pad_type: _Optional[int] = ...) -> None: ...

class PowerParameter(_message.Message):
    __slots__ = ("power", "scale", "shift")
    POWER_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    power: float
    scale: float
    shift: float
    def __init__(self, power: _Optional[float] = ..., scale: _Optional[float] = ..., shift: _Optional[float] = ...) -> None: ...

class PReLUParameter(_message.Message):
    __slots__ = ("filler", "channel_shared")
    FILLER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_SHARED_FIELD_NUMBER: _ClassVar[int]
    filler: FillerParameter
    channel_shared: bool
    def __init__(self, filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., channel_shared: bool = ...) -> None: ...

class PythonParameter(_message.Message):
    __slots__ = ("module", "layer", "param_str", "share_in_parallel")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    PARAM_STR_FIELD_NUMBER: _ClassVar[int]
    SHARE_IN_PARALLEL_FIELD_NUMBER: _ClassVar[int]
    module: str
    layer: str
    param_str: str
    share_in_parallel: bool
    def __init__(self, module: _Optional[str] = ..., layer: _Optional[str] = ..., param_str: _Optional[str] = ..., share_in_parallel: bool = ...) -> None: ...

class RecurrentParameter(_message.Message):
    __slots__ = ("num_output", "weight_filler", "bias_filler", "debug_info", "expose_hidden")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    DEBUG_INFO_FIELD_NUMBER: _ClassVar[int]
    EXPOSE_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    debug_info: bool
    expose_hidden: bool
    def __init__(self, num_output: _Optional[int] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., debug_info: bool = ..., expose_hidden: bool = ...) -> None: ...

class ReductionParameter(_message.Message):
    __slots__ = ("operation", "axis", "coeff")
    class ReductionOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SUM: _ClassVar[ReductionParameter.ReductionOp]
        ASUM: _ClassVar[ReductionParameter.ReductionOp]
        SUMSQ: _ClassVar[ReductionParameter.ReductionOp]
        MEAN: _ClassVar[ReductionParameter.ReductionOp]
    SUM: ReductionParameter.ReductionOp
    ASUM: ReductionParameter.ReductionOp
    SUMSQ: ReductionParameter.ReductionOp
    MEAN: ReductionParameter.ReductionOp
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    COEFF_FIELD_NUMBER: _ClassVar[int]
    operation: ReductionParameter.ReductionOp
    axis: int
    coeff: float
    def __init__(self, operation: _Optional[_Union[ReductionParameter.ReductionOp, str]] = ..., axis: _Optional[int] = ..., coeff: _Optional[float] = ...) -> None: ...

class ReLUParameter(_message.Message):
    __slots__ = ("negative_slope", "engine", "relu6")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[ReLUParameter.Engine]
        CAFFE: _ClassVar[ReLUParameter.Engine]
        CUDNN: _ClassVar[ReLUParameter.Engine]
    DEFAULT: ReLUParameter.Engine
    CAFFE: ReLUParameter.Engine
    CUDNN: ReLUParameter.Engine
    NEGATIVE_SLOPE_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    RELU6_FIELD_NUMBER: _ClassVar[int]
    negative_slope: float
    engine: ReLUParameter.Engine
    relu6: bool
    def __init__(self, negative_slope: _Optional[float] = ..., engine: _Optional[_Union[ReLUParameter.Engine, str]] = ..., relu6: bool = ...) -> None: ...

class ReshapeParameter(_message.Message):
    __slots__ = ("shape", "axis", "num_axes", "pixelshuffler")
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    PIXELSHUFFLER_FIELD_NUMBER: _ClassVar[int]
    shape: BlobShape
    axis: int
    num_axes: int
    pixelshuffler: int
    def __init__(self, shape: _Optional[_Union[BlobShape, _Mapping]] = ..., axis: _Optional[int] = ..., num_axes: _Optional[int] = ..., pixelshuffler: _Optional[int] = ...) -> None: ...

class ScaleParameter(_message.Message):
    __slots__ = ("axis", "num_axes", "filler", "bias_term", "bias_filler")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    NUM_AXES_FIELD_NUMBER: _ClassVar[int]
    FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    axis: int
    num_axes: int
    filler: FillerParameter
    bias_term: bool
    bias_filler: FillerParameter
    def __init__(self, axis: _Optional[int] = ..., num_axes: _Optional[int] = ..., filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_term: bool = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class SigmoidParameter(_message.Message):
    __slots__ = ("engine",)
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SigmoidParameter.Engine]
        CAFFE: _ClassVar[SigmoidParameter.Engine]
        CUDNN: _ClassVar[SigmoidParameter.Engine]
    DEFAULT: SigmoidParameter.Engine
    CAFFE: SigmoidParameter.Engine
    CUDNN: SigmoidParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    engine: SigmoidParameter.Engine
    def __init__(self, engine: _Optional[_Union[SigmoidParameter.Engine, str]] = ...) -> None: ...

class SliceParameter(_message.Message):
    __slots__ = ("slice_dim", "slice_point", "axis")
    SLICE_DIM_FIELD_NUMBER: _ClassVar[int]
    SLICE_POINT_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    slice_dim: int
    slice_point: _containers.RepeatedScalarFieldContainer[int]
    axis: int
    def __init__(self, slice_dim: _Optional[int] = ..., slice_point: _Optional[_Iterable[int]] = ..., axis: _Optional[int] = ...) -> None: ...

class SoftmaxParameter(_message.Message):
    __slots__ = ("engine", "axis")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SoftmaxParameter.Engine]
        CAFFE: _ClassVar[SoftmaxParameter.Engine]
        CUDNN: _ClassVar[SoftmaxParameter.Engine]
    DEFAULT: SoftmaxParameter.Engine
    CAFFE: SoftmaxParameter.Engine
    CUDNN: SoftmaxParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    engine: SoftmaxParameter.Engine
    axis: int
    def __init__(self, engine: _Optional[_Union[SoftmaxParameter.Engine, str]] = ..., axis: _Optional[int] = ...) -> None: ...

class SPPParameter(_message.Message):
    __slots__ = ("pyramid_height", "pool", "engine")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[SPPParameter.PoolMethod]
        AVE: _ClassVar[SPPParameter.PoolMethod]
        STOCHASTIC: _ClassVar[SPPParameter.PoolMethod]
    MAX: SPPParameter.PoolMethod
    AVE: SPPParameter.PoolMethod
    STOCHASTIC: SPPParameter.PoolMethod
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[SPPParameter.Engine]
        CAFFE: _ClassVar[SPPParameter.Engine]
        CUDNN: _ClassVar[SPPParameter.Engine]
    DEFAULT: SPPParameter.Engine
    CAFFE: SPPParameter.Engine
    CUDNN: SPPParameter.Engine
    PYRAMID_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    pyramid_height: int
    pool: SPPParameter.PoolMethod
    engine: SPPParameter.Engine
    def __init__(self, pyramid_height: _Optional[int] = ..., pool: _Optional[_Union[SPPParameter.PoolMethod, str]] = ..., engine: _Optional[_Union[SPPParameter.Engine, str]] = ...) -> None: ...

class LayerNormParameter(_message.Message):
    __slots__ = ("axis", "eps", "affine", "bias_term")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    AFFINE_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    axis: int
    eps: float
    affine: bool
    bias_term: bool
    def __init__(self, axis: _Optional[int] = ..., eps: _Optional[float] = ..., affine: bool = ..., bias_term: bool = ...) -> None: ...

class RMSNormParameter(_message.Message):
    __slots__ = ("axis", "eps", "affine")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    AFFINE_FIELD_NUMBER: _ClassVar[int]
    axis: int
    eps: float
    affine: bool
    def __init__(self, axis: _Optional[int] = ..., eps: _Optional[float] = ..., affine: bool = ...) -> None: ...

class GELUParameter(_message.Message):
    __slots__ = ("approximate",)
    class Approximate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[GELUParameter.Approximate]
        TANH: _ClassVar[GELUParameter.Approximate]
    NONE: GELUParameter.Approximate
    TANH: GELUParameter.Approximate
    APPROXIMATE_FIELD_NUMBER: _ClassVar[int]
    approximate: GELUParameter.Approximate
    def __init__(self, approximate: _Optional[_Union[GELUParameter.Approximate, str]] = ...) -> None: ...

class GatedUnitParameter(_message.Message):
    __slots__ = ("activation", "axis")
    class Activation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SILU: _ClassVar[GatedUnitParameter.Activation]
        GELU: _ClassVar[GatedUnitParameter.Activation]
        GELU_TANH: _ClassVar[GatedUnitParameter.Activation]
        SIGMOID: _ClassVar[GatedUnitParameter.Activation]
    SILU: GatedUnitParameter.Activation
    GELU: GatedUnitParameter.Activation
    GELU_TANH: GatedUnitParameter.Activation
    SIGMOID: GatedUnitParameter.Activation
    ACTIVATION_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    activation: GatedUnitParameter.Activation
    axis: int
    def __init__(self, activation: _Optional[_Union[GatedUnitParameter.Activation, str]] = ..., axis: _Optional[int] = ...) -> None: ...

class MatMulParameter(_message.Message):
    __slots__ = ("transpose_a", "transpose_b")
    TRANSPOSE_A_FIELD_NUMBER: _ClassVar[int]
    TRANSPOSE_B_FIELD_NUMBER: _ClassVar[int]
    transpose_a: bool
    transpose_b: bool
    def __init__(self, transpose_a: bool = ..., transpose_b: bool = ...) -> None: ...

class AttentionParameter(_message.Message):
    __slots__ = ("heads", "kv_heads", "causal", "window", "scale", "dropout_ratio", "cache")
    HEADS_FIELD_NUMBER: _ClassVar[int]
    KV_HEADS_FIELD_NUMBER: _ClassVar[int]
    CAUSAL_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    heads: int
    kv_heads: int
    causal: bool
    window: int
    scale: float
    dropout_ratio: float
    cache: int
    def __init__(self, heads: _Optional[int] = ..., kv_heads: _Optional[int] = ..., causal: bool = ..., window: _Optional[int] = ..., scale: _Optional[float] = ..., dropout_ratio: _Optional[float] = ..., cache: _Optional[int] = ...) -> None: ...

class DenseBlockParameter(_message.Message):
    __slots__ = ("numTransition", "initChannel", "growthRate", "pad_h", "pad_w", "conv_verticalStride", "conv_horizentalStride", "filter_H", "filter_W", "Filter_Filler", "BN_Scaler_Filler", "BN_Bias_Filler", "gpuIdx", "use_dropout", "dropout_amount", "use_BC", "BC_ultra_space_efficient", "workspace_MB", "moving_average_fraction")
    NUMTRANSITION_FIELD_NUMBER: _ClassVar[int]
    INITCHANNEL_FIELD_NUMBER: _ClassVar[int]
    GROWTHRATE_FIELD_NUMBER: _ClassVar[int]
    PAD_H_FIELD_NUMBER: _ClassVar[int]
    PAD_W_FIELD_NUMBER: _ClassVar[int]
    CONV_VERTICALSTRIDE_FIELD_NUMBER: _ClassVar[int]
    CONV_HORIZENTALSTRIDE_FIELD_NUMBER: _ClassVar[int]
    FILTER_H_FIELD_NUMBER: _ClassVar[int]
    FILTER_W_FIELD_NUMBER: _ClassVar[int]
    FILTER_FILLER_FIELD_NUMBER: _ClassVar[int]
    BN_SCALER_FILLER_FIELD_NUMBER: _ClassVar[int]
    BN_BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    GPUIDX_FIELD_NUMBER: _ClassVar[int]
    USE_DROPOUT_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_AMOUNT_FIELD_NUMBER: _ClassVar[int]
    USE_BC_FIELD_NUMBER: _ClassVar[int]
    BC_ULTRA_SPACE_EFFICIENT_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_MB_FIELD_NUMBER: _ClassVar[int]
    MOVING_AVERAGE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    numTransition: int
    initChannel: int
    growthRate: int
    pad_h: int
    pad_w: int
    conv_verticalStride: int
    conv_horizentalStride: int
    filter_H: int
    filter_W: int
    Filter_Filler: FillerParameter
    BN_Scaler_Filler: FillerParameter
    BN_Bias_Filler: FillerParameter
    gpuIdx: int
    use_dropout: bool
    dropout_amount: float
    use_BC: bool
    BC_ultra_space_efficient: bool
    workspace_MB: int
    moving_average_fraction: float
    def __init__(self, numTransition: _Optional[int] = ..., initChannel: _Optional[int] = ..., growthRate: _Optional[int] = ..., pad_h: _Optional[int] = ..., pad_w: _Optional[int] = ..., conv_verticalStride: _Optional[int] = ..., conv_horizentalStride: _Optional[int] = ..., filter_H: _Optional[int] = ..., filter_W: _Optional[int] = ..., Filter_Filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., BN_Scaler_Filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., BN_Bias_Filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., gpuIdx: _Optional[int] = ..., use_dropout: bool = ..., dropout_amount: _Optional[float] = ..., use_BC: bool = ..., BC_ultra_space_efficient: bool = ..., workspace_MB: _Optional[int] = ..., moving_average_fraction: _Optional[float] = ...) -> None: ...

class FlowWarpParameter(_message.Message):
    __slots__ = ("fill_value",)
    class FillParameter(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ZERO: _ClassVar[FlowWarpParameter.FillParameter]
        NOT_A_NUMBER: _ClassVar[FlowWarpParameter.FillParameter]
    ZERO: FlowWarpParameter.FillParameter
    NOT_A_NUMBER: FlowWarpParameter.FillParameter
    FILL_VALUE_FIELD_NUMBER: _ClassVar[int]
    fill_value: FlowWarpParameter.FillParameter
    def __init__(self, fill_value: _Optional[_Union[FlowWarpParameter.FillParameter, str]] = ...) -> None: ...

class GuidedDropoutParameter(_message.Message):
    __slots__ = ("type", "guidance_threshold", "sigmoid_scaler")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    GUIDANCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SIGMOID_SCALER_FIELD_NUMBER: _ClassVar[int]
    type: str
    guidance_threshold: float
    sigmoid_scaler: float
    def __init__(self, type: _Optional[str] = ..., guidance_threshold: _Optional[float] = ..., sigmoid_scaler: _Optional[float] = ...) -> None: ...

class DropPathParameter(_message.Message):
    __slots__ = ("dropout_ratio",)
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    dropout_ratio: float
    def __init__(self, dropout_ratio: _Optional[float] = ...) -> None: ...

class RotaryEmbeddingParameter(_message.Message):
    __slots__ = ("heads", "rotary_dim", "interleaved", "base")
    HEADS_FIELD_NUMBER: _ClassVar[int]
    ROTARY_DIM_FIELD_NUMBER: _ClassVar[int]
    INTERLEAVED_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    heads: int
    rotary_dim: int
    interleaved: bool
    base: float
    def __init__(self, heads: _Optional[int] = ..., rotary_dim: _Optional[int] = ..., interleaved: bool = ..., base: _Optional[float] = ...) -> None: ...

class SwishParameter(_message.Message):
    __slots__ = ("beta",)
    BETA_FIELD_NUMBER: _ClassVar[int]
    beta: float
    def __init__(self, beta: _Optional[float] = ...) -> None: ...

class TanHParameter(_message.Message):
    __slots__ = ("engine",)
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[TanHParameter.Engine]
        CAFFE: _ClassVar[TanHParameter.Engine]
        CUDNN: _ClassVar[TanHParameter.Engine]
    DEFAULT: TanHParameter.Engine
    CAFFE: TanHParameter.Engine
    CUDNN: TanHParameter.Engine
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    engine: TanHParameter.Engine
    def __init__(self, engine: _Optional[_Union[TanHParameter.Engine, str]] = ...) -> None: ...

class ThresholdParameter(_message.Message):
    __slots__ = ("threshold",)
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    threshold: float
    def __init__(self, threshold: _Optional[float] = ...) -> None: ...

class TileParameter(_message.Message):
    __slots__ = ("axis", "tiles")
    AXIS_FIELD_NUMBER: _ClassVar[int]
    TILES_FIELD_NUMBER: _ClassVar[int]
    axis: int
    tiles: int
    def __init__(self, axis: _Optional[int] = ..., tiles: _Optional[int] = ...) -> None: ...

class WindowDataParameter(_message.Message):
    __slots__ = ("source", "scale", "mean_file", "batch_size", "crop_size", "mirror", "fg_threshold", "bg_threshold", "fg_fraction", "context_pad", "crop_mode", "cache_images", "root_folder")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    FG_FRACTION_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_PAD_FIELD_NUMBER: _ClassVar[int]
    CROP_MODE_FIELD_NUMBER: _ClassVar[int]
    CACHE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    mean_file: str
    batch_size: int
    crop_size: int
    mirror: bool
    fg_threshold: float
    bg_threshold: float
    fg_fraction: float
    context_pad: int
    crop_mode: str
    cache_images: bool
    root_folder: str
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., batch_size: _Optional[int] = ..., crop_size: _Optional[int] = ..., mirror: bool = ..., fg_threshold: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., fg_fraction: _Optional[float] = ..., context_pad: _Optional[int] = ..., crop_mode: _Optional[str] = ..., cache_images: bool = ..., root_folder: _Optional[str] = ...) -> None: ...

class V1LayerParameter(_message.Message):
    __slots__ = ("layer", "bottom", "top", "name", "type", "blobs", "blobs_lr", "weight_decay", "concat_param", "convolution_param", "data_param", "dropout_param", "hdf5_data_param", "hdf5_output_param", "image_data_param", "infogain_loss_param", "inner_product_param", "lrn_param", "pooling_param", "window_data_param", "power_param", "memory_data_param", "argmax_param", "eltwise_param", "threshold_param", "dummy_data_param", "accuracy_param", "hinge_loss_param", "relu_param", "slice_param", "include", "exclude", "mvn_param", "loss_weight", "transform_param", "tanh_param", "sigmoid_param", "softmax_param", "contrastive_loss_param", "exp_param", "loss_param", "param", "blob_share_mode", "unsupported", "video_data_param", "multi_stage_meanfield_param")
    class LayerType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[V1LayerParameter.LayerType]
        ABSVAL: _ClassVar[V1LayerParameter.LayerType]
        ACCURACY: _ClassVar[V1LayerParameter.LayerType]
        ARGMAX: _ClassVar[V1LayerParameter.LayerType]
        BNLL: _ClassVar[V1LayerParameter.LayerType]
        CONCAT: _ClassVar[V1LayerParameter.LayerType]
        CONTRASTIVE_LOSS: _ClassVar[V1LayerParameter.LayerType]
        CONVOLUTION: _ClassVar[V1LayerParameter.LayerType]
        DATA: _ClassVar[V1LayerParameter.LayerType]
        DECONVOLUTION: _ClassVar[V1LayerParameter.LayerType]
        DROPOUT: _ClassVar[V1LayerParameter.LayerType]
        DUMMY_DATA: _ClassVar[V1LayerParameter.LayerType]
        EUCLIDEAN_LOSS: _ClassVar[V1LayerParameter.LayerType]
        ELTWISE: _ClassVar[V1LayerParameter.LayerType]
        EXP: _ClassVar[V1LayerParameter.LayerType]
        FLATTEN: _ClassVar[V1LayerParameter.LayerType]
        HDF5_DATA: _ClassVar[V1LayerParameter.LayerType]
        HDF5_OUTPUT: _ClassVar[V1LayerParameter.LayerType]
        HINGE_LOSS: _ClassVar[V1LayerParameter.LayerType]
        IM2COL: _ClassVar[V1LayerParameter.LayerType]
        IMAGE_DATA: _ClassVar[V1LayerParameter.LayerType]
        INFOGAIN_LOSS: _ClassVar[V1LayerParameter.LayerType]
        INNER_PRODUCT: _ClassVar[V1LayerParameter.LayerType]
        LRN: _ClassVar[V1LayerParameter.LayerType]
        MEMORY_DATA: _ClassVar[V1LayerParameter.LayerType]
        MULTINOMIAL_LOGISTIC_LOSS: _ClassVar[V1LayerParameter.LayerType]
        MVN: _ClassVar[V1LayerParameter.LayerType]
        POOLING: _ClassVar[V1LayerParameter.LayerType]
        POWER: _ClassVar[V1LayerParameter.LayerType]
        RELU: _ClassVar[V1LayerParameter.LayerType]
        SIGMOID: _ClassVar[V1LayerParameter.LayerType]
        SIGMOID_CROSS_ENTROPY_LOSS: _ClassVar[V1LayerParameter.LayerType]
        SILENCE: _ClassVar[V1LayerParameter.LayerType]
        SOFTMAX: _ClassVar[V1LayerParameter.LayerType]
        SOFTMAX_LOSS: _ClassVar[V1LayerParameter.LayerType]
        SPLIT: _ClassVar[V1LayerParameter.LayerType]
        SLICE: _ClassVar[V1LayerParameter.LayerType]
        TANH: _ClassVar[V1LayerParameter.LayerType]
        WINDOW_DATA: _ClassVar[V1LayerParameter.LayerType]
        THRESHOLD: _ClassVar[V1LayerParameter.LayerType]
        VIDEO_DATA: _ClassVar[V1LayerParameter.LayerType]
        CROP: _ClassVar[V1LayerParameter.LayerType]
        MULTI_STAGE_MEANFIELD: _ClassVar[V1LayerParameter.LayerType]
    NONE: V1LayerParameter.LayerType
    ABSVAL: V1LayerParameter.LayerType
    ACCURACY: V1LayerParameter.LayerType
    ARGMAX: V1LayerParameter.LayerType
    BNLL: V1LayerParameter.LayerType
    CONCAT: V1LayerParameter.LayerType
    CONTRASTIVE_LOSS: V1LayerParameter.LayerType
    CONVOLUTION: V1LayerParameter.LayerType
    DATA: V1LayerParameter.LayerType
    DECONVOLUTION: V1LayerParameter.LayerType
    DROPOUT: V1LayerParameter.LayerType
    DUMMY_DATA: V1LayerParameter.LayerType
    EUCLIDEAN_LOSS: V1LayerParameter.LayerType
    ELTWISE: V1LayerParameter.LayerType
    EXP: V1LayerParameter.LayerType
    FLATTEN: V1LayerParameter.LayerType
    HDF5_DATA: V1LayerParameter.LayerType
    HDF5_OUTPUT: V1LayerParameter.LayerType
    HINGE_LOSS: V1LayerParameter.LayerType
    IM2COL: V1LayerParameter.LayerType
    IMAGE_DATA: V1LayerParameter.LayerType
    INFOGAIN_LOSS: V1LayerParameter.LayerType
    INNER_PRODUCT: V1LayerParameter.LayerType
    LRN: V1LayerParameter.LayerType
    MEMORY_DATA: V1LayerParameter.LayerType
    MULTINOMIAL_LOGISTIC_LOSS: V1LayerParameter.LayerType
    MVN: V1LayerParameter.LayerType
    POOLING: V1LayerParameter.LayerType
    POWER: V1LayerParameter.LayerType
    RELU: V1LayerParameter.LayerType
    SIGMOID: V1LayerParameter.LayerType
    SIGMOID_CROSS_ENTROPY_LOSS: V1LayerParameter.LayerType
    SILENCE: V1LayerParameter.LayerType
    SOFTMAX: V1LayerParameter.LayerType
    SOFTMAX_LOSS: V1LayerParameter.LayerType
    SPLIT: V1LayerParameter.LayerType
    SLICE: V1LayerParameter.LayerType
    TANH: V1LayerParameter.LayerType
    WINDOW_DATA: V1LayerParameter.LayerType
    THRESHOLD: V1LayerParameter.LayerType
    VIDEO_DATA: V1LayerParameter.LayerType
    CROP: V1LayerParameter.LayerType
    MULTI_STAGE_MEANFIELD: V1LayerParameter.LayerType
    class DimCheckMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STRICT: _ClassVar[V1LayerParameter.DimCheckMode]
        PERMISSIVE: _ClassVar[V1LayerParameter.DimCheckMode]
    STRICT: V1LayerParameter.DimCheckMode
    PERMISSIVE: V1LayerParameter.DimCheckMode
    LAYER_FIELD_NUMBER: _ClassVar[int]
    BOTTOM_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_LR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    CONCAT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONVOLUTION_PARAM_FIELD_NUMBER: _ClassVar[int]
    DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    HDF5_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    INFOGAIN_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    INNER_PRODUCT_PARAM_FIELD_NUMBER: _ClassVar[int]
    LRN_PARAM_FIELD_NUMBER: _ClassVar[int]
    POOLING_PARAM_FIELD_NUMBER: _ClassVar[int]
    WINDOW_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    POWER_PARAM_FIELD_NUMBER: _ClassVar[int]
    MEMORY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    ARGMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    ELTWISE_PARAM_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_PARAM_FIELD_NUMBER: _ClassVar[int]
    DUMMY_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    ACCURACY_PARAM_FIELD_NUMBER: _ClassVar[int]
    HINGE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    RELU_PARAM_FIELD_NUMBER: _ClassVar[int]
    SLICE_PARAM_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    MVN_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOSS_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    TRANSFORM_PARAM_FIELD_NUMBER: _ClassVar[int]
    TANH_PARAM_FIELD_NUMBER: _ClassVar[int]
    SIGMOID_PARAM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_PARAM_FIELD_NUMBER: _ClassVar[int]
    CONTRASTIVE_LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    EXP_PARAM_FIELD_NUMBER: _ClassVar[int]
    LOSS_PARAM_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    BLOB_SHARE_MODE_FIELD_NUMBER: _ClassVar[int]
    UNSUPPORTED_FIELD_NUMBER: _ClassVar[int]
    VIDEO_DATA_PARAM_FIELD_NUMBER: _ClassVar[int]
    MULTI_STAGE_MEANFIELD_PARAM_FIELD_NUMBER: _ClassVar[int]
    layer: V0LayerParameter
    bottom: _containers.RepeatedScalarFieldContainer[str]
    top: _containers.RepeatedScalarFieldContainer[str]
    name: str
    type: V1LayerParameter.LayerType
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    blobs_lr: _containers.RepeatedScalarFieldContainer[float]
    weight_decay: _containers.RepeatedScalarFieldContainer[float]
    concat_param: ConcatParameter
    convolution_param: ConvolutionParameter
    data_param: DataParameter
    dropout_param: DropoutParameter
    hdf5_data_param: HDF5DataParameter
    hdf5_output_param: HDF5OutputParameter
    image_data_param: ImageDataParameter
    infogain_loss_param: InfogainLossParameter
    inner_product_param: InnerProductParameter
    lrn_param: LRNParameter
    pooling_param: PoolingParameter
    window_data_param: WindowDataParameter
    power_param: PowerParameter
    memory_data_param: MemoryDataParameter
    argmax_param: ArgMaxParameter
    eltwise_param: EltwiseParameter
    threshold_param: ThresholdParameter
    dummy_data_param: DummyDataParameter
    accuracy_param: AccuracyParameter
    hinge_loss_param: HingeLossParameter
    relu_param: ReLUParameter
    slice_param: SliceParameter
    include: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    exclude: _containers.RepeatedCompositeFieldContainer[NetStateRule]
    mvn_param: MVNParameter
    loss_weight: _containers.RepeatedScalarFieldContainer[float]
    transform_param: TransformationParameter
    tanh_param: TanHParameter
    sigmoid_param: SigmoidParameter
    softmax_param: SoftmaxParameter
    contrastive_loss_param: ContrastiveLossParameter
    exp_param: ExpParameter
    loss_param: LossParameter
    param: _containers.RepeatedScalarFieldContainer[str]
    blob_share_mode: _containers.RepeatedScalarFieldContainer[V1LayerParameter.DimCheckMode]
    unsupported: _containers.RepeatedCompositeFieldContainer[UnsupportedField]
    video_data_param: VideoDataParameter
    multi_stage_meanfield_param: MultiStageMeanfieldParameter
    def __init__(self, layer: _Optional[_Union[V0LayerParameter, _Mapping]] = ..., bottom: _Optional[_Iterable[str]] = ..., top: _Optional[_Iterable[str]] = ..., name: _Optional[str] = ..., type: _Optional[_Union[V1LayerParameter.LayerType, str]] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., blobs_lr: _Optional[_Iterable[float]] = ..., weight_decay: _Optional[_Iterable[float]] = ..., concat_param: _Optional[_Union[ConcatParameter, _Mapping]] = ..., convolution_param: _Optional[_Union[ConvolutionParameter, _Mapping]] = ..., data_param: _Optional[_Union[DataParameter, _Mapping]] = ..., dropout_param: _Optional[_Union[DropoutParameter, _Mapping]] = ..., hdf5_data_param: _Optional[_Union[HDF5DataParameter, _Mapping]] = ..., hdf5_output_param: _Optional[_Union[HDF5OutputParameter, _Mapping]] = ..., image_data_param: _Optional[_Union[ImageDataParameter, _Mapping]] = ..., infogain_loss_param: _Optional[_Union[InfogainLossParameter, _Mapping]] = ..., inner_product_param: _Optional[_Union[InnerProductParameter, _Mapping]] = ..., lrn_param: _Optional[_Union[LRNParameter, _Mapping]] = ..., pooling_param: _Optional[_Union[PoolingParameter, _Mapping]] = ..., window_data_param: _Optional[_Union[WindowDataParameter, _Mapping]] = ..., power_param: _Optional[_Union[PowerParameter, _Mapping]] = ..., memory_data_param: _Optional[_Union[MemoryDataParameter, _Mapping]] = ..., argmax_param: _Optional[_Union[ArgMaxParameter, _Mapping]] = ..., eltwise_param: _Optional[_Union[EltwiseParameter, _Mapping]] = ..., threshold_param: _Optional[_Union[ThresholdParameter, _Mapping]] = ..., dummy_data_param: _Optional[_Union[DummyDataParameter, _Mapping]] = ..., accuracy_param: _Optional[_Union[AccuracyParameter, _Mapping]] = ..., hinge_loss_param: _Optional[_Union[HingeLossParameter, _Mapping]] = ..., relu_param: _Optional[_Union[ReLUParameter, _Mapping]] = ..., slice_param: _Optional[_Union[SliceParameter, _Mapping]] = ..., include: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., exclude: _Optional[_Iterable[_Union[NetStateRule, _Mapping]]] = ..., mvn_param: _Optional[_Union[MVNParameter, _Mapping]] = ..., loss_weight: _Optional[_Iterable[float]] = ..., transform_param: _Optional[_Union[TransformationParameter, _Mapping]] = ..., tanh_param: _Optional[_Union[TanHParameter, _Mapping]] = ..., sigmoid_param: _Optional[_Union[SigmoidParameter, _Mapping]] = ..., softmax_param: _Optional[_Union[SoftmaxParameter, _Mapping]] = ..., contrastive_loss_param: _Optional[_Union[ContrastiveLossParameter, _Mapping]] = ..., exp_param: _Optional[_Union[ExpParameter, _Mapping]] = ..., loss_param: _Optional[_Union[LossParameter, _Mapping]] = ..., param: _Optional[_Iterable[str]] = ..., blob_share_mode: _Optional[_Iterable[_Union[V1LayerParameter.DimCheckMode, str]]] = ..., unsupported: _Optional[_Iterable[_Union[UnsupportedField, _Mapping]]] = ..., video_data_param: _Optional[_Union[VideoDataParameter, _Mapping]] = ..., multi_stage_meanfield_param: _Optional[_Union[MultiStageMeanfieldParameter, _Mapping]] = ...) -> None: ...

class V0LayerParameter(_message.Message):
    __slots__ = ("name", "type", "num_output", "biasterm", "weight_filler", "bias_filler", "pad", "kernelsize", "group", "stride", "pool", "dropout_ratio", "local_size", "alpha", "beta", "source", "scale", "meanfile", "batchsize", "cropsize", "mirror", "k", "blobs", "blobs_lr", "weight_decay", "rand_skip", "det_fg_threshold", "det_bg_threshold", "det_fg_fraction", "det_context_pad", "det_crop_mode", "new_num", "new_channels", "new_height", "new_width", "shuffle_images", "concat_dim", "hdf5_output_param")
    class PoolMethod(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MAX: _ClassVar[V0LayerParameter.PoolMethod]
        AVE: _ClassVar[V0LayerParameter.PoolMethod]
        STOCHASTIC: _ClassVar[V0LayerParameter.PoolMethod]
    MAX: V0LayerParameter.PoolMethod
    AVE: V0LayerParameter.PoolMethod
    STOCHASTIC: V0LayerParameter.PoolMethod
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIASTERM_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNELSIZE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    POOL_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_RATIO_FIELD_NUMBER: _ClassVar[int]
    LOCAL_SIZE_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    BETA_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEANFILE_FIELD_NUMBER: _ClassVar[int]
    BATCHSIZE_FIELD_NUMBER: _ClassVar[int]
    CROPSIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    K_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    BLOBS_LR_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    DET_FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DET_BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    DET_FG_FRACTION_FIELD_NUMBER: _ClassVar[int]
    DET_CONTEXT_PAD_FIELD_NUMBER: _ClassVar[int]
    DET_CROP_MODE_FIELD_NUMBER: _ClassVar[int]
    NEW_NUM_FIELD_NUMBER: _ClassVar[int]
    NEW_CHANNELS_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    CONCAT_DIM_FIELD_NUMBER: _ClassVar[int]
    HDF5_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    num_output: int
    biasterm: bool
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    pad: int
    kernelsize: int
    group: int
    stride: int
    pool: V0LayerParameter.PoolMethod
    dropout_ratio: float
    local_size: int
    alpha: float
    beta: float
    source: str
    scale: float
    meanfile: str
    batchsize: int
    cropsize: int
    mirror: bool
    k: float
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    blobs_lr: _containers.RepeatedScalarFieldContainer[float]
    weight_decay: _containers.RepeatedScalarFieldContainer[float]
    rand_skip: int
    det_fg_threshold: float
    det_bg_threshold: float
    det_fg_fraction: float
    det_context_pad: int
    det_crop_mode: str
    new_num: int
    new_channels: int
    new_height: int
    new_width: int
    shuffle_images: bool
    concat_dim: int
    hdf5_output_param: HDF5OutputParameter
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., num_output: _Optional[int] = ..., biasterm: bool = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., pad: _Optional[int] = ..., kernelsize: _Optional[int] = ..., group: _Optional[int] = ..., stride: _Optional[int] = ..., pool: _Optional[_Union[V0LayerParameter.PoolMethod, str]] = ..., dropout_ratio: _Optional[float] = ..., local_size: _Optional[int] = ..., alpha: _Optional[float] = ..., beta: _Optional[float] = ..., source: _Optional[str] = ..., scale: _Optional[float] = ..., meanfile: _Optional[str] = ..., batchsize: _Optional[int] = ..., cropsize: _Optional[int] = ..., mirror: bool = ..., k: _Optional[float] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ..., blobs_lr: _Optional[_Iterable[float]] = ..., weight_decay: _Optional[_Iterable[float]] = ..., rand_skip: _Optional[int] = ..., det_fg_threshold: _Optional[float] = ..., det_bg_threshold: _Optional[float] = ..., det_fg_fraction: _Optional[float] = ..., det_context_pad: _Optional[int] = ..., det_crop_mode: _Optional[str] = ..., new_num: _Optional[int] = ..., new_channels: _Optional[int] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., shuffle_images: bool = ..., concat_dim: _Optional[int] = ..., hdf5_output_param: _Optional[_Union[HDF5OutputParameter, _Mapping]] = ...) -> None: ...

class NetWeights(_message.Message):
    __slots__ = ("layer",)
    LAYER_FIELD_NUMBER: _ClassVar[int]
    layer: _containers.RepeatedCompositeFieldContainer[LayerBlobs]
    def __init__(self, layer: _Optional[_Iterable[_Union[LayerBlobs, _Mapping]]] = ...) -> None: ...

class LayerBlobs(_message.Message):
    __slots__ = ("name", "type", "blobs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: str
    blobs: _containers.RepeatedCompositeFieldContainer[BlobProto]
    def __init__(self, name: _Optional[str] = ..., type: _Optional[str] = ..., blobs: _Optional[_Iterable[_Union[BlobProto, _Mapping]]] = ...) -> None: ...

class C3DWeights(_message.Message):
    __slots__ = ("layers",)
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    layers: _containers.RepeatedCompositeFieldContainer[C3DLayerBlobs]
    def __init__(self, layers: _Optional[_Iterable[_Union[C3DLayerBlobs, _Mapping]]] = ...) -> None: ...

class C3DLayerBlobs(_message.Message):
    __slots__ = ("name", "blobs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BLOBS_FIELD_NUMBER: _ClassVar[int]
    name: str
    blobs: _containers.RepeatedCompositeFieldContainer[C3DBlob]
    def __init__(self, name: _Optional[str] = ..., blobs: _Optional[_Iterable[_Union[C3DBlob, _Mapping]]] = ...) -> None: ...

class C3DBlob(_message.Message):
    __slots__ = ("num", "channels", "length", "height", "width", "data", "diff")
    NUM_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    DIFF_FIELD_NUMBER: _ClassVar[int]
    num: int
    channels: int
    length: int
    height: int
    width: int
    data: _containers.RepeatedScalarFieldContainer[float]
    diff: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, num: _Optional[int] = ..., channels: _Optional[int] = ..., length: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ..., data: _Optional[_Iterable[float]] = ..., diff: _Optional[_Iterable[float]] = ...) -> None: ...

class PermuteParameter(_message.Message):
    __slots__ = ("order",)
    ORDER_FIELD_NUMBER: _ClassVar[int]
    order: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, order: _Optional[_Iterable[int]] = ...) -> None: ...

class NormalizeParameter(_message.Message):
    __slots__ = ("across_spatial", "scale_filler", "channel_shared", "eps")
    ACROSS_SPATIAL_FIELD_NUMBER: _ClassVar[int]
    SCALE_FILLER_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_SHARED_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    across_spatial: bool
    scale_filler: FillerParameter
    channel_shared: bool
    eps: float
    def __init__(self, across_spatial: bool = ..., scale_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., channel_shared: bool = ..., eps: _Optional[float] = ...) -> None: ...

class UpsampleDarknetParameter(_message.Message):
    __slots__ = ("stride",)
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    stride: int
    def __init__(self, stride: _Optional[int] = ...) -> None: ...

class UpsampleParameter(_message.Message):
    __slots__ = ("scale", "scale_h", "scale_w", "pad_out_h", "pad_out_w", "upsample_h", "upsample_w")
    SCALE_FIELD_NUMBER: _ClassVar[int]
    SCALE_H_FIELD_NUMBER: _ClassVar[int]
    SCALE_W_FIELD_NUMBER: _ClassVar[int]
    PAD_OUT_H_FIELD_NUMBER: _ClassVar[int]
    PAD_OUT_W_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_H_FIELD_NUMBER: _ClassVar[int]
    UPSAMPLE_W_FIELD_NUMBER: _ClassVar[int]
    scale: int
    scale_h: int
    scale_w: int
    pad_out_h: bool
    pad_out_w: bool
    upsample_h: int
    upsample_w: int
    def __init__(self, scale: _Optional[int] = ..., scale_h: _Optional[int] = ..., scale_w: _Optional[int] = ..., pad_out_h: bool = ..., pad_out_w: bool = ..., upsample_h: _Optional[int] = ..., upsample_w: _Optional[int] = ...) -> None: ...

class InterpParameter(_message.Message):
    __slots__ = ("height", "width", "zoom_factor", "shrink_factor", "pad_beg", "pad_end")
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    ZOOM_FACTOR_FIELD_NUMBER: _ClassVar[int]
    SHRINK_FACTOR_FIELD_NUMBER: _ClassVar[int]
    PAD_BEG_FIELD_NUMBER: _ClassVar[int]
    PAD_END_FIELD_NUMBER: _ClassVar[int]
    height: int
    width: int
    zoom_factor: int
    shrink_factor: int
    pad_beg: int
    pad_end: int
    def __init__(self, height: _Optional[int] = ..., width: _Optional[int] = ..., zoom_factor: _Optional[int] = ..., shrink_factor: _Optional[int] = ..., pad_beg: _Optional[int] = ..., pad_end: _Optional[int] = ...) -> None: ...

class ShuffleChannelParameter(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: int
    def __init__(self, group: _Optional[int] = ...) -> None: ...

class ROIPoolingParameter(_message.Message):
    __slots__ = ("pooled_h", "pooled_w", "spatial_scale", "pad_ratio")
    POOLED_H_FIELD_NUMBER: _ClassVar[int]
    POOLED_W_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    PAD_RATIO_FIELD_NUMBER: _ClassVar[int]
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    pad_ratio: float
    def __init__(self, pooled_h: _Optional[int] = ..., pooled_w: _Optional[int] = ..., spatial_scale: _Optional[float] = ..., pad_ratio: _Optional[float] = ...) -> None: ...

class ROIAlignParameter(_message.Message):
    __slots__ = ("pooled_h", "pooled_w", "spatial_scale", "sampling_ratio")
    POOLED_H_FIELD_NUMBER: _ClassVar[int]
    POOLED_W_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATIO_FIELD_NUMBER: _ClassVar[int]
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    sampling_ratio: int
    def __init__(self, pooled_h: _Optional[int] = ..., pooled_w: _Optional[int] = ..., spatial_scale: _Optional[float] = ..., sampling_ratio: _Optional[int] = ...) -> None: ...

class PSROIAlignParameter(_message.Message):
    __slots__ = ("spatial_scale", "output_dim", "group_size", "sample_num")
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_NUM_FIELD_NUMBER: _ClassVar[int]
    spatial_scale: float
    output_dim: int
    group_size: int
    sample_num: int
    def __init__(self, spatial_scale: _Optional[float] = ..., output_dim: _Optional[int] = ..., group_size: _Optional[int] = ..., sample_num: _Optional[int] = ...) -> None: ...

class PSROIPoolingParameter(_message.Message):
    __slots__ = ("spatial_scale", "output_dim", "group_size")
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_DIM_FIELD_NUMBER: _ClassVar[int]
    GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    spatial_scale: float
    output_dim: int
    group_size: int
    def __init__(self, spatial_scale: _Optional[float] = ..., output_dim: _Optional[int] = ..., group_size: _Optional[int] = ...) -> None: ...

class ProposalParameter(_message.Message):
    __slots__ = ("feat_stride", "base_size", "min_size", "ratio", "scale", "pre_nms_topn", "post_nms_topn", "nms_thresh")
    FEAT_STRIDE_FIELD_NUMBER: _ClassVar[int]
    BASE_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    RATIO_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    PRE_NMS_TOPN_FIELD_NUMBER: _ClassVar[int]
    POST_NMS_TOPN_FIELD_NUMBER: _ClassVar[int]
    NMS_THRESH_FIELD_NUMBER: _ClassVar[int]
    feat_stride: int
    base_size: int
    min_size: int
    ratio: _containers.RepeatedScalarFieldContainer[float]
    scale: _containers.RepeatedScalarFieldContainer[float]
    pre_nms_topn: int
    post_nms_topn: int
    nms_thresh: float
    def __init__(self, feat_stride: _Optional[int] = ..., base_size: _Optional[int] = ..., min_size: _Optional[int] = ..., ratio: _Optional[_Iterable[float]] = ..., scale: _Optional[_Iterable[float]] = ..., pre_nms_topn: _Optional[int] = ..., post_nms_topn: _Optional[int] = ..., nms_thresh: _Optional[float] = ...) -> None: ...

class MultiStageMeanfieldParameter(_message.Message):
    __slots__ = ("compatibility_mode", "threshold", "theta_alpha", "theta_beta", "theta_gamma", "num_iterations", "spatial_filter_weight", "bilateral_filter_weight", "forced_spatial_filter_weight", "forced_bilateral_filter_weight", "spatial_filter_weights_str", "bilateral_filter_weights_str")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        POTTS: _ClassVar[MultiStageMeanfieldParameter.Mode]
    POTTS: MultiStageMeanfieldParameter.Mode
    COMPATIBILITY_MODE_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    THETA_ALPHA_FIELD_NUMBER: _ClassVar[int]
    THETA_BETA_FIELD_NUMBER: _ClassVar[int]
    THETA_GAMMA_FIELD_NUMBER: _ClassVar[int]
    NUM_ITERATIONS_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_FILTER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    BILATERAL_FILTER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    FORCED_SPATIAL_FILTER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    FORCED_BILATERAL_FILTER_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_FILTER_WEIGHTS_STR_FIELD_NUMBER: _ClassVar[int]
    BILATERAL_FILTER_WEIGHTS_STR_FIELD_NUMBER: _ClassVar[int]
    compatibility_mode: MultiStageMeanfieldParameter.Mode
    threshold: float
    theta_alpha: float
    theta_beta: float
    theta_gamma: float
    num_iterations: int
    spatial_filter_weight: float
    bilateral_filter_weight: float
    forced_spatial_filter_weight: float
    forced_bilateral_filter_weight: float
    spatial_filter_weights_str: str
    bilateral_filter_weights_str: str
    def __init__(self, compatibility_mode: _Optional[_Union[MultiStageMeanfieldParameter.Mode, str]] = ..., threshold: _Optional[float] = ..., theta_alpha: _Optional[float] = ..., theta_beta: _Optional[float] = ..., theta_gamma: _Optional[float] = ..., num_iterations: _Optional[int] = ..., spatial_filter_weight: _Optional[float] = ..., bilateral_filter_weight: _Optional[float] = ..., forced_spatial_filter_weight: _Optional[float] = ..., forced_bilateral_filter_weight: _Optional[float] = ..., spatial_filter_weights_str: _Optional[str] = ..., bilateral_filter_weights_str: _Optional[str] = ...) -> None: ...

class BBoxRegParameter(_message.Message):
    __slots__ = ("bbox_mean", "bbox_std", "cls_aware")
    BBOX_MEAN_FIELD_NUMBER: _ClassVar[int]
    BBOX_STD_FIELD_NUMBER: _ClassVar[int]
    CLS_AWARE_FIELD_NUMBER: _ClassVar[int]
    bbox_mean: _containers.RepeatedScalarFieldContainer[float]
    bbox_std: _containers.RepeatedScalarFieldContainer[float]
    cls_aware: bool
    def __init__(self, bbox_mean: _Optional[_Iterable[float]] = ..., bbox_std: _Optional[_Iterable[float]] = ..., cls_aware: bool = ...) -> None: ...

class BoxOutputParameter(_message.Message):
    __slots__ = ("fg_thr", "iou_thr", "nms_type", "field_h", "field_w", "downsample_rate", "field_whr", "field_xyr", "max_nms_num", "max_post_nms_num", "min_size")
    FG_THR_FIELD_NUMBER: _ClassVar[int]
    IOU_THR_FIELD_NUMBER: _ClassVar[int]
    NMS_TYPE_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    DOWNSAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    MAX_NMS_NUM_FIELD_NUMBER: _ClassVar[int]
    MAX_POST_NMS_NUM_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    fg_thr: float
    iou_thr: float
    nms_type: str
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    downsample_rate: _containers.RepeatedScalarFieldContainer[int]
    field_whr: float
    field_xyr: float
    max_nms_num: int
    max_post_nms_num: int
    min_size: float
    def __init__(self, fg_thr: _Optional[float] = ..., iou_thr: _Optional[float] = ..., nms_type: _Optional[str] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., downsample_rate: _Optional[_Iterable[int]] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., max_nms_num: _Optional[int] = ..., max_post_nms_num: _Optional[int] = ..., min_size: _Optional[float] = ...) -> None: ...

class BoxGroupParameter(_message.Message):
    __slots__ = ("field_h", "field_w", "stride")
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    stride: int
    def __init__(self, field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., stride: _Optional[int] = ...) -> None: ...

class BoxGroupOutputParameter(_message.Message):
    __slots__ = ("fg_thr", "iou_thr", "nms_type", "box_group_param", "field_whr", "field_xyr", "max_nms_num", "max_post_nms_num", "min_size")
    FG_THR_FIELD_NUMBER: _ClassVar[int]
    IOU_THR_FIELD_NUMBER: _ClassVar[int]
    NMS_TYPE_FIELD_NUMBER: _ClassVar[int]
    BOX_GROUP_PARAM_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    MAX_NMS_NUM_FIELD_NUMBER: _ClassVar[int]
    MAX_POST_NMS_NUM_FIELD_NUMBER: _ClassVar[int]
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    fg_thr: float
    iou_thr: float
    nms_type: str
    box_group_param: _containers.RepeatedCompositeFieldContainer[BoxGroupParameter]
    field_whr: float
    field_xyr: float
    max_nms_num: int
    max_post_nms_num: int
    min_size: float
    def __init__(self, fg_thr: _Optional[float] = ..., iou_thr: _Optional[float] = ..., nms_type: _Optional[str] = ..., box_group_param: _Optional[_Iterable[_Union[BoxGroupParameter, _Mapping]]] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., max_nms_num: _Optional[int] = ..., max_post_nms_num: _Optional[int] = ..., min_size: _Optional[float] = ...) -> None: ...

class DecodeBBoxParameter(_message.Message):
    __slots__ = ("gt_iou_thr",)
    GT_IOU_THR_FIELD_NUMBER: _ClassVar[int]
    gt_iou_thr: float
    def __init__(self, gt_iou_thr: _Optional[float] = ...) -> None: ...

class ScaleRouteParameter(_message.Message):
    __slots__ = ("low_scale", "high_scale")
    LOW_SCALE_FIELD_NUMBER: _ClassVar[int]
    HIGH_SCALE_FIELD_NUMBER: _ClassVar[int]
    low_scale: float
    high_scale: float
    def __init__(self, low_scale: _Optional[float] = ..., high_scale: _Optional[float] = ...) -> None: ...

class BoxAnnotatorOHEMParameter(_message.Message):
    __slots__ = ("roi_per_img", "ignore_label")
    ROI_PER_IMG_FIELD_NUMBER: _ClassVar[int]
    IGNORE_LABEL_FIELD_NUMBER: _ClassVar[int]
    roi_per_img: int
    ignore_label: int
    def __init__(self, roi_per_img: _Optional[int] = ..., ignore_label: _Optional[int] = ...) -> None: ...

class RegionLossParameter(_message.Message):
    __slots__ = ("side", "num_class", "bias_match", "coords", "num", "softmax", "jitter", "rescore", "object_scale", "class_scale", "noobject_scale", "coord_scale", "absolute", "thresh", "random", "biases", "softmax_tree", "class_map")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASS_FIELD_NUMBER: _ClassVar[int]
    BIAS_MATCH_FIELD_NUMBER: _ClassVar[int]
    COORDS_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_FIELD_NUMBER: _ClassVar[int]
    JITTER_FIELD_NUMBER: _ClassVar[int]
    RESCORE_FIELD_NUMBER: _ClassVar[int]
    OBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    CLASS_SCALE_FIELD_NUMBER: _ClassVar[int]
    NOOBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    COORD_SCALE_FIELD_NUMBER: _ClassVar[int]
    ABSOLUTE_FIELD_NUMBER: _ClassVar[int]
    THRESH_FIELD_NUMBER: _ClassVar[int]
    RANDOM_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    SOFTMAX_TREE_FIELD_NUMBER: _ClassVar[int]
    CLASS_MAP_FIELD_NUMBER: _ClassVar[int]
    side: int
    num_class: int
    bias_match: int
    coords: int
    num: int
    softmax: int
    jitter: float
    rescore: int
    object_scale: float
    class_scale: float
    noobject_scale: float
    coord_scale: float
    absolute: int
    thresh: float
    random: int
    biases: _containers.RepeatedScalarFieldContainer[float]
    softmax_tree: str
    class_map: str
    def __init__(self, side: _Optional[int] = ..., num_class: _Optional[int] = ..., bias_match: _Optional[int] = ..., coords: _Optional[int] = ..., num: _Optional[int] = ..., softmax: _Optional[int] = ..., jitter: _Optional[float] = ..., rescore: _Optional[int] = ..., object_scale: _Optional[float] = ..., class_scale: _Optional[float] = ..., noobject_scale: _Optional[float] = ..., coord_scale: _Optional[float] = ..., absolute: _Optional[int] = ..., thresh: _Optional[float] = ..., random: _Optional[int] = ..., biases: _Optional[_Iterable[float]] = ..., softmax_tree: _Optional[str] = ..., class_map: _Optional[str] = ...) -> None: ...

class Yolov3Parameter(_message.Message):
    __slots__ = ("side", "num_class", "num", "object_scale", "class_scale", "noobject_scale", "coord_scale", "thresh", "anchors_scale", "biases", "mask", "use_logic_gradient", "use_focal_loss", "iou_loss", "iou_normalizer", "iou_thresh", "max_delta", "accumulate", "label_smooth_eps")
    class IOU_LOSS(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        IOU: _ClassVar[Yolov3Parameter.IOU_LOSS]
        GIOU: _ClassVar[Yolov3Parameter.IOU_LOSS]
        MSE: _ClassVar[Yolov3Parameter.IOU_LOSS]
        DIOU: _ClassVar[Yolov3Parameter.IOU_LOSS]
        CIOU: _ClassVar[Yolov3Parameter.IOU_LOSS]
    IOU: Yolov3Parameter.IOU_LOSS
    GIOU: Yolov3Parameter.IOU_LOSS
    MSE: Yolov3Parameter.IOU_LOSS
    DIOU: Yolov3Parameter.IOU_LOSS
    CIOU: Yolov3Parameter.IOU_LOSS
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASS_FIELD_NUMBER: _ClassVar[int]
    NUM_FIELD_NUMBER: _ClassVar[int]
    OBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    CLASS_SCALE_FIELD_NUMBER: _ClassVar[int]
    NOOBJECT_SCALE_FIELD_NUMBER: _ClassVar[int]
    COORD_SCALE_FIELD_NUMBER: _ClassVar[int]
    THRESH_FIELD_NUMBER: _ClassVar[int]
    ANCHORS_SCALE_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    USE_LOGIC_GRADIENT_FIELD_NUMBER: _ClassVar[int]
    USE_FOCAL_LOSS_FIELD_NUMBER: _ClassVar[int]
    IOU_LOSS_FIELD_NUMBER: _ClassVar[int]
    IOU_NORMALIZER_FIELD_NUMBER: _ClassVar[int]
    IOU_THRESH_FIELD_NUMBER: _ClassVar[int]
    MAX_DELTA_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATE_FIELD_NUMBER: _ClassVar[int]
    LABEL_SMOOTH_EPS_FIELD_NUMBER: _ClassVar[int]
    side: int
    num_class: int
    num: int
    object_scale: float
    class_scale: float
    noobject_scale: float
    coord_scale: float
    thresh: float
    anchors_scale: int
    biases: _containers.RepeatedScalarFieldContainer[float]
    mask: _containers.RepeatedScalarFieldContainer[int]
    use_logic_gradient: bool
    use_focal_loss: bool
    iou_loss: Yolov3Parameter.IOU_LOSS
    iou_normalizer: float
    iou_thresh: float
    max_delta: float
    accumulate: bool
    label_smooth_eps: float
    def __init__(self, side: _Optional[int] = ..., num_class: _Optional[int] = ..., num: _Optional[int] = ..., object_scale: _Optional[float] = ..., class_scale: _Optional[float] = ..., noobject_scale: _Optional[float] = ..., coord_scale: _Optional[float] = ..., thresh: _Optional[float] = ..., anchors_scale: _Optional[int] = ..., biases: _Optional[_Iterable[float]] = ..., mask: _Optional[_Iterable[int]] = ..., use_logic_gradient: bool = ..., use_focal_loss: bool = ..., iou_loss: _Optional[_Union[Yolov3Parameter.IOU_LOSS, str]] = ..., iou_normalizer: _Optional[float] = ..., iou_thresh: _Optional[float] = ..., max_delta: _Optional[float] = ..., accumulate: bool = ..., label_smooth_eps: _Optional[float] = ...) -> None: ...

class EvalDetectionParameter(_message.Message):
    __slots__ = ("side", "num_class", "num_object", "threshold", "sqrt", "constriant", "score_type", "nms", "biases")
    class ScoreType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        OBJ: _ClassVar[EvalDetectionParameter.ScoreType]
        PROB: _ClassVar[EvalDetectionParameter.ScoreType]
        MULTIPLY: _ClassVar[EvalDetectionParameter.ScoreType]
    OBJ: EvalDetectionParameter.ScoreType
    PROB: EvalDetectionParameter.ScoreType
    MULTIPLY: EvalDetectionParameter.ScoreType
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASS_FIELD_NUMBER: _ClassVar[int]
    NUM_OBJECT_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SQRT_FIELD_NUMBER: _ClassVar[int]
    CONSTRIANT_FIELD_NUMBER: _ClassVar[int]
    SCORE_TYPE_FIELD_NUMBER: _ClassVar[int]
    NMS_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    side: int
    num_class: int
    num_object: int
    threshold: float
    sqrt: bool
    constriant: bool
    score_type: EvalDetectionParameter.ScoreType
    nms: float
    biases: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, side: _Optional[int] = ..., num_class: _Optional[int] = ..., num_object: _Optional[int] = ..., threshold: _Optional[float] = ..., sqrt: bool = ..., constriant: bool = ..., score_type: _Optional[_Union[EvalDetectionParameter.ScoreType, str]] = ..., nms: _Optional[float] = ..., biases: _Optional[_Iterable[float]] = ...) -> None: ...

class YoloDetectionOutputParameter(_message.Message):
    __slots__ = ("side", "num_classes", "num_box", "coords", "confidence_threshold", "nms_threshold", "biases", "label_map_file")
    SIDE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    NUM_BOX_FIELD_NUMBER: _ClassVar[int]
    COORDS_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    LABEL_MAP_FILE_FIELD_NUMBER: _ClassVar[int]
    side: int
    num_classes: int
    num_box: int
    coords: int
    confidence_threshold: float
    nms_threshold: float
    biases: _containers.RepeatedScalarFieldContainer[float]
    label_map_file: str
    def __init__(self, side: _Optional[int] = ..., num_classes: _Optional[int] = ..., num_box: _Optional[int] = ..., coords: _Optional[int] = ..., confidence_threshold: _Optional[float] = ..., nms_threshold: _Optional[float] = ..., biases: _Optional[_Iterable[float]] = ..., label_map_file: _Optional[str] = ...) -> None: ...

class Yolov3DetectionOutputParameter(_message.Message):
    __slots__ = ("num_classes", "num_box", "confidence_threshold", "nms_threshold", "biases", "anchors_scale", "mask_group_num", "mask", "gaussian_box")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    NUM_BOX_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BIASES_FIELD_NUMBER: _ClassVar[int]
    ANCHORS_SCALE_FIELD_NUMBER: _ClassVar[int]
    MASK_GROUP_NUM_FIELD_NUMBER: _ClassVar[int]
    MASK_FIELD_NUMBER: _ClassVar[int]
    GAUSSIAN_BOX_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    num_box: int
    confidence_threshold: float
    nms_threshold: float
    biases: _containers.RepeatedScalarFieldContainer[float]
    anchors_scale: _containers.RepeatedScalarFieldContainer[int]
    mask_group_num: int
    mask: _containers.RepeatedScalarFieldContainer[int]
    gaussian_box: bool
    def __init__(self, num_classes: _Optional[int] = ..., num_box: _Optional[int] = ..., confidence_threshold: _Optional[float] = ..., nms_threshold: _Optional[float] = ..., biases: _Optional[_Iterable[float]] = ..., anchors_scale: _Optional[_Iterable[int]] = ..., mask_group_num: _Optional[int] = ..., mask: _Optional[_Iterable[int]] = ..., gaussian_box: bool = ...) -> None: ...

class CTCLossParameter(_message.Message):
    __slots__ = ("output_delay", "blank_index", "preprocess_collapse_repeated", "ctc_merge_repeated", "loss_calculation_t", "alphabet_size", "time_step", "blank_label")
    OUTPUT_DELAY_FIELD_NUMBER: _ClassVar[int]
    BLANK_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREPROCESS_COLLAPSE_REPEATED_FIELD_NUMBER: _ClassVar[int]
    CTC_MERGE_REPEATED_FIELD_NUMBER: _ClassVar[int]
    LOSS_CALCULATION_T_FIELD_NUMBER: _ClassVar[int]
    ALPHABET_SIZE_FIELD_NUMBER: _ClassVar[int]
    TIME_STEP_FIELD_NUMBER: _ClassVar[int]
    BLANK_LABEL_FIELD_NUMBER: _ClassVar[int]
    output_delay: int
    blank_index: int
    preprocess_collapse_repeated: bool
    ctc_merge_repeated: bool
    loss_calculation_t: int
    alphabet_size: int
    time_step: int
    blank_label: int
    def __init__(self, output_delay: _Optional[int] = ..., blank_index: _Optional[int] = ..., preprocess_collapse_repeated: bool = ..., ctc_merge_repeated: bool = ..., loss_calculation_t: _Optional[int] = ..., alphabet_size: _Optional[int] = ..., time_step: _Optional[int] = ..., blank_label: _Optional[int] = ...) -> None: ...

class CTCDecoderParameter(_message.Message):
    __slots__ = ("blank_index", "ctc_merge_repeated")
    BLANK_INDEX_FIELD_NUMBER: _ClassVar[int]
    CTC_MERGE_REPEATED_FIELD_NUMBER: _ClassVar[int]
    blank_index: int
    ctc_merge_repeated: bool
    def __init__(self, blank_index: _Optional[int] = ..., ctc_merge_repeated: bool = ...) -> None: ...

class LabelsequenceAccuracyParameter(_message.Message):
    __slots__ = ("blank_label",)
    BLANK_LABEL_FIELD_NUMBER: _ClassVar[int]
    blank_label: int
    def __init__(self, blank_label: _Optional[int] = ...) -> None: ...

class ContinuationIndicatorParameter(_message.Message):
    __slots__ = ("time_step", "batch_size")
    TIME_STEP_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    time_step: int
    batch_size: int
    def __init__(self, time_step: _Optional[int] = ..., batch_size: _Optional[int] = ...) -> None: ...

class ReverseParameter(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: int
    def __init__(self, axis: _Optional[int] = ...) -> None: ...

class TripletLossParameter(_message.Message):
    __slots__ = ("margin",)
    MARGIN_FIELD_NUMBER: _ClassVar[int]
    margin: float
    def __init__(self, margin: _Optional[float] = ...) -> None: ...

class CorrelationParameter(_message.Message):
    __slots__ = ("pad", "kernel_size", "max_displacement", "stride_1", "stride_2", "do_abs", "correlation_type")
    class CorrelationType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MULTIPLY: _ClassVar[CorrelationParameter.CorrelationType]
        SUBTRACT: _ClassVar[CorrelationParameter.CorrelationType]
    MULTIPLY: CorrelationParameter.CorrelationType
    SUBTRACT: CorrelationParameter.CorrelationType
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_DISPLACEMENT_FIELD_NUMBER: _ClassVar[int]
    STRIDE_1_FIELD_NUMBER: _ClassVar[int]
    STRIDE_2_FIELD_NUMBER: _ClassVar[int]
    DO_ABS_FIELD_NUMBER: _ClassVar[int]
    CORRELATION_TYPE_FIELD_NUMBER: _ClassVar[int]
    pad: int
    kernel_size: int
    max_displacement: int
    stride_1: int
    stride_2: int
    do_abs: bool
    correlation_type: CorrelationParameter.CorrelationType
    def __init__(self, pad: _Optional[int] = ..., kernel_size: _Optional[int] = ..., max_displacement: _Optional[int] = ..., stride_1: _Optional[int] = ..., stride_2: _Optional[int] = ..., do_abs: bool = ..., correlation_type: _Optional[_Union[CorrelationParameter.CorrelationType, str]] = ...) -> None: ...

class SpatialTransformerParameter(_message.Message):
    __slots__ = ("transform_type", "sampler_type", "output_H", "output_W", "to_compute_dU", "theta_1_1", "theta_1_2", "theta_1_3", "theta_2_1", "theta_2_2", "theta_2_3")
    TRANSFORM_TYPE_FIELD_NUMBER: _ClassVar[int]
    SAMPLER_TYPE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_H_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_W_FIELD_NUMBER: _ClassVar[int]
    TO_COMPUTE_DU_FIELD_NUMBER: _ClassVar[int]
    THETA_1_1_FIELD_NUMBER: _ClassVar[int]
    THETA_1_2_FIELD_NUMBER: _ClassVar[int]
    THETA_1_3_FIELD_NUMBER: _ClassVar[int]
    THETA_2_1_FIELD_NUMBER: _ClassVar[int]
    THETA_2_2_FIELD_NUMBER: _ClassVar[int]
    THETA_2_3_FIELD_NUMBER: _ClassVar[int]
    transform_type: str
    sampler_type: str
    output_H: int
    output_W: int
    to_compute_dU: bool
    theta_1_1: float
    theta_1_2: float
    theta_1_3: float
    theta_2_1: float
    theta_2_2: float
    theta_2_3: float
    def __init__(self, transform_type: _Optional[str] = ..., sampler_type: _Optional[str] = ..., output_H: _Optional[int] = ..., output_W: _Optional[int] = ..., to_compute_dU: bool = ..., theta_1_1: _Optional[float] = ..., theta_1_2: _Optional[float] = ..., theta_1_3: _Optional[float] = ..., theta_2_1: _Optional[float] = ..., theta_2_2: _Optional[float] = ..., theta_2_3: _Optional[float] = ...) -> None: ...

class SmoothL1LossParameter(_message.Message):
    __slots__ = ("sigma",)
    SIGMA_FIELD_NUMBER: _ClassVar[int]
    sigma: float
    def __init__(self, sigma: _Optional[float] = ...) -> None: ...

class ReLU6Parameter(_message.Message):
    __slots__ = ("negative_slope",)
    NEGATIVE_SLOPE_FIELD_NUMBER: _ClassVar[int]
    negative_slope: float
    def __init__(self, negative_slope: _Optional[float] = ...) -> None: ...

class BNParameter(_message.Message):
    __slots__ = ("slope_filler", "bias_filler", "momentum", "eps", "frozen", "engine", "scale_filler", "shift_filler", "bn_mode")
    class Engine(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DEFAULT: _ClassVar[BNParameter.Engine]
        CAFFE: _ClassVar[BNParameter.Engine]
        CUDNN: _ClassVar[BNParameter.Engine]
    DEFAULT: BNParameter.Engine
    CAFFE: BNParameter.Engine
    CUDNN: BNParameter.Engine
    class BNMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        LEARN: _ClassVar[BNParameter.BNMode]
        INFERENCE: _ClassVar[BNParameter.BNMode]
    LEARN: BNParameter.BNMode
    INFERENCE: BNParameter.BNMode
    SLOPE_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    EPS_FIELD_NUMBER: _ClassVar[int]
    FROZEN_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FILLER_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BN_MODE_FIELD_NUMBER: _ClassVar[int]
    slope_filler: FillerParameter
    bias_filler: FillerParameter
    momentum: float
    eps: float
    frozen: bool
    engine: BNParameter.Engine
    scale_filler: FillerParameter
    shift_filler: FillerParameter
    bn_mode: BNParameter.BNMode
    def __init__(self, slope_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., momentum: _Optional[float] = ..., eps: _Optional[float] = ..., frozen: bool = ..., engine: _Optional[_Union[BNParameter.Engine, str]] = ..., scale_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., shift_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bn_mode: _Optional[_Union[BNParameter.BNMode, str]] = ...) -> None: ...

class PriorBoxParameter(_message.Message):
    __slots__ = ("min_size", "max_size", "aspect_ratio", "flip", "clip", "variance", "img_size", "img_h", "img_w", "step", "step_h", "step_w", "offset", "tf", "yx_order")
    class CodeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CORNER: _ClassVar[PriorBoxParameter.CodeType]
        CENTER_SIZE: _ClassVar[PriorBoxParameter.CodeType]
        CORNER_SIZE: _ClassVar[PriorBoxParameter.CodeType]
    CORNER: PriorBoxParameter.CodeType
    CENTER_SIZE: PriorBoxParameter.CodeType
    CORNER_SIZE: PriorBoxParameter.CodeType
    MIN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_SIZE_FIELD_NUMBER: _ClassVar[int]
    ASPECT_RATIO_FIELD_NUMBER: _ClassVar[int]
    FLIP_FIELD_NUMBER: _ClassVar[int]
    CLIP_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_FIELD_NUMBER: _ClassVar[int]
    IMG_SIZE_FIELD_NUMBER: _ClassVar[int]
    IMG_H_FIELD_NUMBER: _ClassVar[int]
    IMG_W_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    STEP_H_FIELD_NUMBER: _ClassVar[int]
    STEP_W_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TF_FIELD_NUMBER: _ClassVar[int]
    YX_ORDER_FIELD_NUMBER: _ClassVar[int]
    min_size: _containers.RepeatedScalarFieldContainer[float]
    max_size: _containers.RepeatedScalarFieldContainer[float]
    aspect_ratio: _containers.RepeatedScalarFieldContainer[float]
    flip: bool
    clip: bool
    variance: _containers.RepeatedScalarFieldContainer[float]
    img_size: int
    img_h: int
    img_w: int
    step: float
    step_h: float
    step_w: float
    offset: float
    tf: bool
    yx_order: bool
    def __init__(self, min_size: _Optional[_Iterable[float]] = ..., max_size: _Optional[_Iterable[float]] = ..., aspect_ratio: _Optional[_Iterable[float]] = ..., flip: bool = ..., clip: bool = ..., variance: _Optional[_Iterable[float]] = ..., img_size: _Optional[int] = ..., img_h: _Optional[int] = ..., img_w: _Optional[int] = ..., step: _Optional[float] = ..., step_h: _Optional[float] = ..., step_w: _Optional[float] = ..., offset: _Optional[float] = ..., tf: bool = ..., yx_order: bool = ...) -> None: ...

class NonMaximumSuppressionParameter(_message.Message):
    __slots__ = ("nms_threshold", "top_k", "eta")
    NMS_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    nms_threshold: float
    top_k: int
    eta: float
    def __init__(self, nms_threshold: _Optional[float] = ..., top_k: _Optional[int] = ..., eta: _Optional[float] = ...) -> None: ...

class SaveOutputParameter(_message.Message):
    __slots__ = ("output_directory", "output_name_prefix", "output_format", "label_map_file", "name_size_file", "num_test_image", "resize_param")
    OUTPUT_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FORMAT_FIELD_NUMBER: _ClassVar[int]
    LABEL_MAP_FILE_FIELD_NUMBER: _ClassVar[int]
    NAME_SIZE_FILE_FIELD_NUMBER: _ClassVar[int]
    NUM_TEST_IMAGE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    output_directory: str
    output_name_prefix: str
    output_format: str
    label_map_file: str
    name_size_file: str
    num_test_image: int
    resize_param: ResizeParameter
    def __init__(self, output_directory: _Optional[str] = ..., output_name_prefix: _Optional[str] = ..., output_format: _Optional[str] = ..., label_map_file: _Optional[str] = ..., name_size_file: _Optional[str] = ..., num_test_image: _Optional[int] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class DetectionOutputParameter(_message.Message):
    __slots__ = ("num_classes", "share_location", "background_label_id", "nms_param", "save_output_param", "code_type", "keep_top_k", "variance_encoded_in_target", "confidence_threshold", "visualize", "visualize_threshold", "save_file", "objectness_score", "no_permute", "nbottom")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    SHARE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    NMS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SAVE_OUTPUT_PARAM_FIELD_NUMBER: _ClassVar[int]
    CODE_TYPE_FIELD_NUMBER: _ClassVar[int]
    KEEP_TOP_K_FIELD_NUMBER: _ClassVar[int]
    VARIANCE_ENCODED_IN_TARGET_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_FIELD_NUMBER: _ClassVar[int]
    VISUALIZE_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    SAVE_FILE_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_SCORE_FIELD_NUMBER: _ClassVar[int]
    NO_PERMUTE_FIELD_NUMBER: _ClassVar[int]
    NBOTTOM_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    share_location: bool
    background_label_id: int
    nms_param: NonMaximumSuppressionParameter
    save_output_param: SaveOutputParameter
    code_type: PriorBoxParameter.CodeType
    keep_top_k: int
    variance_encoded_in_target: bool
    confidence_threshold: float
    visualize: bool
    visualize_threshold: float
    save_file: str
    objectness_score: float
    no_permute: bool
    nbottom: int
    def __init__(self, num_classes: _Optional[int] = ..., share_location: bool = ..., background_label_id: _Optional[int] = ..., nms_param: _Optional[_Union[NonMaximumSuppressionParameter, _Mapping]] = ..., save_output_param: _Optional[_Union[SaveOutputParameter, _Mapping]] = ..., code_type: _Optional[_Union[PriorBoxParameter.CodeType, str]] = ..., keep_top_k: _Optional[int] = ..., variance_encoded_in_target: bool = ..., confidence_threshold: _Optional[float] = ..., visualize: bool = ..., visualize_threshold: _Optional[float] = ..., save_file: _Optional[str] = ..., objectness_score: _Optional[float] = ..., no_permute: bool = ..., nbottom: _Optional[int] = ...) -> None: ...

class MultiBoxLossParameter(_message.Message):
    __slots__ = ("loc_loss_type", "conf_loss_type", "loc_weight", "num_classes", "share_location", "match_type", "overlap_threshold", "use_prior_for_matching", "background_label_id", "use_difficult_gt", "do_neg_mining", "neg_pos_ratio", "neg_overlap", "code_type", "encode_variance_in_target", "map_object_to_agnostic", "ignore_cross_boundary_bbox", "bp_inside", "mining_type", "nms_param", "sample_size", "use_prior_for_nms", "objectness_score")
    class LocLossType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        L2: _ClassVar[MultiBoxLossParameter.LocLossType]
        SMOOTH_L1: _ClassVar[MultiBoxLossParameter.LocLossType]
    L2: MultiBoxLossParameter.LocLossType
    SMOOTH_L1: MultiBoxLossParameter.LocLossType
    class ConfLossType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOFTMAX: _ClassVar[MultiBoxLossParameter.ConfLossType]
        LOGISTIC: _ClassVar[MultiBoxLossParameter.ConfLossType]
    SOFTMAX: MultiBoxLossParameter.ConfLossType
    LOGISTIC: MultiBoxLossParameter.ConfLossType
    class MatchType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BIPARTITE: _ClassVar[MultiBoxLossParameter.MatchType]
        PER_PREDICTION: _ClassVar[MultiBoxLossParameter.MatchType]
    BIPARTITE: MultiBoxLossParameter.MatchType
    PER_PREDICTION: MultiBoxLossParameter.MatchType
    class MiningType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[MultiBoxLossParameter.MiningType]
        MAX_NEGATIVE: _ClassVar[MultiBoxLossParameter.MiningType]
        HARD_EXAMPLE: _ClassVar[MultiBoxLossParameter.MiningType]
    NONE: MultiBoxLossParameter.MiningType
    MAX_NEGATIVE: MultiBoxLossParameter.MiningType
    HARD_EXAMPLE: MultiBoxLossParameter.MiningType
    LOC_LOSS_TYPE_FIELD_NUMBER: _ClassVar[int]
    CONF_LOSS_TYPE_FIELD_NUMBER: _ClassVar[int]
    LOC_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    SHARE_LOCATION_FIELD_NUMBER: _ClassVar[int]
    MATCH_TYPE_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    USE_PRIOR_FOR_MATCHING_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    USE_DIFFICULT_GT_FIELD_NUMBER: _ClassVar[int]
    DO_NEG_MINING_FIELD_NUMBER: _ClassVar[int]
    NEG_POS_RATIO_FIELD_NUMBER: _ClassVar[int]
    NEG_OVERLAP_FIELD_NUMBER: _ClassVar[int]
    CODE_TYPE_FIELD_NUMBER: _ClassVar[int]
    ENCODE_VARIANCE_IN_TARGET_FIELD_NUMBER: _ClassVar[int]
    MAP_OBJECT_TO_AGNOSTIC_FIELD_NUMBER: _ClassVar[int]
    IGNORE_CROSS_BOUNDARY_BBOX_FIELD_NUMBER: _ClassVar[int]
    BP_INSIDE_FIELD_NUMBER: _ClassVar[int]
    MINING_TYPE_FIELD_NUMBER: _ClassVar[int]
    NMS_PARAM_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_SIZE_FIELD_NUMBER: _ClassVar[int]
    USE_PRIOR_FOR_NMS_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_SCORE_FIELD_NUMBER: _ClassVar[int]
    loc_loss_type: MultiBoxLossParameter.LocLossType
    conf_loss_type: MultiBoxLossParameter.ConfLossType
    loc_weight: float
    num_classes: int
    share_location: bool
    match_type: MultiBoxLossParameter.MatchType
    overlap_threshold: float
    use_prior_for_matching: bool
    background_label_id: int
    use_difficult_gt: bool
    do_neg_mining: bool
    neg_pos_ratio: float
    neg_overlap: float
    code_type: PriorBoxParameter.CodeType
    encode_variance_in_target: bool
    map_object_to_agnostic: bool
    ignore_cross_boundary_bbox: bool
    bp_inside: bool
    mining_type: MultiBoxLossParameter.MiningType
    nms_param: NonMaximumSuppressionParameter
    sample_size: int
    use_prior_for_nms: bool
    objectness_score: float
    def __init__(self, loc_loss_type: _Optional[_Union[MultiBoxLossParameter.LocLossType, str]] = ..., conf_loss_type: _Optional[_Union[MultiBoxLossParameter.ConfLossType, str]] = ..., loc_weight: _Optional[float] = ..., num_classes: _Optional[int] = ..., share_location: bool = ..., match_type: _Optional[_Union[MultiBoxLossParameter.MatchType, str]] = ..., overlap_threshold: _Optional[float] = ..., use_prior_for_matching: bool = ..., background_label_id: _Optional[int] = ..., use_difficult_gt: bool = ..., do_neg_mining: bool = ..., neg_pos_ratio: _Optional[float] = ..., neg_overlap: _Optional[float] = ..., code_type: _Optional[_Union[PriorBoxParameter.CodeType, str]] = ..., encode_variance_in_target: bool = ..., map_object_to_agnostic: bool = ..., ignore_cross_boundary_bbox: bool = ..., bp_inside: bool = ..., mining_type: _Optional[_Union[MultiBoxLossParameter.MiningType, str]] = ..., nms_param: _Optional[_Union[NonMaximumSuppressionParameter, _Mapping]] = ..., sample_size: _Optional[int] = ..., use_prior_for_nms: bool = ..., objectness_score: _Optional[float] = ...) -> None: ...

class DetectionEvaluateParameter(_message.Message):
    __slots__ = ("num_classes", "background_label_id", "overlap_threshold", "evaluate_difficult_gt", "name_size_file", "resize_param")
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    BACKGROUND_LABEL_ID_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_DIFFICULT_GT_FIELD_NUMBER: _ClassVar[int]
    NAME_SIZE_FILE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_PARAM_FIELD_NUMBER: _ClassVar[int]
    num_classes: int
    background_label_id: int
    overlap_threshold: float
    evaluate_difficult_gt: bool
    name_size_file: str
    resize_param: ResizeParameter
    def __init__(self, num_classes: _Optional[int] = ..., background_label_id: _Optional[int] = ..., overlap_threshold: _Optional[float] = ..., evaluate_difficult_gt: bool = ..., name_size_file: _Optional[str] = ..., resize_param: _Optional[_Union[ResizeParameter, _Mapping]] = ...) -> None: ...

class ReorgParameter(_message.Message):
    __slots__ = ("stride", "reverse")
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    REVERSE_FIELD_NUMBER: _ClassVar[int]
    stride: int
    reverse: bool
    def __init__(self, stride: _Optional[int] = ..., reverse: bool = ...) -> None: ...

class CenterLossParameter(_message.Message):
    __slots__ = ("num_output", "center_filler", "axis")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CENTER_FILLER_FIELD_NUMBER: _ClassVar[int]
    AXIS_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    center_filler: FillerParameter
    axis: int
    def __init__(self, num_output: _Optional[int] = ..., center_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., axis: _Optional[int] = ...) -> None: ...

class RandVecParameter(_message.Message):
    __slots__ = ("batch_size", "dim", "lower", "upper", "repeat", "height", "width")
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    LOWER_FIELD_NUMBER: _ClassVar[int]
    UPPER_FIELD_NUMBER: _ClassVar[int]
    REPEAT_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    batch_size: int
    dim: int
    lower: float
    upper: float
    repeat: int
    height: int
    width: int
    def __init__(self, batch_size: _Optional[int] = ..., dim: _Optional[int] = ..., lower: _Optional[float] = ..., upper: _Optional[float] = ..., repeat: _Optional[int] = ..., height: _Optional[int] = ..., width: _Optional[int] = ...) -> None: ...

class DeephiResizeParameter(_message.Message):
    __slots__ = ("new_height", "new_width", "scale_h", "scale_w", "resize_type")
    class ResizeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        BILINEAR: _ClassVar[DeephiResizeParameter.ResizeType]
        NEAREST: _ClassVar[DeephiResizeParameter.ResizeType]
    BILINEAR: DeephiResizeParameter.ResizeType
    NEAREST: DeephiResizeParameter.ResizeType
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    SCALE_H_FIELD_NUMBER: _ClassVar[int]
    SCALE_W_FIELD_NUMBER: _ClassVar[int]
    RESIZE_TYPE_FIELD_NUMBER: _ClassVar[int]
    new_height: int
    new_width: int
    scale_h: float
    scale_w: float
    resize_type: DeephiResizeParameter.ResizeType
    def __init__(self, new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., scale_h: _Optional[float] = ..., scale_w: _Optional[float] = ..., resize_type: _Optional[_Union[DeephiResizeParameter.ResizeType, str]] = ...) -> None: ...

class LocallyConnectedParameter(_message.Message):
    __slots__ = ("num_output", "bias_term", "pad", "kernel_size", "stride", "weight_filler", "bias_filler")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    BIAS_TERM_FIELD_NUMBER: _ClassVar[int]
    PAD_FIELD_NUMBER: _ClassVar[int]
    KERNEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    bias_term: bool
    pad: int
    kernel_size: int
    stride: int
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    def __init__(self, num_output: _Optional[int] = ..., bias_term: bool = ..., pad: _Optional[int] = ..., kernel_size: _Optional[int] = ..., stride: _Optional[int] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ...) -> None: ...

class SqueezeParameter(_message.Message):
    __slots__ = ("axis",)
    AXIS_FIELD_NUMBER: _ClassVar[int]
    axis: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, axis: _Optional[_Iterable[int]] = ...) -> None: ...

class TransposeParameter(_message.Message):
    __slots__ = ("dim",)
    DIM_FIELD_NUMBER: _ClassVar[int]
    dim: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, dim: _Optional[_Iterable[int]] = ...) -> None: ...

class LstmParameter(_message.Message):
    __slots__ = ("num_output", "clipping_threshold", "weight_filler", "bias_filler", "batch_size")
    NUM_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CLIPPING_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FILLER_FIELD_NUMBER: _ClassVar[int]
    BIAS_FILLER_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    num_output: int
    clipping_threshold: float
    weight_filler: FillerParameter
    bias_filler: FillerParameter
    batch_size: int
    def __init__(self, num_output: _Optional[int] = ..., clipping_threshold: _Optional[float] = ..., weight_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., bias_filler: _Optional[_Union[FillerParameter, _Mapping]] = ..., batch_size: _Optional[int] = ...) -> None: ...

class PadParameter(_message.Message):
    __slots__ = ("paddings", "constant_values")
    PADDINGS_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_VALUES_FIELD_NUMBER: _ClassVar[int]
    paddings: _containers.RepeatedScalarFieldContainer[int]
    constant_values: float
    def __init__(self, paddings: _Optional[_Iterable[int]] = ..., constant_values: _Optional[float] = ...) -> None: ...

class VideoDataParameter(_message.Message):
    __slots__ = ("source", "scale", "mean_file", "batch_size", "crop_size", "mirror", "rand_skip", "shuffle", "new_length", "new_height", "new_width", "is_color", "root_folder", "use_image", "use_temporal_jitter", "sampling_rate", "max_sampling_rate", "use_sampling_rate_jitter", "use_multiple_label", "num_of_labels", "show_data", "num_segments", "modality", "name_pattern", "grayscale", "encoded", "length_first")
    class Modality(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        RGB: _ClassVar[VideoDataParameter.Modality]
        FLOW: _ClassVar[VideoDataParameter.Modality]
    RGB: VideoDataParameter.Modality
    FLOW: VideoDataParameter.Modality
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    RAND_SKIP_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    NEW_LENGTH_FIELD_NUMBER: _ClassVar[int]
    NEW_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    NEW_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IS_COLOR_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    USE_IMAGE_FIELD_NUMBER: _ClassVar[int]
    USE_TEMPORAL_JITTER_FIELD_NUMBER: _ClassVar[int]
    SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_SAMPLING_RATE_FIELD_NUMBER: _ClassVar[int]
    USE_SAMPLING_RATE_JITTER_FIELD_NUMBER: _ClassVar[int]
    USE_MULTIPLE_LABEL_FIELD_NUMBER: _ClassVar[int]
    NUM_OF_LABELS_FIELD_NUMBER: _ClassVar[int]
    SHOW_DATA_FIELD_NUMBER: _ClassVar[int]
    NUM_SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    MODALITY_FIELD_NUMBER: _ClassVar[int]
    NAME_PATTERN_FIELD_NUMBER: _ClassVar[int]
    GRAYSCALE_FIELD_NUMBER: _ClassVar[int]
    ENCODED_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIRST_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    mean_file: str
    batch_size: int
    crop_size: int
    mirror: bool
    rand_skip: int
    shuffle: bool
    new_length: int
    new_height: int
    new_width: int
    is_color: bool
    root_folder: str
    use_image: bool
    use_temporal_jitter: bool
    sampling_rate: int
    max_sampling_rate: int
    use_sampling_rate_jitter: bool
    use_multiple_label: bool
    num_of_labels: int
    show_data: bool
    num_segments: int
    modality: VideoDataParameter.Modality
    name_pattern: str
    grayscale: bool
    encoded: bool
    length_first: bool
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., batch_size: _Optional[int] = ..., crop_size: _Optional[int] = ..., mirror: bool = ..., rand_skip: _Optional[int] = ..., shuffle: bool = ..., new_length: _Optional[int] = ..., new_height: _Optional[int] = ..., new_width: _Optional[int] = ..., is_color: bool = ..., root_folder: _Optional[str] = ..., use_image: bool = ..., use_temporal_jitter: bool = ..., sampling_rate: _Optional[int] = ..., max_sampling_rate: _Optional[int] = ..., use_sampling_rate_jitter: bool = ..., use_multiple_label: bool = ..., num_of_labels: _Optional[int] = ..., show_data: bool = ..., num_segments: _Optional[int] = ..., modality: _Optional[_Union[VideoDataParameter.Modality, str]] = ..., name_pattern: _Optional[str] = ..., grayscale: bool = ..., encoded: bool = ..., length_first: bool = ...) -> None: ...

class DetectionLossParameter(_message.Message):
    __slots__ = ("cls_num", "coord_num", "field_h", "field_w", "downsample_rate", "bb_smooth", "field_whr", "field_xyr", "bg_threshold", "bg_multiple", "sample_mode", "objectness", "iou_weighted", "pos_neg_weighted")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    COORD_NUM_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    DOWNSAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    BB_SMOOTH_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BG_MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_MODE_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_FIELD_NUMBER: _ClassVar[int]
    IOU_WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    POS_NEG_WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    coord_num: int
    field_h: int
    field_w: int
    downsample_rate: int
    bb_smooth: bool
    field_whr: float
    field_xyr: float
    bg_threshold: float
    bg_multiple: int
    sample_mode: str
    objectness: bool
    iou_weighted: bool
    pos_neg_weighted: bool
    def __init__(self, cls_num: _Optional[int] = ..., coord_num: _Optional[int] = ..., field_h: _Optional[int] = ..., field_w: _Optional[int] = ..., downsample_rate: _Optional[int] = ..., bb_smooth: bool = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., bg_multiple: _Optional[int] = ..., sample_mode: _Optional[str] = ..., objectness: bool = ..., iou_weighted: bool = ..., pos_neg_weighted: bool = ..., **kwargs) -> None: ...

class DetectionAccuracyParameter(_message.Message):
    __slots__ = ("cls_num", "coord_num", "field_h", "field_w", "downsample_rate", "top_k", "field_whr", "field_xyr", "bg_threshold", "objectness")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    COORD_NUM_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    DOWNSAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    coord_num: int
    field_h: int
    field_w: int
    downsample_rate: int
    top_k: int
    field_whr: float
    field_xyr: float
    bg_threshold: float
    objectness: bool
    def __init__(self, cls_num: _Optional[int] = ..., coord_num: _Optional[int] = ..., field_h: _Optional[int] = ..., field_w: _Optional[int] = ..., downsample_rate: _Optional[int] = ..., top_k: _Optional[int] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., objectness: bool = ...) -> None: ...

class ProposalTargetParameter(_message.Message):
    __slots__ = ("cls_num", "batch_size", "fg_fraction", "num_img_per_batch", "fg_thr", "bg_thr_hg", "bg_thr_lw", "img_width", "img_height", "iou_weighted", "bbox_thr_lw", "bbox_thr_hg", "pickup_discard", "append_gtbox")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    FG_FRACTION_FIELD_NUMBER: _ClassVar[int]
    NUM_IMG_PER_BATCH_FIELD_NUMBER: _ClassVar[int]
    FG_THR_FIELD_NUMBER: _ClassVar[int]
    BG_THR_HG_FIELD_NUMBER: _ClassVar[int]
    BG_THR_LW_FIELD_NUMBER: _ClassVar[int]
    IMG_WIDTH_FIELD_NUMBER: _ClassVar[int]
    IMG_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    IOU_WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    BBOX_THR_LW_FIELD_NUMBER: _ClassVar[int]
    BBOX_THR_HG_FIELD_NUMBER: _ClassVar[int]
    PICKUP_DISCARD_FIELD_NUMBER: _ClassVar[int]
    APPEND_GTBOX_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    batch_size: int
    fg_fraction: float
    num_img_per_batch: int
    fg_thr: float
    bg_thr_hg: float
    bg_thr_lw: float
    img_width: int
    img_height: int
    iou_weighted: bool
    bbox_thr_lw: float
    bbox_thr_hg: float
    pickup_discard: bool
    append_gtbox: bool
    def __init__(self, cls_num: _Optional[int] = ..., batch_size: _Optional[int] = ..., fg_fraction: _Optional[float] = ..., num_img_per_batch: _Optional[int] = ..., fg_thr: _Optional[float] = ..., bg_thr_hg: _Optional[float] = ..., bg_thr_lw: _Optional[float] = ..., img_width: _Optional[int] = ..., img_height: _Optional[int] = ..., iou_weighted: bool = ..., bbox_thr_lw: _Optional[float] = ..., bbox_thr_hg: _Optional[float] = ..., pickup_discard: bool = ..., append_gtbox: bool = ...) -> None: ...

class DetectionGroupLossParameter(_message.Message):
    __slots__ = ("cls_num", "field_h", "field_w", "stride", "field_whr", "field_xyr", "bg_threshold", "bg_multiple", "neg_mining_type", "neg_ranking_type", "min_num_neg", "objectness", "batch_size", "pos_neg_weighted", "bbox_loss_type")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    LAMBDA_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    BG_MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    NEG_MINING_TYPE_FIELD_NUMBER: _ClassVar[int]
    NEG_RANKING_TYPE_FIELD_NUMBER: _ClassVar[int]
    MIN_NUM_NEG_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    POS_NEG_WEIGHTED_FIELD_NUMBER: _ClassVar[int]
    BBOX_LOSS_TYPE_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    stride: int
    field_whr: float
    field_xyr: float
    bg_threshold: float
    bg_multiple: int
    neg_mining_type: str
    neg_ranking_type: str
    min_num_neg: int
    objectness: bool
    batch_size: int
    pos_neg_weighted: bool
    bbox_loss_type: str
    def __init__(self, cls_num: _Optional[int] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., stride: _Optional[int] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., bg_multiple: _Optional[int] = ..., neg_mining_type: _Optional[str] = ..., neg_ranking_type: _Optional[str] = ..., min_num_neg: _Optional[int] = ..., objectness: bool = ..., batch_size: _Optional[int] = ..., pos_neg_weighted: bool = ..., bbox_loss_type: _Optional[str] = ..., **kwargs) -> None: ...

class DetectionGroupAccuracyParameter(_message.Message):
    __slots__ = ("cls_num", "field_h", "field_w", "stride", "field_whr", "field_xyr", "bg_threshold", "objectness")
    CLS_NUM_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    FIELD_WHR_FIELD_NUMBER: _ClassVar[int]
    FIELD_XYR_FIELD_NUMBER: _ClassVar[int]
    BG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    OBJECTNESS_FIELD_NUMBER: _ClassVar[int]
    cls_num: int
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    stride: int
    field_whr: float
    field_xyr: float
    bg_threshold: float
    objectness: bool
    def __init__(self, cls_num: _Optional[int] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., stride: _Optional[int] = ..., field_whr: _Optional[float] = ..., field_xyr: _Optional[float] = ..., bg_threshold: _Optional[float] = ..., objectness: bool = ...) -> None: ...

class FrcnnOutputParameter(_message.Message):
    __slots__ = ("conf_thr", "iou_thr", "nms_type", "max_det_num")
    CONF_THR_FIELD_NUMBER: _ClassVar[int]
    IOU_THR_FIELD_NUMBER: _ClassVar[int]
    NMS_TYPE_FIELD_NUMBER: _ClassVar[int]
    MAX_DET_NUM_FIELD_NUMBER: _ClassVar[int]
    conf_thr: float
    iou_thr: float
    nms_type: str
    max_det_num: int
    def __init__(self, conf_thr: _Optional[float] = ..., iou_thr: _Optional[float] = ..., nms_type: _Optional[str] = ..., max_det_num: _Optional[int] = ...) -> None: ...

class HardMiningParameter(_message.Message):
    __slots__ = ("num_roi_per_image", "num_image")
    NUM_ROI_PER_IMAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_IMAGE_FIELD_NUMBER: _ClassVar[int]
    num_roi_per_image: int
    num_image: int
    def __init__(self, num_roi_per_image: _Optional[int] = ..., num_image: _Optional[int] = ...) -> None: ...

class DetectionDataParameter(_message.Message):
    __slots__ = ("source", "scale", "batch_size", "coord_num", "stride", "field_h", "field_w", "fg_threshold", "ignore_fg_threshold", "resize_width", "resize_height", "crop_width", "crop_height", "min_scale", "max_scale", "multiscale_prob", "min_whaspect", "max_whaspect", "short_size", "long_size", "min_gt_width", "min_gt_height", "shuffle", "output_gt_boxes", "cache_images", "root_folder", "distort_param", "resize_ratio", "crop_short_size", "crop_long_size", "low_scale_ratio", "high_scale_ratio", "anchor_ignore_margin_ratio", "anchor_ignore_iou_thr", "pickup_iou_thr", "mix_group_size", "template_ratio")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    COORD_NUM_FIELD_NUMBER: _ClassVar[int]
    STRIDE_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    IGNORE_FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    RESIZE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    RESIZE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    MIN_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAX_SCALE_FIELD_NUMBER: _ClassVar[int]
    MULTISCALE_PROB_FIELD_NUMBER: _ClassVar[int]
    MIN_WHASPECT_FIELD_NUMBER: _ClassVar[int]
    MAX_WHASPECT_FIELD_NUMBER: _ClassVar[int]
    SHORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    LONG_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_GT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MIN_GT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_GT_BOXES_FIELD_NUMBER: _ClassVar[int]
    CACHE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    DISTORT_PARAM_FIELD_NUMBER: _ClassVar[int]
    RESIZE_RATIO_FIELD_NUMBER: _ClassVar[int]
    CROP_SHORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    CROP_LONG_SIZE_FIELD_NUMBER: _ClassVar[int]
    LOW_SCALE_RATIO_FIELD_NUMBER: _ClassVar[int]
    HIGH_SCALE_RATIO_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_IGNORE_MARGIN_RATIO_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_IGNORE_IOU_THR_FIELD_NUMBER: _ClassVar[int]
    PICKUP_IOU_THR_FIELD_NUMBER: _ClassVar[int]
    MIX_GROUP_SIZE_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_RATIO_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    batch_size: int
    coord_num: int
    stride: _containers.RepeatedScalarFieldContainer[int]
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    fg_threshold: float
    ignore_fg_threshold: float
    resize_width: int
    resize_height: int
    crop_width: int
    crop_height: int
    min_scale: float
    max_scale: float
    multiscale_prob: float
    min_whaspect: float
    max_whaspect: float
    short_size: int
    long_size: int
    min_gt_width: float
    min_gt_height: float
    shuffle: str
    output_gt_boxes: bool
    cache_images: bool
    root_folder: str
    distort_param: DistortionParameter
    resize_ratio: float
    crop_short_size: int
    crop_long_size: int
    low_scale_ratio: float
    high_scale_ratio: float
    anchor_ignore_margin_ratio: float
    anchor_ignore_iou_thr: float
    pickup_iou_thr: float
    mix_group_size: int
    template_ratio: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., batch_size: _Optional[int] = ..., coord_num: _Optional[int] = ..., stride: _Optional[_Iterable[int]] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., fg_threshold: _Optional[float] = ..., ignore_fg_threshold: _Optional[float] = ..., resize_width: _Optional[int] = ..., resize_height: _Optional[int] = ..., crop_width: _Optional[int] = ..., crop_height: _Optional[int] = ..., min_scale: _Optional[float] = ..., max_scale: _Optional[float] = ..., multiscale_prob: _Optional[float] = ..., min_whaspect: _Optional[float] = ..., max_whaspect: _Optional[float] = ..., short_size: _Optional[int] = ..., long_size: _Optional[int] = ..., min_gt_width: _Optional[float] = ..., min_gt_height: _Optional[float] = ..., shuffle: _Optional[str] = ..., output_gt_boxes: bool = ..., cache_images: bool = ..., root_folder: _Optional[str] = ..., distort_param: _Optional[_Union[DistortionParameter, _Mapping]] = ..., resize_ratio: _Optional[float] = ..., crop_short_size: _Optional[int] = ..., crop_long_size: _Optional[int] = ..., low_scale_ratio: _Optional[float] = ..., high_scale_ratio: _Optional[float] = ..., anchor_ignore_margin_ratio: _Optional[float] = ..., anchor_ignore_iou_thr: _Optional[float] = ..., pickup_iou_thr: _Optional[float] = ..., mix_group_size: _Optional[int] = ..., template_ratio: _Optional[_Iterable[float]] = ...) -> None: ...

class ROIWarpingParameter(_message.Message):
    __slots__ = ("pooled_h", "pooled_w", "spatial_scale")
    POOLED_H_FIELD_NUMBER: _ClassVar[int]
    POOLED_W_FIELD_NUMBER: _ClassVar[int]
    SPATIAL_SCALE_FIELD_NUMBER: _ClassVar[int]
    pooled_h: int
    pooled_w: int
    spatial_scale: float
    def __init__(self, pooled_h: _Optional[int] = ..., pooled_w: _Optional[int] = ..., spatial_scale: _Optional[float] = ...) -> None: ...

class MaskResizeParameter(_message.Message):
    __slots__ = ("output_height", "output_width")
    OUTPUT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    output_height: int
    output_width: int
    def __init__(self, output_height: _Optional[int] = ..., output_width: _Optional[int] = ...) -> None: ...

class EvalDataParameter(_message.Message):
    __slots__ = ("source", "scale", "batch_size", "resize_width", "resize_height", "short_size", "long_size", "root_folder")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    RESIZE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    RESIZE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHORT_SIZE_FIELD_NUMBER: _ClassVar[int]
    LONG_SIZE_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    batch_size: int
    resize_width: int
    resize_height: int
    short_size: int
    long_size: int
    root_folder: str
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., batch_size: _Optional[int] = ..., resize_width: _Optional[int] = ..., resize_height: _Optional[int] = ..., short_size: _Optional[int] = ..., long_size: _Optional[int] = ..., root_folder: _Optional[str] = ...) -> None: ...

class ImageGtDataParameter(_message.Message):
    __slots__ = ("source", "scale", "mean_file", "batch_size", "mirror", "downsample_rate", "coord_num", "field_h", "field_w", "fg_threshold", "resize_width", "resize_height", "crop_width", "crop_height", "do_multiple_scale", "min_scale", "max_scale", "min_whaspect", "max_whaspect", "min_gt_width", "min_gt_height", "shuffle", "output_gt_boxes", "fg_img_multiple", "cache_images", "root_folder")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SCALE_FIELD_NUMBER: _ClassVar[int]
    MEAN_FILE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIRROR_FIELD_NUMBER: _ClassVar[int]
    DOWNSAMPLE_RATE_FIELD_NUMBER: _ClassVar[int]
    COORD_NUM_FIELD_NUMBER: _ClassVar[int]
    FIELD_H_FIELD_NUMBER: _ClassVar[int]
    FIELD_W_FIELD_NUMBER: _ClassVar[int]
    FG_THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    RESIZE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    RESIZE_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    CROP_WIDTH_FIELD_NUMBER: _ClassVar[int]
    CROP_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    DO_MULTIPLE_SCALE_FIELD_NUMBER: _ClassVar[int]
    MIN_SCALE_FIELD_NUMBER: _ClassVar[int]
    MAX_SCALE_FIELD_NUMBER: _ClassVar[int]
    MIN_WHASPECT_FIELD_NUMBER: _ClassVar[int]
    MAX_WHASPECT_FIELD_NUMBER: _ClassVar[int]
    MIN_GT_WIDTH_FIELD_NUMBER: _ClassVar[int]
    MIN_GT_HEIGHT_FIELD_NUMBER: _ClassVar[int]
    SHUFFLE_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_GT_BOXES_FIELD_NUMBER: _ClassVar[int]
    FG_IMG_MULTIPLE_FIELD_NUMBER: _ClassVar[int]
    CACHE_IMAGES_FIELD_NUMBER: _ClassVar[int]
    ROOT_FOLDER_FIELD_NUMBER: _ClassVar[int]
    source: str
    scale: float
    mean_file: str
    batch_size: int
    mirror: bool
    downsample_rate: _containers.RepeatedScalarFieldContainer[int]
    coord_num: int
    field_h: _containers.RepeatedScalarFieldContainer[int]
    field_w: _containers.RepeatedScalarFieldContainer[int]
    fg_threshold: float
    resize_width: int
    resize_height: int
    crop_width: int
    crop_height: int
    do_multiple_scale: bool
    min_scale: int
    max_scale: int
    min_whaspect: float
    max_whaspect: float
    min_gt_width: float
    min_gt_height: float
    shuffle: bool
    output_gt_boxes: bool
    fg_img_multiple: int
    cache_images: bool
    root_folder: str
    def __init__(self, source: _Optional[str] = ..., scale: _Optional[float] = ..., mean_file: _Optional[str] = ..., batch_size: _Optional[int] = ..., mirror: bool = ..., downsample_rate: _Optional[_Iterable[int]] = ..., coord_num: _Optional[int] = ..., field_h: _Optional[_Iterable[int]] = ..., field_w: _Optional[_Iterable[int]] = ..., fg_threshold: _Optional[float] = ..., resize_width: _Optional[int] = ..., resize_height: _Optional[int] = ..., crop_width: _Optional[int] = ..., crop_height: _Optional[int] = ..., do_multiple_scale: bool = ..., min_scale: _Optional[int] = ..., max_scale: _Optional[int] = ..., min_whaspect: _Optional[float] = ..., max_whaspect: _Optional[float] = ..., min_gt_width: _Optional[float] = ..., min_gt_height: _Optional[float] = ..., shuffle: bool = ..., output_gt_boxes: bool = ..., fg_img_multiple: _Optional[int] = ..., cache_images: bool = ..., root_folder: _Optional[str] = ...) -> None: ...

class LMSPlan(_message.Message):
    __slots__ = ("version", "net", "program")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NET_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    version: int
    net: str
    program: _containers.RepeatedCompositeFieldContainer[LMSProgramPlan]
    def __init__(self, version: _Optional[int] = ..., net: _Optional[str] = ..., program: _Optional[_Iterable[_Union[LMSProgramPlan, _Mapping]]] = ...) -> None: ...

class LMSProgramPlan(_message.Message):
    __slots__ = ("name", "arena_bytes", "buffer", "step", "residence", "pages")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARENA_BYTES_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    RESIDENCE_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    name: str
    arena_bytes: int
    buffer: _containers.RepeatedCompositeFieldContainer[LMSPlanBuffer]
    step: _containers.RepeatedCompositeFieldContainer[LMSPlanStep]
    residence: _containers.RepeatedCompositeFieldContainer[LMSResidence]
    pages: LMSPlanPages
    def __init__(self, name: _Optional[str] = ..., arena_bytes: _Optional[int] = ..., buffer: _Optional[_Iterable[_Union[LMSPlanBuffer, _Mapping]]] = ..., step: _Optional[_Iterable[_Union[LMSPlanStep, _Mapping]]] = ..., residence: _Optional[_Iterable[_Union[LMSResidence, _Mapping]]] = ..., pages: _Optional[_Union[LMSPlanPages, _Mapping]] = ...) -> None: ...

class LMSPlanPages(_message.Message):
    __slots__ = ("bytes", "linear", "count", "end", "address")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LINEAR_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    linear: int
    count: int
    end: int
    address: _containers.RepeatedCompositeFieldContainer[LMSPlanAddress]
    def __init__(self, bytes: _Optional[int] = ..., linear: _Optional[int] = ..., count: _Optional[int] = ..., end: _Optional[int] = ..., address: _Optional[_Iterable[_Union[LMSPlanAddress, _Mapping]]] = ...) -> None: ...

class LMSPlanAddress(_message.Message):
    __slots__ = ("offset", "pages")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PAGES_FIELD_NUMBER: _ClassVar[int]
    offset: int
    pages: str
    def __init__(self, offset: _Optional[int] = ..., pages: _Optional[str] = ...) -> None: ...

class LMSPlanBuffer(_message.Message):
    __slots__ = ("name", "bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    bytes: int
    def __init__(self, name: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class LMSPlanStep(_message.Message):
    __slots__ = ("name", "again")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    name: str
    again: int
    def __init__(self, name: _Optional[str] = ..., again: _Optional[int] = ...) -> None: ...

class LMSResidence(_message.Message):
    __slots__ = ("buffer", "first", "last", "issue", "offset", "fetched", "piece_in", "piece_out")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    ISSUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FETCHED_FIELD_NUMBER: _ClassVar[int]
    PIECE_IN_FIELD_NUMBER: _ClassVar[int]
    PIECE_OUT_FIELD_NUMBER: _ClassVar[int]
    buffer: str
    first: int
    last: int
    issue: int
    offset: int
    fetched: bool
    piece_in: _containers.RepeatedCompositeFieldContainer[LMSPlanPiece]
    piece_out: _containers.RepeatedCompositeFieldContainer[LMSPlanPiece]
    def __init__(self, buffer: _Optional[str] = ..., first: _Optional[int] = ..., last: _Optional[int] = ..., issue: _Optional[int] = ..., offset: _Optional[int] = ..., fetched: bool = ..., piece_in: _Optional[_Iterable[_Union[LMSPlanPiece, _Mapping]]] = ..., piece_out: _Optional[_Iterable[_Union[LMSPlanPiece, _Mapping]]] = ...) -> None: ...

class LMSPlanPiece(_message.Message):
    __slots__ = ("bytes", "step")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    step: int
    def __init__(self, bytes: _Optional[int] = ..., step: _Optional[int] = ...) -> None: ...
