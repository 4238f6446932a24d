"""List the fields of Caffe's forks that BVLC's schema lacks: those without effect here, and a fix for the others.

Covers: NVIDIA's and Intel's Caffe, and common fields of other forks. Fields of forks that our layers support
(permute_param, ceil_mode, ...) are in proto/caffe.proto itself.
Source: NVIDIA/caffe caffe-0.17 and intel/caffe 44d5363, src/caffe/proto/caffe.proto; lutzroeder/netron,
tools/caffe-schema.js; facebookarchive/C3D (facts).
See also: dialects.py, which acts on these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from .forks import forks_of

NVIDIA, INTEL = "NVIDIA Caffe", "Intel Caffe"


class Ignored(NamedTuple):
    """Describe a field that has no effect on results here. note: what happens instead of what it asks for."""

    fork: str
    note: str = ""


class RefusedField(NamedTuple):
    """Describe a field that changes results, and is refused. At `neutral`, its default, it is ignored instead."""

    fork: str
    missing: str
    fix: str
    neutral: str | None = None


_nvidia, _intel, _synopsys = (partial(RefusedField, fork) for fork in (NVIDIA, INTEL, "Synopsys Caffe"))

# Values of `engine` beyond BVLC's; Intel's strings may continue after these words ("MKL2017:MLSL,CAFFE").
FORK_ENGINES = ("MKL2017", "MKLDNN", "MKL", "CAFFE_INTEL", "DNNL")
ENGINES = ("DEFAULT", "CAFFE", "CUDNN", *FORK_ENGINES)

_PRECISION = Ignored(NVIDIA, "numbers are stored and computed in float")
_PLAIN_NVIDIA, _PLAIN_INTEL = Ignored(NVIDIA), Ignored(INTEL)
_ORDER = Ignored(f"{NVIDIA}, {INTEL}", "records come in the database's order; shuffle where the database is made")
_RANDOM = Ignored(NVIDIA, "random numbers follow the solver's random_seed")
_WORKSPACE = Ignored("yjxiong's Caffe", "cuDNN's workspace has a limit of its own here")
_SPREAD = Ignored(INTEL, "it spreads the work over nodes")

_LAYER_IGNORED = {
    **dict.fromkeys(("forward_type", "backward_type", "forward_math", "backward_math"), _PRECISION),
    "cudnn_math_override": _PLAIN_NVIDIA,
    "debug": _PLAIN_NVIDIA,
    "engine": _PLAIN_INTEL,
    "multinode": _SPREAD,
    "mn_activation_param": _SPREAD,
    "split_param": _PLAIN_INTEL,
    "quantization_param": Ignored("Intel Caffe, Ristretto", "the layer computes in float, not in 8 bits"),
    "reshape_every_iter": Ignored("FlowNet 2", "shapes are computed again where they change"),
}

IGNORED: Mapping[str, Mapping[str, Ignored]] = {
    "NetParameter": {
        "version": Ignored("a field of no release of Caffe"),
        "richness": _WORKSPACE,
        "mem_param": Ignored(
            "yjxiong's Caffe", "blobs that are not needed any more always lend their memory to others"
        ),
        **dict.fromkeys(
            ("default_forward_type", "default_backward_type", "default_forward_math", "default_backward_math"),
            _PRECISION,
        ),
        **dict.fromkeys(
            ("default_cudnn_math_override", "default_conv_algos_override", "reduce_buckets", "eltwise_mem_sharing"),
            _PLAIN_NVIDIA,
        ),
        **dict.fromkeys(
            ("global_grad_scale", "global_grad_scale_adaptive"),
            Ignored(NVIDIA, "it saves half precision from underflow, and is divided out again"),
        ),
        "engine": _PLAIN_INTEL,
        "compile_net_state": _PLAIN_INTEL,
        "multinode": _SPREAD,
    },
    "SolverParameter": {
        **dict.fromkeys(("solver_data_type", "store_blobs_in_old_format"), _PRECISION),
        "per_parameter_reduce": _PLAIN_NVIDIA,
        "richness": _WORKSPACE,
        "engine": _PLAIN_INTEL,
    },
    "LayerParameter": _LAYER_IGNORED,
    "V1LayerParameter": _LAYER_IGNORED,
    "ConvolutionParameter": {
        "cudnn_convolution_algo_seeker": _PLAIN_NVIDIA,
        "conv_algos_override": _PLAIN_NVIDIA,
        "conv_algorithm": _PLAIN_INTEL,
    },
    "DataParameter": {
        **dict.fromkeys(("threads", "parser_threads", "cache", "precache"), _PLAIN_NVIDIA),
        "shuffle": _ORDER,
        "shuffle_pool_size": Ignored("Cysu's Caffe", _ORDER.note),
    },
    "ImageDataParameter": dict.fromkeys(("threads", "cache", "precache"), _PLAIN_NVIDIA),
    "TransformationParameter": {
        **dict.fromkeys(("use_gpu_transform", "forward_packing", "display"), _PLAIN_NVIDIA),
        "random_seed": _RANDOM,
    },
    "ParamSpec": {
        "force_mult": Ignored("SCNN (structured sparsity)", "it multiplies force_decay, which no solver here has")
    },
    "DropoutParameter": {"random_seed": _RANDOM},
    "BatchNormParameter": {
        "filler": Ignored(INTEL, "the scale is that of scale_bias: true, or of a Scale layer after it")
    },
}


# C3D's layer types (in both generations) and fields for what are Convolution and Pooling over any number of axes here.
C3D_TYPES = {"Convolution3D": "Convolution", "Pooling3D": "Pooling", "Deconvolution3D": "Deconvolution"}
C3D_TYPES |= {old.upper(): new.upper() for old, new in C3D_TYPES.items()}
C3D_MESSAGES = {"convolution3d_param": "convolution_param", "pooling3d_param": "pooling_param"}
# (C3D's field for the depth axis, its field for the other two axes, the default of both, our field)
C3D_WINDOW = (
    ("kernel_depth", "kernel_size", None, "kernel_shape"),
    ("temporal_stride", "stride", "1", "stride_shape"),
    ("temporal_pad", "pad", "0", "pad_shape"),
)


_RELU = _intel("a ReLU inside this layer", 'write a layer of type "ReLU" after it', "false")
_WITH_RELU = {"relu": _RELU, "negative_slope": _RELU._replace(neutral="0")}


def _augment(fork: str, neutral: str | None = "0") -> RefusedField:
    return RefusedField(
        fork, "this change of pictures", "make it when the data is made, or feed it from Python", neutral
    )


_LAYER_REFUSED = {
    "mn_grad_compress_param": _intel("compressed gradients", "delete the field: gradients are exact"),
}

REFUSED: Mapping[str, Mapping[str, RefusedField]] = {
    "SolverParameter": {
        "stepearly": RefusedField(
            "an example of BVLC's",
            "a rate by test scores, which no Caffe ever had: the example was deleted",
            'use lr_policy: "plateau" or "multistep"',
        ),
        "larc_turbo": _nvidia("a rate that follows how gradient and history agree", "delete it", "false"),
        "test_and_snapshot_last_epochs": _nvidia("more tests near the end", "use test_interval", "0"),
        "disabled_update": _intel("training without updates", "use base_lr: 0", "false"),
        "test_offset": _intel("tests that begin later", "use test_interval", "0"),
    },
    "LayerParameter": _LAYER_REFUSED,
    "V1LayerParameter": _LAYER_REFUSED,
    "FillerParameter": {"scale": _intel("an msra filler with a scale", 'use type: "gaussian" with std', "1")},
    "LossParameter": {
        "label_smoothing": RefusedField(
            f"{NVIDIA}, {INTEL}", "smoothed labels", "delete it, or use a Python layer", "0"
        ),
    },
    "BatchNormParameter": {
        "use_weight_bias": _intel("a scale of that name", "write scale_bias: true, or a Scale layer", "false"),
        "bias_term": _intel("a choice of bias", 'write a "Scale" layer with bias_term after it'),
        "relu": _RELU,
    },
    "ConvolutionParameter": {
        **_WITH_RELU,
        "fusion_type": _intel("a sum inside a convolution", 'write an "Eltwise" layer after it', "NONE_FUSION"),
    },
    "InnerProductParameter": _WITH_RELU,
    "MVNParameter": {"add_eps_before_sqrt": _synopsys("eps inside of the root", "delete it", "false")},
    "NormalizeParameter": {"add_eps_before_sqrt": _synopsys("eps outside of the root", "delete it", "true")},
    "DetectionOutputParameter": {
        "ratio_permute": _synopsys("maps of that order", "write no_permute, or flatten the maps as SSD does", "false"),
        "tflite_detection": _synopsys("TensorFlow Lite's rows", "delete it", "false"),
    },
    "ReLUParameter": {"fuse": _intel("a ReLU inside a layer before it", "delete it", "false")},
    "ConcatParameter": {
        "per_fla_fuse": _intel("Permute and Flatten inside Concat", "write these layers before it", "false")
    },
    "PoolingParameter": {
        "torch_pooling": _nvidia("a field of that name", "write round_mode: FLOOR", "false"),
        "avg_include_pad": _intel("averages without padding", "write pad: 0, or delete it", "true"),
        "axis": _intel("other channel axes than 1", "reorder the axes with a Permute layer", "1"),
    },
    "ROIPoolingParameter": {"pooled_size": _intel("pooling of regions in 3-D", "write pooled_h and pooled_w")},
    "ELUParameter": {"lambda": _nvidia("a scale in ELU", 'write a "Power" layer with scale after it', "1")},
    "ImageDataParameter": {
        "short_side": _augment(NVIDIA),
        "dataset_share_per_node": _nvidia("a share of the list", "write a shorter list", "1"),
        "min_height": _augment(INTEL),
        "min_width": _augment(INTEL),
    },
    "ResizeParameter": {
        "center_object": _augment("ducha-aiki's Caffe", "false"),
        "max_angle": _augment("ducha-aiki's Caffe"),
    },
    "TransformationParameter": {
        "flow": _augment(INTEL, "false"),
        "bgr2rgb": _augment(INTEL, "false"),
        "pad": _augment(INTEL),
        "num_labels": _nvidia("labels as vectors", "keep the labels in a database of their own", "0"),
    },
}


def refusal(message: str, name: str) -> tuple[str, str] | None:
    """Return what a fork's field, or value of an enum, asks for, and the fix; None for one of no known fork.

    message: its name, or message.Enum for a value.
    """
    refused, ignored = REFUSED.get(message, {}).get(name), IGNORED.get(message, {}).get(name)
    if ignored is not None:
        return f"it belongs to {ignored.fork}, but this is no value of it", "delete it: it has no effect here"
    forks = forks_of(message, name)
    if refused is not None:
        return f"it belongs to {refused.fork or forks} (not supported: {refused.missing})", refused.fix
    if forks is None:
        return None
    if message in ("LayerParameter", "V1LayerParameter") and name.endswith("_param"):
        return f"it belongs to {forks}", 'delete it if the layer does not need it, or write a "Python" layer'
    return f"it belongs to {forks}", "delete it, if the result does not depend on it"
