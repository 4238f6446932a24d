"""Inception-v3 with the names of the Caffe weights of soeaver's caffe-model: convolutions of 7x7 cut into 1x7 and 7x1.

Each convolution has BatchNorm <name>_bn, Scale <name>_scale and ReLU <name>_relu in place.
"""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import image_net
from .parts import XAVIER, ZEROS, batch_norm, classifier_files, relu, weight_and_bias

EPS = 0.001


def conv(n: NetSpec, bottom, name: str, num_output: int, kernel: int | tuple[int, int] = 1, *, stride=1, pad=None):
    """Convolution of kernel x kernel, or of height x width; padded to keep the size unless stride or `pad` says no."""
    if isinstance(kernel, tuple):
        (h, w), shape = kernel, {}
        shape = {"kernel_h": h, "kernel_w": w, "pad_h": h // 2, "pad_w": w // 2}
    else:
        shape = {"kernel_size": kernel, "pad": (kernel // 2 if stride == 1 else 0) if pad is None else pad}
    n[name] = L.Convolution(
        bottom, num_output=num_output, bias_term=False, weight_filler=XAVIER, stride=stride, **shape
    )
    x = batch_norm(n, n[name], f"{name}_bn", f"{name}_scale", eps=EPS)
    return relu(n, x, f"{name}_relu")


def pool(n: NetSpec, x, name: str, method: str, **shape):
    n[name] = L.Pooling(x, pool=method, kernel_size=3, **shape)
    return n[name]


def join(n: NetSpec, name: str, *branches):
    n[name] = L.Concat(*branches)
    return n[name]


def stem(n: NetSpec):
    x = conv(n, n.data, "conv1_3x3_s2", 32, 3, stride=2)
    x = conv(n, x, "conv2_3x3_s1", 32, 3, pad=0)
    x = conv(n, x, "conv3_3x3_s1", 64, 3)
    x = pool(n, x, "pool1_3x3_s2", "MAX", stride=2)
    x = conv(n, x, "conv4_3x3_reduce", 80)
    x = conv(n, x, "conv4_3x3", 192, 3, pad=0)
    return pool(n, x, "pool2_3x3_s2", "MAX", stride=2)


def module_a(n: NetSpec, x, name: str, projected: int):
    """35 x 35: 1x1, 5x5, two 3x3, and pooling."""
    one = conv(n, x, f"{name}_1x1", 64)
    five = conv(n, conv(n, x, f"{name}_5x5_reduce", 48), f"{name}_5x5", 64, 5)
    three = conv(n, conv(n, x, f"{name}_3x3_reduce", 64), f"{name}_3x3_1", 96, 3)
    three = conv(n, three, f"{name}_3x3_2", 96, 3)
    pooled = pool(n, x, f"{name}_pool", "AVE", stride=1, pad=1)
    return join(n, f"{name}_output", one, five, three, conv(n, pooled, f"{name}_pool_proj", projected))


def reduction_a(n: NetSpec, x):
    three = conv(n, x, "reduction_a_3x3", 384, 3, stride=2)
    two = conv(n, conv(n, x, "reduction_a_3x3_2_reduce", 64), "reduction_a_3x3_2", 96, 3)
    two = conv(n, two, "reduction_a_3x3_3", 96, 3, stride=2)
    return join(n, "reduction_a_concat", three, two, pool(n, x, "reduction_a_pool", "MAX", stride=2))


def module_b(n: NetSpec, x, name: str, width: int):
    """17 x 17: 1x1, one and two pairs of 1x7 and 7x1, and pooling."""
    one = conv(n, x, f"{name}_1x1_2", 192)
    pair = conv(n, conv(n, x, f"{name}_1x7_reduce", width), f"{name}_1x7", width, (1, 7))
    pair = conv(n, pair, f"{name}_7x1", 192, (7, 1))
    pairs = conv(n, conv(n, x, f"{name}_7x1_reduce", width), f"{name}_7x1_2", width, (7, 1))
    pairs = conv(n, pairs, f"{name}_1x7_2", width, (1, 7))
    pairs = conv(n, pairs, f"{name}_7x1_3", width, (7, 1))
    pairs = conv(n, pairs, f"{name}_1x7_3", 192, (1, 7))
    pooled = pool(n, x, f"{name}_pool_ave", "AVE", stride=1, pad=1)
    return join(n, f"{name}_concat", one, pair, pairs, conv(n, pooled, f"{name}_1x1", 192))


def reduction_b(n: NetSpec, x):
    three = conv(n, conv(n, x, "reduction_b_3x3_reduce", 192), "reduction_b_3x3", 320, 3, stride=2)
    pair = conv(n, conv(n, x, "reduction_b_1x7_reduce", 192), "reduction_b_1x7", 192, (1, 7))
    pair = conv(n, pair, "reduction_b_7x1", 192, (7, 1))
    pair = conv(n, pair, "reduction_b_3x3_2", 192, 3, stride=2)
    return join(n, "reduction_b_concat", three, pair, pool(n, x, "reduction_b_pool", "MAX", stride=2))


def module_c(n: NetSpec, x, name: str, method: str):
    """8 x 8: 1x1, 1x3 beside 3x1 (also after a 3x3), and pooling."""
    one = conv(n, x, f"{name}_1x1_2", 320)
    few = conv(n, x, f"{name}_1x3_reduce", 384)
    wide, high = conv(n, few, f"{name}_1x3", 384, (1, 3)), conv(n, few, f"{name}_3x1", 384, (3, 1))
    three = conv(n, conv(n, x, f"{name}_3x3_reduce", 448), f"{name}_3x3", 384, 3)
    wide2, high2 = conv(n, three, f"{name}_1x3_2", 384, (1, 3)), conv(n, three, f"{name}_3x1_2", 384, (3, 1))
    pooled = conv(n, pool(n, x, f"{name}_pool", method, stride=1, pad=1), f"{name}_1x1", 192)
    return join(n, f"{name}_concat", one, wide, high, wide2, high2, pooled)


def body(n: NetSpec):
    """conv1_3x3_s2 .. classifier after n.data; returns the scores."""
    x = stem(n)
    for i, projected in enumerate((32, 64, 64), 1):
        x = module_a(n, x, f"inception_a{i}", projected)
    x = reduction_a(n, x)
    for i, width in enumerate((128, 160, 160, 192), 1):
        x = module_b(n, x, f"inception_b{i}", width)
    x = reduction_b(n, x)
    x = module_c(n, x, "inception_c1", "AVE")
    x = module_c(n, x, "inception_c2", "MAX")  # the public weights were trained so
    n["pool_8x8_s1"] = L.Pooling(x, pool="AVE", global_pooling=True)
    n["pool_8x8_s1_drop"] = L.Dropout(n["pool_8x8_s1"], dropout_ratio=0.2)
    n.classifier = L.InnerProduct(
        n["pool_8x8_s1_drop"],
        num_output=1000,
        param=weight_and_bias(decay=(1, 0)),
        weight_filler=XAVIER,
        bias_filler=ZEROS,
    )
    return n.classifier


MODELS = (image_net("inception-v3", 32, 299, 75),)


def files() -> dict[str, str]:
    return classifier_files(
        "inception_v3",
        "inception-v3",
        "Inception-v3",
        body,
        batches=(32, 25),
        size=299,
        note="256 pictures an iteration (32 x iter_size 8); the rate is multiplied by 0.94 every two epochs.",
        solver={
            "test_iter": 2000,
            "test_interval": 5000,
            "test_initialization": False,
            "base_lr": 0.045,
            "lr_policy": "step",
            "gamma": 0.94,
            "stepsize": 10000,
            "momentum": 0.9,
            "weight_decay": 0.00004,
            "clip_gradients": 2,
            "iter_size": 8,
            "display": 20,
            "max_iter": 500000,
            "snapshot": 10000,
        },
        mean_value=[128],
        scale=1 / 128,
    )
