"""NNIE: the layers and limits of tables 3-1 to 3-3 of the guide, written down here from it again."""

from __future__ import annotations

import pytest

from pycaffe_lms.caffe_export import check_caffe, export_caffe
from pycaffe_lms.caffe_export.chips import chip_of
from pycaffe_lms.errors import ExportError
from pycaffe_lms.layers.registry import LAYERS

from .test_export import layer, net_of, written


def data(*dims: int, name: str = "data") -> str:
    shape = " ".join(f"dim: {n}" for n in dims)
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {shape} }} }} }}\n'


def one(type: str, more: str = "", dims: tuple[int, ...] = (1, 4, 8, 8)) -> str:
    """A net of one layer, in line 2."""
    return data(*dims) + layer("x", type, "data", "x", more)


def two(type: str, more: str, other: tuple[int, ...], dims: tuple[int, ...] = (1, 4, 8, 8)) -> str:
    """A net of one layer with a second input, in line 3."""
    return data(*dims) + data(*other, name="other") + layer("x", type, "data other", "x", more)


def conv(fields: str, dims: tuple[int, ...] = (1, 4, 8, 8), type: str = "Convolution", n: int = 2) -> str:
    return one(type, f"convolution_param {{ num_output: {n} {fields} }}", dims)


ROI = "roi_pooling_param { pooled_h: 2 pooled_w: 2 }"
PSROI = "psroi_pooling_param { spatial_scale: 1 output_dim: 1 group_size: 2 }"


def roi(*dims: int) -> str:
    return two("ROIPooling", ROI, (2, 5), dims or (1, 4, 8, 8))


def psroi(*dims: int) -> str:
    return two("PSROIPooling", PSROI, (2, 5), dims or (1, 4, 8, 8))


def proposal(more: str = "", name: str = "x") -> str:
    inputs = data(1, 2, 3, 3) + data(1, 4, 3, 3, name="moves") + data(1, 3, name="sizes")
    fields = "proposal_param { ratio: 1 scale: 8 post_nms_topn: 4 }"
    return inputs + layer(name, "Proposal", "data moves sizes", name, f"{more} {fields}")


def reshape(*dims: int, more: str = "", of: tuple[int, ...] = (1, 4, 8, 8)) -> str:
    shape = " ".join(f"dim: {n}" for n in dims)
    return one("Reshape", f"reshape_param {{ shape {{ {shape} }} {more} }}", of)


def permute(*order: int) -> str:
    return one("Permute", f"permute_param {{ {' '.join(f'order: {n}' for n in order)} }}")


def pool(fields: str, dims: tuple[int, ...] = (1, 4, 8, 8)) -> str:
    return one("Pooling", f"pooling_param {{ {fields} }}", dims)


def upsample(fields: str) -> str:
    """A net that pools with a mask, in line 2, and puts the maxima back."""
    pooled = one("Pooling", 'top: "m" pooling_param { kernel_size: 2 stride: 2 }').replace('"x"', '"p"')
    return pooled + layer("x", "Upsample", "p m", "x", f"upsample_param {{ {fields} }}")


def many(type: str, n: int) -> str:
    return data(1, 4, 8, 8) + layer("x", type, " ".join(["data"] * n), "x")


def pieces(n: int) -> str:
    return one("Slice", " ".join(f'top: "y{i}"' for i in range(n - 1)), (1, n, 2, 2))


def behind(before: str, fields: str, type: str, more: str = "") -> str:
    """A net of a layer behind another one."""
    return data(1, 4, 8, 8) + layer("y", before, "data", "y", fields) + layer("x", type, "y", "x", more)


def regions_of(type: str, more: str) -> str:
    return data(1, 4, 8, 8) + data(2, 5, name="r") + layer("y", type, "data r", "y", more)


INNER = "inner_product_param { num_output: 4 }"
SPP = "spp_param { pyramid_height: 2 }"
L2 = "norm_param { across_spatial: false channel_shared: false }"
TAKEN = {  # the types of table 3-2 that are written, each in a net
    "AbsVal": one("AbsVal"),
    "BNLL": one("BNLL"),
    "BatchNorm": one("BatchNorm"),
    "Bias": one("Bias"),
    "Concat": two("Concat", "", (1, 2, 8, 8)),
    "Convolution": conv("kernel_size: 3"),
    "ConvolutionDepthwise": conv("kernel_size: 3", type="ConvolutionDepthwise", n=4),
    "Deconvolution": conv("kernel_size: 2 stride: 2", type="Deconvolution"),
    "DepthwiseConvolution": conv("kernel_size: 3", type="DepthwiseConvolution", n=4),
    "ELU": one("ELU"),
    "Eltwise": two("Eltwise", "eltwise_param { operation: MAX }", (1, 4, 8, 8)),
    "Exp": one("Exp"),
    "Flatten": one("Flatten"),
    "InnerProduct": one("InnerProduct", INNER),
    "LRN": one("LRN"),
    "Log": one("Log", "log_param { shift: 9 }"),
    "MVN": one("MVN"),
    "Normalize": one("Normalize", L2),
    "PReLU": one("PReLU"),
    "PSROIPooling": psroi(),
    "Permute": permute(0, 2, 3, 1),
    "Pooling": pool("kernel_size: 2 stride: 2"),
    "Power": one("Power", "power_param { scale: 2 shift: 1 }"),
    "Proposal": proposal(),
    "ROIPooling": roi(),
    "ReLU": one("ReLU", "relu_param { negative_slope: 0.1 }"),
    "Reduction": one("Reduction", "reduction_param { operation: MEAN axis: 2 }"),
    "Reshape": reshape(0, -1),
    "SPP": one("SPP", SPP),
    "Scale": one("Scale", "scale_param { bias_term: true }"),
    "Sigmoid": one("Sigmoid"),
    "Slice": one("Slice", 'top: "y"'),
    "Softmax": one("Softmax"),
    "TanH": one("TanH"),
    "Threshold": one("Threshold"),
    "Upsample": upsample("scale: 2"),
}
NOT_WRITTEN = {
    "CReLU",
    "Custom",
    "DepthwiseConv",
    "LSTM",
    "MatMul",
    "Parameter",
    "PassThrough",
    "RNN",
    "RReLU",
    "Split",
}


def test_the_list_is_that_of_the_guide():
    """All types of table 3-2 but Input, which is written of itself; types of ours are two names of Convolution."""
    chip = chip_of("nnie")
    assert set(chip.rows) == set(TAKEN)
    assert set(chip.not_here) == NOT_WRITTEN
    assert [name for name, row in chip.rows.items() if row.cpu] == ["Proposal"]


@pytest.mark.parametrize("type", TAKEN)
def test_what_is_taken(type, tmp_path):
    net = net_of(TAKEN[type])
    files = export_caffe(net, tmp_path / "out", "nnie")
    assert all(found.relative < 1e-5 for found in check_caffe(net, *files))
    types = [one.type for one in written(files).layer if one.type != "Input"]
    assert types[-1] == ("Convolution" if "Depthwise" in type else type)


WIDE = {  # "w<=4096"
    **{type: one(type, dims=(1, 1, 1, 4096)) for type in ("AbsVal", "BNLL", "BatchNorm", "Bias", "ELU", "Exp", "LRN")},
    **{type: one(type, dims=(1, 1, 1, 4096)) for type in ("MVN", "PReLU", "Power", "ReLU", "Scale", "Sigmoid", "TanH")},
    **{type: one(type, dims=(1, 1, 1, 4096)) for type in ("Flatten", "Threshold")},
    "Concat": two("Concat", "", (1, 1, 1, 4096), (1, 1, 1, 4096)),
    "Eltwise": two("Eltwise", "", (1, 1, 1, 4096), (1, 1, 1, 4096)),
    "Convolution": conv("kernel_size: 1", (1, 1, 1, 4096)),
    "Deconvolution": conv("kernel_size: 1", (1, 1, 1, 4096), "Deconvolution"),
    "InnerProduct": one("InnerProduct", INNER, (1, 1, 1, 4096)),
    "Log": one("Log", "log_param { shift: 9 }", (1, 1, 1, 4096)),
    "Permute": one("Permute", "permute_param { order: 0 order: 2 order: 3 order: 1 }", (1, 1, 1, 4096)),
    "Pooling": pool("kernel_size: 1", (1, 1, 1, 4096)),
    "PSROIPooling": psroi(1, 4, 1, 4096),
    "Reduction": one("Reduction", "reduction_param { axis: 3 }", (1, 1, 1, 4096)),
    "Upsample": two("Upsample", "", (1, 1, 1, 4096), (1, 1, 1, 4096)),
}


@pytest.mark.parametrize("type", WIDE)
def test_width(type, tmp_path):
    inside = WIDE[type]
    export_caffe(net_of(inside), tmp_path / "in", "nnie")
    with pytest.raises(ExportError, match="bottom width is 4097, and nnie_mapper takes 4096 or less"):
        export_caffe(net_of(inside.replace("4096", "4097")), tmp_path / "out", "nnie")


def both(type: str) -> dict[str, tuple[str, str, str]]:
    """The limits that Convolution and Deconvolution share: a net inside, one outside, and what is said of that."""

    def net(fields: str, dims: tuple[int, ...] = (1, 1, 4, 4), n: int = 2) -> str:
        return conv(fields, dims, type, n)

    most = "inner_product_param { num_output: 4 }"
    return {
        "outputs": (
            net("kernel_size: 1", (1, 1, 1, 1), 32768),
            net("kernel_size: 1", (1, 1, 1, 1), 32769),
            "num_output is 32769, and nnie_mapper takes 32768 or less",
        ),
        "kernel": (
            net("kernel_h: 255 kernel_w: 1", (1, 1, 256, 1), 1),
            net("kernel_h: 256 kernel_w: 1", (1, 1, 256, 1), 1),
            "kernel is 256, and nnie_mapper takes 1 to 255",
        ),
        "least kernel": (net("kernel_size: 1"), net("kernel_h: 256 kernel_w: 1", (1, 1, 256, 1), 1), "takes 1 to 255"),
        "pad": (
            net("kernel_size: 3 pad: 255", (1, 1, 520, 520), 1),
            net("kernel_size: 3 pad: 256", (1, 1, 520, 520), 1),
            "pad is 256, and nnie_mapper takes 0 to 255",
        ),
        "stride": (
            net("kernel_size: 1 stride: 255"),
            net("kernel_size: 1 stride: 256"),
            "stride is 256, and nnie_mapper takes 1 to 255",
        ),
        "dilation": (
            net("kernel_size: 1 dilation: 255"),
            net("kernel_size: 1 dilation: 256"),
            "dilation is 256, and nnie_mapper takes 1 to 255",
        ),
        "dilated kernel": (
            net("kernel_size: 3 dilation: 127", (1, 1, 257, 257), 1),
            net("kernel_size: 4 dilation: 85", (1, 1, 257, 257), 1),
            "dilated kernel only so: 255 or less",
        ),
        "axis": (
            net("kernel_size: 1"),
            net("kernel_size: 1 axis: 2", (1, 2, 4, 4)),
            "axis is 2, and nnie_mapper takes 1",
        ),
        "after": (
            data(1, 4, 8, 8) + layer("x", type, "data", "x", "convolution_param { num_output: 2 kernel_size: 1 }"),
            behind("InnerProduct", most, type, "convolution_param { num_output: 2 kernel_size: 1 }"),
            "layer before is InnerProduct, and nnie_mapper takes all but InnerProduct and SPP",
        ),
        "after SPP": (
            net("kernel_size: 1"),
            behind("SPP", SPP, type, "convolution_param { num_output: 2 kernel_size: 1 }"),
            "layer before is SPP",
        ),
    }


AXIS = "axis only so: 1 or more"
INSIDE_AND_OUTSIDE = {
    **{f"{type}: {name}": case for type in ("Convolution", "Deconvolution") for name, case in both(type).items()},
    "groups": (
        conv("kernel_size: 1 group: 2048", (1, 2048, 1, 1), n=2048),
        conv("kernel_size: 1 group: 2049", (1, 2049, 1, 1), n=2049),
        "group is 2049, and nnie_mapper takes 2048 or less",
    ),
    "Deconvolution: groups": (
        conv("kernel_size: 1 group: 128", (1, 128, 1, 1), "Deconvolution", 128),
        conv("kernel_size: 1 group: 129", (1, 129, 1, 1), "Deconvolution", 129),
        "group is 129, and nnie_mapper takes 128 or less",
    ),
    "BatchNorm: a scale of its own": (
        one("BatchNorm"),
        one("BatchNorm", "batch_norm_param { scale_bias: true }"),
        "scale_bias is true, and nnie_mapper takes false",
    ),
    "BatchNorm: statistics": (
        one("BatchNorm", "batch_norm_param { use_global_stats: true }"),
        one("BatchNorm", "batch_norm_param { use_global_stats: false }"),
        "batch_norm_param.use_global_stats only so: true",
    ),
    "BatchNorm: eps": (
        one("BatchNorm", "batch_norm_param { eps: 1e-5 moving_average_fraction: 0.9 }"),
        one("BatchNorm", "batch_norm_param { eps: 2e-5 }"),
        "batch_norm_param.eps only so: 1e-5",
    ),
    "BatchNorm: a smaller eps": (one("BatchNorm"), one("BatchNorm", "batch_norm_param { eps: 0.9e-5 }"), "1e-5"),
    "Bias: axis": (
        one("Bias", "bias_param { axis: -3 }"),
        one("Bias", "bias_param { axis: 2 }"),
        "axis is 2, and nnie_mapper takes 1 or -3",
    ),
    "Bias: axes": (
        one("Bias", "bias_param { num_axes: -1 }"),
        one("Bias", "bias_param { num_axes: 2 }"),
        "num_axes is 2, and nnie_mapper takes 1 or -1",
    ),
    "Concat: axis": (
        two("Concat", "concat_param { axis: 2 }", (1, 4, 2, 8)),
        two("Concat", "concat_param { axis: 0 }", (1, 4, 8, 8)),
        AXIS,
    ),
    "Concat: bottoms": (many("Concat", 32), many("Concat", 33), "bottoms is 33, and nnie_mapper takes 2 to 32"),
    "Concat: one bottom": (many("Concat", 2), many("Concat", 1), "bottoms is 1, and nnie_mapper takes 2 to 32"),
    "Eltwise: bottoms": (many("Eltwise", 32), many("Eltwise", 33), "bottoms is 33, and nnie_mapper takes 32 or less"),
    "Flatten: axis": (
        one("Flatten", "flatten_param { axis: -4 }", (1, 2, 2, 2, 2)),
        one("Flatten", "flatten_param { axis: -5 }", (1, 2, 2, 2, 2)),
        "axis is -5, and nnie_mapper takes -4 to 3",
    ),
    "Flatten: last axis": (
        one("Flatten", "flatten_param { axis: 3 }", (1, 2, 2, 2, 2)),
        one("Flatten", "flatten_param { axis: 4 }", (1, 2, 2, 2, 2)),
        "axis is 4, and nnie_mapper takes -4 to 3",
    ),
    "Flatten: end": (
        one("Flatten", "flatten_param { axis: 0 end_axis: -4 }", (1, 2, 2, 2, 2)),
        one("Flatten", "flatten_param { axis: 0 end_axis: -5 }", (1, 2, 2, 2, 2)),
        "end_axis is -5, and nnie_mapper takes -4 to 3",
    ),
    "Flatten: last end": (
        one("Flatten", "flatten_param { end_axis: 3 }", (1, 2, 2, 2, 2)),
        one("Flatten", "flatten_param { end_axis: 4 }", (1, 2, 2, 2, 2)),
        "end_axis is 4, and nnie_mapper takes -4 to 3",
    ),
    "InnerProduct: outputs": (
        one("InnerProduct", "inner_product_param { num_output: 32768 }", (1, 1)),
        one("InnerProduct", "inner_product_param { num_output: 32769 }", (1, 1)),
        "num_output is 32769, and nnie_mapper takes 32768 or less",
    ),
    "InnerProduct: axis": (
        one("InnerProduct", "inner_product_param { num_output: 3 axis: 1 transpose: true }"),
        one("InnerProduct", "inner_product_param { num_output: 3 axis: 2 }"),
        "axis is 2, and nnie_mapper takes 1",
    ),
    "InnerProduct: batch": (one("InnerProduct", INNER), one("InnerProduct", INNER[:-1] + "axis: 0 }"), "axis is 0"),
    "LRN: size": (
        one("LRN", "lrn_param { local_size: 7 }"),
        one("LRN", "lrn_param { local_size: 9 }"),
        "local_size is 9, and nnie_mapper takes 3 or 5 or 7",
    ),
    "LRN: small": (one("LRN", "lrn_param { local_size: 3 }"), one("LRN", "lrn_param { local_size: 1 }"), "size is 1"),
    "LRN: region": (
        one("LRN", "lrn_param { norm_region: ACROSS_CHANNELS }"),
        one("LRN", "lrn_param { norm_region: WITHIN_CHANNEL }"),
        "norm_region is WITHIN_CHANNEL, and nnie_mapper takes ACROSS_CHANNELS",
    ),
    "MVN: eps": (one("MVN", "mvn_param { eps: 1e-9 }"), one("MVN", "mvn_param { eps: 2e-9 }"), "mvn_param.eps only so"),
    "MVN: a smaller eps": (one("MVN"), one("MVN", "mvn_param { eps: 0.9e-9 }"), "mvn_param.eps only so: 1e-9"),
    "MVN: after": (one("MVN"), behind("InnerProduct", INNER, "MVN"), "layer before is InnerProduct"),
    "MVN: after SPP": (one("MVN"), behind("SPP", SPP, "MVN"), "layer before is SPP"),
    "Normalize: positions": (
        one("Normalize", L2),
        one("Normalize", "norm_param { across_spatial: true channel_shared: false }"),
        "across_spatial is true, and nnie_mapper takes false",
    ),
    "Normalize: one scale": (
        one("Normalize", L2),
        one("Normalize", "norm_param { across_spatial: false }"),
        "channel_shared is true, and nnie_mapper takes false",
    ),
    "Normalize: eps": (
        one("Normalize", L2[:-1] + "eps: 1e-10 }"),
        one("Normalize", L2[:-1] + "eps: 1.1e-10 }"),
        "norm_param.eps only so: 1e-10",
    ),
    "Normalize: a smaller eps": (one("Normalize", L2), one("Normalize", L2[:-1] + "eps: 0.9e-10 }"), "only so: 1e-10"),
    "Normalize: after": (one("Normalize", L2), behind("InnerProduct", INNER, "Normalize", L2), "is InnerProduct"),
    "Normalize: after SPP": (one("Normalize", L2), behind("SPP", SPP, "Normalize", L2), "layer before is SPP"),
    "Permute": (permute(0, 2, 3), permute(0, 1, 3, 2), "order of axes is 0 1 3 2, and nnie_mapper takes 0 2 3 1"),
    "Pooling: kind": (
        pool("kernel_size: 2 pool: AVE"),
        pool("kernel_size: 2 pool: STOCHASTIC"),
        "pool is STOCHASTIC, and nnie_mapper takes MAX or AVE",
    ),
    "Pooling: rounding": (
        pool("kernel_size: 3 stride: 2 round_mode: FLOOR", (1, 4, 9, 9)),
        pool("kernel_size: 3 stride: 2 round_mode: FLOOR"),
        "round_mode is FLOOR, and nnie_mapper takes CEIL",
    ),
    "Pooling: kernel": (
        pool("kernel_h: 255 kernel_w: 1", (1, 1, 256, 1)),
        pool("kernel_h: 256 kernel_w: 1", (1, 1, 256, 1)),
        "kernel is 256, and nnie_mapper takes 1 to 255",
    ),
    "Pooling: least kernel": (
        pool("kernel_size: 1"),
        pool("kernel_h: 256 kernel_w: 1", (1, 1, 256, 1)),
        "takes 1 to 255",
    ),
    "Pooling: rows": (  # 2048 / (308 // 16) = 107.8
        pool("kernel_h: 107 kernel_w: 1", (1, 1, 120, 308)),
        pool("kernel_h: 108 kernel_w: 1", (1, 1, 120, 308)),
        "rounded down) x stride_w only so: 2048 or less",
    ),
    "Pooling: rows with a stride": (  # 2048 / (308 // 48 * 3) = 113.8
        pool("kernel_h: 113 kernel_w: 1 stride: 3", (1, 1, 120, 308)),
        pool("kernel_h: 114 kernel_w: 1 stride: 3", (1, 1, 120, 308)),
        "kernel height x (width / (16 stride_w), rounded down) x stride_w",
    ),
    "Pooling: all rows": (
        pool("global_pooling: true", (1, 1, 107, 308)),
        pool("global_pooling: true", (1, 1, 108, 308)),
        "2048 or less",
    ),
    "Convolution: rows": (  # 2048 / (4096 // 16) = 8
        conv("kernel_h: 8 kernel_w: 1", (1, 1, 9, 4096)),
        conv("kernel_h: 9 kernel_w: 1", (1, 1, 9, 4096)),
        "rounded down) x stride_w only so: 2048 or less",
    ),
    "Deconvolution: rows": (  # (32768 / 4096 - 1) * 2 + 1 = 15
        conv("kernel_h: 15 kernel_w: 1 stride: 2", (1, 1, 2, 4096), "Deconvolution"),
        conv("kernel_h: 16 kernel_w: 1 stride: 2", (1, 1, 2, 4096), "Deconvolution"),
        "((kernel height - 1) / stride_h + 1) x width only so: 32768 or less",
    ),
    "Pooling: stride": (
        pool("kernel_size: 1 stride: 255"),
        pool("kernel_size: 1 stride: 256"),
        "stride is 256, and nnie_mapper takes 1 to 255",
    ),
    "Proposal: tops": (proposal(), proposal('top: "y"'), "tops is 2, and nnie_mapper takes 1"),
    "Reduction: axis": (
        one("Reduction", "reduction_param { axis: 2 }"),
        one("Reduction", "reduction_param { axis: 1 }"),
        "axis is 1, and nnie_mapper takes 2 to 3",
    ),
    "Reduction: last axis": (
        one("Reduction", "reduction_param { axis: 3 }", (1, 2, 2, 2, 2)),
        one("Reduction", "reduction_param { axis: 4 }", (1, 2, 2, 2, 2)),
        "axis is 4, and nnie_mapper takes 2 to 3",
    ),
    "Reshape: width": (
        reshape(0, 2, 1, 4096, of=(1, 2, 4096, 1)),
        reshape(0, 2, 1, 4097, of=(1, 2, 4097, 1)),
        "top width is 4097, and nnie_mapper takes 4096 or less",
    ),
    "Reshape: dims": (reshape(0, 2, -1, 8), reshape(0, 2, 2, 8, 8), "reshape dims is 5, and nnie_mapper takes 1 to 4"),
    "Reshape: one dim": (reshape(-1, more="axis: 1"), reshape(more="axis: 1 num_axes: 0"), "reshape dims is 0"),
    "Reshape: axis": (
        reshape(8, 1, more="axis: 3"),
        reshape(1, more="axis: 4 num_axes: 0"),
        "axis is 4, and nnie_mapper takes -4 to 3",
    ),
    "Reshape: negative axis": (
        reshape(-1, more="axis: -4"),
        reshape(0, -1, more="axis: -5"),
        "axis is -5, and nnie_mapper takes -4 to 3",
    ),
    "Reshape: axes": (
        reshape(0, -1, more="num_axes: 3"),
        reshape(0, -1, more="num_axes: 4"),
        "num_axes is 4, and nnie_mapper takes -1 to 3",
    ),
    "Reshape: batch": (reshape(0, 4, 64), reshape(1, 4, 64), "first dim is 1, and nnie_mapper takes 0"),
    "ROIPooling: width": (roi(1, 1, 1, 4095), roi(1, 1, 1, 4096), "bottom width is 4096, and nnie_mapper takes 4095"),
    "ROIPooling: size": (
        roi(1, 1, 128, 256),
        roi(1, 1, 331, 99),
        "bottom height x width is 32769, and nnie_mapper takes 32768 or less",
    ),
    "ROIPooling: after": (
        roi(),
        regions_of("ROIPooling", ROI) + layer("x", "ROIPooling", "y r", "x", ROI),
        "layer before is ROIPooling, and nnie_mapper takes all but ROIPooling and PSROIPooling",
    ),
    "ROIPooling: after PSROIPooling": (
        roi(),
        regions_of("PSROIPooling", PSROI) + layer("x", "ROIPooling", "y r", "x", ROI),
        "layer before is PSROIPooling",
    ),
    "PSROIPooling: after": (
        psroi(),
        regions_of("ROIPooling", ROI) + layer("x", "PSROIPooling", "y r", "x", PSROI),
        "layer before is ROIPooling",
    ),
    "PSROIPooling: after itself": (
        psroi(),
        regions_of("PSROIPooling", PSROI.replace("output_dim: 1 group_size: 2", "output_dim: 4 group_size: 1"))
        + layer("x", "PSROIPooling", "y r", "x", PSROI),
        "layer before is PSROIPooling",
    ),
    "after Proposal": (
        data(1, 2, 3, 3) + layer("x", "ReLU", "data", "x"),
        proposal(name="y") + layer("x", "ReLU", "y", "x"),
        "layer before only so: not Proposal",
    ),
    "Scale: axis": (
        one("Scale", "scale_param { axis: -3 }"),
        one("Scale", "scale_param { axis: 0 }"),
        "axis is 0, and nnie_mapper takes 1 or -3",
    ),
    "Scale: axes": (
        one("Scale", "scale_param { num_axes: -1 }"),
        one("Scale", "scale_param { num_axes: 0 }"),
        "num_axes is 0, and nnie_mapper takes 1 or -1",
    ),
    "Scale: bias": (
        one("Scale", "scale_param { bias_term: true num_axes: -1 }", (1, 4)),
        one("Scale", "scale_param { bias_term: true num_axes: -1 }"),
        "bias_term is true, and nnie_mapper takes false",
    ),
    "Slice: axis": (
        one("Slice", 'top: "y" slice_param { axis: 3 }', (2, 4, 8, 8)),
        one("Slice", 'top: "y" slice_param { axis: 0 }', (2, 4, 8, 8)),
        AXIS,
    ),
    "Slice: tops": (pieces(32), pieces(33), "tops is 33, and nnie_mapper takes 32 or less"),
    "Softmax: axis": (
        one("Softmax", "softmax_param { axis: -3 }"),
        one("Softmax", "softmax_param { axis: -4 }"),
        AXIS,
    ),
    "Softmax: channels": (
        one("Softmax", "", (1, 4096, 1, 1)),
        one("Softmax", "", (1, 4097, 1, 1)),
        "size along axis is 4097, and nnie_mapper takes 4096 or less",
    ),
    "Softmax: values": (
        one("Softmax", "", (1, 65536)),
        one("Softmax", "", (1, 65537)),
        "size along axis is 65537, and nnie_mapper takes 65536 or less",
    ),
    "Softmax: width": (
        one("Softmax", "softmax_param { axis: 3 }", (1, 1, 1, 4096)),
        one("Softmax", "softmax_param { axis: 3 }", (1, 1, 1, 4097)),
        "size along axis is 4097",
    ),
    "SPP: height": (
        one("SPP", "spp_param { pyramid_height: 6 }", (1, 1, 64, 64)),
        one("SPP", "spp_param { pyramid_height: 7 }", (1, 1, 64, 64)),
        "pyramid_height is 7, and nnie_mapper takes 6 or less",
    ),
    "SPP: its largest kernel": (
        one("SPP", SPP, (1, 1, 255, 4)),
        one("SPP", SPP, (1, 1, 256, 4)),
        "bottom height is 256, and nnie_mapper takes 255 or less",
    ),
    "SPP: its widest kernel": (
        one("SPP", SPP, (1, 1, 4, 255)),
        one("SPP", SPP, (1, 1, 4, 256)),
        "bottom width is 256, and nnie_mapper takes 255 or less",
    ),
    "Upsample: scale": (upsample(""), upsample("scale: 3"), "scale is 3, and nnie_mapper takes 2"),
    "Upsample: less": (upsample("upsample_h: 8 upsample_w: 8"), upsample("scale: 1"), "scale is 1"),
    "Upsample: size": (upsample(""), upsample("pad_out_h: true"), "upsample_param.pad_out_h"),
    "Upsample: bottoms": (upsample(""), one("Upsample"), "bottoms is 1, and nnie_mapper takes 2 or more"),
}


@pytest.mark.parametrize("name", INSIDE_AND_OUTSIDE)
def test_limits(name, tmp_path):
    inside, outside, said = INSIDE_AND_OUTSIDE[name]
    export_caffe(net_of(inside), tmp_path / "in", "nnie")
    with pytest.raises(ExportError) as caught:
        export_caffe(net_of(outside), tmp_path / "out", "nnie")
    assert said in str(caught.value) and caught.value.fix
    assert caught.value.where.layer == "x" and caught.value.where.line == outside.count("\n")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["in.caffemodel", "in.prototxt"]


@pytest.mark.parametrize(
    ("type", "more"), [("ReLU", ""), ("Reshape", "reshape_param { shape { dim: 0 dim: 4 dim: 1 dim: 1 } }")]
)
def test_what_may_stand_between(type, more, tmp_path):
    """Table 3-1 is about neighbours: a Convolution may follow ReLU or Reshape, whatever is before them."""
    text = behind("InnerProduct", INNER, type, more)
    net = net_of(text + layer("c", "Convolution", "x", "c", "convolution_param { num_output: 2 kernel_size: 1 }"))
    assert check_caffe(net, *export_caffe(net, tmp_path / "out", "nnie"))[0].relative < 1e-5


def test_proposal_gives_regions_to_the_next_layer(tmp_path, caplog):
    text = proposal(name="y") + layer("x", "ROIPooling", "data y", "x", ROI)
    files = export_caffe(net_of(text), tmp_path / "out", "nnie")
    assert 'layer "y" (Proposal): the layer runs on the processor, not on the chip' in caplog.text
    assert next(one for one in written(files).layer if one.type == "Proposal").proposal_param.post_nms_topn == 4


@pytest.mark.parametrize(
    ("type", "more"),
    [
        ("ROIPooling", "roi_pooling_param { pooled_h: 3 pooled_w: 3 }"),
        ("PSROIPooling", "psroi_pooling_param { spatial_scale: 1 output_dim: 2 group_size: 3 }"),
    ],
)
def test_proposal_of_regions(type, more, tmp_path):
    text = data(1, 18, 8, 8) if type == "PSROIPooling" else data(1, 2, 8, 8)
    text += data(2, 5, name="r") + data(2, 4, 3, 3, name="moves") + data(1, 3, name="sizes")
    text += layer("y", type, "data r", "y", more)
    text += layer("x", "Proposal", "y moves sizes", "x", "proposal_param { ratio: 1 scale: 8 post_nms_topn: 4 }")
    with pytest.raises(ExportError, match=f"layer before is {type}"):
        export_caffe(net_of(text), tmp_path / "x", "nnie")


def test_batch_norm_says_that_it_has_statistics(tmp_path):
    """3.2.3: there is a batch_norm_param, with use_global_stats: true. The fraction is not for a net in use."""
    net = net_of(one("BatchNorm", "batch_norm_param { moving_average_fraction: 0.9 }"))
    files = export_caffe(net, tmp_path / "out", "nnie")
    found = written(files).layer[1].batch_norm_param
    assert found.use_global_stats and [field.name for field, _ in found.ListFields()] == ["use_global_stats"]
    assert check_caffe(net, *files)[0].absolute == 0


@pytest.mark.parametrize("power", [-3, -2, -1, -0.5, 0.5, 1, 2, 3])
def test_powers(power, tmp_path):
    export_caffe(net_of(one("Power", f"power_param {{ power: {power} shift: 9 }}")), tmp_path / "out", "nnie")


@pytest.mark.parametrize("power", [-4, -1.5, 0, 0.25, 1.5, 4])
def test_other_powers(power, tmp_path):
    with pytest.raises(ExportError, match="power is .*, and nnie_mapper takes -3 or -2 or -1 or -0.5 or 0.5 or 1 or"):
        export_caffe(net_of(one("Power", f"power_param {{ power: {power} shift: 9 }}")), tmp_path / "out", "nnie")


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        (one("Tile", "tile_param { tiles: 2 }"), "Concat"),
        (two("Crop", "", (1, 4, 4, 4)), "the same size"),
        (one("Interp", "interp_param { height: 9 width: 9 }"), "Deconvolution"),
        (one("Reorg", "reorg_param { stride: 2 }"), "PassThrough"),
        (two("LSTM", "recurrent_param { num_output: 2 }", (3, 1), (3, 1, 3)), "where sequences begin"),
        (two("RNN", "recurrent_param { num_output: 2 }", (3, 1), (3, 1, 3)), "where sequences begin"),
        (one("Swish"), "compute it on the host"),
    ],
)
def test_what_is_missing_has_a_way_out(text, fix, tmp_path):
    with pytest.raises(ExportError, match="the list of nnie_mapper has no layer type") as caught:
        export_caffe(net_of(text), tmp_path / "out", "nnie")
    assert fix in caught.value.fix and set(chip_of("nnie").instead) <= set(LAYERS)


def test_the_error_says_where_the_list_is_from(tmp_path):
    text = data(1, 4, 8, 8) + layer("a", "Swish", "data", "a") + layer("b", "Tile", "a", "b", "tile_param { tiles: 2 }")
    with pytest.raises(ExportError, match="2 things that nnie_mapper does not take") as caught:
        export_caffe(net_of(text), tmp_path / "out", "nnie")
    assert "HiSVP Development Guide" in caught.value.fix and "00B06" in caught.value.fix
