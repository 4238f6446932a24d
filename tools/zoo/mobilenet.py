"""MobileNet v1 and v2 with the names of the Caffe weights (MobileNet-Caffe): a 3x3 convolution per channel
(as many groups as channels), then 1x1 convolutions across them. BatchNorm, Scale and ReLU after each."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import image_net
from .parts import MSRA, ZEROS, batch_norm, classifier_files, relu, weight_and_bias

# v1: name, channels of the 1x1 convolution, stride of the 3x3 one
SEPARABLE = (
    ("2_1", 64, 1),
    ("2_2", 128, 2),
    ("3_1", 128, 1),
    ("3_2", 256, 2),
    ("4_1", 256, 1),
    ("4_2", 512, 2),
    *((f"5_{i}", 512, 1) for i in range(1, 6)),
    ("5_6", 1024, 2),
    ("6", 1024, 1),
)
# v2: name, expanded channels, channels after, stride
INVERTED = (
    ("2_1", 32, 16, 1),
    ("2_2", 96, 24, 2),
    ("3_1", 144, 24, 1),
    ("3_2", 144, 32, 2),
    ("4_1", 192, 32, 1),
    ("4_2", 192, 32, 1),
    ("4_3", 192, 64, 1),
    ("4_4", 384, 64, 1),
    ("4_5", 384, 64, 1),
    ("4_6", 384, 64, 1),
    ("4_7", 384, 96, 2),
    ("5_1", 576, 96, 1),
    ("5_2", 576, 96, 1),
    ("5_3", 576, 160, 2),
    ("6_1", 960, 160, 1),
    ("6_2", 960, 160, 1),
    ("6_3", 960, 320, 1),
)
# As in the public weights, the blocks of 64 channels keep 28 x 28, and 4_7 halves it. The paper halves in 4_3 already.
MEAN = {"mean_value": [103.94, 116.78, 123.68], "scale": 0.017}
SOLVER = {
    "test_iter": 1000,
    "test_interval": 5000,
    "test_initialization": False,
    "base_lr": 0.045,
    "lr_policy": "poly",
    "power": 1,
    "momentum": 0.9,
    "iter_size": 4,
    "display": 20,
    "max_iter": 600000,
    "snapshot": 10000,
}


def conv_bn(n: NetSpec, bottom, name: str, num_output: int, *, in_place: bool, act: str | None = None, **shape):
    """Convolution `name`, BatchNorm `name`/bn, Scale `name`/scale and, where `act` names one, ReLU."""
    n[name] = L.Convolution(bottom, num_output=num_output, bias_term=False, weight_filler=MSRA, **shape)
    x = batch_norm(n, n[name], f"{name}/bn", f"{name}/scale", in_place=in_place)
    return relu(n, x, act) if act else x


def end(n: NetSpec, x):
    """pool6 and fc7; returns the scores, 1000 x 1 x 1."""
    n.pool6 = L.Pooling(x, pool="AVE", global_pooling=True)
    n.fc7 = L.Convolution(
        n.pool6,
        num_output=1000,
        kernel_size=1,
        param=weight_and_bias(decay=(1, 0)),
        weight_filler=MSRA,
        bias_filler=ZEROS,
    )
    return n.fc7


def body_v1(n: NetSpec):
    """conv1 .. fc7 after n.data."""
    x, width = conv_bn(n, n.data, "conv1", 32, in_place=True, act="relu1", kernel_size=3, pad=1, stride=2), 32
    for name, num_output, stride in SEPARABLE:
        dw, sep = f"{name}/dw", f"{name}/sep"
        shape = {"kernel_size": 3, "pad": 1, "stride": stride, "group": width}
        x = conv_bn(n, x, f"conv{dw}", width, in_place=True, act=f"relu{dw}", **shape)
        x = conv_bn(n, x, f"conv{sep}", num_output, in_place=True, act=f"relu{sep}", kernel_size=1)
        width = num_output
    return end(n, x)


def body_v2(n: NetSpec):
    """conv1 .. fc7 after n.data: blocks that widen, filter each channel and narrow again without ReLU."""
    x, width = conv_bn(n, n.data, "conv1", 32, in_place=False, act="relu1", kernel_size=3, pad=1, stride=2), 32
    for name, wide, num_output, stride in INVERTED:
        y = conv_bn(n, x, f"conv{name}/expand", wide, in_place=False, act=f"relu{name}/expand", kernel_size=1)
        shape = {"kernel_size": 3, "pad": 1, "stride": stride, "group": wide}
        y = conv_bn(n, y, f"conv{name}/dwise", wide, in_place=False, act=f"relu{name}/dwise", **shape)
        y = conv_bn(n, y, f"conv{name}/linear", num_output, in_place=False, kernel_size=1)
        if stride == 1 and num_output == width:
            n[f"block_{name}"] = y = L.Eltwise(x, y, operation="SUM")
        x, width = y, num_output
    return end(n, conv_bn(n, x, "conv6_4", 1280, in_place=False, act="relu6_4", kernel_size=1))


VERSIONS = {"v1": (body_v1, 0.0001), "v2": (body_v2, 0.00004)}  # body, weight decay
MODELS = tuple(image_net(f"mobilenet-{version}", 64, 224, 32) for version in VERSIONS)


def files() -> dict[str, str]:
    out = {}
    for version, (body, weight_decay) in VERSIONS.items():
        out |= classifier_files(
            "mobilenet",
            f"mobilenet-{version}",
            f"MobileNet-{version}",
            body,
            batches=(64, 50),
            size=224,
            note="256 pictures an iteration (64 x iter_size 4); the rate falls on a straight line.",
            solver=SOLVER | {"weight_decay": weight_decay},
            **MEAN,
        )
    return out
