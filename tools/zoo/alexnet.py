"""AlexNet with BVLC's names: five convolutions, three of them in two groups, and three inner products."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import image_net
from .parts import classifier_end, constant, dummy_layers, dummy_solver, gaussian, lmdb_layers, weight_and_bias
from .text import net_text, solver_text

RATES = weight_and_bias(decay=(1, 0))


def conv_relu(n: NetSpec, i: int, bottom, num_output: int, kernel_size: int, bias: float, **shape):
    """conv<i> and, in place, relu<i>."""
    n[f"conv{i}"] = L.Convolution(
        bottom,
        num_output=num_output,
        kernel_size=kernel_size,
        param=RATES,
        weight_filler=gaussian(0.01),
        bias_filler=constant(bias),
        **shape,
    )
    n[f"relu{i}"] = L.ReLU(n[f"conv{i}"], in_place=True)
    return n[f"relu{i}"]


def norm_pool(n: NetSpec, i: int, bottom):
    """norm<i> and pool<i>."""
    n[f"norm{i}"] = L.LRN(bottom, local_size=5, alpha=0.0001, beta=0.75)
    return pool(n, i, n[f"norm{i}"])


def pool(n: NetSpec, i: int, bottom):
    n[f"pool{i}"] = L.Pooling(bottom, pool="MAX", kernel_size=3, stride=2)
    return n[f"pool{i}"]


def fc(n: NetSpec, i: int, bottom, num_output: int, std: float, bias: float):
    n[f"fc{i}"] = L.InnerProduct(
        bottom, num_output=num_output, param=RATES, weight_filler=gaussian(std), bias_filler=constant(bias)
    )
    return n[f"fc{i}"]


def relu_drop(n: NetSpec, i: int, bottom):
    """relu<i> and drop<i>, both in place."""
    n[f"relu{i}"] = L.ReLU(bottom, in_place=True)
    n[f"drop{i}"] = L.Dropout(n[f"relu{i}"], dropout_ratio=0.5, in_place=True)
    return n[f"drop{i}"]


def body(n: NetSpec):
    """conv1 .. fc8 after n.data; returns the scores."""
    x = norm_pool(n, 1, conv_relu(n, 1, n.data, 96, 11, 0, stride=4))
    x = norm_pool(n, 2, conv_relu(n, 2, x, 256, 5, 0.1, pad=2, group=2))
    x = conv_relu(n, 3, x, 384, 3, 0, pad=1)
    x = conv_relu(n, 4, x, 384, 3, 0.1, pad=1, group=2)
    x = pool(n, 5, conv_relu(n, 5, x, 256, 3, 0.1, pad=1, group=2))
    x = relu_drop(n, 6, fc(n, 6, x, 4096, 0.005, 0.1))
    x = relu_drop(n, 7, fc(n, 7, x, 4096, 0.005, 0.1))
    return fc(n, 8, x, 1000, 0.01, 0)


def train_val() -> NetSpec:
    n = NetSpec()
    lmdb_layers(
        n,
        "data",
        "data/ilsvrc12",
        train="ilsvrc12_train_lmdb",
        test="ilsvrc12_val_lmdb",
        batches=(256, 50),
        mirror=True,
        crop_size=227,
        mean_file="data/ilsvrc12/imagenet_mean.binaryproto",
    )
    classifier_end(n, body(n))
    return n


def train_dummy() -> NetSpec:
    n = NetSpec()
    dummy_layers(n, 256, 227)
    n.loss = L.SoftmaxWithLoss(body(n), n.label)
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [10, 3, 227, 227]})
    n.prob = L.Softmax(body(n))
    return n


MODELS = (image_net("alexnet", 256, 227, 67, narrow=("fc6", "fc7")),)


def files() -> dict[str, str]:
    solver = solver_text(
        "alexnet",
        net="models/alexnet/train_val.prototxt",
        test_iter=1000,
        test_interval=1000,
        base_lr=0.01,
        lr_policy="step",
        gamma=0.1,
        stepsize=100000,
        momentum=0.9,
        weight_decay=0.0005,
        display=20,
        max_iter=450000,
        snapshot=10000,
        snapshot_prefix="models/alexnet/alexnet",
    )
    return {
        "alexnet/train_val.prototxt": net_text("alexnet", "AlexNet", train_val()),
        "alexnet/train_dummy.prototxt": net_text("alexnet", "AlexNet", train_dummy()),
        "alexnet/deploy.prototxt": net_text("alexnet", "AlexNet", deploy()),
        "alexnet/solver.prototxt": solver,
        "alexnet/solver_dummy.prototxt": dummy_solver("alexnet", "alexnet", weight_decay=0.0005),
    }
