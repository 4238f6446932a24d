"""ResNets for CIFAR-10: 20 and 56 layers with the names of public weights, and 1001 layers to show depth.

The first two have pairs of 3x3 convolutions (He et al. 2015). The last has BatchNorm and ReLU before each convolution,
so that a sum is never changed on its way (He et al. 2016).
"""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import MSRA, ZEROS, batch_norm, classifier_end, folder_solver, input_layer, lmdb_layers, relu
from .text import net_text

WIDTHS = (16, 32, 64)


def conv(n: NetSpec, bottom, name: str, num_output: int, kernel_size: int, stride: int = 1, *, bias: bool = False):
    filler = {"bias_filler": ZEROS} if bias else {"bias_term": False}
    n[name] = L.Convolution(
        bottom,
        num_output=num_output,
        kernel_size=kernel_size,
        pad=kernel_size // 2,
        stride=stride,
        weight_filler=MSRA,
        **filler,
    )
    return n[name]


def add(n: NetSpec, name: str, *bottoms):
    n[name] = L.Eltwise(*bottoms, operation="SUM")
    return n[name]


def end(n: NetSpec, x):
    n.global_avg_pool = L.Pooling(x, pool="AVE", global_pooling=True)
    n.fc = L.InnerProduct(n.global_avg_pool, num_output=10, weight_filler=MSRA, bias_filler=ZEROS)
    return n.fc


def plain(n: NetSpec, depth: int):
    """first_conv .. fc after n.data: 3 groups of (depth - 2) / 6 blocks. In the public weights of 20 layers all
    convolutions have a bias, in those of 56 the first one has."""

    def conv_bn(bottom, name, num_output, kernel_size, stride=1):
        x = conv(n, bottom, name, num_output, kernel_size, stride, bias=depth == 20 or name == "first_conv")
        return batch_norm(n, x, f"{name}_bn", f"{name}_scale")

    x = relu(n, conv_bn(n.data, "first_conv", 16, 3), "first_conv_relu")
    for group, width in enumerate(WIDTHS):
        for i in range((depth - 2) // 6):
            name, first = f"group{group}_block{i}", group > 0 and i == 0
            y = conv_bn(x, f"{name}_conv0", width, 3, 2 if first else 1)
            y = conv_bn(relu(n, y, f"{name}_conv0_relu"), f"{name}_conv1", width, 3)
            if first:
                x = conv_bn(x, f"{name}_proj", width, 1, 2)
            x = relu(n, add(n, f"{name}_sum", x, y), f"{name}_relu")
    return end(n, x)


def before(n: NetSpec, depth: int):
    """first_conv .. fc after n.data: 3 groups of (depth - 2) / 9 blocks of 1x1, 3x3 and 1x1 convolutions."""

    def bn_relu(bottom, name):  # the sum stays as it is: BatchNorm writes a blob of its own
        return relu(n, batch_norm(n, bottom, f"{name}_bn", f"{name}_scale", in_place=False), f"{name}_relu")

    x = conv(n, n.data, "first_conv", 16, 3)
    for group, width in enumerate(WIDTHS):
        for i in range((depth - 2) // 9):
            name, stride = f"group{group}_block{i}", 2 if group > 0 and i == 0 else 1
            ready = bn_relu(x, f"{name}_conv0")
            y = conv(n, ready, f"{name}_conv0", width, 1, stride)
            y = conv(n, bn_relu(y, f"{name}_conv1"), f"{name}_conv1", width, 3)
            y = conv(n, bn_relu(y, f"{name}_conv2"), f"{name}_conv2", 4 * width, 1)
            if i == 0:
                x = conv(n, ready, f"{name}_proj", 4 * width, 1, stride)
            x = add(n, f"{name}_sum", x, y)
    return end(n, bn_relu(x, "last"))


DEPTHS = {20: plain, 56: plain, 1001: before}
BATCHES = {20: 128, 56: 128, 1001: 64}


def name_of(depth: int) -> str:
    return f"cifar10_resnet-{depth}"


def train_val(depth: int) -> NetSpec:
    n = NetSpec()
    lmdb_layers(
        n,
        "data",
        "data/cifar10",
        train="cifar10_train_lmdb",
        test="cifar10_test_lmdb",
        batches=(BATCHES[depth], 100),
        mirror=True,
        crop_size=32,
        mean_value=[128],
        scale=1 / 128,
    )
    classifier_end(n, DEPTHS[depth](n, depth))
    return n


def deploy(depth: int) -> NetSpec:
    n = NetSpec()
    input_layer(n, 1, 3, 32, 32)
    n.prob = L.Softmax(DEPTHS[depth](n, depth))
    return n


def solver(depth: int) -> str:
    last = 64000 * 128 // BATCHES[depth]
    return folder_solver(
        "cifar_resnet",
        name_of(depth),
        test_iter=100,
        test_interval=1000,
        base_lr=0.1,
        lr_policy="multistep",
        gamma=0.1,
        stepvalue=[last // 2, 3 * last // 4],
        momentum=0.9,
        weight_decay=0.0001,
        display=100,
        max_iter=last,
        snapshot=10000,
    )


MODELS = tuple(
    Model(name_of(d), {"data": (BATCHES[d], 3, 32, 32)}, {"data": (2, 3, 8, 8)}, classes=10, deep=d > 1000)
    for d in DEPTHS
)


def files() -> dict[str, str]:
    out = {}
    for d in DEPTHS:
        title = f"ResNet-{d}-CIFAR10"
        out[f"{name_of(d)}/train_val.prototxt"] = net_text("cifar_resnet", title, train_val(d))
        out[f"{name_of(d)}/deploy.prototxt"] = net_text("cifar_resnet", title, deploy(d))
        out[f"{name_of(d)}/solver.prototxt"] = solver(d)
    return out
