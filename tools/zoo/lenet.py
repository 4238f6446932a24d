"""LeNet on MNIST: the first net of every Caffe tutorial."""

from pycaffe_lms.net_spec import NetSpec
from pycaffe_lms.net_spec import layers as L

from .catalogue import Model
from .parts import XAVIER, ZEROS, classifier_end, lmdb_layers, weight_and_bias
from .text import net_text, solver_text

FILLED = {"param": weight_and_bias(), "weight_filler": XAVIER, "bias_filler": ZEROS}


def body(n: NetSpec, **learned):
    """conv1 .. ip2 after n.data; `learned` goes into every layer with weights. Returns the scores."""
    n.conv1 = L.Convolution(n.data, num_output=20, kernel_size=5, stride=1, **learned)
    n.pool1 = L.Pooling(n.conv1, pool="MAX", kernel_size=2, stride=2)
    n.conv2 = L.Convolution(n.pool1, num_output=50, kernel_size=5, stride=1, **learned)
    n.pool2 = L.Pooling(n.conv2, pool="MAX", kernel_size=2, stride=2)
    n.ip1 = L.InnerProduct(n.pool2, num_output=500, **learned)
    n.relu1 = L.ReLU(n.ip1, in_place=True)
    n.ip2 = L.InnerProduct(n.relu1, num_output=10, **learned)
    return n.ip2


def train_val() -> NetSpec:
    n = NetSpec()
    lmdb_layers(
        n, "mnist", "data/mnist", train="mnist_train_lmdb", test="mnist_test_lmdb", batches=(64, 100), scale=1 / 256
    )
    classifier_end(n, body(n, **FILLED))
    return n


def deploy() -> NetSpec:
    n = NetSpec()
    n.data = L.Input(shape={"dim": [64, 1, 28, 28]})
    n.prob = L.Softmax(body(n))
    return n


MODELS = (Model("lenet", {"data": (64, 1, 28, 28)}, {"data": (4, 1, 28, 28)}, classes=10),)


def files() -> dict[str, str]:
    solver = solver_text(
        "lenet",
        net="models/lenet/train_val.prototxt",
        test_iter=100,
        test_interval=500,
        base_lr=0.01,
        momentum=0.9,
        weight_decay=0.0005,
        lr_policy="inv",
        gamma=0.0001,
        power=0.75,
        display=100,
        max_iter=10000,
        snapshot=5000,
        snapshot_prefix="models/lenet/lenet",
    )
    return {
        "lenet/train_val.prototxt": net_text("lenet", "LeNet", train_val()),
        "lenet/deploy.prototxt": net_text("lenet", "LeNet", deploy()),
        "lenet/solver.prototxt": solver,
    }
