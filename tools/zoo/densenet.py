"""DenseNet-121 with the names of the Caffe weights (DenseNet-Caffe): a layer reads all before it in its block."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import image_net
from .parts import MSRA, ZEROS, batch_norm, classifier_files, relu

GROWTH = 32
BLOCKS = {2: 6, 3: 12, 4: 24, 5: 16}  # layers of the blocks, which are named 2 to 5


def bn_relu(n: NetSpec, bottom, name: str):
    """BatchNorm conv<name>/bn to a blob of its own, then Scale conv<name>/scale and ReLU relu<name> in place."""
    return relu(n, batch_norm(n, bottom, f"conv{name}/bn", f"conv{name}/scale", in_place=False), f"relu{name}")


def conv(n: NetSpec, bottom, name: str, num_output: int, kernel_size: int, **shape):
    n[name] = L.Convolution(
        bottom, num_output=num_output, kernel_size=kernel_size, bias_term=False, weight_filler=MSRA, **shape
    )
    return n[name]


def body(n: NetSpec):
    """conv1 .. fc6 after n.data; returns the scores, 1000 x 1 x 1."""
    x = conv(n, n.data, "conv1", 64, 7, pad=3, stride=2)
    x = relu(n, batch_norm(n, x, "conv1/bn", "conv1/scale", in_place=False), "relu1")
    n.pool1 = x = L.Pooling(x, pool="MAX", kernel_size=3, stride=2, pad=1, round_mode="FLOOR")
    width = 64
    for block, layers in BLOCKS.items():
        for i in range(1, layers + 1):
            y = conv(n, bn_relu(n, x, f"{block}_{i}/x1"), f"conv{block}_{i}/x1", 4 * GROWTH, 1)
            y = conv(n, bn_relu(n, y, f"{block}_{i}/x2"), f"conv{block}_{i}/x2", GROWTH, 3, pad=1)
            n[f"concat_{block}_{i}"] = x = L.Concat(x, y)
        width += layers * GROWTH
        x = bn_relu(n, x, f"{block}_blk")
        if block < 5:
            width //= 2
            x = conv(n, x, f"conv{block}_blk", width, 1)
            n[f"pool{block}"] = x = L.Pooling(x, pool="AVE", kernel_size=2, stride=2)
    n.pool5 = L.Pooling(x, pool="AVE", global_pooling=True)
    n.fc6 = L.Convolution(n.pool5, num_output=1000, kernel_size=1, weight_filler=MSRA, bias_filler=ZEROS)
    return n.fc6


MODELS = (image_net("densenet-121", 32, 224, 32),)


def files() -> dict[str, str]:
    return classifier_files(
        "densenet",
        "densenet-121",
        "DenseNet-121",
        body,
        batches=(32, 25),
        size=224,
        note="256 pictures an iteration (32 x iter_size 8): 90 epochs, the rate divided by ten after 30 and 60.",
        solver={
            "test_iter": 2000,
            "test_interval": 5000,
            "test_initialization": False,
            "base_lr": 0.1,
            "lr_policy": "step",
            "gamma": 0.1,
            "stepsize": 150000,
            "momentum": 0.9,
            "weight_decay": 0.0001,
            "iter_size": 8,
            "display": 20,
            "max_iter": 450000,
            "snapshot": 10000,
        },
        mean_value=[103.94, 116.78, 123.68],
        scale=0.017,
    )
