"""CIFAR-10, quick (two steps of learning rate, minutes) and full (three steps, with local response normalisation)."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import ZEROS, classifier_end, gaussian, lmdb_layers, weight_and_bias
from .text import net_text, solver_text

RATES = weight_and_bias()
NORM = {"local_size": 3, "alpha": 5e-05, "beta": 0.75, "norm_region": "WITHIN_CHANNEL"}


def conv(bottom, num_output, std, param=RATES):
    return L.Convolution(
        bottom,
        num_output=num_output,
        pad=2,
        kernel_size=5,
        stride=1,
        weight_filler=gaussian(std),
        bias_filler=ZEROS,
        **({"param": param} if param else {}),
    )


def pool(bottom, method):
    return L.Pooling(bottom, pool=method, kernel_size=3, stride=2)


def ip(bottom, num_output, std, param=RATES):
    return L.InnerProduct(bottom, num_output=num_output, weight_filler=gaussian(std), bias_filler=ZEROS, param=param)


def quick(n: NetSpec):
    """Three convolutions and two inner products; returns the scores."""
    n.conv1 = conv(n.data, 32, 0.0001)
    n.pool1 = pool(n.conv1, "MAX")
    n.relu1 = L.ReLU(n.pool1, in_place=True)
    n.conv2 = conv(n.relu1, 32, 0.01)
    n.relu2 = L.ReLU(n.conv2, in_place=True)
    n.pool2 = pool(n.relu2, "AVE")
    n.conv3 = conv(n.pool2, 64, 0.01)
    n.relu3 = L.ReLU(n.conv3, in_place=True)
    n.pool3 = pool(n.relu3, "AVE")
    n.ip1 = ip(n.pool3, 64, 0.1)
    n.ip2 = ip(n.ip1, 10, 0.1)
    return n.ip2


def full(n: NetSpec):
    """Three convolutions, normalisation within channels after the first two, one strongly decayed inner product."""
    n.conv1 = conv(n.data, 32, 0.0001)
    n.pool1 = pool(n.conv1, "MAX")
    n.relu1 = L.ReLU(n.pool1, in_place=True)
    n.norm1 = L.LRN(n.relu1, **NORM)
    n.conv2 = conv(n.norm1, 32, 0.01)
    n.relu2 = L.ReLU(n.conv2, in_place=True)
    n.pool2 = pool(n.relu2, "AVE")
    n.norm2 = L.LRN(n.pool2, **NORM)
    n.conv3 = conv(n.norm2, 64, 0.01, param=None)  # weight and bias learn at the same rate here
    n.relu3 = L.ReLU(n.conv3, in_place=True)
    n.pool3 = pool(n.relu3, "AVE")
    n.ip1 = ip(n.pool3, 10, 0.01, param=weight_and_bias(decay=(250, 0)))
    return n.ip1


def train_val(body) -> NetSpec:
    n = NetSpec()
    lmdb_layers(
        n,
        "cifar",
        "data/cifar10",
        train="cifar10_train_lmdb",
        test="cifar10_test_lmdb",
        batches=(100, 100),
        mean_file="data/cifar10/mean.binaryproto",
    )
    classifier_end(n, body(n))
    return n


def deploy(body) -> NetSpec:
    """`body` on an Input; fillers and rates stay in, they do no harm where weights are loaded."""
    n = NetSpec()
    n.data = L.Input(shape={"dim": [1, 3, 32, 32]})
    n.prob = L.Softmax(body(n))
    return n


def solver(name, test_interval, display, base_lr, max_iter, snapshot) -> str:
    return solver_text(
        "cifar10",
        net=f"models/{name}/train_val.prototxt",
        test_iter=100,
        test_interval=test_interval,
        base_lr=base_lr,
        momentum=0.9,
        weight_decay=0.004,
        lr_policy="fixed",
        display=display,
        max_iter=max_iter,
        snapshot=snapshot,
        snapshot_prefix=f"models/{name}/{name}",
    )


MODELS = tuple(
    Model(name, {"data": (100, 3, 32, 32)}, {"data": (4, 3, 32, 32)}, classes=10)
    for name in ("cifar10_quick", "cifar10_full")
)


def files() -> dict[str, str]:
    out = {}
    for name, title, body in (("cifar10_quick", "CIFAR10_quick", quick), ("cifar10_full", "CIFAR10_full", full)):
        out[f"{name}/train_val.prototxt"] = net_text("cifar10", title, train_val(body))
        out[f"{name}/deploy.prototxt"] = net_text("cifar10", title, deploy(body))
    return out | {
        "cifar10_quick/solver.prototxt": solver("cifar10_quick", 500, 100, 0.001, 4000, 4000),
        "cifar10_quick/solver_lr1.prototxt": solver("cifar10_quick", 500, 100, 0.0001, 5000, 5000),
        "cifar10_full/solver.prototxt": solver("cifar10_full", 1000, 200, 0.001, 60000, 10000),
        "cifar10_full/solver_lr1.prototxt": solver("cifar10_full", 1000, 200, 0.0001, 65000, 5000),
        "cifar10_full/solver_lr2.prototxt": solver("cifar10_full", 1000, 200, 1e-05, 70000, 5000),
    }
